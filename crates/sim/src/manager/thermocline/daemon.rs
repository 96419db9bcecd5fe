//! The daemon's side of the machine, between the kernel's models and the engine.

use thermocline_core::access::{Access, Evidence};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demotion::{Reach, reach};
use thermocline_core::limit::Reserve;
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;

use super::demoter::Demoter;
use super::hot_lists::HotLists;
use super::mover::Mover;
use super::regions::Watching;
use super::samples::Samples;
use super::scopes::Scopes;
use crate::machine::Machine;
use crate::spec::SpecError;
use crate::system::{NEVER, SampledAccess, System};

/// Maximum number of hint faults kept until the engine's next tick, like the live ring between
/// kernel and daemon, 4 MiB of 64-byte records by default. Faults that do not fit are delivered at
/// once: the simulated daemon is never too slow.
pub(super) const EVIDENCE_MAX: usize = 65_536;

/// The daemon's side of the machine: its observations, and the mover.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) evidence: Vec<Access>,
    /// The state of the nodes at the latest tick.
    pub(super) nodes: Vec<NodeState>,
    pub(super) mover: Mover,
    /// The demoter; `None` before the first demand, and if demotion is off.
    pub(super) demoter: Option<Demoter>,
    /// Whose memory is demoted; `None` if demotion is off.
    pub(super) demotes: Option<Reach>,
    /// How much of the scans' pace we can set.
    pub(super) pacing: Pacing,
    /// When the programs' CPU time is reported next.
    pub(super) programs_due: Nanos,
    pub(super) scopes: Scopes,
    pub(super) samples: Option<Samples>,
    pub(super) hot_lists: Option<HotLists>,
    pub(super) regions: Option<Watching>,
}

impl Daemon {
    /// # Errors
    /// The configuration asks for something that is not simulated.
    pub(super) fn new(config: &Config, machine: &Machine) -> Result<Daemon, SpecError> {
        Ok(Daemon {
            evidence: Vec::with_capacity(EVIDENCE_MAX),
            nodes: Vec::new(),
            mover: Mover::new(&machine.spec.cost, Reserve::new(&config.admission)),
            demoter: None,
            demotes: demotes(config),
            pacing: match config.kernel.numa_balancing_promote_rate_limit_mbps {
                Some(0) => Pacing::Renewals,
                _ => Pacing::Steps,
            },
            programs_due: Nanos(0),
            scopes: Scopes::new(config)?,
            samples: Samples::new(config, machine),
            hot_lists: HotLists::new(config)?,
            regions: Watching::new(config, machine)?,
        })
    }

    pub(super) fn show(&mut self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        observe(Evidence::Accesses { batch: &self.evidence, mappings: system });
        self.evidence.clear();
    }

    /// Keeps a piece of evidence until the engine's next tick.
    pub(super) fn push(&mut self, system: &mut System, access: Access) {
        system.aside_ns += system.machine.spec.cost.daemon_ns;
        self.evidence.push(access);
    }

    /// Accesses of a thread from one sample to the next, over all samplers.
    pub(super) fn sampled_every(&self) -> Option<f64> {
        let samples = self.samples.as_ref().map(Samples::accesses);
        let counts = self.hot_lists.as_ref().map(HotLists::accesses);
        match (samples, counts) {
            (Some(a), Some(b)) => Some(1.0 / (1.0 / a + 1.0 / b)),
            (one, other) => one.or(other),
        }
    }

    /// Handles a sampled access. Returns its cost for the thread in ns.
    pub(super) fn sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        let counted = match (&self.samples, &self.hot_lists) {
            // Both sample at random, so which of them took this sample is drawn.
            (Some(samples), Some(lists)) => {
                let (a, b) = (samples.accesses(), lists.accesses());
                system.random.chance(a / (a + b))
            }
            (_, lists) => lists.is_some(),
        };
        if counted {
            if let Some(lists) = &mut self.hot_lists {
                lists.count(system, sample);
            }
            return 0.0;
        }
        let Some(access) = self.samples.as_mut().and_then(|s| s.take(system, sample)) else { return 0.0 };
        self.push(system, access);
        system.machine.spec.cost.sample_ns
    }

    /// When something has to run in addition to the driver's ticks.
    pub(super) fn due(&self) -> Nanos {
        let demoted = self.demoter.as_ref().map_or(NEVER, Demoter::due);
        let lists = self.hot_lists.as_ref().map_or(NEVER, |lists| lists.due);
        let regions = self.regions.as_ref().map_or(NEVER, Watching::due);
        self.mover.done.min(demoted).min(lists).min(regions)
    }
}

/// Whose memory is demoted. Scopes' is where one is to give way: what they hold is part of what the
/// simulation is for then.
fn demotes(config: &Config) -> Option<Reach> {
    let asked = |scope: &Scope| scope.gives_way() || scope.top_tier_share_mib > 0;
    let gives_way = config.demotion.scope_rate_mbps > 0 && config.scope.iter().any(asked);
    reach(config).ok().filter(|reach| *reach == Reach::default() || gives_way)
}
