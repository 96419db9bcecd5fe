//! Carries out the engine's demands to demote: on the live machine a thread that asks the kernel to
//! age and to evict.
//!
//! It works like the live one (`thermocline_linux::demoter`): a node whose youngest generation is
//! older than the idle time is aged, and twice, the idle time apart, if that was long ago; then
//! pages are evicted that two agings found not accessed. Aging and demoting take their time, on a
//! CPU of its own. Where scopes are named, only their pages are evicted, as far as the demand
//! allows it of each; live, a cgroup's pages are aged apart as well, here a node's together.

use std::collections::{BTreeMap, VecDeque};

use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::demotion::{Allowances, LONG_AGO, Reach, Subtree, WAIT_MAX};
use thermocline_core::units::{Nanos, ScopeId};

use crate::kernel::generations::{Everybody, Generations, Whose};
use crate::machine::NodeIndex;
use crate::system::{NEVER, System};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Demoter {
    generations: Generations,
    /// The scope of each process; `None` where no scope is named.
    subtrees: Option<Vec<Option<Subtree>>>,
    /// Demands that wait.
    demands: VecDeque<Demand>,
    /// The one under way, when it is done, and the CPU time that it has taken.
    current: Option<(Nanos, Demand, f64)>,
}

impl Demoter {
    /// Creates an idle demoter of the memory within `reach`.
    pub fn new(system: &System, reach: &Reach) -> Demoter {
        let of = |name: &str| {
            let cgroup = format!("/{name}");
            reach.subtree_of(&cgroup).filter(|_| reach.covers(&cgroup)).cloned()
        };
        let subtrees = (*reach != Reach::default())
            .then(|| system.processes.iter().map(|process| of(&process.name)).collect());
        let generations = Generations::new(system);
        Demoter { generations, subtrees, demands: VecDeque::new(), current: None }
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
            let (pages, by_scope) = self.evict(system, node, &demand);
            let evicting_ns = system.machine.spec.cost.demote_ns * pages as f64;
            system.aside_ns += evicting_ns;
            ns += evicting_ns;
            Demoted { by_scope, ..demand.done(pages, Nanos(ns as u64)) }
        });
        self.start_next(system);
        done
    }

    fn evict(&mut self, system: &mut System, node: NodeIndex, demand: &Demand) -> (u64, Vec<(ScopeId, u64)>) {
        let (wanted, idle) = (demand.pages, demand.idle);
        let Some(subtrees) = &self.subtrees else {
            return (self.generations.evict(system, node, wanted, idle, &mut Everybody), Vec::new());
        };
        let mut of = OfScopes { subtrees, left: Allowances::of(demand), taken: BTreeMap::new() };
        let pages = self.generations.evict(system, node, wanted, idle, &mut of);
        (pages, of.taken.into_iter().collect())
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

/// The memory of scopes, as far as a demand allows.
struct OfScopes<'a> {
    subtrees: &'a [Option<Subtree>],
    left: Allowances,
    taken: BTreeMap<ScopeId, u64>,
}

impl Whose for OfScopes<'_> {
    fn left(&self, space: usize) -> u64 {
        self.subtrees.get(space).and_then(Option::as_ref).map_or(0, |subtree| self.left.left(Some(subtree)))
    }

    fn took(&mut self, space: usize, pages: u64) {
        if let Some(subtree) = self.subtrees.get(space).and_then(Option::as_ref) {
            self.left.take(subtree.scope, pages);
            *self.taken.entry(subtree.scope).or_default() += pages;
        }
    }
}
