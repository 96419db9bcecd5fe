//! The demoter: a thread that has the kernel demote cold pages, as much as the engine demands.
//!
//! The kernel's multi-generational LRU knows by cgroup and node for how long pages have not been
//! accessed. On command it reads the accessed bits again (aging) and reclaims its oldest
//! generations (eviction), which on a top-tier node means demotion while `demotion_enabled` is set.
//! If that is not available, DAMON moves regions that it has seen idle, and newer kernels reclaim
//! from a node as a whole. The book's chapter "Demotion" describes what each guarantees.

mod by_generations;
mod by_node;
mod by_regions;
mod charged;
mod counted;
mod demand;
pub mod generations;
mod offer;
mod own_cgroup;
mod step;
mod survey;

#[cfg(test)]
pub(crate) use offer::excluded_below;
pub(crate) use offer::same_tiers;
pub use offer::{NotDemoting, Offer, Way, offer, offer_but, settings};

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::demotion::Reach;
use thermocline_core::units::{Nanos, NodeId};

use crate::actuator::{Commands, same_value};
use crate::clock::thread_cpu_time;
use crate::root::{Root, read_optional};
use by_generations::ByGenerations;
use by_node::ByNode;
use by_regions::ByRegions;
use demand::Taken;

/// Maximum number of waiting demands; the engine has one per node under way.
const CAPACITY: usize = 64;
/// How long an early end waits for the thread's current command.
const DROP_BOUND: Duration = Duration::from_secs(2);

thermocline_core::statistics! {
    /// Counters of the demoter.
    #[derive(Copy)]
    DemoterStats "demoter" {
        /// Demands carried out.
        demands: u64, "demands", Counter;
        /// Base pages demoted.
        demoted_pages: u64, "pages", Counter;
        /// Those of them that DAMON has moved, which the kernel does not count as demoted.
        by_damon_pages: u64, "pages", Counter;
        /// CPU time of the thread, most of it the kernel's.
        cpu_time: Nanos, "ns", Counter;
        /// Times that a cgroup's pages were aged on a node.
        agings: u64, "times", Counter;
        /// Commands to evict, or to reclaim from a node.
        evictions: u64, "commands", Counter;
        /// Commands that the kernel refused, because the generation or its cgroup had gone or
        /// somebody else was aging it, or that found less than they asked for.
        refused: u64, "commands", Counter;
        /// Demands that ended because somebody has switched the kernel's demotion off.
        demotion_off: u64, "demands", Counter trouble;
        /// Base pages passed over, a demand at a time, because a cpuset keeps their cgroup from the
        /// lower tiers.
        kept_by_cpuset: u64, "pages", Counter;
        /// Base pages passed over, a demand at a time, because their scope has no more than its
        /// floor, or than the share that it keeps, or hardly more.
        kept_by_floor: u64, "pages", Counter;
        /// Base pages passed over, a demand at a time, because their scope's brake lets nothing go.
        kept_by_brake: u64, "pages", Counter;
    }
}

/// Demands in a row that have to fail until a way is given up: one error may pass by itself, and
/// nothing is demoted for the rest of the run once all ways are. Ours.
const FAILURES_MAX: u32 = 4;

/// State shared by the thread and its owner.
#[derive(Debug, Default)]
struct Common {
    stop: AtomicBool,
    stats: Mutex<DemoterStats>,
    failure: Mutex<Option<String>>,
    /// Whose memory is demoted from the next demand on, where that has changed.
    reach: Mutex<Option<Reach>>,
}

/// The owner's end of the demoter.
#[derive(Debug)]
pub struct Demoter {
    queue: Option<SyncSender<Demand>>,
    done: Receiver<Demoted>,
    common: Arc<Common>,
    in_flight: usize,
}

/// The kernel's switch of demotion (Linux mm/memory-tiers.c).
pub(crate) fn demotion_enabled(root: &Root) -> PathBuf {
    root.sys.join("kernel/mm/numa/demotion_enabled")
}

/// Whether the kernel may demote now.
pub(crate) fn demotion_is_on(root: &Root) -> bool {
    let text = read_optional(&demotion_enabled(root)).ok().flatten();
    text.is_some_and(|text| same_value(&text, "1"))
}

impl Demoter {
    /// Starts the thread. `lower` are the nodes below the top tier.
    ///
    /// # Errors
    /// It could not be created.
    pub fn start(
        root: &Root,
        offer: Offer,
        lower: Vec<NodeId>,
        commands: Commands,
    ) -> std::io::Result<Demoter> {
        let worker = match offer.way {
            Way::Generations => Worker::Generations(ByGenerations::new(root, offer.reach, lower, commands)),
            Way::Regions(setup) => Worker::Regions(ByRegions::new(*setup, commands)),
            Way::Node => Worker::Node(ByNode::new(root, commands)),
        };
        let (queue, demands) = sync_channel(CAPACITY);
        let (outcomes, done) = sync_channel(CAPACITY);
        let common = Arc::new(Common::default());
        let theirs = Arc::clone(&common);
        std::thread::Builder::new()
            .name("demoter".to_owned())
            .spawn(move || serve(worker, &demands, &outcomes, &theirs))?;
        Ok(Demoter { queue: Some(queue), done, common, in_flight: 0 })
    }

    /// Hands over a demand and returns at once; one that cannot be taken is done at once, with
    /// nothing demoted.
    pub fn submit(&mut self, demand: Demand) -> Option<Demoted> {
        let refused = Some(demand.done(0, Nanos(0)));
        let Some(queue) = self.queue.as_ref() else { return refused };
        // Everything in flight fits into the channel of outcomes, so the thread never waits for its
        // owner.
        if self.in_flight >= CAPACITY || queue.try_send(demand).is_err() {
            return refused;
        }
        self.in_flight += 1;
        None
    }

    /// The results since the last call.
    pub fn outcomes(&mut self) -> Vec<Demoted> {
        let outcomes: Vec<Demoted> = self.done.try_iter().collect();
        self.in_flight -= outcomes.len();
        outcomes
    }

    /// Demotes other memory from the next demand on; the present one ends early. Only demotion by
    /// generations can tell whose memory it takes.
    pub fn set_reach(&self, reach: Reach) {
        *lock(&self.common.reach) = Some(reach);
    }

    /// Whether every demand's outcome has been fetched.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Continues another demoter's counters; call it before the first demand.
    pub fn count_on(&mut self, stats: DemoterStats) {
        *lock(&self.common.stats) = stats;
    }

    /// The counters so far.
    pub fn stats(&self) -> DemoterStats {
        *lock(&self.common.stats)
    }

    /// Why the thread has given up, if it has; every demand ends with nothing demoted from then on.
    pub fn failure(&self) -> Option<String> {
        lock(&self.common.failure).clone()
    }

    /// Ends the thread and waits for its current command, for at most `bound`: while it evicts,
    /// demotion must stay enabled. Returns the results of the last demands, and whether the thread
    /// has ended.
    pub fn shutdown(&mut self, bound: Duration) -> (Vec<Demoted>, bool) {
        let end = Instant::now() + bound;
        self.common.stop.store(true, Ordering::Relaxed);
        self.queue = None;
        let mut outcomes = Vec::new();
        loop {
            match self.done.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => return (outcomes, error == RecvTimeoutError::Disconnected),
            }
        }
    }
}

impl Drop for Demoter {
    /// Waits like [`shutdown`](Demoter::shutdown) if that was not called: settings are put back
    /// next.
    fn drop(&mut self) {
        self.shutdown(DROP_BOUND);
    }
}

/// The implementation of a way.
enum Worker {
    Generations(ByGenerations),
    Regions(ByRegions),
    Node(ByNode),
}

/// The thread: works until the queue's other end is dropped.
fn serve(mut worker: Worker, demands: &Receiver<Demand>, outcomes: &SyncSender<Demoted>, common: &Common) {
    let mut failures = 0;
    for demand in demands {
        let mut stats = *lock(&common.stats);
        if let (Some(reach), Worker::Generations(worker)) = (lock(&common.reach).take(), &mut worker) {
            worker.set_reach(reach);
        }
        let stopped = || common.stop.load(Ordering::Relaxed) || lock(&common.reach).is_some();
        let start = thread_cpu_time();
        // Regions and nodes are asked only where no scope is named.
        let whose = demand.only.is_none() || matches!(worker, Worker::Generations(_));
        let idle = stopped() || !whose || lock(&common.failure).is_some();
        let carried_out = match idle {
            true => Ok(Taken::default()),
            false => carry_out(&mut worker, &demand, stopped, &mut stats),
        };
        failures = if carried_out.is_err() { failures + 1 } else { 0 };
        let taken = carried_out.unwrap_or_else(|error| {
            stats.refused += 1;
            if failures >= FAILURES_MAX {
                *lock(&common.failure) = Some(error.to_string());
            }
            Taken::default()
        });
        let cpu = thread_cpu_time().since(start);
        stats.demands += 1;
        stats.cpu_time = stats.cpu_time.plus(cpu);
        *lock(&common.stats) = stats;
        // It fails only when the owner is gone, and then the result is not needed.
        let by_scope = taken.by_scope.into_iter().collect();
        let _ = outcomes.send(Demoted { by_scope, ..demand.done(taken.pages, cpu) });
    }
}

fn carry_out(
    worker: &mut Worker,
    demand: &Demand,
    stopped: impl Fn() -> bool,
    stats: &mut DemoterStats,
) -> io::Result<Taken> {
    match worker {
        Worker::Generations(worker) => worker.carry_out(demand, stopped, stats),
        Worker::Regions(worker) => worker.carry_out(demand, stopped, stats),
        Worker::Node(worker) => worker.carry_out(demand, stopped, stats),
    }
}

/// No value behind these locks is ever half written: each is replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
