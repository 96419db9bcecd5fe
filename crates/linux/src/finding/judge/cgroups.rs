//! Limits and protection of cgroups that act against tiers, because they count all memory alike.

use thermocline_core::config::DemotionWay;

use crate::finding::{Demoting, Facts, Finding, Ground, Kind, Limited, View};

/// Share of its limit from which a cgroup is at it.
const AT_LIMIT_PERCENT: u64 = 95;
/// What a cgroup has at least where its protection matters, in bytes.
const PROTECTED_MIN: u64 = 64 << 20;
/// Cgroups that a finding names.
const NAMED: usize = 3;

/// Cgroups at their limit: their reclaim demotes, which frees nothing of what counts (Linux 6.12
/// mm/vmscan.c, can_demote).
pub(super) fn at_limit(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let demotes = facts.demotion_enabled == Some(true)
        || matches!(view.demoting, Demoting::Ours(_) | Demoting::ByKernel);
    let at = |group: &&Limited| {
        let current = group.current.saturating_mul(100);
        group.limit.is_some_and(|limit| current >= limit.saturating_mul(AT_LIMIT_PERCENT))
    };
    let groups: Vec<&Limited> = facts.limited.iter().filter(|_| demotes).filter(at).collect();
    let told = |group: &Limited| {
        let limit_mib = group.limit.unwrap_or(0) >> 20;
        format!("{} ({} of {limit_mib} MiB)", group.path, group.current >> 20)
    };
    let cause = format!(
        "cgroups are at their memory.high or memory.max, which count the memory of all tiers together: reclaim demotes their pages from \
         the top tier, and they stay at their limit: {}",
        names(&groups, told)
    );
    finding(
        Kind::CgroupAtLimit,
        cause,
        &groups,
        "raise memory.high or memory.max by what they may have on lower tiers",
    )
}

/// Cgroups all of whose memory is protected from reclaim, and so from demotion by it.
pub(super) fn protected(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let by_reclaim = matches!(view.demoting, Demoting::ByKernel | Demoting::Ours(DemotionWay::Node));
    let all = |group: &&Limited| group.current >= PROTECTED_MIN && group.protected >= group.current;
    let groups: Vec<&Limited> = facts.limited.iter().filter(|_| by_reclaim).filter(all).collect();
    let told = |group: &Limited| format!("{} ({} MiB)", group.path, group.current >> 20);
    let cause = format!(
        "memory.low or memory.min, which count the memory of all tiers together, protect all that cgroups have, so that none of their \
         cold pages are demoted: {}",
        names(&groups, told)
    );
    finding(
        Kind::CgroupProtected,
        cause,
        &groups,
        "lower memory.low to what they need of the top tier, or give a scope a floor instead",
    )
}

fn names(groups: &[&Limited], told: impl Fn(&Limited) -> String) -> String {
    let mut names: Vec<String> = groups.iter().take(NAMED).map(|group| told(group)).collect();
    if groups.len() > NAMED {
        names.push(format!("{} more", groups.len() - NAMED));
    }
    names.join(", ")
}

fn finding(kind: Kind, cause: String, groups: &[&Limited], remedy: &str) -> Vec<Finding> {
    if groups.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(kind, cause).fix(Ground::OURS, remedy)]
}
