//! What is said of recordings: what they will cost, what they came to, and what they hold.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use thermocline_core::units::Nanos;
pub use thermocline_front::words::{PROGRAM, bytes, settings};
use thermocline_trace::recorder::Summary;

use crate::args::RecordHow;

/// What a piece of evidence takes on disk, with the decisions on it: from, to.
const BYTES_A_PIECE: [f64; 2] = [3.0, 12.0];
/// CPU time to record a piece, ns: evidence alone, and with a decision on every second piece.
const NS_A_PIECE: [f64; 2] = [200.0, 1500.0];
/// The rate that an example is given for, in pieces a second.
const EXAMPLE_RATE: f64 = 10_000.0;

/// The two clocks at the same moment, as a recording has them in its setting `clock`.
#[derive(Debug, Deserialize)]
struct Clock {
    monotonic_ns: u64,
    utc: String,
}

/// The wall clock at a moment of a recording, given its setting `clock`; `None` where that does not
/// say it.
pub fn clock(setting: &str, at: Nanos) -> Option<SystemTime> {
    let clock: Clock = serde_json::from_str(setting).ok()?;
    let utc = humantime::parse_rfc3339(&clock.utc).ok()?;
    let since = Duration::from_nanos(at.0.abs_diff(clock.monotonic_ns));
    if at.0 >= clock.monotonic_ns { utc.checked_add(since) } else { utc.checked_sub(since) }
}

/// What a recording will cost.
pub fn before(folder: &Path, how: &RecordHow) -> String {
    let room = match rustix::fs::statvfs(folder) {
        Ok(found) => format!("{} are free there", bytes(found.f_bavail.saturating_mul(found.f_frsize))),
        Err(error) => format!("how much is free there cannot be read: {error}"),
    };
    let limit = match (how.max_size, how.rotate) {
        (None, _) => "no limit".to_owned(),
        (Some(size), false) => format!("it ends at {size}"),
        (Some(size), true) => format!("the oldest part goes at {size}"),
    };
    let share = |ns: f64| ns * EXAMPLE_RATE / 1e9 * 100.0;
    let an_hour = |bytes: f64| bytes * EXAMPLE_RATE * 3600.0 / 1e9;
    format!(
        "recording to {}{}: {} to {} bytes of disk and {:.1} to {:.1} us of CPU a piece of evidence (at {EXAMPLE_RATE:.0} pieces a \
         second {:.1} to {:.1} GB an hour, {:.1} to {:.1} % of a processor); {limit}, {room}",
        folder.display(),
        if how.private { ", without names, numbers and addresses of processes" } else { "" },
        BYTES_A_PIECE[0],
        BYTES_A_PIECE[1],
        NS_A_PIECE[0] / 1000.0,
        NS_A_PIECE[1] / 1000.0,
        an_hour(BYTES_A_PIECE[0]),
        an_hour(BYTES_A_PIECE[1]),
        share(NS_A_PIECE[0]),
        share(NS_A_PIECE[1]),
    )
}

/// What a recording came to. `over`: the time in which it was made, if that is real time.
pub fn after(summary: &Summary, over: Option<Nanos>) -> String {
    let stats = &summary.stats;
    let each = match stats.pieces {
        // Bytes of parts that are gone are not known.
        0 => String::new(),
        _ if stats.parts_removed > 0 => String::new(),
        pieces => format!(" ({:.1} bytes a piece)", stats.bytes as f64 / pieces as f64),
    };
    let removed = match stats.parts_removed {
        0 => String::new(),
        parts => format!(", the {parts} oldest of which were removed"),
    };
    let cost = stats.cost().0 as f64;
    let share = match over {
        Some(over) if over.0 > 0 => format!(", {:.2} % of a processor", cost / over.0 as f64 * 100.0),
        _ => String::new(),
    };
    format!(
        "recorded to {}: {} pieces of evidence in {} parts{removed}, {}{each}; {} pieces lost; {:.1} ms of CPU{share}",
        stats.folder,
        stats.pieces,
        stats.parts,
        bytes(stats.bytes),
        stats.lost,
        cost / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use thermocline_trace::stats::RecordingStats;

    use super::*;
    use crate::snapshot::timestamp;

    #[test]
    fn what_it_cost_is_told() {
        let stats = RecordingStats {
            pieces: 1000,
            bytes: 4000,
            parts: 2,
            lost: 7,
            writing_ns: 2_000_000,
            copying_ns: 1_000_000,
            folder: "/r".to_owned(),
            ..RecordingStats::default()
        };
        let summary = Summary { events: 9, ended: None, stats };
        let told = after(&summary, Some(Nanos::from_ms(30)));
        let wanted = "recorded to /r: 1000 pieces of evidence in 2 parts, 3.9 KiB (4.0 bytes a piece); 7 pieces lost; \
                      3.0 ms of CPU, 10.00 % of a processor";
        assert_eq!(told, wanted);
        let told = before(Path::new("/"), &RecordHow::default());
        assert!(told.contains("no limit") && told.contains("free there"), "{told}");
    }

    #[test]
    fn the_wall_clock_is_known_where_the_recording_says_what_it_was_once() {
        const SETTING: &str = r#"{"monotonic_ns":5000000000,"utc":"2026-11-27T07:20:11Z"}"#;
        let at = |s| clock(SETTING, Nanos::from_s(s)).map(timestamp);
        assert_eq!(at(3).as_deref(), Some("2026-11-27T07:20:09Z"));
        assert_eq!(at(65).as_deref(), Some("2026-11-27T07:21:11Z"));
        for wrong in ["simulated", "{}", r#"{"monotonic_ns":-1,"utc":"2026-11-27T07:20:11Z"}"#] {
            assert_eq!(clock(wrong, Nanos(0)), None, "{wrong}");
        }
        let huge = format!(r#"{{"monotonic_ns":{},"utc":"1970-01-01T00:00:00Z"}}"#, u64::MAX);
        assert!(clock(&huge, Nanos(0)).is_none_or(|time| time < SystemTime::UNIX_EPOCH));
    }
}
