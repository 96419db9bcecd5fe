//! Models of the kernel's background activities, one file each.
//!
//! A [`Model`] runs when it is due and works on the [`System`]; between due times the mode lets
//! programs run. Arithmetic shared with Thermocline's rules (threshold feedback, fault count, scan
//! period, pghot's record, S2's window) is in `thermocline_core::published`; here is only the
//! plumbing. To add one: a file here, and a manager that returns it from
//! [`crate::manager::Manager::models`].

pub mod cgroup;
pub mod chmu;
pub mod damon;
pub mod generations;
pub mod hint_fault;
pub mod pghot;
pub mod reclaim;
pub mod scanner;

use thermocline_core::units::Nanos;

use crate::system::System;

/// A background activity that runs at times of its own.
pub trait Model: std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// When it wants to run; [`crate::system::NEVER`] while it is idle. Called after every fault,
    /// so it must be fast.
    fn due(&self, system: &System) -> Nanos;

    /// Runs at `system.now`, which is at or after its due time.
    fn run(&mut self, system: &mut System);
}
