//! A program that fills memory and then leaves it alone.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use thermocline_core::units::PAGES_PER_MIB;

use super::memory::StampedMemory;
use super::say;

/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(200);

/// A line of output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Ready { pid: u32, base: u64, pages: u32 },
    Verified { pages: u32 },
}

/// Writes to all of `mib` MiB once, touches none of it until `stop` is set, and then verifies all
/// of it.
///
/// # Errors
/// When there is no memory to fill, output fails, or data was lost.
pub fn run(mib: u32, stop: &AtomicBool, out: &mut impl Write) -> anyhow::Result<()> {
    let pages = u64::from(mib) * PAGES_PER_MIB;
    ensure!((1..1 << 32).contains(&pages), "{mib} MiB are none, or more than this program can number");
    let memory = StampedMemory::new(pages as u32);
    let pages = memory.pages();
    say(out, &Line::Ready { pid: std::process::id(), base: memory.base(), pages })?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(NAP);
    }
    memory.check_all(|_| 0)?;
    say(out, &Line::Verified { pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_says_so_and_verifies_at_the_end() {
        let mut out = Vec::new();
        run(1, &AtomicBool::new(true), &mut out).unwrap();
        let lines: Vec<serde_json::Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["event"], &lines[0]["pages"]), (&"ready".into(), &256.into()));
        assert_eq!((&lines[1]["event"], &lines[1]["pages"]), (&"verified".into(), &256.into()));
        assert!(run(0, &AtomicBool::new(true), &mut Vec::new()).is_err());
    }
}
