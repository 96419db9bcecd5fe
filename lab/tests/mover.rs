//! The mover on real pages of real processes, on both kernels.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use thermocline_lab::{Guest, Line, Machine};

/// The process whose pages are moved.
fn pages() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/pages.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-o"];
    let output = Command::new("cc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Built once for all tests.
static PAGES: LazyLock<PathBuf> = LazyLock::new(pages);

fn every_check_holds(line: Line) {
    // The second node is small, so that filling it takes little time.
    let machine = Machine::of_sizes(&[1 << 30, 256 << 20, 1 << 30]);
    let guest = Guest::builder().kernel(line).machine(machine).timeout(Some(Duration::from_secs(120)));
    let checks = common::example("mover_lab");
    let outcome = match guest.exec(&[checks.to_str().unwrap(), PAGES.to_str().unwrap()]) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            eprintln!("skipped: {error}");
            return;
        }
        outcome => outcome.unwrap(),
    };
    println!("{} in {:.1} s\n{}", outcome.release, outcome.total.as_secs_f64(), outcome.stdout);
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout.lines().filter(|line| line.starts_with("ok ")).count(), 17);
}

#[test]
fn every_check_holds_on_6_12() {
    every_check_holds(Line::Stable);
}

#[test]
fn every_check_holds_on_the_newest() {
    every_check_holds(Line::Newest);
}
