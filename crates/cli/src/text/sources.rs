//! Counters of the sources and of the reverse map, and what evidence costs.

use thermocline_linux::machine::Overhead;
use thermocline_linux::reverse::Stats;
use thermocline_linux::source::troubles;

/// How many accesses that named only a frame were attributed to a page, and the state of the
/// reverse map.
pub fn reverse(stats: &Stats) -> String {
    let mut out = format!(
        "reverse map: {} accesses put to their page, {} to frames of nobody known, {} entries out of date; {} frames known in {:.1} MiB, \
         {} rounds, the last took {:.1} s\n",
        stats.resolved,
        stats.unknown,
        stats.stale,
        stats.frames,
        stats.bytes as f64 / f64::from(1 << 20),
        stats.rounds,
        stats.round_ns.0 as f64 / 1e9,
    );
    out.push_str(&troubles(stats, &["failed"]));
    if stats.failed {
        out.push_str("  its thread has failed: no more frames are looked up; please report this\n");
    }
    out
}

/// The cost of everything and of the scans, and of a fault, a sample and a moved page, if there
/// were enough.
pub fn overhead(found: &Overhead) -> String {
    let cost = |ns: Option<u64>, what: &str| Some(format!("{:.2} us {what}", ns? as f64 / 1e3));
    let costs = [
        cost(found.fault_ns, "a hint fault"),
        cost(found.sample_ns, "a sample"),
        cost(found.moved_page_ns, "a moved page in all"),
    ];
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    if costs.is_empty() {
        return String::new();
    }
    let s = |ns: u64| ns as f64 / 1e9;
    let scans = if found.scans_ns > 0 {
        format!(", {:.2} s of them scans", s(found.scans_ns))
    } else {
        String::new()
    };
    format!("overhead: {:.2} s{scans}; {}\n", s(found.total_ns), costs.join(", "))
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::Nanos;

    use super::*;

    #[test]
    fn the_reverse_map_is_told_with_what_it_could_not_do() {
        let found = Stats {
            resolved: 90,
            unknown: 10,
            stale: 1,
            frames: 512,
            bytes: 1 << 18,
            no_room: 7,
            rounds: 2,
            looked_up: 5000,
            round_ns: Nanos::from_ms(1500),
            ..Stats::default()
        };
        let told = "reverse map: 90 accesses put to their page, 10 to frames of nobody known, 1 entries out of date; 512 frames known in \
                    0.2 MiB, 2 rounds, the last took 1.5 s\n  no_room: 7\n";
        assert_eq!(reverse(&found), told);
    }

    #[test]
    fn overhead_is_told_as_far_as_there_is_any() {
        let found = Overhead {
            scans_ns: 1_240_000_000,
            total_ns: 3_000_000_000,
            fault_ns: Some(640),
            moved_page_ns: Some(32_400),
            ..Overhead::default()
        };
        let told =
            "overhead: 3.00 s, 1.24 s of them scans; 0.64 us a hint fault, 32.40 us a moved page in all\n";
        assert_eq!(overhead(&found), told);
        assert_eq!(overhead(&Overhead::default()), "");
    }
}
