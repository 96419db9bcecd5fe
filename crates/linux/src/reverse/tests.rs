//! The map on synthetic processes, and on this one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermocline_core::access::Detail;
use thermocline_core::topology::Node;
use thermocline_core::units::{NodeId, TierId};

use super::*;
use crate::pagemap::Entry;
use crate::sys::counted::allocations;
use crate::sys::pagemap_scan::Region;

const DRAM: NodeId = NodeId(0);
const CXL: NodeId = NodeId(1);
/// Frames below this one are DRAM's.
const FIRST_SLOW: u64 = 1 << 20;

fn topology() -> Topology {
    let node = |id: NodeId, tier| Node {
        id,
        tier: TierId(tier),
        cpus: vec![],
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(DRAM, 0), node(CXL, 1)]).unwrap()
}

fn frames() -> PfnMap {
    let range = |start, end, node| PfnRange { start: Pfn(start), end: Pfn(end), node };
    PfnMap::new(vec![range(0, FIRST_SLOW, DRAM), range(FIRST_SLOW, 1 << 40, CXL)])
}

/// Each process's pages with their frames; those of frames that begin a huge page are huge.
#[derive(Clone, Default)]
struct Fake(BTreeMap<u32, BTreeMap<u64, (u64, bool)>>);

impl Fake {
    fn with(mut self, pid: u32, vpn: u64, pfn: u64, huge: bool) -> Fake {
        let pages = if huge { HUGE_PAGES } else { 1 };
        self.0.entry(pid).or_default().extend((0..pages).map(|n| (vpn + n, (pfn + n, huge))));
        self
    }
}

impl Memory for Fake {
    fn present(
        &mut self,
        pid: Pid,
        from: u64,
        _to: u64,
        _pages_max: u64,
        regions: &mut [Region],
    ) -> Result<(usize, Option<u64>), PagemapError> {
        let Some(pages) = self.0.get(&pid.0) else { return Err(PagemapError::Gone(PathBuf::new())) };
        let mut count = 0;
        for (&vpn, &(_, huge)) in pages.range(from..) {
            if count == regions.len() {
                return Ok((count, Some(vpn)));
            }
            regions[count] = Region::new(vpn, vpn + 1, huge);
            count += 1;
        }
        Ok((count, None))
    }

    fn entries(&mut self, pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
        for (vpn, entry) in (vpn..).zip(entries.iter_mut()) {
            let pfn = self.0.get(&pid.0).and_then(|pages| pages.get(&vpn)).map(|(pfn, _)| *pfn);
            *entry = pfn.map_or(Entry::default(), |pfn| Entry(1 << 63 | pfn));
        }
        Ok(entries.len())
    }
}

/// A configuration without waiting.
fn fast() -> config::Reverse {
    config::Reverse {
        cpu_permille: 1000,
        pages_per_s: 1_000_000_000,
        round_ms: 1000,
        ..config::Reverse::default()
    }
}

fn start(fake: Fake) -> ReverseMap {
    ReverseMap::start_on(fake, &fast(), &frames(), &topology(), false).unwrap()
}

fn access(pfn: u64) -> Access {
    Access {
        time: Nanos(1),
        pfn: Some(Pfn(pfn)),
        page: None,
        order: 0,
        node: CXL,
        accessor: None,
        detail: Detail::Sample { latency_cycles: 0, store: Some(false), period: 0 },
    }
}

fn resolved(map: &mut ReverseMap, pfn: u64) -> Access {
    let mut accesses = [access(pfn)];
    map.resolve(&mut accesses, |pid| pid.0 < 100);
    accesses[0]
}

/// Begins a round at `now` through processes 1 to 9 and 100, and waits for its end.
fn round(map: &mut ReverseMap, now: Nanos) {
    let before = map.stats.rounds;
    map.look(now, (1..10).chain([100]).map(Pid));
    assert_eq!(map.stats.rounds, before + 1, "no round has begun");
    let end = Instant::now() + Duration::from_secs(30);
    while map.busy {
        map.take_in();
        assert!(Instant::now() < end, "the round does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn page(pid: u32, vpn: u64) -> VirtPage {
    VirtPage { pid: Pid(pid), vpn }
}

#[test]
fn a_frame_is_unknown_until_a_round_has_found_whose_it_is() {
    let huge = FIRST_SLOW + 3 * HUGE_PAGES;
    let fake = Fake::default().with(7, 0x1000, FIRST_SLOW + 5, false).with(8, 0x2000, huge, true);
    let mut map = start(fake);
    assert_eq!(resolved(&mut map, FIRST_SLOW + 5), access(FIRST_SLOW + 5));
    round(&mut map, Nanos(0));
    let found = resolved(&mut map, FIRST_SLOW + 5);
    assert_eq!((found.page, found.pfn, found.order), (Some(page(7, 0x1000)), Some(Pfn(FIRST_SLOW + 5)), 0));
    let tail = resolved(&mut map, huge + 17);
    assert_eq!((tail.page, tail.pfn, tail.order), (Some(page(8, 0x2000)), Some(Pfn(huge)), 9));
    let stats = map.stats();
    assert_eq!((stats.resolved, stats.unknown, stats.frames), (2, 1, 513));
    assert!(stats.looked_up > 0 && stats.bytes == 256 << 10);
}

#[test]
fn rounds_are_made_where_there_is_cause_and_not_too_often() {
    let mut map = start(Fake::default());
    map.look(Nanos(0), [Pid(7)].into_iter());
    assert_eq!(map.stats.rounds, 0, "nobody has asked for a frame");
    resolved(&mut map, FIRST_SLOW);
    round(&mut map, Nanos::from_s(1));
    resolved(&mut map, FIRST_SLOW);
    map.look(Nanos::from_ms(1999), [Pid(7)].into_iter());
    assert_eq!(map.stats.rounds, 1, "too early");
    round(&mut map, Nanos::from_s(2));
    map.look(Nanos::from_s(9), [Pid(7)].into_iter());
    assert_eq!(map.stats.rounds, 2, "nobody has asked since");
}

#[test]
fn who_is_in_no_scope_has_no_pages_here() {
    let mut map = start(Fake::default().with(100, 0x1000, FIRST_SLOW, false));
    resolved(&mut map, FIRST_SLOW);
    round(&mut map, Nanos(0));
    assert_eq!(map.stats().frames, 1);
    assert_eq!(resolved(&mut map, FIRST_SLOW).page, None);
    assert_eq!((map.stats().frames, map.stats().unknown), (0, 2), "and is forgotten");
}

#[test]
fn a_page_that_has_left_its_frame_is_forgotten_when_its_move_says_so() {
    let mut map = start(Fake::default().with(7, 1, FIRST_SLOW, false).with(7, 2, FIRST_SLOW + 1, false));
    resolved(&mut map, FIRST_SLOW);
    round(&mut map, Nanos(0));
    let done =
        |vpn: u64| Move { page: page(7, vpn), pfn: Some(Pfn(FIRST_SLOW + vpn - 1)), order: 0, from: CXL };
    for outcome in [Outcome::Busy, Outcome::Pinned, Outcome::NodeFull, Outcome::NotTried] {
        map.ended(&done(1), outcome);
        assert!(resolved(&mut map, FIRST_SLOW).page.is_some(), "{outcome:?} says nothing of the frame");
    }
    map.ended(&done(1), Outcome::OtherPage);
    assert_eq!(resolved(&mut map, FIRST_SLOW).page, None);
    map.ended(&done(1), Outcome::Gone);
    assert_eq!(map.stats().stale, 1, "once");
    map.ended(&done(2), Outcome::Moved);
    assert_eq!(resolved(&mut map, FIRST_SLOW + 1).page, None, "the frame is somebody else's now");
    assert_eq!(map.stats().stale, 1, "it was where it was said to be");
    // A move of another page of that frame does not affect this one.
    round(&mut map, Nanos::from_s(1));
    map.ended(&Move { page: page(8, 9), ..done(1) }, Outcome::OtherPage);
    assert!(resolved(&mut map, FIRST_SLOW).page.is_some());
}

#[test]
fn frames_of_the_top_tier_are_noted_only_for_a_rule_that_balances() {
    for (keep, known) in [(false, 1), (true, 2)] {
        let fake = Fake::default().with(7, 1, FIRST_SLOW, false).with(7, 2, 5, false);
        let mut map = ReverseMap::start_on(fake, &fast(), &frames(), &topology(), keep).unwrap();
        resolved(&mut map, FIRST_SLOW);
        round(&mut map, Nanos(0));
        assert_eq!(map.stats().frames, known);
    }
}

#[test]
fn processes_are_worked_off_whatever_becomes_of_them() {
    let fake = (1..6).fold(Fake::default(), |fake, pid| {
        (0..700)
            .fold(fake, |fake, n| fake.with(pid, 10 + 2 * n, FIRST_SLOW + u64::from(pid) * 1000 + n, false))
    });
    let mut map = start(fake);
    resolved(&mut map, FIRST_SLOW);
    // Processes 6 to 9 and 100 are gone.
    round(&mut map, Nanos(0));
    assert_eq!(map.stats().frames, 5 * 700);
    map.offline(&PfnRange { start: Pfn(FIRST_SLOW), end: Pfn(FIRST_SLOW + (1 << 30)), node: CXL });
    assert_eq!(map.stats().frames, 0);
}

#[test]
fn a_thread_that_fails_is_told_of_and_costs_what_it_knew_nothing() {
    struct Broken(Fake);
    impl Memory for Broken {
        fn present(
            &mut self,
            pid: Pid,
            from: u64,
            to: u64,
            pages_max: u64,
            regions: &mut [Region],
        ) -> Result<(usize, Option<u64>), PagemapError> {
            assert_ne!(pid, Pid(8), "what no kernel does");
            self.0.present(pid, from, to, pages_max, regions)
        }

        fn entries(&mut self, pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
            self.0.entries(pid, vpn, entries)
        }
    }
    let memory = Broken(Fake::default().with(7, 0x1000, FIRST_SLOW, false));
    let mut map = ReverseMap::start_on(memory, &fast(), &frames(), &topology(), false).unwrap();
    resolved(&mut map, FIRST_SLOW);
    map.look(Nanos(0), [7, 8].map(Pid).into_iter());
    let end = Instant::now() + Duration::from_secs(30);
    while !map.stats().failed {
        map.take_in();
        assert!(Instant::now() < end, "nobody tells of it");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(resolved(&mut map, FIRST_SLOW).page.is_some());
    map.look(Nanos::from_s(60), [Pid(7)].into_iter());
    assert_eq!(map.stats().rounds, 1);
}

#[test]
fn evidence_that_names_its_page_is_left_alone_and_nothing_is_allocated() {
    let mut map = start(Fake::default().with(7, 0x1000, FIRST_SLOW, false));
    resolved(&mut map, FIRST_SLOW);
    round(&mut map, Nanos(0));
    let named = Access { page: Some(page(9, 9)), ..access(FIRST_SLOW) };
    let mut accesses = [named, access(FIRST_SLOW), access(FIRST_SLOW + 9)];
    assert_eq!(allocations(|| map.resolve(&mut accesses, |_| true)), 0);
    assert_eq!(accesses[0], named);
    assert_eq!((accesses[1].page, accesses[2].page), (Some(page(7, 0x1000)), None));
    assert_eq!((map.stats().resolved, map.stats().unknown), (1, 2));
}

#[test]
fn a_page_of_this_process_is_found_by_its_frame() {
    let me = Pid(std::process::id());
    let mut block = vec![1u8; 64 << 12];
    let all_slow = PfnMap::new(vec![PfnRange { start: Pfn(0), end: Pfn(1 << 40), node: CXL }]);
    let started = ReverseMap::start(&Root::default(), &fast(), &all_slow, &topology(), false);
    let mut map = match started {
        Err(why @ (ReverseError::NotOffered | ReverseError::Hidden)) => return println!("skipped: {why}"),
        started => started.unwrap(),
    };
    let vpn = (block.as_ptr() as u64).div_ceil(1 << 12) + 3;
    let pagemap = crate::pagemap::Pagemap::open(std::path::Path::new("/proc"), me).unwrap();
    let pfn = pagemap.entry(vpn).unwrap().unwrap().pfn().unwrap();
    map.resolve(&mut [access(pfn.0)], |_| true);
    map.look(Nanos(0), [me].into_iter());
    let end = Instant::now() + Duration::from_secs(60);
    while map.busy {
        map.take_in();
        assert!(Instant::now() < end, "the round does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut accesses = [access(pfn.0)];
    map.resolve(&mut accesses, |_| true);
    let found = accesses[0].page.unwrap();
    assert_eq!(found.pid, me);
    // For a huge page the head is named.
    assert_eq!(found.vpn + (pfn.0 - accesses[0].pfn.unwrap().0), vpn, "{:?}", map.stats());
    block[0] = 2;
    assert_eq!(std::hint::black_box(&block)[0], 2);
}
