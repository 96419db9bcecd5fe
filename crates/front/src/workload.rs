//! Recordings as workloads of the simulator: heat, processes and machine as they were.
//!
//! An access of the simulator is a visit to a page. How long a program waits for memory in it, and
//! how long it computes, is not recorded: a part of the time, [`MEMORY_BOUND`], is taken to be
//! waiting for memory if all of it is in DRAM. The scenario says so, and its keys can be changed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use thermocline_core::access::RegionSpace;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::PAGE_SIZE;
use thermocline_sim::machine::{self, MachineSpec, NodeSpec};
use thermocline_sim::spec::SpecError;
use thermocline_sim::units::Bytes;
use thermocline_sim::workload::RecordedHeat;
use thermocline_trace::heat::{Heat, Options, estimate};
use thermocline_trace::reader::Recording;

/// The share of its time that a recorded program is taken to wait for memory, with all of it in
/// DRAM.
pub const MEMORY_BOUND: f64 = 0.3;
/// The preset that says what a recording does not: costs, watermarks, latencies.
const PRESET: &str = "cxl-2tier";
/// The name of the machine that a recording was made on.
pub const MACHINE: &str = "recorded";

/// A recording, with its heat.
#[derive(Debug)]
struct Opened {
    topology: Topology,
    heat: Heat,
    processes: Vec<Process>,
}

/// A recorded process, or a node's memory where processes are not known.
#[derive(Debug)]
struct Process {
    name: String,
    /// Groups of pages by address, and their accesses a second in each epoch.
    groups: Vec<(u32, Vec<f64>)>,
}

impl Process {
    fn pages(&self) -> u64 {
        self.groups.iter().map(|(pages, _)| u64::from(*pages)).sum()
    }

    /// Accesses a second, over all epochs.
    fn rate(&self) -> f64 {
        let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        self.groups.iter().map(|(_, rates)| mean(rates)).sum()
    }
}

/// Recordings that have been read, by their folders.
#[derive(Debug, Default)]
pub struct Recordings {
    opened: RefCell<BTreeMap<PathBuf, Rc<Opened>>>,
}

impl Recordings {
    fn open(&self, folder: &Path) -> Result<Rc<Opened>, SpecError> {
        if let Some(opened) = self.opened.borrow().get(folder) {
            return Ok(Rc::clone(opened));
        }
        let place = folder.display().to_string();
        let recording = Recording::open(folder).map_err(|e| {
            let (what, remedy) = e.what.rsplit_once("; ").unwrap_or((&e.what, "record it again"));
            SpecError::new(e.path.display().to_string(), what, remedy)
        })?;
        if let Some(times) = recording.untimed() {
            let what = format!("its times are {times}: how often the program accesses memory is not known");
            return Err(SpecError::new(&place, what, "ask `thermocline plan`, which needs no rates"));
        }
        let heat = estimate(&recording, Options::default())
            .map_err(|e| SpecError::new(&place, "its heat cannot be estimated".to_owned(), e.to_string()))?;
        let opened =
            Rc::new(Opened { topology: recording.topology().clone(), processes: processes(&heat), heat });
        self.opened.borrow_mut().insert(folder.to_owned(), Rc::clone(&opened));
        Ok(opened)
    }

    /// The heat of a process of a recording.
    ///
    /// # Errors
    /// It cannot be read, has no evidence, or has no such process.
    pub fn heat(&self, folder: &Path, process: u32) -> Result<Arc<RecordedHeat>, SpecError> {
        let opened = self.open(folder)?;
        let place = folder.display().to_string();
        let Some(of) = opened.processes.get(process as usize) else {
            let message = format!("has {} processes, and none with number {process}", opened.processes.len());
            return Err(SpecError::new(place, message, "count from 0"));
        };
        let groups: Vec<(u32, &[f64])> = of.groups.iter().map(|(n, rates)| (*n, &rates[..])).collect();
        let heat = RecordedHeat::new(&groups, opened.heat.evidence().epoch_s());
        heat.map(Arc::new).map_err(|e| SpecError { place, ..e })
    }

    /// The scenario of a recording, as TOML.
    ///
    /// # Errors
    /// It cannot be read, or has no evidence.
    pub fn scenario(&self, folder: &Path) -> Result<String, SpecError> {
        let opened = self.open(folder)?;
        let evidence = opened.heat.evidence();
        let seconds = evidence.end.since(evidence.start).0 as f64 / 1e9;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let machine = opened.machine()?;
        let (fast, slow) = latencies(&machine);
        let mut out = format!(
            "name = {}\nsummary = \"as recorded, from {}\"\nmachine = \"{MACHINE}\"\nlimit = \"{:.0}s\"\n",
            quoted(&name),
            evidence.source.text(),
            // All on the slowest memory, and then some.
            (seconds * (slow / fast).max(1.0) * 2.0 + 60.0).ceil(),
        );
        let low = opened.seen_in_top() < 0.5;
        let place = if low { ["low", "top"] } else { ["top", "low"] };
        for (number, process) in opened.processes.iter().enumerate() {
            let [compute_ns, lines] = opened.pace(process, fast, slow);
            let _ = write!(
                out,
                "\n[[process]]\nname = {:?}\nthreads = 1\nnode = \"cpu\"\nfootprint = \"{}B\"\n\
                 place = [{{ node = {:?} }}, {{ node = {:?} }}]\ncompute_ns = {compute_ns:?}\n\
                 lines_per_access = {lines:?}\nstore_share = 0.0\n\
                 pattern = {{ kind = \"recorded\", trace = {}, process = {number} }}\n",
                process.name,
                process.pages() * PAGE_SIZE,
                place[0],
                place[1],
                quoted(&folder.display().to_string()),
            );
        }
        out += "\n[origin]\n\"process\" = \"fitted: to the recording\"\n\
                \"process.compute_ns\" = \"assumed: 30 % of the time is waiting for memory in DRAM\"\n\
                \"process.lines_per_access\" = \"assumed: likewise\"\n";
        Ok(out)
    }

    /// The machine of a recording.
    ///
    /// # Errors
    /// It cannot be read, or has no evidence.
    pub fn machine(&self, folder: &Path) -> Result<MachineSpec, SpecError> {
        self.open(folder)?.machine()
    }
}

impl Opened {
    fn pages(&self) -> u64 {
        self.processes.iter().map(Process::pages).sum()
    }

    /// The share of the accesses that the top tier served; as good as the evidence says.
    fn seen_in_top(&self) -> f64 {
        let tiers = self.topology.nodes.iter().any(|node| self.topology.is_lower(node.id));
        if tiers { self.heat.seen_in_top().unwrap_or(1.0) } else { 1.0 }
    }

    /// Time in ns that an access of a process computes, and the lines of memory that it waits for.
    fn pace(&self, process: &Process, fast: f64, slow: f64) -> [f64; 2] {
        let each_ns = 1e9 / process.rate().max(1e-3);
        // It was recorded with some of its memory below the top tier.
        let below = 1.0 - self.seen_in_top();
        let in_dram_ns = each_ns / (1.0 + MEMORY_BOUND * below * (slow / fast - 1.0));
        let lines = (MEMORY_BOUND * in_dram_ns / fast).clamp(1e-6, 1e6);
        [((1.0 - MEMORY_BOUND) * in_dram_ns).min(1e9), lines]
    }

    /// The machine that it was recorded on, with a slower node if it has none; large enough for
    /// what was seen.
    fn machine(&self) -> Result<MachineSpec, SpecError> {
        let preset = machine::preset(PRESET)?;
        let pages = self.pages();
        let with_memory = |node: &&Node| node.capacity_pages > 0;
        let lower = self.topology.nodes.iter().filter(with_memory).any(|n| self.topology.is_lower(n.id));
        let mut spec = MachineSpec { name: MACHINE.to_owned(), ..preset.clone() };
        if lower {
            let bytes = u64::from(self.topology.page_bytes);
            spec.node =
                self.topology.nodes.iter().map(|node| node_spec(node, &self.topology, bytes)).collect();
        } else {
            spec.node[0].memory = Bytes(pages / 2 * PAGE_SIZE);
        }
        // Below the watermarks nothing is allocated.
        let reserve = 2 * spec.min_free.0;
        let all: u64 = spec.node.iter().map(|node| node.memory.0).sum();
        let missing = (pages * PAGE_SIZE + reserve).saturating_sub(all);
        if let Some(last) = spec.node.last_mut() {
            last.memory = Bytes(last.memory.0 + missing);
        }
        Ok(spec)
    }
}

/// A recorded node. Latencies that the firmware did not report are the preset's: 100 ns for the top
/// tier, 250 ns below, and 4 ns for each unit of distance above that of the nearest CPUs.
fn node_spec(node: &Node, topology: &Topology, page_bytes: u64) -> NodeSpec {
    let nearest = |i: usize| !topology.nodes[i].cpus.is_empty();
    let least = (0..topology.nodes.len()).filter(|i| nearest(*i)).map(|i| node.distances[i]).min();
    let idle = match node.read_latency_ns {
        Some(ns) => f64::from(ns),
        None if topology.is_lower(node.id) => 250.0,
        None => 100.0,
    };
    let from = |distance: &u8| idle + 4.0 * f64::from(distance.saturating_sub(least.unwrap_or(10)));
    NodeSpec {
        id: node.id.0,
        tier: node.tier.0,
        cpus: node.cpus.len() as u32,
        memory: Bytes(node.capacity_pages.saturating_mul(page_bytes)),
        distances: node.distances.clone(),
        read_ns: node.distances.iter().map(from).collect(),
        write_ns: None,
        bandwidth_mbps: node.read_bandwidth_mbps.map(f64::from),
    }
}

/// Text as TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Latency of the fastest and of the slowest node, from the first that has CPUs.
fn latencies(machine: &MachineSpec) -> (f64, f64) {
    let cpu = machine.node.iter().position(|node| node.cpus > 0).unwrap_or(0);
    let of = |node: &NodeSpec| node.read_ns.get(cpu).copied().filter(|ns| *ns > 0.0).unwrap_or(100.0);
    let all: Vec<f64> = machine.node.iter().filter(|node| node.memory.0 > 0).map(of).collect();
    (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max))
}

/// The processes of a recording: for each, groups of pages by address. Pages without evidence are
/// put behind those of the largest process.
fn processes(heat: &Heat) -> Vec<Process> {
    let (evidence, drawn) = (heat.evidence(), heat.draw(0));
    let name = |space: &RegionSpace| match space {
        RegionSpace::Virtual(pid) => format!("pid {}", pid.0),
        RegionSpace::Physical(node) => format!("node {}", node.0),
        RegionSpace::Target(number) => format!("target {number}"),
    };
    let spaces = evidence.spaces.iter();
    let mut processes: Vec<Process> =
        spaces.map(|space| Process { name: name(space), groups: Vec::new() }).collect();
    for (unit, rates) in evidence.units.iter().zip(drawn.rates.chunks(evidence.epochs)) {
        processes[unit.space as usize].groups.push((unit.pages, rates.to_vec()));
    }
    if let Some(largest) = processes.iter_mut().max_by_key(|process| process.pages()) {
        let mut left = evidence.silent_pages;
        for (number, (pages, rate)) in drawn.silent.iter().enumerate() {
            let last = number + 1 == drawn.silent.len();
            let pages = if last { left } else { (pages.round() as u64).min(left) };
            left -= pages;
            let all = pages as f64 * rate;
            largest.groups.push((pages as u32, vec![all; evidence.epochs]));
        }
    }
    processes.retain(|process| process.rate() > 0.0);
    processes
}
