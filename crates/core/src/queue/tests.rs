use super::*;
use crate::access::Source;
use crate::config;
use crate::moves::Direction;
use crate::rule::Reason;
use crate::units::NodeId;

fn queue(capacity: u32) -> Queue {
    Queue::new(capacity, Weights::new(&config::Source::default()))
}

fn waiting(vpn: u64, score: u16) -> Waiting {
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
    Waiting {
        candidate,
        estimates: Estimates::of(&candidate),
        weighed: Weighed::of(&candidate),
        page,
        scope: ScopeId::DEFAULT,
        route: Route::default(),
        tries: 0,
        not_before: None,
        held: None,
        seq: 0,
    }
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
        assert_eq!(q.offer(&waiting(vpn, score)), Offer::Queued);
    }
    assert_eq!(order(&mut q), [2, 4, 1, 3]);
}

#[test]
fn equal_scores_of_different_lanes_also_go_as_they_came() {
    let mut q = queue(64);
    for (vpn, scope) in [(1, 2), (2, 1), (3, 2)] {
        q.offer(&Waiting { scope: ScopeId(scope), ..waiting(vpn, 5) });
    }
    assert_eq!(order(&mut q), [1, 2, 3]);
}

#[test]
fn a_page_has_one_entry_and_the_newest_proposal_counts() {
    let mut q = queue(64);
    q.offer(&waiting(1, 5));
    q.offer(&waiting(2, 5));
    let mut again = waiting(1, 5);
    again.candidate.expires = Nanos(2000);
    assert_eq!(q.offer(&again), Offer::Merged);
    assert_eq!(order(&mut q), [1, 2], "with an equal score it keeps its place");
    assert_eq!(q.get(again.page).unwrap().candidate.expires, Nanos(2000));
    q.offer(&waiting(1, 4));
    assert_eq!((order(&mut q), q.len()), (vec![2, 1], 2));
}

#[test]
fn the_lowest_score_gives_way_when_it_is_full() {
    let mut q = queue(3);
    for (vpn, score) in [(1, 5), (2, 5), (3, 9)] {
        q.offer(&waiting(vpn, score));
    }
    assert_eq!(q.offer(&waiting(4, 5)), Offer::Full);
    let Offer::Displaced(out) = q.offer(&waiting(5, 6)) else { panic!("somebody gives way") };
    assert_eq!(out.page.vpn, 2, "of equal scores the last");
    assert_eq!(order(&mut q), [3, 5, 1]);
}

#[test]
fn a_parked_page_takes_no_turns_until_its_time_and_keeps_its_tries() {
    let mut q = queue(64);
    q.offer(&Waiting { not_before: Some(Nanos(50)), tries: 2, ..waiting(1, 5) });
    assert!(order(&mut q).is_empty());
    assert_eq!(q.held(waiting(1, 5).page), Some(RefusalReason::Retry));
    assert_eq!(q.offer(&waiting(1, 8)), Offer::Merged);
    q.wake(Nanos(49));
    assert!(order(&mut q).is_empty());
    q.wake(Nanos(50));
    assert_eq!(order(&mut q), [1]);
    let entry = q.get(waiting(1, 5).page).unwrap();
    assert_eq!((entry.tries, entry.candidate.score), (2, 8));
}

#[test]
fn a_process_takes_its_entries_with_it() {
    let mut q = queue(64);
    for vpn in 0..10 {
        let mut w = waiting(vpn, 5);
        w.page.pid = Pid((vpn % 2) as u32);
        if vpn == 4 {
            w.not_before = Some(Nanos(50));
        }
        q.offer(&w);
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
        let mut w = waiting(vpn, 5);
        w.candidate.expires = Nanos(if vpn % 2 == 0 { 10 } else { 20 });
        q.offer(&w);
    }
    let swept: usize = (0..17).map(|_| q.sweep(Nanos(10)).len()).sum();
    assert_eq!((swept, q.len()), (20_000, 20_000));
}

#[test]
fn slots_are_used_again() {
    let mut q = queue(64);
    for round in 0..1000 {
        for vpn in 0..64 {
            q.offer(&waiting(round * 64 + vpn, (vpn % 7) as u16));
        }
        for vpn in 0..64 {
            q.remove(waiting(round * 64 + vpn, 0).page).unwrap();
        }
    }
    assert!(q.is_empty() && q.lanes.is_empty() && q.processes.is_empty());
    assert_eq!(q.slab.high(), 64);
}

/// A candidate of a source.
fn from(source: Source, vpn: u64, score: u16) -> Waiting {
    let mut w = waiting(vpn, score);
    w.candidate.source = source;
    Waiting { estimates: Estimates::of(&w.candidate), weighed: Weighed::of(&w.candidate), ..w }
}

#[test]
fn what_two_sources_say_of_a_page_is_weighed_together() {
    let mut q = queue(64);
    q.offer(&from(Source::HintFault, 1, 1000));
    q.offer(&from(Source::HintFault, 2, 1000));
    assert_eq!(q.offer(&from(Source::HwSample, 2, 960)), Offer::Merged);
    let entry = q.get(waiting(2, 0).page).unwrap();
    assert_eq!((entry.weighed.score, entry.estimates.iter().count()), (980, 2));
    assert_eq!(order(&mut q), [2, 1], "980 of two sources goes before 1000 of one");
    // Its evidence from hint faults is too old by then.
    let mut late = from(Source::HwSample, 2, 700);
    (late.candidate.time, late.candidate.expires) = (Nanos(1000), Nanos(2000));
    late.estimates = Estimates::of(&late.candidate);
    q.offer(&late);
    assert_eq!(q.get(late.page).unwrap().weighed.score, 700);
    assert_eq!(order(&mut q), [1, 2]);
}

#[test]
fn a_source_that_floods_the_queue_leaves_the_others_their_share() {
    let mut q = queue(100);
    for vpn in 0..1000 {
        q.offer(&from(Source::Device, vpn, 1900));
    }
    for vpn in 1000..1100 {
        q.offer(&from(Source::HintFault, vpn, 500 + vpn as u16));
    }
    // As many as its share found a place, though all of them rank lower; then the better ones took the places of the worse.
    let held = |q: &Queue, source| {
        q.lanes.iter().filter(|(k, _)| k.source == source).map(|(_, l)| l.len).sum::<usize>()
    };
    assert_eq!((q.len(), held(&q, Source::HintFault), held(&q, Source::Device)), (100, 50, 50));
    let kept: Vec<u64> = order(&mut q).into_iter().filter(|vpn| *vpn >= 1000).collect();
    assert_eq!(kept, (1050..1100).rev().collect::<Vec<_>>());
    // And the flood does not come back over them.
    for vpn in 2000..3000 {
        assert_eq!(q.offer(&from(Source::Device, vpn, 1900)), Offer::Full);
    }
    assert!(
        matches!(q.offer(&from(Source::Device, 3000, 1950)), Offer::Displaced(w) if w.candidate.source == Source::Device)
    );
}
