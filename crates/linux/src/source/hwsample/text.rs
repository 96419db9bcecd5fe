//! The counters as text.

use std::fmt::Write;

use thermocline_core::statistics::Declared;

use super::Stats;
use crate::source::troubles;

/// The samples taken, and the useless ones by reason.
pub(super) fn text(stats: &Stats) -> String {
    let samples = &stats.samples;
    let mut out = format!(
        "samples: {} taken, {} useful, {} lost by {} on {} CPUs",
        samples.taken, samples.useful, stats.lost, stats.sampler, stats.cpus,
    );
    if let Some(period) = stats.period {
        let _ = write!(out, ", one in {period}");
    }
    if stats.budgeted {
        out.push_str(" to keep to cpu_budget_permille");
    }
    out.push('\n');
    for sample in samples.samples().iter().filter(|sample| sample.value > 0) {
        match sample.name {
            "taken" | "useful" => {}
            reason => {
                let _ = writeln!(out, "  of no use {reason}: {}", sample.value);
            }
        }
    }
    out.push_str(&troubles(stats, &["lost"]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hwsample::useful::Tally;

    #[test]
    fn samples_are_told_with_what_was_of_no_use_and_what_went_wrong() {
        let samples = Tally { taken: 100, useful: 60, top_tier: 40, ..Tally::default() };
        let found = Stats {
            sampler: "AMD IBS",
            cpus: 64,
            period: Some(20_000),
            budgeted: true,
            lost: 7,
            throttled: 2,
            samples,
            ..Stats::default()
        };
        let words = text(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = "samples: 100 taken, 60 useful, 7 lost by AMD IBS on 64 CPUs, one in 20000 to keep to \
                    cpu_budget_permille of no use top_tier: 40 throttled: 2";
        assert_eq!(words, told);
    }

    #[test]
    fn a_sampler_whose_period_is_not_known_names_none() {
        let samples = Tally { taken: 9, useful: 8, ..Tally::default() };
        let found = Stats { sampler: "lab rings", cpus: 2, samples, ..Stats::default() };
        assert_eq!(text(&found), "samples: 9 taken, 8 useful, 0 lost by lab rings on 2 CPUs\n");
    }
}
