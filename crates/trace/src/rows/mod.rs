//! Pieces as rows of tables, and back.

mod decision;
mod get;
mod put;

pub use decision::columns;
pub use get::{Header, Take, get, node, topology};
pub use put::Tables;

use thermocline_core::hash::FixedMap;
use thermocline_core::units::VirtPage;

use crate::piece::Phase;

/// Counts the hint faults of each process in a part. Faults since a scan differ from row to row;
/// the count at the time of the scan is the same for all pages that it marked.
#[derive(Debug, Default)]
pub struct Ranks(FixedMap<Option<u32>, u64>);

impl Ranks {
    /// The number of faults of the page's process before this one.
    fn next(&mut self, page: Option<VirtPage>) -> u64 {
        let count = self.0.entry(page.map(|page| page.pid.0)).or_default();
        *count += 1;
        *count - 1
    }
}

/// The kinds of events: the names that `events.kind` may have.
pub mod kind {
    macro_rules! kinds {
        ($($name:ident = $text:literal;)*) => { $(
            #[doc = concat!("`", $text, "`")]
            pub const $name: &str = $text;
        )* };
    }
    kinds! {
        STEP = "step";
        ACCESSES = "accesses";
        REGIONS = "regions";
        REGION_COUNTS = "region_counts";
        REGION_PAGES = "region_pages";
        ONLINE = "online";
        OFFLINE = "offline";
        TOPOLOGY = "topology";
        PROCESS = "process";
        OUTCOME = "outcome";
        DEMOTED = "demoted";
        HOLDING = "holding";
        PRESSURE = "pressure";
        SCANS = "scans";
        PROGRAMS = "programs";
        READ = "read";
        NODES = "nodes";
        BATCH = "batch";
        DEMAND = "demand";
        DECISIONS = "decisions";
        SETTING = "setting";
        LOSS = "loss";
    }
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Poll, Phase::Nodes, Phase::Tick, Phase::Between];

    /// Its name in `events.phase`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Poll => "poll",
            Phase::Nodes => "nodes",
            Phase::Tick => "tick",
            Phase::Between => "between",
        }
    }

    fn named(name: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// Names in tables of what core has no names for.
mod names {
    use thermocline_core::access::{Membership, RegionSpace};
    use thermocline_core::pace::Pacing;
    use thermocline_core::units::{NodeId, Pid, ScopeId};

    pub const PACINGS: [(&str, Pacing); 3] =
        [("nothing", Pacing::Nothing), ("steps", Pacing::Steps), ("renewals", Pacing::Renewals)];

    pub fn pacing(pacing: Pacing) -> &'static str {
        PACINGS.iter().find(|(_, of)| *of == pacing).map_or("nothing", |(name, _)| name)
    }

    pub fn space(space: RegionSpace) -> (&'static str, u64) {
        match space {
            RegionSpace::Virtual(pid) => ("virtual", pid.0.into()),
            RegionSpace::Physical(node) => ("physical", node.0.into()),
            RegionSpace::Target(target) => ("target", target.into()),
        }
    }

    pub fn space_of(name: &str, of: u32) -> Option<RegionSpace> {
        match name {
            "virtual" => Some(RegionSpace::Virtual(Pid(of))),
            "physical" => Some(RegionSpace::Physical(NodeId(u16::try_from(of).ok()?))),
            "target" => Some(RegionSpace::Target(of)),
            _ => None,
        }
    }

    pub fn membership(membership: Membership) -> (&'static str, Option<u64>) {
        match membership {
            Membership::Managed(scope) => ("managed", Some(scope.0.into())),
            Membership::Excluded => ("excluded", None),
            Membership::Unexamined => ("unexamined", None),
        }
    }

    pub fn membership_of(name: &str, scope: Option<u16>) -> Option<Membership> {
        match (name, scope) {
            ("managed", Some(scope)) => Some(Membership::Managed(ScopeId(scope))),
            ("excluded", None) => Some(Membership::Excluded),
            ("unexamined", None) => Some(Membership::Unexamined),
            _ => None,
        }
    }

    /// Numbers as a text.
    pub fn list<T: std::fmt::Display>(numbers: &[T]) -> String {
        numbers.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Such a text as numbers.
    pub fn listed<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
        text.split_whitespace().map(|number| number.parse().ok()).collect()
    }
}
