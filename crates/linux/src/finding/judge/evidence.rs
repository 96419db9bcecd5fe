//! Whether evidence comes, and from all memory that it should come from.

use thermocline_core::units::Nanos;

use crate::finding::blind::lower_capacity_kib;
use crate::finding::{
    BlindScope, BlindSum, Facts, Finding, Ground, Kind, LOWER_MIB_MIN, Minute, Severity, SourceMinute, View,
};

/// With less CPU time of programs in a minute than this, a lack of evidence is normal: a tenth of
/// one CPU.
const PROGRAMS_CPU_MIN: Nanos = Nanos::from_s(6);
/// Losses of fewer pieces in a minute are no finding: they change no decision.
const LOST_MIN: u64 = 64;
/// Nor are losses of a smaller share of the evidence.
const LOST_PERCENT: u64 = 1;
/// Share of the lower tiers' memory from which unseen memory is a problem rather than a note.
const BLIND_PERCENT: u64 = 10;
/// Share of a scope's memory on lower tiers from which it counts as unseen.
const SCOPE_PERCENT: u64 = 50;

/// Sources that gave nothing for a minute in which they should have.
pub(super) fn silent(view: &View<'_>, _: &Facts) -> Vec<Finding> {
    let Some(minute) = view.minute() else { return Vec::new() };
    let busy = minute.programs_cpu.is_some_and(|cpu| cpu >= PROGRAMS_CPU_MIN);
    if !busy || minute.lower_mib < LOWER_MIB_MIN {
        return Vec::new();
    }
    let silent = minute.sources.iter().filter(|source| source.came + source.lost == 0);
    silent.map(|source| silence(source, minute)).collect()
}

fn silence(source: &SourceMinute, minute: &Minute) -> Finding {
    let unscanned = source.scans == Some(0);
    let cause = format!(
        "source {} has given nothing for a minute, in which programs used {} s of CPU time and lower tiers held {} MiB{}",
        source.name,
        minute.programs_cpu.unwrap_or_default().0 / 1_000_000_000,
        minute.lower_mib,
        match source.scans {
            Some(0) => ": the kernel has scanned no memory of theirs",
            Some(_) => ": the kernel scans, and nothing of what it marks is accessed",
            None => "",
        }
    );
    Finding::new(Kind::SourcesSilent, cause)
        .with_severity(if unscanned { Severity::Problem } else { Severity::Note })
        .about(source.name)
        .fix(
            Ground::seen(unscanned),
            "see whether kernel.numa_balancing is still on, and whether the programs are bound to nodes (`thermocline doctor`)",
        )
}

/// Sources that lose what they should give.
pub(super) fn lossy(view: &View<'_>, _: &Facts) -> Vec<Finding> {
    let sources = view.minute().into_iter().flat_map(|minute| &minute.sources);
    let lossy = sources.filter(|source| {
        let all = source.came.saturating_add(source.lost);
        source.lost >= LOST_MIN && source.lost.saturating_mul(100) >= all.saturating_mul(LOST_PERCENT)
    });
    let finding = |source: &SourceMinute| {
        let all = source.came.saturating_add(source.lost).max(1);
        let cause = format!(
            "source {} has lost {} pieces of evidence in a minute, {} % of all: the daemon gets too little CPU time, or a buffer is too \
             small, and hot pages are found later",
            source.name,
            source.lost,
            source.lost.saturating_mul(100) / all
        );
        Finding::new(Kind::SourcesLossy, cause).about(source.name).fix(
            Ground::OURS,
            "give the daemon more CPU time (CPUWeight= of its unit), enlarge the buffers of [source], or name fewer programs with [[scope]]",
        )
    };
    lossy.map(finding).collect()
}

/// Memory below the top tier that gives no hint faults: of the machine, and of scopes.
pub(super) fn blind(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let scopes = facts.blind.scopes.iter().filter(|_| view.hint_faults_only());
    machine(view, facts).into_iter().chain(scopes.filter_map(scope)).collect()
}

fn machine(view: &View<'_>, facts: &Facts) -> Option<Finding> {
    let blind = &facts.blind;
    let BlindSum { lower_tier_kib, .. } = blind.total;
    if lower_tier_kib < 1024 {
        return None;
    }
    let capacity_kib = lower_capacity_kib(view.found);
    let much = lower_tier_kib.saturating_mul(100) >= capacity_kib.saturating_mul(BLIND_PERCENT);
    let names: Vec<String> = blind
        .processes
        .iter()
        .filter(|p| p.sum.lower_tier_kib > 0)
        .take(3)
        .map(|p| format!("{} (pid {}, {}, {} MiB)", p.comm, p.pid.0, p.reason, p.sum.lower_tier_kib / 1024))
        .collect();
    let cause = format!(
        "{} MiB below the top tier give no hint faults, for their memory policy or for being hugetlb, and stay where they are, as a \
         policy asks for: {}",
        lower_tier_kib / 1024,
        names.join("; ")
    );
    let bound = blind.processes.iter().any(|p| p.reason == "bind" && p.sum.lower_tier_kib > 0);
    Some(
        Finding::new(Kind::MemoryBlind, cause)
            .with_severity(if much { Severity::Problem } else { Severity::Note })
            .run(
                Ground::seen(bound),
                "if what is bound may be promoted, bind it to all nodes that it may use, and have the policy ask for it",
                "numactl --balancing --membind=NODES COMMAND",
            ),
    )
}

fn scope(scope: &BlindScope) -> Option<Finding> {
    let unseen_kib = scope.policy_kib.saturating_add(scope.unmapped_kib);
    let much = unseen_kib.saturating_mul(100) >= scope.lower_tier_kib.saturating_mul(SCOPE_PERCENT);
    if !much || scope.lower_tier_kib < LOWER_MIB_MIN * 1024 {
        return None;
    }
    let cause = format!(
        "scope {} has {} MiB below the top tier, and most of it gives no hint faults, the only source of evidence that is on: {} MiB are \
         under a memory policy or hugetlb, {} MiB are page cache that no process maps",
        scope.name,
        scope.lower_tier_kib / 1024,
        scope.policy_kib / 1024,
        scope.unmapped_kib / 1024
    );
    Some(
        Finding::new(Kind::ScopeBlind, cause)
            .of_scope(&scope.name)
            .fix(
                Ground::OURS,
                "switch on a source that sees memory whoever maps it: [source.damon], or [source.hwsample] where there is a PMU",
            )
            .run(
                Ground::seen(scope.policy_kib > 0),
                "have the policy ask for hint faults, if its pages may be promoted",
                "numactl --balancing --membind=NODES COMMAND",
            ),
    )
}
