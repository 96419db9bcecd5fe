//! Which rows of the published tables fail: pinned, so that none is lost, or won, unnoticed.
//!
//! Two seeds are few for `s0`, all of whose rows hold with sixteen. `THERMOCLINE_SOAK=1` adds the
//! table that takes minutes.

use std::sync::atomic::AtomicBool;

use thermocline_sim::reproduce::{reproduce, tables};

/// Runs of each arm.
const SEEDS: u64 = 2;

/// A table, whether it takes minutes, and its rows that do not hold with two seeds.
const FAIL: [(&str, bool, &[&str]); 4] = [
    (
        "s0",
        false,
        &[
            "default: pgpromote_success",
            "default: pgpromote_candidate",
            "default: numa_pages_migrated",
            "fault-count: rejected of the faults, %",
            "fault-count: rejected_latency",
        ],
    ),
    // Ordinary balancing takes 35 % fewer faults than published, and IBS adapts its period to fewer
    // samples on node 1 and to more migrations on node 2. What costs are counted by falls with
    // them.
    (
        "s1",
        false,
        &[
            "node 2 IBS: time, s",
            "node 1 default: numa_pte_updates",
            "node 1 default: numa_hint_faults",
            "node 1 IBS: numa_hint_faults",
            "node 2 IBS: numa_hint_faults",
            "node 1 default: numa_hint_faults_local",
            "node 1 IBS: numa_hint_faults_local",
            "node 2 IBS: numa_pages_migrated",
            "node 1 IBS: ibs_nr_events",
            "node 1 IBS: ibs_useful_samples",
            "node 2 IBS: ibs_useful_samples",
            "node 1 default: scan time, s",
            "node 1 default: overhead a fault or sample, us",
            "node 1 IBS: overhead a fault or sample, us",
        ],
    ),
    // kmigrated is 100 ms behind the faults here; as published, it is a step of the scan, a second.
    (
        "s4-promote",
        false,
        &[
            "pghot behind numab2: pages promoted after 36 s",
            "pghot behind numab2: pages promoted after 40 s",
            "pghot behind numab2: pages promoted after 44 s",
            "pghot behind numab2: pages promoted after 48 s",
            "pghot behind numab2: pages promoted after 52 s",
            "pghot behind numab2: pages promoted after 56 s",
            "pghot behind numab2: pages promoted after 60 s",
        ],
    ),
    // The faults that speculation saves are a small part of a transaction here.
    (
        "s2-oltp",
        true,
        &["on: transactions a second", "on: queries a second", "on against off: transactions a second, %"],
    ),
];

#[test]
fn the_rows_that_fail_are_those_that_are_known_to() {
    let soak = std::env::var_os("THERMOCLINE_SOAK").is_some();
    let mut changed = Vec::new();
    for (name, _, known) in FAIL.into_iter().filter(|(_, slow, _)| soak || !slow) {
        let table = tables().unwrap().into_iter().find(|table| table.name == name).unwrap();
        let rows = reproduce(&table, SEEDS, &AtomicBool::new(false), &|_| {}).unwrap();
        let expected = table.row.len() + table.mean.len() + table.order.len();
        assert_eq!(rows.len(), expected, "{name}: every row is told");
        let failing: Vec<&str> = rows.iter().filter(|row| !row.holds).map(|row| row.row.as_str()).collect();
        if failing != known {
            changed.push(format!("{name}: {failing:#?}"));
        }
    }
    assert!(changed.is_empty(), "which rows fail has changed: {}", changed.join("\n"));
}
