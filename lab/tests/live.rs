//! The live machine's modules (topology, doctor, settings, scopes) on the kernels that they are written for.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use thermocline_lab::{Guest, Line, Machine};

/// The checks, an example of the crate that they are about, built as this test was and with BPF.
static CHECKS: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile_folder = Path::new(env!("CARGO_BIN_EXE_lab")).parent().unwrap();
    let profile = match profile_folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "thermocline-linux", "--features", "bpf", "--example", "live_lab"])
        .args(["--profile", profile, "--target-dir"])
        .arg(profile_folder.parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    profile_folder.join("examples/live_lab")
});

fn every_check_holds(line: Line, machine: Machine, shape: &str, checks: usize) {
    let guest = Guest::builder().kernel(line).machine(machine).timeout(Some(Duration::from_secs(150)));
    let outcome = match guest.exec(&[CHECKS.to_str().unwrap(), "check", shape]) {
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
fn with_all_nodes_in_one_tier() {
    let mut machine = three_nodes();
    machine.tiers = false;
    every_check_holds(Line::Stable, machine, "one-tier", 1);
}

#[test]
fn with_a_single_node() {
    every_check_holds(Line::Stable, Machine::of_sizes(&[1 << 30]), "single", 2);
}
