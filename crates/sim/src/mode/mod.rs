//! The two ways to let programs run: every access ([`exact`]), or from one hint fault to the next
//! ([`event`]).
//!
//! Both drive the same [`World`]: the same models, managers, phases. A mode runs threads until
//! something is due, passes every hint fault to [`World::fault`] at its time, and advances a thread
//! by the time that it is charged.

pub mod event;
pub mod exact;

use serde::{Deserialize, Serialize};
use thermocline_core::units::Nanos;

use crate::world::World;

/// The mode of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// Every access.
    Exact,
    /// From fault to fault.
    Event,
}

/// A way to let programs run.
pub trait Mode: std::fmt::Debug {
    /// Runs programs until `until`, or until something else is due earlier, or all are done;
    /// `system.now` is the time reached.
    fn advance(&mut self, world: &mut World, until: Nanos);

    /// Models have run: time may have been charged to threads, and pages may have moved.
    fn models_have_run(&mut self, world: &mut World);
}
