//! Carries out the engine's demands to demote: on the live machine a thread that asks the kernel to
//! age and to evict.
//!
//! It works like the live one: a node whose youngest generation is older than the idle time is
//! aged; then pages are evicted that two agings found not accessed. Every page takes the time of a
//! demotion, on a CPU of its own.

use std::collections::VecDeque;

use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::units::Nanos;

use crate::kernel::generations::Generations;
use crate::system::{NEVER, System};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Demoter {
    generations: Generations,
    /// Demands and when each is done.
    demands: VecDeque<(Nanos, Demand)>,
}

impl Demoter {
    /// Creates an idle demoter.
    pub fn new(system: &System) -> Demoter {
        Demoter { generations: Generations::new(system), demands: VecDeque::new() }
    }

    /// Takes a demand.
    pub fn take(&mut self, system: &System, demand: Demand) {
        let begin = self.demands.back().map_or(system.now, |(done, _)| (*done).max(system.now));
        let ns = system.machine.spec.cost.demote_ns * demand.pages as f64;
        self.demands.push_back((begin.plus(Nanos(ns as u64)), demand));
    }

    /// When the next demand is done.
    pub fn due(&self) -> Nanos {
        self.demands.front().map_or(NEVER, |(done, _)| *done)
    }

    /// Carries out the next demand that is due.
    pub fn run(&mut self, system: &mut System) -> Option<Demoted> {
        let (_, demand) = self.demands.pop_front_if(|(done, _)| *done <= system.now)?;
        let node = system.machine.index(demand.node.0)?;
        if system.now.since(self.generations.aged(node)) >= demand.idle {
            self.generations.age(system, node);
        }
        let pages = self.generations.evict(system, node, demand.pages);
        let cpu = Nanos((system.machine.spec.cost.demote_ns * pages as f64) as u64);
        Some(demand.done(pages, cpu))
    }
}
