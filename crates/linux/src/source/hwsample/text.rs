//! What was counted, as text.

use std::fmt::Write;

use serde_json::Value;
use thermocline_core::statistics::Declared;

use super::Stats;
use crate::source::troubles;

/// What the sampler took, and what was of no use, by reason; nothing where there is none.
pub(super) fn text(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let samples = &found["samples"];
    let mut out = format!(
        "samples: {} taken, {} useful, {} lost by {} on {} CPUs",
        samples["taken"],
        samples["useful"],
        found["lost"],
        found["sampler"].as_str().unwrap_or("?"),
        found["cpus"],
    );
    if let Some(period) = found["period"].as_u64() {
        let _ = write!(out, ", one in {period}");
    }
    if found["budgeted"] == true {
        out.push_str(" to keep to cpu_budget_permille");
    }
    out.push('\n');
    for (reason, value) in samples.as_object().into_iter().flatten() {
        if !matches!(reason.as_str(), "taken" | "useful") && value.as_u64() != Some(0) {
            let _ = writeln!(out, "  of no use {reason}: {value}");
        }
    }
    out.push_str(&troubles(found, &Stats::statistics(), &["lost"]));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_are_told_with_what_was_of_no_use_and_what_went_wrong() {
        let found = json!({
            "sampler": "AMD IBS", "cpus": 64, "cpus_failed": 0, "period": 20000, "budgeted": true, "lost": 7,
            "samples": { "taken": 100, "useful": 60, "cache_hit": 0, "top_tier": 40 }, "throttled": 2,
        });
        let words = text(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = "samples: 100 taken, 60 useful, 7 lost by AMD IBS on 64 CPUs, one in 20000 to keep to \
                    cpu_budget_permille of no use top_tier: 40 throttled: 2";
        assert_eq!(words, told);
        assert_eq!(text(&Value::Null), "");
    }

    #[test]
    fn a_sampler_whose_period_is_not_ours_names_none() {
        let found = json!({ "sampler": "lab rings", "cpus": 2, "period": null, "lost": 0, "samples": { "taken": 9, "useful": 8 } });
        assert_eq!(text(&found), "samples: 9 taken, 8 useful, 0 lost by lab rings on 2 CPUs\n");
    }
}
