//! The thread: as seen by its owner.

use std::time::{Duration, Instant};

use super::super::{Mover, Refused};
use super::*;

const WAIT: Duration = Duration::from_secs(20);

fn start(fake: &Fake, capacity: usize) -> Mover {
    let config = MoverConfig { capacity, ..config(SharedPages::Move) };
    Mover::start_on(fake.clone(), config, node_with_room(1 << 20)).unwrap()
}

fn numbered(id: u64, vpn: u64) -> Batch {
    Batch { id: BatchId(id), ..batch(vec![mv(vpn, 0)]) }
}

/// Waits until the first batch has passed its query: it is at the gate, or about to be.
fn until_at_the_gate(fake: &Fake) {
    // One query asks whether the kernel offers it at all.
    let end = Instant::now() + WAIT;
    while fake.state().queries < 2 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn submitting_never_waits_and_fills_up_at_the_capacity() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.gate(false);
    let mut mover = start(&fake, 3);
    for id in 0..3 {
        mover.submit(numbered(id, 0x100 + id)).unwrap();
    }
    until_at_the_gate(&fake);
    assert!(mover.outcomes().is_empty());
    match mover.submit(numbered(3, 0x103)) {
        Err(Refused::Full(back)) => assert_eq!(back, numbered(3, 0x103)),
        other => panic!("{other:?}"),
    }
    fake.gate(true);
    let ids: Vec<u64> = (0..3).map(|_| mover.wait(WAIT).unwrap().id.0).collect();
    assert_eq!((ids, mover.in_flight()), (vec![0, 1, 2], 0));
    mover.submit(numbered(3, 0x103)).unwrap();
    assert_eq!(mover.wait(WAIT).unwrap().outcomes, [Outcome::Moved]);
    let stats = mover.stats();
    assert_eq!((stats.batches, stats.outcomes.moved.moves, stats.outcomes.moved.pages), (4, 4, 4));
}

#[test]
fn other_scopes_hold_from_the_next_batch_on() {
    let fake = Fake::new();
    (0x100..0x103).for_each(|vpn| fake.map(vpn, 2));
    let mut mover = start(&fake, 3);
    let mut moved = |id, vpn| {
        mover.submit(numbered(id, vpn)).unwrap();
        mover.wait(WAIT).unwrap().outcomes
    };
    assert_eq!(moved(0, 0x100), [Outcome::Moved]);
    let nobody = thermocline_core::config::Scope { command: Some("x".to_owned()), ..Default::default() };
    mover.set_scopes(crate::scope::Scopes::new(&[nobody]).unwrap());
    let mut moved = |id, vpn| {
        mover.submit(numbered(id, vpn)).unwrap();
        mover.wait(WAIT).unwrap().outcomes
    };
    assert_eq!(moved(1, 0x101), [Outcome::Excluded]);
    assert_eq!(moved(2, 0x102), [Outcome::Excluded]);
}

#[test]
fn shutting_down_finishes_the_batch_at_work_and_tries_no_other() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.gate(false);
    let mut mover = start(&fake, 8);
    (0..4).for_each(|id| mover.submit(numbered(id, 0x100 + id)).unwrap());
    until_at_the_gate(&fake);
    let gate = fake.clone();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        gate.gate(true);
    });
    let left = mover.shutdown(WAIT);
    opener.join().unwrap();
    assert!(left.finished);
    let ends: Vec<(u64, Outcome)> = left.outcomes.iter().map(|o| (o.id.0, o.outcomes[0])).collect();
    let not_tried = Outcome::NotTried;
    assert_eq!(ends, [(0, Outcome::Moved), (1, not_tried), (2, not_tried), (3, not_tried)]);
}

#[test]
fn shutting_down_does_not_wait_for_ever() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    fake.gate(false);
    let mut mover = start(&fake, 8);
    mover.submit(numbered(0, 0x100)).unwrap();
    until_at_the_gate(&fake);
    let begin = Instant::now();
    let left = mover.shutdown(Duration::from_millis(50));
    assert!(!left.finished && left.outcomes.is_empty());
    assert!(begin.elapsed() < WAIT);
    fake.gate(true);
}

#[test]
fn a_panic_stays_in_the_thread_and_is_told() {
    let fake = Fake::new();
    (0x100..0x103).for_each(|vpn| fake.map(vpn, 2));
    fake.state().panics = true;
    fake.gate(false);
    let mut mover = start(&fake, 8);
    (0..2).for_each(|id| mover.submit(numbered(id, 0x100 + id)).unwrap());
    fake.gate(true);
    for id in 0..2 {
        let outcome = mover.wait(WAIT).unwrap();
        assert_eq!((outcome.id.0, &outcome.outcomes[..]), (id, &[Outcome::NotTried][..]));
    }
    assert_eq!(mover.failure().as_deref(), Some("the fake was told to panic"));
    assert!(matches!(mover.submit(numbered(2, 0x102)), Err(Refused::Dead(_))));
    assert!(mover.shutdown(WAIT).finished);
}
