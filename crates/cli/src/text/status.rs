//! The text of `thermocline status`.

use std::fmt::Write;

use thermocline_core::topology::Topology;
use thermocline_linux::finding::Severity;
use thermocline_trace::stats::RecordingStats;

use super::{
    benefit, brakes, by_damon, by_kernel, kswapd, ledgers, mib, overhead, residency, reverse, scopes,
};
use crate::snapshot::{Deciding, Snapshot, Status};
use crate::{escape, recorded};

/// The daemon's report.
pub fn status(status: &Status<'_>) -> String {
    let Status { snapshot, residency: found, late } = status;
    let mut out = head(snapshot);
    if let Some(late) = late {
        let _ = writeln!(
            out,
            "its loop has not turned for {:.1} s, and all figures but those of memory are as old: something keeps it",
            late.as_secs_f64()
        );
    }
    let (wrong, notes): (Vec<_>, Vec<_>) =
        snapshot.findings.iter().partition(|open| open.finding.severity >= Severity::Problem);
    wrong.iter().for_each(|open| out.push_str(&format!("{}\n", open.line())));
    out.push_str(&benefit(snapshot));
    out.push_str(&nodes(snapshot, &snapshot.fixed.topology));
    let settings = &snapshot.settings;
    if settings.changed_by_others > 0 {
        let _ = writeln!(
            out,
            "kernel settings changed by others: {} times, {} times set again, {} left so",
            settings.changed_by_others, settings.set_again, settings.left
        );
    }
    out.push_str(&snapshot.recording.as_ref().map(recording).unwrap_or_default());
    out.push_str(&kswapd(&snapshot.kswapd));
    notes.iter().for_each(|open| out.push_str(&format!("{}\n", open.line())));
    out.push_str(&residency(found));
    if let Some(engine) = &snapshot.engine {
        out.push_str(&evidence(engine));
    }
    out.push_str(&by_kernel(&snapshot.kernel_moves));
    out.push_str(&snapshot.damon.as_ref().map(by_damon).unwrap_or_default());
    if let Some(engine) = &snapshot.engine {
        out.push_str(&counters(engine));
    }
    out
}

fn head(snapshot: &Snapshot) -> String {
    let fixed = &snapshot.fixed;
    let rule = fixed.rule.map(|rule| format!(", rule {}", rule.text())).unwrap_or_default();
    format!(
        "thermocline {} (pid {}), {} for {:.0} s, manager {}{rule}\n",
        fixed.version,
        fixed.pid,
        fixed.mode,
        snapshot.uptime_ns.0 as f64 / 1e9,
        fixed.manager.text(),
    )
}

/// How the recording fares.
fn recording(stats: &RecordingStats) -> String {
    let mut out = format!(
        "recording to {}: {} pieces of evidence in {} parts, {}",
        escape::name(&stats.folder),
        stats.pieces,
        stats.parts,
        recorded::bytes(stats.bytes)
    );
    if stats.lost > 0 {
        let _ = write!(out, "; {} pieces lost, because the disk did not keep up", stats.lost);
    }
    if let Some(why) = &stats.why {
        let _ = write!(out, "; ended: {}", escape::name(why));
    }
    out + "\n"
}

/// One line per node, and the nodes where the kernel promotes by itself.
fn nodes(snapshot: &Snapshot, topology: &Topology) -> String {
    let mut out = String::new();
    for state in &snapshot.nodes {
        let tier = topology.nodes.iter().find(|node| node.id == state.node);
        let _ = writeln!(
            out,
            "node {} (tier {}): {:.0} of {:.0} MiB free, high watermark {:.0} MiB",
            state.node.0,
            tier.map_or("unknown".to_owned(), |node| node.tier.0.to_string()),
            mib(state.free_pages).floor(),
            mib(state.managed_pages).floor(),
            mib(state.watermarks.high_pages).floor(),
        );
    }
    for node in snapshot.engine.iter().flat_map(|engine| &engine.free_space_promotion) {
        let _ = writeln!(
            out,
            "free-space promotion active on node {}: the kernel promotes at the first fault",
            node.0
        );
    }
    out
}

/// What holds scopes back, and the counters of the sources.
fn evidence(engine: &Deciding) -> String {
    let mut out = scopes(&engine.scopes);
    out.push_str(&ledgers(&engine.ledgers));
    out.push_str(&brakes(&engine.brakes, false));
    engine.counted.iter().for_each(|(_, counted)| out.push_str(&counted.text));
    out.push_str(&engine.reverse.as_ref().map(reverse).unwrap_or_default());
    out.push_str(&overhead(&engine.overhead));
    out
}

/// The engine's counters that are not 0, and its gauges.
fn counters(engine: &Deciding) -> String {
    let mut out = String::new();
    for sample in engine.counters.samples().into_iter().filter(|sample| sample.value > 0) {
        let label = sample.label.unwrap_or_default();
        let _ = writeln!(out, "{:<24} {label:<20} {:>12}", sample.name, sample.value);
    }
    for gauge in &engine.gauges {
        let node = gauge.node.map_or(String::new(), |node| format!("node {}", node.0));
        let _ = writeln!(out, "{:<24} {node:<20} {:>12}", gauge.name, gauge.value);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thermocline_core::config::{Config, ManagerName};
    use thermocline_core::rule::Gauge;
    use thermocline_core::units::NodeId;
    use thermocline_linux::damon::{Action, DamonStats, SchemeStats};
    use thermocline_linux::finding::{Demoting, Facts, View, judge};
    use thermocline_linux::residency::Residency;

    use super::*;
    use crate::snapshot::OpenFinding;

    fn shown(snapshot: &Snapshot, late: Option<Duration>) -> String {
        status(&Status { snapshot, residency: Ok(Residency::default()), late })
    }

    #[test]
    fn a_manager_of_the_kernels_has_neither_rule_nor_source_of_ours() {
        let scheme = SchemeStats {
            kdamond: 2,
            action: Action::MigrateHot,
            from: NodeId(2),
            to: NodeId(0),
            tried_pages: 512,
            moved_pages: 256,
            elsewhere_pages: 64,
            quota_exceeded: 3,
        };
        let mut snapshot = Snapshot::for_tests();
        snapshot.fixed.manager = ManagerName::Damon;
        snapshot.fixed.rule = None;
        snapshot.engine = None;
        snapshot.damon = Some(DamonStats { schemes: vec![scheme], running: 3, started: 3 });
        let text = shown(&snapshot, None);
        assert!(text.contains("), run for 4 s, manager damon\n"), "{text}");
        let moved =
            "migrate_hot from node 2 to node 0: 1.0 MiB of 2.0 MiB tried, at most 0.2 MiB of it elsewhere";
        assert!(text.contains(moved) && !text.contains("hint faults"), "{text}");
    }

    #[test]
    fn what_is_wrong_has_a_line_and_counters_of_0_have_none() {
        let mut snapshot = Snapshot::for_tests();
        let since = "2026-11-27T07:20:11Z".to_owned();
        let config = Config::default();
        let demoting = Demoting::No("MGLRU is off".to_owned());
        let view = View { config: &config, found: None, demoting: &demoting, running: None };
        let no_cgroup = vec!["scope[0].cgroup \"/a\" is not there now".to_owned()];
        let found = judge(&view, &Facts { no_cgroup, ..Facts::default() });
        snapshot.findings =
            found.into_iter().map(|finding| OpenFinding { finding, since: since.clone() }).collect();
        snapshot.settings.changed_by_others = 2;
        snapshot.recording = Some(RecordingStats {
            pieces: 7,
            parts: 1,
            bytes: 2048,
            lost: 3,
            folder: "/r".to_owned(),
            why: Some("it is full".to_owned()),
            ..RecordingStats::default()
        });
        if let Some(engine) = &mut snapshot.engine {
            engine.counters.proposed = 5;
            engine.gauges = vec![Gauge { name: "hot_threshold_ms", node: Some(NodeId(1)), value: 900 }];
            engine.free_space_promotion = vec![NodeId(0)];
        }
        let text = shown(&snapshot, Some(Duration::from_millis(2500)));
        for line in [
            "its loop has not turned for 2.5 s, and all figures but those of memory are as old: something keeps it",
            "note since 2026-11-27T07:20:11Z: nothing will be demoted, so that promotion ends where the top tier is full: MGLRU is off \
             [demotion.none]",
            "free-space promotion active on node 0: the kernel promotes at the first fault",
            "recording to /r: 7 pieces of evidence in 1 parts, 2.0 KiB; 3 pieces lost, because the disk did not keep up; \
             ended: it is full",
            "kernel settings changed by others: 2 times, 0 times set again, 0 left so",
            &format!("{:<45} {:>12}", "proposed", 5),
            &format!("{:<24} {:<20} {:>12}", "hot_threshold_ms", "node 1", 900),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("merged"), "{text}");
        let third = text.lines().nth(2).unwrap();
        let begin = "problem since 2026-11-27T07:20:11Z: scope[0].cgroup \"/a\" is not there now [scope.no_cgroup]; name a";
        assert!(third.starts_with(begin), "problems come before all figures: {text}");
    }
}
