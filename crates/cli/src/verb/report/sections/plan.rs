//! How much DRAM is needed, as `plan` estimates it.

use super::Section;
use crate::verb::report::facts::Facts;
use crate::verb::report::figures::curve::{Curve, curve};

/// What each size of DRAM would serve.
pub fn plan(facts: &Facts) -> Section {
    let mut out = Section::new("plan", "How much DRAM would do");
    let plan = match &facts.plan {
        Ok(plan) => plan,
        Err(why) => {
            out.says(&format!("Unknown: {why}."));
            return out;
        }
    };
    out.says(&format!("{}.", plan.sentence.trim_end_matches('.')));
    let planned = &plan.planned;
    let share = Curve {
        name: "plan-share",
        title: "Accesses that DRAM would serve",
        label: "% of accesses",
        spots: &planned.share,
        factor: 100.0,
        ends: [0.0, 1.0],
    };
    let time = Curve {
        name: "plan-time",
        title: "Time, against all memory in DRAM",
        label: "times as long",
        spots: &planned.slowdown,
        factor: 1.0,
        ends: [1.0, planned.slowest],
    };
    out.draws(vec![curve(&share, planned), curve(&time, planned)]);
    out.notes("Assumed:");
    out.list(&plan.assumptions);
    if !plan.notes.is_empty() {
        out.list(&plan.notes);
    }
    out.notes("`thermocline plan` answers for other losses, latencies and sizes.");
    out
}
