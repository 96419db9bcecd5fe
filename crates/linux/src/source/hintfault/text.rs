//! The counters as text.

use super::Stats;
use crate::source::troubles;

/// Hint faults, and what became of them.
pub(super) fn text(stats: &Stats) -> String {
    let line = format!(
        "hint faults: {} seen, {} delivered, {} lost, {} out of scope\n",
        stats.seen, stats.delivered, stats.dropped, stats.filtered
    );
    line + &troubles(stats, &["dropped"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_has_a_line_of_its_own() {
        let mut found = Stats { seen: 9, delivered: 7, dropped: 1, filtered: 1, ..Stats::default() };
        let line = "hint faults: 9 seen, 7 delivered, 1 lost, 1 out of scope\n";
        assert_eq!(text(&found), line);
        found.bpf_missed = 4;
        assert_eq!(text(&found), format!("{line}  bpf_missed: 4\n"));
    }
}
