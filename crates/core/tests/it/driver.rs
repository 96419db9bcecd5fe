//! The order of a step, and what makes a tick and a reading of the nodes due.

use thermocline_core::access::{Access, Detail, Evidence, NoMappings};
use thermocline_core::config::Config;
use thermocline_core::driver::{Driver, IDLE_TICKS, NODES_EVERY};
use thermocline_core::engine::Engine;
use thermocline_core::moves::{BatchOutcome, Outcome};
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

use crate::machine::Call::{self, Demote, Nodes, Poll, Submit, Wish};
use crate::machine::Hand;
use crate::wild::Wild;
use crate::world::topology;

const NODE_PAGES: u64 = 1 << 16;
/// A sample's latency from which the wild rule reads a promotion that does not expire soon.
const PROMOTE: u32 = 0x1_ff04;

/// A driver and its machine, one tick apart.
struct Rig {
    driver: Driver,
    machine: Hand,
    tick: Nanos,
    now: Nanos,
}

impl Rig {
    /// Every node has `free_pages` free, and demands lead to something.
    fn new(free_pages: u64) -> Rig {
        let config = Config::default();
        let engine = Engine::with_rule(&config, topology(), Box::new(Wild)).expect("a sound setup");
        let mut rig = Rig {
            driver: Driver::new(engine, &config),
            machine: Hand::default(),
            tick: Nanos::from_ms(config.engine.tick_ms),
            now: Nanos::from_s(1000),
        };
        rig.machine.demotes = true;
        rig.set_free(free_pages);
        rig
    }

    fn set_free(&mut self, free_pages: u64) {
        let state =
            |n| NodeState { node: NodeId(n), free_pages, managed_pages: NODE_PAGES, ..NodeState::default() };
        self.machine.nodes = (0..4).map(state).collect();
    }

    /// Has the next poll report a page to promote.
    fn heat(&mut self) {
        let access = Access {
            time: self.now,
            pfn: Some(Pfn(8)),
            page: Some(VirtPage { pid: Pid(1), vpn: 8 }),
            order: 0,
            node: NodeId(3),
            accessor: Some(NodeId(0)),
            detail: Detail::Sample { latency_cycles: PROMOTE, store: Some(false), period: 1 },
        };
        self.machine
            .report(move |observe| observe(Evidence::Accesses { batch: &[access], mappings: &NoMappings }));
    }

    /// Steps after this many ticks; returns the machine's calls.
    fn after(&mut self, ticks: u64) -> Vec<Call> {
        self.now = self.now.plus(Nanos(self.tick.0 * ticks));
        self.step()
    }

    fn step(&mut self) -> Vec<Call> {
        self.machine.calls.clear();
        let ticked = self.driver.step(self.now, &mut self.machine).expect("a sound machine");
        let calls = std::mem::take(&mut self.machine.calls);
        assert_eq!(ticked, calls.contains(&Submit));
        assert_eq!(calls.iter().filter(|call| matches!(call, Poll(_))).count(), 1, "one poll a step");
        calls
    }

    fn until_due(&self) -> u64 {
        self.driver.next_due().since(self.now).0 / self.tick.0
    }
}

#[test]
fn a_step_polls_reads_wishes_submits_and_demotes_in_this_order() {
    let mut rig = Rig::new(NODE_PAGES);
    assert_eq!(rig.step(), [Poll(true), Nodes, Wish, Submit, Demote]);
    assert_eq!(rig.step(), [Poll(false)], "the tick is not over");
}

#[test]
fn ticks_are_rare_only_while_there_is_nothing_to_decide() {
    let mut rig = Rig::new(0);
    rig.step();
    assert_eq!(rig.until_due(), IDLE_TICKS);
    rig.machine.looking = true;
    assert_eq!(rig.step(), [Poll(false)]);
    assert_eq!(rig.until_due(), 1, "the machine has more to look for");
    rig.machine.looking = false;
    assert!(rig.after(1).contains(&Submit));
    assert_eq!(rig.until_due(), IDLE_TICKS);
    rig.heat();
    rig.step();
    assert_eq!(rig.until_due(), 1, "a candidate waits");
    rig.set_free(NODE_PAGES);
    assert!(rig.after(1).contains(&Submit));
    assert_eq!((rig.machine.batches.len(), rig.until_due()), (1, 1), "a batch is under way");
    let batch = rig.machine.batches.remove(0);
    let done = BatchOutcome { id: batch.id, time: rig.now, outcomes: vec![Outcome::Gone] };
    rig.machine.report(move |observe| observe(Evidence::Outcome(&done)));
    rig.step();
    assert_eq!(rig.until_due(), IDLE_TICKS);
}

#[test]
fn evidence_that_comes_late_in_an_idle_tick_makes_one_due_at_once() {
    let mut rig = Rig::new(0);
    rig.step();
    rig.heat();
    assert_eq!(rig.after(3), [Poll(false)]);
    assert!(rig.driver.next_due() <= rig.now);
    assert_eq!(rig.step()[..2], [Poll(true), Nodes]);
}

#[test]
fn nodes_are_read_for_each_tick_while_a_candidate_waits_and_else_once_a_second() {
    let mut rig = Rig::new(NODE_PAGES);
    let start = rig.now;
    rig.step();
    while rig.now.plus(Nanos(IDLE_TICKS * rig.tick.0)).since(start) < NODES_EVERY {
        assert_eq!(rig.after(IDLE_TICKS), [Poll(true), Wish, Submit], "no demand by old readings");
    }
    assert_eq!(rig.after(IDLE_TICKS), [Poll(true), Nodes, Wish, Submit, Demote]);
    rig.machine.demotes = false;
    rig.set_free(0);
    rig.heat();
    rig.step();
    for _ in 0..3 {
        assert_eq!(rig.after(1), [Poll(true), Nodes, Wish, Submit]);
    }
}

#[test]
fn a_demand_that_is_due_has_the_nodes_read() {
    for ended in [false, true] {
        let mut rig = Rig::new(0);
        // Lower tiers have room.
        rig.machine.nodes[2].free_pages = NODE_PAGES;
        rig.machine.nodes[3].free_pages = NODE_PAGES;
        rig.step();
        let demands = std::mem::take(&mut rig.machine.demands);
        assert!(!demands.is_empty());
        for demand in demands.into_iter().filter(|_| ended) {
            let done = demand.done(demand.pages, Nanos(0));
            rig.machine.report(move |observe| observe(Evidence::Demoted(&done)));
        }
        rig.after(1);
        let calls = rig.after(IDLE_TICKS - 1);
        assert_eq!(calls.contains(&Nodes), ended, "the next demand waits for the end of the last");
        assert_eq!(calls.contains(&Demote), ended);
    }
}

#[test]
fn a_change_of_the_topology_arrives_before_the_tick() {
    let mut rig = Rig::new(NODE_PAGES);
    rig.step();
    rig.heat();
    let mut nodes = topology().nodes;
    nodes[0].capacity_pages = 0;
    let changed = Topology::new(nodes).expect("a sound topology");
    rig.machine.report(move |observe| observe(Evidence::Topology(&changed)));
    rig.after(IDLE_TICKS);
    assert_eq!(rig.driver.engine().topology().tier(NodeId(0)), None);
    assert!(rig.machine.batches.iter().all(|batch| batch.target != NodeId(0)));
}

#[test]
fn a_clock_that_goes_back_does_not_stop_the_loop() {
    let mut rig = Rig::new(NODE_PAGES);
    rig.step();
    rig.now = Nanos::from_s(10);
    assert_eq!(rig.step(), [Poll(true), Nodes, Wish, Submit, Demote]);
    assert_eq!(rig.step(), [Poll(false)]);
    assert_eq!(rig.until_due(), IDLE_TICKS);
}

#[test]
fn a_machine_that_fails_is_asked_for_nothing_more_in_that_step() {
    let mut rig = Rig::new(NODE_PAGES);
    rig.machine.nodes.clear();
    assert_eq!(rig.driver.step(rig.now, &mut rig.machine), Err("no nodes"));
    assert_eq!(rig.machine.calls, [Poll(true), Nodes]);
    rig.set_free(NODE_PAGES);
    assert_eq!(rig.after(IDLE_TICKS), [Poll(true), Nodes, Wish, Submit, Demote]);
}

#[test]
fn where_nothing_is_spared_every_tick_reads_the_nodes() {
    let mut rig = Rig::new(NODE_PAGES);
    rig.driver = rig.driver.sparing_nothing();
    for _ in 0..3 {
        assert_eq!(rig.after(1), [Poll(true), Nodes, Wish, Submit, Demote]);
        assert_eq!(rig.until_due(), 1);
    }
}
