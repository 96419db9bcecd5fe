//! Helpers for tests of both kinds of addresses.

use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, TierId};

/// Node 0, and node 2 which is slower.
pub(super) fn topology() -> Topology {
    let node = |id: u16, tier| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0, 0), node(2, 1)]).unwrap()
}

/// Regions of a space, each from its first page to before another, with its access rate in 1/10000.
pub(super) fn snapshot(space: RegionSpace, time_ms: u64, regions: &[(u64, u64, u16)]) -> RegionSnapshot {
    let region = |&(start, end, access_rate_bp): &(u64, u64, u16)| Region {
        space,
        start,
        end,
        access_rate_bp,
        age: Nanos(0),
        check: Nanos::from_ms(5),
    };
    RegionSnapshot { time: Nanos::from_ms(time_ms), regions: regions.iter().map(region).collect() }
}
