//! The live machine's modules (topology, doctor, settings, scopes) on the kernels that they are
//! written for.

#![allow(clippy::unwrap_used)]

mod common;
mod soak;

use std::time::Duration;

use soak::where_time_is_no_matter;
use thermocline_lab::{Guest, Line, Machine};

fn every_check_holds(line: Line, machine: Machine, shape: &str, checks: usize) {
    let guest = Guest::builder().kernel(line).machine(machine).timeout(Some(Duration::from_secs(150)));
    let outcome = match guest.exec(&[common::example("live_lab").to_str().unwrap(), "check", shape]) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            eprintln!("skipped: {error}");
            return;
        }
        outcome => outcome.unwrap(),
    };
    println!("{} in {:.1} s\n{}", outcome.release, outcome.total.as_secs_f64(), outcome.stdout);
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout.lines().filter(|line| line.starts_with("ok ")).count(), checks);
}

fn three_nodes() -> Machine {
    Machine::of_sizes(&[1 << 30, 1 << 30, 1 << 30])
}

#[test]
fn with_tiers_on_6_12() {
    every_check_holds(Line::Stable, three_nodes(), "tiers", 7);
}

#[test]
fn with_tiers_on_the_newest() {
    every_check_holds(Line::Newest, three_nodes(), "tiers", 7);
}

#[test]
fn with_tiers_on_6_1() {
    where_time_is_no_matter(|| every_check_holds(Line::Debian12, three_nodes(), "tiers", 7));
}

#[test]
fn with_tiers_on_6_18() {
    where_time_is_no_matter(|| every_check_holds(Line::Longterm, three_nodes(), "tiers", 7));
}

#[test]
fn with_all_nodes_in_one_tier() {
    let mut machine = three_nodes();
    machine.tiers = false;
    every_check_holds(Line::Stable, machine, "one-tier", 1);
}

#[test]
fn with_a_single_node() {
    every_check_holds(Line::Stable, Machine::of_sizes(&[1 << 30]), "single", 2);
}
