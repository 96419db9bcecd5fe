//! What the mover remembers from batch to batch: who each process was, and which pages would not move.

use std::collections::BTreeMap;

use thermocline_core::units::{Pfn, Pid, VirtPage};

/// Processes remembered at most.
const PROCESSES_MAX: usize = 4096;
/// Slots for pages that failed; a power of two.
const STUBBORN_SLOTS: usize = 4096;

/// The start time of each process when its number was first seen.
#[derive(Debug, Default)]
pub(super) struct Identities {
    started: BTreeMap<Pid, u64>,
}

impl Identities {
    /// Whether `pid`, which started at `start`, is the process that had the number when it was first seen. The newcomer is
    /// remembered, so that only what was decided before it came is refused.
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

/// Counts failures of a page that stays in its frame. Each page has one slot, which a later page may take: a lost count
/// makes a pinned page look busy for some tries more.
#[derive(Debug)]
pub(super) struct Stubborn {
    slots: Vec<Option<(VirtPage, Option<Pfn>, u8)>>,
}

impl Stubborn {
    pub(super) fn new() -> Stubborn {
        Stubborn { slots: vec![None; STUBBORN_SLOTS] }
    }

    /// Counts a failure and returns how many there were in this frame, this one included.
    pub(super) fn failed(&mut self, page: VirtPage, pfn: Option<Pfn>) -> u8 {
        // Fibonacci hashing spreads neighbouring pages over the slots.
        let key = page.vpn.wrapping_add(u64::from(page.pid.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.slots[(key >> 52) as usize % STUBBORN_SLOTS];
        let before = match *slot {
            Some((p, f, count)) if p == page && f == pfn => count,
            _ => 0,
        };
        let count = before.saturating_add(1);
        *slot = Some((page, pfn, count));
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
}
