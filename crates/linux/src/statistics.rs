//! Every statistic of the live machine, by where it stands in `status --json`.

use thermocline_core::statistics::{Declared, Statistic};

use crate::source::{chmu, damon, hintfault, hwsample};
use crate::{actuator, demoter, mover, reverse};

/// The declarations, each list with its place.
pub fn all() -> Vec<(&'static str, Vec<Statistic>)> {
    vec![
        ("source", hintfault::Stats::statistics()),
        ("source.stamps", hintfault::stamps::StampStats::statistics()),
        ("hwsample", hwsample::Stats::statistics()),
        ("hwsample.samples", hwsample::useful::Tally::statistics()),
        ("regions", damon::Stats::statistics()),
        ("regions.processes", damon::Watching::statistics()),
        ("hot_list", chmu::Stats::statistics()),
        ("reverse", reverse::Stats::statistics()),
        ("mover", mover::MoverStats::statistics()),
        ("demoter", demoter::DemoterStats::statistics()),
        ("settings", actuator::SettingsStats::statistics()),
    ]
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
