//! Check: is the page in flight already? Also keeps the batches without an outcome.
//!
//! Two batches with the same page would conflict, and the outcome of the second would be attributed
//! to the evidence of the first. Folios are ranges, so ranges are compared: of virtual pages, and
//! of frames where they are known, because two processes may map one frame. Nearly all folios in
//! flight are single pages, which a hash finds faster than an ordered tree does.

use std::collections::BTreeMap;
use std::hash::Hash;

use crate::admission::Admitted;
use crate::candidate::Candidate;
use crate::config::ScopeMap;
use crate::hash::FixedMap;
use crate::moves::{Batch, BatchId, Direction, Move};
use crate::refusal::RefusalReason;
use crate::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

/// A batch without an outcome yet.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Its number.
    pub id: BatchId,
    /// When it was issued.
    pub issued: Nanos,
    /// The process of its pages.
    pub pid: Pid,
    /// The target node.
    pub target: NodeId,
    /// The direction.
    pub direction: Direction,
    /// The process has exited, called exec or changed its scope: failed moves are not tried again.
    pub exited: bool,
    /// The candidates, in order of the batch's moves.
    pub candidates: Vec<Admitted>,
}

/// Batches in flight and what they hold.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    batches: BTreeMap<BatchId, Flight>,
    pages: Ranges<VirtPage>,
    frames: Ranges<Pfn>,
    towards: BTreeMap<NodeId, u64>,
}

/// Ranges of pages or frames that do not overlap, by their first, each with its batch.
#[derive(Debug)]
struct Ranges<P> {
    singles: FixedMap<P, BatchId>,
    /// Longer ones, with their length.
    longer: BTreeMap<P, (u64, BatchId)>,
}

/// What can be numbered in a range.
trait Place: Copy + Ord + Hash {
    /// How many after `first` it is, where both can be in one range.
    fn after(self, first: Self) -> Option<u64>;

    /// The one `n` after it.
    fn plus(self, n: u64) -> Self;
}

impl Place for VirtPage {
    fn after(self, first: VirtPage) -> Option<u64> {
        (self.pid == first.pid).then(|| self.vpn.checked_sub(first.vpn)).flatten()
    }

    fn plus(self, n: u64) -> VirtPage {
        VirtPage { pid: self.pid, vpn: self.vpn.saturating_add(n) }
    }
}

impl Place for Pfn {
    fn after(self, first: Pfn) -> Option<u64> {
        self.0.checked_sub(first.0)
    }

    fn plus(self, n: u64) -> Pfn {
        Pfn(self.0.saturating_add(n))
    }
}

impl<P: Place> Default for Ranges<P> {
    fn default() -> Ranges<P> {
        Ranges { singles: FixedMap::default(), longer: BTreeMap::new() }
    }
}

impl<P: Place> Ranges<P> {
    /// Adds a range; returns the batch of one with the same start, if there is one.
    fn insert(&mut self, first: P, len: u64, id: BatchId) -> Option<BatchId> {
        match len {
            1 => self.singles.insert(first, id),
            _ => self.longer.insert(first, (len, id)).map(|(_, id)| id),
        }
    }

    fn remove(&mut self, first: P, len: u64) -> Option<BatchId> {
        match len {
            1 => self.singles.remove(&first),
            _ => self.longer.remove(&first).map(|(_, id)| id),
        }
    }

    /// The batch that holds one place.
    fn holder(&self, at: P) -> Option<BatchId> {
        self.singles.get(&at).copied().or_else(|| {
            let (first, (len, id)) = self.longer.range(..=at).next_back()?;
            at.after(*first).is_some_and(|after| after < *len).then_some(*id)
        })
    }

    /// Whether a range has a place in common with one of them.
    fn overlap(&self, first: P, len: u64) -> bool {
        let inside = |at: P| at.after(first).is_some_and(|after| after < len);
        let single = match len {
            1 => self.singles.contains_key(&first),
            // Whichever are fewer.
            _ if len < self.singles.len() as u64 => {
                (0..len).any(|n| self.singles.contains_key(&first.plus(n)))
            }
            _ => self.singles.keys().any(|at| inside(*at)),
        };
        // The last that begins before its end is the only one that can reach into it.
        let before = self.longer.range(..first.plus(len)).next_back();
        let longer = before.is_some_and(|(other, (other_len, _))| {
            inside(*other) || first.after(*other).is_some_and(|after| after < *other_len)
        });
        single || longer
    }

    fn len(&self) -> usize {
        self.singles.len() + self.longer.len()
    }
}

impl InFlight {
    /// Whether no part of the folio is in flight.
    pub(super) fn check(&self, page: VirtPage, candidate: &Candidate) -> Result<(), RefusalReason> {
        let pages = 1u64 << candidate.order;
        let by_frame = |pfn| self.frames.overlap(pfn, pages);
        let overlap = self.pages.overlap(page, pages) || candidate.pfn.is_some_and(by_frame);
        if overlap { Err(RefusalReason::InFlight) } else { Ok(()) }
    }

    /// Holds the folio for a batch that is being built.
    pub(super) fn hold(&mut self, id: BatchId, page: VirtPage, m: &Move, target: NodeId) {
        let before = self.pages.insert(page, m.pages(), id);
        debug_assert_eq!(before, None, "{page} is in flight already");
        if let Some(pfn) = m.pfn {
            let before = self.frames.insert(pfn, m.pages(), id);
            debug_assert_eq!(before, None, "frame {:#x} is in flight already", pfn.0);
        }
        *self.towards.entry(target).or_insert(0) += m.pages();
    }

    /// Records a batch whose folios are held.
    pub(super) fn issue(&mut self, batch: &Batch, candidates: Vec<Admitted>, now: Nanos) {
        let Batch { id, pid, target, direction, .. } = *batch;
        let flight = Flight { id, issued: now, pid, target, direction, exited: false, candidates };
        self.batches.insert(id, flight);
    }

    /// Takes a batch out and releases its folios.
    pub(super) fn land(&mut self, id: BatchId) -> Option<Flight> {
        let flight = self.batches.remove(&id)?;
        let mut pages = 0;
        for admitted in &flight.candidates {
            pages += admitted.pages();
            let held = self.pages.remove(admitted.page, admitted.pages());
            debug_assert_eq!(held, Some(id), "{} is this batch's", admitted.page);
            if let Some(pfn) = admitted.candidate.pfn {
                let held = self.frames.remove(pfn, admitted.pages());
                debug_assert_eq!(held, Some(id), "frame {:#x} is in flight", pfn.0);
            }
        }
        if let Some(towards) = self.towards.get_mut(&flight.target) {
            *towards -= pages;
            if *towards == 0 {
                self.towards.remove(&flight.target);
            }
        }
        Some(flight)
    }

    /// The oldest batch that was issued `span` ago or earlier.
    pub(super) fn overdue(&self, now: Nanos, span: Nanos) -> Option<BatchId> {
        self.batches.values().find(|f| now.since(f.issued) >= span).map(|f| f.id)
    }

    /// Scopes have other numbers.
    pub(super) fn renumber(&mut self, map: &ScopeMap) {
        for admitted in self.batches.values_mut().flat_map(|flight| &mut flight.candidates) {
            admitted.scope = map.of(admitted.scope);
        }
    }

    /// Failed moves of processes for which it does not hold are not tried again.
    pub(super) fn retain(&mut self, holds: impl Fn(Pid) -> bool) {
        for flight in self.batches.values_mut() {
            flight.exited |= !holds(flight.pid);
        }
    }

    /// The oldest batch.
    pub(super) fn oldest(&self) -> Option<BatchId> {
        self.batches.keys().next().copied()
    }

    pub(super) fn exit(&mut self, pid: Pid) {
        for flight in self.batches.values_mut().filter(|f| f.pid == pid) {
            flight.exited = true;
        }
    }

    /// The batch that holds the page, if one does.
    pub(super) fn holder(&self, page: VirtPage) -> Option<&Flight> {
        self.batches.get(&self.pages.holder(page)?)
    }

    /// Base pages of a scope in flight in this direction.
    pub(super) fn of_scope(&self, scope: ScopeId, direction: Direction) -> u64 {
        let flights = self.batches.values().filter(|flight| flight.direction == direction);
        let candidates = flights.flat_map(|flight| &flight.candidates);
        candidates.filter(|admitted| admitted.scope == scope).map(Admitted::pages).sum()
    }

    pub(super) fn batches(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn moves(&self) -> usize {
        self.pages.len()
    }

    /// Base pages in flight towards a node.
    pub(super) fn towards(&self, node: NodeId) -> u64 {
        self.towards.get(&node).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Detail};
    use crate::candidate::Reason;

    fn folio(pid: u32, vpn: u64, pfn: Option<u64>, order: u8) -> (VirtPage, Candidate) {
        let page = VirtPage { pid: Pid(pid), vpn };
        let access = Access {
            time: Nanos(0),
            pfn: pfn.map(Pfn),
            page: Some(page),
            order,
            node: NodeId(1),
            accessor: None,
            detail: Detail::Count { count: 1, gap: None },
        };
        (page, Candidate::promotion(&access, 1, Reason::Frequent, Nanos(1)))
    }

    #[test]
    fn folios_that_overlap_by_address_or_by_frame_are_on_their_way() {
        let mut in_flight = InFlight::default();
        let (page, _) = folio(1, 512, Some(4096), 9);
        let m = Move { page, pfn: Some(Pfn(4096)), order: 9, from: NodeId(1) };
        in_flight.hold(BatchId(1), page, &m, NodeId(0));
        let free = |pid, vpn, pfn, order| {
            let (page, candidate) = folio(pid, vpn, pfn, order);
            in_flight.check(page, &candidate).is_ok()
        };
        // in flight:  pid 1 [512, 1024)   frames [4096, 4608)
        assert!(!free(1, 512, None, 9));
        assert!(!free(1, 700, None, 0), "a page of it");
        assert!(!free(1, 1023, None, 0), "its last page");
        assert!(!free(1, 0, None, 10), "a folio around it");
        assert!(free(1, 1024, None, 0) && free(1, 511, None, 0), "its neighbours");
        assert!(free(2, 512, None, 9), "another process");
        assert!(!free(2, 9999, Some(4600), 0), "another process, the same frame");
        assert!(free(2, 9999, Some(4608), 0) && free(2, 9999, Some(4095), 0));
        assert!(!free(2, 9999, Some(4095), 1));
    }

    #[test]
    fn a_folio_around_pages_in_flight_waits_however_many_they_are() {
        for others in [0, 600] {
            let mut in_flight = InFlight::default();
            // Pages of another process, in other frames: more or fewer than a folio has.
            let others = (0..others).map(|n| (2, n, 9000 + n));
            for (pid, vpn, frame) in std::iter::once((1, 700, 4200)).chain(others.clone()) {
                let page = VirtPage { pid: Pid(pid), vpn };
                let m = Move { page, pfn: Some(Pfn(frame)), order: 0, from: NodeId(1) };
                in_flight.hold(BatchId(1), page, &m, NodeId(0));
            }
            assert_eq!(in_flight.moves(), 1 + others.count());
            let free = |pid, vpn, pfn, order| {
                let (page, candidate) = folio(pid, vpn, pfn, order);
                in_flight.check(page, &candidate).is_ok()
            };
            assert!(!free(1, 700, None, 0) && !free(1, 512, None, 9) && !free(1, 0, None, 10));
            assert!(free(1, 701, None, 0) && free(1, 1024, None, 9) && free(1, 0, None, 9));
            assert!(!free(3, 512, Some(4096), 9) && free(3, 512, Some(4608), 9));
        }
    }
}
