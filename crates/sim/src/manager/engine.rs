//! Thermocline as manager: core's engine, stepped by the driver that steps it live.
//!
//! The kernel is set as the configuration says: mode 2, its own promotion off by a rate limit of 0, smaller scans. Hint faults are
//! collected and shown to the engine at its next tick, with the nodes' states; batches go to a mover that works on one
//! after the other, and each outcome comes back when the batch is done. Where the target has plenty of room the kernel
//! promotes every page at its first fault all the same, as it does live. And as it is live, nothing here wakes kswapd: the
//! engine leaves its goal above the high watermark free, so that its moves never need to. Room is made by the engine's own demands,
//! which the kernel's generations of pages serve ([`super::demoter`]).

use std::collections::VecDeque;
use std::convert::Infallible;

use thermocline_core::access::{Access, Detail, Evidence, FaultLatency, Membership};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demand::Demand;
use thermocline_core::demotion::{Reach, reach};
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::machine::{Machine as Seam, Wishes};
use thermocline_core::moves::{Batch, BatchOutcome, Move, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::published::threshold::free_space_enough;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, PAGES_PER_MIB, ScopeId};

use super::demoter::Demoter;
use super::{Manager, Notes};
use crate::kernel::hint_fault::{HintFaults, Metric};
use crate::machine::Machine;
use crate::memory::MARK_SHIFT;
use crate::settings::KernelSettings;
use crate::spec::SpecError;
use crate::system::{Fault, NEVER, Process, System, Way};

/// Hint faults that are kept until the engine's next tick; live it is the ring between kernel and daemon, 4 MiB of 64-byte
/// records by default. What does not fit is shown at once instead: the simulated daemon is never too slow.
const EVIDENCE_MAX: usize = 65_536;

/// See the module's description.
#[derive(Debug)]
pub struct Thermocline {
    driver: Driver,
    config: Config,
    kernel: HintFaults,
    daemon: Daemon,
}

/// The daemon's side of the machine: what it has seen, and what moves pages for it.
#[derive(Debug)]
struct Daemon {
    evidence: Vec<Access>,
    /// The state of the nodes at the latest tick.
    nodes: Vec<NodeState>,
    /// Batches that the mover has, the first one in work.
    moving: VecDeque<Batch>,
    /// When the first one is done.
    done: Nanos,
    /// What demotes; none before the first demand, and where demotion is off.
    demoter: Option<Demoter>,
    demotes: bool,
    /// What of the scans' pace is ours to set.
    pacing: Pacing,
    /// The engine knows whose the processes are.
    scoped: bool,
    scopes: Vec<Scope>,
    mover_page_ns: f64,
    mover_batch_ns: f64,
}

/// The machine as the driver sees it during a step.
struct AtWork<'a> {
    daemon: &'a mut Daemon,
    system: &'a mut System,
}

impl Thermocline {
    /// An engine for this machine.
    ///
    /// # Errors
    /// The configuration does not suit the machine.
    pub fn new(config: &Config, machine: &Machine) -> Result<Thermocline, SpecError> {
        let engine = Engine::new(config, machine.topology.clone())
            .map_err(|e| SpecError::new("config", e.to_string(), "correct the value"))?;
        let cost = &machine.spec.cost;
        Ok(Thermocline {
            // What the daemon costs is not simulated.
            driver: Driver::new(engine, config).sparing_nothing(),
            config: config.clone(),
            kernel: HintFaults::new(Metric::Time, machine.spec.nr_cpus),
            daemon: Daemon {
                evidence: Vec::with_capacity(EVIDENCE_MAX),
                nodes: Vec::new(),
                moving: VecDeque::new(),
                done: NEVER,
                demoter: None,
                // Scopes are processes here, which the live machine's reclaim cannot tell apart.
                demotes: reach(config) == Ok(Reach::default()),
                pacing: match config.kernel.numa_balancing_promote_rate_limit_mbps {
                    Some(0) => Pacing::Renewals,
                    _ => Pacing::Steps,
                },
                scoped: false,
                scopes: config.scope.clone(),
                mover_page_ns: cost.mover_page_ns,
                mover_batch_ns: cost.mover_batch_ns,
            },
        })
    }

    fn show(&mut self, system: &System) {
        self.daemon.show(system, &mut |evidence| self.driver.observe(evidence));
    }
}

impl Daemon {
    fn show(&mut self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        observe(Evidence::Accesses { batch: &self.evidence, mappings: system });
        self.evidence.clear();
    }

    /// Puts the processes into the configured scopes: the first that lists their number, or whose `command` is their name.
    fn assign(&self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
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

    fn start_next(&mut self, now: Nanos) {
        self.done = self.moving.front().map_or(NEVER, |batch| {
            let ns = self.mover_batch_ns + self.mover_page_ns * batch.pages() as f64;
            now.plus(Nanos(ns as u64))
        });
    }

    fn finish_batch(&mut self, system: &mut System, observe: &mut dyn FnMut(Evidence<'_>)) {
        let Some(batch) = self.moving.pop_front() else { return };
        let outcomes = batch.moves.iter().map(|m| carry_out(system, &batch, m)).collect();
        observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: system.now, outcomes }));
        self.start_next(system.now);
    }
}

impl Seam for AtWork<'_> {
    type Error = Infallible;

    fn poll(
        &mut self,
        now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        let AtWork { daemon, system } = self;
        if now >= daemon.done {
            daemon.finish_batch(system, observe);
        }
        while let Some(done) = daemon.demoter.as_mut().and_then(|d| d.run(system)) {
            observe(Evidence::Demoted(&done));
        }
        if due {
            if !std::mem::replace(&mut daemon.scoped, true) {
                daemon.assign(system, observe);
            }
            daemon.show(system, observe);
            observe(Evidence::Scans(system.scans()));
        }
        Ok(())
    }

    fn nodes(&mut self, _observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let AtWork { daemon, system } = self;
        daemon.nodes.clear();
        daemon.nodes.extend((0..system.machine.nodes.len()).map(|n| system.node_state(n as u8)));
        daemon.nodes.sort_by_key(|s| s.node);
        Ok(&daemon.nodes)
    }

    fn pacing(&self) -> Pacing {
        self.daemon.pacing
    }

    fn wish(&mut self, wishes: Wishes) {
        if let Some(pace) = wishes.scans {
            self.system.kernel.follow(pace, self.daemon.pacing == Pacing::Renewals);
        }
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        let idle = self.daemon.moving.is_empty();
        self.daemon.moving.extend(batches);
        if idle {
            self.daemon.start_next(self.system.now);
        }
    }

    fn demotes(&self) -> bool {
        self.daemon.demotes
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        let demoter = self.daemon.demoter.get_or_insert_with(|| Demoter::new(self.system));
        for demand in demands {
            demoter.take(self.system, demand);
        }
    }
}

/// What becomes of one move.
fn carry_out(system: &mut System, batch: &Batch, wanted: &Move) -> Outcome {
    let Some(page) = system.page_at(wanted.page) else { return Outcome::Gone };
    let (Some(node), Some(to)) = (system.memory.node(page), system.machine.index(batch.target.0)) else {
        return Outcome::Gone;
    };
    if node == to {
        return Outcome::AlreadyThere;
    }
    if system.machine.nodes[usize::from(node)].id != wanted.from {
        return Outcome::OtherNode;
    }
    // The engine has left the target's high watermark and its goal free when it asked; somebody may have been faster.
    if system.memory.free(to) <= system.machine.nodes[usize::from(to)].watermarks.high_pages {
        return Outcome::NodeFull;
    }
    match system.move_page(page, to) {
        Way::Up => system.counters.engine_promoted += 1,
        Way::Down => system.counters.engine_demoted += 1,
        Way::Within => {}
    }
    Outcome::Moved
}

impl Manager for Thermocline {
    fn name(&self) -> String {
        format!("thermocline:{}", self.config.rule.name.text())
    }

    fn configure(&self, kernel: &mut KernelSettings) {
        let wanted = &self.config.kernel;
        let set = |key: &mut u64, value: Option<u32>| *key = value.map_or(*key, u64::from);
        set(&mut kernel.promote_rate_limit_mbps, wanted.numa_balancing_promote_rate_limit_mbps);
        // Memory is placed under a daemon that has found nothing on lower tiers so far.
        let nodes = &self.driver.engine().topology().nodes;
        let all_pages: u64 = nodes.iter().map(|node| node.capacity_pages).sum();
        set(&mut kernel.scan_size_mb, wanted.step_mb(0.0, all_pages as f64 / PAGES_PER_MIB as f64));
        set(&mut kernel.scan_period_min_ms, wanted.scan_period_min_ms);
        set(&mut kernel.scan_period_max_ms, wanted.scan_period_max_ms);
        set(&mut kernel.scan_delay_ms, wanted.scan_delay_ms);
        kernel.demotion_enabled =
            self.daemon.demotes || wanted.demotion_enabled.unwrap_or(kernel.demotion_enabled);
        kernel.restamp =
            self.driver.engine().rule().restamp().unwrap_or(self.config.source.hintfault.restamp);
    }

    fn scans(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        if self.daemon.evidence.len() == EVIDENCE_MAX {
            self.show(system);
        }
        let mm = &system.processes[fault.process].scan;
        let latency = FaultLatency {
            time: system.now.since(Nanos(u64::from(fault.marked) << MARK_SHIFT)),
            faults: fault.faults.wrapping_sub(mm.faults_at(fault.marked)),
        };
        self.daemon.evidence.push(Access {
            time: system.now,
            pfn: Some(system.pfn(fault.page)),
            page: Some(system.virt(fault.page)),
            order: 0,
            node: system.machine.nodes[usize::from(fault.node)].id,
            accessor: Some(system.machine.nodes[usize::from(fault.cpu_node)].id),
            detail: Detail::HintFault { latency: Some(latency) },
        });
        // With a limit of 0 the kernel refuses whatever it would consider; only plenty of room lets pages through.
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
        let demoted = self.daemon.demoter.as_ref().map_or(NEVER, Demoter::due);
        self.driver.next_due().min(self.daemon.done).min(demoted)
    }

    fn run(&mut self, system: &mut System) {
        let now = system.now;
        let Ok(_) = self.driver.step(now, &mut AtWork { daemon: &mut self.daemon, system });
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
        Ok(Notes { figures: counters.chain(gauges).collect(), ..Notes::default() })
    }
}
