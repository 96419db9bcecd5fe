//! Thermocline as manager: core's engine, run by the same driver as live.
//!
//! The kernel is set as configured: mode 2, its own promotion disabled by a rate limit of 0, and
//! smaller scans. Hint faults are collected and passed to the engine at its next tick, with the
//! states of the nodes. The same is done with hardware samples ([`samples`]), hot lists
//! ([`hot_lists`]) and DAMON's regions ([`regions`]) if the configuration enables them, in the same
//! sections as live. Holdings and memory pressure of scopes are reported as well ([`scopes`]).
//! Batches go to a mover that processes them one by one, and each outcome is returned when the
//! batch is done. As on a live machine, the kernel promotes every page at its first fault while the
//! target has plenty of room, and nothing here wakes kswapd: the engine leaves its goal above the
//! high watermark free, so its moves do not need kswapd. The engine's own demands make room,
//! through MGLRU's generations ([`demoter`]).

mod daemon;
mod demoter;
mod hot_lists;
mod machine;
mod mover;
mod regions;
mod samples;
mod scopes;

use std::convert::Infallible;

use thermocline_core::access::{Access, Detail, Evidence, FaultLatency};
use thermocline_core::config::{Config, RuleChoice};
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::machine as core_machine;
use thermocline_core::published::threshold::free_space_enough;
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use super::{Manager, Notes, Sampling};
use crate::kernel::hint_fault::{HintFaults, Metric};
use crate::machine::Machine;
use crate::memory::MARK_SHIFT;
use crate::settings::KernelSettings;
use crate::spec::SpecError;
use crate::system::{Fault, SampledAccess, System};
use daemon::{Daemon, EVIDENCE_MAX};
use machine::AtWork;

/// See the module's description.
#[derive(Debug)]
pub struct Thermocline {
    choice: RuleChoice,
    driver: Driver,
    config: Config,
    kernel: HintFaults,
    daemon: Daemon,
    steps: Steps,
}

/// Runs the driver. A recorder or a test may put its own machine between the driver and the
/// simulated one.
pub struct Steps {
    /// Runs a step.
    pub step: Box<Step>,
    /// Shows evidence between two steps.
    pub observe: Box<Observe>,
}

/// Runs one step of the driver on a machine.
pub type Step = dyn FnMut(&mut Driver, Nanos, &mut dyn core_machine::Machine<Error = Infallible>);
/// Shows evidence to the driver between two steps.
pub type Observe = dyn FnMut(&mut Driver, Evidence<'_>);

impl Steps {
    /// Steps run by `step`. Evidence between them goes to the driver as it is.
    pub fn new(step: Box<Step>) -> Steps {
        Steps { step, observe: Box::new(|driver, evidence| driver.observe(evidence)) }
    }
}

impl Default for Steps {
    fn default() -> Steps {
        Steps::new(Box::new(|driver, now, machine| {
            let Ok(_) = driver.step(now, machine);
        }))
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steps")
    }
}

impl Thermocline {
    /// An engine for this machine with this rule ([`Config::choose`]).
    ///
    /// # Errors
    /// The configuration does not suit the machine, or needs something that is not simulated.
    pub fn new(choice: RuleChoice, config: &Config, machine: &Machine) -> Result<Thermocline, SpecError> {
        let mut config = config.clone();
        config.choose(choice);
        let config = &config;
        let engine = Engine::new(config, machine.topology.clone())
            .map_err(|e| SpecError::new("config", e.to_string(), "correct the value"))?;
        Ok(Thermocline {
            choice,
            // The daemon's own cost is not simulated.
            driver: Driver::new(engine, config).sparing_nothing(),
            config: config.clone(),
            kernel: HintFaults::new(Metric::Time, machine.spec.nr_cpus),
            daemon: Daemon::new(config, machine)?,
            steps: Steps::default(),
        })
    }

    /// Replaces the steps. If there is no room for more evidence between two steps, the evidence so
    /// far is shown to the engine by [`Steps::observe`].
    pub fn stepped(self, steps: Steps) -> Thermocline {
        Thermocline { steps, ..self }
    }

    fn show(&mut self, system: &System) {
        let Thermocline { daemon, driver, steps, .. } = self;
        daemon.show(system, &mut |evidence| (steps.observe)(driver, evidence));
    }
}

impl Manager for Thermocline {
    fn name(&self) -> String {
        format!("thermocline:{}", self.choice.text())
    }

    fn configure(&mut self, kernel: &mut KernelSettings) {
        let wanted = &self.config.kernel;
        let set = |key: &mut u64, value: Option<u32>| *key = value.map_or(*key, u64::from);
        set(&mut kernel.promote_rate_limit_mbps, wanted.numa_balancing_promote_rate_limit_mbps);
        // Memory is allocated before the daemon has found anything on lower tiers.
        let nodes = &self.driver.engine().topology().nodes;
        let all_pages: u64 = nodes.iter().map(|node| node.capacity_pages).sum();
        set(&mut kernel.scan_size_mb, wanted.step_mb(0.0, all_pages as f64 / PAGES_PER_MIB as f64));
        set(&mut kernel.scan_period_min_ms, wanted.scan_period_min_ms);
        set(&mut kernel.scan_period_max_ms, wanted.scan_period_max_ms);
        set(&mut kernel.scan_delay_ms, wanted.scan_delay_ms);
        kernel.demotion_enabled =
            self.daemon.demotes.is_some() || wanted.demotion_enabled.unwrap_or(kernel.demotion_enabled);
        kernel.restamp =
            self.driver.engine().rule().restamp().unwrap_or(self.config.source.hintfault.restamp);
    }

    fn scans(&self) -> bool {
        self.config.source.hintfault.enabled
    }

    fn tiering(&self) -> bool {
        true
    }

    fn sampling(&self, _thread: u32) -> Option<Sampling> {
        self.daemon.sampled_every().map(|accesses| Sampling { accesses })
    }

    fn on_sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        if self.daemon.evidence.len() == EVIDENCE_MAX {
            self.show(system);
        }
        self.daemon.sample(system, sample)
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        if self.daemon.evidence.len() == EVIDENCE_MAX {
            self.show(system);
        }
        let mm = &mut system.processes[fault.process].scan;
        let latency = FaultLatency {
            time: system.now.since(Nanos(u64::from(fault.marked) << MARK_SHIFT)),
            faults: fault.faults.wrapping_sub(mm.faults_at(fault.marked)),
        };
        let access = Access {
            time: system.now,
            pfn: Some(system.pfn(fault.page)),
            page: Some(system.virt(fault.page)),
            order: 0,
            node: system.machine.nodes[usize::from(fault.node)].id,
            accessor: Some(system.machine.nodes[usize::from(fault.cpu_node)].id),
            detail: Detail::HintFault { latency: Some(latency) },
        };
        self.daemon.push(system, access);
        // With a limit of 0 the kernel refuses every candidate. It promotes only pages for which
        // there is plenty of room.
        let kernel_decides = system.kernel.promote_rate_limit_mbps > 0
            || !system.machine.is_kernel_lower(fault.node)
            || free_space_enough(&system.node_state(fault.cpu_node));
        if kernel_decides {
            return self.kernel.fault(system, fault);
        }
        system.counters.left_to_engine += 1;
        0.0
    }

    fn due(&self) -> Nanos {
        self.driver.next_due().min(self.daemon.due())
    }

    fn run(&mut self, system: &mut System) {
        let now = system.now;
        let mut machine = AtWork { daemon: &mut self.daemon, system };
        (self.steps.step)(&mut self.driver, now, &mut machine);
    }

    fn finish(&mut self, system: &System) -> Result<Notes, String> {
        self.show(system);
        let engine = self.driver.engine();
        engine.check_balance()?;
        let counters = engine.counters().samples().into_iter().filter(|s| s.value > 0).map(|s| {
            let name = s.label.map_or(s.name.to_owned(), |l| format!("{}.{l}", s.name));
            (name, s.value)
        });
        let gauges = engine.rule().gauges().into_iter().map(|g| {
            let name = g.node.map_or(g.name.to_owned(), |n| format!("{}.node{}", g.name, n.0));
            (name, g.value)
        });
        let kdamonds = self.daemon.regions.as_ref();
        let watched = kdamonds.map(|r| ("kdamond_ms".to_owned(), (r.spent_ns() / 1e6) as u64));
        Ok(Notes { figures: counters.chain(gauges).chain(watched).collect(), ..Notes::default() })
    }
}
