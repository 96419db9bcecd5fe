//! A machine of three nodes and ideal records, for the tests of the rules.

use std::collections::BTreeMap;

use crate::access::{Access, Detail, FaultLatency, Mappings, NoMappings};
use crate::candidate::{Candidate, Candidates};
use crate::record::Record;
use crate::rule::{Context, Rule};
use crate::topology::{Node, Topology};
use crate::units::{Nanos, NodeId, Pfn, Pid, TierId, VirtPage};

/// Nodes 0 and 1 are DRAM with CPUs, node 2 is the slow tier.
pub(super) fn topology() -> Topology {
    let node = |id: u16, tier, distances: [u8; 3]| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: distances.to_vec(),
    };
    Topology::new(vec![node(0, 0, [10, 32, 60]), node(1, 0, [32, 10, 50]), node(2, 1, [60, 50, 10])])
        .expect("three nodes with distances to each other")
}

/// Keeps exact records and collects the candidates.
#[derive(Debug)]
pub(super) struct Machine {
    topology: Topology,
    records: BTreeMap<Pfn, (Nanos, Record)>,
    out: Candidates,
    /// The highest frequency that a record holds.
    pub(super) frequency_max: u8,
}

impl Machine {
    pub(super) fn new() -> Machine {
        Machine {
            topology: topology(),
            records: BTreeMap::new(),
            out: Candidates::new(1 << 20),
            frequency_max: u8::MAX,
        }
    }

    /// Passes an access to the rule and returns the resulting record.
    pub(super) fn access(&mut self, rule: &mut dyn Rule, access: &Access) -> Record {
        self.access_in(rule, access, &NoMappings)
    }

    /// The same on a machine that knows its mappings.
    pub(super) fn access_in(
        &mut self,
        rule: &mut dyn Rule,
        access: &Access,
        mappings: &dyn Mappings,
    ) -> Record {
        let key = access.pfn.expect("tests name the frame");
        let mut record = match self.records.get(&key) {
            Some((time, record)) => Record { gap: Some(access.time.since(*time)), ..*record },
            None => Record::default(),
        };
        let ctx = Context { topology: &self.topology, frequency_max: self.frequency_max, mappings };
        rule.on_access(access, &mut record, &ctx, &mut self.out);
        record.node = access.accessor.or(record.node);
        self.records.insert(key, (access.time, record));
        record
    }

    /// All candidates since the start or the last [`Machine::drain`].
    pub(super) fn proposed(&self) -> &[Candidate] {
        self.out.items()
    }
}

/// A hint fault from node 0 on frame and page `n` of process 1.
pub(super) fn fault(node: u16, n: u64, time_ms: u64, latency_ms: u64) -> Access {
    let latency = FaultLatency { time: Nanos::from_ms(latency_ms), faults: 0 };
    Access { detail: Detail::HintFault { latency: Some(latency) }, ..sample(node, n, time_ms) }
}

/// A hardware sample from node 0 of frame and page `n` of process 1.
pub(super) fn sample(node: u16, n: u64, time_ms: u64) -> Access {
    Access {
        time: Nanos::from_ms(time_ms),
        pfn: Some(Pfn(n)),
        page: Some(VirtPage { pid: Pid(1), vpn: n }),
        order: 0,
        node: NodeId(node),
        accessor: Some(NodeId(0)),
        detail: Detail::Sample { latency_cycles: 0, store: Some(false), period: 0 },
    }
}
