//! Snapshots of a machine with two tiers, at any second of its run.

use thermocline_core::access::Source;
use thermocline_core::admission::{Braking, Cause, Standing};
use thermocline_core::engine::ScopeLedger;
use thermocline_core::label::Label;
use thermocline_core::moves::Outcome;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::rule::Gauge;
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, ScopeId, TierId};
use thermocline_linux::residency::Residency;

use crate::snapshot::{Named, Snapshot, Status};

/// The answer to a `status` request for this snapshot.
pub fn answer(snapshot: &Snapshot) -> serde_json::Value {
    Status { snapshot, residency: Ok(Residency::default()), late: None }.json()
}

/// The machine `s` seconds after the start: DRAM on node 0 fills up, and most is refused.
pub fn snapshot(s: u64) -> Snapshot {
    let mut snapshot = Snapshot::for_tests();
    let fixed = &mut snapshot.fixed;
    (fixed.version, fixed.pid) = ("0.1.0", 812);
    let node = |id, tier, capacity_pages| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    fixed.topology = Topology::new(vec![node(0, 0, 1 << 20), node(2, 1, 1 << 22)]).unwrap();
    snapshot.uptime_ns = Nanos::from_s(s);
    snapshot.cpu_time_ns = Nanos::from_ms(s * 12);
    let watermarks = Watermarks { min_pages: 4000, low_pages: 8000, high_pages: 12_000, promo_pages: 16_000 };
    let state = |node, free_pages, managed_pages| NodeState {
        node: NodeId(node),
        free_pages,
        managed_pages,
        watermarks,
    };
    snapshot.nodes = vec![
        state(0, 20_000u64.saturating_sub(s * 768), 1 << 20),
        state(2, (1 << 21) + s % 1000 * 768, 1 << 22),
    ];
    snapshot.kernel_moves.pgpromote_success = s * 16;
    snapshot.kernel_moves.pgdemote_kswapd = s * 64;
    let snapshot = snapshot.with_engine(|engine| {
        let counters = &mut engine.counters;
        counters.evidence.add(Source::HintFault, s * 8000);
        counters.numa_hint_faults = s * 8000;
        counters.proposed = s * 900;
        counters.issued = s * 790;
        counters.moved = s * 768;
        counters.pgpromote_success = s * 768;
        counters.pgmigrate_success = s * 768;
        counters.refused.add(RefusalReason::ScopeCap, s * 20);
        counters.held.add(RefusalReason::NodeFull, s * 40);
        counters.failed.add(Outcome::ALL[1], s * 2);
        engine.gauges = vec![
            Gauge { name: "queue_length", node: None, value: 120 },
            Gauge { name: "moves_in_flight", node: None, value: 32 },
            Gauge { name: "pages_in_flight", node: Some(NodeId(0)), value: 32 },
        ];
    });
    scopes(snapshot, 3)
}

/// The snapshot with so many scopes: each holds one MiB more than the one before, every third has a
/// cap, the second is braked, and each from the second on has a share of which it wants some.
pub fn scopes(snapshot: Snapshot, count: u16) -> Snapshot {
    const NAMES: [&str; 3] = ["db", "/batch.slice", "web"];
    snapshot.with_engine(|engine| {
        engine.scopes.clear();
        engine.brakes.clear();
        engine.ledgers.clear();
        for n in 0..count {
            let name = NAMES.get(usize::from(n)).map_or(format!("/guests/{n}"), |name| (*name).to_owned());
            let scope = ScopeId(n + 1);
            let standing = Standing {
                scope,
                floor_pages: 256,
                never_slow: false,
                cap_pages: n.is_multiple_of(3).then_some(1024),
                share_pages: if n == 0 { 0 } else { u64::from(n + 2) * 256 },
                claimed_pages: u64::from(n) * 64,
                top_tier_pages: Some(u64::from(n + 1) * 256),
                age_ms: Some(90),
                up_pages: 16,
                down_pages: 0,
                room_pages: None,
                spare_pages: None,
            };
            let braking = Braking {
                scope,
                rate_bp: if n == 1 { 2500 } else { 10_000 },
                by: (n == 1).then_some(Cause::PingPong),
                for_ms: None,
                some_bp: None,
                some_baseline_bp: None,
                full_bp: None,
                full_baseline_bp: None,
                again_bp: None,
            };
            let ledger = ScopeLedger {
                scope,
                promoted: u64::from(n) * 512,
                demoted: 256,
                evicted: 128,
                ..ScopeLedger::default()
            };
            engine.scopes.push(Named { name: name.clone(), standing });
            engine.ledgers.push(Named { name: name.clone(), standing: ledger });
            engine.brakes.push(Named { name, standing: braking });
        }
    })
}

/// Decisions as the daemon tells them, the last one numbered `next - 1`.
pub fn decisions(first: u64, next: u64) -> serde_json::Value {
    let decision = |n: u64| {
        let (what, more) = match n % 3 {
            0 => ("proposed", serde_json::json!({})),
            1 => ("refused", serde_json::json!({ "reason": "scope_cap" })),
            _ => ("moved", serde_json::json!({ "batch": n })),
        };
        let mut told = serde_json::json!({
            "time": n * 100_000_000, "what": what,
            "page": { "pid": std::process::id(), "vpn": 0x7f_12a4_c000 + n },
            "pfn": null, "pages": 1, "direction": "promote", "from": 2, "to": 0, "score": 700 + n % 100,
            "why": "short_latency", "sources": ["hint-fault"],
        });
        told.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        told
    };
    serde_json::json!({ "schema": 1, "next": next, "decisions": (first..next).map(decision).collect::<Vec<_>>() })
}
