//! Hint faults as evidence: a page that was marked at one time and faults at another was not
//! accessed in between.
//!
//! The wait of a page that is accessed at random times is exponential, from the mark or from the
//! beginning of the recording, whichever is later: an exponential wait does not remember. A page
//! that did not fault again after it had been marked was quiet until the end, until it was moved to
//! the top tier, which is not scanned, or until its process ended.

use std::collections::BTreeMap;

use thermocline_core::access::RegionSpace;
use thermocline_core::units::{Nanos, VirtPage};

use super::collect::{Collected, Fault};
use super::epochs::Epochs;
use super::evidence::{Count, Evidence, HeatSource, Unit};
use super::passes::Passes;

/// What a hint fault takes of its program's time, at most, in seconds: 1 to 2 µs are usual.
const FAULT_S: f64 = 2e-6;

/// The evidence of hint faults. `check`: how exactly marks are timed; `restamps`: whether scans
/// mark marked pages again.
pub fn evidence(from: &Collected, epochs: Epochs, check: Nanos, restamps: bool) -> Evidence {
    let mut faults = from.faults.clone();
    faults.sort_unstable_by_key(|fault| (fault.page, fault.time));
    let passes = Passes::of(&faults);
    let mut promoted: BTreeMap<VirtPage, Vec<Nanos>> = BTreeMap::new();
    for (page, time, top) in &from.moves {
        if *top {
            promoted.entry(*page).or_default().push(*time);
        }
    }
    let (mut units, mut counts): (Vec<Unit>, Vec<Count>) = (Vec::new(), Vec::new());
    let mut halves = Vec::new();
    let mut spaces: Vec<RegionSpace> = Vec::new();
    for of_page in faults.chunk_by(|a, b| a.page == b.page) {
        let page = of_page[0].page;
        let space = RegionSpace::Virtual(page.pid);
        if spaces.last() != Some(&space) {
            spaces.push(space);
        }
        let space = spaces.len() as u32 - 1;
        // A folio that was split has pages that fault on their own.
        if let Some(before) = units.last_mut().filter(|u: &&mut Unit| u.space == space) {
            before.pages = u64::from(before.pages).min(page.vpn - before.first) as u32;
        }
        let pages = 1 << of_page.iter().map(|fault| fault.order).min().unwrap_or(0).min(18);
        units.push(Unit { space, pages, first: page.vpn });
        let until = promoted.get(&page).map_or(&[][..], Vec::as_slice);
        let end = from.ends.get(&page.pid).copied().unwrap_or(epochs.end).min(epochs.end);
        let life = Life { passes: &passes, promoted: until, end, check, restamps };
        let (of_page, in_halves) = life.of_page(of_page, &epochs);
        counts.extend(of_page);
        halves.push(in_halves);
    }
    let (silent_pages, dark_pages) = unseen(from, &units, &spaces);
    let watched = passes.first().map_or(Nanos(0), |first| epochs.end.since(first.max(epochs.start)));
    Evidence {
        source: HeatSource::HintFaults,
        check_s: check.0 as f64 / 1e9,
        start: epochs.start,
        end: epochs.end,
        spaces,
        units,
        counts,
        halves,
        cost_s: FAULT_S,
        epochs: epochs.number,
        by_page: false,
        silent_pages,
        silent: Count { hits: 0.0, quiet_s: watched.0 as f64 / 1e9 },
        dark_pages,
    }
}

/// Pages in use without evidence: those that a source of lower tiers would have seen, and those of
/// the top tier, which it does not see.
pub(super) fn unseen(from: &Collected, units: &[Unit], spaces: &[RegionSpace]) -> (u64, u64) {
    let Some([top, low]) = from.used else { return (0, 0) };
    let seen: u64 = units.iter().map(|unit| u64::from(unit.pages)).sum();
    // Pages that were seen below and are in the top tier now, as far as we moved them.
    let mut now: BTreeMap<VirtPage, bool> = BTreeMap::new();
    for (page, _, top) in &from.moves {
        now.insert(*page, *top);
    }
    let is_above = |unit: &&Unit| match spaces[unit.space as usize] {
        RegionSpace::Virtual(pid) => now.get(&VirtPage { pid, vpn: unit.first }).copied().unwrap_or(false),
        RegionSpace::Physical(_) | RegionSpace::Target(_) => false,
    };
    let above: u64 = units.iter().filter(is_above).map(|unit| u64::from(unit.pages)).sum();
    let dark = top.saturating_sub(above.min(from.promoted.saturating_sub(from.demoted)));
    ((top + low).saturating_sub(seen + dark), dark)
}

/// What decides for how long a page could fault.
struct Life<'a> {
    passes: &'a Passes,
    promoted: &'a [Nanos],
    end: Nanos,
    check: Nanos,
    restamps: bool,
}

impl Life<'_> {
    /// What was seen of a page with these faults, in order of time: by epoch, and in halves.
    fn of_page(&self, faults: &[Fault], epochs: &Epochs) -> (Vec<Count>, [Count; 2]) {
        let mut counts = vec![Count::default(); epochs.number];
        let mut halves = [Count::default(); 2];
        let mut before: Option<&Fault> = None;
        for (number, fault) in faults.iter().enumerate() {
            let since = before.map_or(epochs.start, |before| before.time);
            let first = match self.restamps {
                true => self.passes.next(fault.page, before.map(|before| before.marked), since),
                false => None,
            };
            let marked = first.map_or(fault.marked, |first| first.min(fault.marked));
            let from = marked.max(since);
            // The access was found within `check` before the fault.
            let found = Nanos(fault.time.0.saturating_sub(self.check.0));
            epochs.spread(from, found, 1.0, &mut counts);
            counts[epochs.at(fault.time)].hits += 1.0;
            let quiet_s = found.since(from).0 as f64 / 1e9;
            halves[number % 2] = halves[number % 2].plus(Count { hits: 1.0, quiet_s });
            before = Some(fault);
        }
        let Some(last) = before else { return (counts, halves) };
        let gone = self.promoted.iter().find(|time| **time >= last.time).copied().unwrap_or(self.end);
        if let Some(marked) = self.passes.next(last.page, Some(last.marked), last.time) {
            let until = gone.min(self.end);
            epochs.spread(marked, until, 1.0, &mut counts);
            halves.iter_mut().for_each(|half| half.quiet_s += until.since(marked).0 as f64 / 2e9);
        }
        (counts, halves)
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::Pid;

    use super::*;

    fn fault(pid: u32, vpn: u64, marked_ms: u64, time_ms: u64) -> Fault {
        Fault {
            page: VirtPage { pid: Pid(pid), vpn },
            order: 0,
            marked: Nanos::from_ms(marked_ms),
            time: Nanos::from_ms(time_ms),
        }
    }

    fn of(collected: &Collected, epochs: usize, restamps: bool) -> Evidence {
        let epochs = Epochs { start: Nanos::from_s(1), end: Nanos::from_s(11), number: epochs };
        evidence(collected, epochs, Nanos::from_ms(1), restamps)
    }

    fn quiet_ms(evidence: &Evidence, unit: usize) -> Vec<(f64, u64)> {
        evidence.of(unit).iter().map(|c| (c.hits, (c.quiet_s * 1e3).round() as u64)).collect()
    }

    #[test]
    fn waits_and_the_time_after_the_last_fault_are_quiet() {
        // Page 1 is marked at 2 s and 4 s and faults after 101 ms and 201 ms; a neighbour below
        // shows that a pass begins at 6 s, and one above that it comes by at 6.2 s.
        let faults = vec![
            fault(7, 1024, 2000, 2101),
            fault(7, 1024, 4000, 4201),
            fault(7, 2, 6000, 6501),
            fault(7, 2000, 6200, 6201),
        ];
        let found = of(&Collected { faults, ..Collected::default() }, 1, false);
        assert_eq!(found.units.iter().map(|unit| unit.first).collect::<Vec<_>>(), [2, 1024, 2000]);
        assert_eq!(quiet_ms(&found, 1), [(2.0, 100 + 200 + 4800)]);
        // The others are not seen to be marked again.
        assert_eq!((quiet_ms(&found, 0), quiet_ms(&found, 2)), (vec![(1.0, 500)], vec![(1.0, 0)]));
    }

    #[test]
    fn a_wait_from_before_the_recording_begins_with_it() {
        let faults = vec![fault(7, 1, 10, 1251)];
        let found = of(&Collected { faults, ..Collected::default() }, 1, false);
        assert_eq!(quiet_ms(&found, 0), [(1.0, 250)]);
    }

    #[test]
    fn a_page_that_was_promoted_or_whose_process_ended_is_not_quiet() {
        // A neighbour shows that a page that was marked at 2 s would have been marked again at 4 s.
        let faults = vec![fault(7, 1024, 2000, 2101), fault(7, 2, 3900, 3901), fault(7, 2000, 4000, 4101)];
        let page = VirtPage { pid: Pid(7), vpn: 1024 };
        let moved = |ms| vec![(page, Nanos::from_ms(ms), true)];
        let with = |moves, ends| Collected { faults: faults.clone(), moves, ends, ..Collected::default() };
        let found = of(&with(moved(5000), BTreeMap::new()), 1, false);
        assert_eq!(quiet_ms(&found, 1), [(1.0, 100 + 1000)]);
        let found = of(&with(moved(3000), BTreeMap::new()), 1, false);
        assert_eq!(quiet_ms(&found, 1), [(1.0, 100)], "moved before it was marked again");
        let found = of(&with(Vec::new(), BTreeMap::from([(Pid(7), Nanos::from_s(6))])), 1, false);
        assert_eq!(quiet_ms(&found, 1), [(1.0, 100 + 2000)]);
    }

    #[test]
    fn epochs_share_a_wait_by_time() {
        let faults = vec![fault(7, 1, 5000, 7001)];
        let found = of(&Collected { faults, ..Collected::default() }, 2, false);
        assert_eq!(quiet_ms(&found, 0), [(0.0, 1000), (1.0, 1000)]);
    }

    #[test]
    fn a_mark_that_was_renewed_counts_from_the_first() {
        // Marked at 2 s, again at 4 s, fault at 4.1 s: it was quiet for 2.1 s.
        let faults = vec![fault(7, 1, 4000, 4101), fault(7, 2, 2000, 2011)];
        let found = of(&Collected { faults, ..Collected::default() }, 1, true);
        assert_eq!(quiet_ms(&found, 0), [(1.0, 2100)]);
    }

    #[test]
    fn memory_without_evidence_is_silent_below_and_dark_above() {
        let mut faults = vec![fault(7, 1024, 2000, 2101), fault(7, 2, 4000, 4101)];
        faults[0].order = 3;
        let moves = vec![(VirtPage { pid: Pid(7), vpn: 1024 }, Nanos::from_s(3), true)];
        let collected =
            Collected { faults, moves, promoted: 8, used: Some([20, 100]), ..Collected::default() };
        let found = of(&collected, 1, false);
        // Eight of the 20 pages above were seen below; one of the 100 below.
        assert_eq!((found.seen_pages(), found.dark_pages, found.silent_pages), (9, 12, 99));
        assert_eq!(found.silent.quiet_s, 9.0);
        // If five pages were demoted, which may be those, up to five of the 20 were not seen.
        let demoted = of(&Collected { demoted: 5, ..collected }, 1, false);
        assert_eq!((demoted.dark_pages, demoted.silent_pages), (17, 94));
    }
}
