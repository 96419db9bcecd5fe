//! Heat estimated from evidence that is generated from known rates: the bands contain the truth as
//! often as they say.

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};
use thermocline_trace::heat::band::rate_band;
use thermocline_trace::heat::collect::{Collected, Fault, Sample};
use thermocline_trace::heat::{Heat, HeatError, HeatSource, Options, of_collected};
use thermocline_trace::plan::{Band, Open, Supply};

/// How exactly marks are timed here.
const CHECK: Nanos = Nanos(1 << 16);

struct Draws(Pcg64Mcg);

impl Draws {
    fn new(seed: u64) -> Draws {
        Draws(Pcg64Mcg::seed_from_u64(seed))
    }

    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn wait(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }
}

/// Accesses a second to each page: what is hot is not what comes first.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// All pages alike.
    Even,
    /// A fifth of the pages has nine tenths of the accesses.
    HotCold,
    /// The page of rank r has accesses in proportion to 1 / r.
    Zipf,
    /// Half of the pages is idle, the rest even in the logarithm of the rate over three decades.
    Wide,
}

const SHAPES: [Shape; 4] = [Shape::Even, Shape::HotCold, Shape::Zipf, Shape::Wide];

fn rates(shape: Shape, pages: usize, mean: f64, draws: &mut Draws) -> Vec<f64> {
    let of = |i: usize| match shape {
        Shape::Even => 1.0,
        Shape::HotCold if i.is_multiple_of(5) => 4.5,
        Shape::HotCold => 0.125,
        Shape::Zipf => 1.0 / (((i * 7919) % pages) + 1) as f64,
        Shape::Wide if i.is_multiple_of(2) => 0.0,
        Shape::Wide => 0.0,
    };
    let mut rates: Vec<f64> = (0..pages).map(of).collect();
    if matches!(shape, Shape::Wide) {
        for rate in rates.iter_mut().skip(1).step_by(2) {
            *rate = 10f64.powf(3.0 * draws.unit());
        }
    }
    let all: f64 = rates.iter().sum();
    rates.iter().map(|rate| rate / all * mean * pages as f64).collect()
}

fn page(number: usize) -> VirtPage {
    VirtPage { pid: Pid(1), vpn: 4096 + number as u64 }
}

fn at(seconds: f64) -> Nanos {
    Nanos(1_000_000_000 + (seconds * 1e9) as u64)
}

/// Hint faults of pages with these rates that are scanned every `period` seconds, 64 pages at a
/// time; of all that were in use, also those that never faulted.
fn scanned(rates: &dyn Fn(f64) -> Vec<f64>, period: f64, seconds: f64, draws: &mut Draws) -> Collected {
    let pages = rates(0.0).len();
    let mut faults = Vec::new();
    let steps = pages.div_ceil(64) as f64;
    for number in 0..pages {
        let mut marked = period * (number / 64) as f64 / steps;
        while marked < seconds {
            // Rates may change: an exponential wait goes on at another rate.
            let (mut time, mut left) = (marked, draws.wait(1.0));
            while time < seconds {
                let step = (time.floor() + 1.0 - time).max(1e-9);
                let rate = rates(time)[number];
                if rate * step >= left {
                    time += left / rate;
                    left = 0.0;
                    break;
                }
                (time, left) = (time + step, left - rate * step);
            }
            if left > 0.0 || time >= seconds {
                break;
            }
            let stamp = Nanos(at(marked).0 >> 16 << 16);
            faults.push(Fault { page: page(number), order: 0, marked: stamp, time: at(time) });
            while marked <= time {
                marked += period;
            }
        }
    }
    Collected {
        span: Some((at(0.0), at(seconds))),
        faults,
        used: Some([0, pages as u64]),
        ..Collected::default()
    }
}

fn steady(rates: &[f64], period: f64, seconds: f64, draws: &mut Draws) -> Collected {
    // Waits of constant rates need no steps.
    let mut faults = Vec::new();
    let steps = rates.len().div_ceil(64) as f64;
    for (number, rate) in rates.iter().enumerate() {
        let mut marked = period * (number / 64) as f64 / steps;
        while marked < seconds {
            let time = marked + draws.wait(*rate);
            if time >= seconds {
                break;
            }
            let stamp = Nanos(at(marked).0 >> 16 << 16);
            faults.push(Fault { page: page(number), order: 0, marked: stamp, time: at(time) });
            while marked <= time {
                marked += period;
            }
        }
    }
    Collected {
        span: Some((at(0.0), at(seconds))),
        faults,
        used: Some([0, rates.len() as u64]),
        ..Collected::default()
    }
}

fn sampled(rates: &[f64], period: u32, seconds: f64, draws: &mut Draws) -> Collected {
    let all: f64 = rates.iter().sum();
    let mut sums = rates.to_vec();
    for i in 1..sums.len() {
        sums[i] += sums[i - 1];
    }
    let (mut time, mut samples) = (0.0, Vec::new());
    loop {
        time += draws.wait(all / f64::from(period));
        if time >= seconds {
            break;
        }
        let drawn = draws.unit() * all;
        let number = sums.partition_point(|sum| *sum <= drawn).min(rates.len() - 1);
        samples.push(Sample { page: page(number), order: 0, time: at(time), period });
    }
    Collected {
        span: Some((at(0.0), at(seconds))),
        samples,
        used: Some([0, rates.len() as u64]),
        ..Collected::default()
    }
}

/// The share of the accesses that the hottest of the pages take.
fn best(rates: &[f64], share_of_pages: f64) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let pages = (rates.len() as f64 * share_of_pages) as usize;
    sorted[..pages].iter().sum::<f64>() / sorted.iter().sum::<f64>()
}

fn heat(collected: &Collected, epochs: Option<usize>) -> Heat {
    of_collected(collected, Options { source: None, epochs }, CHECK, false).expect("there is evidence")
}

/// Whether a band contains a value.
fn within(band: Band, truth: f64) -> bool {
    band.low.is_none_or(|low| low <= truth) && band.high.is_none_or(|high| truth <= high)
}

const SIZES: [f64; 5] = [0.05, 0.1, 0.2, 0.5, 0.8];

/// Of how many bands, the share that contains the truth, and the worst distance from one.
fn contained(
    pages: usize,
    mut of: impl FnMut(Shape, f64, &mut Draws) -> (Vec<f64>, Collected),
) -> (f64, f64) {
    let (mut inside, mut all, mut worst) = (0, 0, 0.0f64);
    for seed in 0..3 {
        for shape in SHAPES {
            for mean in [2.0, 40.0] {
                let mut draws = Draws::new(seed);
                let (rates, collected) = of(shape, mean, &mut draws);
                let supply = Supply::new(&heat(&collected, Some(1)));
                for size in SIZES {
                    let truth = best(&rates, size);
                    let band = supply.share((pages as f64 * size) as u64);
                    let (low, high) = (band.low.unwrap_or(0.0), band.high.unwrap_or(1.0));
                    worst = worst.max(low - truth).max(truth - high);
                    all += 1;
                    inside += usize::from(within(band, truth));
                }
            }
        }
    }
    (f64::from(inside as u32) / f64::from(all), worst)
}

#[test]
fn shares_from_hint_faults_are_within_their_bands() {
    let pages = 2000;
    let (inside, worst) = contained(pages, |shape, mean, draws| {
        let rates = rates(shape, pages, mean, draws);
        let collected = steady(&rates, 2.0, 60.0, draws);
        (rates, collected)
    });
    // Bands of 90 %; shares of one drawing are wrong together, so that a miss comes with others.
    assert!(inside >= 0.9 && worst < 0.02, "{inside} {worst}");
}

#[test]
fn shares_from_two_or_three_faults_a_page_are_within_their_bands() {
    let pages = 2000;
    let (inside, worst) = contained(pages, |shape, mean, draws| {
        let rates = rates(shape, pages, mean, draws);
        let collected = steady(&rates, 20.0, 60.0, draws);
        (rates, collected)
    });
    assert!(inside >= 0.9 && worst < 0.05, "{inside} {worst}");
}

#[test]
fn shares_from_samples_are_within_their_bands() {
    let pages = 2000;
    let (inside, worst) = contained(pages, |shape, mean, draws| {
        let rates = rates(shape, pages, mean, draws);
        let collected = sampled(&rates, 100, 60.0, draws);
        (rates, collected)
    });
    assert!(inside >= 0.9 && worst < 0.02, "{inside} {worst}");
}

/// Regions of as many pages, each checked so often, at one page every so many milliseconds.
fn snapshot(
    rates: &[f64],
    region: usize,
    (check_ms, checks): (u64, u64),
    time: f64,
    draws: &mut Draws,
) -> RegionSnapshot {
    let check = check_ms as f64 / 1000.0;
    let mut one = |start: usize| {
        let end = (start + region).min(rates.len());
        let found = (0..checks).filter(|_| {
            let page = start + (draws.unit() * (end - start) as f64) as usize;
            draws.unit() < 1.0 - (-rates[page] * check).exp()
        });
        Region {
            space: RegionSpace::Physical(NodeId(1)),
            start: start as u64,
            end: end as u64,
            access_rate_bp: (found.count() as u64 * 10_000 / checks) as u16,
            age: Nanos(0),
            check: Nanos::from_ms(check_ms),
        }
    };
    let regions = (0..rates.len()).step_by(region).map(&mut one).collect();
    RegionSnapshot { time: at(time), regions }
}

/// Snapshots every 100 ms.
fn watched(rates: &[f64], region: usize, seconds: u64, draws: &mut Draws) -> Collected {
    let times = (0..=seconds * 10).map(|number| number as f64 / 10.0);
    let snapshots = times.map(|time| snapshot(rates, region, (5, 20), time, draws)).collect();
    Collected { span: Some((at(0.0), at(seconds as f64))), snapshots, ..Collected::default() }
}

/// Snapshots every second or two, the time between two checks of which takes turns.
fn watched_in_turns(rates: &[f64], region: usize, cycles: u64, draws: &mut Draws) -> Collected {
    let (mut time, mut snapshots) = (0.0, Vec::new());
    for _ in 0..cycles {
        for check_ms in [5, 20, 80, 320, 1280] {
            let checks = (1000 / check_ms).max(2);
            for _ in 0..5 {
                time += (check_ms * checks) as f64 / 1000.0;
                snapshots.push(snapshot(rates, region, (check_ms, checks), time, draws));
            }
        }
    }
    Collected { span: Some((at(0.0), at(time))), snapshots, ..Collected::default() }
}

#[test]
fn regions_promise_no_more_than_there_is_and_say_what_they_hide() {
    let pages = 3200;
    let (mut inside, mut all) = (0, 0);
    for seed in 0..4 {
        let mut draws = Draws::new(seed);
        // A tenth of the regions is hot, and in half of the others only every eighth page is warm.
        let of = |page: usize| match (page / 32) % 10 {
            0 => 150.0,
            n if n % 2 == 1 && page.is_multiple_of(8) => 30.0,
            _ => 1.0,
        };
        let rates: Vec<f64> = (0..pages).map(of).collect();
        let heat = heat(&watched(&rates, 32, 40, &mut draws), Some(1));
        assert_eq!((heat.evidence().source, heat.evidence().reach()), (HeatSource::Regions, Some(600.0)));
        let supply = Supply::new(&heat);
        assert_eq!(supply.open(), Some(Open::Regions));
        for size in SIZES {
            let band = supply.share((f64::from(pages as u32) * size) as u64);
            assert_eq!(band.high, None, "pages of a region are not told apart");
            inside += usize::from(within(band, best(&rates, size)));
            all += 1;
        }
    }
    assert!(inside * 10 >= all * 9, "{inside} of {all}");
}

#[test]
fn checks_of_several_lengths_tell_how_hot_pages_of_a_region_are() {
    let pages = 3200;
    let (mut inside, mut near, mut all) = (0, 0, 0);
    for (seed, shape) in (0..2).flat_map(|seed| SHAPES.map(|shape| (seed, shape))) {
        for mean in [1.0, 5.0] {
            let mut draws = Draws::new(seed);
            let rates = rates(shape, pages, mean, &mut draws);
            // Hot pages and cold ones lie in the same regions.
            let supply = Supply::new(&heat(&watched_in_turns(&rates, 32, 3, &mut draws), Some(1)));
            assert_eq!(supply.open(), None, "{shape:?} {mean}");
            for size in SIZES {
                let (band, truth) = (supply.share((pages as f64 * size) as u64), best(&rates, size));
                println!("{shape:?} {mean} {size}: {truth:.3} {band:.3?}");
                let (Some(low), Some(likely), Some(high)) = (band.low, band.likely, band.high) else {
                    panic!("{shape:?} {mean} {size}: {band:?}");
                };
                assert!(size < 0.5 || high - low <= 0.3, "{shape:?} {mean} {size}: {band:?} says nothing");
                inside += usize::from(within(band, truth));
                near += usize::from((likely - truth).abs() <= 0.1);
                all += 1;
            }
        }
    }
    assert!(inside * 100 >= all * 95, "{inside} of {all} bands have the truth in them");
    assert!(near * 100 >= all * 91, "{near} of {all} are within 10 points");
}

#[test]
fn rates_beyond_the_reach_are_no_numbers() {
    // Pages that are accessed 100,000 times a second, where marks are timed to 65 us.
    let rates: Vec<f64> = (0..600).map(|page| if page % 10 == 0 { 1e5 } else { 5.0 }).collect();
    let supply = Supply::new(&heat(&steady(&rates, 2.0, 60.0, &mut Draws::new(1)), Some(1)));
    let Some(Open::Reach { per_s, pages }) = supply.open() else { panic!("{:?}", supply.open()) };
    assert!((per_s - 3.0 / 65.536e-6).abs() < 1.0 && (50.0..70.0).contains(&pages), "{per_s} {pages}");
    let band = supply.share(60);
    assert!(band.likely.is_none() && band.high.is_none() && within(band, best(&rates, 0.1)), "{band:?}");
    // Of 30 of the 60 hot pages, half of the accesses can be promised, and all with all memory.
    assert!(supply.share(30).low.is_some_and(|low| (0.4..0.505).contains(&low)), "{:?}", supply.share(30));
    assert_eq!(supply.share(600).low, Some(1.0));
}

#[test]
fn epochs_are_told_apart_only_where_heat_changes() {
    let first: Vec<f64> = (0..1000).map(|page| if page % 5 == 0 { 40.0 } else { 0.5 }).collect();
    let then: Vec<f64> = (0..1000).map(|page| if page % 5 == 1 { 40.0 } else { 0.5 }).collect();
    let changing = scanned(
        &|time| if time < 30.0 { first.clone() } else { then.clone() },
        2.0,
        60.0,
        &mut Draws::new(1),
    );
    let heat = |collected| heat(collected, None);
    let changed = heat(&changing);
    assert_eq!(changed.evidence().epochs, 2);
    let drawn = changed.draw(0);
    let hot = |unit: usize| (drawn.rates[2 * unit] > 10.0, drawn.rates[2 * unit + 1] > 10.0);
    let of = |page: usize| changed.evidence().units.iter().position(|u| u.first == 4096 + page as u64);
    let right = (0..1000).filter(|page| {
        let Some(unit) = of(*page) else { return true };
        hot(unit) == (page % 5 == 0, page % 5 == 1)
    });
    assert!(right.count() > 980);
    let steady = heat(&steady(&first, 2.0, 60.0, &mut Draws::new(2)));
    assert_eq!(steady.evidence().epochs, 1);
}

#[test]
fn what_has_no_evidence_has_no_heat() {
    let of = |collected: &Collected, source| {
        of_collected(collected, Options { source, epochs: None }, CHECK, false).map(|_| ()).unwrap_err()
    };
    assert_eq!(of(&Collected::default(), None), HeatError::Empty);
    let span = Some((at(0.0), at(1.0)));
    let empty = Collected { span, unmarked_faults: 3, ..Collected::default() };
    let error = of(&empty, None).to_string();
    assert!(
        error.starts_with("it has no evidence of accesses; it has hint faults of pages whose"),
        "{error}"
    );
    let faults = vec![Fault { page: page(1), order: 0, marked: at(0.1), time: at(0.2) }];
    let error =
        of(&Collected { span, faults, ..Collected::default() }, Some(HeatSource::Samples)).to_string();
    assert!(error.starts_with("it has no evidence of samples; it has hint faults; record"), "{error}");
}

proptest! {
    /// The band of one rate contains it at least as often as it says: by a count in a fixed time,
    /// and by the time until a fixed number of hits.
    #[test]
    fn a_rate_is_within_its_band(
        rate in 0.1f64..100.0,
        seconds in 0.1f64..10.0,
        hits in 1u32..20,
        seed: u64,
    ) {
        let mut draws = Draws::new(seed);
        let (mut by_time, mut by_number) = (0, 0);
        for _ in 0..400 {
            let (mut time, mut found) = (draws.wait(rate), 0);
            while time < seconds {
                (time, found) = (time + draws.wait(rate), found + 1);
            }
            let (low, high) = rate_band(f64::from(found), seconds, 0.9);
            by_time += u32::from((low..=high).contains(&rate));
            let waited: f64 = (0..hits).map(|_| draws.wait(rate)).sum();
            let (low, high) = rate_band(f64::from(hits), waited, 0.9);
            by_number += u32::from((low..=high).contains(&rate));
        }
        // 360 of 400 are 90 %; five standard deviations are 30.
        prop_assert!(by_time >= 330 && by_number >= 330, "{by_time} {by_number}");
    }
}
