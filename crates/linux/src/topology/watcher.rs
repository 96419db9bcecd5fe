//! Detects memory that comes and goes while running.

use thermocline_core::config::TierMap;

use crate::root::Root;
use crate::topology::{DiscoverError, Discovered, PfnMap, PfnRange, discover};
use crate::zoneinfo::Zone;

/// Changes found by a check of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The nodes, tiers, CPUs or distances are different: see [`Watcher::discovered`].
    pub topology: bool,
    /// Frames that came online.
    pub online: Vec<PfnRange>,
    /// Frames that went offline: their state must be discarded.
    pub offline: Vec<PfnRange>,
}

impl Change {
    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        !self.topology && self.online.is_empty() && self.offline.is_empty()
    }
}

/// Reads the topology and the table of page frames, and reads them again when memory has come or
/// gone.
#[derive(Debug)]
pub struct Watcher {
    root: Root,
    map: TierMap,
    discovered: Discovered,
    pfns: PfnMap,
    spans: Vec<Span>,
}

/// A zone's extent: any block that goes on- or offline changes `present`.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    node: u16,
    start: Option<u64>,
    spanned: u64,
    present: u64,
}

impl Watcher {
    /// Reads the machine at `root`; `zones` are its present zones.
    ///
    /// # Errors
    /// As [`discover`].
    pub fn new(root: &Root, map: &TierMap, zones: &[Zone]) -> Result<Watcher, DiscoverError> {
        Ok(Watcher {
            discovered: discover(root, map)?,
            pfns: PfnMap::read(root, zones)?,
            spans: spans(zones),
            root: root.clone(),
            map: map.clone(),
        })
    }

    /// The machine as of the last check.
    pub fn discovered(&self) -> &Discovered {
        &self.discovered
    }

    /// The page frames as of the last check.
    pub fn pfns(&self) -> &PfnMap {
        &self.pfns
    }

    /// Whether a zone's extent has changed since the last check, because memory came or went.
    pub fn extents_differ(&self, zones: &[Zone]) -> bool {
        spans(zones) != self.spans
    }

    /// Checks again: a few small files per node, and the memory blocks only if `zones` show that a
    /// zone's extent has changed.
    ///
    /// # Errors
    /// As [`discover`]; the last state stays.
    pub fn look(&mut self, zones: &[Zone]) -> Result<Change, DiscoverError> {
        let discovered = discover(&self.root, &self.map)?;
        let mut change = Change { topology: !same_shape(&discovered, &self.discovered), ..Change::default() };
        let spans = spans(zones);
        if change.topology || spans != self.spans {
            let pfns = PfnMap::read(&self.root, zones)?;
            change.online = pfns.without(&self.pfns);
            change.offline = self.pfns.without(&pfns);
            self.pfns = pfns;
            self.spans = spans;
        }
        self.discovered = discovered;
        Ok(change)
    }
}

/// Whether nodes, tiers, CPUs and distances are the same. A capacity alone changes with every
/// balloon driver activity, and is updated without notice.
fn same_shape(a: &Discovered, b: &Discovered) -> bool {
    let strip = |d: &Discovered| {
        let mut d = d.clone();
        for node in &mut d.topology.nodes {
            node.capacity_pages = u64::from(node.capacity_pages > 0);
        }
        d
    };
    strip(a) == strip(b)
}

fn spans(zones: &[Zone]) -> Vec<Span> {
    let span = |z: &Zone| Span { node: z.node.0, start: z.start_pfn, spanned: z.spanned, present: z.present };
    zones.iter().filter(|z| z.present > 0).map(span).collect()
}
