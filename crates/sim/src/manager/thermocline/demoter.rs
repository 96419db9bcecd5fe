//! Carries out the engine's demands to demote: on the live machine a thread that asks the kernel to
//! age and to evict.
//!
//! It works like the live one (`thermocline_linux::demoter`): a node whose youngest generation is
//! older than the idle time is aged, and twice, the idle time apart, if that was long ago; then
//! pages are evicted that two agings found not accessed. Aging and demoting take their time, on a
//! CPU of its own.

use std::collections::VecDeque;

use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::demotion::{LONG_AGO, WAIT_MAX};
use thermocline_core::units::Nanos;

use crate::kernel::generations::Generations;
use crate::machine::NodeIndex;
use crate::system::{NEVER, System};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Demoter {
    generations: Generations,
    /// Demands that wait.
    demands: VecDeque<Demand>,
    /// The one under way, when it is done, and the CPU time that it has taken.
    current: Option<(Nanos, Demand, f64)>,
}

impl Demoter {
    /// Creates an idle demoter.
    pub fn new(system: &System) -> Demoter {
        Demoter { generations: Generations::new(system), demands: VecDeque::new(), current: None }
    }

    /// Takes a demand.
    pub fn take(&mut self, system: &mut System, demand: Demand) {
        self.demands.push_back(demand);
        if self.current.is_none() {
            self.start_next(system);
        }
    }

    /// When the current demand is done.
    pub fn due(&self) -> Nanos {
        self.current.as_ref().map_or(NEVER, |(done, _, _)| *done)
    }

    /// Carries out the current demand if it is due, and starts the next one.
    pub fn run(&mut self, system: &mut System) -> Option<Demoted> {
        let (_, demand, aging_ns) = self.current.take_if(|(done, _, _)| *done <= system.now)?;
        let done = system.machine.index(demand.node.0).map(|node| {
            let mut ns = aging_ns + self.age_older_than(system, node, demand.idle);
            let pages = self.generations.evict(system, node, demand.pages, demand.idle);
            let evicting_ns = system.machine.spec.cost.demote_ns * pages as f64;
            system.aside_ns += evicting_ns;
            ns += evicting_ns;
            demand.done(pages, Nanos(ns as u64))
        });
        self.start_next(system);
        done
    }

    fn start_next(&mut self, system: &mut System) {
        let Some(demand) = self.demands.pop_front() else { return };
        let Some(node) = system.machine.index(demand.node.0) else { return };
        let long_ago = Nanos(demand.idle.0.saturating_mul(LONG_AGO));
        let waits = demand.idle <= WAIT_MAX && system.now.since(self.generations.aged(node)) >= long_ago;
        let aging_ns = if waits { self.age_older_than(system, node, long_ago) } else { 0.0 };
        let wait = if waits { demand.idle } else { Nanos(0) };
        let evicting_ns = system.machine.spec.cost.demote_ns * demand.pages as f64;
        let done = system.now.plus(wait).plus(Nanos((aging_ns + evicting_ns) as u64));
        self.current = Some((done, demand, aging_ns));
    }

    /// Ages a node whose youngest generation is at least that old; returns its CPU time in ns.
    fn age_older_than(&mut self, system: &mut System, node: NodeIndex, age: Nanos) -> f64 {
        if system.now.since(self.generations.aged(node)) >= age {
            return self.generations.age(system, node);
        }
        0.0
    }
}
