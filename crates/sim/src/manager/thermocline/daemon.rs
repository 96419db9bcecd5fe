//! The daemon's side of the machine, between the kernel's models and the engine.

use thermocline_core::access::{Access, Evidence, Membership};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demotion::{Reach, reach};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::ScopeId;

use super::demoter::Demoter;
use super::mover::Mover;
use crate::machine::Machine;
use crate::system::{Process, System};

/// Hint faults that are kept until the engine's next tick; live it is the ring between kernel and
/// daemon, 4 MiB of 64-byte records by default. What does not fit is shown at once instead: the
/// simulated daemon is never too slow.
pub(super) const EVIDENCE_MAX: usize = 65_536;

/// The daemon's side of the machine: what it has seen, and what moves pages for it.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) evidence: Vec<Access>,
    /// The state of the nodes at the latest tick.
    pub(super) nodes: Vec<NodeState>,
    pub(super) mover: Mover,
    /// What demotes; none before the first demand, and where demotion is off.
    pub(super) demoter: Option<Demoter>,
    pub(super) demotes: bool,
    /// What of the scans' pace is ours to set.
    pub(super) pacing: Pacing,
    /// The engine knows whose the processes are.
    pub(super) scoped: bool,
    pub(super) scopes: Vec<Scope>,
}

impl Daemon {
    pub(super) fn new(config: &Config, machine: &Machine) -> Daemon {
        Daemon {
            evidence: Vec::with_capacity(EVIDENCE_MAX),
            nodes: Vec::new(),
            mover: Mover::new(&machine.spec.cost),
            demoter: None,
            // Scopes are processes here, which the live machine's reclaim cannot tell apart.
            demotes: reach(config) == Ok(Reach::default()),
            pacing: match config.kernel.numa_balancing_promote_rate_limit_mbps {
                Some(0) => Pacing::Renewals,
                _ => Pacing::Steps,
            },
            scoped: false,
            scopes: config.scope.clone(),
        }
    }

    pub(super) fn show(&mut self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        observe(Evidence::Accesses { batch: &self.evidence, mappings: system });
        self.evidence.clear();
    }

    /// Puts the processes into the configured scopes: the first that lists their number, or whose `command` is their name.
    pub(super) fn assign(&self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        for (i, process) in system.processes.iter().enumerate() {
            let pid = Process::pid(i);
            let is_of = |scope: &Scope| {
                scope.pids.contains(&pid.0) || scope.command.as_deref() == Some(process.name.as_str())
            };
            let all_others = || self.scopes.iter().all(|scope| scope.exclude);
            let membership = match self.scopes.iter().position(is_of) {
                Some(place) if self.scopes[place].exclude => Membership::Excluded,
                Some(place) => Membership::Managed(ScopeId::of_place(place)),
                None if all_others() => Membership::Managed(ScopeId::DEFAULT),
                None => Membership::Excluded,
            };
            observe(Evidence::Process { pid, membership });
        }
    }
}
