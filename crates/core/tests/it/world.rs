//! A small machine behind a driver: four nodes in three tiers, a few processes, and a mover that
//! does what the steps say.

use std::collections::{BTreeMap, VecDeque};

use thermocline_core::access::{
    Access, Detail, Evidence, FaultLatency, Membership, NoMappings, Region, RegionPage, RegionSnapshot,
    RegionSpace,
};
use thermocline_core::config::{Config, RecordLayout, RuleName, Scope};
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, TierId, VirtPage};

use crate::laws::Laws;
use crate::machine::Hand;
use crate::step::Step;
use crate::wild::Wild;

/// High watermark of every node, in pages.
pub const HIGH_PAGES: u64 = 100;

/// Which engine is put to the test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The wild rule, or one of the real ones.
    pub rule: Option<RuleName>,
    /// The record layout.
    pub layout: RecordLayout,
    /// Rate limit in MB/s.
    pub rate_limit_mbps: u64,
    /// Two scopes with shares and an excluded one, or none at all.
    pub scopes: bool,
    /// Longer waits and larger tables, or the tightest that are allowed.
    pub roomy: bool,
}

impl Setup {
    /// The setup that a byte stands for.
    pub fn of(byte: u8) -> Setup {
        use RecordLayout::{Byte, PghotByte, PghotWord, Word};
        let rules = RuleName::ALL;
        Setup {
            rule: (byte & 1 != 0).then(|| rules[usize::from(byte >> 3) % rules.len()]),
            layout: [Word, Byte, PghotByte, PghotWord][usize::from(byte >> 1) % 4],
            rate_limit_mbps: if byte & 32 == 0 { 1 } else { 64 },
            scopes: byte & 64 != 0,
            roomy: byte & 128 != 0,
        }
    }

    /// Its configuration.
    pub fn config(self) -> Config {
        let mut config = Config::default();
        config.engine.record = self.layout;
        config.admission.rate_limit_mbps = self.rate_limit_mbps;
        config.admission.free_goal_mib = 1;
        if let Some(name) = self.rule {
            config.rule.name = name;
            config.source.damon.enabled = name.takes_regions();
        }
        if !self.roomy {
            config.queue.capacity = 64;
            config.journal.capacity = 1024;
            config.admission.moved_capacity = 1024;
            config.admission.batches_in_flight = 3;
            config.admission.batch_pages = 16;
            config.admission.outcome_timeout_ms = 1000;
            config.admission.residency_ms = 200;
            config.admission.ping_pong_window_ms = 1000;
            config.admission.ping_pong_moves = 2;
            config.admission.quarantine_ms = 500;
            config.queue.retries = 1;
            config.queue.retry_delay_ms = 10;
        }
        if self.scopes {
            let scope = |name: &str, pids: &[u32], rate_share_percent, exclude| Scope {
                name: name.to_owned(),
                pids: pids.to_vec(),
                rate_share_percent,
                exclude,
                ..Scope::default()
            };
            config.scope = vec![
                scope("a", &[0, 2], 10, false),
                scope("b", &[1, 3], 60, false),
                scope("c", &[9], 100, true),
            ];
        }
        config
    }
}

/// The machine.
pub struct World {
    driver: Driver,
    machine: Hand,
    laws: Laws,
    now: Nanos,
    free_pages: BTreeMap<NodeId, u64>,
    in_flight: VecDeque<Batch>,
    last: Option<BatchOutcome>,
    /// What each process is, where scopes are configured.
    told: Option<BTreeMap<Pid, Membership>>,
}

impl World {
    /// A machine at rest.
    pub fn new(setup: Setup) -> World {
        let config = setup.config();
        let engine = match setup.rule {
            Some(_) => Engine::new(&config, topology()),
            None => Engine::with_rule(&config, topology(), Box::new(Wild)),
        };
        let engine = engine.expect("the setup is valid");
        let laws = Laws::new(&config, engine.topology().clone());
        // Every tick sees the nodes as they are: the laws are about those.
        let mut driver = Driver::new(engine, &config).sparing_nothing();
        let mut told = setup.scopes.then(BTreeMap::new);
        for (pid, scope) in [(0, 1), (1, 2), (2, 1)].into_iter().filter(|_| setup.scopes) {
            let membership = Membership::Managed(ScopeId(scope));
            driver.observe(Evidence::Process { pid: Pid(pid), membership });
            if let Some(told) = &mut told {
                told.insert(Pid(pid), membership);
            }
        }
        World {
            driver,
            machine: Hand::default(),
            laws,
            now: Nanos::from_s(1000),
            free_pages: (0..4).map(|n| (NodeId(n), 5000)).collect(),
            in_flight: VecDeque::new(),
            last: None,
            told,
        }
    }

    /// The engine under test.
    pub fn engine(&self) -> &Engine {
        self.driver.engine()
    }

    /// Lets it happen, and holds the engine to the laws.
    pub fn step(&mut self, step: &Step) {
        self.laws.remember(self.driver.engine());
        self.happen(step);
        let from_the_future =
            matches!(step, Step::Nonsense([time, ..]) if Nanos(*time) > self.laws.horizon());
        if from_the_future
            || !matches!(
                step,
                Step::Accesses(_)
                    | Step::Flood(_)
                    | Step::Nonsense(_)
                    | Step::Outcome { .. }
                    | Step::Malformed { .. }
                    | Step::Offline { .. }
            )
        {
            self.laws.evidence_survives(self.driver.engine());
        }
        self.laws.state(self.driver.engine());
    }

    fn happen(&mut self, step: &Step) {
        match step {
            Step::Accesses(all) => {
                let batch: Vec<Access> = all.iter().map(|bytes| self.access(*bytes)).collect();
                self.accesses(batch);
            }
            Step::Flood(seed) => {
                let bytes = |n: u8| [n << 2 | seed & 3, 1, 255, 0, 2, 255, n.wrapping_mul(*seed), *seed];
                let batch: Vec<Access> = (0..96).map(|n| self.access(bytes(n))).collect();
                self.accesses(batch);
            }
            Step::Nonsense(words) => {
                let batch = vec![nonsense(*words)];
                self.accesses(batch);
            }
            Step::Region([a, b, c]) => {
                let space = if c & 1 == 0 {
                    RegionSpace::Physical(NodeId(*c as u16 >> 8))
                } else {
                    RegionSpace::Virtual(Pid(*c as u32 >> 1))
                };
                let (access_rate_bp, age, check) = (*c as u16, Nanos(c >> 16), Nanos(a ^ b));
                let region = Region { space, start: *a, end: *b, access_rate_bp, age, check };
                let snapshot = RegionSnapshot { time: self.now, regions: vec![region] };
                self.report(move |observe| observe(Evidence::Regions(&snapshot)));
                let n = c % 1024;
                let page = RegionPage {
                    page: VirtPage { pid: Pid((c >> 3) as u32 % 4), vpn: n },
                    pfn: (c & 2 == 0).then_some(Pfn(n)),
                    order: (c >> 20) as u8 % 32,
                    node: NodeId((c >> 5) as u16 % 4),
                    region,
                    time: self.now,
                };
                self.report(move |observe| observe(Evidence::RegionPages(&[page])));
            }
            Step::Tick { advance, free_pages } => self.tick(*advance, *free_pages),
            Step::Outcome { which, ends } => {
                let Some(batch) = self.pick(*which) else { return };
                // Half of the batches move as a whole.
                let spread = |i: usize| match usize::from(*ends) {
                    0..128 => Outcome::Moved,
                    n => Outcome::ALL[(n + i * (n >> 4)) % Outcome::ALL.len()],
                };
                let outcomes = (0..batch.moves.len()).map(spread).collect();
                self.land(&batch, outcomes);
            }
            Step::Malformed { which, len } => {
                let Some(batch) = self.pick(*which) else { return };
                self.land(&batch, vec![Outcome::Moved; usize::from(*len)]);
            }
            Step::Again => {
                if let Some(last) = self.last.clone() {
                    self.report(move |observe| observe(Evidence::Outcome(&last)));
                }
            }
            Step::Exit(pid) => {
                let pid = Pid(u32::from(pid % 4));
                self.laws.exit(pid);
                self.report(move |observe| observe(Evidence::Exit { pid }));
                if let Some(told) = &mut self.told {
                    told.remove(&pid);
                }
            }
            Step::Process { pid, scope } => {
                let membership = match scope % 8 {
                    5 => Membership::Excluded,
                    6 => Membership::Unexamined,
                    n => Membership::Managed(ScopeId(u16::from(n))),
                };
                let pid = Pid(u32::from(pid % 4));
                if scope % 8 == 7 {
                    self.laws.exit(pid);
                    self.report(move |observe| observe(Evidence::Exec { pid }));
                    return;
                }
                self.report(move |observe| observe(Evidence::Process { pid, membership }));
                if membership != Membership::Managed(ScopeId(4))
                    && let Some(told) = &mut self.told
                {
                    told.insert(pid, membership);
                }
            }
            Step::Offline { start, end } => {
                let [start, end] = [*start, *end].map(|n| Pfn(u64::from(n) * 256));
                self.report(move |observe| observe(Evidence::MemoryOffline { start, end }));
            }
            Step::Topology(which) => {
                let topology = variant(*which);
                self.laws.set_topology(topology.clone());
                self.report(move |observe| observe(Evidence::Topology(&topology)));
            }
            Step::Explain(n) => {
                let page = VirtPage { pid: Pid(u32::from(n % 4)), vpn: u64::from(n / 4) };
                serde_json::to_string(&self.driver.engine().explain(page))
                    .expect("an explanation can be told");
                serde_json::to_string(&self.driver.engine().status()).expect("a status can be told");
            }
        }
    }

    /// Has the machine report something, without a tick.
    fn report(&mut self, report: impl FnOnce(&mut dyn FnMut(Evidence<'_>)) + 'static) {
        self.machine.report(report);
        self.driver.drain(self.now, &mut self.machine).expect("polls do not fail");
    }

    fn accesses(&mut self, batch: Vec<Access>) {
        self.report(move |observe| observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings }));
    }

    /// Steps after a while, which ticks if that was long enough.
    fn tick(&mut self, advance: i16, free_pages: Option<[u16; 4]>) {
        if let Some(free) = free_pages {
            for (node, pages) in free.into_iter().enumerate() {
                self.free_pages.insert(NodeId(node as u16), pages.into());
            }
        }
        // Mostly about a tick's length, now and then up to half a minute.
        let ms = u64::from(advance.unsigned_abs()) % if advance & 0xf0 == 0 { 1 << 15 } else { 256 };
        let told = if advance < -0x7000 {
            Nanos(self.now.0.saturating_sub(Nanos::from_ms(ms).0))
        } else {
            self.now = self.now.plus(Nanos::from_ms(ms));
            self.now
        };
        let watermarks = Watermarks { high_pages: HIGH_PAGES, ..Watermarks::default() };
        let state = |(node, free): (&NodeId, &u64)| NodeState {
            node: *node,
            free_pages: *free,
            managed_pages: 1 << 16,
            watermarks,
        };
        self.machine.nodes = self.free_pages.iter().map(state).collect();
        if !self.driver.step(told, &mut self.machine).expect("the nodes can be read") {
            return;
        }
        let batches = std::mem::take(&mut self.machine.batches);
        self.laws.after_tick(self.driver.engine(), told, &self.machine.nodes, &batches);
        for (batch, told) in batches.iter().flat_map(|batch| self.told.iter().map(move |told| (batch, told)))
        {
            let managed = [1, 2].map(|scope| Membership::Managed(ScopeId(scope)));
            let whose = told.get(&batch.pid);
            assert!(whose.is_some_and(|whose| managed.contains(whose)), "a batch of {whose:?}");
        }
        self.in_flight.extend(batches);
    }

    /// Takes a batch in flight out, by age; batches that the engine gave up may still be among
    /// them.
    fn pick(&mut self, which: u8) -> Option<Batch> {
        let n = self.in_flight.len().max(1);
        self.in_flight.remove(usize::from(which) % n)
    }

    fn land(&mut self, batch: &Batch, outcomes: Vec<Outcome>) {
        for (m, outcome) in batch.moves.iter().zip(&outcomes) {
            if *outcome == Outcome::Moved {
                let target = self.free_pages.entry(batch.target).or_default();
                *target = target.saturating_sub(m.pages());
                *self.free_pages.entry(m.from).or_default() += m.pages();
            }
        }
        let done = BatchOutcome { id: batch.id, time: self.now, outcomes };
        self.laws.before_outcome(self.driver.engine(), batch, &done);
        self.last = Some(done.clone());
        self.report(move |observe| observe(Evidence::Outcome(&done)));
        self.laws.after_outcome(self.driver.engine());
    }

    /// An access to one of 64 pages of each of 4 processes, sane but for one in sixteen.
    fn access(&self, [page, order, node, accessor, kind, b0, b1, b2]: [u8; 8]) -> Access {
        let order = if order & 15 == 0 { order >> 4 } else { 0 };
        let vpn = u64::from(page >> 2) << (order % 4);
        let bits = u32::from_le_bytes([kind, b0, b1, b2]);
        let detail = match kind % 4 {
            0 => Detail::HintFault {
                latency: Some(FaultLatency {
                    time: Nanos::from_ms(u64::from(b0) * 8),
                    faults: u32::from(b1),
                }),
            },
            1 => {
                Detail::Count { count: bits, gap: (b1 & 1 == 0).then(|| Nanos(u64::from(bits) << (b0 % 32))) }
            }
            _ => Detail::Sample { latency_cycles: bits, store: Some(false), period: 1 },
        };
        Access {
            time: Nanos(self.now.0.saturating_add(u64::from(b1) * 1_000_000).saturating_sub(100_000_000)),
            pfn: (accessor & 0x70 != 0x70).then(|| Pfn(vpn + (u64::from(page & 3) << 12))),
            page: (accessor & 0xe0 != 0xe0).then_some(VirtPage { pid: Pid(u32::from(page & 3)), vpn }),
            order,
            node: NodeId(u16::from(if node & 15 == 0 {
                node >> 4
            } else {
                [0, 2, 3, 3][usize::from(node >> 6)]
            })),
            accessor: (accessor & 0x30 != 0).then_some(NodeId(u16::from(accessor & 7))),
            detail,
        }
    }
}

/// Half of them are odd in time and detail alone, so that they meet what others have left.
fn nonsense([a, b, c, d]: [u64; 4]) -> Access {
    let known = d & 16 == 0;
    Access {
        time: Nanos(a),
        pfn: (d & 1 == 0).then_some(Pfn(if known { b % (4 << 12) } else { b })),
        page: (d & 2 == 0).then_some(VirtPage { pid: Pid((d >> 32) as u32), vpn: c }),
        order: if known { 0 } else { (d >> 8) as u8 },
        node: NodeId((d >> 16) as u16 & 7),
        accessor: (d & 4 == 0).then_some(NodeId((d >> 24) as u16)),
        detail: Detail::Sample {
            latency_cycles: (a ^ d) as u32,
            store: Some(d & 8 == 0),
            period: (c ^ a) as u32,
        },
    }
}

/// The machine of [`topology`], or the same without a node, or with its middle tier on top.
fn variant(which: u8) -> Topology {
    let whole = topology();
    let gone = match which % 4 {
        0 => return whole,
        1 => NodeId(2),
        2 => NodeId(1),
        _ => NodeId(u16::MAX),
    };
    let kept: Vec<usize> = (0..whole.nodes.len()).filter(|&i| whole.nodes[i].id != gone).collect();
    let node = |&i: &usize| {
        let node = whole.nodes[i].clone();
        let tier = if gone == NodeId(u16::MAX) && node.id == NodeId(2) { TierId(0) } else { node.tier };
        Node { distances: kept.iter().map(|&j| node.distances[j]).collect(), tier, ..node }
    };
    Topology::new(kept.iter().map(node).collect()).expect("the topology is sound")
}

/// Two DRAM nodes far apart, a middle tier, a slow tier; node 4 has CPUs and no memory.
pub fn topology() -> Topology {
    let node = |id: u16, tier, capacity_pages, distances: [u8; 5]| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: distances.to_vec(),
    };
    Topology::new(vec![
        node(0, 0, 1 << 16, [10, 32, 40, 60, 12]),
        node(1, 0, 1 << 16, [32, 10, 40, 50, 32]),
        node(2, 1, 1 << 16, [40, 40, 10, 50, 40]),
        node(3, 2, 1 << 16, [60, 50, 50, 10, 60]),
        node(4, 0, 0, [12, 32, 40, 60, 10]),
    ])
    .expect("the topology is sound")
}
