//! One batch, from the check of its process to the outcome of each move.

use thermocline_core::config::SharedPages;
use thermocline_core::moves::{Batch, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};

use super::kernel::Kernel;
use super::memory::{Identities, Stubborn};
use super::plan::{Item, plan};
use super::settle::{Progress, Status, UNWRITTEN, failure, progress, status, weight};
use super::{MoverConfig, MoverStats};
use crate::pagemap::PagemapError;
use crate::sys::{MovePagesError, MoveWhat};

/// Calls for one batch at most: a page that does not migrate ends a call, and those behind it need another.
const CALLS_MAX: usize = 4;

/// Reads the state of a node.
pub(super) type NodeReader = Box<dyn FnMut(NodeId) -> Option<NodeState> + Send>;

/// The thread's own: what it works with and what it remembers.
pub(super) struct Worker<K> {
    kernel: K,
    node_state: NodeReader,
    shared_pages: SharedPages,
    free_goal_pages: u64,
    pinned_after: u8,
    identities: Identities,
    stubborn: Stubborn,
}

impl<K: Kernel> Worker<K> {
    pub(super) fn new(kernel: K, config: &MoverConfig, node_state: NodeReader) -> Worker<K> {
        let may = kernel.may_move_shared();
        Worker {
            kernel,
            node_state,
            shared_pages: if may { config.shared_pages } else { SharedPages::Leave },
            free_goal_pages: config.free_goal_pages,
            pinned_after: config.pinned_after,
            identities: Identities::default(),
            stubborn: Stubborn::new(),
        }
    }

    pub(super) fn shared_pages(&self) -> SharedPages {
        self.shared_pages
    }

    pub(super) fn now(&self) -> Nanos {
        self.kernel.now()
    }

    /// Moves what can be moved; one outcome for each move, in order.
    pub(super) fn run(&mut self, batch: &Batch, stats: &mut MoverStats) -> Vec<Outcome> {
        let start = self.kernel.now();
        let mut ends = Ends::new(batch.moves.len());
        if let Err(outcome) = self.try_run(batch, &mut ends, stats) {
            ends.rest(outcome);
        }
        stats.batch_time = stats.batch_time.plus(self.kernel.now().since(start));
        ends.finish()
    }

    /// The steps; an error is the outcome of every move that has none yet.
    fn try_run(&mut self, batch: &Batch, ends: &mut Ends, stats: &mut MoverStats) -> Result<(), Outcome> {
        self.check_process(batch.pid, stats)?;
        let plan = plan(&self.kernel, batch, self.shared_pages).map_err(|e| match e {
            PagemapError::Gone(_) => Outcome::Gone,
            PagemapError::NotPermitted(_) => Outcome::NoPermission,
            PagemapError::Io(..) => {
                stats.other_errors += 1;
                Outcome::NotTried
            }
        })?;
        stats.frames_hidden += plan.frames_hidden;
        for (of, outcome) in plan.ended {
            ends.end(of, outcome);
        }
        let items = self.on_their_node(batch, plan.items, ends, stats)?;
        let mut items = self.admit(batch, items, ends, stats);
        items.sort_by_key(|item| item.page.vpn);
        self.move_items(batch, items, ends, stats);
        Ok(())
    }

    /// The process that the batch is about must be the one that has its number.
    fn check_process(&mut self, pid: Pid, stats: &mut MoverStats) -> Result<(), Outcome> {
        match self.kernel.start_time(pid) {
            Ok(Some(start)) if self.identities.same(pid, start) => Ok(()),
            Ok(Some(_)) => {
                stats.reused_pids += 1;
                Err(Outcome::Gone)
            }
            Ok(None) => {
                self.identities.forget(pid);
                Err(Outcome::Gone)
            }
            Err(_) => {
                stats.other_errors += 1;
                Err(Outcome::NotTried)
            }
        }
    }

    /// Keeps the items that are on the node where the evidence saw them.
    fn on_their_node(
        &mut self,
        batch: &Batch,
        items: Vec<Item>,
        ends: &mut Ends,
        stats: &mut MoverStats,
    ) -> Result<Vec<Item>, Outcome> {
        let addresses: Vec<u64> = items.iter().map(|item| item.page.address()).collect();
        let nodes = self.query(batch.pid, &addresses, stats)?;
        let mut kept = Vec::with_capacity(items.len());
        for (item, node) in items.into_iter().zip(nodes) {
            match status(node) {
                Status::On(node) if node == batch.target => ends.end(item.of, Outcome::AlreadyThere),
                Status::On(node) if node == batch.moves[item.of].from => kept.push(item),
                Status::On(_) => ends.end(item.of, Outcome::OtherNode),
                Status::End(outcome) => ends.end(item.of, outcome),
                Status::Stuck => ends.end(item.of, Outcome::Busy),
                Status::Unknown => {
                    stats.other_errors += 1;
                    ends.end(item.of, Outcome::NotTried);
                }
            }
        }
        Ok(kept)
    }

    /// Keeps the items for which the target has room above its high watermark and the goal, so that the kernel never has
    /// to reclaim for them: move_pages itself would.
    fn admit(
        &mut self,
        batch: &Batch,
        items: Vec<Item>,
        ends: &mut Ends,
        stats: &mut MoverStats,
    ) -> Vec<Item> {
        if items.is_empty() {
            return items;
        }
        let Some(state) = (self.node_state)(batch.target) else {
            stats.state_unknown += items.len() as u64;
            ends.all(&items, Outcome::NotTried);
            return Vec::new();
        };
        let keep_free = state.watermarks.high_pages.saturating_add(self.free_goal_pages);
        let mut room = state.free_pages.saturating_sub(keep_free);
        let mut kept = Vec::with_capacity(items.len());
        for item in items {
            match room.checked_sub(item.pages) {
                Some(rest) => {
                    room = rest;
                    kept.push(item);
                }
                None => ends.end(item.of, Outcome::NodeFull),
            }
        }
        kept
    }

    /// Calls the kernel until every item has an end or the calls are used up.
    fn move_items(&mut self, batch: &Batch, mut items: Vec<Item>, ends: &mut Ends, stats: &mut MoverStats) {
        for _ in 0..CALLS_MAX {
            if items.is_empty() {
                return;
            }
            let (result, statuses) = self.call(batch, &items, stats);
            if result == Ok(0) {
                for (item, value) in items.iter().zip(statuses) {
                    self.end_by_status(batch.target, item, value, ends, stats);
                }
                return;
            }
            items = match self.places(batch, &items, stats) {
                Ok(places) => self.after_stop(batch, items, result, &statuses, &places, ends, stats),
                Err(outcome) => return ends.all(&items, outcome),
            };
        }
        ends.all(&items, Outcome::NotTried);
    }

    fn call(
        &mut self,
        batch: &Batch,
        items: &[Item],
        stats: &mut MoverStats,
    ) -> (Result<u64, MovePagesError>, Vec<i32>) {
        let addresses: Vec<u64> = items.iter().map(|item| item.page.address()).collect();
        let what = match self.shared_pages {
            SharedPages::Move => MoveWhat::Shared,
            SharedPages::Leave => MoveWhat::Own,
        };
        let mut statuses = vec![UNWRITTEN; items.len()];
        let start = self.kernel.now();
        let result = self.kernel.move_pages(batch.pid, &addresses, batch.target, what, &mut statuses);
        stats.move_time = stats.move_time.plus(self.kernel.now().since(start));
        stats.calls += 1;
        stats.pages_asked += items.iter().map(|item| item.pages).sum::<u64>();
        (result, statuses)
    }

    /// The call did not move everything. What moved all the same is found by its place, the rest by status or error.
    /// Returns the items that the kernel did not come to and that another call may move.
    #[expect(clippy::too_many_arguments, reason = "one place where everything about a call comes together")]
    fn after_stop(
        &mut self,
        batch: &Batch,
        items: Vec<Item>,
        result: Result<u64, MovePagesError>,
        statuses: &[i32],
        places: &[Place],
        ends: &mut Ends,
        stats: &mut MoverStats,
    ) -> Vec<Item> {
        let failed = result.err().map(|error| end_of_call(error, stats));
        let mut again = Vec::new();
        for ((item, place), progress) in items.into_iter().zip(places).zip(progress(statuses)) {
            match (place, progress, failed) {
                (Place::Target, ..) => ends.end(item.of, Outcome::Moved),
                (Place::Unmapped, ..) => ends.end(item.of, Outcome::Gone),
                (Place::Elsewhere, Progress::Written(value), _) => {
                    self.end_by_status(batch.target, &item, value, ends, stats);
                }
                (Place::Elsewhere, _, Some(outcome)) => ends.end(item.of, outcome),
                (Place::Elsewhere, Progress::Tried, None) => ends.end(item.of, self.busy_or_pinned(&item)),
                (Place::Elsewhere, Progress::NotReached, None) => again.push(item),
            }
        }
        again
    }

    fn end_by_status(
        &mut self,
        target: NodeId,
        item: &Item,
        value: i32,
        ends: &mut Ends,
        stats: &mut MoverStats,
    ) {
        let outcome = match status(value) {
            Status::On(node) if node == target => Outcome::Moved,
            Status::On(_) => Outcome::OtherNode,
            Status::End(outcome) => outcome,
            Status::Stuck => self.busy_or_pinned(item),
            Status::Unknown => {
                stats.other_errors += 1;
                Outcome::NotTried
            }
        };
        ends.end(item.of, outcome);
    }

    /// Where the items are now, looked at in every page that they are mapped at: a folio for which the target had no block
    /// of its size is split by the kernel and may have moved in part.
    fn places(
        &mut self,
        batch: &Batch,
        items: &[Item],
        stats: &mut MoverStats,
    ) -> Result<Vec<Place>, Outcome> {
        let pid = batch.pid;
        let vpns = items.iter().flat_map(|item| item.vpns.clone());
        let addresses: Vec<u64> = vpns.map(|vpn| VirtPage { pid, vpn }.address()).collect();
        let nodes = self.query(pid, &addresses, stats)?;
        let mut rest = nodes.as_slice();
        let places = items.iter().map(|item| {
            let (its, behind) = rest.split_at((item.vpns.end - item.vpns.start) as usize);
            rest = behind;
            Place::of(its, batch.target)
        });
        Ok(places.collect())
    }

    /// The node of the page at each address, or a negative errno.
    fn query(&mut self, pid: Pid, addresses: &[u64], stats: &mut MoverStats) -> Result<Vec<i32>, Outcome> {
        let mut nodes = vec![UNWRITTEN; addresses.len()];
        if addresses.is_empty() {
            return Ok(nodes);
        }
        stats.queries += 1;
        match self.kernel.query(pid, addresses, &mut nodes) {
            Ok(()) => Ok(nodes),
            Err(error) => Err(end_of_call(error, stats)),
        }
    }

    /// The kernel says of a page that does not move only that it does not. A lock or writeback passes; a page that fails
    /// again and again without either is held by something that user space cannot see, which is what a pin looks like.
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

/// The outcome of all that a failed call did not do.
fn end_of_call(error: MovePagesError, stats: &mut MoverStats) -> Outcome {
    failure(error).unwrap_or_else(|| {
        stats.other_errors += 1;
        Outcome::NotTried
    })
}

/// Where the pages of an item are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// All that are mapped are on the target.
    Target,
    /// Some are not.
    Elsewhere,
    /// None is mapped.
    Unmapped,
}

impl Place {
    /// From the answers to a query of each page.
    fn of(nodes: &[i32], target: NodeId) -> Place {
        let mut mapped = nodes.iter().filter(|&&node| node >= 0).peekable();
        if mapped.peek().is_none() {
            Place::Unmapped
        } else if mapped.all(|&node| node == i32::from(target.0)) {
            Place::Target
        } else {
            Place::Elsewhere
        }
    }
}

/// The outcomes of a batch while they come in.
struct Ends(Vec<Option<Outcome>>);

impl Ends {
    fn new(moves: usize) -> Ends {
        Ends(vec![None; moves])
    }

    /// One page of a move has ended; the weightiest end of its pages stands.
    fn end(&mut self, of: usize, outcome: Outcome) {
        let end = &mut self.0[of];
        if end.is_none_or(|before| weight(before) < weight(outcome)) {
            *end = Some(outcome);
        }
    }

    /// All these items have ended alike.
    fn all(&mut self, items: &[Item], outcome: Outcome) {
        items.iter().for_each(|item| self.end(item.of, outcome));
    }

    /// Every move without an end has this one.
    fn rest(&mut self, outcome: Outcome) {
        for end in &mut self.0 {
            end.get_or_insert(outcome);
        }
    }

    /// A move without any page left is gone.
    fn finish(self) -> Vec<Outcome> {
        self.0.into_iter().map(|end| end.unwrap_or(Outcome::Gone)).collect()
    }
}
