//! The machine whose accesses are observed, and the two ways to observe them.

use thermocline_core::access::{Evidence, NoMappings};
use thermocline_core::candidate::Candidates;
use thermocline_core::config::{self, Config, RecordLayout, RuleName};
use thermocline_core::engine::Engine;
use thermocline_core::moves::{BatchOutcome, Outcome};
use thermocline_core::record::{RecordParams, RecordTable};
use thermocline_core::rule::{Context, Frequency, Rule};
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, TierId};

use crate::clock::cpu_ns;
use crate::source::{BATCH, Source};

/// The node whose pages are accessed.
pub(crate) const SLOW: NodeId = NodeId(2);

/// Two nodes of DRAM, and a slow one with `pages` pages.
fn topology(pages: u64) -> Topology {
    let node = |id, tier, capacity_pages, distances: [u8; 3]| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: distances.to_vec(),
    };
    Topology::new(vec![
        node(0, 0, pages / 4, [10, 21, 28]),
        node(1, 0, pages / 4, [21, 10, 24]),
        node(SLOW.0, 1, pages, [28, 24, 10]),
    ])
    .expect("the three nodes have distances to each other")
}

/// Rule `frequency` as configured by default.
fn frequency(layout: RecordLayout) -> Frequency {
    Frequency::new(&config::rule::Frequency::default(), layout, Nanos::from_s(10))
}

/// Its window.
pub(crate) fn window() -> Nanos {
    frequency(RecordLayout::Word).window()
}

/// Records and rule: what every access passes through.
pub(crate) struct Observer {
    pub(crate) table: RecordTable,
    topology: Topology,
    rule: Box<dyn Rule>,
    out: Candidates,
    /// Candidates so far.
    pub(crate) candidates: u64,
}

impl Observer {
    pub(crate) fn new(layout: RecordLayout, pages: u64) -> Observer {
        let topology = topology(pages);
        let params = RecordParams { layout, window: window(), ..RecordParams::default() };
        let mut table = RecordTable::new(params).expect("the address space is available");
        table.set_topology(&topology);
        let rule = frequency(layout);
        let out = Candidates::new(BATCH as usize);
        Observer { table, topology, rule: Box::new(rule), out, candidates: 0 }
    }

    pub(crate) fn observe(&mut self, source: &mut Source, batches: u64) {
        let frequency_max = self.table.frequency_max();
        let ctx = Context { topology: &self.topology, frequency_max, mappings: &NoMappings };
        for _ in 0..batches {
            self.rule.on_batch(source.next(), &mut self.table, &ctx, &mut self.out);
            self.candidates += self.out.drain().count() as u64;
        }
    }
}

/// The whole engine, with a queue of `queue` candidates at most.
pub(crate) fn engine(layout: RecordLayout, pages: u64, queue: u32) -> Engine {
    let mut config = Config::default();
    config.engine.record = layout;
    config.rule.name = RuleName::Frequency;
    config.queue.capacity = queue;
    Engine::new(&config, topology(pages)).expect("the configuration is within its ranges")
}

/// Shows the engine `batches` batches; nothing moves.
pub(crate) fn show(engine: &mut Engine, source: &mut Source, batches: u64) {
    for _ in 0..batches {
        engine.observe(Evidence::Accesses { batch: source.next(), mappings: &NoMappings });
    }
}

/// The same with a tick every 100 ms of the source's time, whose moves succeed at once. Returns the
/// CPU time of ticks and outcomes in ns.
pub(crate) fn show_and_move(engine: &mut Engine, source: &mut Source, batches: u64) -> f64 {
    const TICK: Nanos = Nanos::from_ms(100);
    let mut moving = 0.0;
    let mut next_tick = source.time().plus(TICK);
    for _ in 0..batches {
        show(engine, source, 1);
        if source.time() >= next_tick {
            let start = cpu_ns();
            move_at_once(engine, source.time());
            moving += cpu_ns() - start;
            next_tick = next_tick.plus(TICK);
        }
    }
    moving
}

fn move_at_once(engine: &mut Engine, now: Nanos) {
    let nodes = engine.topology().nodes.iter();
    let states: Vec<NodeState> = nodes
        .map(|node| NodeState {
            node: node.id,
            free_pages: node.capacity_pages,
            managed_pages: node.capacity_pages,
            watermarks: Watermarks::default(),
        })
        .collect();
    for batch in engine.tick(now, &states) {
        let outcomes = vec![Outcome::Moved; batch.moves.len()];
        engine.observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: now, outcomes }));
    }
}
