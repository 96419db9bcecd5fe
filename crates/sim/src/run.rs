//! One run of a scenario, and many.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use thermocline_core::units::Nanos;

use crate::counters::Broken;
use crate::machine::{NODES_MAX, NodeIndex};
use crate::manager::{Manager, ManagerName};
use crate::memory::{Memory, Page, Space};
use crate::mode::event::Event;
use crate::mode::exact::Exact;
use crate::mode::{Mode, ModeName};
use crate::operations::Operations;
use crate::random::{Random, Stream};
use crate::report::{NodeReport, ProcessReport, Report};
use crate::residence::Residence;
use crate::scenario::Setup;
use crate::spec::SpecError;
use crate::stalls::Stalls;
use crate::system::balance::Balance;
use crate::system::kswapd::Kswapd;
use crate::system::scan::{MmScan, TaskScan};
use crate::system::{Process, START, System, Thread};
use crate::workload::{Operation, Pattern, ProcessSpec, Visits};
use crate::world::World;

/// Why a run has no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario cannot be simulated.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// This machine has not enough memory for it.
    #[error("{0}; simulate less, or fewer runs at a time (RAYON_NUM_THREADS)")]
    Memory(#[from] thermocline_mem::ArenaError),
    /// A conservation law does not hold.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The manager's own sums do not balance.
    #[error("the books of {manager} do not balance: {message}; this is a defect, please report it")]
    Books {
        /// The manager.
        manager: String,
        /// The sum that does not balance.
        message: String,
    },
}

/// One run: which manager, in which mode, with which seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The manager.
    pub manager: ManagerName,
    /// The mode.
    pub mode: ModeName,
    /// The seed.
    pub seed: u64,
}

/// Up to this many pages exact mode is feasible; above, event mode is faster by orders of
/// magnitude.
const EXACT_PAGES_MAX: u64 = 1 << 14;

/// The default mode of a scenario.
pub fn mode_for(setup: &Setup) -> ModeName {
    if setup.pages() <= EXACT_PAGES_MAX { ModeName::Exact } else { ModeName::Event }
}

/// Runs every arm, on all cores, until `stop` is set; reports each finished run. The reports come
/// in the order of the arms, `None` for stopped ones.
///
/// # Errors
/// The first arm that failed.
pub fn run_each(
    setup: &Setup,
    arms: &[Arm],
    stop: &AtomicBool,
    done: &(dyn Fn(&Report) + Sync),
) -> Result<Vec<Option<Report>>, RunError> {
    let one = |arm: &Arm| match run_until(setup, *arm, stop) {
        Ok(report) => {
            if let Some(report) = &report {
                done(report);
            }
            Ok(report)
        }
        Err(error) => Err(error),
    };
    arms.par_iter().map(one).collect()
}

/// Runs every arm, on all cores; the reports come in the order of the arms and do not depend on the
/// number of cores.
pub fn run_all(setup: &Setup, arms: &[Arm]) -> Vec<Result<Report, RunError>> {
    arms.par_iter().map(|arm| run(setup, *arm)).collect()
}

/// Runs one arm.
///
/// # Errors
/// Memory does not suffice, on this machine or the simulated one; or a conservation law is broken.
pub fn run(setup: &Setup, arm: Arm) -> Result<Report, RunError> {
    run_with(setup, arm, arm.manager.build(&setup.machine, &setup.scenario.config)?)
}

/// Runs an arm with a custom manager in place of the one that it names.
///
/// # Errors
/// As [`run`].
pub fn run_with(setup: &Setup, arm: Arm, manager: Box<dyn Manager>) -> Result<Report, RunError> {
    let report = simulate(setup, arm, manager, &AtomicBool::new(false))?;
    Ok(report.expect("only the flag stops a run, and nobody has set it"))
}

/// Runs one arm unless `stop` is set before it is done.
///
/// # Errors
/// As [`run`].
pub fn run_until(setup: &Setup, arm: Arm, stop: &AtomicBool) -> Result<Option<Report>, RunError> {
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    simulate(setup, arm, arm.manager.build(&setup.machine, &setup.scenario.config)?, stop)
}

fn simulate(
    setup: &Setup,
    arm: Arm,
    manager: Box<dyn Manager>,
    stop: &AtomicBool,
) -> Result<Option<Report>, RunError> {
    let mut world = build(setup, arm, manager)?;
    let specs: Vec<&ProcessSpec> = setup.each_process().collect();
    world.start(&specs, setup.scenario.course_every.map(|every| every.0))?;
    let start = world.system.now;
    let end = start.plus(setup.scenario.limit.0);
    let mut mode: Box<dyn Mode> = match arm.mode {
        ModeName::Exact => Box::new(Exact::new(&mut world, arm.seed)),
        ModeName::Event => Box::new(Event::new(&mut world, arm.seed)),
    };
    while !world.system.finished() && world.system.now < end {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let until = world.next_due().min(end).max(world.system.now);
        mode.advance(&mut world, until);
        if world.system.now < end && world.next_due() <= world.system.now {
            world.run_due();
            mode.models_have_run(&mut world);
        }
    }
    report(setup, arm, world, start).map(Some)
}

fn build(setup: &Setup, arm: Arm, mut manager: Box<dyn Manager>) -> Result<World, RunError> {
    let machine = setup.machine.clone();
    let mut kernel = setup.scenario.kernel;
    manager.configure(&mut kernel);
    manager.check(&kernel, &machine)?;
    let (mut spaces, mut processes, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    let mut patterns: Vec<Box<dyn Pattern>> = Vec::new();
    let mut operations = Vec::new();
    for (i, spec) in setup.each_process().enumerate() {
        let pages = spec.footprint.pages() as Page;
        let pattern = spec.pattern.build(pages, spec.threads, "process")?;
        let (start, first_cell) =
            spaces.last().map_or((0, 0), |s: &Space| (s.end, s.first_cell + s.map.len()));
        spaces.push(Space {
            start,
            end: start + pages,
            layout: pattern.layout(),
            map: pattern.cells(),
            first_cell,
            huge: spec.huge_pages,
        });
        let first = threads.len() as u32;
        threads.extend((0..spec.threads).map(|_| Thread {
            process: i as u16,
            started: START,
            slept_ns: 0.0,
            finished: None,
            scan: TaskScan::default(),
            debt_ns: 0.0,
        }));
        let store_share = pattern.store_share().unwrap_or(spec.store_share);
        let cells = pattern.cells().len();
        let single = |number| Operation {
            kinds: vec![(1.0, vec![Visits::single(0..cells, number)])],
            popularity: None,
        };
        let operation = pattern.operation().or_else(|| spec.accesses_per_operation.map(single));
        let stalls = operation.is_some().then(Stalls::default);
        let in_flight = spec.in_flight.unwrap_or(spec.threads.into());
        let random = Random::new(arm.seed, Stream::Operations(i as u32));
        operations.push(operation.map(|o| Operations::new(o, in_flight, random)));
        processes.push(Process { stalls, ..process(spec, setup, first..threads.len() as u32, store_share) });
        patterns.push(pattern);
    }
    let lazy = arm.mode == ModeName::Event;
    let mut memory = Memory::new(&machine, spaces, lazy, Random::new(arm.seed, Stream::Accessed))?;
    if !kernel.demotion_enabled {
        memory.keep_no_lists();
    }
    let residence = Residence::new(&memory, START);
    let nodes = machine.nodes.len();
    let phases = (0..threads.len() as u32).map(|t| Random::new(arm.seed, Stream::Phases(t))).collect();
    let mut system = System {
        now: START,
        machine,
        kernel,
        memory,
        processes,
        threads,
        counters: Default::default(),
        random: Random::new(arm.seed, Stream::Models),
        kswapd: vec![Kswapd::default(); nodes],
        balance: vec![Balance::default(); nodes],
        served: vec![0.0; nodes],
        copied: vec![0; nodes],
        access_times_changed: 0,
        overhead_ns: 0.0,
        scan_ns: 0.0,
        aside_ns: 0.0,
        demoted: vec![0; setup.pages().div_ceil(64) as usize],
        course: Vec::new(),
        residence,
        top_then: 0,
    };
    system.set_access_times(&[]);
    system.processes.iter_mut().for_each(|p| p.idle_ns.clone_from(&p.access_ns));
    Ok(World::new(system, manager, patterns, phases, operations))
}

fn process(spec: &ProcessSpec, setup: &Setup, threads: std::ops::Range<u32>, store_share: f64) -> Process {
    let nodes = setup.machine.nodes.len();
    let (cache_hit, hit_ns) = setup.machine.spec.llc.map_or((0.0, 0.0), |llc| (spec.cache_hit, llc.hit_ns));
    let think = spec.think.map(|t| (t.time.0.0 as f64 / t.after as f64, !t.busy, t.after));
    let (think_ns, think_sleeps, think_after) = think.unwrap_or((0.0, false, 0));
    Process {
        name: spec.name.clone(),
        threads,
        node: spec.node.on(&setup.machine).unwrap_or(0),
        rss: 0,
        access_ns: vec![0.0; nodes],
        idle_ns: vec![0.0; nodes],
        fixed_ns: spec.compute_ns + cache_hit * spec.lines_per_access * hit_ns,
        miss_share: 1.0 - cache_hit,
        lines: spec.lines_per_access,
        store_share,
        think_ns,
        think_sleeps,
        think_after,
        background: spec.background,
        stalls: None,
        scan: MmScan::default(),
        passes: Vec::new(),
    }
}

fn report(setup: &Setup, arm: Arm, mut world: World, start: Nanos) -> Result<Report, RunError> {
    let notes = world
        .manager
        .finish(&world.system)
        .map_err(|message| RunError::Books { manager: arm.manager.text(), message })?;
    let oracle = world.demand.bounds(&world.system);
    world.note_operations(true);
    let times: Vec<_> = (0..world.system.processes.len()).map(|p| world.operation_times(p)).collect();
    let mut system = world.system;
    system.residence.note(&system.memory, system.now, true);
    system.counters.check(&system.state())?;
    let seconds = |at: Nanos| at.since(start).0 as f64 / 1e9;
    let end_of = |p: &Process| {
        let ends = p.threads.clone().map(|t| system.threads[t as usize].finished);
        ends.collect::<Option<Vec<Nanos>>>().and_then(|all| all.into_iter().max())
    };
    let finished = system.finished();
    let ends = system.processes.iter().filter(|p| !p.background).filter_map(&end_of);
    let end = if finished { ends.max().unwrap_or(system.now) } else { system.now };
    let ran = |t: &Thread| seconds(t.finished.unwrap_or(system.now)) - t.slept_ns / 1e9;
    let programs_s = system.threads.iter().map(ran).sum();
    let all: f64 = system.served.iter().sum();
    let top: f64 = system.served[..usize::from(system.machine.top)].iter().sum();
    let node = |(i, n): (usize, &crate::machine::SimNode)| NodeReport {
        node: n.id.0,
        tier: n.tier.0,
        used_pages: system.memory.nodes[i].used,
        accesses: system.served[i] as u64,
    };
    let process = |(i, p): (usize, &Process)| {
        let space = &system.memory.spaces[i];
        let mut pages = vec![0; system.machine.nodes.len()];
        for byte in system.memory.bytes(space.start..space.end) {
            if let Some(count) = pages.get_mut(usize::from(byte & crate::memory::flags::NODE)) {
                *count += 1;
            }
        }
        ProcessReport {
            name: p.name.clone(),
            pages,
            mean_pages: system.residence.mean(i, space.len()),
            time_s: end_of(p).map(seconds),
            operations: times[i].clone(),
            scan_passes: p.scan.passes,
            scan_period_ms: system.threads.get(p.threads.start as usize).map_or(0, |t| t.scan.period_ms),
        }
    };
    Ok(Report {
        scenario: setup.scenario.name.clone(),
        manager: arm.manager.text(),
        mode: arm.mode,
        seed: arm.seed,
        time_s: finished.then(|| seconds(end)),
        finished,
        populate_s: start.since(START).0 as f64 / 1e9,
        top_share: (all > 0.0).then(|| top / all),
        nodes: system.machine.nodes.iter().enumerate().map(node).collect(),
        processes: system.processes.iter().enumerate().map(process).collect(),
        counters: system.counters,
        overhead_s: system.overhead_ns / 1e9,
        scan_s: system.scan_ns / 1e9,
        aside_s: system.aside_ns / 1e9,
        programs_s,
        oracle: oracle.filter(|_| finished),
        course: system.course,
        notes,
    })
}

const _: () = assert!(NODES_MAX < NodeIndex::MAX as usize);
