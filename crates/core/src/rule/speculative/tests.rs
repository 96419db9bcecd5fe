//! Tests of the speculative rule: streams, windows and their ends.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::access::{Mappings, Marked};
use crate::rule::Latency;
use crate::rule::testing::{Machine, fault, sample};
use crate::units::NodeId;

/// Mappings of process 1, in which the pages of `marked` wait for a fault.
#[derive(Debug)]
struct Scanned {
    mappings: Vec<Range<u64>>,
    marked: BTreeSet<u64>,
    node: u16,
}

impl Scanned {
    /// One mapping, all of it marked on the slow node.
    fn all(mapping: Range<u64>) -> Scanned {
        Scanned { marked: mapping.clone().collect(), mappings: vec![mapping], node: 2 }
    }
}

impl Mappings for Scanned {
    fn bounds(&self, page: VirtPage) -> Option<Range<u64>> {
        self.mappings.iter().find(|m| m.contains(&page.vpn)).cloned()
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        let marked = self.marked.contains(&page.vpn);
        marked.then_some(Marked { node: Some(NodeId(self.node)), pfn: None })
    }
}

fn rule(windows: Windows) -> Speculative {
    let config = config::rule::Speculative { windows, ..config::rule::Speculative::default() };
    let latency = Latency::new(&config::rule::Latency::default(), 256, Nanos::from_s(10));
    Speculative::new(Box::new(latency), &config)
}

/// The neighbours proposed after each of these faults, all of hot pages and 1 ms apart.
fn run(windows: Windows, scanned: &Scanned, faults: &[u64]) -> Vec<Vec<u64>> {
    let mut machine = Machine::new();
    let mut rule = rule(windows);
    let mut found = Vec::new();
    for (i, vpn) in faults.iter().enumerate() {
        let before = machine.proposed().len();
        machine.access_in(&mut rule, &fault(2, *vpn, 5000 + i as u64, 10), scanned);
        let new = machine.proposed()[before..].iter().filter(|c| c.reason == Reason::Neighbour);
        found.push(new.map(|c| c.page.expect("a page").vpn).collect());
    }
    found
}

const NONE: Vec<u64> = Vec::new();

#[test]
fn published_opens_at_the_first_fault_and_grows_past_its_window() {
    let found = run(Windows::Published, &Scanned::all(0..512), &[100, 104, 109]);
    assert_eq!(found, [vec![101, 102, 103], vec![105, 106, 107, 108], vec![110, 111, 112, 113, 114]]);
}

#[test]
fn published_takes_interleaved_and_descending_streams_for_random() {
    let scanned = Scanned::all(0..512);
    let descending = run(Windows::Published, &scanned, &[100, 99, 98, 97]);
    assert_eq!(descending, [vec![101, 102, 103], NONE, NONE, NONE]);
    let interleaved = run(Windows::Published, &scanned, &[100, 300, 101, 301, 102]);
    assert_eq!(interleaved, [vec![101, 102, 103], NONE, NONE, NONE, NONE]);
}

#[test]
fn streams_open_at_the_second_fault_in_a_row() {
    let found = run(Windows::Streams, &Scanned::all(0..512), &[100, 101, 105, 110]);
    assert_eq!(found, [NONE, vec![102, 103, 104], vec![106, 107, 108, 109], (111..=115).collect::<Vec<_>>()]);
}

#[test]
fn streams_follow_descending_and_interleaved_streams() {
    let scanned = Scanned::all(0..512);
    let descending = run(Windows::Streams, &scanned, &[100, 99, 95]);
    assert_eq!(descending, [NONE, vec![98, 97, 96], vec![94, 93, 92, 91]]);
    let interleaved = run(Windows::Streams, &scanned, &[100, 300, 101, 301, 105, 299, 305]);
    let expected = [
        NONE,
        NONE,
        vec![102, 103, 104],
        vec![302, 303, 304],
        (106..=109).collect(),
        NONE,
        (306..=309).collect(),
    ];
    assert_eq!(interleaved, expected);
}

/// The moves are late: the program comes to every page before it has moved.
#[test]
fn a_stream_that_is_faster_than_the_moves_is_followed_farther_ahead_with_each_page() {
    let found = run(Windows::Streams, &Scanned::all(0..512), &[100, 101, 102, 103, 104]);
    let expected = [NONE, vec![102, 103, 104], vec![105, 106], vec![107, 108], vec![109, 110]];
    assert_eq!(found, expected, "a page more each time, and none twice");
    // Of the pages proposed at last, 110 is the farthest: the stream went past it.
    let on = run(Windows::Streams, &Scanned::all(0..512), &[100, 101, 102, 103, 104, 111]);
    assert_eq!(on[5], (112..=118).collect::<Vec<_>>());
    // As published it stays where it is.
    let published = run(Windows::Published, &Scanned::all(0..512), &[100, 101, 102, 103]);
    assert_eq!(published[3], [104, 105, 106]);
}

/// What has moved is not marked any more, and does not end the series.
#[test]
fn pages_that_have_moved_since_they_were_proposed_are_passed_over() {
    let mut scanned = Scanned::all(0..512);
    let mut machine = Machine::new();
    let mut rule = rule(Windows::Streams);
    for vpn in [100, 101, 102] {
        machine.access_in(&mut rule, &fault(2, vpn, 5000, 10), &scanned);
    }
    scanned.marked.remove(&104);
    let before = machine.proposed().len();
    machine.access_in(&mut rule, &fault(2, 103, 5000, 10), &scanned);
    let new: Vec<u64> =
        machine.proposed()[before + 1..].iter().map(|c| c.page.expect("a page").vpn).collect();
    assert_eq!(new, [107, 108], "105 and 106 were proposed before");
}

#[test]
fn streams_survive_random_faults_between_theirs() {
    let mut faults = vec![100, 101];
    faults.extend((0..50).map(|i| 200 + 5 * i));
    faults.push(105);
    let found = run(Windows::Streams, &Scanned::all(0..512), &faults);
    assert_eq!(found.last(), Some(&vec![106, 107, 108, 109]));
    assert!(found[2..52].iter().all(Vec::is_empty));
}

#[test]
fn a_stream_that_stopped_gives_way() {
    let mut streams = Streams::new(1, Nanos::from_ms(1000));
    let at = Nanos::from_ms;
    let up = |farthest| Ahead { direction: Direction::Up, nearest: 1, farthest };
    streams.fault(100, at(0), true);
    assert_eq!(streams.fault(101, at(1), true), up(3));
    // With a single slot any other fault takes it; a fault of the stream itself does not.
    assert_eq!(streams.fault(101, at(2), true), up(3));
    assert_eq!(streams.fault(500, at(3), true), up(0));
    let mut streams = Streams::new(2, Nanos::from_ms(1000));
    for (vpn, ms) in [(100, 0), (101, 1), (500, 2), (600, 3)] {
        streams.fault(vpn, at(ms), true);
    }
    assert_eq!(streams.fault(105, at(4), true), up(4), "the single fault gave way");
    streams.fault(900, at(2000), true);
    streams.fault(800, at(2001), true);
    assert_eq!(streams.fault(110, at(2002), true), up(0), "the stream was too old");
}

#[test]
fn a_page_that_the_rule_refuses_brings_no_neighbours_and_no_growth() {
    let scanned = Scanned::all(0..512);
    let mut machine = Machine::new();
    let mut rule = rule(Windows::Streams);
    for (vpn, latency_ms) in [(100, 10), (101, 5000), (104, 5000), (107, 10)] {
        machine.access_in(&mut rule, &fault(2, vpn, 5000, latency_ms), &scanned);
    }
    let found: Vec<u64> = machine
        .proposed()
        .iter()
        .filter(|c| c.reason == Reason::Neighbour)
        .filter_map(|c| c.page.map(|p| p.vpn))
        .collect();
    // 104 and 107 went past a window of 2; only 107 is hot, so it grew once.
    assert_eq!(found, [108, 109, 110, 111]);
}

#[test]
fn it_ends_with_the_mapping_and_the_block_and_at_what_is_not_marked() {
    let found = run(Windows::Streams, &Scanned::all(0..104), &[101, 102]);
    assert_eq!(found[1], [103]);
    let found = run(Windows::Streams, &Scanned::all(0..2048), &[509, 510]);
    assert_eq!(found[1], [511]);
    let found = run(Windows::Streams, &Scanned::all(0..2048), &[514, 513]);
    assert_eq!(found[1], [512]);
    let mut scanned = Scanned::all(0..512);
    scanned.marked.remove(&103);
    assert_eq!(run(Windows::Streams, &scanned, &[100, 101])[1], [102]);
    scanned.node = 0;
    assert_eq!(run(Windows::Streams, &scanned, &[100, 101])[1], NONE);
    let unknown = Scanned { mappings: Vec::new(), marked: (0..512).collect(), node: 2 };
    assert_eq!(run(Windows::Streams, &unknown, &[100, 101])[1], NONE);
}

#[test]
fn a_stream_goes_on_in_the_next_block() {
    let found = run(Windows::Streams, &Scanned::all(0..2048), &[508, 509, 512, 516]);
    assert_eq!(found[1], [510, 511]);
    assert_eq!(found[2], [513, 514, 515, 516]);
}

#[test]
fn neighbours_rank_below_the_page_and_by_distance() {
    let mut machine = Machine::new();
    let mut rule = rule(Windows::Published);
    machine.access_in(&mut rule, &fault(2, 100, 5000, 10), &Scanned::all(0..512));
    let scores: Vec<u16> = machine.proposed().iter().map(|c| c.score).collect();
    let first = scores[0];
    assert_eq!(scores, [first, first - 1, first - 2, first - 3]);
    assert!(machine.proposed().iter().all(|c| c.expires == Nanos::from_ms(15_000)));
}

#[test]
fn mappings_and_processes_have_windows_of_their_own() {
    let scanned = Scanned { mappings: vec![0..200, 200..400], marked: (0..400).collect(), node: 2 };
    let mut machine = Machine::new();
    let mut rule = rule(Windows::Published);
    for vpn in [100, 300] {
        machine.access_in(&mut rule, &fault(2, vpn, 5000, 10), &scanned);
    }
    let mut other = fault(2, 100, 5000, 10);
    other.page = Some(VirtPage { pid: Pid(2), vpn: 100 });
    machine.access_in(&mut rule, &other, &scanned);
    // Each opens its own: three pages and three times three neighbours.
    assert_eq!(machine.proposed().len(), 12);
}

#[test]
fn samples_and_large_folios_have_no_streams() {
    let scanned = Scanned::all(0..2048);
    let mut machine = Machine::new();
    let mut rule = rule(Windows::Published);
    let mut folio = fault(2, 512, 5000, 10);
    folio.order = 9;
    machine.access_in(&mut rule, &folio, &scanned);
    machine.access_in(&mut rule, &sample(2, 100, 5000), &scanned);
    assert_eq!(machine.proposed().len(), 1);
}

proptest! {
    #[test]
    fn whatever_faults_neighbours_stay_in_the_block_and_memory_is_bounded(
        faults in proptest::collection::vec((0u64..3000, 0u64..2), 1..300), published in any::<bool>(),
    ) {
        let windows = if published { Windows::Published } else { Windows::Streams };
        let scanned = Scanned::all(10..2900);
        let mut machine = Machine::new();
        let mut rule = rule(windows);
        for (i, (vpn, cold)) in faults.iter().enumerate() {
            let before = machine.proposed().len();
            machine.access_in(&mut rule, &fault(2, *vpn, 5000 + i as u64, 10 + cold * 5000), &scanned);
            for neighbour in machine.proposed()[before..].iter().filter(|c| c.reason == Reason::Neighbour) {
                let page = neighbour.page.expect("a page").vpn;
                prop_assert!(page / BLOCK_PAGES == vpn / BLOCK_PAGES);
                prop_assert!((10..2900).contains(&page) && page != *vpn);
            }
        }
        prop_assert!(rule.mappings.iter().flatten().count() <= 1);
    }
}
