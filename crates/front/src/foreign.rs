//! Files of other programs that users pass as ours. They are recognised by their form and never
//! read as ours.

/// The format of another program's file.
struct Format {
    /// What it is.
    what: &'static str,
    /// Whether a text is in this format.
    is: fn(&str) -> bool,
    /// Words that set something in this format, each with our nearest key; empty if there is none.
    keys: &'static [(&'static str, &'static str)],
}

const FORMATS: [Format; 5] = [
    Format {
        what: "a report of `thermocline doctor --json`, which is a machine for `thermocline sim --machine`",
        is: |text| is_json(text) && ["\"verdict\"", "\"topology\""].iter().all(|key| text.contains(key)),
        keys: &[],
    },
    Format {
        what: "a setup of DAMON, as damo takes it",
        is: |text| match is_json(text) {
            true => text.contains("\"kdamonds\""),
            false => top_level(text).any(|line| line.starts_with("kdamonds:")),
        },
        keys: &[
            ("sample_us", "manager.damon.sample_ms"),
            ("aggr_us", "manager.damon.aggregation_ms"),
            ("ops_update_us", "manager.damon.update_ms"),
            ("nr_regions", "manager.damon.regions_min, manager.damon.regions_max"),
            ("migrate_hot", "manager.damon.hot_percent"),
            ("migrate_cold", "manager.damon.cold_ms"),
            ("target_nid", "tiers.nodes"),
            ("time_ms", "manager.damon.promote_time_ms, manager.damon.demote_time_ms"),
            ("sz_bytes", "manager.damon.quota_mib"),
            ("reset_interval_ms", "manager.damon.quota_ms"),
            ("watermarks", "manager.damon.watermark_high_permille and the two below it"),
            ("pid", "scope.pids, with source.damon.addresses = \"virtual\""),
            ("memcg_path", "scope.cgroup"),
            ("pageout", ""),
        ],
    },
    Format {
        what: "a configuration of memtierd",
        is: |text| {
            let of_policy = ["tracker", "config: |", "intervalms"].iter().any(|word| text.contains(word));
            let policy =
                top_level(text).any(|line| line.starts_with("policy:") || line.starts_with("routines:"));
            !is_json(text) && ((policy && of_policy) || text.contains("memtierdconfig:"))
        },
        keys: &[
            ("cgroups", "scope.cgroup"),
            ("pids", "scope.pids"),
            ("tracker", "source.hintfault.enabled, source.damon.enabled"),
            ("intervalms", "engine.tick_ms"),
            ("bandwidth", "admission.rate_limit_mbps"),
            ("idledurationms", "demotion.idle_ms"),
            ("idlenumas", "tiers.nodes"),
            ("activenumas", "tiers.nodes"),
            ("heatnumas", "tiers.nodes"),
            ("swapoutms", ""),
        ],
    },
    Format {
        what: "a project of etmem",
        is: |text| {
            let mut sections = top_level(text).filter(|line| line.starts_with('[')).peekable();
            let first = sections.peek().copied();
            first.is_some_and(|line| line != "[engine]" || text.contains("[task]"))
                && sections.all(|line| ["[project]", "[engine]", "[task]"].contains(&line))
        },
        keys: &[
            ("type", "scope.pids, scope.command"),
            ("value", "scope.pids, scope.command"),
            ("interval", "kernel.scan_period_min_ms, kernel.scan_period_max_ms"),
            ("sleep", "engine.tick_ms"),
            ("T", "rule.frequency.freq_threshold"),
            ("hot_threshold", "rule.frequency.freq_threshold"),
            ("node_pair", "tiers.nodes"),
            ("node_mig_quota", "admission.rate_limit_mbps"),
            ("node_hot_reserve", "admission.free_goal_mib"),
            ("swap_threshold", ""),
        ],
    },
    Format {
        what: "a profile of tuned",
        is: |text| {
            let has = |section| top_level(text).any(|line| line == section);
            (has("[main]") && (text.contains("summary") || text.contains("include"))) || has("[sysctl]")
        },
        keys: &[
            ("kernel.numa_balancing", "kernel.numa_balancing"),
            ("vm.min_unmapped_ratio", "kernel.min_unmapped_ratio"),
            ("vm.zone_reclaim_mode", "demotion.mode"),
        ],
    },
];

/// The format of a text that is not ours; `None` if it is not known.
pub fn named(text: &str) -> Option<&'static str> {
    FORMATS.iter().find(|format| (format.is)(text)).map(|format| format.what)
}

/// The format of a text that is not ours, and our nearest keys for what it sets. `None` if the
/// format is not known.
pub fn told(text: &str) -> Option<String> {
    let format = FORMATS.iter().find(|format| (format.is)(text))?;
    let set = format.keys.iter().filter(|(word, _)| has_word(text, word));
    let ours = set.map(|(word, ours)| match *ours {
        "" => format!("\n  {word}: thermocline does nothing of the kind"),
        ours => format!("\n  {word}: {ours}"),
    });
    let ours: String = ours.collect();
    Some(match ours.as_str() {
        "" => format!("is {}", format.what),
        _ => format!(
            "is {}; what it sets, and the keys of thermocline's that come nearest:{ours}",
            format.what
        ),
    })
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Lines that are not indented and not comments.
fn top_level(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])).map(str::trim_end)
}

/// Whether a text contains a word that is not part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::config::Config;

    pub const MEMTIERD: &str = "policy:\n  name: heat\n  config: |\n    intervalms: 4000\n    pidwatcher:\n      name: cgroups\n      \
        config: |\n        cgroups:\n          - /sys/fs/cgroup/db.slice\n    heatnumas:\n      0: [2]\n      1: [0]\n    tracker:\n      \
        name: idlepage\n    mover:\n      bandwidth: 150\n";
    const DAMO: &str = r#"{ "kdamonds": [ { "contexts": [ { "ops": "paddr", "intervals": { "sample_us": "100 ms", "aggr_us": "2 s" },
        "schemes": [ { "action": "migrate_hot", "target_nid": 0, "quotas": { "time_ms": "2 s" } } ] } ] } ] }"#;
    const DAMO_YAML: &str = "kdamonds:\n- contexts:\n  - ops: paddr\n    nr_regions:\n      min: '10'\n";
    const ETMEM: &str = "[project]\nname=db\nscan_type=page\nloop=3\ninterval=1\nsleep=5\n\n[engine]\nname=slide\nproject=db\n\n\
        [task]\nproject=db\nengine=slide\nname=redis\ntype=name\nvalue=redis-server\nT=2\n";
    const TUNED: &str = "[main]\nsummary=Low latency\n\n[sysctl]\nkernel.numa_balancing=0\n";

    #[test]
    fn files_of_others_are_known_and_what_does_the_same_is_named() {
        for (text, what, keys) in [
            (MEMTIERD, "memtierd", &["cgroups: scope.cgroup", "bandwidth: admission.rate_limit_mbps"][..]),
            (DAMO, "damo", &["sample_us: manager.damon.sample_ms", "target_nid: tiers.nodes"]),
            (DAMO_YAML, "damo", &["nr_regions: manager.damon.regions_min"]),
            (ETMEM, "etmem", &["T: rule.frequency", "type: scope.pids, scope.command"]),
            (TUNED, "tuned", &["kernel.numa_balancing: kernel.numa_balancing"]),
            ("{\"verdict\": \"ok\", \"topology\": {}}", "sim --machine", &[]),
        ] {
            let told = told(text).unwrap_or_else(|| panic!("{text}"));
            assert!(told.contains(what), "{told}");
            assert!(keys.iter().all(|key| told.contains(key)), "{told}");
        }
        assert!(!told(MEMTIERD).unwrap().contains("swapoutms"), "only what is set is told of");
    }

    #[test]
    fn what_is_ours_or_nobodys_is_not_taken_for_theirs() {
        for text in ["", "[engine]\ntick_ms = 5\n", "{", "hello: world\n", "[[scope]]\npids = [1]\n"] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn keys_that_are_named_as_ours_are_ours() {
        let known: Vec<String> = Config::sections()
            .into_iter()
            .flat_map(|(section, fields)| fields.into_iter().map(move |f| format!("{section}.{}", f.name)))
            .collect();
        for (word, ours) in FORMATS.iter().flat_map(|format| format.keys) {
            for key in ours.split([',', ' ']).filter(|part| part.contains('.')) {
                assert!(known.iter().any(|k| k == key), "{word}: {key}");
            }
        }
    }
}
