//! The running system: the state that kernel models and managers see and change, the same under
//! both modes.
//!
//! A model may read and move pages through [`System::memory`] and the methods here, wake kswapd,
//! charge time to a thread, and count. It never sees an access, only hint faults, accessed bits
//! (drawn when they are read, in event mode) and samples.

pub mod balance;
pub mod kswapd;
pub mod scan;

use thermocline_core::access::{Mappings, Marked, Programs, Scans};
use thermocline_core::pace::followed;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, PAGES_PER_MIB, Pfn, Pid, VirtPage};

use crate::counters::{Counters, Course, State};
use crate::machine::{Bandwidth, Machine, NODES_MAX, NodeIndex};
use crate::memory::{MARK_SHIFT, Memory, Page};
use crate::random::Random;
use crate::residence::Residence;
use crate::settings::KernelSettings;
use crate::stalls::Stalls;
use balance::Balance;
use kswapd::Kswapd;
use scan::{MmScan, TaskScan};

/// The time at which a run begins: machines have usually been up for a while, so the kernel's
/// once-a-minute activities are overdue.
pub const START: Nanos = Nanos::from_s(1000);
/// Never.
pub const NEVER: Nanos = Nanos(u64::MAX);
/// The first page of a process has this virtual page number.
const VPN_BASE: u64 = 1 << 20;

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// Its threads, by their numbers among all.
    pub threads: std::ops::Range<u32>,
    /// The node whose CPUs it runs on.
    pub node: NodeIndex,
    /// Pages that it has touched so far.
    pub rss: u64,
    /// Time of an access to a page of each node in ns, without pauses.
    pub access_ns: Vec<f64>,
    /// The same on idle nodes.
    pub idle_ns: Vec<f64>,
    /// Part of it that does not depend on the node.
    pub fixed_ns: f64,
    /// Share of the accesses that go to memory and not to the cache.
    pub miss_share: f64,
    /// Cache lines that an access touches.
    pub lines: f64,
    /// Share of the accesses that are stores.
    pub store_share: f64,
    /// Pauses in ns per access, and whether the thread sleeps in them.
    pub think_ns: f64,
    /// See `think_ns`.
    pub think_sleeps: bool,
    /// Accesses from one pause to the next; 0 without pauses.
    pub think_after: u64,
    /// The run can end without it.
    pub background: bool,
    /// What has stalled its threads lately, if it has operations.
    pub stalls: Option<Stalls>,
    /// The scanner's state.
    pub scan: MmScan,
    /// End of each pass over all its memory.
    pub passes: Vec<Nanos>,
}

impl Process {
    /// Its number.
    pub fn pid(index: usize) -> Pid {
        Pid(index as u32 + 1)
    }
}

/// A thread.
#[derive(Debug)]
pub struct Thread {
    /// Its process.
    pub process: u16,
    /// When its process began.
    pub started: Nanos,
    /// Time that it has slept, in ns.
    pub slept_ns: f64,
    /// When it was done.
    pub finished: Option<Nanos>,
    /// The scanner's state of it.
    pub scan: TaskScan,
    /// Time charged to it other than by its own faults, in ns; the mode makes it pass.
    pub debt_ns: f64,
}

impl Thread {
    /// CPU time so far: a thread that does not sleep runs.
    pub fn cpu(&self, now: Nanos) -> Nanos {
        Nanos(now.since(self.started).0.saturating_sub(self.slept_ns as u64))
    }
}

/// A hint fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The thread that faults.
    pub thread: u32,
    /// Its process.
    pub process: usize,
    /// The page.
    pub page: Page,
    /// The node of the page.
    pub node: NodeIndex,
    /// The node of the CPU.
    pub cpu_node: NodeIndex,
    /// When the page was marked, in units of 2^[`crate::memory::MARK_SHIFT`] ns.
    pub marked: u32,
    /// Hint faults of the process so far, including this one.
    pub faults: u32,
}

impl Fault {
    /// When the page was marked, to the unit of marks.
    pub fn marked_at(&self) -> Nanos {
        Nanos(u64::from(self.marked) << MARK_SHIFT)
    }
}

/// Whether a move has crossed the border of the kernel's top tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Into it.
    Up,
    /// Out of it.
    Down,
    /// Neither.
    Within,
}

/// A sampled access.
#[derive(Clone, Copy, Debug)]
pub struct SampledAccess {
    /// The thread.
    pub thread: u32,
    /// Its process.
    pub process: usize,
    /// The page.
    pub page: Page,
    /// The node of the CPU.
    pub cpu_node: NodeIndex,
    /// Whether it is a store.
    pub store: bool,
}

/// See the module's description.
#[derive(Debug)]
pub struct System {
    /// The time.
    pub now: Nanos,
    /// The machine.
    pub machine: Machine,
    /// The kernel's settings.
    pub kernel: KernelSettings,
    /// The pages.
    pub memory: Memory,
    /// The processes.
    pub processes: Vec<Process>,
    /// The threads of all processes.
    pub threads: Vec<Thread>,
    /// The counters.
    pub counters: Counters,
    /// Random numbers of the models.
    pub random: Random,
    /// kswapd, by node.
    pub kswapd: Vec<Kswapd>,
    /// The state of the kernel's promotion for each target node.
    pub balance: Vec<Balance>,
    /// Accesses to pages of each node.
    pub served: Vec<f64>,
    /// Pages copied to or from each node, for its bandwidth.
    pub copied: Vec<u64>,
    /// Incremented when access times change.
    pub access_times_changed: u64,
    /// CPU time that programs spent on faults, samples, scans and accessed bits, in ns.
    pub overhead_ns: f64,
    /// The part of it that scans took, in ns.
    pub scan_ns: f64,
    /// CPU time of kernel threads and of the daemon, on CPUs of their own: looking at memory,
    /// deciding, moving. In ns since the start of the threads.
    pub aside_ns: f64,
    /// Pages that have been demoted, one bit each.
    pub demoted: Vec<u64>,
    /// The progress over time.
    pub course: Vec<Course>,
    /// Mean placement of pages since the initial placement.
    pub residence: Residence,
    /// Top-tier pages after the initial placement.
    pub top_then: u64,
}

impl System {
    /// CPU time that the threads have used.
    pub fn programs(&self) -> Programs {
        let used = |t: &Thread| t.finished.unwrap_or(self.now).since(t.started).0 as f64 - t.slept_ns;
        let cpu = Nanos(self.threads.iter().map(used).sum::<f64>() as u64);
        Programs { time: self.now, cpu }
    }

    /// The state that the kernel reports for a node.
    pub fn node_state(&self, node: NodeIndex) -> NodeState {
        self.machine.state(node, self.memory.free(node))
    }

    /// Moves an allocated page to another node, for any mover, and counts a mark that it loses. The
    /// caller checks for room, and counts the move by the returned value.
    pub fn move_page(&mut self, page: Page, to: NodeIndex) -> Way {
        let from = self.memory.flags(page) & crate::memory::flags::NODE;
        self.counters.marks_dropped_by_move += u64::from(self.memory.move_to(page, to));
        self.copied[usize::from(from)] += 1;
        self.copied[usize::from(to)] += 1;
        match (self.machine.is_kernel_lower(from), self.machine.is_kernel_lower(to)) {
            (true, false) => {
                let (word, bit) = (page as usize / 64, page % 64);
                self.counters.promoted_again += self.demoted[word] >> bit & 1;
                Way::Up
            }
            (false, true) => {
                self.demoted[page as usize / 64] |= 1 << (page % 64);
                Way::Down
            }
            _ => {
                self.counters.moved_within += 1;
                Way::Within
            }
        }
    }

    /// Charges `ns` to a thread that has to do something else first, all at once.
    pub fn stall(&mut self, thread: u32, ns: f64) {
        let process = usize::from(self.threads[thread as usize].process);
        if let Some(stalls) = &mut self.processes[process].stalls {
            stalls.long.note(ns);
        }
        self.charge(thread, ns);
    }

    /// Charges `ns` to a thread for what has made its accesses slower.
    pub fn charge(&mut self, thread: u32, ns: f64) {
        self.threads[thread as usize].debt_ns += ns;
        self.overhead_ns += ns;
    }

    /// Charges the accessed bits that the programs' accesses have set again to their running
    /// threads, in equal parts.
    pub(crate) fn charge_accessed_bits(&mut self) {
        for process in 0..self.processes.len() {
            let bits = self.memory.take_set_again(process);
            if bits == 0 {
                continue;
            }
            let threads = self.processes[process].threads.clone();
            let running = threads.filter(|t| self.threads[*t as usize].finished.is_none());
            let running: Vec<u32> = running.collect();
            let ns = bits as f64 * self.machine.spec.cost.accessed_bit_ns / running.len().max(1) as f64;
            if let Some(stalls) = &mut self.processes[process].stalls {
                stalls.spread_ns += ns * running.len() as f64;
            }
            running.into_iter().for_each(|thread| self.charge(thread, ns));
        }
    }

    /// Sets the access time of each process on each node, given the nodes' load.
    pub(crate) fn set_access_times(&mut self, loads: &[Option<Bandwidth>]) {
        for process in &mut self.processes {
            for (i, node) in self.machine.nodes.iter().enumerate() {
                let from = usize::from(process.node);
                let (load, store) = (1.0 - process.store_share, process.store_share);
                let memory = load * node.read_ns[from] + store * node.write_ns[from];
                let load = loads.get(i).copied().flatten().map_or(1.0, |b| b.factor());
                process.access_ns[i] = process.fixed_ns + process.miss_share * process.lines * memory * load;
            }
        }
        self.access_times_changed += 1;
    }

    /// Pages of the kernel's top tier.
    pub fn top_pages(&self) -> u64 {
        self.memory.nodes[..usize::from(self.machine.kernel_top)].iter().map(|n| n.used).sum()
    }

    /// Whether every process that counts is done.
    pub fn finished(&self) -> bool {
        self.processes
            .iter()
            .filter(|p| !p.background)
            .all(|p| p.threads.clone().all(|t| self.threads[t as usize].finished.is_some()))
    }

    /// How the kernel scans the process that the pace follows; `None` before the third scan of any.
    pub fn scans(&self) -> Option<Scans> {
        let runs = |p: &Process| p.threads.clone().any(|t| self.threads[t as usize].finished.is_none());
        let running = self.processes.iter().enumerate().filter(|(_, process)| runs(process));
        let with_size = running.map(|(i, p)| (Process::pid(i), &p.scan.pace, p.rss / PAGES_PER_MIB));
        followed(self.now, with_size)
    }

    /// The frame of a page, for the engine: the top tier and the other tiers have separate frame
    /// numbers, so a promoted page gets another frame.
    #[inline]
    pub fn pfn(&self, page: Page) -> Pfn {
        let top = self.memory.node(page).is_some_and(|n| self.machine.is_top(n));
        Pfn(u64::from(page) + if top { self.memory.pages() } else { 0 })
    }

    /// The address of a page.
    #[inline]
    pub fn virt(&self, page: Page) -> VirtPage {
        let space = self.memory.space_of(page);
        let start = self.memory.spaces[space].start;
        VirtPage { pid: Process::pid(space), vpn: VPN_BASE + u64::from(page - start) }
    }

    /// The page at an address.
    pub fn page_at(&self, virt: VirtPage) -> Option<Page> {
        let space = self.memory.spaces.get((virt.pid.0 as usize).checked_sub(1)?)?;
        let offset = virt.vpn.checked_sub(VPN_BASE)?;
        (offset < u64::from(space.len())).then(|| space.start + offset as u32)
    }

    /// The values that the counters' laws relate to.
    pub fn state(&self) -> State {
        let census = self.memory.census();
        let used: u64 = self.memory.nodes.iter().map(|n| n.used).sum();
        let counted: u64 = census[..NODES_MAX].iter().sum();
        State {
            marked: self.memory.marked(),
            top_then: self.top_then,
            top_now: census[..usize::from(self.machine.kernel_top)].iter().sum(),
            pages: (counted, used),
        }
    }
}

impl Mappings for System {
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>> {
        let page = self.page_at(page)?;
        let space = &self.memory.spaces[self.memory.space_of(page)];
        Some(VPN_BASE..VPN_BASE + u64::from(space.len()))
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        let page = self.page_at(page).filter(|p| self.memory.is_marked(*p))?;
        let node = self.memory.node(page).map(|n| self.machine.nodes[usize::from(n)].id);
        Some(Marked { node, pfn: Some(self.pfn(page)) })
    }
}
