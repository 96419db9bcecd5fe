//! Reads from a recording what heat is estimated from.

use std::collections::BTreeMap;

use thermocline_core::access::{Access, Detail, RegionSnapshot, Source};
use thermocline_core::moves::{Batch, BatchId, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};

use crate::piece::Piece;
use crate::reader::Recording;

/// A hint fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page; of a folio, the one that maps its head.
    pub page: VirtPage,
    /// log2 of the folio's pages.
    pub order: u8,
    /// When a scan marked it.
    pub marked: Nanos,
    /// When it faulted.
    pub time: Nanos,
}

/// A hardware sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The page; of a folio, the one that maps its head.
    pub page: VirtPage,
    /// log2 of the folio's pages.
    pub order: u8,
    /// When it was taken.
    pub time: Nanos,
    /// Accesses from one sample to the next.
    pub period: u32,
}

/// All that is used of a recording.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The times of the first and the last step.
    pub span: Option<(Nanos, Nanos)>,
    /// Hint faults whose mark is known.
    pub faults: Vec<Fault>,
    /// Hint faults whose mark is not known.
    pub unmarked_faults: u64,
    /// Samples of known pages.
    pub samples: Vec<Sample>,
    /// DAMON's snapshots, in order.
    pub snapshots: Vec<RegionSnapshot>,
    /// When our moves took pages to the top tier or from it: the page, the time and whether it is
    /// in the top tier then; in order of time.
    pub moves: Vec<(VirtPage, Nanos, bool)>,
    /// Pages that we moved to the top tier, each as often as it was moved.
    pub promoted: u64,
    /// Pages demoted on demand; which ones is not known.
    pub demoted: u64,
    /// When processes ended or replaced their memory.
    pub ends: BTreeMap<Pid, Nanos>,
    /// Memory in use in the top tier and below it, in pages, when nodes were read last.
    pub used: Option<[u64; 2]>,
    /// Hint faults and samples of pages in the top tier, and below it.
    pub seen: [u64; 2],
    /// Accesses that devices have counted.
    pub device_counts: u64,
    /// Events that are missing.
    pub missing: u64,
    /// Files that are damaged.
    pub damaged: u64,
}

/// Reads a recording.
pub fn collect(recording: &Recording) -> Collected {
    let mut out = Collected::default();
    let mut batches: BTreeMap<BatchId, Batch> = BTreeMap::new();
    let top = |node: NodeId| !recording.topology().is_lower(node);
    let mut events = recording.read();
    while let Some((_, head, piece)) = events.next_event() {
        let (start, _) = out.span.unwrap_or((head.time, head.time));
        out.span = Some((start, head.time));
        match piece {
            Piece::Accesses(batch, _) => batch.iter().for_each(|access| out.access(access, top(access.node))),
            Piece::Regions(snapshot) => out.snapshots.push(snapshot),
            Piece::Batch(batch) => {
                batches.insert(batch.id, batch);
            }
            Piece::Outcome(done) => {
                let Some(batch) = batches.remove(&done.id) else { continue };
                for (moved, outcome) in batch.moves.iter().zip(&done.outcomes) {
                    if matches!(outcome, Outcome::Moved | Outcome::AlreadyThere) {
                        let up = top(batch.target);
                        out.moves.push((moved.page, done.time, up));
                        let pages = if up && *outcome == Outcome::Moved { moved.pages() } else { 0 };
                        out.promoted += pages;
                    }
                }
            }
            Piece::Demoted(done) => out.demoted += done.pages,
            Piece::Exec(pid) | Piece::Exit(pid) => {
                out.ends.insert(pid, head.time);
            }
            Piece::Nodes(states) => out.used = Some(used(&states, &top)),
            _ => {}
        }
    }
    out.missing = events.missing();
    out.damaged = events.damaged();
    out
}

fn used(states: &[NodeState], top: &dyn Fn(NodeId) -> bool) -> [u64; 2] {
    let mut used = [0; 2];
    for state in states {
        used[usize::from(!top(state.node))] += state.managed_pages.saturating_sub(state.free_pages);
    }
    used
}

impl Collected {
    fn access(&mut self, access: &Access, top: bool) {
        let (order, time) = (access.order, access.time);
        self.seen[usize::from(!top)] += u64::from(access.detail.source() != Source::Device);
        match (access.page, access.detail) {
            (Some(page), Detail::HintFault { latency: Some(latency) }) => {
                let marked = time.since(latency.time);
                self.faults.push(Fault { page, order, marked, time });
            }
            (_, Detail::HintFault { .. }) => self.unmarked_faults += 1,
            (Some(page), Detail::Sample { period, .. }) => {
                self.samples.push(Sample { page, order, time, period });
            }
            (None, Detail::Sample { .. }) => {}
            (_, Detail::Count { .. }) => self.device_counts += 1,
        }
    }
}
