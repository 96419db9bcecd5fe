//! What holds whatever happens: a second, simpler book of what the engine decided, and the laws it
//! must keep.

use std::collections::{BTreeMap, VecDeque};

use thermocline_core::config::Config;
use thermocline_core::engine::Engine;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Direction, Outcome};
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, Pfn, Pid, VirtPage};

/// What a record holds, as far as time does not change it.
type Memory = Option<(u8, bool, Option<NodeId>)>;

/// The laws and the book that they need.
pub struct Laws {
    config: Config,
    topology: Topology,
    /// Batches that the engine holds to be in flight.
    in_flight: BTreeMap<BatchId, Batch>,
    lately: VecDeque<(Nanos, u64)>,
    /// When we moved a page, by page, as the engine's clock had it.
    moved: BTreeMap<VirtPage, Vec<Nanos>>,
    /// The engine's clock: the latest tick.
    clock: Nanos,
    remembered: BTreeMap<Pfn, Memory>,
    /// Frames whose records the outcome at hand may clear.
    may_clear: Vec<(Pfn, u64)>,
    /// Base pages reported as moved of batches that were in flight.
    moved_pages: u64,
}

impl Laws {
    /// The laws of an engine with this configuration.
    pub fn new(config: &Config, topology: Topology) -> Laws {
        Laws {
            config: config.clone(),
            topology,
            in_flight: BTreeMap::new(),
            lately: VecDeque::new(),
            moved: BTreeMap::new(),
            clock: Nanos(0),
            remembered: BTreeMap::new(),
            may_clear: Vec::new(),
            moved_pages: 0,
        }
    }

    /// A process is gone; its number may be another's.
    pub fn exit(&mut self, pid: Pid) {
        self.moved.retain(|page, _| page.pid != pid);
    }

    /// The machine has other nodes or tiers from now on.
    pub fn set_topology(&mut self, topology: Topology) {
        self.topology = topology;
    }

    /// Evidence that is dated later is not believed.
    pub fn horizon(&self) -> Nanos {
        if self.clock == Nanos(0) { Nanos(u64::MAX) } else { self.clock.plus(Nanos::from_s(60)) }
    }

    /// What holds after every step: sums balance, memory is bounded.
    pub fn state(&self, engine: &Engine) {
        if let Err(sum) = engine.check_balance() {
            panic!("a sum does not balance: {sum}");
        }
        let moves: usize = self.in_flight.values().map(|batch| batch.moves.len()).sum();
        assert_eq!(engine.moves_in_flight(), moves, "moves in flight");
        assert_eq!(engine.counters().pgmigrate_success, self.moved_pages, "pages counted as moved");
        let c = &self.config;
        let gauge = |name| engine.gauges().iter().find(|g| g.name == name).map_or(0, |g| g.value);
        let at_most = |name, most: u64| assert!(gauge(name) <= most, "{name} is {} > {most}", gauge(name));
        at_most("queue_length", c.queue.capacity.into());
        at_most("journal_length", c.journal.capacity.into());
        at_most("recent_length", c.admission.moved_capacity.into());
        at_most("batches_in_flight", c.admission.batches_in_flight.into());
        // A vector and a table grow to at most twice what they hold; an entry has less than 256
        // bytes in all.
        at_most("queue_bytes", 2 * 256 * u64::from(c.queue.capacity));
        at_most("recent_bytes", 2 * 256 * u64::from(c.admission.moved_capacity));
        at_most("journal_bytes", 2 * 256 * u64::from(c.journal.capacity));
    }

    /// Remembers what the engine remembers.
    pub fn remember(&mut self, engine: &Engine) {
        self.remembered = memories(engine);
    }

    /// Evidence survives whatever is neither evidence nor an outcome: ticks, and with them every
    /// refusal and expiry.
    pub fn evidence_survives(&self, engine: &Engine) {
        assert_eq!(self.remembered, memories(engine), "records changed");
    }

    /// Judges what a tick issued.
    pub fn after_tick(&mut self, engine: &Engine, told: Nanos, nodes: &[NodeState], batches: &[Batch]) {
        assert_eq!(
            self.remembered,
            memories(engine),
            "a tick, and with it every refusal, leaves evidence alone"
        );
        self.issued(engine, told, nodes, batches);
    }

    /// Judges the batches of a tick.
    pub fn issued(&mut self, engine: &Engine, told: Nanos, nodes: &[NodeState], batches: &[Batch]) {
        // Time that goes back is no time for the engine.
        self.clock = self.clock.max(told);
        self.forget_lost(engine);
        let mut towards: BTreeMap<NodeId, u64> = BTreeMap::new();
        for batch in self.in_flight.values().chain(batches) {
            *towards.entry(batch.target).or_default() += batch.pages();
        }
        for batch in batches {
            self.shape(batch);
            self.goal(batch, nodes, towards[&batch.target]);
            self.residency(engine, batch);
            assert!(self.in_flight.insert(batch.id, batch.clone()).is_none(), "a batch number is used again");
        }
        self.disjoint();
        self.rate(batches);
    }

    /// Notes the outcome of a batch that is in flight.
    pub fn landed(&mut self, done: &BatchOutcome) {
        let Some(batch) = self.in_flight.remove(&done.id) else { return };
        for (m, outcome) in batch.moves.iter().zip(&done.outcomes) {
            if *outcome == Outcome::Moved {
                self.moved.entry(m.page).or_default().push(self.clock);
                self.moved_pages += m.pages();
            }
        }
    }

    /// Notes what an outcome may change.
    pub fn before_outcome(&mut self, engine: &Engine, batch: &Batch, done: &BatchOutcome) {
        self.remembered = memories(engine);
        self.may_clear.clear();
        if !self.in_flight.contains_key(&batch.id) {
            return;
        }
        self.landed(done);
        for (m, outcome) in batch.moves.iter().zip(&done.outcomes) {
            let cleared = matches!(
                outcome,
                Outcome::Moved
                    | Outcome::AlreadyThere
                    | Outcome::OtherNode
                    | Outcome::OtherPage
                    | Outcome::Gone
            );
            self.may_clear.extend(m.pfn.filter(|_| cleared).map(|pfn| (pfn, m.pages())));
        }
    }

    /// Evidence survives every outcome that leaves the page where it is, and no other.
    pub fn after_outcome(&self, engine: &Engine) {
        let cleared = |pfn: &Pfn| {
            self.may_clear.iter().any(|(first, n)| (first.0..first.0.saturating_add(*n)).contains(&pfn.0))
        };
        for (pfn, now) in memories(engine) {
            let expected = if cleared(&pfn) { None } else { self.remembered[&pfn] };
            assert_eq!(now, expected, "record of frame {:#x}", pfn.0);
        }
    }

    /// Batches that the engine has given up are not in flight for it any more.
    fn forget_lost(&mut self, engine: &Engine) {
        let timeout = Nanos::from_ms(self.config.admission.outcome_timeout_ms);
        let held = |b: &Batch| {
            let page = b.moves[0].page;
            let state = serde_json::to_value(engine.explain(page).state).expect("a state can be told");
            state["state"] == "in_flight" && state["batch"] == b.id.0
        };
        let gone: Vec<BatchId> = self.in_flight.values().filter(|b| !held(b)).map(|b| b.id).collect();
        for id in gone {
            self.in_flight.remove(&id);
            assert!(
                engine.counters().lost > 0,
                "batch {} is gone and not lost within {} ms",
                id.0,
                timeout.ms()
            );
        }
    }

    fn shape(&self, batch: &Batch) {
        let limit = u64::from(self.config.admission.batch_pages);
        assert!(!batch.moves.is_empty(), "an empty batch");
        assert!(batch.pages() <= limit || batch.moves.len() == 1, "{} pages in a batch", batch.pages());
        let tier = |node| self.topology.tier(node).expect("the node exists");
        for m in &batch.moves {
            assert_eq!(m.page.pid, batch.pid);
            let (from, to) = (tier(m.from), tier(batch.target));
            let right = match batch.direction {
                Direction::Promote => to < from,
                Direction::Demote => to > from,
                Direction::Balance => to == from && m.from != batch.target,
            };
            assert!(right, "{:?} from {} to {}", batch.direction, m.from, batch.target);
        }
        assert!(
            self.topology.node(batch.target).is_some_and(|n| n.capacity_pages > 0),
            "a target without memory"
        );
    }

    /// Our batches leave the high watermark of their target free and the goal, at most a hundredth
    /// of it.
    fn goal(&self, batch: &Batch, nodes: &[NodeState], towards: u64) {
        let target = nodes.iter().find(|state| state.node == batch.target);
        let target = target.expect("the state of the target is known");
        let goal = self.config.admission.free_goal_mib * PAGES_PER_MIB;
        let floor = target.watermarks.high_pages + goal.min(target.managed_pages / 100);
        assert!(
            target.free_pages >= towards + floor,
            "{}: {} free, {towards} on their way, floor {floor}",
            batch.target,
            target.free_pages
        );
    }

    /// In any sliding second at most the rate limit plus one batch.
    fn rate(&mut self, batches: &[Batch]) {
        self.lately.extend(batches.iter().map(|b| (self.clock, b.pages())));
        while self.lately.front().is_some_and(|(time, _)| time.plus(Nanos::from_s(1)) <= self.clock) {
            self.lately.pop_front();
        }
        let sum: u64 = self.lately.iter().map(|(_, pages)| pages).sum();
        let one = self.lately.iter().map(|(_, pages)| *pages).max().unwrap_or(0);
        let limit = self.config.admission.rate_limit_mbps * PAGES_PER_MIB;
        assert!(sum <= limit + one, "{sum} pages in a second, limit {limit}, largest batch {one}");
        // We promise ourselves more: the limit, or one folio where that is larger.
        let moves = batches.iter().flat_map(|b| &b.moves).map(|m| m.pages()).max().unwrap_or(0);
        assert!(batches.is_empty() || sum <= limit.max(moves), "{sum} pages in a second, limit {limit}");
    }

    /// No page is in two batches at once, be it by its address or by its frame.
    fn disjoint(&self) {
        let mut pages: Vec<(VirtPage, u64)> = Vec::new();
        let mut frames: Vec<(Pfn, u64)> = Vec::new();
        for m in self.in_flight.values().flat_map(|b| &b.moves) {
            pages.push((m.page, m.pages()));
            frames.extend(m.pfn.map(|pfn| (pfn, m.pages())));
        }
        pages.sort_unstable();
        for two in pages.windows(2) {
            let ((a, n), (b, _)) = (two[0], two[1]);
            assert!(a.pid != b.pid || a.vpn + n <= b.vpn, "{a} and {b} overlap in flight");
        }
        frames.sort_unstable();
        for two in frames.windows(2) {
            assert!(two[0].0.0.saturating_add(two[0].1) <= two[1].0.0, "frames overlap in flight: {two:?}");
        }
    }

    /// A page stays where we put it, and is left alone when it goes to and fro.
    fn residency(&self, engine: &Engine, batch: &Batch) {
        if engine.counters().recent_forgotten > 0 {
            return;
        }
        let a = &self.config.admission;
        for m in &batch.moves {
            let Some(times) = self.moved.get(&m.page) else { continue };
            let last = times[times.len() - 1];
            let stayed = self.clock.since(last);
            assert!(
                stayed >= Nanos::from_ms(a.residency_ms),
                "{} moved again after {} ms",
                m.page,
                stayed.ms()
            );
            let window = Nanos::from_ms(a.ping_pong_window_ms);
            let lately = times.iter().filter(|t| last.since(**t) < window).count();
            let alone = lately >= usize::from(a.ping_pong_moves);
            assert!(!alone || stayed >= window, "{} moved again after {lately} moves in the window", m.page);
        }
    }
}

/// The records of the small world's frames.
fn memories(engine: &Engine) -> BTreeMap<Pfn, Memory> {
    let memory = |pfn: Pfn| engine.record(pfn).map(|r| (r.frequency, r.ready, r.node));
    // Every fourth frame of a process's first 64, and its first huge page.
    let frames = (0..4u64).flat_map(|pid| (0..64).step_by(4).chain([512]).map(move |n| Pfn((pid << 12) + n)));
    frames.map(|pfn| (pfn, memory(pfn))).collect()
}
