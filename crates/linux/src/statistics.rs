//! Every statistic of the live machine and of its scopes, by its place in `status --json`.

use thermocline_core::engine::ScopeLedger;
use thermocline_core::statistics::{Declared, Statistic};

use crate::source::ROWS;
use crate::{actuator, demoter, mover, reverse};

/// The declarations, each list with its place.
pub fn all() -> Vec<(&'static str, Vec<Statistic>)> {
    let mut all: Vec<_> = ROWS.iter().flat_map(|row| (row.statistics)()).collect();
    all.extend([
        ("reverse", reverse::Stats::statistics()),
        ("mover", mover::MoverStats::statistics()),
        ("demoter", demoter::DemoterStats::statistics()),
        ("settings", actuator::SettingsStats::statistics()),
        ("ledgers", ScopeLedger::statistics()),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_statistic_says_what_it_is_and_has_a_metric_of_its_own() {
        let all: Vec<Statistic> = all().into_iter().flat_map(|(_, list)| list).collect();
        for statistic in &all {
            assert!(statistic.description.ends_with('.'), "{}: {}", statistic.name, statistic.description);
        }
        let metrics: BTreeSet<&str> = all.iter().map(|s| s.metric.as_str()).collect();
        assert_eq!(metrics.len(), all.len());
    }
}
