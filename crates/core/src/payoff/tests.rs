//! The law, by hand.

use super::*;
use crate::access::FaultLatency;
use crate::candidate::Reason;
use crate::config::Config;
use crate::topology::Node;
use crate::units::{NodeId, Pid, TierId, VirtPage};

/// Length of a pass.
const PASS: Nanos = Nanos::from_s(10);

fn topology() -> Topology {
    let node = |id: u16, read_latency_ns| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: Some(read_latency_ns),
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0, 100), node(1, 250)]).unwrap()
}

fn fault(vpn: u64, at: Nanos, wait: Nanos) -> Access {
    Access {
        time: at,
        pfn: None,
        page: Some(VirtPage { pid: Pid(1), vpn }),
        order: 0,
        node: NodeId(1),
        accessor: Some(NodeId(0)),
        detail: Detail::HintFault { latency: Some(FaultLatency { time: wait, faults: 0 }) },
    }
}

fn candidate(access: &Access, gap: Nanos) -> Candidate {
    Candidate::promotion(access, score_of_rate(gap), Reason::HighRate, Nanos::from_s(60))
}

/// Pages that fault in every pass, after `wait` or after `later` in turn, and are proposed at their
/// first fault with a claim; among `cold` others that do not fault.
struct Course {
    payoff: Payoff,
    now: Nanos,
}

impl Course {
    /// On a machine that has been up for days.
    fn new() -> Course {
        Course { payoff: Payoff::new(&Config::default().payoff, &topology()), now: Nanos::from_s(1_000_000) }
    }

    /// Passes over `pages` pages from page `first` on, each of which faults after `wait` of its
    /// number and of the number of the pass.
    fn run(
        &mut self,
        passes: u64,
        pages: u64,
        cold: u64,
        claim: Nanos,
        wait: impl Fn(u64, u64) -> Option<Nanos>,
    ) {
        for pass in 0..passes {
            for page in 0..pages {
                let Some(wait) = wait(pass, page) else { continue };
                let access = fault(page, self.now, wait);
                self.payoff.see(&[access]);
                let _ = self.payoff.door(&candidate(&access, claim), Room::Priced, self.now);
            }
            for _ in 0..10 {
                self.now = self.now.plus(Nanos::from_s(1));
                self.payoff.tick(self.now, (PASS, Some(Pid(1))), pages + cold, Room::Priced);
            }
        }
    }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_ms(ms)
}

#[test]
fn a_class_that_keeps_its_promise_is_worth_it() {
    let mut course = Course::new();
    course.run(6, 6400, 1_000_000, ms(100), |_, _| Some(ms(100)));
    let judged = course.payoff.judged(ms(100), Room::Priced);
    // The wait of 100 ms lies in the octave up to 131 ms: at least 7.6 accesses a second.
    assert_eq!(judged.verdict, Verdict::Worth);
    assert!((judged.rate - 7.6).abs() < 0.1, "{judged:?}");
    assert_eq!((judged.saved_ns, judged.move_ns), (150.0, 10_000));
    assert!(course.payoff.may_promote());
}

#[test]
fn a_class_that_does_not_is_refused() {
    let mut course = Course::new();
    // Every page is early once, by chance.
    course.run(6, 6400, 1_000_000, ms(10), |pass, _| (pass == 0).then_some(ms(10)));
    let judged = course.payoff.judged(ms(10), Room::Priced);
    assert_eq!((judged.verdict, judged.rate), (Verdict::NotWorth, 0.0));
    let access = fault(1 << 20, course.now, ms(10));
    let passes: Vec<_> = (0..1000)
        .map(|n| {
            course.payoff.door(
                &candidate(&fault(n + (1 << 20), course.now, ms(10)), ms(10)),
                Room::Priced,
                course.now,
            )
        })
        .collect();
    assert!(passes.iter().all(|passed| passed.is_err()), "{passes:?}");
    assert!(passes.iter().filter(|passed| **passed == Err(RefusalReason::HeldOut)).count() > 5);
    assert_eq!(course.payoff.gate(&candidate(&access, ms(10)), Room::Priced), Err(RefusalReason::NotWorth));
}

#[test]
fn pages_that_are_all_alike_are_not_worth_an_exchange() {
    let mut course = Course::new();
    // All pages of lower tiers are accessed as often as those that are proposed.
    course.run(6, 6400, 0, ms(100), |_, _| Some(ms(100)));
    let judged = course.payoff.judged(ms(100), Room::Priced);
    assert_eq!(judged.verdict, Verdict::NotWorth);
    assert!(judged.price > judged.rate, "{judged:?}");
    // A scope that lacks some of its share need not be hotter than who has to give it.
    let owed = course.payoff.judged(ms(100), Room::Owed);
    assert_eq!((owed.verdict, owed.price), (Verdict::Worth, 0.0));
}

#[test]
fn what_stays_hot_counts_for_longer() {
    let stay = |wait: fn(u64, u64) -> Option<Nanos>| {
        let mut course = Course::new();
        // So long that the silent passes of all that were held out are known.
        course.run(12, 12_800, 1_000_000, ms(100), wait);
        course.payoff.judged(ms(100), Room::Priced).stay_s
    };
    let (steady, passing) = (stay(|_, _| Some(ms(100))), stay(|pass, _| (pass < 4).then_some(ms(100))));
    assert!(steady > 200.0, "{steady}");
    assert!(passing < 60.0, "{passing}");
}

#[test]
fn classes_without_pages_of_their_own_are_judged_by_their_neighbours() {
    let mut course = Course::new();
    course.run(6, 6400, 1_000_000, ms(100), |_, _| Some(ms(100)));
    assert_eq!(
        course.payoff.judged(ms(1), Room::Priced).verdict,
        Verdict::Worth,
        "hotter than what is worth it"
    );
    assert_eq!(course.payoff.judged(ms(5000), Room::Priced).verdict, Verdict::Unknown);
    let mut course = Course::new();
    course.run(6, 6400, 1_000_000, ms(100), |pass, _| (pass == 0).then_some(ms(100)));
    assert_eq!(
        course.payoff.judged(ms(5000), Room::Priced).verdict,
        Verdict::NotWorth,
        "colder than what is not"
    );
    assert_eq!(course.payoff.judged(ms(1), Room::Priced).verdict, Verdict::Unknown);
}

#[test]
fn trials_end_with_the_budget() {
    let mut payoff = Course::new().payoff;
    let tell = |payoff: &mut Payoff, s| {
        payoff.programs(&Programs { time: Nanos::from_s(s), cpu: Nanos::from_s(s) });
    };
    tell(&mut payoff, 0);
    tell(&mut payoff, 1);
    let trial = candidate(&fault(1, Nanos::from_s(1), ms(10)), ms(10));
    // Half a percent of 200 s in advance and of the first one: 1005 ms, or 100,500 moves of 10 us.
    let mut moves = 0;
    while payoff.gate(&trial, Room::Priced).is_ok() {
        payoff.promoted(&trial, Room::Priced);
        moves += 1;
    }
    assert_eq!(moves, 100_500);
    assert_eq!(payoff.gate(&trial, Room::Priced), Err(RefusalReason::BudgetSpent));
    assert_eq!(payoff.gate(&trial, Room::Owed), Ok(()), "a share is not for budgets to withhold");
    assert!(!payoff.may_promote());
    tell(&mut payoff, 2);
    assert_eq!(payoff.gate(&trial, Room::Priced), Ok(()));
}

#[test]
fn marks_that_will_fault_are_paid_for_in_advance() {
    let affordable = |lower_pages| {
        let mut payoff = Course::new().payoff;
        for s in 0..=10 {
            let now = Nanos::from_s(s);
            payoff.programs(&Programs { time: now, cpu: now });
            payoff.tick(now, (PASS, None), lower_pages, Room::Priced);
            let faults: Vec<Access> = (0..1000).map(|n| fault(n, now, ms(10))).collect();
            payoff.see(&faults);
        }
        payoff.faults_affordable().unwrap().factor
    };
    // All that was marked has faulted; or a pass over 4 GiB is left to fault at that rate.
    assert!(affordable(1 << 20) < 0.9 * affordable(10_000), "{} {}", affordable(1 << 20), affordable(10_000));
}

#[test]
fn other_evidence_and_other_directions_pass() {
    let mut payoff = Course::new().payoff;
    for n in 0..1000 {
        let access = fault(n, Nanos::from_s(1), ms(10));
        let mut other = candidate(&access, ms(10));
        other.source = Source::HwSample;
        assert_eq!(payoff.door(&other, Room::Priced, Nanos::from_s(1)), Ok(other.score));
        let mut down = candidate(&access, ms(10));
        down.direction = Direction::Demote;
        assert_eq!(payoff.door(&down, Room::Priced, Nanos::from_s(1)), Ok(down.score));
    }
    assert_eq!(payoff.held_out(), 0);
}

#[test]
fn what_is_hotter_by_claim_than_by_sight_waits_with_what_was_seen() {
    let mut course = Course::new();
    course.run(6, 6400, 1_000_000, ms(10), |_, _| Some(ms(100)));
    let access = (1 << 20..).map(|n| fault(n, course.now, ms(10)));
    let claim = |access: &Access| candidate(access, ms(10));
    let score = access
        .map(|a| course.payoff.door(&claim(&a), Room::Priced, course.now))
        .find_map(Result::ok)
        .unwrap();
    // 7.6 accesses a second where some 80 were claimed.
    assert!(gap_of_score(score) > ms(80), "{:?}", gap_of_score(score));
}
