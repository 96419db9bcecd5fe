//! Whatever a machine reports is read back as it was.

use std::convert::Infallible;
use std::path::Path;

use proptest::prelude::*;
use thermocline_core::access::{
    Access, Detail, Evidence, FaultLatency, Holding, Mappings, Marked, Membership, Pressure, Programs,
    Region, RegionPage, RegionSnapshot, RegionSpace, Scans,
};
use thermocline_core::demand::{Allowance, Demand, Demoted};
use thermocline_core::label::Label;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Direction, Move, Outcome};
use thermocline_core::pace::{Pacing, ScanPace};
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, PageSize, Pfn, Pid, ScopeId, TierId, VirtPage};
use thermocline_trace::piece::{Answer, Piece, RegionCount, Step};
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::writer::About;

use crate::machines::patient;

/// Small, large and close numbers.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..5u64, (1u64 << 40)..(1u64 << 40) + 100, Just(u64::MAX)]
}

fn page() -> impl Strategy<Value = VirtPage> {
    (prop_oneof![any::<u32>(), Just(Pid::UNKNOWN.0)], number())
        .prop_map(|(pid, vpn)| VirtPage { pid: Pid(pid), vpn })
}

fn pfn() -> impl Strategy<Value = Option<Pfn>> {
    proptest::option::of(number().prop_map(Pfn))
}

fn node_id() -> impl Strategy<Value = NodeId> {
    prop_oneof![any::<u16>().prop_map(NodeId), Just(NodeId::UNKNOWN)]
}

fn detail() -> impl Strategy<Value = Detail> {
    let latency = proptest::option::of((number(), any::<u32>()));
    prop_oneof![
        latency.prop_map(|latency| Detail::HintFault {
            latency: latency.map(|(time, faults)| FaultLatency { time: Nanos(time), faults })
        }),
        (any::<u32>(), any::<Option<bool>>(), any::<u32>())
            .prop_map(|(latency_cycles, store, period)| Detail::Sample { latency_cycles, store, period }),
        (any::<u32>(), proptest::option::of(number()))
            .prop_map(|(count, gap)| Detail::Count { count, gap: gap.map(Nanos) }),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    let place = (number(), pfn(), proptest::option::of(page()), any::<u8>());
    (place, node_id(), proptest::option::of(node_id()), detail()).prop_map(
        |((time, pfn, page, order), node, accessor, detail)| Access {
            time: Nanos(time),
            pfn,
            page,
            order,
            node,
            accessor,
            detail,
        },
    )
}

fn space() -> impl Strategy<Value = RegionSpace> {
    prop_oneof![
        any::<u32>().prop_map(|pid| RegionSpace::Virtual(Pid(pid))),
        node_id().prop_map(RegionSpace::Physical),
        any::<u32>().prop_map(RegionSpace::Target),
    ]
}

fn region_count() -> impl Strategy<Value = RegionCount> {
    let more = (proptest::option::of(number()), proptest::option::of(number()));
    (space(), number(), number(), number(), more).prop_map(|(space, start, end, accesses, (writes, age))| {
        RegionCount { space, start, end, accesses, writes, age }
    })
}

fn region() -> impl Strategy<Value = Region> {
    (space(), number(), number(), any::<u16>(), number(), number()).prop_map(
        |(space, start, end, access_rate_bp, age, check)| Region {
            space,
            start,
            end,
            access_rate_bp,
            age: Nanos(age),
            check: Nanos(check),
        },
    )
}

fn region_page() -> impl Strategy<Value = RegionPage> {
    (page(), pfn(), any::<u8>(), node_id(), region(), number()).prop_map(
        |(page, pfn, order, node, region, time)| RegionPage {
            page,
            pfn,
            order,
            node,
            region,
            time: Nanos(time),
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    (0..Outcome::ALL.len()).prop_map(|n| Outcome::ALL[n])
}

fn topology() -> impl Strategy<Value = Topology> {
    let node = (any::<u8>(), proptest::collection::vec(any::<u32>(), 0..4), 1..u64::MAX);
    let more = (proptest::option::of(any::<u32>()), proptest::option::of(any::<u32>()));
    let nodes = proptest::collection::vec((node, more), 1..4);
    (nodes, 0..PageSize::ALL.len()).prop_map(|(nodes, size)| {
        let count = nodes.len();
        let node = |(i, ((tier, cpus, capacity_pages), (latency, bandwidth)))| Node {
            id: NodeId(i as u16 * 3),
            tier: TierId(tier),
            cpus,
            capacity_pages,
            read_latency_ns: latency,
            read_bandwidth_mbps: bandwidth,
            distances: vec![10 + i as u8; count],
        };
        let nodes = nodes.into_iter().enumerate().map(node).collect();
        Topology::new(nodes).expect("sound nodes").with_page_size(PageSize::ALL[size])
    })
}

fn evidence() -> impl Strategy<Value = Piece> {
    let membership = prop_oneof![
        Just(Membership::Excluded),
        Just(Membership::Unexamined),
        any::<u16>().prop_map(|scope| Membership::Managed(ScopeId(scope)))
    ];
    let pid = || any::<u32>().prop_map(Pid);
    let scans = (pid(), number(), number(), any::<u32>()).prop_map(|(pid, interval, mib, passes)| Scans {
        pid,
        interval: Nanos(interval),
        mib,
        passes,
    });
    let by_scope = proptest::collection::vec((any::<u16>().prop_map(ScopeId), number()), 0..3);
    prop_oneof![
        4 => proptest::collection::vec(access(), 0..20).prop_map(|batch| Piece::Accesses(batch, Vec::new())),
        1 => (number(), proptest::collection::vec(region(), 0..5))
            .prop_map(|(time, regions)| Piece::Regions(RegionSnapshot { time: Nanos(time), regions })),
        1 => proptest::collection::vec(region_page(), 0..5).prop_map(Piece::RegionPages),
        1 => (node_id(), number(), number())
            .prop_map(|(node, start, end)| Piece::Online(node, Pfn(start), Pfn(end))),
        1 => (number(), number()).prop_map(|(start, end)| Piece::Offline(Pfn(start), Pfn(end))),
        1 => topology().prop_map(Piece::Topology),
        1 => (pid(), membership).prop_map(|(pid, membership)| Piece::Process(pid, membership)),
        1 => pid().prop_map(Piece::Exec),
        1 => pid().prop_map(Piece::Exit),
        1 => (number(), number(), proptest::collection::vec(outcome(), 0..6)).prop_map(
            |(id, time, outcomes)| {
               Piece::Outcome(BatchOutcome { id: BatchId(id), time: Nanos(time), outcomes })
           }
        ),
        1 => (number(), node_id(), number(), number(), by_scope).prop_map(
            |(id, node, pages, cpu, by_scope)| Piece::Demoted(Demoted {
                id,
                node,
                pages,
                cpu: Nanos(cpu),
                by_scope
            })
        ),
        1 => (any::<u16>(), number(), number()).prop_map(|(scope, time, pages)| Piece::Holding(Holding {
            scope: ScopeId(scope),
            time: Nanos(time),
            pages
        })),
        1 => (any::<u16>(), number(), number(), number()).prop_map(|(scope, time, some_us, full_us)| {
            Piece::Pressure(Pressure { scope: ScopeId(scope), time: Nanos(time), some_us, full_us })
        }),
        1 => proptest::option::of(scans).prop_map(Piece::Scans),
        1 => (number(), number())
            .prop_map(|(time, cpu)| Piece::Programs(Programs { time: Nanos(time), cpu: Nanos(cpu) })),
    ]
}

fn state() -> impl Strategy<Value = NodeState> {
    let marks = (number(), number(), number(), number());
    (node_id(), number(), number(), marks).prop_map(
        |(node, free_pages, managed_pages, (min_pages, low_pages, high_pages, promo_pages))| NodeState {
            node,
            free_pages,
            managed_pages,
            watermarks: Watermarks { min_pages, low_pages, high_pages, promo_pages },
        },
    )
}

fn batch() -> impl Strategy<Value = Batch> {
    let one = (page(), pfn(), any::<u8>(), node_id()).prop_map(|(page, pfn, order, from)| Move {
        page,
        pfn,
        order,
        from,
    });
    let moves = proptest::collection::vec(one, 1..5);
    (number(), any::<u32>(), node_id(), 0..Direction::ALL.len(), moves).prop_map(
        |(id, pid, target, direction, moves)| Batch {
            id: BatchId(id),
            pid: Pid(pid),
            target,
            direction: Direction::ALL[direction],
            moves,
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    let allowance =
        || (any::<u16>(), number()).prop_map(|(scope, pages)| Allowance { scope: ScopeId(scope), pages });
    let some = |of| proptest::collection::vec(of, 0..3);
    let limits = (some(allowance().boxed()), some(allowance().boxed()), any::<Option<u16>>());
    (number(), node_id(), number(), number(), limits).prop_map(
        |(id, node, pages, idle, (allowances, braked, only))| Demand {
            id,
            node,
            pages,
            idle: Nanos(idle),
            allowances,
            braked,
            only: only.map(ScopeId),
        },
    )
}

/// A step that a machine could take part in.
#[derive(Clone, Debug)]
struct Course {
    time: u64,
    flags: (bool, bool, bool),
    pacing: Pacing,
    wish: Option<ScanPace>,
    polled: Vec<Piece>,
    read: Option<(Vec<Piece>, Vec<NodeState>)>,
    batches: Vec<Batch>,
    demands: Vec<Demand>,
    between: Vec<Piece>,
}

fn course() -> impl Strategy<Value = Course> {
    let pieces = || proptest::collection::vec(evidence(), 0..4);
    let opt = || proptest::option::of(any::<u32>());
    let wish = (any::<u32>(), opt(), opt(), any::<bool>()).prop_map(
        |(step_mb, period_min_ms, period_max_ms, renewing)| ScanPace {
            step_mb,
            period_min_ms,
            period_max_ms,
            renewing,
        },
    );
    let pacing = prop_oneof![Just(Pacing::Nothing), Just(Pacing::Steps), Just(Pacing::Renewals)];
    let head = (number(), any::<(bool, bool, bool)>(), pacing, proptest::option::of(wish));
    let read = proptest::option::of((pieces(), proptest::collection::vec(state(), 0..4)));
    let batches = proptest::collection::vec(batch(), 0..3);
    let demands = proptest::collection::vec(demand(), 0..3);
    (head, pieces(), read, batches, demands, pieces()).prop_map(
        |((time, flags, pacing, wish), polled, read, batches, demands, between)| Course {
            time,
            flags,
            pacing,
            wish,
            polled,
            read,
            batches,
            demands,
            between,
        },
    )
}

/// A machine that reports what a course says.
struct Scripted<'a>(&'a Course);

impl Machine for Scripted<'_> {
    type Error = Infallible;

    fn poll(&mut self, _: Nanos, _: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), Infallible> {
        self.0.polled.iter().for_each(|piece| assert!(piece.show(observe)));
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let (pieces, states) = self.0.read.as_ref().expect("it is read");
        pieces.iter().for_each(|piece| assert!(piece.show(observe)));
        Ok(states)
    }

    fn pacing(&self) -> Pacing {
        self.0.pacing
    }

    fn submit(&mut self, _: Vec<Batch>) {}

    fn demotes(&self) -> bool {
        self.0.flags.1
    }

    fn is_looking(&self) -> bool {
        self.0.flags.0
    }
}

/// What is to be read back of a course, in order.
fn expected(course: &Course) -> Vec<Piece> {
    let (looking, demotes, due) = course.flags;
    let (time, pacing, wish) = (Nanos(course.time), course.pacing, course.wish);
    let mut all = vec![Piece::Step(Step { time, due, last: false, looking, demotes, pacing, wish })];
    all.extend(course.polled.iter().cloned());
    if let Some((pieces, states)) = &course.read {
        all.push(Piece::Read);
        all.extend(pieces.iter().cloned());
        all.push(Piece::Nodes(states.clone()));
    }
    all.extend(course.batches.iter().cloned().map(Piece::Batch));
    all.extend(course.demands.iter().cloned().map(Piece::Demand));
    all.extend(course.between.iter().cloned());
    all
}

fn about(topology: Topology) -> About {
    About { settings: vec![("key".to_owned(), "väl\nue".to_owned())], topology }
}

fn read(folder: &Path) -> (Recording, Vec<(u64, Piece)>) {
    let recording = Recording::open(folder).expect("it is a recording");
    let mut reader = recording.read();
    let mut all = Vec::new();
    while let Some((event, _, piece)) = reader.next_event() {
        all.push((event, piece));
    }
    assert!(reader.damages().is_empty(), "{:?}", reader.damages());
    assert_eq!(reader.missing(), 0);
    (recording, all)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_reported_is_read_back(
        courses in proptest::collection::vec(course(), 1..6),
        topology in topology(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder =
            Recorder::start(folder.path(), about(topology.clone()), patient(), false).expect("it is empty");
        for course in &courses {
            let mut machine = Scripted(course);
            let mut step = recorder.over(&mut machine);
            let Ok(()) = step.poll(Nanos(course.time), course.flags.2, &mut |_| ());
            if course.read.is_some() {
                let Ok(_) = step.nodes(&mut |_| ());
            }
            step.wish(Wishes { scans: course.wish });
            step.submit(course.batches.clone());
            step.demote(course.demands.clone());
            for piece in &course.between {
                piece.show(&mut |evidence| recorder.between(evidence, &mut |_| ()));
            }
        }
        let summary = recorder.finish();
        prop_assert_eq!(summary.ended, None);
        let (recording, found) = read(folder.path());
        prop_assert_eq!(recording.topology(), &topology);
        prop_assert_eq!(recording.setting("key"), Some("väl\nue"));
        let wanted: Vec<Piece> = courses.iter().flat_map(expected).collect();
        prop_assert_eq!(found.len(), wanted.len());
        for (place, ((event, piece), wanted)) in found.iter().zip(&wanted).enumerate() {
            prop_assert_eq!(*event, place as u64);
            prop_assert_eq!(piece, wanted);
        }
    }
}

/// A machine whose mappings know something about every second page.
#[derive(Debug)]
struct Halves;

impl Mappings for Halves {
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>> {
        page.vpn.is_multiple_of(2).then_some(page.vpn..page.vpn + 7)
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        page.vpn.is_multiple_of(2).then_some(Marked { node: Some(NodeId(3)), pfn: None })
    }
}

#[test]
fn a_rule_is_answered_as_the_recorded_one_was_and_learns_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = |id, tier| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    let topology = Topology::new(vec![node(0, 0), node(1, 1)]).expect("sound nodes");
    let mut recorder =
        Recorder::start(folder.path(), about(topology), patient(), false).expect("it is empty");
    let at = |vpn| VirtPage { pid: Pid(5), vpn };
    recorder.between(Evidence::Accesses { batch: &[], mappings: &Halves }, &mut |evidence| {
        let Evidence::Accesses { mappings, .. } = evidence else { panic!("it is what was given") };
        assert_eq!(mappings.bounds(at(4)), Some(4..11));
        assert_eq!((mappings.bounds(at(5)), mappings.marked(at(5))), (None, None));
        assert_eq!(mappings.marked(at(6)), Some(Marked { node: Some(NodeId(3)), pfn: None }));
    });
    recorder.finish();
    let (_, all) = read(folder.path());
    let [(0, piece @ Piece::Accesses(batch, answers))] = &all[..] else { panic!("{all:?}") };
    assert!(batch.is_empty());
    let wanted = [
        Answer::Bounds(at(4), Some(4..11)),
        Answer::Bounds(at(5), None),
        Answer::Marked(at(5), None),
        Answer::Marked(at(6), Some(Marked { node: Some(NodeId(3)), pfn: None })),
    ];
    assert_eq!(answers[..], wanted);
    piece.show(&mut |evidence| {
        let Evidence::Accesses { mappings, .. } = evidence else { panic!("it is what was kept") };
        // In another order, and more than was asked.
        assert_eq!(mappings.marked(at(6)), Some(Marked { node: Some(NodeId(3)), pfn: None }));
        assert_eq!((mappings.bounds(at(4)), mappings.bounds(at(5))), (Some(4..11), None));
        assert_eq!((mappings.marked(at(4)), mappings.bounds(at(6))), (None, None));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// What no machine has reported is read back as well, with steps whose times do not go back.
    #[test]
    fn what_is_put_in_is_read_back(
        put in proptest::collection::vec(
            (number(), prop_oneof![
                (number(), proptest::collection::vec(region_count(), 0..5))
                    .prop_map(|(time, regions)| Piece::RegionCounts(Nanos(time), regions)),
                proptest::collection::vec(access(), 1..5).prop_map(|batch| Piece::Accesses(batch, Vec::new())),
                evidence(),
            ]),
            1..20,
        ),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = vec![("imported".to_owned(), "by hand".to_owned())];
        let about = About { settings, topology: Topology::default() };
        let mut recorder = Recorder::start(folder.path(), about, patient(), false).expect("it is empty");
        for (time, piece) in &put {
            prop_assert!(recorder.put(Nanos(*time), piece.clone()));
        }
        let summary = recorder.finish();
        prop_assert_eq!(summary.stats.pieces, put.iter().map(|(_, piece)| piece.pieces()).sum::<u64>());
        let recording = Recording::open(folder.path()).expect("it needs no nodes");
        prop_assert_eq!(recording.imported(), Some("by hand"));
        let mut reader = recording.read();
        let (mut latest, mut found) = (Nanos(0), Vec::new());
        while let Some((_, head, piece)) = reader.next_event() {
            prop_assert!(head.time >= latest);
            latest = head.time;
            if !matches!(piece, Piece::Step(_)) {
                found.push(piece);
            }
        }
        prop_assert_eq!(found, put.into_iter().map(|(_, piece)| piece).collect::<Vec<_>>());
    }
}
