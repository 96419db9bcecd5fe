//! A scanner and pages with exponential waits, to see what the rule finds in them.
//!
//! Each page has an access rate. A scan pass marks the pages in order; a marked page faults after an exponential time. What
//! the rule proposes moves at once while the target has room, best score first, and faults no more. Every run prints its
//! seed; `SEED=n cargo test -p thermocline-core adaptive` replays one.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::access::{FaultLatency, NoMappings};
use crate::rule::testing::{fault, topology};
use crate::topology::Watermarks;
use crate::units::Pfn;

const TICK_S: f64 = 0.1;

struct Pages {
    rng: Pcg64Mcg,
    /// Accesses a second of each page.
    rates: Vec<f64>,
    /// When the page was marked and when it will fault, in seconds.
    marked: Vec<Option<(f64, f64)>>,
    promoted: Vec<bool>,
    records: Vec<Record>,
    now: f64,
    pass_s: f64,
    capacity: usize,
    order: u8,
}

impl Pages {
    fn new(seed: u64, rates: Vec<f64>, pass_s: f64, capacity: usize) -> Pages {
        let n = rates.len();
        Pages {
            rng: Pcg64Mcg::new(seed.into()),
            rates,
            marked: vec![None; n],
            promoted: vec![false; n],
            records: vec![Record::default(); n],
            now: 0.0,
            pass_s,
            capacity,
            order: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn promoted(&self) -> usize {
        self.promoted.iter().filter(|p| **p).count()
    }

    fn run(&mut self, rule: &mut Adaptive, seconds: f64) {
        let topology = topology();
        let end = self.now + seconds;
        while self.now < end {
            let mut out = Candidates::new(self.rates.len());
            self.scan();
            for access in self.faults() {
                let page = access.pfn.expect("a frame").0 as usize;
                let ctx = Context { topology: &topology, frequency_max: 3, mappings: &NoMappings };
                rule.on_access(&access, &mut self.records[page], &ctx, &mut out);
            }
            let mut proposed = out.items().to_vec();
            proposed.sort_by_key(|c| std::cmp::Reverse(c.score));
            for candidate in proposed {
                if self.promoted() < self.capacity {
                    let page = candidate.pfn.expect("a frame").0 as usize;
                    self.promoted[page] = true;
                    self.marked[page] = None;
                }
            }
            let node = NodeState {
                node: NodeId(0),
                free_pages: (self.capacity - self.promoted()) as u64,
                managed_pages: self.capacity as u64,
                watermarks: Watermarks::default(),
            };
            self.now += TICK_S;
            rule.on_tick(Nanos((self.now * 1e9) as u64), &[node], &mut out);
        }
    }

    /// Marks the part of the address space that a scanner passes within a tick, as far as it is not marked already.
    fn scan(&mut self) {
        let n = self.rates.len();
        let share = |t: f64| ((t / self.pass_s).fract() * n as f64) as usize;
        let (from, to) = (share(self.now), share(self.now + TICK_S));
        let pages: Vec<usize> =
            if from <= to { (from..to).collect() } else { (from..n).chain(0..to).collect() };
        for page in pages {
            if !self.promoted[page] && self.marked[page].is_none() {
                let wait = -(1.0 - self.uniform()).ln() / self.rates[page];
                self.marked[page] = Some((self.now, self.now + wait));
            }
        }
    }

    /// The hint faults of this tick.
    fn faults(&mut self) -> Vec<Access> {
        let end = self.now + TICK_S;
        let mut faults = Vec::new();
        for (page, mark) in self.marked.iter_mut().enumerate() {
            if let Some((marked, at)) = mark.filter(|(_, at)| *at < end) {
                let time = Nanos(((at - marked) * 1e9) as u64);
                let detail = Detail::HintFault { latency: Some(FaultLatency { time, faults: 0 }) };
                faults.push(Access {
                    time: Nanos((at * 1e9) as u64),
                    pfn: Some(Pfn(page as u64)),
                    order: self.order,
                    detail,
                    ..fault(2, 0, 0, 0)
                });
                *mark = None;
            }
        }
        faults
    }

    /// Share of the hot pages that moved, and share of the moved pages that are hot.
    fn recall_and_precision(&self, hot: impl Fn(usize) -> bool) -> (f64, f64) {
        let all = (0..self.rates.len()).filter(|p| hot(*p)).count();
        let found = (0..self.rates.len()).filter(|p| hot(*p) && self.promoted[*p]).count();
        (found as f64 / all as f64, found as f64 / self.promoted().max(1) as f64)
    }

    /// Accesses served by what moved, of those that the best choice of as many pages as there is room would serve.
    fn share_of_best(&self) -> f64 {
        let mut best = self.rates.clone();
        best.sort_by(|a, b| b.total_cmp(a));
        let best: f64 = best[..self.capacity].iter().sum();
        let got: f64 = self.rates.iter().zip(&self.promoted).filter(|(_, p)| **p).map(|(r, _)| r).sum();
        got / best
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_240_327);
    println!("seed {seed}; replay with SEED={seed} cargo test -p thermocline-core adaptive");
    seed
}

fn rule() -> Adaptive {
    let config = config::Rule::default();
    Adaptive::new(&config.adaptive, &config.frequency, Nanos::from_s(10))
}

/// One page in five takes nine accesses in ten: a hot page is accessed 36 times as often as a cold one.
fn hot_and_cold(pages: usize, hot_wait_s: f64) -> Vec<f64> {
    (0..pages).map(|p| if p % 5 == 2 { 1.0 / hot_wait_s } else { 1.0 / (36.0 * hot_wait_s) }).collect()
}

const N: usize = 6000;
const HOT: fn(usize) -> bool = |p| p % 5 == 2;

#[test]
fn finds_a_scattered_hot_set_within_ten_passes_at_any_speed() {
    let seed = seed();
    for (hot_wait_s, pass_s) in [(0.001, 1.0), (0.01, 2.0), (0.03, 1.0), (0.1, 5.0), (0.3, 5.0)] {
        let mut pages = Pages::new(seed, hot_and_cold(N, hot_wait_s), pass_s, N / 3);
        pages.run(&mut rule(), 10.0 * pass_s);
        let (recall, precision) = pages.recall_and_precision(HOT);
        println!("wait {hot_wait_s} s, pass {pass_s} s: recall {recall:.3}, precision {precision:.3}");
        assert!(recall >= 0.9 && precision >= 0.9, "wait {hot_wait_s} s, pass {pass_s} s");
    }
}

#[test]
fn slow_pages_take_ten_of_their_own_waits_not_ten_passes() {
    // A page that waits longer than a pass faults once a wait: there is no more evidence to have.
    let seed = seed();
    for hot_wait_s in [1.0, 3.0, 10.0] {
        let mut pages = Pages::new(seed, hot_and_cold(N, hot_wait_s), 1.0, N / 3);
        pages.run(&mut rule(), 30.0 * hot_wait_s);
        let (recall, precision) = pages.recall_and_precision(HOT);
        println!("wait {hot_wait_s} s: recall {recall:.3}, precision {precision:.3}");
        assert!(recall >= 0.9 && precision >= 0.9, "wait {hot_wait_s} s");
    }
}

#[test]
fn keeps_out_what_is_cold_after_the_hot_pages_have_gone() {
    let mut pages = Pages::new(seed(), hot_and_cold(N, 0.01), 1.0, N / 3);
    pages.run(&mut rule(), 55.0);
    let (recall, precision) = pages.recall_and_precision(HOT);
    println!("after 55 passes: recall {recall:.3}, precision {precision:.3}");
    assert!(recall >= 0.99 && precision >= 0.85);
}

#[test]
fn takes_the_best_of_a_zipf_distribution_first() {
    let seed = seed();
    let mut rng = Pcg64Mcg::new(seed.into());
    let mut ranks: Vec<usize> = (1..=N).collect();
    for i in (1..N).rev() {
        ranks.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    for top_rate in [1e6, 1e5, 1e4] {
        let rates = ranks.iter().map(|rank| top_rate * (*rank as f64).powf(-0.99)).collect();
        let mut pages = Pages::new(seed, rates, 1.0, N / 3);
        let mut rule = rule();
        let mut line = format!("{top_rate} accesses/s:");
        for seconds in [5.0, 5.0, 10.0] {
            pages.run(&mut rule, seconds);
            let (recall, precision) = pages.recall_and_precision(|p| ranks[p] <= N / 3);
            let share = pages.share_of_best();
            line += &format!(
                " {:.0} s: precision {precision:.2}, recall {recall:.2}, {share:.2} of the best;",
                pages.now
            );
            assert!(precision >= 0.75, "{line}");
        }
        println!("{line}");
        assert!(pages.share_of_best() >= 0.85);
    }
}

#[test]
fn fills_free_memory_only_after_a_while_when_all_pages_are_alike() {
    let mut pages = Pages::new(seed(), vec![100.0; N], 1.0, N / 3);
    let mut rule = rule();
    pages.run(&mut rule, 55.0);
    assert_eq!(pages.promoted(), 0);
    pages.run(&mut rule, 65.0);
    let filled = pages.promoted();
    println!("{filled} of {} pages filled", N / 3);
    assert!(filled > N / 6 && filled <= N / 3 - N / 3 / 16 + N / 50);
}

#[test]
fn leaves_free_memory_alone_when_told_or_when_pages_are_too_slow() {
    let seed = seed();
    let mut config = config::Rule::default();
    config.adaptive.fill = false;
    // A page that waits 20 s on average is below a second three times in a row once in 8,000 times.
    for (fill, rate, moved_max) in [(false, 100.0, 0), (true, 0.05, N / 400)] {
        config.adaptive.fill = fill;
        let mut rule = Adaptive::new(&config.adaptive, &config.frequency, Nanos::from_s(10));
        let mut pages = Pages::new(seed, vec![rate; N], 1.0, N / 3);
        pages.run(&mut rule, 150.0);
        assert!(pages.promoted() <= moved_max, "rate {rate}: {}", pages.promoted());
    }
}

#[test]
fn follows_a_hot_set_that_drifts() {
    let mut pages = Pages::new(seed(), hot_and_cold(N, 0.01), 1.0, N);
    let mut rule = rule();
    pages.run(&mut rule, 30.0);
    let before = pages.promoted.clone();
    // The neighbours of the hot pages become hot, the hot ones cold.
    pages.rates.rotate_right(1);
    pages.run(&mut rule, 15.0);
    let new = (0..N).filter(|p| pages.promoted[*p] && !before[*p]);
    let hot = new.clone().filter(|p| HOT((p + N - 1) % N)).count();
    println!("{hot} of {} pages that moved after the drift are hot now", new.clone().count());
    assert!(hot as f64 >= 0.9 * (N / 5) as f64);
    assert!(hot as f64 >= 0.75 * new.count() as f64);
}

#[test]
fn a_folios_wait_is_shared_by_its_pages() {
    // The same hot set in folios of 512 pages: only the number of base pages behind each fault differs.
    let mut pages = Pages::new(seed(), hot_and_cold(N, 0.01), 1.0, N / 3);
    pages.order = 9;
    pages.run(&mut rule(), 10.0);
    let (recall, precision) = pages.recall_and_precision(HOT);
    assert!(recall >= 0.9 && precision >= 0.9, "{recall} {precision}");
}

#[test]
fn other_evidence_is_judged_by_frequency() {
    let mut machine = crate::rule::testing::Machine::new();
    let mut rule = rule();
    machine.access(&mut rule, &crate::rule::testing::sample(2, 7, 0));
    machine.access(&mut rule, &crate::rule::testing::sample(2, 7, 100));
    assert_eq!(machine.proposed().len(), 1);
    assert_eq!(machine.proposed()[0].reason, Reason::Frequent);
}

#[test]
fn says_what_it_sees() {
    let mut pages = Pages::new(seed(), hot_and_cold(N, 0.01), 1.0, 0);
    let mut rule = rule();
    pages.run(&mut rule, 5.0);
    let value = |name: &str| {
        let gauges = rule.gauges();
        gauges.iter().find(|g| g.name == name).map(|g| g.value).expect("a gauge of that name")
    };
    assert_eq!(value("classes"), 2);
    assert!((9_000..11_000).contains(&value("hot_wait_us")), "{}", value("hot_wait_us"));
    assert!((320_000..400_000).contains(&value("cold_wait_us")), "{}", value("cold_wait_us"));
    assert!((18_000..28_000).contains(&value("cut_us")), "{}", value("cut_us"));
}
