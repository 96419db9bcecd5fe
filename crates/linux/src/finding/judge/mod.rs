//! The judgement of facts: pure functions, the same for doctor and daemon.

mod cgroups;
mod demotion;
mod evidence;
mod others;
mod room;
mod scopes;
mod work;

use super::{Facts, Finding, View};

/// One or several kinds, judged together.
type Judge = fn(&View<'_>, &Facts) -> Vec<Finding>;

const JUDGES: [Judge; 16] = [
    demotion::given_up,
    demotion::none,
    demotion::undone,
    work::settings,
    work::stuck,
    others::numa_balancing,
    others::damon,
    others::damon_stat,
    others::programs,
    evidence::silent,
    evidence::lossy,
    evidence::blind,
    room::watermarks,
    scopes::findings,
    cgroups::at_limit,
    cgroups::protected,
];

/// What stands in the way, of all that may come and go while thermocline runs.
pub fn judge(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    JUDGES.iter().flat_map(|judge| judge(view, facts)).collect()
}
