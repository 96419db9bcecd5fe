//! The counters as text.

use std::fmt::Write;

use super::Stats;
use crate::source::troubles;

/// The devices' hot lists and what was found.
pub(super) fn text(stats: &Stats) -> String {
    let mut out = format!(
        "hot list: {} entries read, {} wait, {} left out because it was full; {} accesses counted in {} epochs; {} pages found of {} looked up\n",
        stats.entries,
        stats.waiting,
        stats.overflow,
        stats.counted,
        stats.epochs,
        stats.pages,
        stats.looked_up,
    );
    if stats.taken_over > 0 {
        let _ = writeln!(
            out,
            "  taken_over: {} (the device has too few counters, {}: what is hot may be missing from its list)",
            stats.taken_over, stats.counters
        );
    }
    out.push_str(&troubles(stats, &["overflow", "taken_over", "refused"]));
    if stats.refused {
        out.push_str("  the device refuses what [source.chmu] tells it to do, and lists nothing\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_list_is_told_with_what_it_could_not_hold() {
        let found = Stats {
            entries: 900,
            waiting: 3,
            overflow: 41,
            counted: 123_456,
            epochs: 7,
            looked_up: 880,
            pages: 870,
            taken_over: 12,
            counters: 64,
            old: 5,
            ..Stats::default()
        };
        let told = "hot list: 900 entries read, 3 wait, 41 left out because it was full; 123456 accesses counted in 7 epochs; 870 pages found of 880 looked up\n  \
                    taken_over: 12 (the device has too few counters, 64: what is hot may be missing from its list)\n  old: 5\n";
        assert_eq!(text(&found), told);
        assert!(text(&Stats { refused: true, ..Stats::default() }).ends_with("epochs; 0 pages found of 0 looked up\n  the device refuses what [source.chmu] tells it to do, and lists nothing\n"));
    }
}
