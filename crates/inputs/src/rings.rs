//! The memory of the lab's sampler filled with anything: marks, samples and clocks before the
//! source opens it, and while it reads.
//!
//! Each ten bytes write a number of eight somewhere, those of the second half after the rings were
//! opened. Whatever they write: no panic, every poll ends and counts each sample once, every access
//! is of the slow node and not of the future, and no clock is behind its instructions.

use std::fs::{File, create_dir_all, write};
use std::os::unix::fs::FileExt;

use thermocline_core::config::HwSample;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, TierId};
use thermocline_linux::root::Root;
use thermocline_linux::source::hwsample::lab_rings::LabRings;
use thermocline_linux::source::hwsample::useful::Judge;
use thermocline_linux::source::lab_clock::LabClock;
use thermocline_linux::source::{AccessSource, Event};
use thermocline_linux::topology::{PfnMap, PfnRange};

const SLOW: NodeId = NodeId(1);
const SLOTS: u32 = 128;
const RING_BYTES: u32 = 4096 + SLOTS * 32;
/// Where the clocks are.
const CLOCKS: usize = 4096 + 2 * RING_BYTES as usize;
const BYTES: usize = CLOCKS + 4096 + 2 * 512;
const NOW: Nanos = Nanos(1 << 40);
/// Samples asked for at once.
const MAX: usize = 50;

/// A machine with the device, and the memory that is behind it.
struct Machine {
    root: Root,
    memory: File,
    judge: Judge,
}

thread_local! {
    static MACHINE: Machine = machine();
}

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    MACHINE.with(|machine| {
        machine.memory.write_all_at(&sound(), 0).expect("the file can be written");
        let (before, after) = bytes.split_at(bytes.len() / 2);
        scribble(&machine.memory, before);
        let clock = LabClock::open(&machine.root);
        let config = HwSample { cpu_budget_permille: 1000, ..HwSample::default() };
        let rings = LabRings::open(&machine.root, &config, machine.judge.clone(), NOW);
        scribble(&machine.memory, after);
        if let Ok(clock) = clock {
            let vcpus = clock.read().unwrap_or_default();
            assert!(vcpus.iter().all(|vcpu| vcpu.ns >= vcpu.instructions_ns && vcpu.nodes.len() <= 16));
        }
        let Ok(mut rings) = rings else { return };
        for _ in 0..4 {
            let taken = rings.stats().samples.taken;
            let mut useful = 0;
            let read = rings.poll(
                MAX,
                NOW,
                |_| true,
                |event| {
                    let Event::Access(access) = event else { panic!("{event:?}") };
                    assert!(access.node == SLOW && access.page.is_none() && access.time <= NOW);
                    useful += 1;
                },
            );
            let t = rings.stats().samples;
            assert!(read <= MAX && t.taken == taken + read as u64 && useful <= read);
            let others = t.not_user + t.no_access + t.cache_hit + t.no_physical + t.not_memory + t.top_tier;
            assert_eq!((t.taken, t.out_of_scope), (t.useful + others, 0));
        }
    });
}

fn scribble(memory: &File, bytes: &[u8]) {
    for write in bytes.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([write[0], write[1]])) % (BYTES / 8) * 8;
        memory.write_all_at(&write[2..], at as u64).expect("the file can be written");
    }
}

/// Two empty rings, and clocks of two processors and two nodes.
fn sound() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..8].copy_from_slice(b"TLCSAMP1");
    for (at, number) in [(8, 2), (12, SLOTS), (16, 32), (20, RING_BYTES), (28, CLOCKS as u32)] {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let clocks = [
        (CLOCKS, u64::from_le_bytes(*b"TLCTIME1")),
        (CLOCKS + 8, 2 | 2 << 32),
        (CLOCKS + 16, 512),
        (CLOCKS + 24, 1),
        (CLOCKS + 32, 1),
        (CLOCKS + 40, 333_333),
    ];
    for (at, number) in clocks {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn machine() -> Machine {
    let root = Root::at(std::env::temp_dir().join(format!("fuzz-rings-{}", std::process::id())));
    let device = root.sys.join("bus/pci/devices/0000:00:04.0");
    create_dir_all(&device).expect("a folder can be made");
    let files: [(&str, &[u8]); 3] =
        [("vendor", b"0x1af4\n"), ("device", b"0x1110\n"), ("resource2", &sound())];
    for (name, content) in files {
        write(device.join(name), content).expect("a file can be written");
    }
    let memory = File::options().write(true).open(device.join("resource2")).expect("it was just made");
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![id.into()],
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    let topology = Topology::new(vec![node(0), node(SLOW.0)]).expect("two nodes with distances");
    let range = |start, end, node| PfnRange { start: Pfn(start), end: Pfn(end), node };
    let frames = PfnMap::new(vec![range(0, 1 << 20, NodeId(0)), range(1 << 20, 1 << 40, SLOW)]);
    Machine { root, memory, judge: Judge::new(frames, &topology, false) }
}
