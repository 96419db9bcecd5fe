//! What the sources of evidence counted, what the map of frames did for them, and what they cost.

use serde_json::Value;
use thermocline_core::statistics::Declared;
use thermocline_linux::reverse::Stats;
use thermocline_linux::source::{ROWS, troubles};

/// What each source counted that `found` has under its key; nothing of one that is not open.
pub fn sources(found: &Value) -> String {
    ROWS.iter().map(|row| (row.text)(&found[row.counted_as])).collect()
}

/// How many accesses that named a frame alone were put to a page, and what the map of frames is
/// like; nothing where there is none.
pub fn reverse(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let mut out = format!(
        "reverse map: {} accesses put to their page, {} to frames of nobody known, {} entries out of date; {} frames known in {:.1} MiB, \
         {} rounds, the last took {:.1} s\n",
        count("resolved"),
        count("unknown"),
        count("stale"),
        count("frames"),
        count("bytes") as f64 / f64::from(1 << 20),
        count("rounds"),
        count("round_ns") as f64 / 1e9,
    );
    out.push_str(&troubles(found, &Stats::statistics(), &[]));
    if found["failed"] == true {
        out.push_str("  its thread has failed: no more frames are looked up; please report this\n");
    }
    out
}

/// What a fault, a sample and a moved page cost, as far as there were any.
pub fn overhead(found: &Value) -> String {
    let cost = |key: &str, what: &str| {
        let us = found[key].as_u64()? as f64 / 1e3;
        Some(format!("{us:.2} us {what}"))
    };
    let costs = [
        cost("fault_ns", "a hint fault"),
        cost("sample_ns", "a sample"),
        cost("moved_page_ns", "a moved page in all"),
    ];
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    if costs.is_empty() { String::new() } else { format!("overhead: {}\n", costs.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_reverse_map_is_told_with_what_it_could_not_do() {
        let found = json!({
            "resolved": 90, "unknown": 10, "stale": 1, "frames": 512, "bytes": 1 << 18, "no_room": 7, "rounds": 2,
            "looked_up": 5000, "hidden": 0, "unreadable": 0, "round_ns": 1_500_000_000u64, "cpu_ns": 9,
        });
        let told = "reverse map: 90 accesses put to their page, 10 to frames of nobody known, 1 entries out of date; 512 frames known in \
                    0.2 MiB, 2 rounds, the last took 1.5 s\n  no_room: 7\n";
        assert_eq!(reverse(&found), told);
        assert_eq!(reverse(&Value::Null), "");
    }

    #[test]
    fn overhead_is_told_as_far_as_there_is_any() {
        let found = json!({ "fault_ns": 640, "sample_ns": null, "moved_page_ns": 32_400 });
        assert_eq!(overhead(&found), "overhead: 0.64 us a hint fault, 32.40 us a moved page in all\n");
        assert_eq!(overhead(&Value::Null), "");
    }
}
