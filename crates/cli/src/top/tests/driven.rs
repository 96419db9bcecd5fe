//! An engine that has promoted some pages of two scopes and has others wait.

use thermocline_core::access::{Access, Detail, Evidence, Holding, Membership, NoMappings};
use thermocline_core::candidate::{Candidate, Candidates, Reason};
use thermocline_core::config::{Config, Scope};
use thermocline_core::engine::Engine;
use thermocline_core::moves::{BatchOutcome, Outcome};
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, TierId, VirtPage};

use crate::snapshot::Fixed;

/// The scopes, by name.
pub const SCOPES: [&str; 2] = ["db", "rest"];
/// Pages that were promoted, and pages that wait, of both scopes.
pub const PROMOTED: u64 = 25;
pub const WAITING: u64 = 3;

/// Proposes every page that is accessed on the lower node.
#[derive(Debug)]
struct Eager;

impl Rule for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn on_access(&mut self, access: &Access, _: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        if ctx.topology.is_lower(access.node) {
            out.push(Candidate::promotion(access, 100, Reason::Frequent, Nanos::from_s(10)));
        }
    }
}

fn topology() -> Topology {
    let node = |id, tier| Node {
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

fn access(pid: u32, vpn: u64) -> Access {
    Access {
        time: Nanos::from_s(100),
        pfn: Some(Pfn(u64::from(pid) * 1000 + vpn)),
        page: Some(VirtPage { pid: Pid(pid), vpn }),
        order: 0,
        node: NodeId(2),
        accessor: Some(NodeId(0)),
        detail: Detail::HintFault { latency: None },
    }
}

fn see(engine: &mut Engine, pid: u32, pages: std::ops::Range<u64>) {
    let batch: Vec<Access> = pages.map(|vpn| access(pid, vpn)).collect();
    engine.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
}

fn nodes(free_pages: u64) -> Vec<NodeState> {
    let watermarks = Watermarks { high_pages: 1000, ..Watermarks::default() };
    let state = |node| NodeState { node: NodeId(node), free_pages, managed_pages: 1 << 20, watermarks };
    vec![state(0), state(2)]
}

/// The engine, and what does not change of its snapshots.
pub fn engine() -> (Engine, Fixed) {
    let scope = |name: &str, cgroup: &str| Scope {
        name: name.to_owned(),
        cgroup: Some(cgroup.to_owned()),
        ..Scope::default()
    };
    let mut config = Config { scope: vec![scope("db", "/db"), scope("rest", "/")], ..Config::default() };
    config.scope[0].top_tier_cap_mib = Some(64);
    let mut engine = Engine::with_rule(&config, topology(), Box::new(Eager)).unwrap();
    for (place, pid) in [(0, 7), (1, 8)] {
        let membership = Membership::Managed(ScopeId::of_place(place));
        engine.observe(Evidence::Process { pid: Pid(pid), membership });
    }
    let holding = |ms| Holding { scope: ScopeId::of_place(0), time: Nanos::from_ms(ms), pages: 512 };
    engine.observe(Evidence::Holding(holding(100_000)));
    see(&mut engine, 7, 0..20);
    see(&mut engine, 8, 0..5);
    for batch in engine.tick(Nanos::from_ms(100_000), &nodes(500_000)) {
        let outcomes = vec![Outcome::Moved; batch.moves.len()];
        let done = BatchOutcome { id: batch.id, time: Nanos::from_ms(100_050), outcomes };
        engine.observe(Evidence::Outcome(&done));
    }
    engine.observe(Evidence::Holding(holding(100_100)));
    // Nothing more fits.
    see(&mut engine, 7, 100..102);
    see(&mut engine, 8, 100..101);
    engine.tick(Nanos::from_ms(100_100), &nodes(0));
    let fixed = Fixed::new("run", &config, engine.topology());
    (engine, fixed)
}
