//! Moments of a recording, from its rows alone: what was read, counted and decided until then.

use std::collections::{BTreeMap, VecDeque};

use thermocline_core::access::Source;
use thermocline_core::journal::{Decision, What};
use thermocline_core::label::By;
use thermocline_core::moves::Direction;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, ScopeId};
use thermocline_trace::digest::Span;
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;
use thermocline_trace::rows::columns;

use super::engine::Known;

/// Decisions that are kept of each moment, the last ones.
const DECISIONS_KEPT: usize = 256;

/// A moment of a recording.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Since the recording's begin.
    pub at: Nanos,
    /// Steps until then: what names the moment to a replay.
    pub steps: u64,
    /// Events that are missing until then, and damaged files.
    pub missing: u64,
    /// The nodes as they were last read.
    pub nodes: Vec<NodeState>,
    /// What scopes held of the top tier when that was last read, and when.
    pub holdings: BTreeMap<ScopeId, (Nanos, u64)>,
    /// What is recorded of counts.
    pub counts: Counts,
    /// The last decisions, oldest first.
    pub decisions: VecDeque<Decision>,
    /// What the engine knew, if an engine that decides the same was replayed.
    pub known: Option<Known>,
}

/// Sums of recorded rows.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Pieces of evidence by source.
    pub evidence: By<Source>,
    /// Decisions by what was decided and the reason.
    pub decided: BTreeMap<(&'static str, Option<&'static str>), u64>,
    /// Base pages promoted and demoted.
    pub moved: [u64; 2],
}

impl Counts {
    fn saw(&mut self, source: Source, pieces: usize) {
        self.evidence.add(source, pieces as u64);
    }

    fn decides(&mut self, decision: &Decision) {
        let (what, reason, _) = columns(decision.what);
        *self.decided.entry((what, reason)).or_default() += 1;
        if let (What::Moved { .. }, Some(way)) = (decision.what, way(decision.direction)) {
            self.moved[way] = self.moved[way].saturating_add(decision.pages.into());
        }
    }
}

/// The place of a direction in [`Counts::moved`].
fn way(direction: Direction) -> Option<usize> {
    match direction {
        Direction::Promote => Some(0),
        Direction::Demote => Some(1),
        Direction::Balance => None,
    }
}

impl Moment {
    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Step(_) => self.steps += 1,
            Piece::Accesses(batch, _) => {
                for access in &batch {
                    self.counts.saw(access.detail.source(), 1);
                }
            }
            Piece::Regions(snapshot) => self.counts.saw(Source::Damon, snapshot.regions.len()),
            Piece::RegionCounts(_, regions) => self.counts.saw(Source::Damon, regions.len()),
            Piece::Demoted(done) => {
                self.counts.moved[1] = self.counts.moved[1].saturating_add(done.pages);
            }
            Piece::Nodes(nodes) => self.nodes = nodes,
            Piece::Holding(holding) => {
                self.holdings.insert(holding.scope, (holding.time, holding.pages));
            }
            Piece::Decisions(decisions) => {
                for decision in &decisions {
                    self.counts.decides(decision);
                }
                let beyond = (self.decisions.len() + decisions.len()).saturating_sub(DECISIONS_KEPT);
                let old = beyond.min(self.decisions.len());
                self.decisions.drain(..old);
                self.decisions.extend(decisions.into_iter().skip(beyond - old));
            }
            _ => {}
        }
    }
}

/// The moments of a recording at these times since its start, which ascend: each is as it was after
/// the last step that was not later. Also the files that turned out to be damaged.
pub fn moments(recording: &Recording, span: Span, at: &[Nanos]) -> (Vec<Moment>, Vec<String>) {
    let mut out = Vec::with_capacity(at.len());
    let mut now = Moment::default();
    let mut events = recording.read();
    while let Some((_, head, piece)) = events.next_event() {
        let later = |at: &&Nanos| head.time.since(span.start) > **at;
        while let Some(at) = at.get(out.len()).filter(later) {
            out.push(Moment { at: *at, ..now.clone() });
        }
        if out.len() == at.len() {
            break;
        }
        now.missing = events.missing().saturating_add(events.damaged());
        now.add(piece);
    }
    // Of a damaged file at the end no later event tells.
    now.missing = events.missing().saturating_add(events.damaged());
    for at in at.iter().skip(out.len()) {
        out.push(Moment { at: *at, ..now.clone() });
    }
    (out, events.damages().iter().map(ToString::to_string).collect())
}
