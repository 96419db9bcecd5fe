//! Pages that are held out.

use super::classes::Age;
use crate::hash::FixedMap;
use crate::units::{Nanos, Pfn, Pid, VirtPage};

/// One page in this many is held out.
pub(super) const ONE_IN: u64 = 64;
/// Pages that are held out at a time, at most.
const PAGES_MAX: usize = 4096;
/// A page that does not fault for so many passes was not accessed in the last one: one more may be
/// under way.
const SILENT_PASSES: f64 = 2.0;

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The octave of the claimed access interval.
    octave: u8,
    since: Nanos,
    /// Passes that had ended when it was last seen.
    seen: f64,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct HeldOut {
    watch: Nanos,
    pages: FixedMap<VirtPage, Page>,
    /// Passes that have ended.
    passes: f64,
}

impl HeldOut {
    /// Pages are held out for `watch`.
    pub(super) fn new(watch: Nanos) -> HeldOut {
        HeldOut { watch, pages: FixedMap::default(), passes: 0.0 }
    }

    /// Whether a page stays where it is, which is proposed at `now` with such a claim. Where no
    /// more are wanted, only what is held out already.
    pub(super) fn holds(&mut self, page: VirtPage, draw: Draw, octave: u8, more: bool, now: Nanos) -> bool {
        if !self.may_hold(draw, now) {
            return false;
        }
        if more && self.is_selected(draw, now) && self.pages.len() < PAGES_MAX {
            self.pages.entry(page).or_insert(Page { octave, since: now, seen: self.passes });
        }
        self.pages.contains_key(&page)
    }

    /// The octave of a held-out page that faults, and its age; none once it was watched for long
    /// enough.
    pub(super) fn faulted(&mut self, page: VirtPage, time: Nanos) -> Option<(u8, Age)> {
        let held = self.pages.get_mut(&page)?;
        // The fault for which it was proposed is no proof of anything.
        if time <= held.since {
            return None;
        }
        held.seen = self.passes;
        Some((held.octave, Age::of(time.since(held.since), self.watch)?))
    }

    /// `passes` of such a length over the memory of `of` have ended since the last call. Reports
    /// each pass in which a held-out page of it did not fault, and releases those that were watched
    /// for long enough. How often others are passed is not known.
    pub(super) fn tick(
        &mut self,
        now: Nanos,
        passes: f64,
        length: Nanos,
        of: Option<Pid>,
        mut silent: impl FnMut(u8, Age),
    ) {
        self.passes += passes;
        let (passes, watch) = (self.passes, self.watch);
        self.pages.retain(|key, page| {
            if passes - page.seen > SILENT_PASSES && of.is_none_or(|of| of == key.pid) {
                // The pass that is known to be silent began so long ago.
                let ago = Nanos((SILENT_PASSES * length.0 as f64) as u64);
                if let Some(age) = Age::of(now.since(page.since.plus(ago)), watch) {
                    silent(page.octave, age);
                }
                page.seen += 1.0;
            }
            // A pass is known to be silent only when others have followed.
            now.since(page.since) < watch.plus(Nanos((length.0 as f64 * (SILENT_PASSES + 1.0)) as u64))
        });
    }

    /// A process is gone, or not managed any more.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.pages.retain(|page, _| page.pid != pid);
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Others are held out in each epoch, so that no page is kept from DRAM for ever.
    fn epoch(&self, now: Nanos) -> u64 {
        now.0 / self.watch.0.max(1)
    }

    /// Whether a page is one in 64 at `now`.
    pub(super) fn is_selected(&self, draw: Draw, now: Nanos) -> bool {
        draw.is_of(self.epoch(now))
    }

    /// Whether a page may be held out at `now`: rarely true, and cheap to ask.
    pub(super) fn may_hold(&self, draw: Draw, now: Nanos) -> bool {
        let epoch = self.epoch(now);
        draw.is_of(epoch) || draw.is_of(epoch.wrapping_sub(1))
    }
}

/// What decides in which epochs a page is one in 64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// By the frame, where it is known: a recording that hides processes and addresses is decided
    /// on as they were.
    pub(super) fn of(page: VirtPage, frame: Option<Pfn>) -> Draw {
        let number = frame.map_or(page.vpn ^ (u64::from(page.pid.0) << 40), |frame| frame.0);
        Draw(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
    }

    fn is_of(self, epoch: u64) -> bool {
        self.0.wrapping_add(epoch).is_multiple_of(ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(vpn: u64) -> VirtPage {
        VirtPage { pid: Pid(7), vpn }
    }

    fn holds(held: &mut HeldOut, n: u64, s: u64) -> bool {
        held.holds(page(n), Draw::of(page(n), None), 10, true, Nanos::from_s(s))
    }

    fn held_out() -> HeldOut {
        HeldOut::new(Nanos::from_s(60))
    }

    #[test]
    fn one_page_in_64_is_held_out_and_each_for_its_time() {
        let mut held = held_out();
        let pages: Vec<u64> = (0..64_000).filter(|n| holds(&mut held, *n, 5)).collect();
        assert!(pages.len().abs_diff(1000) < 100, "{}", pages.len());
        for s in [6, 59, 64] {
            held.tick(Nanos::from_s(s), 0.0, Nanos(0), None, |_, _| {});
            assert!(pages.iter().all(|n| holds(&mut held, *n, s)), "{s} s");
        }
        held.tick(Nanos::from_s(65), 0.0, Nanos(0), None, |_, _| {});
        assert_eq!(held.len(), 0);
        assert!(!pages.iter().any(|n| holds(&mut held, *n, 65)), "others now");
    }

    #[test]
    fn the_fault_that_made_the_claim_does_not_prove_it() {
        let mut held = held_out();
        let n = (0..).find(|n| holds(&mut held, *n, 5)).unwrap();
        assert_eq!(held.faulted(page(n), Nanos::from_s(5)), None);
        let mut age = |s| held.faulted(page(n), Nanos::from_s(s)).unwrap().1;
        let ages = [6, 12, 13, 19, 34, 64].map(&mut age);
        assert!(ages[0] == ages[1] && ages[2] == ages[1].plus(1), "{ages:?}");
        assert_eq!([ages[3], ages[4], ages[5]], [1, 2, 3].map(|n| ages[0].plus(n)));
        assert_eq!(held.faulted(page(n), Nanos::from_s(65)), None, "watched for long enough");
        let other = (0..).find(|n| !holds(&mut held, *n, 6)).unwrap();
        assert_eq!(held.faulted(page(other), Nanos::from_s(7)), None);
        held.forget(Pid(7));
        assert_eq!((held.len(), held.faulted(page(n), Nanos::from_s(37))), (0, None));
    }

    #[test]
    fn where_no_more_are_wanted_those_that_are_held_out_stay() {
        let mut held = held_out();
        let more = |held: &mut HeldOut, n, more| {
            held.holds(page(n), Draw::of(page(n), None), 10, more, Nanos::from_s(5))
        };
        let first = (0..).find(|n| more(&mut held, *n, true)).unwrap();
        assert!((first + 1..10_000).all(|n| !more(&mut held, n, false)));
        assert!(more(&mut held, first, false));
    }

    #[test]
    fn frames_are_drawn_whatever_a_recording_calls_their_pages() {
        let other = VirtPage { pid: Pid(1), vpn: 4 };
        let drawn = |page, n| held_out().is_selected(Draw::of(page, Some(Pfn(n))), Nanos(0));
        assert!((0..10_000).all(|n| drawn(page(n), n) == drawn(other, n)));
        let heads = (0..64_000).filter(|n| drawn(other, n * 512)).count();
        assert!(heads.abs_diff(1000) < 100, "{heads} huge pages");
    }

    #[test]
    fn silent_passes_of_all_the_watch_are_seen() {
        let mut held = held_out();
        let n = (0..).find(|n| holds(&mut held, *n, 0)).unwrap();
        held.faulted(page(n), Nanos::from_s(1));
        let mut ages = Vec::new();
        // Passes of 20 s: the last two of the three are known to be silent after the watch.
        for s in 1..=200 {
            held.tick(Nanos::from_s(s), 0.05, Nanos::from_s(20), None, |_, age| ages.push(age));
        }
        assert_eq!(ages.len(), 3, "{ages:?}");
        assert_eq!(held.len(), 0);
    }

    #[test]
    fn every_pass_without_a_fault_counts_once() {
        let mut held = held_out();
        let n = (0..).find(|n| holds(&mut held, *n, 1)).unwrap();
        let mut silent = 0;
        for s in 2..=11 {
            held.tick(Nanos::from_s(s), 0.5, Nanos::from_s(2), Some(Pid(7)), |_, _| silent += 1);
        }
        // Five passes; in the first two it may fault yet.
        assert_eq!(silent, 3);
        held.tick(Nanos::from_s(11), 9.0, Nanos::from_s(2), Some(Pid(8)), |_, _| panic!("another's passes"));
        held.faulted(page(n), Nanos::from_s(12));
        for s in 13..=16 {
            held.tick(Nanos::from_s(s), 0.5, Nanos::from_s(2), Some(Pid(7)), |_, _| silent += 1);
        }
        assert_eq!(silent, 3);
    }
}
