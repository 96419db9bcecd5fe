//! What a recording comes to, in a bounded amount of memory whatever its length: sums, series over
//! [`BINS`] intervals of equal length, and maps of the addresses that were accessed when.
//!
//! Everything is counted from the recorded rows. What they do not say is `None` or absent, never 0.
//! Counters that the rows leave out, such as how often a page was held, are those of an engine that
//! [replays](crate::replay) the recording.

mod decided;
mod level;
pub mod map;
mod span;

pub use decided::{Decided, LAST_KEPT, Why};
pub use level::{Level, Levels};
pub use map::{Area, Kind, Map};
pub use span::{BINS, Bins, Span};

use std::collections::BTreeMap;

use thermocline_core::access::{Access, Detail, RegionSpace, Source};
use thermocline_core::journal::What;
use thermocline_core::label::Label;
use thermocline_core::moves::Direction;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, ScopeId};

use crate::piece::Piece;
use crate::reader::Recording;

/// Scopes whose pressure is kept.
const PRESSURES_MAX: usize = 64;

/// Base pages moved, by interval.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// To a faster tier.
    pub promoted: Bins,
    /// To a slower tier, by moves of single pages.
    pub demoted: Bins,
    /// To a slower tier, by demands to the kernel's reclaim.
    pub reclaimed: Bins,
    /// Within a tier.
    pub balanced: Bins,
}

/// What a source gave.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Pieces of evidence, by interval.
    pub pieces: Bins,
    /// Accesses that it saw in the top tier, below it, and where that is not known.
    pub seen: [u64; 3],
    /// Accesses that its samples stand for, by their periods: in the top tier and below it.
    pub stand_for: [f64; 2],
    /// The sum of the squares of what each stands for.
    pub squares: f64,
}

/// What was counted of pressure.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// Microseconds in which some task waited for memory when it was first read, and last.
    pub some_us: [u64; 2],
    /// The time between.
    pub times: [Nanos; 2],
}

/// A recording, summed up.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// The time that it covers.
    pub span: Span,
    /// Steps.
    pub steps: u64,
    /// Pages moved.
    pub flows: Flows,
    /// What was decided.
    pub decided: Decided,
    /// Memory in use by node.
    pub nodes: Levels<NodeId>,
    /// Memory of each node that was managed when it was last read, in pages.
    pub managed: BTreeMap<NodeId, u64>,
    /// What scopes with a floor or a cap hold of the top tier.
    pub scopes: Levels<ScopeId>,
    /// What each source gave, by [`Label::index`].
    pub sources: Vec<Given>,
    /// Regions whose accesses another program has counted.
    pub foreign_regions: u64,
    /// Which addresses were accessed when.
    pub map: Map,
    /// CPU time that demands took, in ns; `None` if there was none.
    pub demand_cpu: Option<Nanos>,
    /// CPU time of the machine's programs when it was first reported, and last.
    pub programs: Option<[Nanos; 2]>,
    /// Time waited for memory, by scope.
    pub pressure: BTreeMap<ScopeId, Waited>,
    /// Events and pieces of evidence that were lost because the disk did not keep up.
    pub lost: [u64; 2],
    /// Whether the journal ran over, so that decisions are missing.
    pub overwritten: bool,
    /// Events that are missing for any reason.
    pub missing: u64,
    /// Files that turned out to be damaged, as far as they are named, and how many there are.
    pub damages: (Vec<String>, u64),
}

/// Sums a recording up. What of it is damaged is left out and named.
pub fn digest(recording: &Recording) -> Digest {
    let mut out = Digest {
        span: Span::of(recording),
        sources: vec![Given::default(); Source::ALL.len()],
        ..Digest::default()
    };
    let mut events = recording.read();
    while let Some((_, head, piece)) = events.next_event() {
        out.piece(recording.topology(), head.time, &piece);
    }
    out.missing = events.missing();
    out.damages = (events.damages().iter().map(ToString::to_string).collect(), events.damaged());
    out
}

impl Digest {
    /// What a source gave.
    pub fn given(&self, source: Source) -> Option<&Given> {
        self.sources.get(source.index())
    }

    fn piece(&mut self, topology: &Topology, time: Nanos, piece: &Piece) {
        let bin = self.span.bin(time);
        match piece {
            Piece::Step(_) => self.steps += 1,
            Piece::Accesses(batch, _) => batch.iter().for_each(|access| self.access(topology, access)),
            Piece::Regions(snapshot) => {
                self.add(Source::Damon, bin, snapshot.regions.len() as u64);
                for region in &snapshot.regions {
                    let rate = f64::from(region.access_rate_bp) / 10_000.0;
                    self.map.region(region.space, [region.start, region.end], bin, rate);
                }
            }
            Piece::RegionCounts(_, regions) => {
                self.foreign_regions += regions.len() as u64;
                for region in regions {
                    self.map.counted(region.space, [region.start, region.end], bin, region.accesses as f64);
                }
            }
            Piece::Demoted(done) => {
                self.flows.reclaimed.add(bin, done.pages);
                let before = self.demand_cpu.unwrap_or_default();
                self.demand_cpu = Some(before.plus(done.cpu));
            }
            Piece::Nodes(states) => states.iter().for_each(|state| self.node(bin, state)),
            Piece::Holding(holding) => {
                self.scopes.set(holding.scope, self.span.bin(holding.time), holding.pages);
            }
            Piece::Pressure(pressure) => {
                let (scope, some) = (pressure.scope, pressure.some_us);
                if self.pressure.len() < PRESSURES_MAX || self.pressure.contains_key(&scope) {
                    let first = Waited { some_us: [some; 2], times: [pressure.time; 2] };
                    let waited = self.pressure.entry(scope).or_insert(first);
                    (waited.some_us[1], waited.times[1]) = (some, pressure.time);
                }
            }
            Piece::Programs(programs) => {
                let first = self.programs.map_or(programs.cpu, |[first, _]| first);
                self.programs = Some([first, programs.cpu]);
            }
            Piece::Decisions(decisions) => {
                for decision in decisions {
                    self.decided.add(decision);
                    if matches!(decision.what, What::Moved { .. }) {
                        self.moved(bin, decision);
                    }
                }
            }
            Piece::Loss { events: 0, pieces: 0 } => self.overwritten = true,
            Piece::Loss { events, pieces } => {
                self.lost[0] = self.lost[0].saturating_add(*events);
                self.lost[1] = self.lost[1].saturating_add(*pieces);
            }
            _ => {}
        }
    }

    fn moved(&mut self, bin: usize, decision: &thermocline_core::journal::Decision) {
        let pages = u64::from(decision.pages);
        match decision.direction {
            Direction::Promote => self.flows.promoted.add(bin, pages),
            Direction::Demote => self.flows.demoted.add(bin, pages),
            Direction::Balance => self.flows.balanced.add(bin, pages),
        }
        self.map.moved(decision.page, bin, decision.direction, pages);
    }

    fn node(&mut self, bin: usize, state: &NodeState) {
        let used = state.managed_pages.saturating_sub(state.free_pages);
        if self.nodes.set(state.node, bin, used) {
            self.managed.insert(state.node, state.managed_pages);
        }
    }

    fn access(&mut self, topology: &Topology, access: &Access) {
        let bin = self.span.bin(access.time);
        let source = access.detail.source();
        self.add(source, bin, 1);
        let place = match topology.tier(access.node) {
            None => 2,
            Some(_) => usize::from(topology.is_lower(access.node)),
        };
        if let Some(given) = self.sources.get_mut(source.index()) {
            given.seen[place] += 1;
            if let (Detail::Sample { period, .. }, Some(sum)) =
                (access.detail, given.stand_for.get_mut(place))
            {
                let accesses = f64::from(period.max(1));
                *sum += accesses;
                given.squares += accesses * accesses;
            }
        }
        if let Some(page) = access.page {
            let accesses = match access.detail {
                Detail::Count { count, .. } => f64::from(count),
                _ => 1.0,
            };
            self.map.access(RegionSpace::Virtual(page.pid), page.vpn, bin, accesses, place == 0);
        }
    }

    fn add(&mut self, source: Source, bin: usize, pieces: u64) {
        if let Some(given) = self.sources.get_mut(source.index()) {
            given.pieces.add(bin, pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::access::{Holding, Region, RegionSnapshot};
    use thermocline_core::units::Pid;

    use super::*;

    #[test]
    fn pieces_of_any_size_and_time_are_taken() {
        let mut out = Digest {
            span: Span::between(Nanos(5), Nanos(7)),
            sources: vec![Given::default(); Source::ALL.len()],
            ..Digest::default()
        };
        let region = Region {
            space: RegionSpace::Virtual(Pid(1)),
            start: 0,
            end: u64::MAX,
            access_rate_bp: u16::MAX,
            age: Nanos(0),
            check: Nanos(0),
        };
        let regions = vec![region, Region { start: 9, end: 3, ..region }];
        let pieces = [
            Piece::Regions(RegionSnapshot { time: Nanos(0), regions }),
            Piece::Loss { events: u64::MAX, pieces: u64::MAX },
            Piece::Loss { events: 1, pieces: 1 },
            Piece::Holding(Holding { scope: ScopeId(9), time: Nanos(u64::MAX), pages: u64::MAX }),
            Piece::Nodes(vec![NodeState { free_pages: 9, ..NodeState::default() }]),
        ];
        for piece in &pieces {
            out.piece(&Topology::default(), Nanos(u64::MAX), piece);
        }
        assert_eq!(out.lost, [u64::MAX; 2]);
        assert_eq!(out.scopes.of(ScopeId(9)).and_then(Level::last), Some(u64::MAX));
        assert_eq!(out.nodes.of(NodeId(0)).and_then(Level::last), Some(0));
        assert_eq!(out.given(Source::Damon).map(|given| given.pieces.sum()), Some(2));
    }
}
