//! Which rows of the published tables hold: pinned, so that none is lost, or won, unnoticed.

use std::sync::atomic::AtomicBool;

use thermocline_sim::reproduce::{reproduce, tables};

/// Runs of each arm.
const SEEDS: u64 = 2;

/// Rows of a table that do not hold with two seeds.
const FAIL: [(&str, &[&str]); 4] = [("s0", &[]), ("s1", &[]), ("s2-oltp", &[]), ("s4-promote", &[])];

#[test]
fn the_rows_that_fail_are_those_that_are_known_to() {
    for (name, known) in FAIL {
        let table = tables().unwrap().into_iter().find(|table| table.name == name).unwrap();
        let rows = reproduce(&table, SEEDS, &AtomicBool::new(false), &|_| {}).unwrap();
        let expected = table.row.len() + table.mean.len() + table.order.len();
        assert_eq!(rows.len(), expected, "every row is told");
        let failing: Vec<&str> = rows.iter().filter(|row| !row.holds).map(|row| row.row.as_str()).collect();
        assert_eq!(failing, known, "{name}: which rows fail has changed");
    }
}
