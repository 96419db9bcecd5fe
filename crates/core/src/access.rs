//! Evidence: what a machine reports to the engine about its pages.

use crate::config::ScopeMap;
use crate::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

pub use crate::config::Source;

/// Latency of a hint fault: from the scan that marked the page to the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultLatency {
    /// In time.
    pub time: Nanos,
    /// In hint faults of the same process (S0's unit).
    pub faults: u32,
}

/// What one source knows about one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A NUMA hint fault; the latency is absent when no scan of the page was seen.
    HintFault {
        /// Time and faults since the scan.
        latency: Option<FaultLatency>,
    },
    /// A hardware sample.
    Sample {
        /// Load latency in CPU cycles, 0 where the hardware does not report it.
        latency_cycles: u32,
        /// Whether the access was a store, where known.
        store: Option<bool>,
        /// The sampling period: about one access in `period` becomes a sample; 0 where that is not
        /// known.
        period: u32,
    },
    /// Accesses that a device has counted.
    Count {
        /// Accesses to the page; at least one.
        count: u32,
        /// The time between two of them on average, where the device reports the span over which it
        /// counted. If `None`, it counted since it last reported the page.
        gap: Option<Nanos>,
    },
}

impl Detail {
    /// The source of this kind of detail.
    pub const fn source(self) -> Source {
        match self {
            Detail::HintFault { .. } => Source::HintFault,
            Detail::Sample { .. } => Source::HwSample,
            Detail::Count { .. } => Source::Device,
        }
    }

    /// The time between two accesses of a page: as the evidence reports it, or else derived from
    /// the `gap` since the page's last evidence.
    pub fn between_accesses(self, gap: Nanos) -> Nanos {
        match self {
            Detail::HintFault { latency: Some(latency) } => latency.time,
            Detail::HintFault { latency: None } => gap,
            Detail::Sample { period, .. } => Nanos(gap.0 / u64::from(period.max(1))),
            Detail::Count { gap: Some(gap), .. } => gap,
            Detail::Count { count, gap: None } => Nanos(gap.0 / u64::from(count.max(1))),
        }
    }
}

/// One observed access to one folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// The frame that was accessed (of a folio: its head), where known.
    pub pfn: Option<Pfn>,
    /// The virtual page that was accessed (of a folio: the page that maps its head), where known.
    pub page: Option<VirtPage>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// The node that holds the page; [`NodeId::UNKNOWN`] in evidence of other programs.
    pub node: NodeId,
    /// The node of the CPU that accessed it, where known.
    pub accessor: Option<NodeId>,
    /// Further details that the source knows.
    pub detail: Detail,
}

impl Access {
    /// Base pages in the accessed folio.
    pub const fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// The address space of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegionSpace {
    /// Virtual pages of a process.
    Virtual(Pid),
    /// Page frames of a node.
    Physical(NodeId),
    /// What somebody else has monitored: the number of one of their targets. Whether its pages are
    /// those of a process or frames is not known.
    Target(u32),
}

/// A range of pages with one access rate, as DAMON reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address space of its pages.
    pub space: RegionSpace,
    /// First page (virtual page number or PFN), inclusive.
    pub start: u64,
    /// Page after the last one, exclusive.
    pub end: u64,
    /// Share of the checks that found the region accessed, in 1/10000.
    pub access_rate_bp: u16,
    /// For how long the access rate has been about the same.
    pub age: Nanos,
    /// The time that each check looks back: it finds an access within this time.
    pub check: Nanos,
}

/// Shares of the checks are capped here, in 1/10000: an access rate above some three accesses a
/// check cannot be measured.
const RATE_MAX_BP: u16 = 9500;

impl Region {
    /// Pages in it.
    pub const fn pages(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Mean time between two accesses of a page of the region, if its pages are alike and each is
    /// accessed at random times: a check then finds an access with probability 1 - exp(-check /
    /// gap). `None` if no check found one.
    pub fn gap(&self) -> Option<Nanos> {
        let found = f64::from(self.access_rate_bp.min(RATE_MAX_BP)) / 10_000.0;
        (found > 0.0).then(|| Nanos((self.check.0 as f64 / -(-found).ln_1p()) as u64))
    }
}

/// A page that lies in a region. No access to this page was seen: what is known of the region is
/// likely true of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPage {
    /// The page; of a folio, the one that maps its head.
    pub page: VirtPage,
    /// Its frame, where known; of a folio, its head.
    pub pfn: Option<Pfn>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// The node that holds it.
    pub node: NodeId,
    /// The region.
    pub region: Region,
    /// End of the aggregation interval that reported the region.
    pub time: Nanos,
}

/// All regions of one aggregation interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSnapshot {
    /// End of the aggregation interval.
    pub time: Nanos,
    /// The regions, ascending and disjoint within each space.
    pub regions: Vec<Region>,
}

/// What a machine knows of the mapping around a page; queried only by rules that look at
/// neighbours.
pub trait Mappings: std::fmt::Debug {
    /// First and last-plus-one virtual page number of the mapping that holds `page`, where known.
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>>;

    /// The location of `page`, if a scan has marked it and it has not faulted since: its next
    /// access will be a hint fault.
    fn marked(&self, page: VirtPage) -> Option<Marked>;
}

/// A page that a scan has marked and nobody has touched since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The node that holds it, where known.
    pub node: Option<NodeId>,
    /// Its frame, where known.
    pub pfn: Option<Pfn>,
}

/// For a machine without information about mappings.
#[derive(Clone, Copy, Debug)]
pub struct NoMappings;

impl Mappings for NoMappings {
    fn bounds(&self, _page: VirtPage) -> Option<std::ops::Range<u64>> {
        None
    }

    fn marked(&self, _page: VirtPage) -> Option<Marked> {
        None
    }
}

/// How much of the top tier a scope with a floor or a cap holds: the memory charged to its cgroup.
///
/// The machine reads it after it has reported everything else, so the figure includes the pages of
/// every move and demand whose outcome was reported before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The scope.
    pub scope: ScopeId,
    /// When the machine read it.
    pub time: Nanos,
    /// Base pages.
    pub pages: u64,
}

/// How long tasks of a scope have waited for memory: the totals of its cgroup's `memory.pressure`,
/// or of the machine's (PSI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The scope.
    pub scope: ScopeId,
    /// When the machine read them.
    pub time: Nanos,
    /// Time in which some task waited, µs since the cgroup was made, or the machine booted.
    pub some_us: u64,
    /// Time in which all non-idle tasks waited, µs.
    pub full_us: u64,
}

/// How the kernel scans a process for NUMA balancing: it passes over the process's memory in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scans {
    /// The process.
    pub pid: Pid,
    /// Time between two steps, as [`Passes`](crate::pace::Passes) measures it.
    pub interval: Nanos,
    /// Its memory in MiB, including that in the top tier: steps pass over that too.
    pub mib: u64,
    /// Passes that have ended since it was first seen, the first of which may have begun before
    /// that.
    pub passes: u32,
}

/// How much the programs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programs {
    /// When the machine read it.
    pub time: Nanos,
    /// CPU time that they have used since some moment.
    pub cpu: Nanos,
}

impl Programs {
    /// Time between two reports. To sum up over CPUs and interrupts costs a kernel too much to do
    /// it at each step.
    pub const EVERY: Nanos = Nanos::from_s(5);
}

/// Whether a process's memory may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It belongs to this scope.
    Managed(ScopeId),
    /// It has been examined and is left alone: a scope excludes it, or scopes are configured and
    /// none names it.
    Excluded,
    /// It has not been examined since it started, or since a property changed by which scopes
    /// match. It is left alone until then.
    Unexamined,
}

impl Membership {
    /// The membership of a process by the configured scopes, in their order. An exclusion wins at
    /// any position, then the first scope that names the process. If all scopes are exclusions,
    /// every other process is in the default scope.
    pub fn among<S>(scopes: &[S], excludes: impl Fn(&S) -> bool, names: impl Fn(&S) -> bool) -> Membership {
        if scopes.iter().any(|scope| excludes(scope) && names(scope)) {
            return Membership::Excluded;
        }
        match scopes.iter().position(|scope| !excludes(scope) && names(scope)) {
            Some(place) => Membership::Managed(ScopeId::of_place(place)),
            None if scopes.iter().all(excludes) => Membership::Managed(ScopeId::DEFAULT),
            None => Membership::Excluded,
        }
    }

    /// The membership until the process is examined by other scopes, to which `map` leads.
    pub fn after(self, map: &ScopeMap) -> Membership {
        match self {
            Membership::Managed(scope) => match map.of(scope) {
                ScopeId::GONE => Membership::Unexamined,
                scope => Membership::Managed(scope),
            },
            other => other,
        }
    }
}

/// Everything that a machine can report to the engine.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// Accesses to pages, in batches as the source delivers them.
    Accesses {
        /// The accesses, in order of time as far as the source can tell.
        batch: &'a [Access],
        /// What the machine knows of the mappings behind them.
        mappings: &'a dyn Mappings,
    },
    /// A region snapshot.
    Regions(&'a RegionSnapshot),
    /// Pages of lower tiers that lie in regions of a snapshot reported before: as many as there is
    /// time to look up, the hottest regions first.
    RegionPages(&'a [RegionPage]),
    /// Frames `[start, end)` of a node appeared (memory hot-added).
    MemoryOnline {
        /// The node.
        node: NodeId,
        /// First frame.
        start: Pfn,
        /// Frame after the last.
        end: Pfn,
    },
    /// Frames `[start, end)` disappeared (memory hot-removed).
    MemoryOffline {
        /// First frame.
        start: Pfn,
        /// Frame after the last.
        end: Pfn,
    },
    /// Nodes appeared, disappeared or changed their tier: the machine as it is now.
    Topology(&'a crate::topology::Topology),
    /// Whether a process's memory may move from now on.
    Process {
        /// The process.
        pid: Pid,
        /// Whether its memory may move.
        membership: Membership,
    },
    /// A process has replaced its address space: what is known of its pages is void, and it stays
    /// in its scope.
    Exec {
        /// The process.
        pid: Pid,
    },
    /// A process is gone with all its threads; its number may be reused, and a process that reuses
    /// it is unexamined.
    Exit {
        /// The process.
        pid: Pid,
    },
    /// How the moves of a batch ended.
    Outcome(&'a crate::moves::BatchOutcome),
    /// The result of a demand to demote.
    Demoted(&'a crate::demand::Demoted),
    /// A scope's holding of the top tier.
    Holding(Holding),
    /// How long tasks of a scope have waited for memory.
    Pressure(Pressure),
    /// How the kernel scans the process that the pace follows
    /// ([`followed`](crate::pace::followed)); `None` if that is not known, or no longer known.
    Scans(Option<Scans>),
    /// How much the programs work.
    Programs(Programs),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(access_rate_bp: u16) -> Region {
        let space = RegionSpace::Virtual(Pid(1));
        Region { space, start: 0, end: 1, access_rate_bp, age: Nanos(0), check: Nanos::from_ms(5) }
    }

    #[test]
    fn a_region_tells_how_far_its_accesses_are_apart() {
        assert_eq!(region(0).gap(), None);
        // Accesses a check apart are found by 1 - 1/e of the checks.
        let gap = region(6321).gap().unwrap();
        assert!(gap.0.abs_diff(5_000_000) < 5_000, "{gap:?}");
        assert!(region(100).gap().unwrap() > Nanos::from_ms(490));
        assert_eq!(region(10_000).gap(), region(9_500).gap());
        assert_eq!(region(u16::MAX).gap(), region(9_500).gap());
    }
}
