//! One batch, from the check of its process to the outcome of each move.

use thermocline_core::access::Membership;
use thermocline_core::config::SharedPages;
use thermocline_core::limit::Reserve;
use thermocline_core::moves::{Batch, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, VirtPage};

use super::barred::Barred;
use super::kernel::Kernel;
use super::memory::{Identities, Stubborn};
use super::plan::{Item, plan};
use super::policy::Policies;
use super::settle::{Ends, Place, Progress, Status, UNWRITTEN, failure, progress, status};
use super::{MoverConfig, MoverStats};
use crate::pagemap::PagemapError;
use crate::scope::Scopes;
use crate::sys::{MovePagesError, MoveWhat};

/// Maximum number of calls for one batch: a page that does not migrate ends a call, and those after
/// it need another.
const CALLS_MAX: usize = 4;

/// Reads the state of a node.
pub(super) type NodeReader = Box<dyn FnMut(NodeId) -> Option<NodeState> + Send>;

/// The thread's own state.
pub(super) struct Worker<K> {
    kernel: K,
    node_state: NodeReader,
    shared_pages: SharedPages,
    reserve: Reserve,
    pinned_after: u8,
    identities: Identities,
    stubborn: Stubborn,
    policies: Policies,
    barred: Barred,
}

/// A batch in progress.
struct Task<'a> {
    batch: &'a Batch,
    ends: Ends,
    stats: &'a mut MoverStats,
}

/// The answer of a call that moves.
struct Answer {
    result: Result<u64, MovePagesError>,
    /// One for each item; see [`progress`].
    statuses: Vec<i32>,
}

impl<K: Kernel> Worker<K> {
    pub(super) fn new(kernel: K, config: &MoverConfig, node_state: NodeReader) -> Worker<K> {
        let may = kernel.may_move_shared();
        Worker {
            kernel,
            node_state,
            shared_pages: if may { config.shared_pages } else { SharedPages::Leave },
            reserve: config.reserve,
            pinned_after: config.pinned_after,
            identities: Identities::default(),
            stubborn: Stubborn::new(),
            policies: Policies::new(config.memory_policies),
            barred: Barred::default(),
        }
    }

    pub(super) fn set_reserve(&mut self, reserve: Reserve) {
        self.reserve = reserve;
    }

    pub(super) fn set_scopes(&mut self, scopes: Scopes) {
        self.kernel.set_scopes(scopes);
    }

    pub(super) fn shared_pages(&self) -> SharedPages {
        self.shared_pages
    }

    /// Processes that were set aside since the last call, and why.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        self.barred.take_news()
    }

    pub(super) fn now(&self) -> Nanos {
        self.kernel.now()
    }

    /// Moves what can be moved; one outcome for each move, in order.
    pub(super) fn run(&mut self, batch: &Batch, stats: &mut MoverStats) -> Vec<Outcome> {
        let start = self.kernel.now();
        let mut task = Task { batch, ends: Ends::new(batch.moves.len()), stats };
        if let Err(outcome) = self.steps(&mut task) {
            task.ends.rest(outcome);
        }
        let Task { ends, stats, .. } = task;
        stats.batch_time = stats.batch_time.plus(self.kernel.now().since(start));
        ends.finish()
    }

    /// An error is the outcome of every move that has none yet.
    fn steps(&mut self, task: &mut Task<'_>) -> Result<(), Outcome> {
        self.check_process(task)?;
        if self.barred.holds(task.batch.pid, task.batch.target, self.kernel.now()) {
            return Err(Outcome::NoPermission);
        }
        let plan = plan(&self.kernel, task.batch, self.shared_pages).map_err(|e| match e {
            PagemapError::Gone(_) => Outcome::Gone,
            PagemapError::NotPermitted(_) => Outcome::NoPermission,
            PagemapError::Io(..) => task.unknown(),
        })?;
        task.stats.frames_hidden += plan.frames_hidden;
        for (of, outcome) in plan.ended {
            task.ends.end(of, outcome);
        }
        let items = self.on_their_node(task, plan.items)?;
        let items = self.allowed_there(task, items)?;
        let mut items = self.admit(task, items);
        items.sort_by_key(|item| item.page.vpn);
        self.move_items(task, items);
        Ok(())
    }

    /// The process that the batch is about must be the one that has its number.
    fn check_process(&mut self, task: &mut Task<'_>) -> Result<(), Outcome> {
        let pid = task.batch.pid;
        match self.kernel.start_time(pid) {
            Ok(Some(start)) if self.identities.same(pid, start) => match self.kernel.membership(pid) {
                Ok(Membership::Managed(_)) => Ok(()),
                Ok(Membership::Excluded | Membership::Unexamined) => Err(Outcome::Excluded),
                Err(_) => Err(task.unknown()),
            },
            Ok(Some(_)) => {
                task.stats.reused_pids += 1;
                self.policies.forget(pid);
                self.barred.forget(pid);
                Err(Outcome::Gone)
            }
            Ok(None) => {
                self.identities.forget(pid);
                self.policies.forget(pid);
                self.barred.forget(pid);
                Err(Outcome::Gone)
            }
            Err(_) => Err(task.unknown()),
        }
    }

    /// Keeps the items that are on the node where the evidence saw them.
    fn on_their_node(&mut self, task: &mut Task<'_>, items: Vec<Item>) -> Result<Vec<Item>, Outcome> {
        let addresses: Vec<u64> = items.iter().map(|item| item.page.address()).collect();
        let nodes = self.query(task, &addresses)?;
        let mut kept = Vec::with_capacity(items.len());
        for (item, node) in items.into_iter().zip(nodes) {
            let outcome = match status(node) {
                Status::On(node) if node == task.batch.target => Outcome::AlreadyThere,
                Status::On(node) if node != task.batch.moves[item.of].from => Outcome::OtherNode,
                Status::On(_) if item.stale => Outcome::OtherPage,
                Status::On(_) => {
                    kept.push(item);
                    continue;
                }
                Status::End(outcome) => outcome,
                Status::Stuck => Outcome::Busy,
                Status::Unknown => task.unknown(),
            };
            task.ends.end(item.of, outcome);
        }
        Ok(kept)
    }

    /// Keeps the items that no memory policy binds to their node: move_pages would ignore the
    /// policy.
    fn allowed_there(&mut self, task: &mut Task<'_>, items: Vec<Item>) -> Result<Vec<Item>, Outcome> {
        if items.is_empty() {
            return Ok(items);
        }
        let Batch { pid, target, .. } = *task.batch;
        self.policies.look(&self.kernel, pid).map_err(|_| task.unknown())?;
        let (bound, free): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| self.policies.forbid(pid, item.page.address(), target));
        task.ends.all(&bound, Outcome::Mempolicy);
        Ok(free)
    }

    /// Keeps the items for which the target has room above its high watermark and the goal, so that
    /// the kernel never has to reclaim for them: move_pages itself would.
    fn admit(&mut self, task: &mut Task<'_>, items: Vec<Item>) -> Vec<Item> {
        if items.is_empty() {
            return items;
        }
        let Some(state) = (self.node_state)(task.batch.target) else {
            task.stats.state_unknown += items.len() as u64;
            task.ends.all(&items, Outcome::NotTried);
            return Vec::new();
        };
        let mut room = state.free_pages.saturating_sub(self.reserve.floor(&state));
        let mut kept = Vec::with_capacity(items.len());
        for item in items {
            match room.checked_sub(item.pages) {
                Some(rest) => {
                    room = rest;
                    kept.push(item);
                }
                None => task.ends.end(item.of, Outcome::NodeFull),
            }
        }
        kept
    }

    /// Calls the kernel until every item has an end or the calls are used up.
    fn move_items(&mut self, task: &mut Task<'_>, mut items: Vec<Item>) {
        for _ in 0..CALLS_MAX {
            if items.is_empty() {
                return;
            }
            let answer = self.call(task, &items);
            if answer.result == Ok(0) {
                for (item, value) in items.iter().zip(answer.statuses) {
                    self.end_by_status(task, item, value);
                }
                return;
            }
            items = match self.places(task, &items) {
                Ok(places) => self.after_stop(task, items, &answer, &places),
                Err(outcome) => return task.ends.all(&items, outcome),
            };
        }
        task.ends.all(&items, Outcome::NotTried);
    }

    fn call(&mut self, task: &mut Task<'_>, items: &[Item]) -> Answer {
        let addresses: Vec<u64> = items.iter().map(|item| item.page.address()).collect();
        let what = match self.shared_pages {
            SharedPages::Move => MoveWhat::Shared,
            SharedPages::Leave => MoveWhat::Own,
        };
        let Batch { pid, target, .. } = *task.batch;
        let mut statuses = vec![UNWRITTEN; items.len()];
        let start = self.kernel.now();
        let result = self.kernel.move_pages(pid, &addresses, target, what, &mut statuses);
        task.stats.move_time = task.stats.move_time.plus(self.kernel.now().since(start));
        task.stats.calls += 1;
        task.stats.pages_asked += items.iter().map(|item| item.pages).sum::<u64>();
        if result == Ok(0) {
            self.barred.succeeded(pid, target);
        }
        Answer { result, statuses }
    }

    /// The call did not move everything. Items that moved nevertheless are recognised by their
    /// node, the rest get an outcome from status or error. Returns the items that the kernel did
    /// not reach and that another call may move.
    fn after_stop(
        &mut self,
        task: &mut Task<'_>,
        items: Vec<Item>,
        answer: &Answer,
        places: &[Place],
    ) -> Vec<Item> {
        let failed = answer.result.err().map(|error| self.failed(task, error));
        let mut again = Vec::new();
        for ((item, place), progress) in items.into_iter().zip(places).zip(progress(&answer.statuses)) {
            match (place, progress, failed) {
                (Place::Target, ..) => task.ends.end(item.of, Outcome::Moved),
                (Place::Unmapped, ..) => task.ends.end(item.of, Outcome::Gone),
                (Place::Elsewhere, Progress::Written(value), _) => self.end_by_status(task, &item, value),
                (Place::Elsewhere, _, Some(outcome)) => task.ends.end(item.of, outcome),
                (Place::Elsewhere, Progress::Tried, None) => {
                    let outcome = self.busy_or_pinned(&item);
                    task.ends.end(item.of, outcome);
                }
                (Place::Elsewhere, Progress::NotReached, None) => again.push(item),
            }
        }
        again
    }

    fn end_by_status(&mut self, task: &mut Task<'_>, item: &Item, value: i32) {
        let outcome = match status(value) {
            Status::On(node) if node == task.batch.target => Outcome::Moved,
            Status::On(_) => Outcome::OtherNode,
            Status::End(outcome) => outcome,
            Status::Stuck => self.busy_or_pinned(item),
            Status::Unknown => task.unknown(),
        };
        task.ends.end(item.of, outcome);
    }

    /// The present place of the items, queried for every page that they are mapped at: a folio for
    /// which the target had no block of its size is split by the kernel and may have moved in part.
    fn places(&mut self, task: &mut Task<'_>, items: &[Item]) -> Result<Vec<Place>, Outcome> {
        let pid = task.batch.pid;
        let vpns = items.iter().flat_map(|item| item.vpns.clone());
        let addresses: Vec<u64> = vpns.map(|vpn| VirtPage { pid, vpn }.address()).collect();
        let nodes = self.query(task, &addresses)?;
        let mut rest = nodes.as_slice();
        let places = items.iter().map(|item| {
            let (its, behind) = rest.split_at((item.vpns.end - item.vpns.start) as usize);
            rest = behind;
            Place::of(its, task.batch.target)
        });
        Ok(places.collect())
    }

    /// The node of the page at each address, or a negative errno.
    fn query(&mut self, task: &mut Task<'_>, addresses: &[u64]) -> Result<Vec<i32>, Outcome> {
        let mut nodes = vec![UNWRITTEN; addresses.len()];
        if !addresses.is_empty() {
            task.stats.queries += 1;
            let answer = self.kernel.query(task.batch.pid, addresses, &mut nodes);
            answer.map_err(|error| self.failed(task, error))?;
        }
        Ok(nodes)
    }

    /// The outcome of everything that a failed call did not do.
    fn failed(&mut self, task: &mut Task<'_>, error: MovePagesError) -> Outcome {
        self.barred.failed(task.batch.pid, task.batch.target, error, self.kernel.now());
        failure(error).unwrap_or_else(|| task.unknown())
    }

    /// For a page that does not move, the kernel gives no reason. A lock or writeback is temporary.
    /// A page that fails repeatedly without either is held by something invisible to user space,
    /// most likely a pin.
    fn busy_or_pinned(&mut self, item: &Item) -> Outcome {
        let flags = item.pfn.and_then(|pfn| self.kernel.flags(pfn));
        if flags.is_some_and(|f| f.locked() || f.writeback()) {
            return Outcome::Busy;
        }
        if self.stubborn.failed(item.page, item.pfn) >= self.pinned_after {
            Outcome::Pinned
        } else {
            Outcome::Busy
        }
    }
}

impl Task<'_> {
    /// Something failed in a way that no outcome names.
    fn unknown(&mut self) -> Outcome {
        self.stats.other_errors += 1;
        Outcome::NotTried
    }
}
