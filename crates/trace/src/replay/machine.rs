//! The machine that a replayed engine sees.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use serde::Serialize;
use thermocline_core::access::Evidence;
use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId};

use super::steps::Recorded;
use crate::piece::{Piece, Step};

/// What of an engine's moves and demands the recording has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Followed {
    /// Batches that the recording has too: they ended as there.
    pub batches: u64,
    /// Batches that it has not: they ended with `dry_run`.
    pub batches_apart: u64,
    /// Recorded outcomes that were not shown, because the engine issued no such batch.
    pub outcomes_withheld: u64,
    /// Demands that the recording has too.
    pub demands: u64,
    /// Demands that it has not.
    pub demands_apart: u64,
    /// Recorded results of demands that were not shown.
    pub results_withheld: u64,
}

/// See the module's description of [`replay`](super).
#[derive(Debug, Default)]
pub struct Replay {
    recorded: Option<Recorded>,
    nodes: Vec<NodeState>,
    pacing: Pacing,
    /// What the recording read of scopes while this engine did not.
    unread: Vec<Piece>,
    /// Whether the nodes were read in this step.
    read: bool,
    /// Recorded batches and demands that this engine did not issue so.
    foreign_batches: BTreeSet<u64>,
    foreign_demands: BTreeSet<u64>,
    /// Own ones that the recording has not, and that end at the next step.
    apart: Vec<BatchOutcome>,
    apart_demands: Vec<Demand>,
    /// Pages asked of each node by recorded demands that have not ended, and the share found by the
    /// latest that has.
    asked: BTreeMap<u64, u64>,
    found: BTreeMap<NodeId, (u64, u64)>,
    followed: Followed,
}

impl Replay {
    /// Goes to a step of the recording.
    pub fn load(&mut self, recorded: Recorded) {
        self.pacing = recorded.step.pacing;
        if let Some(before) = self.recorded.replace(recorded) {
            self.end(before);
        }
        self.read = false;
    }

    /// Settles what the engine has not done in a step that the recorded one has.
    fn end(&mut self, before: Recorded) {
        if !self.read {
            self.unread.extend(before.read);
            if let Some(nodes) = before.nodes {
                self.nodes = nodes;
            }
        }
        for batch in before.batches {
            self.foreign_batches.insert(batch.id.0);
        }
        for demand in before.demands {
            self.asked.insert(demand.id, demand.pages);
            self.foreign_demands.insert(demand.id);
        }
    }

    /// The step of the recording.
    ///
    /// # Panics
    /// No step was loaded.
    pub fn recorded(&self) -> &Recorded {
        self.recorded.as_ref().expect("a step was loaded")
    }

    /// What of the engine's moves and demands the recording has.
    pub fn followed(&self) -> Followed {
        self.followed
    }

    /// The recorded step, if one was loaded.
    fn step(&self) -> Option<&Step> {
        self.recorded.as_ref().map(|recorded| &recorded.step)
    }

    /// How a demand ends that the recording has not.
    fn result(&self, demand: &Demand) -> Demoted {
        let (found, asked) = self.found.get(&demand.node).copied().unwrap_or((0, 1));
        let pages = u128::from(demand.pages) * u128::from(found) / u128::from(asked.max(1));
        demand.done((pages as u64).min(demand.pages), Nanos(0))
    }

    /// Whether a piece is shown to the engine.
    fn is_shown(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::Outcome(done) => {
                let own = !self.foreign_batches.contains(&done.id.0);
                self.followed.outcomes_withheld += u64::from(!own);
                own
            }
            Piece::Demoted(done) => {
                if let Some(asked) = self.asked.remove(&done.id) {
                    self.found.insert(done.node, (done.pages, asked));
                }
                let own = !self.foreign_demands.contains(&done.id);
                self.followed.results_withheld += u64::from(!own);
                own
            }
            _ => true,
        }
    }
}

impl Machine for Replay {
    type Error = Infallible;

    fn poll(
        &mut self,
        now: Nanos,
        _due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        for mut done in std::mem::take(&mut self.apart) {
            done.time = now;
            observe(Evidence::Outcome(&done));
        }
        for demand in std::mem::take(&mut self.apart_demands) {
            observe(Evidence::Demoted(&self.result(&demand)));
        }
        for piece in std::mem::take(&mut self.unread) {
            piece.show(observe);
        }
        let polled = self.recorded.as_mut().map(|r| std::mem::take(&mut r.polled)).unwrap_or_default();
        for piece in &polled {
            if self.is_shown(piece) {
                piece.show(observe);
            }
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        self.read = true;
        if let Some(recorded) = &mut self.recorded {
            for piece in std::mem::take(&mut recorded.read) {
                piece.show(observe);
            }
            if let Some(nodes) = recorded.nodes.take() {
                self.nodes = nodes;
            }
        }
        Ok(&self.nodes)
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn wish(&mut self, wishes: Wishes) {
        let _ = wishes;
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        let Some(recorded) = &mut self.recorded else { return };
        let mut there = std::mem::take(&mut recorded.batches);
        for batch in batches {
            // The recording leaves out batches without moves.
            let same = there.iter().position(|other| *other == batch);
            if let Some(place) = same {
                there.remove(place);
                self.foreign_batches.remove(&batch.id.0);
                self.followed.batches += 1;
            } else {
                self.foreign_batches.insert(batch.id.0);
                self.followed.batches_apart += 1;
                let outcomes = vec![Outcome::DryRun; batch.moves.len()];
                self.apart.push(BatchOutcome { id: batch.id, time: Nanos(0), outcomes });
            }
        }
        recorded.batches = there;
    }

    fn demotes(&self) -> bool {
        self.step().is_some_and(|step| step.demotes)
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        let Some(recorded) = &mut self.recorded else { return };
        let mut there = std::mem::take(&mut recorded.demands);
        for demand in demands {
            let same = there.iter().position(|other| *other == demand);
            if let Some(place) = same {
                there.remove(place);
                self.asked.insert(demand.id, demand.pages);
                self.foreign_demands.remove(&demand.id);
                self.followed.demands += 1;
            } else {
                self.foreign_demands.insert(demand.id);
                self.followed.demands_apart += 1;
                self.apart_demands.push(demand);
            }
        }
        recorded.demands = there;
    }

    fn is_looking(&self) -> bool {
        self.step().is_some_and(|step| step.looking)
    }
}
