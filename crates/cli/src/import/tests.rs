//! Each line of other programs' files is translated or refused, and the result is a valid
//! configuration.

use proptest::prelude::*;
use thermocline_core::config::{Config, ManagerName, RuleName};

use super::*;

const MEMTIERD: &str = "\
policy:
  name: age
  config: |
    intervalms: 200
    pidwatcher:
      name: cgroups
      config: |
        cgroups:
          - /sys/fs/cgroup/db.slice
          - /sys/fs/cgroup/web.slice
    swapoutms: 10000
    idledurationms: 30000
    idlenumas: [2, 3]
    activedurationms: 5000
    activenumas: [0, 1]
    tracker:
      name: damon
      config: |
        connection: perf
        samplingus: 5000
        aggregationus: 100000
        maxtargetregions: 1000
    mover:
      intervalms: 20
      bandwidth: 150
routines:
  - name: statactions
    config: |
      intervalms: 1000
";

const HMSDK: &str = r#"{
 "kdamonds": [
  { "state": null, "pid": null,
    "contexts": [
     { "ops": "paddr",
       "targets": [ { "pid": null, "regions": [ { "start": "4294967296", "end": "8589934592" } ] } ],
       "intervals": { "sample_us": "100 ms", "aggr_us": "2 s", "ops_update_us": "20 s" },
       "nr_regions": { "min": "100", "max": "10,000" },
       "schemes": [
        { "action": "migrate_cold", "target_nid": 2,
          "access_pattern": {
           "sz_bytes": { "min": "4.000 KiB", "max": "max" },
           "nr_accesses": { "min": "0 %", "max": "0 %" },
           "age": { "min": "40 s", "max": "max" } },
          "quotas": { "time_ms": "1 s", "sz_bytes": "40.000 GiB", "reset_interval_ms": "20 s",
           "weights": { "sz_permil": "0 %", "nr_accesses_permil": "0 %", "age_permil": "1 %" } },
          "watermarks": { "metric": "none", "interval_us": "0 ns" },
          "filters": [
           { "type": "memcg", "memcg_path": "/hmsdk", "matching": false },
           { "type": "young", "matching": true } ] } ] } ] },
  { "contexts": [
     { "ops": "paddr",
       "intervals": { "sample_us": "100 ms", "aggr_us": "2 s", "ops_update_us": "20 s" },
       "nr_regions": { "min": "100", "max": "10,000" },
       "schemes": [
        { "action": "migrate_hot", "target_nid": 0,
          "access_pattern": { "nr_accesses": { "min": "10 %", "max": "100 %" }, "age": { "min": "0 ns", "max": "max" } },
          "quotas": { "time_ms": "2 s", "sz_bytes": "50.000 GiB", "reset_interval_ms": "20 s" },
          "filters": [
           { "type": "memcg", "memcg_path": "/hmsdk", "matching": false },
           { "type": "young", "matching": false } ] },
        { "action": "pageout" } ] } ] } ] }
"#;

const SYSCTL: &str = "\
# tiers
kernel.numa_balancing = 2
kernel.numa_balancing_promote_rate_limit_MBps = 1024
kernel.pid_max = 4194304
vm.demote_scale_factor = 300
vm.zone_reclaim_mode=1
vm/min_unmapped_ratio = 0
vm.swappiness = 60
kernel.numa_balancing_scan_size_mb = 1000000
";

fn imported(text: &str, format: Format) -> (Import, Config) {
    assert_eq!(Format::of(text), Some(format));
    let import = import(text, format).unwrap();
    let toml = import.toml("x.conf", format);
    let config = thermocline_front::config::parse(&toml, "imported.toml", |_| {})
        .unwrap_or_else(|e| panic!("{e}\n{toml}"));
    (import, config)
}

/// What became of the statements on a line.
fn became(import: &Import, line: usize) -> Vec<&Became> {
    import.told.iter().filter(|told| told.line == line).map(|told| &told.became).collect()
}

fn is_refused(import: &Import, line: usize, why: &str) -> bool {
    became(import, line).iter().any(|became| matches!(became, Became::Refused(told) if told.contains(why)))
}

#[test]
fn memtierds_policy_becomes_rule_scopes_source_and_limits() {
    let (import, config) = imported(MEMTIERD, Format::Memtierd);
    assert_eq!(
        (config.rule.name, config.engine.tick_ms, config.demotion.idle_ms),
        (RuleName::Adaptive, 200, 30_000)
    );
    assert_eq!(config.tiers.nodes, [vec![0, 1], vec![2, 3]]);
    let cgroups: Vec<&str> = config.scope.iter().filter_map(|s| s.cgroup.as_deref()).collect();
    assert_eq!(cgroups, ["/sys/fs/cgroup/db.slice", "/sys/fs/cgroup/web.slice"]);
    assert_eq!((config.admission.rate_limit_mbps, config.demotion.rate_limit_mbps), (150, 150));
    let damon = &config.source.damon;
    assert_eq!(
        (damon.enabled, damon.sample_ms, damon.aggregation_ms, damon.regions_max),
        (true, 5, 100, 1000)
    );
    assert!(is_refused(&import, 11, "swaps nothing") && is_refused(&import, 14, "adaptive"));
    assert!(is_refused(&import, 19, "nothing of the kind to set"));
    assert!(is_refused(&import, 27, "runs no commands"));
    // Each line that makes a statement is reported. Lines that begin an object are covered by its
    // content.
    for line in (2..=27).filter(|line| ![3, 5, 7, 8, 16, 18, 23, 26].contains(line)) {
        assert!(!became(&import, line).is_empty(), "line {line}");
    }
}

#[test]
fn hmsdks_schemes_become_manager_damon() {
    let (import, config) = imported(HMSDK, Format::Damo);
    let damon = &config.manager.damon;
    assert_eq!(config.manager.name, ManagerName::Damon);
    assert_eq!((damon.sample_ms, damon.aggregation_ms, damon.update_ms), (100, 2000, 20_000));
    assert_eq!(
        (damon.regions_min, damon.regions_max, damon.cold_ms, damon.hot_percent),
        (100, 10_000, 40_000, 10)
    );
    assert_eq!((damon.promote_time_ms, damon.demote_time_ms, damon.quota_mib), (2000, 1000, 40_960));
    assert_eq!((damon.weight_age_permille, damon.young), (10, true));
    assert_eq!(config.tiers.nodes, [vec![0], vec![2]]);
    let cgroups: Vec<&str> = config.scope.iter().filter_map(|s| s.cgroup.as_deref()).collect();
    assert_eq!(cgroups, ["/hmsdk"]);
    assert!(
        is_refused(&import, 28, "line 15 has set manager.damon.quota_mib = 40960"),
        "{:?}",
        became(&import, 28)
    );
    assert!(is_refused(&import, 32, "does nothing else"));
    assert_eq!(import.counts().1, 2);
}

#[test]
fn the_kernels_default_limit_is_no_limit_to_take_over() {
    let text = "kernel.numa_balancing = 2\nkernel.numa_balancing_promote_rate_limit_MBps = 65536\n";
    let (import, config) = imported(text, Format::Sysctl);
    assert!(is_refused(&import, 2, "limits nothing"));
    assert_eq!(config.admission.rate_limit_mbps, Config::default().admission.rate_limit_mbps);
}

#[test]
fn settings_of_the_kernel_become_keys_or_stay_where_they_are() {
    let (import, config) = imported(SYSCTL, Format::Sysctl);
    assert_eq!(config.kernel.numa_balancing, Some(2));
    assert_eq!((config.admission.rate_limit_mbps, config.demotion.free_goal_bp), (1024, 300));
    assert_eq!(config.kernel.min_unmapped_ratio, Some(0));
    assert!(is_refused(&import, 4, "nothing to do with tiers") && is_refused(&import, 6, "demotion.mode"));
    assert!(is_refused(&import, 8, "does not swap"));
    assert!(is_refused(&import, 9, "kernel.scan_size_mb is 1 to 65536"));
    assert_eq!(import.counts(), (4, 4));
    let toml = import.toml("x.conf", Format::Sysctl);
    assert!(toml.starts_with("# From x.conf, settings of the kernel: 4 translated, 4 refused."), "{toml}");
    assert!(toml.contains("# line 2: kernel.numa_balancing = 2 -> kernel.numa_balancing = 2"), "{toml}");
    let off = super::import("kernel.numa_balancing=0\n", Format::Sysctl).unwrap();
    assert!(is_refused(&off, 1, "puts 0 back"));
}

#[test]
fn many_lines_that_are_refused_for_one_reason_are_told_together() {
    let text: String = (0..1000).map(|n| format!("net.ipv4.x{n} = {n}\n")).collect();
    let toml = import(&text, Format::Sysctl).unwrap().toml("all", Format::Sysctl);
    assert!(
        toml.contains("# 1000 lines: refused: it has nothing to do with tiers: net.ipv4.x0 (line 1)"),
        "{toml}"
    );
    assert!(toml.contains("net.ipv4.x999 (line 1000)"));
}

#[test]
fn every_key_that_is_translated_to_is_ours() {
    for source in [include_str!("memtierd.rs"), include_str!("damo.rs"), include_str!("sysctl.rs")] {
        for quoted in source.split('"').skip(1).step_by(2) {
            let sections = [
                "engine.",
                "rule.",
                "admission.",
                "demotion.",
                "source.damon.",
                "manager.damon.",
                "tiers.",
                "kernel.scan_",
            ];
            let is_key = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c));
            let is_ours =
                sections.iter().any(|section| quoted.len() > section.len() && quoted.starts_with(section));
            assert!(!is_ours || !is_key(quoted) || field(quoted).is_some(), "{quoted}");
        }
    }
}

#[test]
fn what_is_nobodys_file_is_not_guessed() {
    for text in ["", "[engine]\ntick_ms = 50\n", "hello world\n", "{}", "# nothing\n"] {
        assert_eq!(Format::of(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_what_it_comes_to_is_toml(text in "[a-z:{}\\[\\]\"',|&*0-9 \n-]{0,400}") {
        for format in [Format::Memtierd, Format::Damo, Format::Sysctl] {
            if let Ok(import) = import(&text, format) {
                prop_assert!(import.toml("x", format).parse::<toml::Table>().is_ok());
            }
        }
    }

    #[test]
    fn damaged_files_are_read_or_refused(cut in 0usize..2000, at in 0usize..2000, with in "[\\PC\n]{0,3}") {
        for (text, format) in [(MEMTIERD, Format::Memtierd), (HMSDK, Format::Damo), (SYSCTL, Format::Sysctl)] {
            let mut text = text[..cut.min(text.len())].to_owned();
            text.insert_str(at.min(text.len()), &with);
            if let Ok(import) = import(&text, format) {
                prop_assert!(import.toml("x", format).parse::<toml::Table>().is_ok());
            }
        }
    }
}
