//! The sampler's rings, read by a program in a live guest that knows what its samples must say.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Guest, Machine};

const PERIOD: u64 = 50;

/// What `samples` prints.
#[derive(Debug, Deserialize)]
struct Found {
    rings: u64,
    slots: u64,
    lines_read: u64,
    lines_written: u64,
    reads: u64,
    writes: u64,
    others: u64,
    wrong: u64,
    dropped: u64,
    lines_overflowing: u64,
    dropped_overflowing: u64,
}

fn samples() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/samples.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("samples");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-o"];
    let output = Command::new("cc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Whether `count` is `expected` to within 5 %, many standard deviations.
fn near(count: u64, expected: u64) -> bool {
    count.abs_diff(expected) * 20 <= expected
}

#[test]
fn samples_of_a_known_pattern_say_what_they_must() {
    let machine = Machine::default();
    let folder = tempfile::Builder::new().prefix("samples").tempdir_in("/tmp").unwrap();
    let (guest, ring) = offer_samples(Guest::builder(), folder.path());
    let guest = guest.machine(machine.clone()).timeout(Some(Duration::from_secs(150)));
    let guest = attach(guest, &machine, folder.path(), &["cache-kib=1024", &ring]).unwrap();
    let script = format!(
        "sysctl -q kernel.numa_balancing=0
         for node in 0 2; do on-node $node {} $node {PERIOD} || exit 1; done",
        samples().display()
    );
    let outcome = match guest.run(&script) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    let found: Vec<Found> = outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), 2);
    for found in found {
        println!("{found:?}");
        assert_eq!((found.wrong, found.dropped), (0, 0), "{found:?}");
        assert!(near(found.reads, found.lines_read / PERIOD), "{found:?}");
        assert!(near(found.writes, found.lines_written / PERIOD), "{found:?}");
        // All programs of the guest are sampled, and this one is nearly alone.
        assert!(found.others < found.reads, "{found:?}");
        // With every access tagged and no reader, what does not fit is dropped, and counted.
        let room = found.rings * found.slots;
        assert!(found.dropped_overflowing + room >= found.lines_overflowing, "{found:?}");
    }
}
