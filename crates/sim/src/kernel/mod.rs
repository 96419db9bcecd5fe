//! Models of what the kernel does by itself, one file each.
//!
//! A [`Model`] runs when it is due and works on the [`System`]; between two dues the mode lets
//! programs run. What a model shares with Thermocline's rules (threshold feedback, fault count,
//! scan period, pghot's record, S2's window) it calls from `thermocline_core::published`; here is
//! only the plumbing. To add one: a file here, and a manager that returns it from
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

/// Something that runs now and then by itself.
pub trait Model: std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// When it wants to run; [`crate::system::NEVER`] as long as nothing happens. Asked after every
    /// fault: be quick.
    fn due(&self, system: &System) -> Nanos;

    /// Runs at `system.now`, which is at or after its due.
    fn run(&mut self, system: &mut System);
}
