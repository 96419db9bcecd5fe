//! Pages that are worth asking about.

use super::*;
use crate::engine::Worth;

#[test]
fn the_hottest_left_below_the_last_moved_and_the_most_refused_are_named() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(5, 0, 7)]);
    let batches = tick(&mut e, 0, &[]);
    end(&mut e, &batches[0], Outcome::Moved);
    // Moved a moment ago: refused, which is noted once.
    for _ in 0..3 {
        see(&mut e, &[access(5, 0, 7)]);
    }
    // No room: they wait, and each is colder than the one before.
    see(&mut e, &(0..8).map(|i| access(100 + i, 0, 900 - 64 * i as u16)).collect::<Vec<_>>());
    tick(&mut e, 2000, &[0, 1]);
    let worth = e.worth_asking(Pid(1));
    let left: Vec<VirtPage> = worth.left_below.iter().map(|l| l.page).collect();
    assert_eq!(left, [100, 101, 102, 103, 104].map(page), "the five hottest, in order");
    let first = worth.left_below[0];
    assert_eq!((first.score, first.from, first.held), (900, NodeId(2), Some(R::NodeFull)));
    // 64 points of score are a factor of two of the time between accesses.
    assert_eq!(worth.left_below[1].gap_us, 2 * first.gap_us);
    let [moved] = &worth.moved[..] else { panic!("{:?}", worth.moved) };
    assert_eq!((moved.page, moved.direction, moved.to), (page(5), Direction::Promote, Some(NodeId(0))));
    let [refused] = &worth.refused[..] else { panic!("{:?}", worth.refused) };
    assert_eq!((refused.page, refused.times, refused.reason), (page(5), 1, Some(R::Resident)));
    assert_eq!(refused.ms_ago, 2000);
    assert_eq!(worth.waiting, 8);
    assert_eq!(e.worth_asking(Pid(2)), Worth::default());
}
