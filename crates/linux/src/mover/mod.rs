//! The mover: a thread that moves batches of pages with move_pages(2), so that nothing else waits
//! for it.
//!
//! Steps of a batch: is it still the same process, and may its memory move? → what is mapped at
//! each page now (`plan`) → on which node → does a memory policy keep it there (`policy`) → has the
//! target room → move → determine outcomes (`settle`). The book's chapter "The mover" says which
//! outcomes are certain and which are inferred.

mod barred;
pub(crate) mod closed;
mod kernel;
mod memory;
mod plan;
mod policy;
mod settle;
mod stats;
pub mod trial;
mod work;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thermocline_core::config::{self, MemoryPolicies, SharedPages};
use thermocline_core::limit::Reserve;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, Pid};

use crate::node_state::NodeStateReader;
use crate::root::Root;
use crate::scope::Scopes;
use crate::sys::MovePagesError;
use work::Worker;

pub use kernel::{Kernel, LiveKernel};
pub use stats::{Count, MoverStats, OutcomeCounts};

/// Maximum number of messages waiting to be fetched.
const NEWS_MAX: usize = 64;

/// Configuration of a mover.
#[derive(Clone, Debug)]
pub struct MoverConfig {
    /// Pages that several processes map.
    pub shared_pages: SharedPages,
    /// Memory policies that keep pages where they are.
    pub memory_policies: MemoryPolicies,
    /// Whose pages may move: checked right before each batch.
    pub scopes: Scopes,
    /// What to leave free on a target.
    pub reserve: Reserve,
    /// Batches that may be accepted and not yet collected by [`Mover::outcomes`].
    pub capacity: usize,
    /// Failures of one page in one frame, each in a separate batch and without a visible temporary
    /// cause, after which it counts as pinned instead of busy.
    pub pinned_after: u8,
    /// Where the kernel's file systems are.
    pub root: Root,
}

impl Default for MoverConfig {
    fn default() -> MoverConfig {
        MoverConfig {
            shared_pages: SharedPages::Move,
            memory_policies: MemoryPolicies::All,
            scopes: Scopes::default(),
            reserve: Reserve::new(&config::Admission::default()),
            capacity: 64,
            pinned_after: 3,
            root: Root::default(),
        }
    }
}

/// Why a mover cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum MoverError {
    /// This kernel cannot move pages.
    #[error(transparent)]
    NotOffered(MovePagesError),
    /// The thread could not be created.
    #[error(
        "the mover's thread could not be started: {0}; look at the limits on threads (ulimit -u, pids.max)"
    )]
    Thread(#[source] std::io::Error),
}

/// Why a batch was not accepted; it comes back untouched.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// As many batches as the capacity allows wait for work or collection.
    #[error("the mover is full: batch {} has to wait", .0.id.0)]
    Full(Batch),
    /// The thread has failed (see [`Mover::failure`]) or ended.
    #[error("the mover is dead: batch {} cannot be moved", .0.id.0)]
    Dead(Batch),
}

/// The final state of a mover.
#[derive(Debug)]
pub struct Shutdown {
    /// Outcomes not yet collected; batches that were still queued end as not tried.
    pub outcomes: Vec<BatchOutcome>,
    /// Whether the thread has ended; if not, it is blocked in a system call and its current batch
    /// has no outcome here.
    pub finished: bool,
}

/// State shared by the thread and its owner.
#[derive(Default)]
struct Common {
    stop: AtomicBool,
    /// Another reserve, to be used from the next batch on.
    reserve: Mutex<Option<Reserve>>,
    /// Other scopes, to be used from the next batch on.
    scopes: Mutex<Option<Scopes>>,
    stats: Mutex<MoverStats>,
    failure: Mutex<Option<String>>,
    /// Messages not yet fetched.
    news: Mutex<Vec<String>>,
}

/// The owner's end of the mover.
pub struct Mover {
    queue: Option<SyncSender<Batch>>,
    done: Receiver<BatchOutcome>,
    common: Arc<Common>,
    capacity: usize,
    in_flight: usize,
    shared_pages: SharedPages,
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Mover {
    /// Starts the thread on the running kernel. `node_state` gives the state of a node right now,
    /// `None` where it cannot be read; it is called from the mover's thread before every batch.
    ///
    /// # Errors
    /// See [`MoverError`].
    pub fn start(
        config: MoverConfig,
        node_state: impl FnMut(NodeId) -> Option<NodeState> + Send + 'static,
    ) -> Result<Mover, MoverError> {
        let kernel = LiveKernel::new(&config.root, config.scopes.clone());
        Mover::start_on(kernel, config, node_state)
    }

    /// Starts the thread on any [`Kernel`].
    ///
    /// # Errors
    /// See [`MoverError`].
    pub fn start_on(
        kernel: impl Kernel + 'static,
        config: MoverConfig,
        node_state: impl FnMut(NodeId) -> Option<NodeState> + Send + 'static,
    ) -> Result<Mover, MoverError> {
        let me = Pid(std::process::id());
        if let Err(e @ MovePagesError::NotOffered) = kernel.query(me, &[], &mut []) {
            return Err(MoverError::NotOffered(e));
        }
        let worker = Worker::new(kernel, &config, Box::new(node_state));
        let shared_pages = worker.shared_pages();
        let capacity = config.capacity.max(1);
        let (queue, batches) = sync_channel(capacity);
        let (outcomes, done) = sync_channel(capacity);
        let common = Arc::new(Common::default());
        let theirs = Arc::clone(&common);
        std::thread::Builder::new()
            .name("mover".to_owned())
            .spawn(move || serve(worker, &batches, &outcomes, &theirs))
            .map_err(MoverError::Thread)?;
        Ok(Mover { queue: Some(queue), done, common, capacity, in_flight: 0, shared_pages })
    }

    /// Leaves this much memory free on targets from the next batch on.
    pub fn set_reserve(&self, reserve: Reserve) {
        *lock(&self.common.reserve) = Some(reserve);
    }

    /// Moves pages of processes in these scopes alone from the next batch on.
    pub fn set_scopes(&self, scopes: Scopes) {
        *lock(&self.common.scopes) = Some(scopes);
    }

    /// What is done with shared pages: as configured, but `Leave` where CAP_SYS_NICE is missing.
    pub fn shared_pages(&self) -> SharedPages {
        self.shared_pages
    }

    /// Hands over a batch and returns at once.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn submit(&mut self, batch: Batch) -> Result<(), Refused> {
        let Some(queue) = self.queue.as_ref().filter(|_| self.failure().is_none()) else {
            return Err(Refused::Dead(batch));
        };
        // Everything in flight fits into the channel of outcomes, so the thread never waits for its
        // owner.
        if self.in_flight >= self.capacity {
            return Err(Refused::Full(batch));
        }
        match queue.try_send(batch) {
            Ok(()) => {
                self.in_flight += 1;
                Ok(())
            }
            Err(TrySendError::Full(batch)) => Err(Refused::Full(batch)),
            Err(TrySendError::Disconnected(batch)) => Err(Refused::Dead(batch)),
        }
    }

    /// The outcomes that have arrived since the last call, in the order of submission.
    pub fn outcomes(&mut self) -> Vec<BatchOutcome> {
        let outcomes: Vec<BatchOutcome> = self.done.try_iter().collect();
        self.in_flight -= outcomes.len();
        outcomes
    }

    /// Waits for one outcome, for at most `bound`.
    pub fn wait(&mut self, bound: Duration) -> Option<BatchOutcome> {
        let outcome = self.done.recv_timeout(bound).ok()?;
        self.in_flight -= 1;
        Some(outcome)
    }

    /// Batches accepted and not yet collected.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The counters so far.
    pub fn stats(&self) -> MoverStats {
        *lock(&self.common.stats)
    }

    /// Processes that were set aside since the last call, because all their moves fail, and why.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.common.news))
    }

    /// Why the thread has failed, if it has; from then on every batch is refused, and the ones
    /// already accepted end as not tried.
    pub fn failure(&self) -> Option<String> {
        lock(&self.common.failure).clone()
    }

    /// Lets the thread finish its current batch, ends the others as not tried, and waits for the
    /// thread, for at most `bound`.
    pub fn shutdown(mut self, bound: Duration) -> Shutdown {
        let end = Instant::now() + bound;
        self.stop();
        let mut outcomes = Vec::new();
        loop {
            match self.done.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(outcome) => outcomes.push(outcome),
                Err(RecvTimeoutError::Timeout) => return Shutdown { outcomes, finished: false },
                Err(RecvTimeoutError::Disconnected) => return Shutdown { outcomes, finished: true },
            }
        }
    }

    fn stop(&mut self) {
        self.common.stop.store(true, Ordering::Relaxed);
        self.queue = None;
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads the state of single nodes, for [`Mover::start`].
pub fn node_states(mut reader: NodeStateReader) -> impl FnMut(NodeId) -> Option<NodeState> + Send + 'static {
    move |node| reader.read().ok()?.iter().find(|state| state.node == node).copied()
}

/// The thread: works until the queue's other end is dropped.
fn serve<K: Kernel>(
    mut worker: Worker<K>,
    batches: &Receiver<Batch>,
    outcomes: &SyncSender<BatchOutcome>,
    common: &Common,
) {
    for batch in batches {
        if let Some(reserve) = lock(&common.reserve).take() {
            worker.set_reserve(reserve);
        }
        if let Some(scopes) = lock(&common.scopes).take() {
            worker.set_scopes(scopes);
        }
        let mut stats = *lock(&common.stats);
        let idle = common.stop.load(Ordering::Relaxed) || lock(&common.failure).is_some();
        let result = if idle {
            Ok(vec![Outcome::NotTried; batch.moves.len()])
        } else {
            // After a panic the worker is not used again, so its incomplete state is never seen.
            catch_unwind(AssertUnwindSafe(|| worker.run(&batch, &mut stats)))
        };
        let ends = result.unwrap_or_else(|panic| {
            *lock(&common.failure) = Some(message(panic.as_ref()));
            vec![Outcome::NotTried; batch.moves.len()]
        });
        stats.batches += 1;
        for (end, m) in ends.iter().zip(&batch.moves) {
            stats.outcomes.add(*end, 1u64.checked_shl(m.order.into()).unwrap_or(0));
        }
        *lock(&common.stats) = stats;
        let news = worker.take_news();
        if !news.is_empty() {
            let mut waiting = lock(&common.news);
            // Messages that are not fetched are not kept for ever.
            waiting.truncate(NEWS_MAX);
            waiting.extend(news);
        }
        let outcome = BatchOutcome { id: batch.id, time: worker.now(), outcomes: ends };
        // It fails only when the owner is gone, and then the outcome is not needed.
        let _ = outcomes.send(outcome);
    }
}

/// No value behind these locks is ever half written: each is replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
