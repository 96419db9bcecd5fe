//! A program, a scanner and the resulting hint faults, to test what the rule finds.
//!
//! The program accesses pages at random, each with its share of the accesses. A scan marks pages; a
//! marked page faults at its next access, which is exponential in accesses, not in time: a fault
//! costs time itself, so after a scan of much memory the program crawls from fault to fault.
//! Proposed pages move at once while there is room, and do not fault any more. Every run prints its
//! seed; `SEED=n cargo test -p thermocline-core adaptive -- --nocapture` replays one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::access::{FaultLatency, NoMappings};
use crate::demand::DemandReason;
use crate::rule::testing::{Machine, fault, sample, topology};
use crate::topology::Watermarks;

const N: usize = 6000;

/// Speeds of program and scanner.
#[derive(Clone, Copy)]
struct Speed {
    access_ns: f64,
    fault_ns: f64,
    /// Duration of a scan pass, and its number of parts.
    pass_s: f64,
    parts: usize,
    /// Ten times a second the machine stalls for up to this long.
    stall_ns: f64,
}

/// Many small scans, cheap faults: waits are exponential. A hot page of [`hot_and_cold`] waits
/// `hot_wait_s` on average.
fn smooth(hot_wait_s: f64, pass_s: f64) -> Speed {
    Speed {
        access_ns: hot_wait_s * 1e9 * 0.9 / (0.2 * N as f64),
        fault_ns: 1.0,
        pass_s,
        parts: 10,
        stall_ns: 0.0,
    }
}

/// All memory is marked at once, and a fault costs as much as 100 accesses.
fn storm(access_ns: f64, pass_s: f64) -> Speed {
    Speed { access_ns, fault_ns: 100.0 * access_ns, pass_s, parts: 1, stall_ns: 0.0 }
}

struct Pages {
    rng: Pcg64Mcg,
    speed: Speed,
    /// Share of the accesses that each page takes.
    shares: Vec<f64>,
    /// When the page was marked, in ns.
    marked: Vec<Option<f64>>,
    promoted: Vec<bool>,
    records: Vec<(Nanos, Record)>,
    /// Faults to come: the number of the access, in 1/1024, and the page.
    coming: BinaryHeap<Reverse<(u64, usize)>>,
    accesses: f64,
    now_ns: f64,
    next_scan_ns: f64,
    next_tick_ns: f64,
    part: usize,
    capacity: usize,
    order: u8,
    /// Cold pages are demoted: free memory is spare.
    demotes: bool,
}

impl Pages {
    fn new(seed: u64, shares: Vec<f64>, speed: Speed, capacity: usize) -> Pages {
        let sum: f64 = shares.iter().sum();
        Pages {
            rng: Pcg64Mcg::new(seed.into()),
            speed,
            shares: shares.iter().map(|s| s / sum).collect(),
            marked: vec![None; N],
            promoted: vec![false; N],
            records: vec![(Nanos(0), Record::default()); N],
            coming: BinaryHeap::new(),
            accesses: 0.0,
            now_ns: 0.0,
            next_scan_ns: 0.0,
            next_tick_ns: 0.0,
            part: 0,
            capacity,
            order: 0,
            demotes: false,
        }
    }

    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn promoted(&self) -> usize {
        self.promoted.iter().filter(|p| **p).count()
    }

    fn seconds(&self) -> f64 {
        self.now_ns / 1e9
    }

    fn run(&mut self, rule: &mut Adaptive, seconds: f64) {
        let end_ns = self.now_ns + seconds * 1e9;
        while self.now_ns < end_ns {
            let fault_ns = self.coming.peek().map_or(f64::MAX, |Reverse((at, _))| {
                self.now_ns + (*at as f64 / 1024.0 - self.accesses).max(0.0) * self.speed.access_ns
            });
            let next_ns = fault_ns.min(self.next_scan_ns).min(self.next_tick_ns).max(self.now_ns);
            self.accesses += (next_ns - self.now_ns) / self.speed.access_ns;
            self.now_ns = next_ns;
            if next_ns >= self.next_tick_ns {
                self.next_tick_ns = next_ns + 1e8;
                let free_pages = (self.capacity - self.promoted()) as u64;
                let managed_pages = self.capacity as u64;
                let watermarks = Watermarks::default();
                let node = NodeState { node: NodeId(0), free_pages, managed_pages, watermarks };
                let mut nodes = vec![node];
                if self.demotes {
                    rule.on_spare(NodeId(0), free_pages);
                    let below = N as u64 - self.promoted() as u64;
                    nodes.push(NodeState {
                        node: NodeId(2),
                        free_pages: 0,
                        managed_pages: below,
                        watermarks,
                    });
                }
                rule.on_tick(Nanos(next_ns as u64), &nodes, &mut Candidates::new(0));
                self.now_ns += self.uniform() * self.speed.stall_ns;
            } else if next_ns >= self.next_scan_ns {
                self.scan();
            } else if let Some(Reverse((_, page))) = self.coming.pop() {
                self.fault(rule, page);
            }
        }
    }

    /// Marks a part of the pages unless they are marked already.
    fn scan(&mut self) {
        let parts = self.speed.parts;
        let part = self.part % parts;
        self.part += 1;
        self.next_scan_ns = self.now_ns + self.speed.pass_s * 1e9 / parts as f64;
        for page in part * N / parts..(part + 1) * N / parts {
            if !self.promoted[page] && self.marked[page].is_none() {
                let at = self.accesses - (1.0 - self.uniform()).ln() / self.shares[page];
                self.marked[page] = Some(self.now_ns);
                self.coming.push(Reverse(((at * 1024.0) as u64, page)));
            }
        }
    }

    fn fault(&mut self, rule: &mut Adaptive, page: usize) {
        let Some(marked_ns) = self.marked[page].take() else { return };
        let topology = topology();
        let ctx = Context { topology: &topology, frequency_max: 3, mappings: &NoMappings };
        let wait = Nanos((self.now_ns - marked_ns) as u64);
        let access = Access {
            time: Nanos(self.now_ns as u64),
            pfn: Some(Pfn(page as u64)),
            order: self.order,
            detail: Detail::HintFault { latency: Some(FaultLatency { time: wait, faults: 0 }) },
            ..fault(2, page as u64, 0, 0)
        };
        let (before, record) = &mut self.records[page];
        record.gap = (*before > Nanos(0)).then(|| access.time.since(*before));
        *before = access.time;
        let mut out = Candidates::new(1);
        rule.on_access(&access, record, &ctx, &mut out);
        if !out.items().is_empty() && self.promoted() < self.capacity {
            self.promoted[page] = true;
            let candidate = out.items()[0];
            let page = candidate.page.expect("a page");
            let done = Move { page, pfn: candidate.pfn, order: self.order, from: candidate.from };
            rule.on_outcome(&done, Outcome::Moved, &mut out);
        }
        self.now_ns += self.speed.fault_ns;
    }

    /// Share of the hot pages that moved, and share of the moved pages that are hot.
    fn recall_and_precision(&self, hot: impl Fn(usize) -> bool) -> (f64, f64) {
        let all = (0..N).filter(|p| hot(*p)).count();
        let found = (0..N).filter(|p| hot(*p) && self.promoted[*p]).count();
        (found as f64 / all as f64, found as f64 / self.promoted().max(1) as f64)
    }

    /// Accesses served by moved pages, as a share of those that the best choice of pages for the
    /// room would serve.
    fn share_of_best(&self) -> f64 {
        let mut best = self.shares.clone();
        best.sort_by(|a, b| b.total_cmp(a));
        let best: f64 = best[..self.capacity].iter().sum();
        let got: f64 = self.shares.iter().zip(&self.promoted).filter(|(_, p)| **p).map(|(s, _)| s).sum();
        got / best
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_240_327);
    println!("seed {seed}; replay with SEED={seed} cargo test -p thermocline-core adaptive -- --nocapture");
    seed
}

fn rule() -> Adaptive {
    rule_that_fills(true)
}

fn rule_that_fills(fill: bool) -> Adaptive {
    let mut config = config::Rule::default();
    config.adaptive.fill = fill;
    Adaptive::new(&config, config::RecordLayout::Word, Nanos::from_s(10))
}

const HOT: fn(usize) -> bool = |page| page % 5 == 2;

/// One page in five takes nine accesses in ten: a hot page is accessed 36 times as often as a cold
/// one.
fn hot_and_cold() -> Vec<f64> {
    (0..N).map(|page| if HOT(page) { 36.0 } else { 1.0 }).collect()
}

/// Runs `passes` passes with room for a third of the pages; returns recall and precision.
fn hunt(label: &str, speed: Speed, passes: f64) -> (f64, f64) {
    let mut pages = Pages::new(seed(), hot_and_cold(), speed, N / 3);
    pages.run(&mut rule_that_fills(false), passes * speed.pass_s);
    let (recall, precision) = pages.recall_and_precision(HOT);
    println!("{label}, {passes} passes: recall {recall:.3}, precision {precision:.3}");
    (recall, precision)
}

#[test]
fn finds_a_scattered_hot_set_within_ten_passes_at_any_speed() {
    for (hot_wait_s, pass_s) in [(0.001, 1.0), (0.01, 2.0), (0.03, 1.0), (0.1, 5.0), (0.3, 5.0)] {
        let label = format!("wait {hot_wait_s} s, pass {pass_s} s");
        let (recall, precision) = hunt(&label, smooth(hot_wait_s, pass_s), 10.0);
        assert!(recall >= 0.9 && precision >= 0.85, "{label}");
    }
}

#[test]
fn slow_pages_take_thirty_of_their_own_waits_not_ten_passes() {
    // A page that waits longer than a pass faults once a wait: there is no more evidence.
    for hot_wait_s in [1.0, 3.0, 10.0] {
        let label = format!("wait {hot_wait_s} s");
        let (recall, precision) = hunt(&label, smooth(hot_wait_s, 1.0), 30.0 * hot_wait_s);
        assert!(recall >= 0.75 && precision >= 0.9, "{label}");
    }
}

#[test]
fn finds_it_within_six_slow_passes_when_faults_slow_the_program_down() {
    // As seen under emulation: 0.1 s to 1 s of nothing but faults after each scan, which makes all
    // waits similar.
    for access_ns in [300.0, 1000.0, 5000.0] {
        let label = format!("storm, {access_ns} ns an access");
        let (recall, precision) = hunt(&label, storm(access_ns, 10.0), 5.5);
        assert!(recall >= 0.9 && precision >= 0.7, "{label}");
    }
}

#[test]
fn finds_it_on_a_machine_that_is_stopped_for_half_of_the_time() {
    let speed = Speed { stall_ns: 2e8, parts: 24, ..smooth(0.0085, 12.0) };
    let (recall, precision) = hunt("stopped for half of the time", speed, 5.0);
    assert!(recall >= 0.75 && precision >= 0.85);
}

#[test]
fn keeps_out_what_is_cold_after_the_hot_pages_have_gone() {
    let (recall, precision) = hunt("smooth", smooth(0.01, 1.0), 55.0);
    assert!(recall >= 0.95 && precision >= 0.85);
}

#[test]
fn takes_the_best_of_a_zipf_distribution_first() {
    let seed = seed();
    let mut rng = Pcg64Mcg::new(seed.into());
    let mut ranks: Vec<usize> = (1..=N).collect();
    for i in (1..N).rev() {
        ranks.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    for (label, speed) in [("smooth", smooth(0.01, 1.0)), ("storm", storm(300.0, 3.0))] {
        let shares = ranks.iter().map(|rank| (*rank as f64).powf(-0.99)).collect();
        let mut pages = Pages::new(seed, shares, speed, N / 3);
        let mut rule = rule();
        for passes in [5.0, 5.0, 10.0] {
            pages.run(&mut rule, passes * speed.pass_s);
            let (recall, precision) = pages.recall_and_precision(|p| ranks[p] <= N / 3);
            let (seconds, share) = (pages.seconds(), pages.share_of_best());
            println!(
                "{label}, {seconds:.0} s: precision {precision:.2}, recall {recall:.2}, {share:.2} of the best"
            );
            assert!(precision >= 0.65, "{label}");
        }
        assert!(pages.share_of_best() >= 0.85, "{label}");
    }
}

#[test]
fn where_cold_pages_go_down_the_best_fill_what_is_free_after_a_single_fault() {
    let speed = Speed { parts: 30, ..smooth(0.01, 3.0) };
    let run = |demotes, fill| {
        let mut pages = Pages::new(seed(), hot_and_cold(), speed, N / 3);
        pages.demotes = demotes;
        pages.run(&mut rule_that_fills(fill), 1.5 * speed.pass_s);
        (pages.promoted(), pages.recall_and_precision(HOT).0)
    };
    let (promoted, recall) = run(true, true);
    println!("{promoted} of {} pages filled, recall {recall:.2}", N / 3);
    assert!(promoted > N / 4 && recall >= 0.8);
    assert!(run(false, true).0 < N / 10, "what fills a node stays");
    assert!(run(true, false).0 < N / 10, "told to leave room alone");
}

/// Whether a page that waited for 100 ms, among others that wait for a second, is proposed after a
/// demand with this supply.
fn proposed_after(supply: Supply) -> bool {
    let (mut machine, mut rule) = (Machine::new(), rule());
    for page in 0..1000 {
        machine.access(&mut rule, &fault(2, page, 1000 + page, 1000));
    }
    let full = NodeState { node: NodeId(0), managed_pages: 1 << 20, ..NodeState::default() };
    rule.on_tick(Nanos::from_s(3), &[full], &mut Candidates::new(0));
    rule.on_supply(&supply);
    let before = machine.proposed().len();
    machine.access(&mut rule, &fault(2, 5000, 3000, 1500));
    machine.proposed().len() > before
}

#[test]
fn what_the_target_gives_though_nothing_waits_is_worth_pages_that_are_accessed_four_times_as_often() {
    let supply = |idle_s, reason, short| Supply {
        node: NodeId(0),
        idle: Nanos::from_s(idle_s),
        reason,
        asked: 1000,
        short,
    };
    assert!(proposed_after(supply(10, DemandReason::Goal, 250)));
    assert!(!proposed_after(supply(10, DemandReason::Goal, 251)), "it has not so much");
    assert!(!proposed_after(supply(4, DemandReason::Goal, 0)), "a second and more, against four");
    assert!(!proposed_after(supply(10, DemandReason::Waiting, 0)), "those that wait are for that");
    assert!(!proposed_after(supply(10, DemandReason::Allocations, 0)), "so are allocations");
}

#[test]
fn fills_free_memory_only_after_a_while_when_all_pages_are_alike() {
    let mut pages = Pages::new(seed(), vec![1.0; N], smooth(0.01, 1.0), N / 3);
    let mut rule = rule();
    pages.run(&mut rule, 9.0);
    assert_eq!(pages.promoted(), 0);
    pages.run(&mut rule, 21.0);
    let filled = pages.promoted();
    println!("{filled} of {} pages filled", N / 3);
    assert!(filled > N / 6 && filled <= N / 3 - N / 3 / 16 + N / 30);
}

#[test]
fn leaves_free_memory_alone_when_told_or_when_pages_are_too_slow() {
    for (fill, hot_wait_s) in [(false, 0.01), (true, 100.0)] {
        let mut pages = Pages::new(seed(), vec![1.0; N], smooth(hot_wait_s, 1.0), N / 3);
        pages.run(&mut rule_that_fills(fill), 150.0);
        assert!(pages.promoted() <= N / 400, "{}", pages.promoted());
    }
}

#[test]
fn the_hottest_keys_of_a_store_come_first_and_then_the_rest_of_free_memory_is_used() {
    // Three keys of zipfian popularity in each page, 0.25 accesses of a page a second on average.
    let seed = seed();
    let mut rng = Pcg64Mcg::new(seed.into());
    let mut ranks: Vec<u64> = (1..=3 * N as u64).collect();
    for i in (1..ranks.len()).rev() {
        ranks.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    let popularity = |rank: &u64| (*rank as f64).powf(-0.99);
    let shares = ranks.chunks(3).map(|keys| keys.iter().map(popularity).sum()).collect();
    let speed = Speed { access_ns: 4e9 / N as f64, pass_s: 8.0, parts: 13, ..smooth(1.0, 1.0) };
    let mut pages = Pages::new(seed, shares, speed, N / 2);
    let mut rule = rule();
    let seen = [20.0, 40.0].map(|seconds| {
        pages.run(&mut rule, seconds);
        let (promoted, share) = (pages.promoted(), pages.share_of_best());
        println!("{:.0} s: {promoted} promoted, {share:.2} of the best", pages.seconds());
        (promoted, share)
    });
    assert!(seen[0].0 < N / 10 && seen[0].1 >= 0.4, "a few pages bring much");
    assert!(seen[1].0 > N / 3 && seen[1].1 >= 0.9, "then free memory is used");
}

#[test]
fn follows_a_hot_set_that_drifts() {
    let mut pages = Pages::new(seed(), hot_and_cold(), smooth(0.01, 1.0), N);
    let mut rule = rule_that_fills(false);
    pages.run(&mut rule, 30.0);
    let before = pages.promoted.clone();
    // The neighbours of the hot pages become hot, the hot ones cold.
    pages.shares.rotate_right(1);
    pages.run(&mut rule, 15.0);
    let new = (0..N).filter(|p| pages.promoted[*p] && !before[*p]);
    let hot = new.clone().filter(|p| HOT((p + N - 1) % N)).count();
    println!("{hot} of {} pages that moved after the drift are hot now", new.clone().count());
    assert!(hot as f64 >= 0.8 * (N / 5) as f64);
    assert!(hot as f64 >= 0.75 * new.count() as f64);
}

#[test]
fn a_folios_wait_is_shared_by_its_pages() {
    // The same hot set in folios of 512 pages: only the number of base pages behind each fault
    // differs.
    let mut pages = Pages::new(seed(), hot_and_cold(), smooth(0.01, 1.0), N / 3);
    pages.order = 9;
    pages.run(&mut rule(), 10.0);
    let (recall, precision) = pages.recall_and_precision(HOT);
    assert!(recall >= 0.9 && precision >= 0.85, "{recall} {precision}");
}

/// A machine whose pages are alike: a thousand of them waited 1 to 1000 ms, with `free_pages` free
/// on the nodes of the top tier, as far as reported.
fn alike(free_pages: &[u64], exchange: bool) -> (Machine, Adaptive) {
    let mut machine = Machine::new();
    let mut config = config::Rule::default();
    config.adaptive.exchange = exchange;
    let mut rule = Adaptive::new(&config, config::RecordLayout::Word, Nanos::from_s(10));
    for page in 1..=1000 {
        machine.access(&mut rule, &fault(2, page, 1000 + page, page));
    }
    let state = |(id, free_pages): (u16, &u64)| NodeState {
        node: NodeId(id),
        free_pages: *free_pages,
        managed_pages: 1 << 20,
        watermarks: Watermarks::default(),
    };
    let nodes: Vec<NodeState> = (0..).zip(free_pages).map(state).collect();
    rule.on_tick(Nanos::from_s(3), &nodes, &mut Candidates::new(0));
    (machine, rule)
}

/// Which pages are proposed there of two that wait 100 and 600 ms, each seen once.
fn proposed_after_one_fault(free_pages: &[u64], exchange: bool) -> Vec<Candidate> {
    let (mut machine, mut rule) = alike(free_pages, exchange);
    for (page, wait_ms) in [(2000, 100), (2001, 600)] {
        machine.access(&mut rule, &fault(2, page, 3000, wait_ms));
    }
    machine.proposed().to_vec()
}

/// Which pages are proposed for accesses with long waits, on a machine whose slow node holds `held`
/// pages and whose two DRAM nodes have room for 900 each.
fn proposed_of_late_accesses(held: u64, fill: bool, access: impl Fn(u64) -> Access) -> Vec<Candidate> {
    let mut machine = Machine::new();
    let mut rule = rule_that_fills(fill);
    machine.access(&mut rule, &access(1));
    assert!(machine.proposed().is_empty(), "nothing is known of the nodes yet");
    let state = |(node, managed_pages, free_pages)| NodeState {
        node: NodeId(node),
        free_pages,
        managed_pages,
        watermarks: Watermarks::default(),
    };
    let nodes = [(0, 1600, 1000), (1, 1600, 1000), (2, 4000, 4000 - held)].map(state);
    rule.on_tick(Nanos::from_s(1), &nodes, &mut Candidates::new(0));
    machine.access(&mut rule, &access(2));
    machine.proposed().to_vec()
}

#[test]
fn where_everything_fits_a_page_is_proposed_as_soon_as_it_is_accessed() {
    let slow_fault = |page| fault(2, page, 2000 + page, 5000);
    let too_slow = |page| fault(2, page, 2000 + page, 60_000);
    let one_sample = |page| sample(2, page, 2000 + page);
    let pages =
        |found: Vec<Candidate>| -> Vec<u64> { found.iter().filter_map(|c| Some(c.page?.vpn)).collect() };
    assert_eq!(pages(proposed_of_late_accesses(1800, true, slow_fault)), [2]);
    assert_eq!(pages(proposed_of_late_accesses(1800, true, one_sample)), [2]);
    for reason in proposed_of_late_accesses(1800, true, one_sample).iter().map(|c| c.reason) {
        assert_eq!(reason, Reason::FreeRoom);
    }
    // One page too many, not worth it, or filling switched off.
    assert!(proposed_of_late_accesses(1801, true, slow_fault).is_empty());
    assert!(proposed_of_late_accesses(1801, true, one_sample).is_empty());
    assert!(proposed_of_late_accesses(1800, true, too_slow).is_empty());
    assert!(proposed_of_late_accesses(1800, false, slow_fault).is_empty());
}

#[test]
fn where_the_target_is_full_the_best_quarter_is_proposed_at_once_in_exchange() {
    let proposed = proposed_after_one_fault(&[0, 0], true);
    assert_eq!(
        proposed.iter().map(|c| (c.page.unwrap().vpn, c.reason)).collect::<Vec<_>>(),
        [(2000, Reason::Exchange)]
    );
    // Halfway between its own 100 ms and a median of half a second, in bins of a quarter of an
    // octave: where waits are spread evenly, pages are alike.
    let gap_ms = crate::candidate::gap_of_score(proposed[0].score).ms();
    assert!((250..=310).contains(&gap_ms), "{gap_ms}");
    assert_eq!(proposed_after_one_fault(&[0, 0], false), []);
    assert_eq!(
        proposed_after_one_fault(&[1 << 20, 0], true),
        [],
        "with room it can be waited for what stands out"
    );
    assert_eq!(proposed_after_one_fault(&[0, 1 << 20], true), [], "so can it with room on another node");
    assert_eq!(proposed_after_one_fault(&[], true), [], "nobody says that it is full");
}

#[test]
fn in_exchange_a_page_that_is_early_again_goes_before_one_that_was_early_once() {
    let (mut machine, mut rule) = alike(&[0, 0], true);
    for time_ms in [3000, 4000, 5000] {
        machine.access(&mut rule, &fault(2, 2000, time_ms, 100));
    }
    machine.access(&mut rule, &fault(2, 2001, 5000, 10));
    let scores: Vec<u16> = machine.proposed().iter().map(|c| c.score).collect();
    assert!(scores[0] < scores[3], "one wait each, 100 ms and 10: {scores:?}");
    assert!(scores[2] > scores[3], "three of 100 ms, against one of 10: {scores:?}");
}

/// Which pages are proposed of two that wait 200 and 900 ms, each seen once, if one page in five
/// always waits 10 ms, the others up to a second, and the target is full; `gone`: those that stand
/// out have been promoted.
fn proposed_of_the_rest(gone: bool) -> Vec<(u64, Reason)> {
    let (mut machine, mut rule) = (Machine::new(), rule());
    for round in 0..2 {
        for page in 0..3000 {
            let other = (page * 7919 + round * page * page) % 1000 + 1;
            let wait_ms = if page % 5 == 0 { 10 } else { other };
            machine.access(&mut rule, &fault(2, page, 20_000 * (round + 1), wait_ms));
        }
    }
    for page in (0..3000).step_by(5).filter(|_| gone) {
        let page = fault(2, page, 0, 0);
        let done = Move { page: page.page.unwrap(), pfn: page.pfn, order: 0, from: NodeId(2) };
        rule.on_outcome(&done, Outcome::Moved, &mut Candidates::new(0));
    }
    let full = NodeState { node: NodeId(0), managed_pages: 1 << 20, ..NodeState::default() };
    rule.on_tick(Nanos::from_s(42), &[full], &mut Candidates::new(0));
    let before = machine.proposed().len();
    for (page, wait_ms) in [(4000, 200), (4001, 900)] {
        machine.access(&mut rule, &fault(2, page, 42_000, wait_ms));
    }
    machine.proposed()[before..].iter().map(|c| (c.page.unwrap().vpn, c.reason)).collect()
}

#[test]
fn when_what_stood_out_has_gone_up_the_best_of_the_rest_are_proposed_in_exchange() {
    assert_eq!(proposed_of_the_rest(false), [], "hot pages are known by more than that");
    assert_eq!(proposed_of_the_rest(true), [(4000, Reason::Exchange)]);
}

#[test]
fn other_evidence_is_judged_by_frequency() {
    let mut machine = Machine::new();
    let mut rule = rule();
    machine.access(&mut rule, &sample(2, 7, 0));
    machine.access(&mut rule, &sample(2, 7, 100));
    assert_eq!(machine.proposed().len(), 1);
    assert_eq!(machine.proposed()[0].reason, Reason::Frequent);
}

#[test]
fn says_what_it_sees() {
    let mut pages = Pages::new(seed(), hot_and_cold(), smooth(0.01, 1.0), 0);
    let mut rule = rule();
    pages.run(&mut rule, 5.0);
    let value = |name: &str| {
        let gauges = rule.gauges();
        gauges.iter().find(|g| g.name == name).map(|g| g.value).expect("a gauge of that name")
    };
    // Above the hot mean of 10 ms and well below the cold one of 360 ms.
    assert!((10_000..60_000).contains(&value("cut_us")), "{}", value("cut_us"));
    assert!(value("agreement_percent") >= 25, "{}", value("agreement_percent"));
    assert!(value("pages_sampled") > 3000, "{}", value("pages_sampled"));
    assert_eq!(value("filling"), 0);
}
