//! The source on a file in place of the device's memory.

use proptest::prelude::*;
use tempfile::TempDir;
use thermocline_core::config::HotListMode;
use thermocline_core::topology::Node;
use thermocline_core::units::{NodeId, Pid, TierId, VirtPage};

use super::*;
use crate::sys::counted::allocations;
use crate::topology::PfnRange;

const SLOTS: u64 = 64;
/// Offset of the registers, after a page of the sampler.
const AT: usize = 4096;
const BYTES: usize = AT + 4096 + SLOTS as usize * 8;
/// Where the device's memory begins: 0x200..0x1200 in frames.
const BASE: u64 = 0x20_0000;
const DEVICE_BYTES: u64 = 0x100_0000;

/// A machine with the device, with its memory as the lab's plugin leaves it, and the writer's view
/// of it.
struct Machine {
    _folder: TempDir,
    root: Root,
    writer: DeviceMemory,
    frames: PfnMap,
    topology: Topology,
}

impl Machine {
    /// Frames 0x100..0x200 are DRAM; 0x200..0x1000 are the device's and online, the rest of it is
    /// not.
    fn new() -> Machine {
        let mut bytes = vec![0u8; BYTES];
        bytes[..8].copy_from_slice(b"TLCSAMP1");
        bytes[24..28].copy_from_slice(&(AT as u32).to_le_bytes());
        bytes[AT..AT + 8].copy_from_slice(b"TLCCHMU1");
        let words = [
            (8, SLOTS | 16 << 32),
            (16, 1024),
            (24, DEVICE_BYTES),
            (32, 1),
            (40, BASE),
            (48, DEVICE_BYTES),
            (56, 1 | 256 << 32),
        ];
        for (at, word) in words {
            bytes[AT + at..AT + at + 8].copy_from_slice(&u64::to_le_bytes(word));
        }
        let (folder, root, writer) = lab_device::fake(&bytes);
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: 1 << 20,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20],
        };
        let range = |start, end, node| PfnRange { start: Pfn(start), end: Pfn(end), node: NodeId(node) };
        let frames = PfnMap::new(vec![range(0x100, 0x200, 0), range(0x200, 0x1000, 2)]);
        let topology = Topology::new(vec![node(0), node(2)]).unwrap();
        Machine { _folder: folder, root, writer, frames, topology }
    }

    fn open(&self, keys: &Keys) -> ChmuSource {
        ChmuSource::open(&self.root, keys, Nanos(0)).unwrap()
    }

    fn register(&self, at: usize) -> u64 {
        self.writer.load(AT + at)
    }

    fn set(&self, at: usize, value: u64) {
        self.writer.store(AT + at, value);
    }

    /// Lists a unit as the plugin does, or counts it as one too many.
    fn list(&self, unit: u64, count: u64) {
        let (head, tail) = (self.register(1040), self.register(560));
        if head - tail >= SLOTS {
            return self.set(1048, self.register(1048) + 1);
        }
        self.set(4096 + (head % SLOTS) as usize * 8, unit << 16 | count);
        self.set(1040, head + 1);
    }

    fn read(&self, source: &mut ChmuSource, max: usize, now: Nanos) -> Vec<Access> {
        let mut accesses = Vec::new();
        source.read(max, now, (&self.frames, &self.topology), &mut Everybody, &mut accesses);
        accesses
    }
}

/// Frames up to 0x800 are pages of process 1 of the same number, up to 0xa00 a huge page of it; the
/// others belong to no known process.
struct Everybody;

impl Owners for Everybody {
    fn owner(&mut self, pfn: Pfn) -> Option<Resident> {
        let order = if pfn.0 < 0x800 { 0 } else { 9 };
        let head = pfn.0 >> order << order;
        let page = VirtPage { pid: Pid(1), vpn: head };
        (pfn.0 < 0xa00).then_some(Resident { page, pfn: Pfn(head), order })
    }
}

fn frames(accesses: &[Access]) -> Vec<u64> {
    accesses.iter().map(|access| access.pfn.unwrap().0).collect()
}

#[test]
fn a_listed_unit_is_so_many_accesses_to_its_page() {
    let machine = Machine::new();
    machine.list(1, 99);
    let mut source = machine.open(&Keys { downsampling: 8, ..Keys::default() });
    // One generation, in epochs of a second, of pages, 16 counts.
    let told: Vec<u64> = (512..560).step_by(8).map(|at| machine.register(at)).collect();
    assert_eq!(told, [1, 1, 4096, 16, 1_000_000_000, 8]);
    assert!(machine.read(&mut source, 100, Nanos(5)).is_empty(), "what waited before is old");
    machine.list(0x10, 25);
    machine.list(0xc00, 16);
    let accesses = machine.read(&mut source, 100, Nanos::from_s(1));
    let gap = Some(Nanos::from_ms(5));
    let page = Some(VirtPage { pid: Pid(1), vpn: 0x210 });
    let expected = Access {
        time: Nanos::from_s(1),
        pfn: Some(Pfn(0x210)),
        page,
        order: 0,
        node: NodeId(2),
        accessor: None,
        detail: Detail::Count { count: 200, gap },
    };
    assert_eq!(accesses[0], expected);
    assert_eq!((accesses[1].pfn, accesses[1].page), (Some(Pfn(0xe00)), None), "nobody's, as far as is known");
    let stats = source.stats();
    assert_eq!((stats.entries, stats.looked_up, stats.pages, stats.waiting), (2, 2, 1, 0));
    drop(source);
    assert_eq!((machine.register(520), machine.register(512)), (0, 2), "the device is switched off");
}

#[test]
fn what_is_always_on_was_counted_up_to_the_threshold() {
    let machine = Machine::new();
    let mut source = machine.open(&Keys { mode: HotListMode::AlwaysOn, threshold: 50, ..Keys::default() });
    assert_eq!((machine.register(520), machine.register(536)), (2, 50));
    machine.list(3, 0);
    let accesses = machine.read(&mut source, 100, Nanos(5));
    assert_eq!(accesses[0].detail, Detail::Count { count: 50, gap: None });
}

#[test]
fn pages_of_a_large_unit_share_its_count_and_huge_ones_come_once() {
    let machine = Machine::new();
    let keys = Keys { unit_bytes: 2 << 20, pages_per_s: 1 << 20, ..Keys::default() };
    let mut source = machine.open(&keys);
    // 0x600..0x800 are base pages, 0x800..0xa00 a huge one, 0xe00..0x1000 nobody's, 0x1000..0x1200
    // not online.
    for unit in [2, 3, 6, 7] {
        machine.list(unit, 1024);
    }
    let accesses = machine.read(&mut source, 512, Nanos(5));
    assert_eq!(frames(&accesses), (0x600..0x800).collect::<Vec<_>>());
    let gap = Some(Nanos(1_000_000_000 / 2));
    assert!(accesses.iter().all(|access| access.detail == Detail::Count { count: 2, gap }));
    let accesses = machine.read(&mut source, 2000, Nanos(6));
    assert_eq!((accesses[0].pfn, accesses[0].order), (Some(Pfn(0x800)), 9));
    assert_eq!(frames(&accesses[1..]), (0xe00..0x1000).collect::<Vec<_>>());
    let stats = source.stats();
    assert_eq!((stats.looked_up, stats.pages, stats.not_memory), (512 + 1 + 512, 513, 512));
}

#[test]
fn a_flood_waits_for_the_budget_and_then_finds_the_list_full() {
    let machine = Machine::new();
    let mut source = machine.open(&Keys { pages_per_s: 256, ..Keys::default() });
    (0..SLOTS + 100).for_each(|unit| machine.list(unit % 64, 20));
    assert_eq!((source.stats().waiting, source.stats().overflow), (SLOTS, 100));
    // A quarter of a second is saved up, 26 are added in the next tenth.
    assert_eq!(machine.read(&mut source, 1000, Nanos(5)).len(), 64);
    (0..SLOTS).for_each(|unit| machine.list(unit, 20));
    assert_eq!(machine.read(&mut source, 1000, Nanos::from_ms(100)).len(), 25);
    assert_eq!(machine.read(&mut source, 3, Nanos::from_ms(1000)).len(), 3, "no more than asked for");
}

#[test]
fn what_waited_too_long_is_given_up_and_what_is_no_unit_is_counted() {
    let machine = Machine::new();
    let mut source = machine.open(&Keys::default());
    machine.list(DEVICE_BYTES / 4096, 20);
    machine.list((1 << 48) - 1, 20);
    machine.list(7, 20);
    assert_eq!(frames(&machine.read(&mut source, 100, Nanos(5))), [0x207]);
    assert_eq!(source.stats().malformed, 2);
    machine.list(8, 20);
    assert!(machine.read(&mut source, 100, Nanos::from_s(3)).is_empty());
    assert_eq!((source.stats().old, source.stats().waiting), (1, 0));
    // Impossible marks.
    machine.set(1040, 1 << 50);
    assert!(machine.read(&mut source, 100, Nanos::from_s(4)).is_empty());
    assert_eq!((source.stats().malformed, source.stats().waiting), (3, 0));
    assert!(!source.stats().refused, "it has not looked yet");
    machine.set(1024, machine.register(512));
    assert!(source.stats().refused, "it runs in no mode");
    machine.set(1032, 1);
    assert!(!source.stats().refused);
}

#[test]
fn frames_of_the_top_tier_are_of_no_use() {
    let machine = Machine::new();
    // The device's memory is where DRAM is.
    machine.set(40, 0x10_0000);
    let mut source = machine.open(&Keys::default());
    machine.list(0, 20);
    machine.list(0x100, 20);
    assert_eq!(frames(&machine.read(&mut source, 100, Nanos(5))), [0x200]);
    assert_eq!(source.stats().top_tier, 1);
}

#[test]
fn what_is_no_such_device_is_refused_with_its_reason() {
    let refused = |at: usize, value: u64| {
        let machine = Machine::new();
        machine.writer.store(at, value);
        ChmuSource::open(&machine.root, &Keys::default(), Nanos(0)).unwrap_err().to_string()
    };
    assert!(refused(0, 7).contains("not the memory that the lab's plugin lays out"));
    assert!(refused(24, 0).contains("hot-list=0"));
    assert!(refused(24, 4095).contains("does not lie in it"));
    assert!(refused(24, 1 << 20).contains("does not lie in it"));
    assert!(refused(AT, 7).contains("of another version"));
    assert!(refused(AT + 8, 128 | 16 << 32).contains("cannot be so long"));
    assert!(refused(AT + 8, 48 | 16 << 32).contains("cannot be so long"));
    assert!(refused(AT + 8, 64).contains("counters have no bits"));
    assert!(refused(AT + 32, 3).contains("decoders"));
    assert!(refused(AT + 56, 5 | 256 << 32).contains("in a way that there is not"));
    assert!(refused(AT + 24, 4096).contains("more or for less memory"));
    let nothing = tempfile::tempdir().unwrap();
    let error = ChmuSource::open(&Root::at(nothing.path()), &Keys::default(), Nanos(0)).unwrap_err();
    assert!(error.to_string().contains("no stock kernel has a driver"), "{error}");
}

#[test]
fn nothing_is_allocated_for_an_entry() {
    let machine = Machine::new();
    let mut source = machine.open(&Keys::default());
    (0..SLOTS).for_each(|unit| machine.list(unit, 20));
    let mut accesses = Vec::with_capacity(100);
    let allocated = allocations(|| {
        let known = (&machine.frames, &machine.topology);
        source.read(100, Nanos(5), known, &mut Everybody, &mut accesses);
    });
    assert_eq!((allocated, accesses.len() as u64), (0, SLOTS));
}

proptest! {
    /// The device may write anything, marks included: a reading still ends and returns only online
    /// memory of the slow node.
    #[test]
    fn any_memory_is_read_to_an_end(
        words in prop::collection::vec((0usize..(4096 + SLOTS as usize * 8) / 8, any::<u64>()), 0..100),
        shift in 8u32..26, head in prop_oneof![0u64..100, any::<u64>()],
    ) {
        let machine = Machine::new();
        let mut source = machine.open(&Keys { unit_bytes: 1 << shift, ..Keys::default() });
        for (word, value) in words {
            machine.set(word * 8, value);
        }
        machine.set(1040, head);
        for at in 0..4 {
            let accesses = machine.read(&mut source, 50, Nanos(at));
            prop_assert!(accesses.len() <= 50);
            for access in accesses {
                prop_assert!(access.node == NodeId(2) && access.time <= Nanos(at));
            }
        }
        prop_assert!(source.stats().waiting <= SLOTS && source.stats().entries <= 4 * SLOTS);
    }
}
