//! The two ways to let programs run: every access ([`exact`]), or from one hint fault to the next
//! ([`event`]).
//!
//! Both drive the same [`World`]: the same models, managers, phases. A mode lets threads run until
//! something is due, takes every hint fault to [`World::fault`] at its time, and lets the time pass
//! that a thread is charged.

pub mod event;
pub mod exact;

use serde::{Deserialize, Serialize};
use thermocline_core::units::Nanos;

use crate::world::World;

/// Which mode.
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
    /// Lets programs run until `until`, or until something else is due earlier, or all are done;
    /// `system.now` is the time that was reached.
    fn advance(&mut self, world: &mut World, until: Nanos);

    /// Models have run: time may have been charged to threads, and pages may have moved.
    fn models_have_run(&mut self, world: &mut World);
}
