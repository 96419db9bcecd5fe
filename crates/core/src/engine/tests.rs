//! Tests of the engine on small machines with hand-computed results.

mod payoff;
mod worth;

use super::*;
use crate::access::{Detail, Membership, NoMappings, Scans};
use crate::candidate::{Candidate, Reason};
use crate::config::RecordLayout;
use crate::moves::{BatchOutcome, Direction, Outcome};
use crate::refusal::RefusalReason as R;
use crate::topology::{Node, Watermarks};
use crate::units::{NodeId, PAGES_PER_MIB, ScopeId, TierId, VirtPage};

/// Proposes every accessed page of the lower tier; a sample's latency is the score.
#[derive(Debug)]
struct Always;

impl Rule for Always {
    fn name(&self) -> &'static str {
        "always"
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        record.frequency = record.frequency.saturating_add(1).min(ctx.frequency_max);
        let Detail::Sample { latency_cycles, .. } = access.detail else { return };
        if ctx.topology.is_lower(access.node) {
            out.push(Candidate::promotion(
                access,
                latency_cycles as u16,
                Reason::Frequent,
                Nanos::from_s(10),
            ));
        }
    }
}

fn node(id: u16, tier: u8, distances: &[u8]) -> Node {
    Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: distances.to_vec(),
    }
}

/// Nodes 0 and 1 are DRAM, node 2 is below them.
fn topology() -> Topology {
    Topology::new(vec![node(0, 0, &[10, 32, 60]), node(1, 0, &[32, 10, 50]), node(2, 1, &[60, 50, 10])])
        .unwrap()
}

fn engine(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config::default();
    change(&mut config);
    Engine::with_rule(&config, topology(), Box::new(Always)).unwrap()
}

fn access(vpn: u64, order: u8, score: u16) -> Access {
    Access {
        time: Nanos::from_s(100),
        pfn: Some(Pfn(vpn + 1_000_000)),
        page: Some(page(vpn)),
        order,
        node: NodeId(2),
        accessor: Some(NodeId(0)),
        detail: Detail::Sample { latency_cycles: score.into(), store: Some(false), period: 1 },
    }
}

fn page(vpn: u64) -> VirtPage {
    VirtPage { pid: Pid(1), vpn }
}

fn see(engine: &mut Engine, batch: &[Access]) {
    engine.observe(Evidence::Accesses { batch, mappings: &NoMappings });
    engine.check_balance().unwrap();
}

/// Every node has room except those in `full`.
fn nodes(full: &[u16]) -> Vec<NodeState> {
    let state = |node: u16| NodeState {
        node: NodeId(node),
        free_pages: if full.contains(&node) { 1000 } else { 500_000 },
        managed_pages: 1 << 20,
        watermarks: Watermarks { high_pages: 1000, ..Watermarks::default() },
    };
    (0..3).map(state).collect()
}

fn tick(engine: &mut Engine, ms: u64, full: &[u16]) -> Vec<Batch> {
    let batches = engine.tick(Nanos::from_ms(100_000 + ms), &nodes(full));
    engine.check_balance().unwrap();
    batches
}

fn end(engine: &mut Engine, batch: &Batch, outcome: Outcome) {
    let outcomes = vec![outcome; batch.moves.len()];
    let done = BatchOutcome { id: batch.id, time: Nanos(0), outcomes };
    engine.observe(Evidence::Outcome(&done));
    engine.check_balance().unwrap();
}

#[test]
fn a_hot_page_moves_to_the_nearest_top_node_and_its_record_is_cleared() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(5, 0, 7)]);
    assert!(e.table.get(Pfn(1_000_005), Nanos::from_s(100)).is_some());
    let batches = tick(&mut e, 0, &[]);
    let [batch] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!((batch.target, batch.pid, batch.direction), (NodeId(0), Pid(1), Direction::Promote));
    assert_eq!(batch.moves[0].page, page(5));
    assert!(matches!(e.explain(page(5)).state, PageState::InFlight { .. }));
    end(&mut e, batch, Outcome::Moved);
    assert!(e.table.get(Pfn(1_000_005), Nanos::from_s(100)).is_none());
    assert_eq!((e.counters.pgpromote_success, e.counters.pgmigrate_success), (1, 1));
    see(&mut e, &[access(5, 0, 7)]);
    assert_eq!(e.counters.refused.get(R::Resident), 1);
    assert!(matches!(e.explain(page(5)).state, PageState::LeftAlone { why: R::Resident, moves: 1, .. }));
}

#[test]
fn the_highest_score_goes_first_and_the_batch_is_cut_at_its_size() {
    let mut e = engine(|c| {
        c.admission.batch_pages = 2;
        c.admission.batches_in_flight = 1;
    });
    see(&mut e, &[access(1, 0, 10), access(2, 0, 30), access(3, 0, 20)]);
    let batches = tick(&mut e, 0, &[]);
    let pages: Vec<u64> = batches[0].moves.iter().map(|m| m.page.vpn).collect();
    assert_eq!((batches.len(), pages), (1, vec![2, 3]));
    assert!(tick(&mut e, 100, &[]).is_empty());
    assert!(e.counters.held.get(R::BatchesInFlight) > 0);
    end(&mut e, &batches[0], Outcome::Moved);
    assert_eq!(tick(&mut e, 200, &[])[0].moves[0].page, page(1));
}

#[test]
fn a_full_target_gives_way_to_the_next_and_two_full_ones_hold() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 10)]);
    assert_eq!(tick(&mut e, 0, &[0])[0].target, NodeId(1));
    see(&mut e, &[access(2, 0, 10)]);
    assert!(tick(&mut e, 100, &[0, 1]).is_empty());
    assert_eq!(e.counters.held.get(R::NodeFull), 1);
    assert_eq!(e.queue.held(page(2)), Some(R::NodeFull));
    assert!(e.explain(page(2)).summary.contains("node_full"), "{}", e.explain(page(2)).summary);
    assert_eq!(tick(&mut e, 200, &[])[0].moves[0].page, page(2));
}

#[test]
fn evidence_survives_a_refusal() {
    let mut e = engine(|c| c.queue.expire_ms = 100);
    see(&mut e, &[access(2, 0, 10)]);
    tick(&mut e, 0, &[0, 1]);
    tick(&mut e, 100, &[0, 1]);
    assert_eq!(e.counters.expired.get(R::NodeFull), 1);
    assert_eq!(e.table.get(Pfn(1_000_002), Nanos::from_s(100)).unwrap().frequency, 1);
}

#[test]
fn a_busy_page_is_tried_again_with_growing_delays_and_then_given_up() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 10)]);
    for (ms, next_ms) in [(0, 500), (500, 1500), (1500, 3500)] {
        let batches = tick(&mut e, ms, &[]);
        assert_eq!(batches.len(), 1, "at {ms} ms");
        end(&mut e, &batches[0], Outcome::Busy);
        assert!(matches!(e.explain(page(1)).state, PageState::Waiting { held: Some(R::Retry), .. }));
        assert!(tick(&mut e, next_ms - 1, &[]).is_empty());
    }
    let batches = tick(&mut e, 3500, &[]);
    end(&mut e, &batches[0], Outcome::Busy);
    assert_eq!((e.counters.returned, e.counters.refused.get(R::GaveUp)), (4, 1));
    assert!(e.table.get(Pfn(1_000_001), Nanos::from_s(100)).is_some());
    assert!(e.queue.is_empty());
}

#[test]
fn what_cannot_move_is_left_alone_and_told_once() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 10)]);
    let batches = tick(&mut e, 0, &[]);
    end(&mut e, &batches[0], Outcome::Pinned);
    for _ in 0..3 {
        see(&mut e, &[access(1, 0, 10)]);
    }
    assert_eq!(e.counters.refused.get(R::Pinned), 3);
    let told = e.journal.entries().filter(|d| d.what == What::Refused { reason: R::Pinned }).count();
    assert_eq!(told, 1);
}

#[test]
fn a_folio_larger_than_a_batch_goes_alone() {
    let mut e = engine(|c| c.admission.batch_pages = 8);
    see(&mut e, &[access(512, 9, 30), access(1, 0, 20), access(2048, 2, 10)]);
    let batches = tick(&mut e, 0, &[]);
    let sizes: Vec<u64> = batches.iter().map(Batch::pages).collect();
    assert_eq!(sizes, [512, 5]);
}

#[test]
fn the_rate_limit_holds_everybody_until_the_second_is_over() {
    let mut e = engine(|c| c.admission.rate_limit_mbps = 1);
    let all: Vec<Access> = (0..300).map(|i| access(i, 0, 10)).collect();
    see(&mut e, &all);
    assert_eq!(tick(&mut e, 0, &[]).iter().map(Batch::pages).sum::<u64>(), PAGES_PER_MIB);
    assert!(tick(&mut e, 999, &[]).is_empty());
    assert_eq!(e.queue.held(page(299)), Some(R::RateLimited));
    assert_eq!(tick(&mut e, 1000, &[]).iter().map(Batch::pages).sum::<u64>(), 44);
}

#[test]
fn a_scope_keeps_to_its_share_only_while_another_waits() {
    let scope = |name: &str, rate_share_percent| crate::config::Scope {
        name: name.to_owned(),
        rate_share_percent,
        ..crate::config::Scope::default()
    };
    let mut e = engine(|c| {
        c.admission.rate_limit_mbps = 1;
        c.scope = vec![scope("a", 25), scope("b", 100)];
    });
    e.observe(Evidence::Process { pid: Pid(1), membership: Membership::Managed(ScopeId(1)) });
    e.observe(Evidence::Process { pid: Pid(2), membership: Membership::Managed(ScopeId(2)) });
    let mut all: Vec<Access> = (0..200).map(|i| access(i, 0, 50)).collect();
    all.extend((0..100).map(|i| Access {
        page: Some(VirtPage { pid: Pid(2), vpn: i }),
        pfn: Some(Pfn(i)),
        ..access(i, 0, 10)
    }));
    see(&mut e, &all);
    let of = |batches: &[Batch], pid| -> u64 {
        batches.iter().filter(|b| b.pid == Pid(pid)).map(Batch::pages).sum()
    };
    let first = tick(&mut e, 0, &[]);
    assert_eq!((of(&first, 1), of(&first, 2)), (64, 100));
    assert_eq!(e.counters.held.get(R::ShareExceeded), 1);
    let second = tick(&mut e, 100, &[]);
    assert_eq!((of(&second, 1), of(&second, 2)), (92, 0));
    // Pid 3 has not been examined, and scopes are configured.
    see(&mut e, &[Access { page: Some(VirtPage { pid: Pid(3), vpn: 1 }), ..access(1, 0, 10) }]);
    assert_eq!(e.counters.refused.get(R::Unexamined), 1);
}

#[test]
fn with_exclusions_alone_nobody_moves_who_has_not_been_looked_at() {
    let not_these = crate::config::Scope { exclude: true, ..crate::config::Scope::default() };
    let mut e = engine(|c| c.scope = vec![not_these]);
    let told = |e: &mut Engine, membership| e.observe(Evidence::Process { pid: Pid(1), membership });
    see(&mut e, &[access(1, 0, 10)]);
    assert_eq!((e.counters.refused.get(R::Unexamined), e.queue.len()), (1, 0));
    told(&mut e, Membership::Excluded);
    see(&mut e, &[access(1, 0, 10)]);
    assert_eq!((e.counters.refused.get(R::Excluded), e.queue.len()), (1, 0));
    told(&mut e, Membership::Managed(ScopeId::DEFAULT));
    see(&mut e, &[access(1, 0, 10)]);
    assert_eq!(e.queue.len(), 1);
    // Waiting candidates of a process do not move after it is excluded.
    told(&mut e, Membership::Excluded);
    assert_eq!((e.counters.exited, e.queue.len()), (1, 0));
    assert!(tick(&mut e, 0, &[]).is_empty());
}

#[test]
fn an_exec_forgets_pages_and_an_exit_the_process_too() {
    let mut e = engine(|c| c.scope = vec![crate::config::Scope::default()]);
    e.observe(Evidence::Process { pid: Pid(1), membership: Membership::Managed(ScopeId(1)) });
    see(&mut e, &[access(1, 0, 10)]);
    e.observe(Evidence::Exec { pid: Pid(1) });
    assert_eq!((e.counters.exited, e.queue.len()), (1, 0));
    see(&mut e, &[access(2, 0, 10)]);
    assert_eq!(tick(&mut e, 0, &[]).len(), 1, "it is in its scope as before");
    e.observe(Evidence::Exit { pid: Pid(1) });
    see(&mut e, &[access(3, 0, 10)]);
    assert_eq!(e.counters.refused.get(R::Unexamined), 1, "whoever has the number now");
}

#[test]
fn an_exit_drops_what_waits_and_what_fails_afterwards() {
    let mut e = engine(|c| c.admission.batch_pages = 1);
    see(&mut e, &[access(1, 0, 10)]);
    let batches = tick(&mut e, 0, &[]);
    see(&mut e, &[access(2, 0, 10), access(3, 0, 10)]);
    e.observe(Evidence::Exit { pid: Pid(1) });
    assert_eq!((e.counters.exited, e.queue.len()), (2, 0));
    end(&mut e, &batches[0], Outcome::Busy);
    assert_eq!((e.counters.returned, e.queue.len()), (0, 0));
}

#[test]
fn outcomes_that_make_no_sense_are_counted() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 20), access(2, 0, 10)]);
    let batches = tick(&mut e, 0, &[]);
    let done = BatchOutcome { id: batches[0].id, time: Nanos(0), outcomes: vec![Outcome::Moved] };
    e.observe(Evidence::Outcome(&done));
    e.observe(Evidence::Outcome(&done));
    assert_eq!((e.counters.outcomes_malformed, e.counters.outcomes_unknown), (1, 1));
    assert_eq!((e.counters.moved, e.counters.failed.get(Outcome::NotTried)), (1, 1));
    e.check_balance().unwrap();
}

#[test]
fn a_batch_without_an_outcome_is_lost_after_a_while_and_its_pages_left_alone() {
    let mut e = engine(|c| c.admission.batches_in_flight = 1);
    see(&mut e, &[access(1, 0, 10)]);
    let batches = tick(&mut e, 0, &[]);
    tick(&mut e, 59_999, &[]);
    assert_eq!(e.counters.lost, 0);
    tick(&mut e, 60_000, &[]);
    assert_eq!((e.counters.lost, e.admission.batches_in_flight()), (1, 0));
    end(&mut e, &batches[0], Outcome::Moved);
    assert_eq!(e.counters.outcomes_unknown, 1);
    assert!(matches!(e.explain(page(1)).state, PageState::LeftAlone { why: R::Lost, .. }));
}

#[test]
fn nonsense_is_counted_and_ignored() {
    let mut e = engine(|_| ());
    let unknown = Access { node: NodeId(9), ..access(1, 0, 10) };
    see(&mut e, &[unknown, access(2, 200, 10), access(3, 0, 10), Access { page: None, ..access(4, 0, 10) }]);
    assert_eq!((e.counters.evidence_invalid, e.queue.len()), (2, 1));
    assert_eq!(e.counters.refused.get(R::NotMovable), 1);
    e.observe(Evidence::Process { pid: Pid(u32::MAX), membership: Membership::Managed(ScopeId(7)) });
    e.observe(Evidence::MemoryOffline { start: Pfn(9), end: Pfn(1) });
    assert_eq!(e.counters.evidence_invalid, 4);
}

#[test]
fn what_is_dated_far_ahead_is_not_believed_and_makes_nothing_cold() {
    let mut e = engine(|_| ());
    tick(&mut e, 0, &[]);
    let at = |vpn, s| Access { time: Nanos::from_s(s), ..access(vpn, 0, 10) };
    see(&mut e, &[at(1, 160), at(2, 161), at(3, u64::MAX / 1_000_000_000)]);
    assert_eq!((e.counters.evidence_invalid, e.queue.len()), (2, 1));
    // The others' records of that section still count from now on.
    see(&mut e, &[at(4, 100)]);
    assert_eq!(e.record(Pfn(1_000_004)).unwrap().frequency, 1);
}

#[test]
fn what_waits_goes_where_the_topology_of_now_says() {
    let machine = |nodes: &[(u16, u8)]| {
        let distances = vec![10; nodes.len()];
        Topology::new(nodes.iter().map(|&(id, tier)| node(id, tier, &distances)).collect()).unwrap()
    };
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 10)]);
    let [first] = &tick(&mut e, 0, &[])[..] else { panic!("one batch") };
    see(&mut e, &[access(2, 0, 10)]);
    // A second node of the lower tier; the fourth route now leads there.
    e.observe(Evidence::Topology(&machine(&[(0, 0), (1, 0), (2, 1), (3, 1)])));
    end(&mut e, first, Outcome::Busy);
    let targets = |batches: Vec<Batch>| batches.iter().map(|b| b.target.0).collect::<Vec<_>>();
    assert_eq!(targets(tick(&mut e, 10, &[])), [0], "what waited");
    assert_eq!(targets(tick(&mut e, 1000, &[])), [0], "what came back");
    // Without the node that they are on nothing can move from there.
    see(&mut e, &[access(3, 0, 10)]);
    e.observe(Evidence::Topology(&machine(&[(0, 0), (3, 1)])));
    assert_eq!((e.queue.len(), e.counters.refused.get(R::NoTarget)), (0, 1));
    e.check_balance().unwrap();
}

#[test]
fn the_one_byte_record_needs_the_node_beside_it_on_a_machine_with_far_nodes() {
    let mut config = Config::default();
    config.engine.record = RecordLayout::Byte;
    assert!(Engine::new(&config, topology()).is_ok());
    config.engine.record_node_per_block = false;
    let error = Engine::new(&config, topology()).unwrap_err().to_string();
    assert!(error.contains("node 0 and node 1 are far apart (SLIT distance 32"), "{error}");
    config.engine.far_distance = 40;
    assert!(Engine::new(&config, topology()).is_ok());
}

#[test]
fn an_explanation_can_be_told_as_json() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(1, 0, 10)]);
    let told = serde_json::to_value(e.explain(page(1))).unwrap();
    assert_eq!(told["state"]["state"], "waiting");
    assert_eq!(told["decisions"][0]["what"], "proposed");
    assert!(serde_json::to_string(&e.status()).unwrap().contains("queue_length"));
    assert_eq!(e.explain(page(99)).summary, "no evidence of it, or none that is still remembered");
}

#[test]
fn a_tail_page_is_explained_by_its_folio() {
    let mut e = engine(|_| ());
    see(&mut e, &[access(512, 9, 10)]);
    let tail = e.explain_at(page(515), Some(Pfn(1_000_515)));
    assert_eq!((tail.head, tail.pfn), (page(512), Some(Pfn(1_000_512))));
    assert!(tail.record.is_some());
    assert!(matches!(tail.state, PageState::Waiting { score: 10, .. }));
    assert!(matches!(e.explain(page(1024)).state, PageState::Idle));
    // A folio assumed to contain the page does not hide the page's own state.
    tick(&mut e, 0, &[]);
    see(&mut e, &[access(0, 10, 10)]);
    assert_eq!(e.counters.refused.get(R::InFlight), 1);
    let tail = e.explain(page(515));
    assert_eq!((tail.head, tail.pfn), (page(512), Some(Pfn(1_000_512))));
    assert!(matches!(tail.state, PageState::InFlight { .. }));
}

#[test]
fn demotion_and_balance_go_the_same_way_and_can_be_switched_off() {
    /// Demotes what is on node 0 and balances what node 0 accesses on node 1.
    #[derive(Debug)]
    struct Down;
    impl Rule for Down {
        fn name(&self) -> &'static str {
            "down"
        }
        fn on_access(&mut self, access: &Access, _: &mut Record, _: &Context<'_>, out: &mut Candidates) {
            let candidate = Candidate::promotion(access, 1, Reason::ColdRegion, Nanos::from_s(10));
            let direction = if access.node == NodeId(0) { Direction::Demote } else { Direction::Balance };
            out.push(Candidate { direction, ..candidate });
        }
    }
    let on = |vpn, node| Access { node: NodeId(node), ..access(vpn, 0, 0) };
    let mut e = Engine::with_rule(&Config::default(), topology(), Box::new(Down)).unwrap();
    see(&mut e, &[on(1, 0), on(2, 1)]);
    let batches = tick(&mut e, 0, &[]);
    let ways: Vec<_> = batches.iter().map(|b| (b.direction, b.target.0)).collect();
    assert_eq!(ways, [(Direction::Demote, 2), (Direction::Balance, 0)]);
    for batch in &batches {
        end(&mut e, batch, Outcome::Moved);
    }
    assert_eq!((e.counters.pgdemote, e.counters.pgbalance, e.counters.pgmigrate_success), (1, 1, 2));

    let mut config = Config::default();
    config.admission.demote = false;
    let mut e = Engine::with_rule(&config, topology(), Box::new(Down)).unwrap();
    see(&mut e, &[on(1, 0)]);
    assert_eq!(e.counters.refused.get(R::DirectionOff), 1);
}

#[test]
fn promotions_that_a_full_node_holds_do_not_stop_demotions_of_lower_score() {
    let mut e = engine(|_| ());
    let hot: Vec<Access> = (0..6000).map(|i| access(i, 0, 1000)).collect();
    see(&mut e, &hot);
    let cold = Candidate {
        direction: Direction::Demote,
        from: NodeId(0),
        ..Candidate::promotion(&access(9000, 0, 0), 1, Reason::ColdRegion, Nanos::from_s(10))
    };
    e.out.push(cold);
    let batches = tick(&mut e, 0, &[0, 1]);
    assert_eq!(batches.iter().map(|b| b.direction).collect::<Vec<_>>(), [Direction::Demote]);
    assert_eq!(e.counters.held.get(R::NodeFull), 1, "one look tells for all of them");
}

#[test]
fn how_the_kernel_was_seen_to_scan_decides_how_it_is_to_scan() {
    let mut engine = engine(|config| config.kernel.scan_size_mb = Some(8));
    // Node 2 holds 1000 MiB; a tenth of them a step is a pass in ten seconds, with a step a second.
    let nodes = [NodeState {
        node: NodeId(2),
        free_pages: 0,
        managed_pages: 1000 * PAGES_PER_MIB,
        watermarks: Watermarks::default(),
    }];
    let wish = |engine: &mut Engine, at_s: u64, scans: Option<Scans>| {
        engine.observe(Evidence::Scans(scans));
        engine.pace(Nanos::from_s(at_s), &nodes, Pacing::Renewals).unwrap()
    };
    let scans = Scans { pid: Pid(1), interval: Nanos::from_ms(500), mib: 1000, passes: 0 };
    assert_eq!(wish(&mut engine, 10, None).step_mb, 100, "what is not known is a second");
    assert_eq!(wish(&mut engine, 12, Some(scans)).step_mb, 50);
    let renewing = wish(&mut engine, 14, Some(Scans { passes: 1, ..scans }));
    assert!(renewing.renewing, "125 steps in five seconds are 40 ms");
    assert_eq!(engine.pace(Nanos::from_s(16), &nodes, Pacing::Nothing), None);
    engine.tick(Nanos::from_s(30), &nodes);
    // A clock that goes back does not keep the engine from looking.
    let later = engine.pace(Nanos::from_s(1), &nodes, Pacing::Renewals).unwrap();
    assert_ne!(later, renewing);
}
