//! Scopes whose cgroup or whose pressure is not there.

use crate::finding::{Facts, Finding, Ground, Kind, View};

/// Cgroups that are not there, and memory pressure that cannot be read.
pub(super) fn findings(_: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let absent = |cause: &String| {
        Finding::new(Kind::ScopeNoCgroup, cause).about(cause).fix(
            Ground::OURS,
            "name a cgroup of version 2, by its path below the hierarchy's root as /proc/PID/cgroup has it behind \"0::\"",
        )
    };
    let unknown = |why: &String| {
        let cause =
            format!("moves are braked by ping-pong alone, because memory pressure is not known: {why}");
        Finding::new(Kind::BrakeNoPressure, cause).about(why)
    };
    let absent = facts.no_cgroup.iter().map(absent);
    absent.chain(facts.no_pressure.iter().map(unknown)).collect()
}
