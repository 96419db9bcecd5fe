//! Tables against hand-computed cases, against a model with exact times, and against the published
//! update.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::access::Detail;
use crate::published::pghot::{self, Mode, PghotRecord, Tuning};
use crate::topology::Node;
use crate::units::{NodeId, TierId};

const LAYOUTS: [RecordLayout; 4] =
    [RecordLayout::Byte, RecordLayout::Word, RecordLayout::PghotByte, RecordLayout::PghotWord];
const SECTION: u64 = 1 << 15;

fn table(layout: RecordLayout) -> RecordTable {
    let window = Nanos::from_ms(3000);
    RecordTable::new(RecordParams { layout, hz: 1000, window, sections_max: 64, ..RecordParams::default() })
        .unwrap()
}

fn access(pfn: u64, time: Nanos) -> Access {
    Access {
        time,
        pfn: Some(Pfn(pfn)),
        page: None,
        order: 0,
        node: NodeId(2),
        accessor: None,
        detail: Detail::Count { count: 1, gap: None },
    }
}

/// The record before an access, which then adds one access to it.
fn touch(table: &mut RecordTable, access: Access) -> Record {
    let mut seen = Record::default();
    table.observe(&[access], |_, record| {
        seen = *record;
        record.frequency += 1;
    });
    seen
}

#[test]
fn an_access_meets_what_the_one_before_left() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        assert_eq!(touch(&mut table, access(77, Nanos(0))), Record::default());
        let second = touch(&mut table, access(77, Nanos(0)));
        assert_eq!((second.frequency, second.gap), (1, Some(Nanos(0))), "{layout:?}");
        assert_eq!(table.get(Pfn(77), Nanos(0)).unwrap().frequency, 2, "{layout:?}");
        assert_eq!(table.get(Pfn(78), Nanos(0)), None, "{layout:?}");
    }
}

#[test]
fn frequency_stays_at_its_maximum() {
    for (layout, max) in LAYOUTS.into_iter().zip([3, 15, 3, 7]) {
        let mut table = table(layout);
        assert_eq!(table.frequency_max(), max);
        for _ in 0..20 {
            touch(&mut table, access(1, Nanos::from_s(1)));
        }
        assert_eq!(touch(&mut table, access(1, Nanos::from_s(1))).frequency, max);
    }
}

#[test]
fn an_access_without_a_frame_is_shown_and_forgotten() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        let nowhere = Access { pfn: None, ..access(0, Nanos(5)) };
        for _ in 0..2 {
            assert_eq!(touch(&mut table, nowhere), Record::default());
        }
        assert_eq!((table.sections(), table.unrecorded()), (0, 0));
    }
}

#[test]
fn the_accessing_node_is_kept_where_there_is_room_for_it() {
    let by = |pfn, node| Access { accessor: Some(NodeId(node)), ..access(pfn, Nanos::from_s(1)) };
    for (layout, page, block) in [
        (RecordLayout::Byte, Some(NodeId(1)), Some(NodeId(1))),
        (RecordLayout::Word, Some(NodeId(1)), Some(NodeId(0))),
        (RecordLayout::PghotByte, None, None),
        (RecordLayout::PghotWord, Some(NodeId(1)), Some(NodeId(0))),
    ] {
        let mut table = table(layout);
        assert_eq!(table.keeps_node(), page.is_some());
        touch(&mut table, by(511, 0));
        touch(&mut table, by(0, 1));
        // An access by an unknown node keeps the known node.
        assert_eq!(touch(&mut table, access(0, Nanos::from_s(1))).node, page, "{layout:?}");
        assert_eq!(table.get(Pfn(0), Nanos::from_s(1)).unwrap().node, page, "{layout:?}");
        // `byte` keeps one node for each 512 pages.
        assert_eq!(table.get(Pfn(511), Nanos::from_s(1)).unwrap().node, block, "{layout:?}");
    }
    let without = RecordParams { layout: RecordLayout::Byte, node_per_block: false, ..Default::default() };
    let mut table = RecordTable::new(without).unwrap();
    assert!(!table.keeps_node());
    touch(&mut table, by(0, 1));
    assert_eq!(table.get(Pfn(0), Nanos::from_s(1)).unwrap().node, None);
}

#[test]
fn resolution_follows_the_window() {
    for (layout, ms, expected_ns) in [
        (RecordLayout::Byte, 3000, 1 << 29),
        (RecordLayout::Byte, 1, 1 << 20),
        (RecordLayout::Word, 3000, 1 << 22),
        (RecordLayout::Word, 600_000, 1 << 26),
        (RecordLayout::PghotByte, 3000, 512_000_000),
        (RecordLayout::PghotWord, 3000, 4_000_000),
    ] {
        let params = RecordParams { layout, window: Nanos::from_ms(ms), ..RecordParams::default() };
        assert_eq!(RecordTable::new(params).unwrap().resolution(), Nanos(expected_ns), "{layout:?} {ms}");
    }
    for layout in LAYOUTS {
        let params = RecordParams { layout, window: Nanos(u64::MAX), ..RecordParams::default() };
        let mut table = RecordTable::new(params).unwrap();
        touch(&mut table, access(3, Nanos(u64::MAX)));
        assert_eq!(touch(&mut table, access(3, Nanos(u64::MAX))).gap, Some(Nanos(0)), "{layout:?}");
    }
}

#[test]
fn ours_say_long_ago_where_the_published_alias() {
    let (first, second) = (Nanos::from_ms(128), Nanos::from_ms(128 + 1000 * 4096));
    for (layout, gap) in [
        (RecordLayout::Byte, None),
        (RecordLayout::Word, None),
        (RecordLayout::PghotByte, Some(Nanos(0))),
        // 4096000 is 250 times 16384.
        (RecordLayout::PghotWord, Some(Nanos(0))),
    ] {
        let mut table = table(layout);
        touch(&mut table, access(9, first));
        assert_eq!(touch(&mut table, access(9, second)).gap, gap, "{layout:?}");
    }
}

#[test]
fn the_published_layouts_leave_the_top_tier_alone() {
    let node = |id, tier| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    let topology = Topology::new(vec![node(0, 0), node(2, 1)]).unwrap();
    for layout in LAYOUTS {
        let published = matches!(layout, RecordLayout::PghotByte | RecordLayout::PghotWord);
        let mut table = table(layout);
        table.set_topology(&topology);
        let top = Access { node: NodeId(0), ..access(4, Nanos::from_s(1)) };
        touch(&mut table, top);
        assert_eq!(touch(&mut table, top).frequency, if published { 0 } else { 1 }, "{layout:?}");
        assert_eq!(table.sections(), if published { 0 } else { 1 }, "{layout:?}");
        touch(&mut table, access(4, Nanos::from_s(1)));
        assert_eq!(table.sections(), 1);
    }
}

#[test]
fn readiness_is_set_only_where_there_is_a_record() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        assert!(!table.set_ready(Pfn(5), true));
        touch(&mut table, access(5, Nanos::from_s(1)));
        assert!(!table.set_ready(Pfn(6), true));
        assert_eq!(table.get(Pfn(6), Nanos::from_s(1)), None);
        assert!(table.set_ready(Pfn(5), true));
        let ready = table.get(Pfn(5), Nanos::from_s(1)).unwrap();
        assert_eq!((ready.ready, ready.frequency, ready.gap), (true, 1, Some(Nanos(0))), "{layout:?}");
        assert!(table.set_ready(Pfn(5), false));
        assert!(!table.get(Pfn(5), Nanos::from_s(1)).unwrap().ready);
    }
}

#[test]
fn a_cleared_folio_leaves_its_neighbours() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        let now = Nanos::from_s(1);
        let all = [511, 512, 1023, 1024, SECTION - 1, SECTION];
        for pfn in all {
            touch(&mut table, access(pfn, now));
        }
        table.clear(Pfn(512), 9);
        let left = |table: &RecordTable| all.map(|pfn| table.get(Pfn(pfn), now).is_some());
        assert_eq!(left(&table), [true, false, false, true, true, true], "{layout:?}");
        table.clear(Pfn(SECTION - 1), 1);
        assert_eq!(left(&table), [true, false, false, true, false, false], "{layout:?}");
        // Invalid arguments are harmless.
        table.clear(Pfn(u64::MAX), 255);
        table.clear(Pfn(PFN_END), 40);
        assert_eq!(left(&table), [true, false, false, true, false, false], "{layout:?}");
    }
}

#[test]
fn memory_that_goes_offline_takes_its_records_along() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        let now = Nanos::from_s(1);
        for section in 0..8 {
            touch(&mut table, access(section * SECTION, now));
        }
        let full = table.memory_bytes();
        // Sections 2 and 3 whole, 4 in part.
        table.offline(Pfn(2 * SECTION), Pfn(4 * SECTION + 1));
        assert_eq!(table.sections(), 6);
        assert!(table.memory_bytes() < full);
        for section in 0..8 {
            let kept = !(2..=4).contains(&section);
            assert_eq!(table.get(Pfn(section * SECTION), now).is_some(), kept, "{layout:?} {section}");
        }
        // Memory that comes back starts empty, in the freed slots.
        let again = Access { accessor: None, ..access(3 * SECTION, now) };
        assert_eq!(touch(&mut table, again), Record::default());
        table.offline(Pfn(0), Pfn(u64::MAX));
        assert_eq!(table.sections(), 0);
    }
}

#[test]
fn frames_far_apart_cost_a_section_each_and_no_more() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        let slot_bytes = if matches!(layout, RecordLayout::Byte | RecordLayout::PghotByte) { 1 } else { 4 };
        let sparse = [0, 1 << 30, (1 << 36) + 12345, PFN_END - 1];
        for pfn in sparse {
            touch(&mut table, access(pfn, Nanos::from_s(1)));
        }
        assert_eq!(table.sections(), 4);
        // Whole huge pages of slots and of nodes, and the directory.
        let bound = (4 * SECTION as usize * slot_bytes).next_multiple_of(2 << 20) + (2 << 20) + (512 << 10);
        assert!(table.memory_bytes() <= bound, "{layout:?}: {}", table.memory_bytes());
        for pfn in sparse {
            assert_eq!(table.get(Pfn(pfn), Nanos::from_s(1)).unwrap().frequency, 1);
        }
    }
}

#[test]
fn what_has_no_room_is_counted() {
    for layout in LAYOUTS {
        let mut table = table(layout);
        for pfn in [PFN_END, u64::MAX] {
            assert_eq!(touch(&mut table, access(pfn, Nanos::from_s(1))), Record::default());
            assert_eq!(table.get(Pfn(pfn), Nanos::from_s(1)), None);
        }
        assert_eq!((table.unrecorded(), table.sections()), (2, 0));
        for section in 0..65 {
            touch(&mut table, access(section * SECTION, Nanos::from_s(1)));
        }
        assert_eq!((table.unrecorded(), table.sections()), (3, 64));
        // The other sections still work, and freed room is reused.
        assert_eq!(touch(&mut table, access(0, Nanos::from_s(1))).frequency, 1);
        table.offline(Pfn(0), Pfn(SECTION));
        touch(&mut table, access(64 * SECTION, Nanos::from_s(1)));
        assert_eq!(touch(&mut table, access(64 * SECTION, Nanos::from_s(1))).frequency, 1);
    }
}

#[test]
fn a_kernel_without_a_timer_is_refused() {
    for (layout, refused) in LAYOUTS.into_iter().zip([false, false, true, true]) {
        let params = RecordParams { layout, hz: 0, ..RecordParams::default() };
        assert_eq!(RecordTable::new(params).is_err(), refused);
    }
    let params = RecordParams { layout: RecordLayout::PghotByte, hz: 0, ..RecordParams::default() };
    assert!(RecordTable::new(params).unwrap_err().to_string().contains("1 to 10000 Hz"));
}

/// The expected record of a frame, with exact times.
#[derive(Clone, Copy, Debug, Default)]
struct Exact {
    last: Option<Nanos>,
    frequency: u8,
    ready: bool,
    node: Option<NodeId>,
}

/// A few frames in a few sections, far apart, several in one block.
const FRAMES: [u64; 8] = [0, 1, 511, 512, SECTION - 1, SECTION, 5 * SECTION + 7, PFN_END - 1];

/// Steps of time, from none to far beyond what any layout reaches, and backwards.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..1_000_000_i64,
        4 => 0..2_000_000_000_i64,
        2 => 0..40_000_000_000_i64,
        1 => 0..400_000_000_000_i64,
        1 => -20_000_000_000..0_i64,
    ]
}

/// Frame, time since the access before, accessing node, whether it leaves the record ready.
type Step = (usize, i64, Option<u16>, bool);

fn batches() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let one = (0..FRAMES.len(), step(), prop::option::of(0..4u16), any::<bool>());
    prop::collection::vec(prop::collection::vec(one, 1..150), 1..6)
}

proptest! {
    /// Our own layouts report every interval within their resolution, or "long ago" if it is beyond
    /// their reach. They never confuse the two, for any accesses in any batches.
    #[test]
    fn ours_never_alias(batches in batches(), byte in any::<bool>(), start in 0..1u64 << 60) {
        let layout = if byte { RecordLayout::Byte } else { RecordLayout::Word };
        let mut table = table(layout);
        let tick = table.resolution().0;
        let told = Nanos(tick * if byte { 7 } else { 16_383 });
        let mut model: BTreeMap<u64, Exact> = BTreeMap::new();
        let mut latest: BTreeMap<u64, Nanos> = BTreeMap::new();
        let mut blocks: BTreeMap<u64, NodeId> = BTreeMap::new();
        let mut time = Nanos(start);
        for steps in batches {
            let batch: Vec<Access> = steps.iter().map(|&(frame, by, accessor, _)| {
                time = Nanos(time.0.saturating_add_signed(by));
                Access { accessor: accessor.map(NodeId), ..access(FRAMES[frame], time) }
            }).collect();
            // A table looks ahead: a base may be that of an access further on in the batch.
            for access in &batch {
                let latest = latest.entry(access.pfn.unwrap().0 / SECTION).or_default();
                *latest = access.time.max(*latest);
            }
            let mut i = 0;
            let mut failure = None;
            table.observe(&batch, |access, record| {
                let pfn = access.pfn.unwrap().0;
                let exact = model.entry(pfn).or_default();
                let latest = latest[&(pfn / SECTION)];
                let node = if byte { blocks.get(&(pfn / 512)).copied() } else { exact.node };
                let right = match (record.gap, exact.last) {
                    (Some(gap), Some(last)) => gap.0.abs_diff(access.time.since(last).0) < tick,
                    (None, Some(last)) => latest.since(last) > told,
                    (None, None) => true,
                    (Some(_), None) => false,
                };
                let same = (record.frequency, record.ready, record.node) == (exact.frequency, exact.ready, node);
                if !(right && same) && failure.is_none() {
                    failure = Some(format!("{access:?} met {record:?}, should be {exact:?}, node {node:?}"));
                }
                record.frequency = (record.frequency + 1).min(if byte { 3 } else { 15 });
                record.ready = steps[i].3;
                i += 1;
                *exact = Exact {
                    last: exact.last.max(Some(access.time)),
                    frequency: record.frequency,
                    ready: record.ready,
                    node: access.accessor.or(exact.node),
                };
                if let Some(node) = access.accessor {
                    blocks.insert(pfn / 512, node);
                }
            });
            prop_assert_eq!(i, batch.len());
            prop_assert_eq!(failure, None);
        }
    }

    /// A table in a published layout, under a rule that decides as published, equals the result of
    /// the published update for the same accesses, bit for bit.
    #[test]
    fn published_layouts_do_as_published(
        accesses in prop::collection::vec((0..3u64, 0..30_000_000_000u64, 0..1024u16), 1..200),
        precise in any::<bool>(),
        hz in prop::sample::select(vec![100u32, 250, 1000]),
    ) {
        let (layout, mode) = match precise {
            true => (RecordLayout::PghotWord, Mode::Precise),
            false => (RecordLayout::PghotByte, Mode::Default),
        };
        let tuning = Tuning { threshold: 2, window_ms: 3000, hz };
        let params = RecordParams { layout, hz, ..RecordParams::default() };
        let mut table = RecordTable::new(params).unwrap();
        let mut published = [PghotRecord::default(); 3];
        let mut time = Nanos(0);
        for (pfn, by, nid) in accesses {
            time = time.plus(Nanos(by));
            let jiffies = pghot::jiffies(time, hz);
            let old = &mut published[pfn as usize];
            let next = pghot::update(mode, *old, jiffies, nid, tuning);
            table.observe(&[Access { accessor: Some(NodeId(nid)), ..access(pfn, time) }], |_, record| {
                let within = record.gap.is_some_and(|gap| gap.ms() <= tuning.window_ms);
                record.frequency = if within { (record.frequency + 1).min(mode.frequency_max()) } else { 1 };
                record.ready = record.frequency >= tuning.threshold;
            });
            *old = next;
            let held = table.get(Pfn(pfn), time).unwrap();
            prop_assert_eq!((held.frequency, held.ready), (next.frequency, next.ready));
            prop_assert_eq!(held.node, precise.then_some(NodeId(next.nid)));
            let again = Nanos(time.0 + 777_000_000);
            let gap_ms = mode.gap_ms(next.time, pghot::jiffies(again, hz), hz);
            prop_assert_eq!(table.get(Pfn(pfn), again).unwrap().gap.unwrap().ms(), gap_ms);
        }
    }
}
