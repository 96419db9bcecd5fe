//! The source on a file in place of the device's memory.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;
use thermocline_core::access::Detail;
use thermocline_core::units::{NodeId, Pfn};

use super::*;
use crate::source::hwsample::useful::tests::judge;
use crate::sys::counted::allocations;

const SLOTS: u64 = 128;
const RING_BYTES: usize = 4096 + SLOTS as usize * 32;
const BYTES: usize = 4096 + 2 * RING_BYTES;

/// A machine with the device, with its memory as the lab's plugin leaves it, and the writer's view
/// of it.
struct Machine {
    _folder: TempDir,
    root: Root,
    writer: DeviceMemory,
}

impl Machine {
    fn new() -> Machine {
        let mut bytes = vec![0u8; BYTES];
        bytes[..8].copy_from_slice(b"TLCSAMP1");
        for (at, number) in [(8, 2u32), (12, SLOTS as u32), (16, 32), (20, RING_BYTES as u32)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let (folder, root, writer) = lab_device::fake(&bytes);
        Machine { _folder: folder, root, writer }
    }

    /// Frames 0x100..0x200 on node 0, DRAM; 0x200..0x1000 on node 2, CXL. CPU 1 is of node 1.
    fn open(&self, permille: u16) -> LabRings {
        self.try_open(permille).unwrap()
    }

    fn try_open(&self, permille: u16) -> Result<LabRings, NoLabDevice> {
        let config = HwSample { cpu_budget_permille: permille, ..HwSample::default() };
        LabRings::open(&self.root, &config, judge(false), Nanos(0))
    }

    fn marks(ring: usize) -> usize {
        4096 + ring * RING_BYTES
    }

    /// Writes the next sample of a ring as the plugin does, or counts it as dropped.
    fn put(&self, ring: usize, words: [u64; 4]) {
        let marks = Machine::marks(ring);
        let (head, tail) = (self.writer.load(marks), self.writer.load(marks + 8));
        if head - tail >= SLOTS {
            return self.writer.store(marks + 16, self.writer.load(marks + 16) + 1);
        }
        let at = marks + 4096 + (head % SLOTS) as usize * 32;
        for (i, word) in words.into_iter().enumerate() {
            self.writer.store(at + 8 * i, word);
        }
        self.writer.store(marks, head + 1);
    }
}

fn sample(time: u64, physical: u64) -> [u64; 4] {
    [time, 0x7f00_0000_0000 | physical, physical, 2 << 32]
}

fn poll(rings: &mut LabRings, max: usize, now: Nanos) -> (usize, Vec<thermocline_core::access::Access>) {
    let mut accesses = Vec::new();
    let read = rings.poll(
        max,
        now,
        |_| false,
        |event| match event {
            Event::Access(access) => accesses.push(access),
            other => panic!("{other:?}"),
        },
    );
    (read, accesses)
}

#[test]
fn a_sample_is_an_access_to_a_frame_by_nobody_yet() {
    let machine = Machine::new();
    machine.put(1, sample(1, 0x20_0000));
    let mut rings = machine.open(1000);
    assert_eq!(poll(&mut rings, 100, Nanos(1000)).0, 0, "what waited before is old");
    machine.put(1, sample(5_000, 0x20_1040));
    machine.put(1, sample(5_300, 0x10_1000));
    machine.put(0, sample(9_000, 0x9999_9000));
    machine.writer.store(Machine::marks(1) + 32, 300);
    let (read, accesses) = poll(&mut rings, 100, Nanos(77_000));
    assert_eq!((read, accesses.len()), (3, 1));
    let access = accesses[0];
    assert_eq!(access.detail, Detail::Sample { latency_cycles: 0, store: Some(false), period: 300 });
    assert_eq!((access.pfn, access.page, access.node), (Some(Pfn(0x201)), None, NodeId(2)));
    assert_eq!((access.time, access.accessor), (Nanos(76_700), Some(NodeId(1))), "300 ns before the newest");
    let found = rings.stats();
    let tally = found.samples;
    assert_eq!((tally.taken, tally.useful, tally.top_tier, tally.not_memory), (3, 1, 1, 1));
    assert_eq!((found.lost, found.malformed, found.waiting_bytes), (0, 0, 0));
}

/// By S1's formula 250 samples, all of them remote, shorten the period by seven tenths; all of them
/// local make it longer by three.
#[test]
fn it_asks_for_a_shorter_period_while_pages_are_remote_and_for_a_longer_one_once_they_are_home() {
    let machine = Machine::new();
    let mut rings = machine.open(1000);
    let asked = || [0, 1].map(|ring| machine.writer.load(Machine::marks(ring) + 40));
    assert_eq!((asked(), rings.stats().period), ([10_000; 2], None), "as configured; nothing is tagged yet");
    let mut turn = |physical| {
        for ring in [0, 1] {
            (0..125).for_each(|n| machine.put(ring, sample(n, physical)));
        }
        assert_eq!(poll(&mut rings, 250, Nanos(1000)).0, 250);
        asked()[1]
    };
    assert_eq!(turn(0x20_1000), 5_000, "seven slots of a tenth shorter, and no shorter than the least");
    assert_eq!([0; 3].map(|_| turn(0x10_1000)), [6_500, 8_450, 10_985], "three slots longer each");
    machine.writer.store(Machine::marks(0) + 32, 10_985);
    assert_eq!(rings.stats().period, Some(10_985), "what the sampler keeps to");
}

#[test]
fn a_ring_that_overflows_tells_how_much_was_lost_and_is_read_on() {
    let machine = Machine::new();
    let mut rings = machine.open(1000);
    (0..SLOTS + 10).for_each(|n| machine.put(0, sample(n, 0x20_0000 + (n << 12))));
    assert_eq!((rings.stats().lost, rings.stats().waiting_bytes), (10, SLOTS * 32));
    let (read, accesses) = poll(&mut rings, 100, Nanos(1 << 20));
    assert_eq!((read, accesses.len()), (100, 100), "no more than asked for");
    machine.put(0, sample(SLOTS, 0x20_0000));
    let (read, accesses) = poll(&mut rings, 100, Nanos(1 << 21));
    assert_eq!(read as u64, SLOTS - 100 + 1);
    assert_eq!(accesses.last().unwrap().pfn, Some(Pfn(0x200)), "over the ring's end");
    assert_eq!(rings.stats().lost, 10);
}

#[test]
fn a_busy_ring_does_not_starve_the_other() {
    let machine = Machine::new();
    let mut rings = machine.open(1000);
    (0..50).for_each(|n| machine.put(0, sample(n, 0x20_0000)));
    machine.put(1, sample(7, 0x30_0000));
    assert_eq!(poll(&mut rings, 20, Nanos(1000)).0, 20);
    let (_, accesses) = poll(&mut rings, 20, Nanos(1000));
    assert_eq!(accesses[0].pfn, Some(Pfn(0x300)));
}

#[test]
fn beyond_the_budget_rings_are_left_to_overflow_until_the_second_is_over() {
    let machine = Machine::new();
    let mut rings = machine.open(1);
    rings.spent = rings.allowed;
    machine.put(0, sample(1, 0x20_0000));
    assert_eq!(poll(&mut rings, 9, Nanos::from_ms(999)).0, 0);
    assert!(rings.stats().budgeted);
    assert_eq!(poll(&mut rings, 9, Nanos::from_s(1)).0, 1);
    assert!(!rings.stats().budgeted);
    assert_eq!(rings.allowed, Nanos::from_ms(2), "a thousandth of two CPUs");
}

#[test]
fn other_devices_of_that_kind_are_passed_over() {
    let machine = Machine::new();
    let other = machine.root.sys.join("bus/pci/devices/0000:00:03.0");
    fs::create_dir_all(&other).unwrap();
    for (name, text) in
        [("vendor", "0x1af4"), ("device", "0x1110"), ("resource2", "somebody else's memory of no use")]
    {
        fs::write(other.join(name), text).unwrap();
    }
    machine.open(1000);
    fs::remove_dir_all(machine.root.sys.join("bus/pci/devices/0000:00:04.0")).unwrap();
    assert!(machine.try_open(1000).unwrap_err().to_string().contains("no sampler's rings"));
    fs::remove_dir_all(other).unwrap();
    assert!(machine.try_open(1000).unwrap_err().to_string().contains("lab run --misses --samples"));
}

#[test]
fn nothing_is_allocated_for_a_sample() {
    let machine = Machine::new();
    let mut rings = machine.open(1000);
    (0..SLOTS).for_each(|n| machine.put(0, sample(n, (0x180 + n * 2) << 12)));
    let mut useful = 0;
    let allocated = allocations(|| {
        rings.poll(1000, Nanos(1 << 20), |_| true, |_| useful += 1);
    });
    assert_eq!((allocated, rings.stats().samples.taken), (0, SLOTS));
    assert!(useful > 0 && useful < SLOTS);
}

proptest! {
    /// The device may write anything, marks included: a poll ends, counts every sample once and
    /// delivers only pages on the slow node.
    #[test]
    fn any_memory_is_read_to_an_end(
        words in prop::collection::vec((0usize..(BYTES - 4096) / 8, any::<u64>()), 0..200),
        heads in prop::array::uniform2(prop_oneof![0u64..300, any::<u64>()]),
        now in any::<u64>(),
    ) {
        let machine = Machine::new();
        let mut rings = machine.open(1000);
        for (word, value) in words {
            machine.writer.store(4096 + word * 8, value);
        }
        for (ring, head) in heads.into_iter().enumerate() {
            machine.writer.store(Machine::marks(ring), head);
        }
        rings.budget_began = Nanos(now);
        for _ in 0..4 {
            let (read, accesses) = poll(&mut rings, 50, Nanos(now));
            prop_assert!(read <= 50);
            for access in accesses {
                prop_assert!(access.node == NodeId(2) && access.page.is_none() && access.time <= Nanos(now));
            }
        }
        let found = rings.stats();
        let tally = found.samples;
        prop_assert!(tally.taken <= 200);
        prop_assert_eq!(
            tally.taken,
            tally.useful + tally.not_user + tally.no_physical + tally.not_memory + tally.top_tier
        );
        prop_assert!(found.waiting_bytes <= 2 * SLOTS * 32);
    }
}
