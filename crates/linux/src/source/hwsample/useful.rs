//! Which samples are useful, and why the others are not.
//!
//! A sample is useful when it is a load or store of a user address that the caches did not serve,
//! with a physical address that lies on a node below the top tier, by a process in scope. S1
//! filters the same way inside the interrupt. The hardware's report of where an access was served
//! is trusted only for "not in a cache"; the physical address determines the tier.

use thermocline_core::access::{Access, Detail};
use thermocline_core::pace::SamplePeriod;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId, PAGE_SHIFT, Pfn, Pid, VirtPage};

use super::record::{Level, Operation, RawSample};
use super::spe::SpeSample;
use crate::topology::{PfnMap, cpu_nodes};

/// log2 of the largest page accepted, in base pages: 1 GiB.
const ORDER_MAX: u32 = 18;

/// The content of a sample from any hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The process, if known: it is not for a guest's access, because the address is the guest's
    /// own.
    pub pid: Option<Pid>,
    /// The time, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// The data address.
    pub address: u64,
    /// The physical address, 0 where it is not known.
    pub physical: u64,
    /// Bytes of the page that maps it, 0 where that is not known.
    pub page_bytes: u64,
    /// The CPU.
    pub cpu: u32,
    /// Latency in cycles, 0 if the hardware does not report it.
    pub latency_cycles: u32,
    /// Load or store.
    pub operation: Operation,
    /// Cache or memory.
    pub level: Level,
}

impl From<&RawSample> for Sighting {
    fn from(raw: &RawSample) -> Sighting {
        Sighting {
            pid: (!raw.guest).then_some(raw.pid),
            time: raw.time,
            address: raw.address,
            physical: raw.physical,
            page_bytes: if raw.guest { 0 } else { raw.page_bytes },
            cpu: raw.cpu,
            latency_cycles: u32::try_from(raw.weight).unwrap_or(u32::MAX),
            operation: raw.data_src.operation(),
            level: raw.data_src.level(),
        }
    }
}

impl Sighting {
    /// A sample of Arm SPE: it was taken on `cpu` shortly before `time`, by process `pid`.
    pub fn of_spe(spe: &SpeSample, pid: Option<Pid>, time: Nanos, cpu: u32) -> Sighting {
        Sighting {
            pid,
            time,
            address: spe.address,
            physical: spe.physical,
            page_bytes: 0,
            cpu,
            latency_cycles: spe.latency_cycles.into(),
            operation: spe.operation(),
            level: spe.level(),
        }
    }
}

/// Why a sample was useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// No data address, or one of the kernel.
    NotUser,
    /// Neither load nor store.
    NoAccess,
    /// A cache served it; for a load also if the hardware does not report it.
    Hit,
    /// No physical address.
    NoPhysical,
    /// The physical address is not in online memory.
    NotMemory,
    /// The page is in the top tier already.
    TopTier,
    /// The process is in no scope.
    OutOfScope,
}

thermocline_core::statistics! {
    /// Samples by result: `taken = useful + local + ` all others.
    #[derive(Copy)]
    Tally "hwsample_samples" {
        /// Samples read.
        taken: u64, "samples", Counter;
        /// Samples delivered as evidence that a page should move.
        useful: u64, "samples", Counter;
        /// Samples of pages on the node that accessed them, delivered as evidence that they should
        /// stay.
        local: u64, "samples", Counter;
        /// No data address, or one of the kernel.
        not_user: u64, "samples", Counter;
        /// Neither load nor store.
        no_access: u64, "samples", Counter;
        /// Served by a cache.
        cache_hit: u64, "samples", Counter;
        /// Without a physical address.
        no_physical: u64, "samples", Counter;
        /// Not in online memory.
        not_memory: u64, "samples", Counter;
        /// On memory of the top tier.
        top_tier: u64, "samples", Counter;
        /// Of processes in no scope.
        out_of_scope: u64, "samples", Counter;
    }
}

impl Tally {
    /// Counts a sample.
    #[inline]
    pub fn count(&mut self, judged: &Result<Access, Useless>) {
        self.taken += 1;
        let counter = match judged {
            Ok(access) if access.accessor == Some(access.node) => &mut self.local,
            Ok(_) => &mut self.useful,
            Err(Useless::NotUser) => &mut self.not_user,
            Err(Useless::NoAccess) => &mut self.no_access,
            Err(Useless::Hit) => &mut self.cache_hit,
            Err(Useless::NoPhysical) => &mut self.no_physical,
            Err(Useless::NotMemory) => &mut self.not_memory,
            Err(Useless::TopTier) => &mut self.top_tier,
            Err(Useless::OutOfScope) => &mut self.out_of_scope,
        };
        *counter += 1;
    }

    /// Tells `period` of the samples since `before`, which took `cpu` to read. All those of the top
    /// tier count as local.
    pub(super) fn tell(&self, before: &Tally, period: &mut SamplePeriod, cpu: Nanos, throttled: bool) {
        period.read(
            self.taken - before.taken,
            self.useful - before.useful,
            (self.top_tier + self.local) - (before.top_tier + before.local),
            cpu.0,
            throttled,
        );
    }
}

/// Judges samples by the machine as it is now.
#[derive(Clone, Debug)]
pub struct Judge {
    frames: PfnMap,
    topology: Topology,
    /// Node of each CPU, by its number.
    cpu_nodes: Vec<NodeId>,
    /// Accesses to the top tier are useful too: a rule balances its nodes.
    keep_top_tier: bool,
    /// Loads without a report of where they were served count, and so do accesses that the hardware
    /// does not distinguish from loads.
    any_access: bool,
    /// The sampling period, 0 where it is not known.
    period: u32,
}

impl Judge {
    /// A judge for the machine, which keeps accesses to the top tier if requested.
    pub fn new(frames: PfnMap, topology: &Topology, keep_top_tier: bool) -> Judge {
        let cpu_nodes = cpu_nodes(topology);
        Judge { frames, topology: topology.clone(), cpu_nodes, keep_top_tier, any_access: false, period: 0 }
    }

    /// Page faults carry no report of the hardware, so they pass.
    pub fn of_page_faults(self) -> Judge {
        Judge { any_access: true, ..self }
    }

    /// About one access in `period` becomes a sample from now on; 0 if unknown.
    pub fn set_period(&mut self, period: u32) {
        self.period = period;
    }

    /// Memory came or went.
    pub fn set_frames(&mut self, frames: PfnMap) {
        self.frames = frames;
    }

    /// Nodes or tiers have changed.
    pub fn set_topology(&mut self, topology: &Topology) {
        self.cpu_nodes = cpu_nodes(topology);
        self.topology = topology.clone();
    }

    /// The access of a sample.
    ///
    /// # Errors
    /// Why it is useless; `in_scope` is checked last.
    #[inline]
    pub fn judge(&self, seen: &Sighting, in_scope: impl FnOnce(Pid) -> bool) -> Result<Access, Useless> {
        if seen.address == 0 || seen.address >> 63 != 0 {
            return Err(Useless::NotUser);
        }
        if !self.any_access {
            match (seen.operation, seen.level) {
                (Operation::Other, _) => return Err(Useless::NoAccess),
                // AMD does not report where a store was served.
                (Operation::Store, Level::Unknown) | (_, Level::Memory) => {}
                _ => return Err(Useless::Hit),
            }
        }
        if seen.physical == 0 {
            return Err(Useless::NoPhysical);
        }
        let frame = seen.physical >> PAGE_SHIFT;
        let node = self.frames.node_of(Pfn(frame)).ok_or(Useless::NotMemory)?;
        if !self.keep_top_tier && !self.topology.is_lower(node) {
            return Err(Useless::TopTier);
        }
        if !seen.pid.is_none_or(in_scope) {
            return Err(Useless::OutOfScope);
        }
        let order = order(seen.page_bytes);
        // Huge mappings are naturally aligned in both address spaces.
        let head = |page: u64| page & !((1 << order) - 1);
        Ok(Access {
            time: seen.time,
            pfn: Some(Pfn(head(frame))),
            page: seen.pid.map(|pid| VirtPage { pid, vpn: head(seen.address >> PAGE_SHIFT) }),
            order: order as u8,
            node,
            accessor: self.cpu_nodes.get(seen.cpu as usize).copied(),
            detail: Detail::Sample {
                latency_cycles: seen.latency_cycles,
                store: Some(seen.operation == Operation::Store),
                period: self.period,
            },
        })
    }
}

/// log2 of a page's size in base pages; 0 for a size that no page has.
fn order(bytes: u64) -> u32 {
    let order = bytes.trailing_zeros().saturating_sub(PAGE_SHIFT);
    if bytes.is_power_of_two() && order <= ORDER_MAX { order } else { 0 }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use thermocline_core::topology::Node;
    use thermocline_core::units::TierId;

    use super::super::record::{DataSrc, Record, decode};
    use super::*;
    use crate::sys::counted::allocations;
    use crate::sys::perf::ring::{Scratch, Waiting};
    use crate::topology::PfnRange;

    const LOAD_MISS: u64 = 0xd << 33 | 0x2;
    const STORE_UNKNOWN: u64 = 0xf << 33 | 0x4;

    /// Node 0: DRAM, frames 0x100..0x200; node 2: CXL, frames 0x200..0x1000. CPUs 0 and 1 belong to
    /// nodes 0 and 1.
    pub(in crate::source::hwsample) fn judge(keep_top_tier: bool) -> Judge {
        let node = |id, tier, cpus: &[u32]| Node {
            id: NodeId(id),
            tier: TierId(tier),
            cpus: cpus.to_vec(),
            capacity_pages: 1 << 20,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20, 20],
        };
        let topology = Topology::new(vec![node(0, 0, &[0]), node(1, 0, &[1]), node(2, 1, &[])]).unwrap();
        let range = |start, end, node| PfnRange { start: Pfn(start), end: Pfn(end), node: NodeId(node) };
        let frames = PfnMap::new(vec![range(0x100, 0x200, 0), range(0x200, 0x1000, 2)]);
        Judge::new(frames, &topology, keep_top_tier)
    }

    fn sample(data_src: u64, address: u64, physical: u64) -> RawSample {
        RawSample {
            pid: Pid(7),
            time: Nanos(5),
            address,
            cpu: 1,
            weight: 321,
            data_src: DataSrc(data_src),
            physical,
            page_bytes: 4096,
            ..RawSample::default()
        }
    }

    fn judged(raw: &RawSample) -> Result<Access, Useless> {
        judge(false).judge(&raw.into(), |_| true)
    }

    #[test]
    fn a_miss_on_the_slow_node_is_an_access_with_all_that_is_known() {
        let access = judged(&sample(LOAD_MISS, 0x7f00_0000_1040, 0x20_1040)).unwrap();
        assert_eq!(access.page, Some(VirtPage { pid: Pid(7), vpn: 0x7_f000_0001 }));
        assert_eq!(
            (access.pfn, access.node, access.accessor),
            (Some(Pfn(0x201)), NodeId(2), Some(NodeId(1)))
        );
        assert_eq!(access.detail, Detail::Sample { latency_cycles: 321, store: Some(false), period: 0 });
        let store = judged(&sample(STORE_UNKNOWN, 0x1000, 0x20_1040)).unwrap();
        assert_eq!(store.detail, Detail::Sample { latency_cycles: 321, store: Some(true), period: 0 });
    }

    #[test]
    fn each_useless_sample_has_its_reason() {
        let reason = |src, address, physical| judged(&sample(src, address, physical)).unwrap_err();
        assert_eq!(reason(LOAD_MISS, 0, 0x20_1000), Useless::NotUser);
        assert_eq!(reason(LOAD_MISS, 0xffff_8000_0000_0000, 0x20_1000), Useless::NotUser);
        assert_eq!(reason(0xd << 33 | 1, 0x1000, 0x20_1000), Useless::NoAccess);
        assert_eq!(reason(3 << 33 | 2, 0x1000, 0x20_1000), Useless::Hit, "L3");
        assert_eq!(
            reason(0xf << 33 | 2, 0x1000, 0x20_1000),
            Useless::Hit,
            "a load of which nothing is known"
        );
        assert_eq!(reason(LOAD_MISS, 0x1000, 0), Useless::NoPhysical);
        assert_eq!(reason(LOAD_MISS, 0x1000, 0x2000_0000), Useless::NotMemory);
        assert_eq!(reason(LOAD_MISS, 0x1000, 0x10_1000), Useless::TopTier);
        let slow = sample(LOAD_MISS, 0x1000, 0x20_1000);
        assert_eq!(judge(false).judge(&(&slow).into(), |pid| pid != Pid(7)), Err(Useless::OutOfScope));
    }

    #[test]
    fn data_source_never_says_which_tier() {
        // "Remote RAM" on frames of node 0 is top tier; "local RAM" on frames of node 2 is not.
        let remote = 0xd << 33 | 1 << 37 | 0x2;
        assert_eq!(judged(&sample(remote, 0x1000, 0x10_1000)), Err(Useless::TopTier));
        assert_eq!(judged(&sample(LOAD_MISS, 0x1000, 0x20_1000)).unwrap().node, NodeId(2));
    }

    #[test]
    fn the_top_tier_is_kept_for_a_rule_that_balances() {
        let raw = sample(LOAD_MISS, 0x1000, 0x10_1000);
        let judged = [1, 0].map(|cpu| judge(true).judge(&(&RawSample { cpu, ..raw }).into(), |_| true));
        assert_eq!(judged.map(|found| found.unwrap().node), [NodeId(0); 2]);
        // An access from node 1 says that the page should move, one from its own node that it
        // should not.
        let mut tally = Tally::default();
        judged.iter().for_each(|found| tally.count(found));
        assert_eq!((tally.taken, tally.useful, tally.local), (2, 1, 1));
    }

    #[test]
    fn a_huge_page_is_known_by_its_head_and_a_guests_access_by_its_frame() {
        let huge = RawSample { page_bytes: 2 << 20, ..sample(LOAD_MISS, 0x7f00_0025_3000, 0x65_3000) };
        let access = judged(&huge).unwrap();
        assert_eq!((access.order, access.pfn), (9, Some(Pfn(0x600))));
        assert_eq!(access.page.unwrap().address(), 0x7f00_0020_0000);
        let guest = RawSample { guest: true, ..huge };
        let access = judge(false).judge(&(&guest).into(), |_| false).unwrap();
        assert_eq!((access.page, access.pfn, access.order), (None, Some(Pfn(0x653)), 0));
        assert_eq!([0, 4096, 8192, 5000, 1 << 40].map(order), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn page_faults_pass_without_the_hardwares_word() {
        let fault = sample(0x1, 0x1000, 0x20_1000);
        assert_eq!(judged(&fault), Err(Useless::NoAccess));
        assert!(judge(false).of_page_faults().judge(&(&fault).into(), |_| true).is_ok());
    }

    #[test]
    fn nothing_is_allocated_on_the_way_from_the_ring_to_an_access() {
        let ring: Vec<u8> = (0..1000)
            .flat_map(|n| sample(LOAD_MISS, 0x1000 + (n << 12), (n % 0x1000) << 12).bytes())
            .collect();
        let (first, second) = ring.split_at(72 * 500 + 36);
        let (judge, mut scratch) = (judge(false), Scratch::default());
        let mut tally = Tally::default();
        let mut accesses = Vec::with_capacity(1000);
        let allocated = allocations(|| {
            let read = Waiting { first, second }.read(usize::MAX, &mut scratch, |record| {
                let Ok(Record::Sample(raw)) = decode(record) else { return };
                let judged = judge.judge(&Sighting::from(&raw), |_| true);
                tally.count(&judged);
                accesses.extend(judged);
            });
            assert_eq!(read.records, 1000);
        });
        assert_eq!((allocated, tally.taken), (0, 1000));
        assert!(
            tally.useful > 100 && tally.top_tier > 100 && tally.useful == accesses.len() as u64,
            "{tally:?}"
        );
    }

    proptest! {
        #[test]
        fn every_sample_is_counted_once(
            raws in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..50),
        ) {
            let mut tally = Tally::default();
            for (src, address, physical, page_bytes) in raws {
                let raw = RawSample { page_bytes, ..sample(src, address, physical) };
                tally.count(&judged(&raw));
            }
            let Tally {
                taken, useful, local, not_user, no_access, cache_hit, no_physical, not_memory, top_tier, out_of_scope,
            } = tally;
            let others =
                not_user + no_access + cache_hit + no_physical + not_memory + top_tier + out_of_scope;
            prop_assert_eq!(taken, useful + local + others);
        }
    }
}
