//! The world: the system, the models that run in it, the manager, and the programs' patterns.

use thermocline_core::units::Nanos;

use crate::course::Recorder;
use crate::kernel::{Model, reclaim, reclaim::Reclaim, scanner::Scanner, scanner::TaskScan};
use crate::machine::{Bandwidth, NodeIndex};
use crate::manager::Manager;
use crate::memory::{Page, flags};
use crate::oracle::Demand;
use crate::random::Random;
use crate::spec::SpecError;
use crate::system::{Fault, NEVER, SampledAccess, System};
use crate::traffic::Traffic;
use crate::workload::{Pattern, Phase, Place, ProcessSpec};

/// See the module's description.
#[derive(Debug)]
pub struct World {
    /// What models and managers work on.
    pub system: System,
    /// Who decides.
    pub manager: Box<dyn Manager>,
    /// What the threads have asked for.
    pub(crate) demand: Demand,
    models: Vec<Box<dyn Model>>,
    /// What each process does.
    patterns: Vec<Box<dyn Pattern>>,
    /// What each thread draws its phases with.
    phases: Vec<Random>,
}

impl World {
    /// A world before its programs have started.
    pub(crate) fn new(
        system: System,
        manager: Box<dyn Manager>,
        patterns: Vec<Box<dyn Pattern>>,
        phases: Vec<Random>,
    ) -> World {
        let demand = Demand::new(&system.machine, &system.memory.spaces, system.threads.len());
        World { system, manager, demand, models: Vec::new(), patterns, phases }
    }

    /// Places the memory of all processes, one after the other, and starts their threads. Where `course_every` is given, what is
    /// promoted is noted so often.
    ///
    /// # Errors
    /// Memory does not suffice.
    pub(crate) fn start(
        &mut self,
        specs: &[&ProcessSpec],
        course_every: Option<Nanos>,
    ) -> Result<(), SpecError> {
        let reclaim = Reclaim { tiering: self.manager.tiering() };
        let begin = self.system.now;
        let mut populated = Vec::new();
        for (process, spec) in specs.iter().enumerate() {
            let start = self.system.now;
            let mut populate = Populate::new(&self.system, process, spec);
            populate.run(&mut self.system, reclaim)?;
            let delay = Nanos::from_ms(self.system.kernel.scan_delay_ms);
            let rss = self.system.processes[process].rss;
            let rss_then = if spec.populate_page_ns > 0.0 {
                ((delay.0 as f64 / spec.populate_page_ns) as u64).min(rss)
            } else {
                rss
            };
            populated.push((start, rss_then));
        }
        let system = &mut self.system;
        for (process, (start, rss_then)) in populated.into_iter().enumerate() {
            let threads = system.processes[process].threads.clone();
            let alone = threads.len() == 1;
            for thread in threads {
                let thread = &mut system.threads[thread as usize];
                thread.started = start;
                let cpu = thread.cpu(system.now);
                thread.scan = if alone {
                    TaskScan::forked(&system.kernel, cpu, rss_then)
                } else {
                    TaskScan::thread(&system.kernel, cpu)
                };
            }
            system.processes[process].scan.next = start.plus(Nanos::from_ms(system.kernel.scan_delay_ms));
        }
        system.top_then =
            system.top_pages() + system.counters.pgdemote_kswapd + system.counters.pgdemote_direct;
        self.models.push(Box::new(reclaim));
        if self.manager.scans() {
            self.models.push(Box::new(Scanner::new(self.system.machine.spec.hz)));
        }
        if let Some(traffic) = Traffic::new(&self.system) {
            self.models.push(Box::new(traffic));
        }
        if let Some(every) = course_every {
            let gone = self.system.now.since(begin).0;
            let due = begin.plus(Nanos(gone.next_multiple_of(every.0.max(1))));
            self.models.push(Box::new(Recorder { every, due, start: begin }));
        }
        let more = self.manager.models(&self.system);
        self.models.extend(more);
        Ok(())
    }

    /// When the next model or the manager wants to run.
    pub fn next_due(&self) -> Nanos {
        let models = self.models.iter().map(|m| m.due(&self.system)).min().unwrap_or(NEVER);
        models.min(self.manager.due())
    }

    /// Runs whoever is due.
    pub fn run_due(&mut self) {
        for model in &mut self.models {
            if model.due(&self.system) <= self.system.now {
                model.run(&mut self.system);
            }
        }
        if self.manager.due() <= self.system.now {
            self.manager.run(&mut self.system);
        }
    }

    /// A thread touches a marked page at `system.now`. Returns what that costs it in ns, without the access itself.
    pub fn fault(&mut self, thread: u32, page: Page) -> f64 {
        let system = &mut self.system;
        let process = usize::from(system.threads[thread as usize].process);
        let node = system.memory.flags(page) & flags::NODE;
        let cpu_node = system.processes[process].node;
        let mm = &mut system.processes[process].scan;
        mm.faults = mm.faults.wrapping_add(1);
        let faults = mm.faults;
        let marked = system.memory.unmark(page);
        system.counters.numa_hint_faults += 1;
        system.counters.numa_hint_faults_local += u64::from(node == cpu_node);
        let fault = Fault { thread, process, page, node, cpu_node, marked, faults };
        let cost = system.machine.spec.cost.hint_fault_ns + self.manager.on_fault(system, &fault);
        system.memory.touch(page);
        system.overhead_ns += cost;
        cost
    }

    /// Accesses of a thread from one sample to the next, if it is sampled; hardware counts lines.
    pub fn sampling(&self, thread: u32) -> Option<f64> {
        let sampling = self.manager.sampling(thread)?;
        let process = usize::from(self.system.threads[thread as usize].process);
        Some((sampling.accesses / self.system.processes[process].lines).max(1.0))
    }

    /// A thread's access is sampled at `system.now`. Returns what that costs it in ns.
    pub fn sample(&mut self, thread: u32, page: Page) -> f64 {
        let system = &mut self.system;
        let process = usize::from(system.threads[thread as usize].process);
        let of = &system.processes[process];
        let (cpu_node, store_share, miss_share) = (of.node, of.store_share, of.miss_share);
        if !system.random.chance(miss_share) {
            return 0.0;
        }
        let store = system.random.chance(store_share);
        let sample = SampledAccess { thread, process, page, cpu_node, store };
        let cost = self.manager.on_sample(system, &sample);
        system.overhead_ns += cost;
        cost
    }

    /// The next phase of a thread; `None` when it is done, which is noted.
    pub fn next_phase(&mut self, thread: u32) -> Option<Phase> {
        let of = &mut self.system.threads[thread as usize];
        let process = usize::from(of.process);
        let first = self.system.processes[process].threads.start;
        let phase = self.patterns[process].next_phase(thread - first, &mut self.phases[thread as usize]);
        match &phase {
            Some(phase) if !self.system.processes[process].background => {
                let map = &self.system.memory.spaces[process].map;
                self.demand.add(map, process, thread, phase);
            }
            Some(_) => {}
            None => of.finished = Some(self.system.now),
        }
        phase
    }
}

/// The allocation of a process's memory at its start, in one system call: no scan comes between.
struct Populate<'a> {
    process: usize,
    places: Vec<(NodeIndex, u64)>,
    spec: &'a ProcessSpec,
    page: Page,
    end: Page,
    /// Time that is not yet a whole nanosecond.
    spent_ns: f64,
}

impl<'a> Populate<'a> {
    fn new(system: &System, process: usize, spec: &'a ProcessSpec) -> Populate<'a> {
        let space = &system.memory.spaces[process];
        let place = |p: &Place| {
            let node = system.machine.index(p.node).unwrap_or(0);
            (node, p.size.map_or(u64::MAX, |size| size.pages()))
        };
        Populate {
            process,
            places: spec.place.iter().map(place).collect(),
            spec,
            page: space.start,
            end: space.end,
            spent_ns: 0.0,
        }
    }

    fn run(&mut self, system: &mut System, mut reclaim: Reclaim) -> Result<(), SpecError> {
        while self.page < self.end {
            let node = self.choose(system)?;
            system.memory.allocate(self.page, node);
            self.page += 1;
            self.spent_ns += self.spec.populate_page_ns;
            if self.spent_ns >= 1000.0 {
                let whole = self.spent_ns.floor();
                system.now = system.now.plus(Nanos(whole as u64));
                self.spent_ns -= whole;
                while reclaim.due(system) <= system.now {
                    reclaim.run(system);
                }
            }
        }
        system.processes[self.process].rss = u64::from(system.memory.spaces[self.process].len());
        Ok(())
    }

    /// The node that the next page comes from: the first that has room above its low watermark; else above its min.
    fn choose(&mut self, system: &mut System) -> Result<NodeIndex, SpecError> {
        for attempt in 0..3 {
            for (node, left) in &mut self.places {
                let marks = system.machine.nodes[usize::from(*node)].watermarks;
                let floor = if attempt == 0 { marks.low_pages } else { marks.min_pages };
                if *left == 0 {
                    continue;
                }
                if system.memory.free(*node) > floor {
                    *left -= 1;
                    return Ok(*node);
                }
                if attempt == 0 && self.spec.populate_page_ns > 0.0 {
                    reclaim::wake(system, *node);
                }
            }
            if attempt == 1 {
                let node = self.places.first().map_or(0, |p| p.0);
                self.spent_ns += reclaim::direct(system, node);
            }
        }
        let name = &self.spec.name;
        Err(SpecError::new(
            format!("process {name}"),
            format!("its footprint of {} finds no room on the nodes of its place", self.spec.footprint),
            "make it smaller, or name more nodes",
        ))
    }
}

/// Access times of a process's threads on each node, given how loaded the nodes are.
pub(crate) fn set_access_times(system: &mut System, loads: &[Option<Bandwidth>]) {
    for process in &mut system.processes {
        for (i, node) in system.machine.nodes.iter().enumerate() {
            let from = usize::from(process.node);
            let memory =
                (1.0 - process.store_share) * node.read_ns[from] + process.store_share * node.write_ns[from];
            let load = loads.get(i).copied().flatten().map_or(1.0, |b| b.factor());
            process.access_ns[i] = process.fixed_ns + process.miss_share * process.lines * memory * load;
        }
    }
    system.access_times_changed += 1;
}
