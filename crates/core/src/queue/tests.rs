//! Tests of the queue against a sorted list.

use super::*;
use crate::access::Source;
use crate::admission::Route;
use crate::candidate::{Candidate, Reason};
use crate::config;
use crate::moves::Direction;
use crate::units::{NodeId, ScopeId};
use crate::weigh::Estimates;

fn queue(capacity: u32) -> Queue {
    Queue::new(capacity, Weights::new(&config::Sources::default()))
}

fn admitted(vpn: u64, score: u16) -> Admitted {
    let page = VirtPage { pid: Pid(1), vpn };
    let candidate = Candidate {
        page: Some(page),
        pfn: None,
        order: 0,
        from: NodeId(2),
        target: None,
        accessor: None,
        direction: Direction::Promote,
        score,
        reason: Reason::Frequent,
        source: Source::HintFault,
        time: Nanos(0),
        expires: Nanos(1000),
    };
    Admitted::new(&candidate, page, ScopeId::DEFAULT, Route::default())
}

/// The pages in the order of their turns.
fn order(q: &mut Queue) -> Vec<u64> {
    let mut out = Vec::new();
    let mut turns: Vec<(Turn, LaneKey)> = q.heads().into_iter().map(|(k, t)| (t, k)).collect();
    while let Some(best) = turns.iter().max().copied() {
        turns.retain(|t| *t != best);
        out.push(q.at(best.0).unwrap().page.vpn);
        turns.extend(q.after(best.1, best.0).map(|t| (t, best.1)));
    }
    out
}

#[test]
fn the_highest_score_first_and_equal_scores_as_they_came() {
    let mut q = queue(64);
    for (vpn, score) in [(1, 5), (2, 9), (3, 5), (4, 7)] {
        assert_eq!(q.offer(&admitted(vpn, score), None), Offer::Queued);
    }
    assert_eq!(order(&mut q), [2, 4, 1, 3]);
}

#[test]
fn equal_scores_of_different_lanes_also_go_as_they_came() {
    let mut q = queue(64);
    for (vpn, scope) in [(1, 2), (2, 1), (3, 2)] {
        q.offer(&Admitted { scope: ScopeId(scope), ..admitted(vpn, 5) }, None);
    }
    assert_eq!(order(&mut q), [1, 2, 3]);
}

#[test]
fn a_page_has_one_entry_and_the_newest_proposal_counts() {
    let mut q = queue(64);
    q.offer(&admitted(1, 5), None);
    q.offer(&admitted(2, 5), None);
    let mut again = admitted(1, 5);
    again.candidate.expires = Nanos(2000);
    assert_eq!(q.offer(&again, None), Offer::Merged);
    assert_eq!(order(&mut q), [1, 2], "with an equal score it keeps its place");
    assert_eq!(q.get(again.page).unwrap().candidate.expires, Nanos(2000));
    q.offer(&admitted(1, 4), None);
    assert_eq!((order(&mut q), q.len()), (vec![2, 1], 2));
}

#[test]
fn the_lowest_score_gives_way_when_it_is_full() {
    let mut q = queue(3);
    for (vpn, score) in [(1, 5), (2, 5), (3, 9)] {
        q.offer(&admitted(vpn, score), None);
    }
    assert_eq!(q.offer(&admitted(4, 5), None), Offer::Full);
    let Offer::Displaced(out) = q.offer(&admitted(5, 6), None) else { panic!("somebody gives way") };
    assert_eq!(out.page.vpn, 2, "of equal scores the last");
    assert_eq!(order(&mut q), [3, 5, 1]);
}

#[test]
fn a_parked_page_takes_no_turns_until_its_time_and_keeps_its_tries() {
    let mut q = queue(64);
    q.offer(&Admitted { tries: 2, ..admitted(1, 5) }, Some(Nanos(50)));
    assert!(order(&mut q).is_empty());
    assert_eq!(q.held(admitted(1, 5).page), Some(RefusalReason::Retry));
    assert_eq!(q.offer(&admitted(1, 8), None), Offer::Merged);
    q.wake(Nanos(49));
    assert!(order(&mut q).is_empty());
    q.wake(Nanos(50));
    assert_eq!(order(&mut q), [1]);
    let entry = q.get(admitted(1, 5).page).unwrap();
    assert_eq!((entry.tries, entry.candidate.score), (2, 8));
}

#[test]
fn a_process_takes_its_entries_with_it() {
    let mut q = queue(64);
    for vpn in 0..10 {
        let mut w = admitted(vpn, 5);
        w.page.pid = Pid((vpn % 2) as u32);
        q.offer(&w, (vpn == 4).then_some(Nanos(50)));
    }
    let gone: Vec<u64> = q.remove_process(Pid(0)).iter().map(|w| w.page.vpn).collect();
    assert_eq!(gone, [0, 2, 4, 6, 8]);
    assert_eq!((order(&mut q), q.parked()), (vec![1, 3, 5, 7, 9], 0));
    assert!(q.remove_process(Pid(0)).is_empty());
}

#[test]
fn what_has_expired_is_swept_out_within_a_lap() {
    let mut q = queue(1 << 16);
    for vpn in 0..40_000 {
        let mut w = admitted(vpn, 5);
        w.candidate.expires = Nanos(if vpn % 2 == 0 { 10 } else { 20 });
        q.offer(&w, None);
    }
    let swept: usize = (0..17).map(|_| q.sweep(Nanos(10)).len()).sum();
    assert_eq!((swept, q.len()), (20_000, 20_000));
}

#[test]
fn slots_are_used_again() {
    let mut q = queue(64);
    for round in 0..1000 {
        for vpn in 0..64 {
            q.offer(&admitted(round * 64 + vpn, (vpn % 7) as u16), None);
        }
        for vpn in 0..64 {
            q.remove(admitted(round * 64 + vpn, 0).page).unwrap();
        }
    }
    assert!(q.is_empty() && q.lanes.is_empty() && q.processes.is_empty());
    assert_eq!(q.slab.high(), 64);
}

/// A candidate of a source.
fn from(source: Source, vpn: u64, score: u16) -> Admitted {
    let mut w = admitted(vpn, score);
    w.candidate.source = source;
    Admitted { estimates: Estimates::of(&w.candidate), ..w }
}

#[test]
fn what_two_sources_say_of_a_page_is_weighed_together() {
    let mut q = queue(64);
    q.offer(&from(Source::HintFault, 1, 1000), None);
    q.offer(&from(Source::HintFault, 2, 1000), None);
    assert_eq!(q.offer(&from(Source::HwSample, 2, 960), None), Offer::Merged);
    let entry = q.get(admitted(2, 0).page).unwrap();
    assert_eq!((entry.score, entry.estimates.iter().count()), (980, 2));
    assert_eq!(order(&mut q), [2, 1], "980 of two sources goes before 1000 of one");
    // Its evidence from hint faults has expired by then.
    let mut late = from(Source::HwSample, 2, 700);
    (late.candidate.time, late.candidate.expires) = (Nanos(1000), Nanos(2000));
    late.estimates = Estimates::of(&late.candidate);
    q.offer(&late, None);
    assert_eq!(q.get(late.page).unwrap().score, 700);
    assert_eq!(order(&mut q), [1, 2]);
}

#[test]
fn a_source_that_floods_the_queue_leaves_the_others_their_share() {
    let mut q = queue(100);
    for vpn in 0..1000 {
        q.offer(&from(Source::Device, vpn, 1900), None);
    }
    for vpn in 1000..1100 {
        q.offer(&from(Source::HintFault, vpn, 500 + vpn as u16), None);
    }
    // Its share found places although all of them rank lower; then better ones replaced worse ones.
    let held = |q: &Queue, source| {
        q.lanes.iter().filter(|(k, _)| k.source == source).map(|(_, l)| l.len).sum::<usize>()
    };
    assert_eq!((q.len(), held(&q, Source::HintFault), held(&q, Source::Device)), (100, 50, 50));
    let kept: Vec<u64> = order(&mut q).into_iter().filter(|vpn| *vpn >= 1000).collect();
    assert_eq!(kept, (1050..1100).rev().collect::<Vec<_>>());
    // And the flood does not displace them again.
    for vpn in 2000..3000 {
        assert_eq!(q.offer(&from(Source::Device, vpn, 1900), None), Offer::Full);
    }
    assert!(
        matches!(q.offer(&from(Source::Device, 3000, 1950), None), Offer::Displaced(w) if w.candidate.source == Source::Device)
    );
}
