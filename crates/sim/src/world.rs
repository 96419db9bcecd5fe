//! The world: the system, the models that run in it, the manager, and the programs' patterns.

use thermocline_core::units::Nanos;

use crate::course::Recorder;
use crate::kernel::{Model, cgroup::Cgroup, reclaim::Reclaim, scanner::Scanner};
use crate::machine::HUGE_SHARE;
use crate::manager::Manager;
use crate::memory::{Page, flags};
use crate::operations::{OperationTimes, Operations};
use crate::oracle::Demand;
use crate::populate::Populate;
use crate::random::Random;
use crate::residence::Residence;
use crate::spec::SpecError;
use crate::system::scan::TaskScan;
use crate::system::{Fault, NEVER, SampledAccess, System};
use crate::traffic::Traffic;
use crate::workload::{Pattern, Phase, ProcessSpec};

/// See the module's description.
#[derive(Debug)]
pub struct World {
    /// The state that models and managers work on.
    pub system: System,
    /// The manager.
    pub manager: Box<dyn Manager>,
    /// The accesses that the threads have made.
    pub(crate) demand: Demand,
    models: Vec<Box<dyn Model>>,
    /// The pattern of each process.
    patterns: Vec<Box<dyn Pattern>>,
    /// The random numbers for each thread's phases.
    phases: Vec<Random>,
    /// The times of each process's operations, where it has some.
    operations: Vec<Option<Operations>>,
}

impl World {
    /// A world before its programs have started.
    pub(crate) fn new(
        system: System,
        manager: Box<dyn Manager>,
        patterns: Vec<Box<dyn Pattern>>,
        phases: Vec<Random>,
        operations: Vec<Option<Operations>>,
    ) -> World {
        let demand = Demand::new(&system.machine, &system.memory.spaces, system.threads.len());
        World { system, manager, demand, models: Vec::new(), patterns, phases, operations }
    }

    /// Places the memory of all processes, one after the other, and starts their threads. If
    /// `course_every` is given, promotions are recorded at that interval.
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
        let mut first = 0;
        while first < specs.len() {
            let together = specs[first + 1..].iter().take_while(|s| s.together).count();
            let group = first..first + 1 + together;
            let start = self.system.now;
            let mut populate = Populate::new(&self.system, group.clone(), specs);
            populate.run(&mut self.system, reclaim, self.manager.as_mut())?;
            let delay = Nanos::from_ms(self.system.kernel.scan_delay_ms);
            for process in group.clone() {
                let rss = self.system.processes[process].rss;
                let page_ns = specs[process].populate_page_ns;
                let rss_then = if page_ns > 0.0 { ((delay.0 as f64 / page_ns) as u64).min(rss) } else { rss };
                populated.push((start, rss_then));
            }
            first = group.end;
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
        system.residence = Residence::new(&system.memory, system.now);
        self.operations.iter_mut().flatten().for_each(|operations| operations.start(system.now));
        system.aside_ns = 0.0;
        system.top_then = system.top_pages() + system.counters.demoted() - system.counters.promoted();
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
        for (process, spec) in specs.iter().enumerate() {
            if let Some(reclaim) = spec.reclaim {
                let (every, pages) = (reclaim.every.0, reclaim.size.pages());
                self.models.push(Box::new(Cgroup::new(process, every, pages, self.system.now)));
            }
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

    /// Runs the models, and the manager, that are due.
    pub fn run_due(&mut self) {
        self.system.residence.note(&self.system.memory, self.system.now, false);
        self.note_operations(false);
        for model in &mut self.models {
            if model.due(&self.system) <= self.system.now {
                model.run(&mut self.system);
            }
        }
        if self.manager.due() <= self.system.now {
            self.manager.run(&mut self.system);
        }
        self.system.charge_accessed_bits();
    }

    /// Tries operations for the time since the last call, if that is long enough or the run is
    /// over.
    pub(crate) fn note_operations(&mut self, over: bool) {
        for (process, operations) in self.operations.iter_mut().enumerate() {
            if let Some(operations) = operations {
                operations.note(&mut self.system, process, over);
            }
        }
    }

    /// The times of a process's operations.
    pub(crate) fn operation_times(&self, process: usize) -> Option<OperationTimes> {
        self.operations[process].as_ref()?.times()
    }

    /// A thread touches a marked page at `system.now`. Returns the cost in ns, without the access
    /// itself.
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
        let mut cost = system.machine.spec.cost.hint_fault_ns + self.manager.on_fault(system, &fault);
        if system.memory.spaces[process].huge {
            cost += HUGE_SHARE * self.fault_rest(&fault);
        }
        let system = &mut self.system;
        if let Some(stalls) = &mut system.processes[process].stalls {
            stalls.short.note(cost);
        }
        system.memory.touch_by_fault(page);
        system.overhead_ns += cost;
        cost
    }

    /// The rest of the huge page of a fault: one mark, one fault, the same decision for each page.
    /// Returns the cost in ns that handling page by page would have.
    fn fault_rest(&mut self, fault: &Fault) -> f64 {
        let system = &mut self.system;
        let mut cost = 0.0;
        for page in system.memory.spaces[fault.process].block(fault.page) {
            if system.memory.is_marked(page) && system.memory.node(page) == Some(fault.node) {
                let marked = system.memory.unmark(page);
                system.counters.handled_ahead += 1;
                cost += self.manager.on_fault(system, &Fault { page, marked, ..*fault });
            }
        }
        cost
    }

    /// Accesses of a thread from one sample to the next, if it is sampled; hardware counts lines.
    pub fn sampling(&self, thread: u32) -> Option<f64> {
        let sampling = self.manager.sampling(thread)?;
        let process = usize::from(self.system.threads[thread as usize].process);
        Some((sampling.accesses / self.system.processes[process].lines).max(1.0))
    }

    /// A thread's access is sampled at `system.now`. Returns the cost in ns.
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
        if let Some(stalls) = &mut system.processes[process].stalls {
            stalls.short.note(cost);
        }
        system.overhead_ns += cost;
        cost
    }

    /// The next phase of a thread; `None` when it is done, and records that.
    pub fn next_phase(&mut self, thread: u32) -> Option<Phase> {
        let of = &mut self.system.threads[thread as usize];
        let process = usize::from(of.process);
        let first = self.system.processes[process].threads.start;
        let phase = self.patterns[process].next_phase(thread - first, &mut self.phases[thread as usize]);
        if let (Some(operations), Some(phase)) = (&mut self.operations[process], &phase) {
            operations.enter(phase);
        }
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
