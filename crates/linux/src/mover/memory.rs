//! The mover's state between batches: the identity of processes, and pages that failed to move.

use std::collections::BTreeMap;

use thermocline_core::units::{Pfn, Pid, VirtPage};

/// Maximum number of processes kept.
const PROCESSES_MAX: usize = 4096;
/// Sets of slots for pages that failed; a power of two.
const STUBBORN_SETS: usize = 4096;
/// Slots of a set: this many pages of the same set can fail at the same time without displacing
/// each other.
const STUBBORN_WAYS: usize = 4;

/// The start time of each process when its number was first seen.
#[derive(Debug, Default)]
pub(super) struct Identities {
    started: BTreeMap<Pid, u64>,
}

impl Identities {
    /// Whether `pid`, which started at `start`, is the process that had the number when it was
    /// first seen. A new process is recorded, so that only decisions from before its start are
    /// refused.
    pub(super) fn same(&mut self, pid: Pid, start: u64) -> bool {
        if self.started.len() >= PROCESSES_MAX && !self.started.contains_key(&pid) {
            self.started.clear();
        }
        self.started.insert(pid, start).is_none_or(|before| before == start)
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.started.remove(&pid);
    }
}

/// A page that failed, its frame, and how often it did.
type Failed = (VirtPage, Option<Pfn>, u8);

/// Counts failures of a page that stays in its frame. Each page has one of the slots of a set,
/// which a later page may take from the one that failed least: a lost count makes a pinned page
/// look busy for a few more tries.
#[derive(Debug)]
pub(super) struct Stubborn {
    sets: Vec<[Option<Failed>; STUBBORN_WAYS]>,
}

impl Stubborn {
    pub(super) fn new() -> Stubborn {
        Stubborn { sets: vec![[None; STUBBORN_WAYS]; STUBBORN_SETS] }
    }

    /// Counts a failure and returns how many there were in this frame, including this one.
    pub(super) fn failed(&mut self, page: VirtPage, pfn: Option<Pfn>) -> u8 {
        // Fibonacci hashing spreads neighbouring pages over the sets.
        let key = page.vpn.wrapping_add(u64::from(page.pid.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = &mut self.sets[(key >> 52) as usize % STUBBORN_SETS];
        let its = set.iter().position(|slot| slot.is_some_and(|(p, _, _)| p == page));
        let least = || (0..STUBBORN_WAYS).min_by_key(|&way| set[way].map_or(0, |(_, _, count)| count));
        let way = its.or_else(least).unwrap_or(0);
        let before = match set[way] {
            Some((p, f, count)) if p == page && f == pfn => count,
            _ => 0,
        };
        let count = before.saturating_add(1);
        set[way] = Some((page, pfn, count));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_changes_hands_is_noticed_once() {
        let mut known = Identities::default();
        assert!(known.same(Pid(7), 100));
        assert!(known.same(Pid(7), 100));
        assert!(!known.same(Pid(7), 200));
        assert!(known.same(Pid(7), 200), "what is decided about the newcomer is about the newcomer");
        known.forget(Pid(7));
        assert!(known.same(Pid(7), 300));
    }

    #[test]
    fn remembers_a_bounded_number_of_processes() {
        let mut known = Identities::default();
        for pid in 0..20_000 {
            assert!(known.same(Pid(pid), 1));
            assert!(known.started.len() <= PROCESSES_MAX);
        }
    }

    #[test]
    fn counts_failures_in_one_frame_only() {
        let mut stubborn = Stubborn::new();
        let page = VirtPage { pid: Pid(7), vpn: 0x1234 };
        assert_eq!(stubborn.failed(page, Some(Pfn(1))), 1);
        assert_eq!(stubborn.failed(page, Some(Pfn(1))), 2);
        assert_eq!(stubborn.failed(page, Some(Pfn(2))), 1, "in another frame it is another story");
        for _ in 0..300 {
            stubborn.failed(page, Some(Pfn(2)));
        }
        assert_eq!(stubborn.failed(page, Some(Pfn(2))), u8::MAX);
    }

    #[test]
    fn pages_that_fail_in_turn_are_all_found_out() {
        // Every eighth page of a guest's memory, tried repeatedly, like pinned ones.
        let mut stubborn = Stubborn::new();
        let pages: Vec<VirtPage> =
            (0..1000).map(|n| VirtPage { pid: Pid(206), vpn: 0x7_f6eb_6e00 + 8 * n }).collect();
        for round in 1..=3 {
            let counted = pages.iter().filter(|page| stubborn.failed(**page, Some(Pfn(9))) == round).count();
            assert!(counted >= 990, "{counted} of 1000 in round {round}");
        }
    }
}
