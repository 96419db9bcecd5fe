//! By the generations of the multi-generational LRU: ages lists that were not aged recently, evicts
//! idle pages, counts the demoted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermocline_core::demand::Demand;
use thermocline_core::demotion::{Allowances, Kept, LONG_AGO, Reach, Subtree, WAIT_MAX};
use thermocline_core::units::{Nanos, NodeId};

use super::DemoterStats;
use super::charged;
use super::counted::Counted;
use super::demand::{CPU_SPAN, SPAN, SWAPPINESS, Taken};
use super::generations::Lru;
use super::step::Step;
use super::survey::Survey;
use crate::actuator::{Commands, same_value};
use crate::clock::thread_cpu_time;
use crate::root::Root;
use crate::scope::cgroup::normal;
use crate::scope::cpuset::Cpusets;

/// The kernel reports the age of a generation in ticks, of at most 10 ms, so it may seem younger by
/// one tick.
const TICK: Duration = Duration::from_millis(10);
/// Time between two checks for a stop while waiting.
const NAP: Duration = Duration::from_millis(20);
/// Base pages of a command from which its result can be read although per-CPU counts may not have
/// been folded in yet.
const COUNTED_PAGES: u64 = 512;
/// Idle times that differ by at most this factor count as equal: generations are created an idle
/// time apart and four are kept. Ours.
const ABOUT_AS_LONG: u64 = 2;

/// The thread's state.
#[derive(Debug)]
pub(super) struct ByGenerations {
    root: Root,
    commands: Commands,
    reach: Reach,
    /// The nodes that the kernel may demote to.
    lower: Vec<NodeId>,
    cpusets: Cpusets,
    step: Step,
    survey: Survey,
    demotion_enabled: PathBuf,
    counted: Counted,
}

impl ByGenerations {
    pub(super) fn new(root: &Root, reach: Reach, lower: Vec<NodeId>, commands: Commands) -> ByGenerations {
        ByGenerations {
            root: root.clone(),
            commands,
            reach,
            lower,
            cpusets: Cpusets::new(root),
            step: Step::default(),
            survey: Survey::new(root),
            demotion_enabled: super::demotion_enabled(root),
            counted: Counted::new(root),
        }
    }

    /// Demotes other memory from now on.
    pub(super) fn set_reach(&mut self, reach: Reach) {
        self.reach = reach;
    }

    /// Carries out a demand as far as possible; returns the pages demoted.
    ///
    /// # Errors
    /// The kernel does not do what it offers.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<Taken> {
        let mut allowances = Allowances::of(demand);
        // Data from an earlier demand may be about another cgroup with the same number.
        self.survey.read(&self.commands)?;
        let allowed = self.allowed(demand.node, &allowances, &stopped, stats)?;
        self.age(demand, &allowed, &stopped, stats)?;
        // The CPU time of aging does not count: with much memory it would use up the whole limit,
        // and nothing would ever be evicted.
        let (end, cpu) = (Instant::now() + SPAN, thread_cpu_time());
        let over = || stopped() || Instant::now() >= end || thread_cpu_time().since(cpu) >= CPU_SPAN;
        let start = self.counted.settled(&self.commands, demand.node)?;
        let mut seen = start;
        let mut by_scope = BTreeMap::new();
        // These hardly yield more: their remaining pages have been accessed since.
        let mut barren: Vec<(u64, u64)> = Vec::new();
        while seen - start < demand.pages && !over() {
            let Some(Place { memcg, seq, subtree }) = self.coldest(demand, &allowed, &allowances, &barren)?
            else {
                break;
            };
            let subtree = subtree.as_ref();
            // Without it the kernel would swap out and drop instead.
            if !same_value(&self.commands.read(&self.demotion_enabled)?, "1") {
                stats.demotion_off += 1;
                break;
            }
            let pages = self.step.pages().min(demand.pages - (seen - start)).min(allowances.left(subtree));
            let command = format!("- {memcg} {} {seq} {SWAPPINESS} {pages}", demand.node.0);
            let before = thread_cpu_time();
            match self.commands.lru_gen(&command) {
                Ok(()) => {}
                // The generation or its cgroup has gone meanwhile, or a signal arrived.
                Err(e) if is_passing(&e) => stats.refused += 1,
                Err(e) => return Err(e),
            }
            stats.evictions += 1;
            self.step.took(thread_cpu_time().since(before));
            let counted = if pages < COUNTED_PAGES {
                self.counted.settled(&self.commands, demand.node)?
            } else {
                self.counted.so_far(&self.commands, demand.node)?
            };
            let now = counted.max(seen);
            if (now - seen) * 2 < pages {
                barren.push((memcg, seq));
            }
            if let Some(subtree) = subtree {
                allowances.take(subtree.scope, pages.max(now - seen));
                *by_scope.entry(subtree.scope).or_default() += now - seen;
            }
            seen = now;
        }
        let demoted = self.counted.settled(&self.commands, demand.node)?.saturating_sub(start);
        stats.demoted_pages += demoted;
        Ok(Taken { pages: demoted, by_scope })
    }

    /// Creates a new generation if the youngest is older than the idle time: accessed pages leave
    /// the old ones. A page is known to be idle after two agings between which it was not accessed,
    /// so if the last one is long ago there are two, the idle time apart.
    fn age(
        &mut self,
        demand: &Demand,
        allowed: &BTreeSet<u64>,
        stopped: &impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<()> {
        let long_ago = Nanos(demand.idle.0.saturating_mul(LONG_AGO));
        if demand.idle <= WAIT_MAX && self.age_older_than(long_ago, demand.node, allowed, stopped, stats)? > 0
        {
            let until = Instant::now() + Duration::from_nanos(demand.idle.0) + TICK;
            while Instant::now() < until && !stopped() {
                std::thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
            }
        }
        self.age_older_than(demand.idle, demand.node, allowed, stopped, stats)?;
        Ok(())
    }

    /// Creates a new generation where the youngest is at least that old; returns the number of
    /// cgroups.
    fn age_older_than(
        &mut self,
        age: Nanos,
        node: NodeId,
        allowed: &BTreeSet<u64>,
        stopped: &impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<u64> {
        let (before, refused, cpu) = (stats.agings, stats.refused, thread_cpu_time());
        for lru in lists(self.survey.recent(&self.commands)?, node, allowed) {
            let Some(youngest) = lru.youngest().filter(|g| g.age >= age) else { continue };
            if stopped() || thread_cpu_time().since(cpu) >= CPU_SPAN {
                break;
            }
            match self.commands.lru_gen(&format!("+ {} {} {}", lru.memcg, node.0, youngest.seq)) {
                Ok(()) => stats.agings += 1,
                Err(e) if is_passing(&e) => stats.refused += 1,
                Err(e) => return Err(e),
            }
        }
        if (stats.agings, stats.refused) != (before, refused) {
            self.survey.outdate();
        }
        Ok(stats.agings - before)
    }

    /// The cgroup whose pages have been idle for longest, and the generation up to which they may
    /// be evicted. Among several that are about equally idle it is the one with the largest idle
    /// part: the kernel keeps four generations, so memory that is never touched soon looks no older
    /// than memory that a busy program touches now and then.
    fn coldest(
        &mut self,
        demand: &Demand,
        allowed: &BTreeSet<u64>,
        allowances: &Allowances,
        barren: &[(u64, u64)],
    ) -> io::Result<Option<Place>> {
        let lists = lists(self.survey.recent(&self.commands)?, demand.node, allowed);
        let idle = lists.filter_map(|lru| {
            let (generation, pages) = lru.idle_for(demand.idle)?;
            let subtree = self.reach.subtree_of(&lru.path);
            let fruitful = !barren.contains(&(lru.memcg, generation.seq)) && allowances.left(subtree) > 0;
            let place = Place { memcg: lru.memcg, seq: generation.seq, subtree: subtree.cloned() };
            fruitful.then_some((lru.oldest_idle(), pages * 1000 / lru.pages().max(1), place))
        });
        let idle: Vec<(Nanos, u64, Place)> = idle.collect();
        let longest = idle.iter().map(|(age, ..)| *age).max().unwrap_or(Nanos(0));
        let about_as_long = idle.into_iter().filter(|(age, ..)| age.0 >= longest.0 / ABOUT_AS_LONG);
        let coldest =
            about_as_long.max_by_key(|(age, idle_permille, place)| (*idle_permille, *age, place.memcg));
        Ok(coldest.map(|(_, _, place)| place))
    }

    /// The cgroups on the node whose memory may be demoted: within reach, of the scope that the
    /// demand is for, without memory of a cgroup out of reach, above their floor, not stopped by
    /// the brake, and with a cpuset that allows every lower node, because the kernel chooses one of
    /// them.
    fn allowed(
        &self,
        node: NodeId,
        allowances: &Allowances,
        stopped: &impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<BTreeSet<u64>> {
        let mut allowed = BTreeSet::new();
        let mixed = charged::above(&self.root, &self.reach.never);
        for lru in self.survey.known() {
            // There may be 100,000 of them, and a file or more to read for each.
            if stopped() {
                break;
            }
            let covered = self.reach.covers(&lru.path) && !mixed.contains(&normal(&lru.path));
            if lru.node != node || lru.pages() == 0 || !covered {
                continue;
            }
            let subtree = self.reach.subtree_of(&lru.path);
            match allowances.kept(subtree) {
                None => {}
                Some(Kept::Elsewhere) => continue,
                Some(Kept::Brake) => {
                    stats.kept_by_brake += lru.pages();
                    continue;
                }
                Some(Kept::Floor) => {
                    stats.kept_by_floor += lru.pages();
                    continue;
                }
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
}

/// The generations of these cgroups on the node.
fn lists<'a>(known: &'a [Lru], node: NodeId, allowed: &'a BTreeSet<u64>) -> impl Iterator<Item = &'a Lru> {
    known.iter().filter(move |lru| lru.node == node && lru.pages() > 0 && allowed.contains(&lru.memcg))
}

/// The list that pages are evicted from.
struct Place {
    memcg: u64,
    /// The youngest generation that may be evicted.
    seq: u64,
    /// The scope's subtree that it is in, where scopes are configured.
    subtree: Option<Subtree>,
}

/// The generation or its cgroup has gone, a signal arrived, somebody else ages the same lists at
/// this moment (Linux mm/vmscan.c, run_aging: EEXIST), or the kernel has no memory for a walk.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ERANGE | libc::EINTR | libc::EAGAIN | libc::EEXIST | libc::ENOMEM)
    )
}
