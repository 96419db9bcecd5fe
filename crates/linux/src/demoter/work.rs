//! Carries out a demand: ages what has not been aged for long, evicts what is idle, counts what went down.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermocline_core::demotion::{Demand, OVER_PAGES, Reach};
use thermocline_core::units::{Nanos, NodeId, ScopeId};

use super::DemoterStats;
use super::generations::{self, Lru};
use super::step::Step;
use crate::actuator::{Commands, lru_gen, same_value};
use crate::root::Root;
use crate::scope::cpuset::Cpusets;
use crate::source::thread_cpu_time;
use crate::vmstat::Vmstat;

/// How long a demand is worked on; what is left is asked for again.
const SPAN: Duration = Duration::from_secs(1);
/// CPU time that is spent on a demand, but for its last command: what is spent has to be paid for by rest, and a long rest would let memory fill up.
const CPU_SPAN: Nanos = Nanos::from_ms(100);
/// Base pages of a command from which on what came of it can be told although a CPU may not have added up yet what it has counted.
const COUNTED_PAGES: u64 = 512;
/// Anonymous pages first: they are demoted like all others.
const SWAPPINESS: u32 = 200;
/// The kernel's counters of what was demoted for a command: 6.12 takes it for direct reclaim, newer kernels know better.
const COUNTERS: [&str; 2] = ["pgdemote_direct", "pgdemote_proactive"];

/// What the thread works with.
#[derive(Debug)]
pub(super) struct Worker {
    commands: Commands,
    reach: Reach,
    /// The nodes that the kernel may demote to.
    lower: Vec<NodeId>,
    cpusets: Cpusets,
    step: Step,
    lru_gen: PathBuf,
    demotion_enabled: PathBuf,
    nodes: PathBuf,
    vmstat: PathBuf,
    stat_refresh: PathBuf,
}

impl Worker {
    pub(super) fn new(root: &Root, reach: Reach, lower: Vec<NodeId>, commands: Commands) -> Worker {
        Worker {
            commands,
            reach,
            lower,
            cpusets: Cpusets::new(root),
            step: Step::default(),
            lru_gen: lru_gen(root),
            demotion_enabled: super::demotion_enabled(root),
            nodes: root.sys.join("devices/system/node"),
            vmstat: root.proc.join("vmstat"),
            stat_refresh: root.proc.join("sys/vm/stat_refresh"),
        }
    }

    /// Demotes what the demand asks for, as far as it is there; returns the base pages that went down.
    ///
    /// # Errors
    /// The kernel does not do what it offers.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<u64> {
        let (end, cpu) = (Instant::now() + SPAN, thread_cpu_time());
        let over = || stopped() || Instant::now() >= end || thread_cpu_time().since(cpu) >= CPU_SPAN;
        let mut allowances = Allowances::of(demand);
        let allowed = self.allowed(demand.node, &allowances, stats)?;
        self.age(demand, &allowed, &over, stats)?;
        let start = self.settled(demand.node)?;
        let mut seen = start;
        // Of these hardly more comes: what was left there has been accessed since.
        let mut barren: Vec<(u64, u64)> = Vec::new();
        while seen - start < demand.pages && !over() {
            let Some(Place { memcg, seq, floor }) = self.coldest(demand, &allowed, &allowances, &barren)?
            else {
                break;
            };
            // Without it the kernel would swap out and drop instead.
            if !same_value(&self.commands.read(&self.demotion_enabled)?, "1") {
                stats.demotion_off += 1;
                break;
            }
            let pages = self.step.pages().min(demand.pages - (seen - start)).min(allowances.left(floor));
            let command = format!("- {memcg} {} {seq} {SWAPPINESS} {pages}", demand.node.0);
            let before = thread_cpu_time();
            match self.commands.lru_gen(&command) {
                Ok(()) => {}
                // The generation or its cgroup has gone meanwhile, or a signal came.
                Err(e) if is_passing(&e) => stats.refused += 1,
                Err(e) => return Err(e),
            }
            stats.evictions += 1;
            self.step.took(thread_cpu_time().since(before));
            let counted =
                if pages < COUNTED_PAGES { self.settled(demand.node)? } else { self.demoted(demand.node)? };
            let now = counted.max(seen);
            if (now - seen) * 2 < pages {
                barren.push((memcg, seq));
            }
            allowances.take(floor, pages.max(now - seen));
            seen = now;
        }
        let demoted = self.settled(demand.node)?.saturating_sub(start);
        stats.demoted_pages += demoted;
        Ok(demoted)
    }

    /// Makes a new generation where the youngest is older than the idle time: what is accessed leaves the old ones by that.
    fn age(
        &mut self,
        demand: &Demand,
        allowed: &BTreeSet<u64>,
        over: &impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<()> {
        for lru in self.lists(demand.node, allowed)? {
            let Some(youngest) = lru.youngest().filter(|g| g.age >= demand.idle) else { continue };
            if over() {
                break;
            }
            match self.commands.lru_gen(&format!("+ {} {} {}", lru.memcg, demand.node.0, youngest.seq)) {
                Ok(()) => stats.agings += 1,
                Err(e) if is_passing(&e) => stats.refused += 1,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The cgroup whose pages have been idle for longest, and the generation up to which they may go.
    fn coldest(
        &self,
        demand: &Demand,
        allowed: &BTreeSet<u64>,
        allowances: &Allowances,
        barren: &[(u64, u64)],
    ) -> io::Result<Option<Place>> {
        let lists = self.lists(demand.node, allowed)?;
        let idle = lists.iter().filter_map(|lru| {
            let (generation, _) = lru.idle_for(demand.idle)?;
            let floor = self.reach.floor_of(&lru.path);
            let fruitful = !barren.contains(&(lru.memcg, generation.seq)) && allowances.left(floor) > 0;
            fruitful.then_some((lru.oldest_idle(), Place { memcg: lru.memcg, seq: generation.seq, floor }))
        });
        Ok(idle.max_by_key(|(age, place)| (*age, place.memcg)).map(|(_, place)| place))
    }

    /// The cgroups on the node whose memory may go down: those in reach, above their floor, whose cpuset lets them have it on every lower node, of
    /// which the kernel chooses one.
    fn allowed(
        &self,
        node: NodeId,
        allowances: &Allowances,
        stats: &mut DemoterStats,
    ) -> io::Result<BTreeSet<u64>> {
        let mut allowed = BTreeSet::new();
        for lru in generations::parse(&self.commands.read(&self.lru_gen)?) {
            if lru.node != node || lru.pages() == 0 || !self.reach.covers(&lru.path) {
                continue;
            }
            if allowances.left(self.reach.floor_of(&lru.path)) == 0 {
                stats.kept_by_floor += lru.pages();
                continue;
            }
            let mems = self.cpusets.mems(&lru.path, |file| self.commands.read(file))?;
            if mems.is_none_or(|mems| self.lower.iter().all(|n| mems.contains(&u32::from(n.0)))) {
                allowed.insert(lru.memcg);
            } else {
                stats.kept_by_cpuset += lru.pages();
            }
        }
        Ok(allowed)
    }

    /// The generations of these cgroups on the node.
    fn lists(&self, node: NodeId, allowed: &BTreeSet<u64>) -> io::Result<Vec<Lru>> {
        let mut lists = generations::parse(&self.commands.read(&self.lru_gen)?);
        lists.retain(|lru| lru.node == node && lru.pages() > 0 && allowed.contains(&lru.memcg));
        Ok(lists)
    }

    /// Base pages that have been demoted from a node by command so far; of all nodes where the kernel counts them together.
    fn demoted(&self, node: NodeId) -> io::Result<u64> {
        let of_node = self.commands.read(&self.nodes.join(format!("node{}/vmstat", node.0)))?;
        let count = |text: &str| {
            let vmstat = Vmstat::parse(text);
            let found: Vec<u64> = COUNTERS.iter().filter_map(|name| vmstat.get(name)).collect();
            (!found.is_empty()).then(|| found.iter().sum())
        };
        match count(&of_node) {
            Some(sum) => Ok(sum),
            None => Ok(count(&self.commands.read(&self.vmstat)?).unwrap_or(0)),
        }
    }

    /// The same, after every CPU has added up what it has counted for itself: up to 125 pages each, which otherwise may take a second or two
    /// (Linux mm/vmstat.c, calculate_normal_threshold).
    fn settled(&self, node: NodeId) -> io::Result<u64> {
        // Where it cannot be asked for, a few pages are counted late, or taken for the kernel's own doing.
        let _ = self.commands.read(&self.stat_refresh);
        self.demoted(node)
    }
}

/// Where pages are evicted from.
struct Place {
    memcg: u64,
    /// The youngest generation that may go.
    seq: u64,
    /// The scope whose floor it is subject to.
    floor: Option<ScopeId>,
}

/// What may still be taken of scopes with a floor.
struct Allowances {
    pages: BTreeMap<ScopeId, u64>,
}

impl Allowances {
    fn of(demand: &Demand) -> Allowances {
        Allowances { pages: demand.allowances.iter().map(|a| (a.scope, a.pages)).collect() }
    }

    /// What a command may ask for, so that it stays within them also where it takes more than it is asked for.
    fn left(&self, floor: Option<ScopeId>) -> u64 {
        let of_scope = |scope| self.pages.get(&scope).map_or(0, |pages| pages.saturating_sub(OVER_PAGES));
        floor.map_or(u64::MAX, of_scope)
    }

    fn take(&mut self, floor: Option<ScopeId>, pages: u64) {
        if let Some(left) = floor.and_then(|scope| self.pages.get_mut(&scope)) {
            *left = left.saturating_sub(pages);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ERANGE | libc::EINTR | libc::EAGAIN))
}
