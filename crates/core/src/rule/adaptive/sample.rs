//! A sample of pages with the last two waits of each, and the cut at which these agree best.
//!
//! A page that is accessed often faults early after every scan, a cold one only by chance. Take any
//! wait as a cut, and ask of each page whether it was below the cut last time, and the time before.
//! If all pages are alike, the two answers are independent. The more hot and cold pages differ, and
//! the better the cut lies between them, the more the answers agree. Only their correlation is
//! used. The distribution of the waits, which depends on the program and on the cost of the faults,
//! does not matter.

use crate::units::Nanos;

/// log2 of the slots.
const SLOTS_SHIFT: u32 = 12;
/// Steps of a wait in one octave.
const STEPS: u32 = 4;
/// Steps from 1 µs to 2^40 µs (two weeks).
const BINS: usize = 40 * STEPS as usize;
/// Shares of the pages that may be below a cut: hot pages are a minority, and a handful proves
/// nothing.
const BELOW: std::ops::RangeInclusive<f64> = 0.02..=0.5;
/// Minimum squared correlation: smaller ones may come from the position of pages in a scan.
const AGREEMENT_MIN: f64 = 0.01;
/// Pages that must have been below a cut both times.
const BOTH_MIN: f64 = 10.0;
/// Number of pages with two waits that suffices to show a clear line between hot and cold, if there
/// is one: it would then exceed chance many times over.
const PAIRS_MIN: u32 = 400;
/// Minimum of squared correlation times pages: by chance it is above 1 in one case of three, above
/// 20 in one of 100,000.
const EVIDENCE_MIN: f64 = 20.0;
/// The highest cut is taken whose squared correlation is at least this share of the best one's: a
/// hot page has to stay below it repeatedly.
const NEAR_BEST: f64 = 0.9;
/// How long a page that was seen once is kept.
const SEEN_ONCE_LIFE: Nanos = Nanos::from_s(600);

/// A wait in quarters of octaves of µs.
pub(super) type Bin = u8;

/// The bin of a wait.
pub(super) fn bin(wait: Nanos) -> Bin {
    let us = (wait.0 / 1000).max(1);
    let octave = us.ilog2();
    let step = ((us - (1 << octave)) * u64::from(STEPS)) >> octave;
    (octave * STEPS + step as u32).min(BINS as u32 - 1) as Bin
}

/// The shortest wait of a bin.
pub(super) fn wait(bin: Bin) -> Nanos {
    let (octave, step) = (u32::from(bin) / STEPS, u64::from(bin) % u64::from(STEPS));
    Nanos(((1000 / u64::from(STEPS)) * (u64::from(STEPS) + step)) << octave)
}

/// The state of a sampled page.
#[derive(Clone, Copy, Debug)]
struct Page {
    hash: u64,
    time: Nanos,
    last: Bin,
    /// The wait before the last one, and the time between the two faults.
    before: Option<(Bin, Nanos)>,
    /// It is in the top tier now.
    moved: bool,
}

impl Page {
    /// Its rank among the pages of its slot, from 0 to 1.
    fn rank(&self) -> f64 {
        (self.hash >> SLOTS_SHIFT) as f64 / (1u64 << (64 - SLOTS_SHIFT)) as f64
    }

    /// Whether it no longer counts. A page that has moved counts until shortly before its next
    /// fault would have come: without moved pages, those that remain would agree less than by
    /// chance, because agreement is what gets pages moved. Any other page counts until it has been
    /// silent for a minute and for ten times the interval between its last two faults.
    fn stale(&self, now: Nanos) -> bool {
        let life = match self.before {
            Some((_, gap)) if self.moved => Nanos(gap.0 / 8 * 7),
            Some((_, gap)) => Nanos::from_s(60).plus(Nanos(gap.0.saturating_mul(10))),
            None if self.moved => Nanos(0),
            None => SEEN_ONCE_LIFE,
        };
        now.since(self.time) > life
    }
}

/// A sample of the pages that fault: for each slot, the page with the smallest hash. So the
/// selection does not depend on how often pages fault.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    slots: Vec<Option<Page>>,
    changed: bool,
}

/// The pages of a [`Sample`] at one moment.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// Pages that have not moved, by their last wait.
    last: Vec<u32>,
    /// Pages with two waits, by the larger of the two: how many are below a cut both times.
    both: Vec<u32>,
    /// Pages with two waits, by the earlier one, and by the later one.
    earlier: Vec<u32>,
    later: Vec<u32>,
}

impl Sample {
    pub(super) fn new() -> Sample {
        Sample { slots: vec![None; 1 << SLOTS_SHIFT], changed: false }
    }

    /// Whether a sampled page has faulted since the last call.
    pub(super) fn changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Takes a fault of the page named by `key`.
    pub(super) fn fault(&mut self, key: u64, bin: Bin, now: Nanos) {
        let hash = hash(key);
        let slot = &mut self.slots[slot(hash)];
        match slot {
            Some(page) if page.hash == hash => {
                let before = Some((page.last, now.since(page.time)));
                *page = Page { hash, time: now.max(page.time), last: bin, before, moved: false };
            }
            Some(page) if page.hash < hash && !page.stale(now) => return,
            _ => *slot = Some(Page { hash, time: now, last: bin, before: None, moved: false }),
        }
        self.changed = true;
    }

    /// Marks a page as moved to the top tier: it will not fault any more.
    pub(super) fn moved(&mut self, key: u64) {
        let hash = hash(key);
        if let Some(page) = self.slots[slot(hash)].as_mut().filter(|page| page.hash == hash) {
            page.moved = true;
        }
    }

    /// Estimated number of pages that have not moved. Ranks of a slot's pages are uniform from 0 to
    /// 1, so the smallest is like the first event of a Poisson process whose rate is the number of
    /// pages per slot: the estimate is events divided by the length observed. An empty slot was
    /// observed to its end, one with a stale page up to that page.
    pub(super) fn population(&self, now: Nanos) -> u64 {
        let (mut events, mut length) = (0.0, 0.0);
        for page in &self.slots {
            length += page.as_ref().map_or(1.0, Page::rank);
            events += f64::from(page.as_ref().is_some_and(|page| !page.moved && !page.stale(now)));
        }
        (events / length * self.slots.len() as f64) as u64
    }

    /// The waits of all pages that are not stale.
    pub(super) fn waits(&self, now: Nanos) -> Waits {
        let none = vec![0; BINS];
        let mut waits = Waits { last: none.clone(), both: none.clone(), earlier: none.clone(), later: none };
        for page in self.slots.iter().flatten().filter(|page| !page.stale(now)) {
            waits.last[usize::from(page.last)] += u32::from(!page.moved);
            if let Some((before, _)) = page.before {
                waits.earlier[usize::from(before)] += 1;
                waits.later[usize::from(page.last)] += 1;
                waits.both[usize::from(before.max(page.last))] += 1;
            }
        }
        waits
    }
}

/// A cut, and how well the pages' last two waits agree at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Waits of this bin and of all below are below the cut.
    pub(super) bin: Bin,
    /// Correlation, squared, of being below the cut at two successive faults.
    pub(super) agreement: f64,
    /// Share of the pages that are hot: below the cut other than by chance.
    hot: f64,
    /// Share of the others that are below the cut by chance.
    by_chance: f64,
}

impl Cut {
    /// The probability that a page is hot if it was below the cut `times` times in a row. With two
    /// kinds of pages, a page above the cut at one fault is cold, so being below it at the next
    /// fault is chance; a hot page is assumed to be always below.
    pub(super) fn certainty(&self, times: u8) -> f64 {
        let cold = (1.0 - self.hot) * self.by_chance.powi(times.into());
        self.hot / (self.hot + cold).max(f64::MIN_POSITIVE)
    }
}

impl Waits {
    /// Pages in the sample that have not moved.
    pub(super) fn pages(&self) -> u32 {
        self.last.iter().sum()
    }

    /// Whether enough pages have two waits to decide whether they are alike.
    pub(super) fn can_tell(&self) -> bool {
        self.later.iter().sum::<u32>() >= PAIRS_MIN
    }

    /// The bin at or below which `percent` of the pages had their last wait.
    pub(super) fn quantile(&self, percent: u32) -> Bin {
        let pages = u64::from(self.pages());
        let mut below = 0;
        let reached = self.last.iter().position(|n| {
            below += u64::from(*n);
            below * 100 >= pages * u64::from(percent)
        });
        reached.unwrap_or(BINS - 1) as Bin
    }

    /// Share of the unmoved pages whose last wait is in `bin` or below.
    pub(super) fn share_below(&self, bin: Bin) -> f64 {
        let below: u32 = self.last[..=usize::from(bin)].iter().sum();
        f64::from(below) / f64::from(self.pages().max(1))
    }

    /// The cut between hot and cold pages; `None` if no difference between pages is visible.
    pub(super) fn cut(&self) -> Option<Cut> {
        let pages: u32 = self.later.iter().sum();
        let agreements = self.agreements(f64::from(pages));
        let best = agreements.iter().fold(0.0, |best: f64, a| best.max(*a));
        if best < AGREEMENT_MIN || best * f64::from(pages) < EVIDENCE_MIN {
            return None;
        }
        let bin = agreements.iter().rposition(|a| *a >= NEAR_BEST * best)?;
        let below = |pages: &[u32]| f64::from(pages[..=bin].iter().sum::<u32>());
        let (both, earlier, later) = (below(&self.both), below(&self.earlier), below(&self.later));
        let pages = f64::from(pages);
        // No cut has more than half of the pages below it.
        let by_chance = (later - both) / (pages - earlier);
        let hot = ((later / pages - by_chance) / (1.0 - by_chance)).clamp(0.0, 1.0);
        Some(Cut { bin: bin as Bin, agreement: best, hot, by_chance })
    }

    /// The squared correlation at each cut; zero if pages agree less than by chance, or if too many
    /// or too few are below.
    fn agreements(&self, pages: f64) -> Vec<f64> {
        let (mut both, mut earlier, mut later) = (0.0, 0.0, 0.0);
        (0..BINS)
            .map(|bin| {
                both += f64::from(self.both[bin]);
                earlier += f64::from(self.earlier[bin]);
                later += f64::from(self.later[bin]);
                let excess = both * pages - earlier * later;
                let in_range = BELOW.contains(&(earlier / pages)) && BELOW.contains(&(later / pages));
                if excess <= 0.0 || both < BOTH_MIN || !in_range {
                    return 0.0;
                }
                excess * excess / (earlier * (pages - earlier) * later * (pages - later))
            })
            .collect()
    }
}

/// A bijection that leaves no pattern of the keys (the finaliser of SplitMix64, public domain).
fn hash(key: u64) -> u64 {
    let mut h = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// The low bits select the slot, the others rank within it.
fn slot(hash: u64) -> usize {
    (hash & ((1 << SLOTS_SHIFT) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Nanos {
        Nanos(us * 1000)
    }

    #[test]
    fn bins_are_quarters_of_octaves() {
        assert_eq!([0, 1, 4, 5, 6, 7, 8].map(|n| bin(us(n))), [0, 0, 8, 9, 10, 11, 12]);
        assert_eq!(bin(Nanos(u64::MAX)), BINS as Bin - 1);
        for n in [1, 3, 5, 1000, 1_000_000, 3_600_000_000] {
            let b = bin(us(n));
            assert!(wait(b) <= us(n) && us(n) < wait(b + 1), "{n}");
        }
    }

    /// A sample of `pages` pages after two faults each, with waits in µs.
    fn twice(pages: u64, waits: impl Fn(u64) -> (u64, u64)) -> Waits {
        let mut sample = Sample::new();
        for page in 0..pages {
            sample.fault(page, bin(us(waits(page).0)), Nanos::from_s(1));
        }
        for page in 0..pages {
            sample.fault(page, bin(us(waits(page).1)), Nanos::from_s(2));
        }
        sample.waits(Nanos::from_s(2))
    }

    #[test]
    fn pages_that_repeat_themselves_agree_fully_at_the_cut_between_them() {
        // One page in four waits 100 µs both times, the others 900: any cut from 100 to below 900
        // separates them.
        let waits = twice(1000, |page| if page % 4 == 0 { (100, 100) } else { (900, 900) });
        let cut = waits.cut().unwrap();
        assert_eq!(cut.bin, bin(us(900)) - 1);
        assert!((cut.agreement - 1.0).abs() < 1e-9, "{cut:?}");
    }

    #[test]
    fn the_correlation_is_that_of_the_two_by_two_table() {
        // Of 1000 pages 300 are early first, 300 later, 200 both: (200 * 1000 - 300 * 300)^2 / (300
        // * 700)^2.
        let early = |yes: bool| if yes { 10 } else { 1000 };
        let waits = twice(1000, |page| (early(page < 300), early((100..400).contains(&page))));
        let pages = f64::from(waits.later.iter().sum::<u32>());
        // A few pages lose their slot to others.
        assert!(pages > 850.0);
        let expected = (110_000.0 / 210_000.0_f64).powi(2);
        assert!((waits.cut().unwrap().agreement - expected).abs() < 0.03);
    }

    #[test]
    fn certainty_grows_with_every_time_below_the_cut() {
        // One page in five is always early, of the others one in ten, each time another one.
        let early = |yes: bool| if yes { 10 } else { 1000 };
        let waits = twice(4000, |page| {
            let (hot, other) = (page % 5 == 0, page / 5);
            (early(hot || other % 10 == 0), early(hot || other / 10 % 10 == 0))
        });
        let cut = waits.cut().unwrap();
        for (times, expected) in [(0, 0.2), (1, 0.2 / 0.28), (2, 0.2 / 0.208), (3, 0.2 / 0.2008)] {
            let certainty = cut.certainty(times);
            assert!((certainty - expected).abs() < 0.03, "{times}: {certainty}, not {expected}");
        }
    }

    #[test]
    fn pages_that_are_alike_have_no_cut() {
        assert_eq!(twice(1000, |_| (100, 100)).cut(), None);
        // Every tenth page is early, each time another one.
        let waits =
            twice(4000, |page| (if page % 10 == 0 { 1 } else { 90 }, if page % 10 == 5 { 1 } else { 90 }));
        assert_eq!(waits.cut(), None);
        assert_eq!(Sample::new().waits(Nanos(0)).cut(), None);
    }

    #[test]
    fn a_few_pages_prove_nothing() {
        assert_eq!(twice(15, |page| if page % 4 == 0 { (100, 100) } else { (900, 900) }).cut(), None);
    }

    #[test]
    fn what_has_moved_is_not_among_those_that_are_left() {
        let mut sample = Sample::new();
        for page in 0..100 {
            sample.fault(page, if page < 10 { 3 } else { 20 }, Nanos::from_s(1));
        }
        let left_below = |sample: &Sample| sample.waits(Nanos::from_s(1)).share_below(3);
        assert!((left_below(&sample) - 0.1).abs() < 0.03, "{}", left_below(&sample));
        (0..10).for_each(|page| sample.moved(page));
        assert_eq!(left_below(&sample), 0.0);
        assert_eq!(left_below(&Sample::new()), 0.0);
    }

    #[test]
    fn quantiles_are_of_pages() {
        let waits = twice(1000, |page| (1, page + 1));
        for (percent, expected) in [(10, 100), (50, 500), (100, 1000)] {
            let found = waits.quantile(percent);
            assert!(found.abs_diff(bin(us(expected))) <= 1, "{percent}");
        }
    }

    #[test]
    fn the_sample_does_not_depend_on_how_often_pages_fault() {
        // A hundred times as many pages as slots; one in five faults ten times a round, and first.
        let mut sample = Sample::new();
        for round in 0..3 {
            for page in 0..400_000u64 {
                let times = if page % 5 == 0 { 10 } else { 1 };
                for _ in 0..times {
                    sample.fault(page, 0, Nanos::from_s(round));
                }
            }
        }
        let kept: Vec<u64> = sample.slots.iter().flatten().map(|p| p.hash).collect();
        assert_eq!(kept.len(), 1 << SLOTS_SHIFT);
        let hot = (0..400_000u64).filter(|p| p % 5 == 0).map(hash).collect::<std::collections::BTreeSet<_>>();
        let share = kept.iter().filter(|h| hot.contains(h)).count() as f64 / kept.len() as f64;
        assert!((share - 0.2).abs() < 0.02, "{share}");
    }

    #[test]
    fn the_population_is_estimated_from_the_sample_without_what_has_moved_or_fell_silent() {
        for pages in [100, 5_000, 400_000u64] {
            let mut sample = Sample::new();
            assert_eq!(sample.population(Nanos(0)), 0);
            (0..pages).for_each(|page| sample.fault(page, 3, Nanos::from_s(1)));
            let at =
                |seconds, sample: &Sample| sample.population(Nanos::from_s(seconds)) as f64 / pages as f64;
            assert!((at(1, &sample) - 1.0).abs() < 0.05, "{pages}: {}", at(1, &sample));
            assert_eq!(at(700, &sample), 0.0);
        }
        let mut sample = Sample::new();
        (0..100).for_each(|page| sample.fault(page, 3, Nanos::from_s(1)));
        (0..50).for_each(|page| sample.moved(page));
        assert!(sample.population(Nanos::from_s(1)).abs_diff(50) <= 3);
    }

    #[test]
    fn it_takes_enough_pages_with_two_waits_to_tell_whether_they_are_alike() {
        let kept = |pages| twice(pages, |_| (100, 100)).later.iter().sum::<u32>();
        assert!(kept(390) < PAIRS_MIN && kept(600) >= PAIRS_MIN);
        assert!(!twice(390, |_| (100, 100)).can_tell());
        assert!(twice(600, |_| (100, 100)).can_tell());
        let mut once = Sample::new();
        (0..4000).for_each(|page| once.fault(page, 3, Nanos::from_s(1)));
        assert!(!once.waits(Nanos::from_s(1)).can_tell(), "one wait each");
    }

    #[test]
    fn pages_that_fell_silent_count_no_more() {
        let mut sample = Sample::new();
        for time in [0, 1] {
            sample.fault(7, 3, Nanos::from_s(time));
        }
        sample.fault(9, 3, Nanos::from_s(1));
        // A minute and ten times its gap of a second later the first is stale, ten minutes later
        // the second.
        for (seconds, pages) in [(71, 2), (72, 1), (601, 1), (602, 0)] {
            assert_eq!(sample.waits(Nanos::from_s(seconds)).pages(), pages, "{seconds}");
        }
    }

    #[test]
    fn a_page_that_moved_agrees_until_its_next_fault_is_near() {
        let mut sample = Sample::new();
        for time in [10, 18] {
            sample.fault(7, 3, Nanos::from_s(time));
        }
        sample.moved(7);
        sample.moved(1000);
        let pairs = |seconds| sample.waits(Nanos::from_s(seconds)).later.iter().sum::<u32>();
        assert_eq!((pairs(25), pairs(26)), (1, 0));
        assert_eq!(sample.waits(Nanos::from_s(25)).pages(), 0);
        sample.fault(7, 3, Nanos::from_s(30));
        assert_eq!(sample.waits(Nanos::from_s(99)).pages(), 1, "it came back");
    }
}
