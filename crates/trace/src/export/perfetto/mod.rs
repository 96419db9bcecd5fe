//! A recording as a trace for ui.perfetto.dev: tracks by node, scope and source.
//!
//! * A node has its free memory as a counter, and batches, demands and their ends as instants.
//! * A scope has the engine's decisions on its pages as instants with their reason, and what it
//!   holds of the top tier as a counter.
//! * A source has the pieces of evidence of each step as a counter.
//!
//! Times are CLOCK_MONOTONIC, so that the trace can be merged with one of ftrace's. Those of a
//! simulated or imported recording are by no clock of a machine, and the trace names none.

mod tracks;

use std::collections::BTreeMap;
use std::io::{self, Write};

use thermocline_core::access::{Membership, Source};
use thermocline_core::journal::Decision;
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::units::{Nanos, NodeId, PageSize, Pid, ScopeId};

use super::ExportError;
use super::messages::{UNIT_BYTES, UNIT_COUNT, UNIT_TIME_NS};
use crate::piece::Piece;
use crate::reader::{Reader, Recording};
use crate::rows::columns;
use tracks::{Tracks, Uuid, address, number, text};

/// Processes whose scope is kept.
const PROCESSES_MAX: usize = 1 << 16;
/// Batches whose target is kept.
const IN_FLIGHT_MAX: usize = 1 << 16;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perfetto {
    /// Decisions.
    pub decisions: u64,
    /// Values of counters.
    pub values: u64,
    /// Whether times are CLOCK_MONOTONIC.
    pub monotonic: bool,
}

/// Writes a recording's events as a trace.
///
/// # Errors
/// It cannot be written.
pub fn perfetto(
    recording: &Recording,
    reader: &mut Reader<'_>,
    to: &mut dyn Write,
) -> Result<Perfetto, ExportError> {
    let monotonic = is_monotonic(recording);
    let start = recording.parts().first().map_or(Nanos(0), |part| part.first_ns);
    let (tracks, root) = Tracks::new(to, monotonic, start, &title(recording, monotonic))?;
    let scopes = recording.config().map(|c| c.scope.into_iter().map(|scope| scope.name).collect());
    let mut export = Export {
        tracks,
        root,
        scopes: scopes.unwrap_or_default(),
        page: recording.topology().page_bytes,
        of: BTreeMap::new(),
        batches: BTreeMap::new(),
        pieces: BTreeMap::new(),
        time: Nanos(0),
        done: Perfetto { monotonic, ..Perfetto::default() },
    };
    while let Some((_, head, piece)) = reader.next_event() {
        export.piece(head.time, &piece)?;
    }
    export.pieces(Nanos(u64::MAX))?;
    export.tracks.flush()?;
    Ok(export.done)
}

/// Whether the times of a recording are CLOCK_MONOTONIC: those that a machine has recorded are.
fn is_monotonic(recording: &Recording) -> bool {
    let live = recording.setting("clock").is_some_and(|clock| clock.contains("monotonic_ns"));
    live && recording.imported().is_none()
}

fn title(recording: &Recording, monotonic: bool) -> String {
    let program = recording.setting("program").unwrap_or("thermocline");
    let times = match (recording.setting(crate::reader::TIMES), monotonic) {
        (Some(times), _) => times,
        (None, true) => "CLOCK_MONOTONIC",
        (None, false) => "simulated time",
    };
    format!("{program}, times: {times}")
}

struct Export<'a> {
    tracks: Tracks<'a>,
    root: Uuid,
    scopes: Vec<String>,
    page: PageSize,
    /// The scope of each process.
    of: BTreeMap<Pid, ScopeId>,
    /// The target of each batch that has not ended.
    batches: BTreeMap<u64, NodeId>,
    /// Pieces of evidence in the step, by the track of their source.
    pieces: BTreeMap<&'static str, u64>,
    time: Nanos,
    done: Perfetto,
}

impl Export<'_> {
    fn piece(&mut self, time: Nanos, piece: &Piece) -> io::Result<()> {
        match piece {
            Piece::Step(step) => self.pieces(step.time)?,
            Piece::Accesses(batch, _) => {
                for access in batch {
                    self.evidence(access.detail.source().key(), 1);
                }
            }
            Piece::Regions(snapshot) => self.evidence(Source::Damon.key(), snapshot.regions.len()),
            Piece::RegionPages(pages) => self.evidence(Source::Damon.key(), pages.len()),
            Piece::RegionCounts(_, regions) => self.evidence("regions counted elsewhere", regions.len()),
            Piece::Process(pid, Membership::Managed(scope)) if self.knows(*pid) => {
                self.of.insert(*pid, *scope);
            }
            Piece::Exit(pid) | Piece::Process(pid, _) => {
                self.of.remove(pid);
            }
            Piece::Nodes(states) => {
                for state in states {
                    let node = self.node(state.node)?;
                    let free = self.bytes(state.free_pages);
                    self.count((node, "free memory", UNIT_BYTES), time, free)?;
                }
            }
            Piece::Holding(holding) => {
                let (scope, held) = (self.scope(holding.scope)?, self.bytes(holding.pages));
                self.count((scope, "in the top tier", UNIT_BYTES), holding.time, held)?;
            }
            Piece::Pressure(pressure) => {
                let scope = self.scope(pressure.scope)?;
                let waited = pressure.some_us.saturating_mul(1000);
                self.count((scope, "waited for memory", UNIT_TIME_NS), pressure.time, waited)?;
            }
            Piece::Batch(batch) => self.batch(time, batch)?,
            Piece::Outcome(done) => self.outcome(done)?,
            Piece::Demand(demand) => {
                let node = self.node(demand.node)?;
                let name = format!("demote {} pages", demand.pages);
                let details = vec![number("demand", demand.id), number("idle_ns", demand.idle.0)];
                self.tracks.instant((node, time), ("demote", name), details)?;
            }
            Piece::Demoted(done) => {
                let node = self.node(done.node)?;
                let name = format!("demoted {} pages", done.pages);
                self.tracks.instant((node, time), ("demote", name), vec![number("demand", done.id)])?;
            }
            Piece::Decisions(decisions) => {
                for decision in decisions {
                    self.decision(decision)?;
                }
            }
            Piece::Loss { events, pieces } => {
                let details = vec![number("events", *events), number("pieces", *pieces)];
                let name = "not recorded: the disk did not keep up".to_owned();
                self.tracks.instant((self.root, time), ("loss", name), details)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the scope of a process is kept.
    fn knows(&self, pid: Pid) -> bool {
        self.of.len() < PROCESSES_MAX || self.of.contains_key(&pid)
    }

    fn evidence(&mut self, source: &'static str, pieces: usize) {
        *self.pieces.entry(source).or_default() += pieces as u64;
    }

    /// Writes what the sources reported in the step that is over; `next` is when the next one is.
    fn pieces(&mut self, next: Nanos) -> io::Result<()> {
        let time = std::mem::replace(&mut self.time, next);
        let steps = std::mem::take(&mut self.pieces);
        for (source, pieces) in &steps {
            let track = self.tracks.track(Some(self.root), &format!("source {source}"), None)?;
            self.count((track, "pieces of evidence a step", UNIT_COUNT), time, *pieces)?;
        }
        // A source that is silent in the next step counts none there.
        self.pieces = steps.into_iter().filter(|(_, n)| *n > 0).map(|(source, _)| (source, 0)).collect();
        Ok(())
    }

    fn count(&mut self, (track, name, unit): (Uuid, &str, i32), time: Nanos, value: u64) -> io::Result<()> {
        let counter = self.tracks.track(Some(track), name, Some(unit))?;
        self.done.values += 1;
        self.tracks.count(counter, time, value)
    }

    fn node(&mut self, node: NodeId) -> io::Result<Uuid> {
        self.tracks.track(Some(self.root), &node.to_string(), None)
    }

    fn scope(&mut self, scope: ScopeId) -> io::Result<Uuid> {
        let name = match usize::from(scope.0).checked_sub(1) {
            None => "scope default".to_owned(),
            Some(place) => match self.scopes.get(place) {
                Some(name) => format!("scope {name}"),
                None => format!("scope number {}", scope.0),
            },
        };
        self.tracks.track(Some(self.root), &name, None)
    }

    fn bytes(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page.bytes())
    }

    fn batch(&mut self, time: Nanos, batch: &Batch) -> io::Result<()> {
        let node = self.node(batch.target)?;
        if self.batches.len() < IN_FLIGHT_MAX {
            self.batches.insert(batch.id.0, batch.target);
        }
        let pages: u64 = batch.moves.iter().map(|one| 1u64.checked_shl(one.order.into()).unwrap_or(0)).sum();
        let name = format!("{} {pages} pages", batch.direction.name());
        let details = vec![number("batch", batch.id.0), number("pid", batch.pid.0)];
        self.tracks.instant((node, time), ("moves", name), details)
    }

    fn outcome(&mut self, done: &BatchOutcome) -> io::Result<()> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        done.outcomes.iter().for_each(|outcome| *counts.entry(outcome.name()).or_default() += 1);
        let mut details = vec![number("batch", done.id.0)];
        details.extend(counts.iter().map(|(outcome, moves)| number(outcome, *moves)));
        let track = match self.batches.remove(&done.id.0) {
            Some(target) => self.node(target)?,
            None => self.root,
        };
        let moved = counts.get(Outcome::Moved.name()).copied().unwrap_or(0);
        let name = format!("ended: {moved} of {} moves", done.outcomes.len());
        self.tracks.instant((track, done.time), ("moves", name), details)
    }

    fn decision(&mut self, decision: &Decision) -> io::Result<()> {
        let scope = self.of.get(&decision.page.pid).copied().unwrap_or(ScopeId::DEFAULT);
        let track = self.scope(scope)?;
        let (what, reason, batch) = columns(decision.what);
        let name = match reason {
            Some(reason) => format!("{what}: {reason}"),
            None => what.to_owned(),
        };
        let mut details = vec![
            number("pid", decision.page.pid.0),
            address("address", decision.page.address()),
            number("pages", decision.pages),
            text("direction", decision.direction.name()),
            number("from", decision.from.0),
            number("score", decision.score),
            text("why", decision.why.name()),
        ];
        details.extend(decision.to.map(|to| number("to", to.0)));
        details.extend(batch.map(|batch| number("batch", batch.0)));
        self.done.decisions += 1;
        self.tracks.instant((track, decision.time), ("decision", name), details)
    }
}
