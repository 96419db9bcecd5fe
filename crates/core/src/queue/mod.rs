//! The candidate queue: bounded, highest rank first, first come first served within a rank.
//!
//! A page has one entry; proposing it again renews the entry, in which the estimates of all sources
//! are [weighed](crate::weigh). If the queue is full, the lowest rank is evicted, and among equal
//! ranks the latest. No source can crowd out the others: each may hold an equal share of the places
//! regardless of ranks, and loses entries to sources that hold less than their share. Entries wait
//! in lanes ([`LaneKey`]): a full node, a used-up share or a closed direction blocks whole lanes,
//! so one check suffices. A page that was tried and may be tried again is parked until its time.
//! Every operation costs a hash look-up and a step in two small trees.

mod lane;
mod slab;

use std::collections::{BTreeMap, BTreeSet};

pub use lane::{LaneKey, Turn};

use crate::access::Source;
use crate::admission::Admitted;
use crate::hash::FixedMap;
use crate::index::{Index, Tag};
use crate::moves::Direction;
use crate::queue::lane::Lane;
use crate::queue::slab::{List, NIL, Slab, Thread};
use crate::refusal::RefusalReason;
use crate::units::{Nanos, Pid, ScopeId, VirtPage};
use crate::weigh::{Weighed, Weights};

/// A candidate that waits, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    admitted: Admitted,
    /// The highest goes first.
    rank: u32,
    /// The source whose estimate counts most.
    chief: Source,
    /// When it may be tried again, while it is parked.
    not_before: Option<Nanos>,
    /// What held it when it was last looked at.
    held: Option<RefusalReason>,
}

impl Entry {
    fn new(admitted: &Admitted, not_before: Option<Nanos>, weights: &Weights) -> Entry {
        let weighed = admitted.estimates.weigh(weights);
        let Weighed { score, rank, chief } = weighed.unwrap_or(Weighed::of(&admitted.candidate));
        Entry { admitted: Admitted { score, ..*admitted }, rank, chief, not_before, held: None }
    }

    fn lane(&self) -> LaneKey {
        let Admitted { candidate, scope, route, .. } = self.admitted;
        LaneKey { direction: candidate.direction, scope, route, source: self.chief }
    }
}

/// The result of offering a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It waits.
    Queued,
    /// The page waited already; its entry has been renewed.
    Merged,
    /// It waits in the place of this one, which had the lowest rank of those that may be evicted.
    Displaced(Box<Admitted>),
    /// The queue is full of candidates with ranks as high, and its source has its share of them.
    Full,
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    capacity: usize,
    weights: Weights,
    slab: Slab,
    index: Index,
    processes: FixedMap<Pid, List>,
    lanes: BTreeMap<LaneKey, Lane>,
    parked: BTreeSet<(Nanos, u32)>,
    joins: u64,
    hand: u32,
}

/// A sweep for expired entries laps the queue in this many ticks.
const SWEEP_LAP_TICKS: u32 = 16;
/// Slots that a sweep looks at at least: a small queue is swept in one go.
const SWEEP_SLOTS_MIN: u32 = 1024;

impl Queue {
    /// An empty queue of at most `capacity` candidates; memory is taken as it fills.
    pub fn new(capacity: u32, weights: Weights) -> Queue {
        Queue {
            capacity: capacity as usize,
            weights,
            slab: Slab::default(),
            index: Index::default(),
            processes: FixedMap::default(),
            lanes: BTreeMap::new(),
            parked: BTreeSet::new(),
            joins: 0,
            hand: 0,
        }
    }

    /// Takes other weights; a waiting candidate keeps its rank until its page is proposed again.
    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
    }

    /// Candidates that wait, parked ones included.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no candidate waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Candidates that wait for their next try.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.index.bytes() + self.parked.len() * size_of::<(Nanos, u32)>()
    }

    /// The candidate of a page.
    pub fn get(&self, page: VirtPage) -> Option<&Admitted> {
        self.entry(page).map(|entry| &entry.admitted)
    }

    fn entry(&self, page: VirtPage) -> Option<&Entry> {
        self.slab.get(self.find(page)?)
    }

    fn find(&self, page: VirtPage) -> Option<u32> {
        let is = |at| self.slab.get(at).is_some_and(|entry| entry.admitted.page == page);
        self.index.find(Tag::of(page), is)
    }

    /// Asks the CPU for what the next look-up of a page needs.
    #[inline]
    pub fn prefetch(&self, page: VirtPage) {
        self.index.prefetch(Tag::of(page));
    }

    /// Asks the CPU for the candidate whose turn it will be, and for the one behind it.
    pub fn prefetch_turn(&self, turn: Turn) {
        for slot in [turn.slot, self.slab.next(Thread::Rank, turn.slot)] {
            if slot != NIL {
                self.slab.prefetch(slot);
                self.index.prefetch(self.slab.tag(slot));
            }
        }
    }

    /// What holds the page: the lane's reason where the whole lane is held, else its own.
    pub fn held(&self, page: VirtPage) -> Option<RefusalReason> {
        self.reason_of(self.entry(page)?)
    }

    /// The candidates of a process, in the order in which they came in, each with what holds it.
    pub fn of(&self, pid: Pid) -> impl Iterator<Item = (&Admitted, Option<RefusalReason>)> {
        let first = self.processes.get(&pid).map(|list| list.head);
        let next = |at: &u32| Some(self.slab.next(Thread::Process, *at)).filter(|next| *next != NIL);
        let its = std::iter::successors(first, next);
        its.filter_map(|at| self.slab.get(at)).map(|entry| (&entry.admitted, self.reason_of(entry)))
    }

    /// Takes a candidate in, or renews the entry of its page. One that was tried is parked until
    /// `not_before`.
    pub fn offer(&mut self, admitted: &Admitted, not_before: Option<Nanos>) -> Offer {
        if let Some(at) = self.find(admitted.page) {
            self.renew(at, admitted);
            return Offer::Merged;
        }
        let entry = Entry::new(admitted, not_before, &self.weights);
        if self.len() < self.capacity {
            self.insert(&entry);
            return Offer::Queued;
        }
        match self.giving_way(&entry) {
            Some(at) => {
                let displaced = self.take_slot(at);
                self.insert(&entry);
                displaced.map_or(Offer::Queued, |gone| Offer::Displaced(Box::new(gone)))
            }
            None => Offer::Full,
        }
    }

    /// Takes the entry of a page out.
    pub fn remove(&mut self, page: VirtPage) -> Option<Admitted> {
        let at = self.find(page)?;
        self.take_slot(at)
    }

    /// Takes the entries of a process out, in the order in which they came in.
    pub fn remove_process(&mut self, pid: Pid) -> Vec<Admitted> {
        let mut out = Vec::new();
        while let Some(list) = self.processes.get(&pid).copied() {
            out.extend(self.take_slot(list.head));
        }
        out
    }

    /// Takes all entries out, oldest first, each with the time of its next try if it is parked.
    pub fn drain(&mut self) -> Vec<(Admitted, Option<Nanos>)> {
        let entry = |at| self.slab.get(at).map(|e| (self.slab.turn(at).seq, at, e.not_before));
        let mut all: Vec<(u64, u32, Option<Nanos>)> = (0..self.slab.high()).filter_map(entry).collect();
        all.sort_unstable();
        all.into_iter().filter_map(|(_, at, due)| Some((self.take_slot(at)?, due))).collect()
    }

    /// Returns parked entries whose time has come to their lanes.
    pub fn wake(&mut self, now: Nanos) {
        while let Some(&(due, at)) = self.parked.first() {
            if due > now {
                break;
            }
            self.parked.pop_first();
            if let Some(entry) = self.slab.get_mut(at) {
                entry.not_before = None;
                entry.held = None;
                let (key, rank) = (entry.lane(), entry.rank);
                self.join(at, key, rank);
            }
        }
    }

    /// Takes out expired entries within this tick's part of the lap, with what held each.
    pub fn sweep(&mut self, now: Nanos) -> Vec<(Admitted, Option<RefusalReason>)> {
        let high = self.slab.high();
        let mut out = Vec::new();
        for _ in 0..(high / SWEEP_LAP_TICKS).max(SWEEP_SLOTS_MIN).min(high) {
            if self.hand >= high {
                self.hand = 0;
            }
            let at = self.hand;
            self.hand += 1;
            if self.slab.has_expired(at, now) {
                out.extend(self.take_expired(at));
            }
        }
        out
    }

    /// Returns the best turn of every lane, and clears what held the lanes at the last tick.
    pub fn heads(&mut self) -> Vec<(LaneKey, Turn)> {
        let mut out = Vec::with_capacity(self.lanes.len());
        for (key, lane) in &mut self.lanes {
            lane.held = None;
            if let Some(list) = lane.lists.values().next_back() {
                out.push((*key, self.slab.turn(list.head)));
            }
        }
        out
    }

    /// The turn after `turn` in its lane; ask before taking the entry of `turn`.
    pub fn after(&self, key: LaneKey, turn_now: Turn) -> Option<Turn> {
        let next = self.slab.next(Thread::Rank, turn_now.slot);
        if next != NIL {
            return Some(self.slab.turn(next));
        }
        let (_, list) = self.lanes.get(&key)?.lists.range(..turn_now.rank).next_back()?;
        Some(self.slab.turn(list.head))
    }

    /// The candidate whose turn it is.
    pub fn at(&self, turn: Turn) -> Option<&Admitted> {
        self.slab.get(turn.slot).map(|entry| &entry.admitted)
    }

    /// What held the entry whose turn it is when it was last looked at.
    pub fn held_at(&self, turn: Turn) -> Option<RefusalReason> {
        self.slab.get(turn.slot)?.held
    }

    /// Takes out the candidate whose turn it is.
    pub fn take(&mut self, turn: Turn) {
        if self.free_slot(turn.slot).is_some() {
            self.slab.forget(turn.slot);
        }
    }

    /// Records what holds the entry; returns whether that has changed.
    pub fn hold(&mut self, turn: Turn, reason: RefusalReason) -> bool {
        let Some(entry) = self.slab.get_mut(turn.slot) else { return false };
        entry.held.replace(reason) != Some(reason)
    }

    /// Records what holds the whole lane until the next tick.
    pub fn hold_lane(&mut self, key: LaneKey, reason: RefusalReason) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.held = Some(reason);
        }
    }

    /// Candidates that wait now, by what holds them (`None`: nothing yet); parked ones count as
    /// [`RefusalReason::Retry`], entries of a lane that is not held as a whole count as `None`.
    pub fn waiting(&self) -> BTreeMap<Option<RefusalReason>, u64> {
        let mut out = BTreeMap::new();
        for lane in self.lanes.values() {
            *out.entry(lane.held).or_insert(0) += lane.len as u64;
        }
        if !self.parked.is_empty() {
            out.insert(Some(RefusalReason::Retry), self.parked.len() as u64);
        }
        out
    }

    /// Base pages of a scope that wait to be promoted, by what holds their lane.
    pub fn waiting_of(&self, scope: ScopeId) -> BTreeMap<Option<RefusalReason>, u64> {
        let mut out = BTreeMap::new();
        for (key, lane) in &self.lanes {
            if key.direction == Direction::Promote && key.scope == scope {
                *out.entry(lane.held).or_insert(0) += lane.pages;
            }
        }
        out
    }

    /// Lanes that only a lack of free memory holds: for the hottest one in `of` of each lane's
    /// candidates, their number and the score of the last of them. They go first, and colder ones
    /// do not keep them waiting.
    pub fn without_room(&self, of: impl Fn(LaneKey) -> u64) -> impl Iterator<Item = (LaneKey, u64, u16)> {
        let for_room =
            |lane: &&Lane| matches!(lane.held, Some(RefusalReason::NodeFull | RefusalReason::BelowGoal));
        self.lanes.iter().filter(move |(_, lane)| for_room(lane)).filter_map(move |(key, lane)| {
            let hottest = (lane.len as u64).div_ceil(of(*key));
            let mut best = 0;
            for list in lane.lists.values().rev() {
                best += u64::from(list.len);
                if best >= hottest {
                    return Some((*key, best, self.slab.get(list.tail)?.admitted.score));
                }
            }
            None
        })
    }

    /// Base pages of each scope that wait to be promoted and that nothing holds but a lack of room,
    /// of rate, or of places in flight: what the scope would hold more if it could.
    pub fn wanting(&self) -> BTreeMap<ScopeId, u64> {
        use RefusalReason::{BatchesInFlight, BelowGoal, KeptForShare, NodeFull, NodeUnknown, RateLimited};
        let mut out = BTreeMap::new();
        for (key, lane) in self.lanes.iter().filter(|(key, _)| key.direction == Direction::Promote) {
            let first = lane.lists.values().next_back().and_then(|list| self.slab.get(list.head));
            let held = lane.held.or(first.and_then(|entry| entry.held));
            let for_room = |held| {
                matches!(
                    held,
                    NodeFull | BelowGoal | NodeUnknown | RateLimited | BatchesInFlight | KeptForShare
                )
            };
            if held.is_none_or(for_room) {
                *out.entry(key.scope).or_insert(0) += lane.pages;
            }
        }
        out
    }

    fn reason_of(&self, entry: &Entry) -> Option<RefusalReason> {
        if entry.not_before.is_some() {
            return Some(RefusalReason::Retry);
        }
        self.lanes.get(&entry.lane()).and_then(|lane| lane.held).or(entry.held)
    }

    fn take_expired(&mut self, at: u32) -> Option<(Admitted, Option<RefusalReason>)> {
        let reason = self.reason_of(self.slab.get(at)?);
        self.take_slot(at).map(|entry| (entry, reason))
    }

    fn insert(&mut self, entry: &Entry) {
        let (page, parked) = (entry.admitted.page, entry.not_before);
        let tag = Tag::of(page);
        let at = self.slab.insert(*entry, tag);
        self.index.insert(tag, at, |_| false);
        let list = self.processes.entry(page.pid).or_insert(List::EMPTY);
        self.slab.push_back(list, Thread::Process, at);
        match parked {
            Some(due) => drop(self.parked.insert((due, at))),
            None => self.join(at, entry.lane(), entry.rank),
        }
    }

    /// Renews an entry: expiry, target and reason are the newest proposal's, unexpired estimates of
    /// other sources still count, and the tries stay. It keeps its place if lane and rank stay the
    /// same.
    fn renew(&mut self, at: u32, new: &Admitted) {
        let Some(old) = self.slab.get(at).copied() else { return };
        let estimates = old.admitted.estimates.renewed(&new.estimates, new.candidate.time);
        let admitted = Admitted { estimates, tries: old.admitted.tries, ..*new };
        let new = Entry::new(&admitted, old.not_before, &self.weights);
        let stays = old.lane() == new.lane() && old.rank == new.rank;
        let moves = !stays && old.not_before.is_none();
        let (key, rank) = (new.lane(), new.rank);
        if moves {
            self.leave(at);
        }
        self.slab.replace(at, Entry { held: old.held, ..new });
        if stays
            && old.not_before.is_none()
            && let Some(lane) = self.lanes.get_mut(&key)
        {
            lane.pages = lane.pages - old.admitted.pages() + admitted.pages();
        }
        if moves {
            self.join(at, key, rank);
        }
    }

    fn take_slot(&mut self, at: u32) -> Option<Admitted> {
        self.free_slot(at)?;
        self.slab.remove(at).map(|entry| entry.admitted)
    }

    /// Takes an entry out of all lists and of the index; `None` if there is none.
    fn free_slot(&mut self, at: u32) -> Option<()> {
        let entry = self.slab.get(at)?;
        let (page, not_before) = (entry.admitted.page, entry.not_before);
        match not_before {
            Some(due) => drop(self.parked.remove(&(due, at))),
            None => self.leave(at),
        }
        let indexed = self.index.remove(self.slab.tag(at), |other| other == at);
        debug_assert!(indexed, "{page} waits in one place");
        if let Some(list) = self.processes.get_mut(&page.pid) {
            self.slab.unlink(list, Thread::Process, at);
            if list.is_empty() {
                self.processes.remove(&page.pid);
            }
        }
        Some(())
    }

    /// Puts an entry last among its equals in its lane.
    fn join(&mut self, at: u32, key: LaneKey, rank: u32) {
        self.slab.set_turn(at, rank, self.joins);
        self.joins += 1;
        let pages = self.slab.get(at).map_or(0, |entry| entry.admitted.pages());
        let lane = self.lanes.entry(key).or_default();
        lane.len += 1;
        lane.pages += pages;
        self.slab.push_back(lane.lists.entry(rank).or_insert(List::EMPTY), Thread::Rank, at);
    }

    fn leave(&mut self, at: u32) {
        let Some(entry) = self.slab.get(at) else { return };
        let (key, rank, pages) = (entry.lane(), entry.rank, entry.admitted.pages());
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let Some(list) = lane.lists.get_mut(&rank) else { return };
        self.slab.unlink(list, Thread::Rank, at);
        if list.is_empty() {
            lane.lists.remove(&rank);
        }
        lane.len -= 1;
        lane.pages -= pages;
        if lane.len == 0 {
            self.lanes.remove(&key);
        }
    }

    /// The entry to evict for a new one: among unparked entries whose source holds more than its
    /// share or is the new one's, the one with the lowest rank, and among these the latest. An
    /// entry of equal or higher rank is evicted only if the new one's source has less than its
    /// share.
    fn giving_way(&self, new: &Entry) -> Option<u32> {
        let mut held: BTreeMap<Source, usize> = BTreeMap::from([(new.chief, 0)]);
        for (key, lane) in &self.lanes {
            *held.entry(key.source).or_insert(0) += lane.len;
        }
        let share = self.capacity / held.len();
        let own = new.chief;
        let short = held[&own] < share;
        let gives = |source: Source| held[&source] > share || (source == own && !short);
        let lowest = self.lanes.iter().filter(|(key, _)| gives(key.source)).filter_map(|(_, lane)| {
            let (_, list) = lane.lists.first_key_value()?;
            Some(self.slab.turn(list.tail))
        });
        let lowest = lowest.min_by_key(|t| (t.rank, u64::MAX - t.seq))?;
        (short || lowest.rank < new.rank).then_some(lowest.slot)
    }
}

#[cfg(test)]
mod tests;
