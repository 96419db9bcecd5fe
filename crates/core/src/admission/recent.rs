//! Check: has the page moved recently, or did its last move fail permanently?
//!
//! A log of recent events of pages. Each entry is linked to the page's previous one, and an index
//! has each page's latest. It answers three questions: minimum residency, ping-pong (number of
//! moves within a sliding window), and failures that would only repeat. The log is bounded by
//! `admission.moved_capacity`: the oldest entry is dropped and counted. A process exit is marked
//! instead of searched for: entries from before the exit are ignored.

use std::collections::VecDeque;

use crate::config;
use crate::hash::FixedMap;
use crate::index::{Index, Tag};
use crate::refusal::RefusalReason;
use crate::units::{Nanos, Pid, VirtPage};

/// Entries before its own at which the look-up of one that will be dropped is prepared.
const POPS_AHEAD: usize = 8;

/// Recent events of pages.
#[derive(Debug)]
pub(super) struct Recent {
    capacity: usize,
    residency: Nanos,
    window: Nanos,
    window_moves: u32,
    quarantine: Nanos,
    log: VecDeque<Event>,
    /// Number of the log's first entry since the start of the run.
    first: u64,
    /// The number of each page's latest entry; its low half, which is unique among those kept.
    latest: Index,
    processes: FixedMap<Pid, Process>,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    page: VirtPage,
    time: Nanos,
    /// Number of the page's entry before this one.
    before: Option<u64>,
    /// The page is left alone until then.
    until: Nanos,
    why: RefusalReason,
    moved: bool,
    /// It moved to the top tier, and has not been seen on a lower one since.
    up: bool,
    told: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// Entries of it in the log.
    entries: u32,
    /// Entries below this number belong to an earlier process with the same pid.
    since: u64,
}

/// Why and how long a page is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// Why.
    pub why: RefusalReason,
    /// Until when.
    pub until: Nanos,
    /// Moves of the page within the ping-pong window.
    pub moves: u32,
}

impl Recent {
    pub(super) fn new(config: &config::Admission) -> Recent {
        Recent {
            capacity: config.moved_capacity as usize,
            residency: Nanos::from_ms(config.residency_ms),
            window: Nanos::from_ms(config.ping_pong_window_ms),
            window_moves: u32::from(config.ping_pong_moves),
            quarantine: Nanos::from_ms(config.quarantine_ms),
            log: VecDeque::new(),
            first: 0,
            latest: Index::default(),
            processes: FixedMap::default(),
            forgotten: 0,
        }
    }

    /// Takes other times; pages already left alone stay so until the time set for them.
    pub(super) fn reload(&mut self, config: &config::Admission) {
        let Recent { residency, window, window_moves, quarantine, .. } = Recent::new(config);
        (self.residency, self.window) = (residency, window);
        (self.window_moves, self.quarantine) = (window_moves, quarantine);
    }

    /// Whether the page may move again.
    pub(super) fn check(&self, page: VirtPage, now: Nanos) -> Result<(), RefusalReason> {
        match self.latest(page) {
            Some((_, event)) if now < event.until => Err(event.why),
            _ => Ok(()),
        }
    }

    /// Whether a refusal of the page is the first since it was left alone: only that one is worth
    /// reporting.
    pub(super) fn first_refusal(&mut self, page: VirtPage) -> bool {
        let Some((number, _)) = self.latest(page) else { return true };
        match self.log.get_mut((number - self.first) as usize) {
            Some(event) => !std::mem::replace(&mut event.told, true),
            None => true,
        }
    }

    /// We moved the page, to the top tier or not; returns how many times within the window.
    pub(super) fn moved(&mut self, page: VirtPage, up: bool, now: Nanos) -> u32 {
        let moves = self.moves(page, now) + 1;
        let (why, span) = if moves >= self.window_moves {
            (RefusalReason::PingPong, self.window)
        } else {
            (RefusalReason::Resident, self.residency)
        };
        let number = self.push(page, now, now.plus(span), why, true);
        if let Some(event) = self.log.get_mut((number - self.first) as usize) {
            event.up = up;
        }
        moves
    }

    /// A move failed in a way that a retry does not cure.
    pub(super) fn quarantine(&mut self, page: VirtPage, now: Nanos, why: RefusalReason) {
        self.push(page, now, now.plus(self.quarantine), why, false);
    }

    /// The process has exited: its entries do not apply to a later process with its number.
    pub(super) fn exit(&mut self, pid: Pid) {
        let next = self.first + self.log.len() as u64;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.since = next;
        }
    }

    /// Drops entries that no check can need any more.
    pub(super) fn tick(&mut self, now: Nanos) {
        let kept = self.residency.max(self.window).max(self.quarantine);
        while self.log.front().is_some_and(|event| now.since(event.time) >= kept) {
            self.pop();
        }
    }

    /// Why the page is left alone now.
    pub(super) fn left_alone(&self, page: VirtPage, now: Nanos) -> Option<LeftAlone> {
        let (_, event) = self.latest(page)?;
        let moves = self.moves(page, now);
        (now < event.until).then_some(LeftAlone { why: event.why, until: event.until, moves })
    }

    pub(super) fn len(&self) -> usize {
        self.log.len()
    }

    /// Entries that were dropped while a check could still have needed them.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn bytes(&self) -> usize {
        self.log.capacity() * size_of::<Event>()
            + self.latest.bytes()
            + self.processes.capacity() * (size_of::<(Pid, Process)>() + 1)
    }

    /// Asks the CPU for what the next look-up of a page needs.
    #[inline]
    pub(super) fn prefetch(&self, page: VirtPage) {
        self.latest.prefetch(Tag::of(page));
    }

    fn latest(&self, page: VirtPage) -> Option<(u64, &Event)> {
        let low = self.latest.find(Tag::of(page), |low| self.is_of(page, low))?;
        let number = self.number(low);
        let since = self.processes.get(&page.pid)?.since;
        (number >= since).then_some((number, self.event(number)?))
    }

    /// The number of an entry that is kept, by its low half.
    fn number(&self, low: u32) -> u64 {
        self.first + u64::from(low.wrapping_sub(self.first as u32))
    }

    fn is_of(&self, page: VirtPage, low: u32) -> bool {
        self.event(self.number(low)).is_some_and(|event| event.page == page)
    }

    fn event(&self, number: u64) -> Option<&Event> {
        self.log.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Moves of the page within the window that ends now, counted up to the limit.
    fn moves(&self, page: VirtPage, now: Nanos) -> u32 {
        let mut moves = 0;
        let mut event = self.latest(page).map(|(_, event)| event);
        let since = self.processes.get(&page.pid).map_or(0, |p| p.since);
        while let Some(e) = event {
            if moves >= self.window_moves || now.since(e.time) >= self.window {
                break;
            }
            moves += u32::from(e.moved);
            event = e.before.filter(|n| *n >= since).and_then(|n| self.event(n));
        }
        moves
    }

    /// Whether the page, accessed on a lower tier, was promoted by us within the window; true once
    /// for each promotion.
    pub(super) fn came_back(&mut self, page: VirtPage, time: Nanos) -> bool {
        let Some((number, event)) = self.latest(page) else { return false };
        let back = event.up && event.time < time && time.since(event.time) < self.window;
        if back && let Some(event) = self.log.get_mut((number - self.first) as usize) {
            event.up = false;
        }
        back
    }

    fn push(&mut self, page: VirtPage, time: Nanos, until: Nanos, why: RefusalReason, moved: bool) -> u64 {
        if self.log.len() >= self.capacity {
            self.pop();
            self.forgotten += 1;
        }
        let number = self.first + self.log.len() as u64;
        self.processes.entry(page.pid).or_default().entries += 1;
        let (log, first) = (&self.log, self.first as u32);
        let same = |low: u32| log.get(low.wrapping_sub(first) as usize).is_some_and(|e| e.page == page);
        let before = self.latest.insert(Tag::of(page), number as u32, same);
        let before = before.map(|low| self.number(low));
        self.log.push_back(Event { page, time, before, until, why, moved, up: false, told: false });
        number
    }

    fn pop(&mut self) {
        let Some(event) = self.log.pop_front() else { return };
        // One of the next to go.
        self.log.get(POPS_AHEAD).into_iter().for_each(|later| self.prefetch(later.page));
        // Not where the page has a later entry.
        self.latest.remove(Tag::of(event.page), |low| low == self.first as u32);
        self.first += 1;
        if let Some(process) = self.processes.get_mut(&event.page.pid) {
            process.entries -= 1;
            if process.entries == 0 {
                self.processes.remove(&event.page.pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(capacity: u32) -> Recent {
        let moved_capacity = capacity;
        Recent::new(&config::Admission { moved_capacity, ..config::Admission::default() })
    }

    fn page(vpn: u64) -> VirtPage {
        VirtPage { pid: Pid(7), vpn }
    }

    #[test]
    fn a_promoted_page_that_is_seen_below_has_come_back_once() {
        let mut r = recent(1024);
        assert!(!r.came_back(page(1), Nanos::from_s(5)), "nobody moved it");
        r.moved(page(1), true, Nanos::from_s(5));
        assert!(!r.came_back(page(1), Nanos::from_s(4)), "accessed before it was promoted");
        assert!(r.came_back(page(1), Nanos::from_s(20)));
        assert!(!r.came_back(page(1), Nanos::from_s(21)), "told already");
        r.moved(page(1), true, Nanos::from_s(30));
        assert!(!r.came_back(page(1), Nanos::from_s(90)), "after the window");
        r.moved(page(2), false, Nanos::from_s(30));
        assert!(!r.came_back(page(2), Nanos::from_s(31)), "it went elsewhere");
    }

    #[test]
    fn a_moved_page_stays_for_its_residency() {
        let mut r = recent(1024);
        r.moved(page(1), true, Nanos::from_s(5));
        assert_eq!(r.check(page(1), Nanos(14_999_999_999)), Err(RefusalReason::Resident));
        assert_eq!(r.check(page(1), Nanos::from_s(15)), Ok(()));
        assert_eq!(r.check(page(2), Nanos::from_s(6)), Ok(()));
    }

    #[test]
    fn the_third_move_within_any_minute_leaves_the_page_alone_for_a_minute() {
        let mut r = recent(1024);
        // 0 and 59.9 are one window, 59.9, 61 and 119 the one that counts.
        for ms in [0, 59_900, 61_000] {
            r.moved(page(1), true, Nanos::from_ms(ms));
        }
        assert_eq!(r.check(page(1), Nanos::from_ms(62_000)), Err(RefusalReason::Resident));
        r.moved(page(1), true, Nanos::from_ms(119_000));
        assert_eq!(r.left_alone(page(1), Nanos::from_s(178)).unwrap().why, RefusalReason::PingPong);
        assert_eq!(r.check(page(1), Nanos::from_s(179)), Ok(()));
    }

    #[test]
    fn a_new_process_with_an_old_number_starts_clean() {
        let mut r = recent(1024);
        r.quarantine(page(1), Nanos(0), RefusalReason::Pinned);
        r.exit(Pid(7));
        assert_eq!(r.check(page(1), Nanos(1)), Ok(()));
        r.moved(page(1), true, Nanos(2));
        assert_eq!(r.left_alone(page(1), Nanos(3)).unwrap().moves, 1);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut r = recent(8);
        for vpn in 0..100 {
            r.moved(page(vpn % 9), true, Nanos(vpn));
        }
        assert_eq!((r.len(), r.forgotten()), (8, 92));
        assert_eq!(r.latest.len(), 8);
        r.tick(Nanos::from_s(3600));
        assert_eq!((r.len(), r.latest.len(), r.processes.len()), (0, 0, 0));
    }

    #[test]
    fn only_the_first_refusal_is_told() {
        let mut r = recent(8);
        r.moved(page(1), true, Nanos(0));
        assert!(r.first_refusal(page(1)));
        assert!(!r.first_refusal(page(1)));
    }
}
