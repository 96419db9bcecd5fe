//! The interface between a machine and the engine.
//!
//! A machine owns memory: the kernel under us, the simulator's arithmetic, a test's tables.
//! [`Driver::step`](crate::driver::Driver::step) calls it, in one order for all of them:
//!
//! ```text
//! poll ──▶ (nothing more unless a tick is due) ──▶ nodes ──▶ wish ──▶ submit ──▶ demote
//! ```
//!
//! No method blocks. Long operations, such as moving pages, continue between steps, and a later
//! poll reports how they ended. Times are CLOCK_MONOTONIC, pages are base pages.

use crate::access::Evidence;
use crate::demand::Demand;
use crate::moves::Batch;
use crate::pace::{Pacing, ScanPace};
use crate::topology::NodeState;
use crate::units::Nanos;

/// What the engine would like the machine to do. A machine that cannot do it ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// How the kernel should scan; `None` leaves it to the configuration. A wish holds until the
    /// next one, so a setting that fails may be tried again.
    pub scans: Option<ScanPace>,
}

/// See the module's description.
pub trait Machine {
    /// Why the machine can no longer be used. It ends the step.
    type Error;

    /// Reports what has happened since the last call: accesses, regions, outcomes of batches and
    /// demands, processes, memory, pressure, scans. Called once at the start of every step.
    ///
    /// Every batch submitted and every demand made ends exactly once, a batch with one outcome per
    /// move. `due` says that a tick follows: periodic checks, such as for new processes or a
    /// changed topology, may wait for such a call.
    ///
    /// # Errors
    /// The machine can no longer be used; what was reported before stays reported.
    fn poll(
        &mut self,
        now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Self::Error>;

    /// Reads the state of every node with memory, and reports the top-tier holdings of scopes with
    /// a floor or a cap: the two things that every move changes. Called after
    /// [`poll`](Machine::poll) in steps that need them, so that they include every outcome
    /// reported.
    ///
    /// # Errors
    /// The state cannot be read.
    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Self::Error>;

    /// How much of the kernel's scanning [`wish`](Machine::wish) can set.
    fn pacing(&self) -> Pacing {
        Pacing::Nothing
    }

    /// Takes the engine's wishes, at every tick.
    fn wish(&mut self, wishes: Wishes) {
        let _ = wishes;
    }

    /// Starts moving the pages of these batches, at every tick. A batch that cannot be started has
    /// outcomes as well: [`Outcome::NotTried`](crate::moves::Outcome::NotTried).
    fn submit(&mut self, batches: Vec<Batch>);

    /// Whether [`demote`](Machine::demote) has an effect; it is not called otherwise.
    fn demotes(&self) -> bool {
        false
    }

    /// Starts demoting cold pages, at ticks for which the nodes were read. Each demand ends with
    /// [`Evidence::Demoted`], even if nothing was demoted.
    fn demote(&mut self, demands: Vec<Demand>) {
        let _ = demands;
    }

    /// Whether the machine has more to look for than it had time for: ticks then stay frequent
    /// while there is nothing to decide.
    fn is_looking(&self) -> bool {
        false
    }
}
