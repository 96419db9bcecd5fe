//! Rings full of generated samples, and the machine that they are of.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::config::HwSample;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGE_SHIFT, Pfn, Pid, TierId};
use thermocline_linux::source::hwsample::record::{DataSrc, RawSample};
use thermocline_linux::source::hwsample::useful::Judge;
use thermocline_linux::sys::perf::ring::Waiting;
use thermocline_linux::topology::{PfnMap, PfnRange};

use crate::PROCESSES;

/// Seed of what is random here.
pub(crate) const SEED: u64 = 23;
/// Rings, one a CPU; together larger than a core's caches.
const CPUS: u32 = 64;
/// Pages of each node: 64 GiB.
const NODE_PAGES: u64 = 1 << 24;
/// A load that RAM served (Linux include/uapi/linux/perf_event.h: union perf_mem_data_src).
const LOAD_RAM: u64 = 0xd << 33 | 0x2;

/// DRAM and a slow node.
pub(crate) fn topology() -> Topology {
    let node = |id, cpus: Vec<u32>| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus,
        capacity_pages: NODE_PAGES,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0, (0..CPUS).collect()), node(1, Vec::new())]).expect("two nodes with distances")
}

/// Judges the machine's samples: each node's memory is in eight pieces, as holes leave it.
pub(crate) fn judge() -> Judge {
    let piece = NODE_PAGES / 8;
    let range = |n: u64| PfnRange {
        start: Pfn(n * piece + 1),
        end: Pfn((n + 1) * piece),
        node: NodeId((n / 8) as u16),
    };
    Judge::new(PfnMap::new((0..16).map(range).collect()), &topology(), false)
}

/// Generated rings.
pub(crate) struct Rings {
    bytes: Vec<Vec<u8>>,
    /// Bytes of each that lie behind the ring's end, at its beginning.
    over: usize,
}

impl Rings {
    /// perf rings, `useful_percent` of whose samples are of the slow node; the others are of DRAM.
    pub(crate) fn perf(useful_percent: u64) -> Rings {
        let size = (HwSample::default().ring_kib as usize) << 10;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let ring = |cpu| {
            let mut bytes = Vec::with_capacity(size);
            while bytes.len() + 72 <= size {
                bytes.extend(sample(&mut random, cpu, useful_percent).bytes());
            }
            bytes
        };
        // No multiple of a record: one reaches over the end.
        Rings { bytes: (0..CPUS).map(ring).collect(), over: 1000 }
    }

    /// AUX areas of Arm SPE: loads with context, latency, both addresses, events, source and time.
    pub(crate) fn spe() -> Rings {
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let area = |cpu| {
            let mut bytes = Vec::new();
            for _ in 0..4096 {
                let raw = sample(&mut random, cpu, 30);
                let mut put = |header: u8, value: u64, length: usize| {
                    bytes.push(header);
                    bytes.extend(&value.to_le_bytes()[..length]);
                };
                put(0xb0, 0x40_1000, 8);
                put(0x64, raw.pid.0.into(), 4);
                put(0x49, 0, 1);
                put(0x98, raw.weight, 2);
                put(0xb2, raw.address, 8);
                put(0x52, 1 << 1 | 1 << 9, 2);
                put(0x43, 0xe, 1);
                put(0xb3, raw.physical, 8);
                put(0x71, raw.time.0, 8);
            }
            bytes
        };
        Rings { bytes: (0..CPUS / 8).map(area).collect(), over: 0 }
    }

    /// What waits in each ring.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        self.bytes.iter().map(|ring| {
            let (first, second) = ring.split_at(ring.len() - self.over);
            Waiting { first, second }
        })
    }
}

fn sample(random: &mut Pcg64Mcg, cpu: u32, useful_percent: u64) -> RawSample {
    let bits = random.next_u64();
    let slow = bits % 100 < useful_percent;
    let frame = (bits >> 8) % (NODE_PAGES - 1) + 1 + if slow { NODE_PAGES } else { 0 };
    RawSample {
        pid: Pid(1000 + 7 * ((bits >> 40) as u32 % PROCESSES)),
        tid: 1000,
        time: Nanos(1_000_000_000 + (bits >> 50)),
        address: 0x7f00_0000_0000 + (frame << PAGE_SHIFT) + 0x40,
        cpu,
        weight: 400,
        data_src: DataSrc(LOAD_RAM),
        physical: (frame << PAGE_SHIFT) + 0x40,
        page_bytes: 4096,
        guest: false,
    }
}
