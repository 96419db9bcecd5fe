//! The events of a recording, step by step.

use thermocline_core::demand::Demand;
use thermocline_core::journal::Decision;
use thermocline_core::moves::Batch;
use thermocline_core::topology::NodeState;

use crate::piece::{Phase, Piece, Step};
use crate::reader::Reader;

/// What was recorded of one step, and of the time until the next.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of its event.
    pub event: u64,
    /// The step.
    pub step: Step,
    /// What the machine reported when it was polled.
    pub polled: Vec<Piece>,
    /// What it reported when its nodes were read.
    pub read: Vec<Piece>,
    /// The nodes, if they were read.
    pub nodes: Option<Vec<NodeState>>,
    /// Batches submitted.
    pub batches: Vec<Batch>,
    /// Demands made.
    pub demands: Vec<Demand>,
    /// The engine's decisions.
    pub decisions: Vec<Decision>,
    /// Evidence shown after the step.
    pub between: Vec<Piece>,
    /// Configurations loaded after it, as text, with the numbers of their events.
    pub configs: Vec<(u64, String)>,
    /// Pieces of evidence.
    pub pieces: u64,
}

impl Recorded {
    fn new(event: u64, step: Step) -> Recorded {
        Recorded {
            event,
            step,
            polled: Vec::new(),
            read: Vec::new(),
            nodes: None,
            batches: Vec::new(),
            demands: Vec::new(),
            decisions: Vec::new(),
            between: Vec::new(),
            configs: Vec::new(),
            pieces: 0,
        }
    }

    fn add(&mut self, event: u64, phase: Phase, piece: Piece) {
        self.pieces += piece.pieces();
        match (phase, piece) {
            (_, Piece::Step(_) | Piece::Read | Piece::Loss { .. }) => {}
            (_, Piece::Nodes(states)) => self.nodes = Some(states),
            (_, Piece::Batch(batch)) => self.batches.push(batch),
            (_, Piece::Demand(demand)) => self.demands.push(demand),
            (_, Piece::Decisions(mut decisions)) => self.decisions.append(&mut decisions),
            (_, Piece::Setting(key, value)) => {
                if key == "config" {
                    self.configs.push((event, value));
                }
            }
            (Phase::Poll, piece) => self.polled.push(piece),
            (Phase::Nodes, piece) => self.read.push(piece),
            (Phase::Tick | Phase::Between, piece) => self.between.push(piece),
        }
    }
}

/// Reads a recording step by step.
pub struct Steps<'a> {
    reader: Reader<'a>,
    next: Option<Recorded>,
}

impl<'a> Steps<'a> {
    /// From the reader's next event on.
    pub fn new(reader: Reader<'a>) -> Steps<'a> {
        Steps { reader, next: None }
    }

    /// The next step. Events before the first step that is there belong to one that is missing, and
    /// are left out.
    pub fn next_step(&mut self) -> Option<Recorded> {
        while let Some((event, head, piece)) = self.reader.next_event() {
            if let Piece::Step(step) = piece {
                if let Some(done) = self.next.replace(Recorded::new(event, step)) {
                    return Some(done);
                }
            } else if let Some(recorded) = &mut self.next {
                recorded.add(event, head.phase, piece);
            }
        }
        self.next.take()
    }

    /// The reader, which knows what is missing.
    pub fn reader(&self) -> &Reader<'a> {
        &self.reader
    }
}
