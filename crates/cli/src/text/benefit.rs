//! Whether it helps: what DRAM serves, what has changed since the start, and what holds more back.
//!
//! Only what the figures say is claimed. Hint faults see lower tiers alone and DAMON sees whether,
//! not how often, so neither tells a share of accesses: hardware samples do.

use std::collections::BTreeMap;
use std::fmt::Write;

use thermocline_core::config::Source;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;

use super::mib;
use crate::snapshot::{Deciding, Snapshot};

/// With fewer samples of memory than this their share says little, and is not shown.
const SAMPLES_MIN: u64 = 400;
/// Of 95 in 100 samples of a size the share is within so many standard deviations.
const SPREAD: f64 = 1.96;

/// Three lines: accesses served by DRAM, moves since the start, and what holds more back now.
pub fn benefit(snapshot: &Snapshot) -> String {
    let mut out = format!("accesses that DRAM serves: {}\n", served(snapshot));
    let _ = writeln!(out, "since the start: {}", changed(snapshot));
    if let Some(engine) = &snapshot.engine {
        let _ = writeln!(out, "now: {}", now(snapshot, engine));
    }
    out
}

/// The share of accesses that the top tier serves, and how well that is known.
fn served(snapshot: &Snapshot) -> String {
    let Some(engine) = &snapshot.engine else {
        return "unknown, because the kernel decides here and counts no accesses".to_owned();
    };
    let sampled = engine.counted.iter().find(|(row, _)| row.source == Source::HwSample);
    let Some((_, sampled)) = sampled else {
        return "unknown, because hint faults and regions do not see those to DRAM; [source.hwsample] samples both, \
                where the hardware can"
            .to_owned();
    };
    let count = |name: &str| sampled.json["samples"][name].as_u64().unwrap_or(0);
    // A rule that balances has samples of the top tier as evidence too.
    let balances = engine.gauges.iter().any(|gauge| gauge.name == "balance_proposed");
    // Where samples do not tell hits from misses, they are not of memory accesses alone.
    if balances || count("cache_hit") + count("no_access") == 0 {
        return "unknown, because these samples do not tell which of them DRAM served".to_owned();
    }
    let (top, lower) = (count("top_tier"), count("useful") + count("out_of_scope"));
    let all = top + lower;
    if all < SAMPLES_MIN {
        return format!(
            "not known yet, from {all} samples of memory since the start; {SAMPLES_MIN} are needed"
        );
    }
    let share = top as f64 / all as f64;
    let error = SPREAD * (share * (1.0 - share) / all as f64).sqrt();
    format!("{:.1} +- {:.1} % since the start, of {all} samples of memory", 100.0 * share, 100.0 * error)
}

/// What has moved.
fn changed(snapshot: &Snapshot) -> String {
    let sum = |by: thermocline_linux::kernel_moves::MovedBy| by.thermocline + by.kernel + by.damon;
    let (up, down) = (sum(snapshot.moved.promoted), sum(snapshot.moved.demoted));
    if up + down == 0 {
        return "nothing has moved".to_owned();
    }
    let mut out = format!("{:.1} MiB promoted, {:.1} MiB demoted", mib(up), mib(down));
    if let Some(engine) = &snapshot.engine {
        let again = engine.counters.promoted_again;
        if again > 0 {
            let _ = write!(out, "; {:.1} MiB of that was promoted more than once", mib(again));
        }
    }
    out
}

/// What holds promotion back at this moment.
fn now(snapshot: &Snapshot, engine: &Deciding) -> String {
    let waiting: u64 = engine.waiting.values().sum();
    if waiting > 0 {
        return format!("{waiting} pages wait to move; {}", holding(&engine.waiting, waiting));
    }
    if engine.gauge("batches_in_flight") > 0 {
        return "all pages that stood out are on their way".to_owned();
    }
    let topology = &snapshot.fixed.topology;
    let lower = snapshot.nodes.iter().filter(|node| topology.is_lower(node.node));
    let used: u64 = lower.map(|node| node.managed_pages.saturating_sub(node.free_pages)).sum();
    if topology.page_bytes.mib(used) == 0 {
        return "lower tiers are empty, so that there is nothing to promote".to_owned();
    }
    let evidence = engine.counters.evidence.sum() + engine.counters.region_pages;
    if evidence == 0 {
        return format!(
            "no evidence yet, with {} MiB in use on lower tiers that the sources have to look through first",
            topology.page_bytes.mib(used)
        );
    }
    if engine.counters.proposed == 0 {
        return format!("of {evidence} items of evidence none made a page stand out so far");
    }
    "no page waits: what stood out was moved, refused, or has grown cold".to_owned()
}

/// What holds most of those that wait.
fn holding(waiting: &BTreeMap<Option<RefusalReason>, u64>, all: u64) -> String {
    let most = waiting.iter().max_by_key(|(_, count)| **count);
    match most {
        Some((Some(reason), count)) => {
            let plainly = match reason {
                RefusalReason::RateLimited => "it is at its cap, admission.rate_limit_mbps",
                RefusalReason::NodeFull | RefusalReason::BelowGoal => "the top tier is full",
                RefusalReason::Braked => "their scope is braked",
                RefusalReason::Retry => "they were busy and are tried again",
                RefusalReason::BudgetSpent => {
                    "what such pages gain is not known, payoff.budget_percent is spent"
                }
                RefusalReason::BatchesInFlight => "moves under way come first",
                _ => "",
            };
            let plainly = if plainly.is_empty() { String::new() } else { format!(": {plainly}") };
            let of = if *count == all { "all".to_owned() } else { count.to_string() };
            format!("{of} held by {}{plainly}", reason.name())
        }
        _ => "nothing holds them but their turn".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use thermocline_core::rule::Gauge;
    use thermocline_core::topology::{NodeState, Watermarks};
    use thermocline_core::units::NodeId;
    use thermocline_linux::kernel_moves::{Moved, MovedBy};
    use thermocline_linux::source::{Counted, ROWS};

    use super::*;

    fn with(change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
        let mut snapshot = Snapshot::for_tests();
        change(&mut snapshot);
        benefit(&snapshot).lines().map(str::to_owned).collect()
    }

    fn engine(snapshot: &mut Snapshot) -> &mut Deciding {
        snapshot.engine.as_mut().expect("it decides")
    }

    fn sampled(samples: serde_json::Value) -> impl FnOnce(&mut Snapshot) {
        move |snapshot| {
            let row = ROWS.iter().find(|row| row.source == Source::HwSample).expect("a row");
            let counted = Counted { json: json!({ "samples": samples }), ..Counted::default() };
            engine(snapshot).counted = vec![(row, counted)];
        }
    }

    #[test]
    fn a_share_is_claimed_only_where_samples_tell_one() {
        let unsampled = with(|_| ());
        assert!(
            unsampled[0].starts_with("accesses that DRAM serves: unknown, because hint faults"),
            "{unsampled:?}"
        );
        let samples =
            json!({ "top_tier": 900, "useful": 90, "out_of_scope": 10, "cache_hit": 5, "no_access": 1 });
        // 1.96 * sqrt(0.9 * 0.1 / 1000) = 0.0186.
        let told = "accesses that DRAM serves: 90.0 +- 1.9 % since the start, of 1000 samples of memory";
        assert_eq!(with(sampled(samples.clone()))[0], told);
        let few = with(sampled(json!({ "top_tier": 90, "useful": 9, "cache_hit": 5 })));
        assert!(few[0].contains("not known yet, from 99 samples"), "{few:?}");
        let faults = with(sampled(json!({ "top_tier": 900, "useful": 100 })));
        assert!(faults[0].contains("do not tell"), "{faults:?}");
        let balances = with(|s| {
            sampled(samples)(s);
            engine(s).gauges = vec![Gauge { name: "balance_proposed", node: None, value: 0 }];
        });
        assert!(balances[0].contains("do not tell"), "{balances:?}");
        let kernel = with(|s| s.engine = None);
        assert!(kernel[0].contains("the kernel decides") && kernel.len() == 2, "{kernel:?}");
    }

    #[test]
    fn what_has_moved_is_told_whoever_moved_it() {
        let by = |thermocline, kernel| MovedBy { thermocline, kernel, damon: 0 };
        let moved = with(|s| {
            s.moved = Moved { promoted: by(512, 256), demoted: by(128, 0) };
            engine(s).counters.promoted_again = 64;
        });
        let told =
            "since the start: 3.0 MiB promoted, 0.5 MiB demoted; 0.2 MiB of that was promoted more than once";
        assert_eq!(moved[1], told);
        assert_eq!(with(|_| ())[1], "since the start: nothing has moved");
    }

    #[test]
    fn what_holds_more_back_is_the_reason_of_most_that_wait() {
        let waiting = |waiting: &[(Option<RefusalReason>, u64)]| {
            let waiting = waiting.iter().copied().collect();
            with(|s| engine(s).waiting = waiting)[2].clone()
        };
        let capped = waiting(&[(Some(RefusalReason::RateLimited), 7), (None, 3)]);
        let told =
            "now: 10 pages wait to move; 7 held by rate_limited: it is at its cap, admission.rate_limit_mbps";
        assert_eq!(capped, told);
        let full = waiting(&[(Some(RefusalReason::NodeFull), 4)]);
        assert_eq!(full, "now: 4 pages wait to move; all held by node_full: the top tier is full");
        assert_eq!(waiting(&[(None, 2)]), "now: 2 pages wait to move; nothing holds them but their turn");
    }

    #[test]
    fn without_pages_that_wait_it_says_what_there_is_to_find() {
        use thermocline_core::topology::{Node, Topology};
        use thermocline_core::units::TierId;

        let node = |id: u16, distances: &[u8]| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: 1 << 18,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: distances.to_vec(),
        };
        let topology = Topology::new(vec![node(0, &[10, 20]), node(1, &[20, 10])]).expect("it is sound");
        let told = |used_mib: u64, change: fn(&mut Deciding)| {
            with(|s| {
                s.fixed.topology = topology.clone();
                s.nodes = vec![NodeState {
                    node: NodeId(1),
                    free_pages: (1 << 18) - used_mib * 256,
                    managed_pages: 1 << 18,
                    watermarks: Watermarks::default(),
                }];
                change(engine(s));
            })[2]
                .clone()
        };
        assert!(told(0, |_| ()).contains("lower tiers are empty"));
        assert!(told(305, |_| ()).contains("no evidence yet, with 305 MiB in use on lower tiers"));
        let seen = told(305, |e| e.counters.region_pages = 12);
        assert_eq!(seen, "now: of 12 items of evidence none made a page stand out so far");
        let done = told(305, |e| {
            e.counters.region_pages = 12;
            e.counters.proposed = 3;
        });
        assert!(done.contains("no page waits"), "{done}");
    }
}
