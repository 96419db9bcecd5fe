//! Each way in which a move can end.

use Outcome::{
    AlreadyThere, Busy, Gone, Mempolicy, Moved, NoPermission, NodeFull, NotTried, OtherNode, OtherPage,
    Pinned, Shared,
};

use thermocline_core::access::Membership;
use thermocline_core::units::ScopeId;

use super::super::fake::{LOCKED, errors};
use super::*;
use crate::numa_maps::Policy;
use crate::sys::MovePagesError;

#[test]
fn moves_by_address_and_answers_in_the_order_asked() {
    let fake = Fake::new();
    (0x100..0x400).step_by(0x100).for_each(|vpn| fake.map(vpn, 2));
    fake.change(0x100, |p| p.node = 0);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x300, 0), mv(0x100, 0), mv(0x200, 0)]), [Moved, AlreadyThere, Moved]);
    assert_eq!(fake.state().calls, [vec![0x20_0000, 0x30_0000]]);
    assert_eq!((bench.stats.calls, bench.stats.queries, bench.stats.pages_asked), (1, 1, 2));
    assert!(bench.stats.ns_per_page().is_some_and(|ns| ns >= 500), "{:?}", bench.stats);
}

#[test]
fn what_is_not_the_page_of_the_evidence_is_left_alone() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.change(0x101, |p| p.pfn = 0x999);
    fake.change(0x102, |p| p.node = 1);
    fake.change(0x103, |p| (p.node, p.pfn) = (0, 0x998));
    fake.state().special.insert(0x200, 1 << 62 | 5 << 5);
    fake.state().special.insert(0x201, 1 << 62 | 5 << 5 | 27);
    let mut bench = Bench::new(&fake);
    let asked = [0x100, 0x101, 0x102, 0x103, 0x200, 0x201, 0x300].map(|vpn| mv(vpn, 0));
    let ends = bench.run(asked.to_vec());
    assert_eq!(ends, [Moved, OtherPage, OtherNode, AlreadyThere, Gone, Busy, Gone]);
    assert_eq!(fake.state().calls, [vec![0x10_0000]]);
}

#[test]
fn without_frame_numbers_node_and_mapping_are_still_checked() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    fake.map_folio(0x200, 512, 2);
    fake.change(0x100, |p| p.pfn = 0x999);
    fake.state().hide_frames = true;
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x100, 0), mv(0x200, 9)]), [Moved, Moved]);
    assert_eq!(bench.stats.frames_hidden, 2);
    assert_eq!(fake.state().calls, [vec![0x10_0000, 0x20_0000]]);
}

#[test]
fn shared_pages_go_or_stay_as_configured() {
    for (shared_pages, may, ends) in [
        (SharedPages::Move, true, [Moved, Moved]),
        (SharedPages::Leave, true, [Moved, Shared]),
        // Without CAP_SYS_NICE the configuration cannot be followed.
        (SharedPages::Move, false, [Moved, Shared]),
    ] {
        let fake = Fake::new();
        fake.state().may_move_shared = may;
        (0x100..0x102).for_each(|vpn| fake.map(vpn, 2));
        fake.change(0x101, |p| p.shared = true);
        let mut bench = Bench::with(&fake, shared_pages, 1000);
        assert_eq!(bench.run(vec![mv(0x100, 0), mv(0x101, 0)]), ends);
        assert_eq!(fake.state().calls.concat().len(), ends.iter().filter(|&&e| e == Moved).count());
    }
}

#[test]
fn pages_with_a_policy_stay() {
    let policy = |mode: &str, nodes: &[u16]| Policy {
        mode: mode.to_owned(),
        balancing: mode == "bind",
        nodes: nodes.iter().map(|&n| NodeId(n)).collect(),
    };
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.state().policies = vec![
        (0, policy("default", &[])),
        (0x10_1000, policy("bind", &[1, 2])),
        (0x10_2000, policy("bind", &[0, 2])),
        (0x10_3000, policy("prefer", &[2])),
    ];
    let mut bench = Bench::new(&fake);
    let ends = bench.run((0x100..0x104).map(|vpn| mv(vpn, 0)).collect());
    assert_eq!(ends, [Moved, Mempolicy, Moved, Mempolicy]);
    assert_eq!(fake.state().calls, [vec![0x10_0000, 0x10_2000]]);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Mempolicy]);
    assert_eq!(fake.state().policy_looks, 1, "a look is good for a while");
    assert_eq!(bench.run(vec![mv(0x100, 0)]), [AlreadyThere]);
    // Another process with this number has policies of its own.
    fake.state().start = Some(200);
    fake.state().policies.clear();
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Gone]);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Moved]);
}

#[test]
fn a_process_that_has_left_its_scope_stays() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    let mut bench = Bench::new(&fake);
    for membership in [Membership::Excluded, Membership::Unexamined] {
        fake.state().membership = membership;
        assert_eq!(bench.run(vec![mv(0x100, 0)]), [Outcome::Excluded]);
        assert!(fake.state().calls.is_empty());
    }
    fake.state().membership = Membership::Managed(ScopeId(3));
    assert_eq!(bench.run(vec![mv(0x100, 0)]), [Moved]);
}

#[test]
fn each_error_of_a_call_has_its_outcome() {
    let ends = [Gone, Gone, NoPermission, NoPermission, NodeFull, NodeFull, NoPermission, NotTried];
    for (error, end) in errors(PID, FAST).into_iter().zip(ends) {
        let fake = Fake::new();
        fake.map(0x100, 2);
        fake.state().error = Some(error);
        let mut bench = Bench::new(&fake);
        assert_eq!(bench.run(vec![mv(0x100, 0)]), [end], "{error}");
        assert_eq!(bench.stats.other_errors, u64::from(end == NotTried));
        fake.state().error = None;
        for from in [bench.stats.queries as u32 + 1, bench.stats.queries as u32 + 2] {
            fake.state().query_error = Some((from, error));
            fake.change(0x100, |p| p.pinned = true);
            assert_eq!(bench.run(vec![mv(0x100, 0)]), [end], "query {from}: {error}");
        }
    }
}

#[test]
fn errors_of_pagemap_have_outcomes() {
    for (errno, end) in [
        (libc::ENOENT, Gone),
        (libc::ESRCH, Gone),
        (libc::EACCES, NoPermission),
        (libc::EPERM, NoPermission),
        (libc::EIO, NotTried),
    ] {
        let fake = Fake::new();
        fake.map(0x100, 2);
        fake.state().pagemap_error = Some(errno);
        assert_eq!(Bench::new(&fake).run(vec![mv(0x100, 0)]), [end]);
        assert!(fake.state().calls.is_empty());
    }
}

#[test]
fn a_pinned_page_is_busy_at_first_and_holds_up_nobody() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.change(0x101, |p| p.pinned = true);
    let mut bench = Bench::new(&fake);
    let moves = || (0x100..0x104).map(|vpn| mv(vpn, 0)).collect::<Vec<_>>();
    assert_eq!(bench.run(moves()), [Moved, Busy, Moved, Moved]);
    assert_eq!(fake.state().calls.len(), 1, "one call tries them all");
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Busy]);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Pinned]);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Pinned]);
    fake.change(0x101, |p| p.pinned = false);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Moved]);
}

#[test]
fn a_locked_page_stays_busy_however_often_it_fails() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    fake.change(0x100, |p| (p.pinned, p.flags) = (true, LOCKED));
    let mut bench = Bench::new(&fake);
    for _ in 0..10 {
        assert_eq!(bench.run(vec![mv(0x100, 0)]), [Busy]);
    }
}

#[test]
fn pages_behind_a_failed_sub_batch_get_another_call() {
    let fake = Fake::new();
    (0x100..0x106).for_each(|vpn| fake.map(vpn, 2));
    fake.change(0x101, |p| p.pinned = true);
    fake.change(0x102, |p| p.off_lru = true);
    let mut bench = Bench::new(&fake);
    let ends = bench.run((0x100..0x106).map(|vpn| mv(vpn, 0)).collect());
    assert_eq!(ends, [Moved, Busy, Busy, Moved, Moved, Moved]);
    assert_eq!(fake.state().calls.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3]);
}

#[test]
fn calls_for_one_batch_are_bounded() {
    let fake = Fake::new();
    (0x100..0x200).for_each(|vpn| fake.map(vpn, 2));
    for vpn in (0x100..0x200).step_by(2) {
        fake.change(vpn, |p| p.pinned = true);
        fake.change(vpn + 1, |p| p.off_lru = true);
    }
    let mut bench = Bench::new(&fake);
    let ends = bench.run((0x100..0x200).map(|vpn| mv(vpn, 0)).collect());
    assert_eq!(fake.state().calls.len(), 4);
    assert_eq!(ends[..8], [Busy; 8]);
    assert_eq!(ends[8..], [NotTried; 248]);
}

#[test]
fn a_full_target_is_not_called() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    let mut bench = Bench::with(&fake, SharedPages::Move, 2);
    let moves: Vec<Move> = (0x100..0x104).rev().map(|vpn| mv(vpn, 0)).collect();
    assert_eq!(bench.run(moves.clone()), [Moved, Moved, NodeFull, NodeFull], "the first asked come first");
    let mut full = Bench::with(&fake, SharedPages::Move, 0);
    assert_eq!(full.run(moves), [AlreadyThere, AlreadyThere, NodeFull, NodeFull]);
    assert_eq!(full.stats.calls, 0);
}

#[test]
fn a_target_that_fills_during_the_call_is_told_from_the_pages() {
    let fake = Fake::new();
    (0x100..0x104).for_each(|vpn| fake.map(vpn, 2));
    fake.state().free = 3;
    let ends = Bench::new(&fake).run((0x100..0x104).map(|vpn| mv(vpn, 0)).collect());
    assert_eq!(ends, [Moved, Moved, Moved, NodeFull]);
}

#[test]
fn a_target_of_unknown_state_is_not_called() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    let worker = Worker::new(fake.clone(), &config(SharedPages::Move), Box::new(|_| None));
    let mut bench = Bench { worker, stats: MoverStats::default() };
    assert_eq!(bench.run(vec![mv(0x100, 0)]), [NotTried]);
    assert_eq!((bench.stats.state_unknown, bench.stats.calls), (1, 0));
}

#[test]
fn a_folio_goes_by_one_address() {
    let fake = Fake::new();
    fake.map_folio(0x200, 512, 2);
    fake.map(0x400, 2);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x200, 9), mv(0x400, 0)]), [Moved, Moved]);
    assert_eq!(fake.state().calls, [vec![0x20_0000, 0x40_0000]]);
    assert!(fake.state().pages.values().all(|p| p.node == 0));
    assert_eq!(bench.stats.pages_asked, 513);
}

#[test]
fn a_folio_that_has_been_split_goes_page_by_page() {
    let fake = Fake::new();
    (0x200..0x204).for_each(|vpn| fake.map(vpn, 2));
    fake.change(0x202, |p| p.node = 0);
    fake.state().pages.remove(&0x203);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x200, 2)]), [Moved]);
    assert_eq!(fake.state().calls, [vec![0x20_0000, 0x20_1000]]);
    assert!(fake.state().pages.values().all(|p| p.node == 0));
}

#[test]
fn a_folio_is_asked_for_once_where_something_else_is_mapped_behind_it() {
    let fake = Fake::new();
    fake.map_folio(0x200, 4, 2);
    fake.map(0x203, 2);
    fake.change(0x203, |p| p.pfn = 0x999);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x200, 2)]), [Moved]);
    assert_eq!(fake.state().calls, [vec![0x20_0000]]);
    assert_eq!(fake.state().pages[&0x203].node, 2);
}

#[test]
fn a_folio_that_moved_in_part_has_not_moved() {
    let fake = Fake::new();
    fake.map_folio(0x200, 512, 2);
    fake.state().free = 100;
    assert_eq!(Bench::new(&fake).run(vec![mv(0x200, 9)]), [NodeFull]);
    assert_eq!(fake.state().pages.values().filter(|p| p.node == 0).count(), 100);
}

#[test]
fn the_frame_of_a_folio_is_compared_by_its_head() {
    let fake = Fake::new();
    fake.map_folio(0x200, 512, 2);
    let tail = Move { pfn: Some(Pfn(0x10_0200 + 77)), ..mv(0x200, 9) };
    let other = Move { pfn: Some(Pfn(0x10_0400)), ..mv(0x200, 9) };
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![other]), [OtherPage]);
    assert_eq!(bench.run(vec![tail]), [Moved]);
}

#[test]
fn a_process_that_took_over_the_number_is_left_alone() {
    let fake = Fake::new();
    (0x100..0x102).for_each(|vpn| fake.map(vpn, 2));
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x100, 0)]), [Moved]);
    fake.state().start = Some(200);
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Gone]);
    assert_eq!((bench.stats.reused_pids, bench.stats.calls), (1, 1));
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Moved], "from then on it is the newcomer's turn");
    fake.state().start = None;
    assert_eq!(bench.run(vec![mv(0x101, 0)]), [Gone]);
}

#[test]
fn a_process_that_ends_during_the_batch_is_gone() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    fake.change(0x100, |p| p.pinned = true);
    fake.state().query_error = Some((2, MovePagesError::NoMemoryMap(PID)));
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![mv(0x100, 0)]), [Gone]);
    assert_eq!(bench.stats.calls, 1);
}

#[test]
fn nonsense_is_not_tried() {
    let fake = Fake::new();
    fake.map(0x100, 2);
    let stranger = Move { page: VirtPage { pid: Pid(8), vpn: 0x100 }, ..mv(0x100, 0) };
    let beyond = Move { page: VirtPage { pid: PID, vpn: u64::MAX }, pfn: None, ..mv(0x100, 3) };
    let huge = Move { order: 255, ..mv(0x100, 0) };
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.run(vec![stranger, beyond, huge]), [NotTried; 3]);
    assert_eq!(bench.run(vec![]), []);
    assert_eq!(bench.run(vec![mv(0x100, 0), mv(0x100, 0)]), [Moved, Busy], "asked for twice");
}
