//! A machine that fails: wraps any other, and does to it what a plan says.
//!
//! [`Faults`] lives as long as the machine; [`Faulty`] is the two together for one step. What passes
//! is kept for the laws ([`Passed`]), in the order in which the engine saw it.

use std::collections::VecDeque;

use thermocline_core::access::{
    Access, Detail, Evidence, Holding, NoMappings, Pressure, Region, RegionPage, RegionSnapshot, RegionSpace,
};
use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::label::Label;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

use super::plan::{Kind, Plan};

/// Longest time for which a batch or an outcome is held back, in polls.
const HELD_MAX: u64 = 400;
/// Longest time for which a node looks full, in readings.
const FULL_MAX: u64 = 50;

/// What the engine was shown and asked for, in order.
#[derive(Clone, Debug)]
pub enum Passed {
    /// Evidence that is no outcome of a batch was shown.
    Evidence,
    /// A batch ended so.
    Outcome(BatchOutcome),
    /// A process exited or called exec.
    Gone(Pid),
    /// The machine changed.
    Topology(Topology),
    /// The nodes' state as shown.
    Nodes(Vec<NodeState>),
    /// Batches were submitted.
    Submitted(Vec<Batch>),
}

/// The state of a machine's faults.
#[derive(Debug)]
pub struct Faults {
    plan: Plan,
    /// Opportunities so far, by kind.
    opportunities: [u32; Kind::ALL.len()],
    /// Faults that happened.
    pub happened: u64,
    /// No more faults: what is held back is let go.
    pub over: bool,
    /// What passed in the latest step.
    pub passed: Vec<Passed>,
    polls: u64,
    /// Outcomes that come later, with the poll at which they do.
    late: Vec<(u64, BatchOutcome)>,
    /// Batches that the mover takes later.
    held: VecDeque<(u64, Vec<Batch>)>,
    /// Nodes that look full until a reading.
    full: Vec<(NodeId, u64)>,
    readings: u64,
    /// The machine with all its nodes, and the node that is gone now.
    whole: Option<Topology>,
    gone: Option<NodeId>,
    nodes: Vec<NodeState>,
    /// What is between the true clock and the one that is shown, ns.
    ahead: i64,
    shown: Nanos,
}

impl Faults {
    /// Faults by a plan. Nodes come and go only where the whole machine is given.
    pub fn new(plan: Plan, whole: Option<Topology>) -> Faults {
        Faults {
            plan,
            opportunities: [0; Kind::ALL.len()],
            happened: 0,
            over: false,
            passed: Vec::new(),
            polls: 0,
            late: Vec::new(),
            held: VecDeque::new(),
            full: Vec::new(),
            readings: 0,
            whole,
            gone: None,
            nodes: Vec::new(),
            ahead: 0,
            shown: Nanos(0),
        }
    }

    /// Whether a fault of this kind happens now, and the number that says the rest.
    fn strikes(&mut self, kind: Kind) -> Option<u64> {
        let opportunity = &mut self.opportunities[kind as usize];
        let found = self.plan.at(kind, *opportunity).filter(|_| !self.over);
        *opportunity += 1;
        self.happened += u64::from(found.is_some());
        found
    }

    /// What the clock shows at a true time.
    pub fn clock(&mut self, now: Nanos) -> Nanos {
        if let Some(word) = self.strikes(Kind::Clock) {
            match word % 3 {
                0 => return self.shown,
                1 => self.ahead += (word % 100_000) as i64 * 1_000_000,
                _ => self.ahead -= (word % 5_000) as i64 * 1_000_000,
            }
        }
        self.shown = Nanos(now.0.saturating_add_signed(self.ahead));
        self.shown
    }

    /// This machine for one step.
    pub fn around<'a, M: Machine + ?Sized>(&'a mut self, machine: &'a mut M) -> Faulty<'a, M> {
        self.passed.clear();
        Faulty { faults: self, machine }
    }
}

/// See the module's description.
pub struct Faulty<'a, M: ?Sized> {
    faults: &'a mut Faults,
    machine: &'a mut M,
}

impl<M: Machine + ?Sized> Machine for Faulty<'_, M> {
    type Error = M::Error;

    fn poll(
        &mut self,
        now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Self::Error> {
        let Faulty { faults, machine } = self;
        faults.polls += 1;
        while faults.held.front().is_some_and(|(poll, _)| *poll <= faults.polls || faults.over) {
            let (_, batches) = faults.held.pop_front().expect("it is there");
            machine.submit(batches);
        }
        let mut outcomes = Vec::new();
        let mut first = None;
        machine.poll(now, due, &mut |evidence| match evidence {
            Evidence::Outcome(done) => outcomes.push(done.clone()),
            Evidence::Demoted(done) => faults.demoted(done, observe),
            Evidence::Exit { pid } | Evidence::Exec { pid } => {
                faults.passed.push(Passed::Gone(pid));
                observe(evidence);
            }
            Evidence::Topology(topology) => {
                faults.passed.push(Passed::Topology(topology.clone()));
                observe(evidence);
            }
            _ => {
                if let Evidence::Accesses { batch, .. } = evidence {
                    first = first.or(batch.first().copied());
                }
                faults.passed.push(Passed::Evidence);
                observe(evidence);
            }
        })?;
        faults.evidence(now, first, observe);
        faults.outcomes(outcomes, observe);
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Self::Error> {
        let Faulty { faults, machine } = self;
        let mut nodes = machine.nodes(observe)?.to_vec();
        faults.readings += 1;
        if let Some(word) = faults.strikes(Kind::NodeFull).filter(|_| !nodes.is_empty()) {
            let node = nodes[word as usize % nodes.len()].node;
            faults.full.push((node, faults.readings + (word >> 32) % FULL_MAX));
        }
        let (readings, over) = (faults.readings, faults.over);
        faults.full.retain(|(_, until)| !over && readings <= *until);
        for state in &mut nodes {
            if faults.full.iter().any(|(node, _)| *node == state.node) {
                state.free_pages = 0;
            }
        }
        nodes.retain(|state| Some(state.node) != faults.gone);
        faults.passed.push(Passed::Nodes(nodes.clone()));
        faults.nodes = nodes;
        Ok(&faults.nodes)
    }

    fn pacing(&self) -> Pacing {
        self.machine.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        self.machine.wish(wishes);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        let Faulty { faults, machine } = self;
        faults.passed.push(Passed::Submitted(batches.clone()));
        let mut now = Vec::new();
        for batch in batches {
            if let Some(word) = faults.strikes(Kind::BatchFails) {
                // It is as if the kernel had refused: nothing moved.
                let ends = |n: usize| match Outcome::ALL
                    [(word as usize + n * (word >> 60) as usize) % Outcome::ALL.len()]
                {
                    Outcome::Moved => Outcome::Busy,
                    other => other,
                };
                let outcomes = (0..batch.moves.len()).map(ends).collect();
                let done = BatchOutcome { id: batch.id, time: faults.shown, outcomes };
                faults.late.push((faults.polls + 1, done));
            } else if let Some(word) = faults.strikes(Kind::BatchHeld) {
                faults.held.push_back((faults.polls + word % HELD_MAX, vec![batch]));
            } else {
                now.push(batch);
            }
        }
        machine.submit(now);
    }

    fn demotes(&self) -> bool {
        self.machine.demotes()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.machine.demote(demands);
    }

    fn is_looking(&self) -> bool {
        self.machine.is_looking()
    }
}

impl Faults {
    fn outcomes(&mut self, outcomes: Vec<BatchOutcome>, observe: &mut dyn FnMut(Evidence<'_>)) {
        let (polls, over) = (self.polls, self.over);
        let mut ready: Vec<BatchOutcome> = Vec::new();
        let mut last = Vec::new();
        let due = |(at, _): &(u64, BatchOutcome)| over || *at <= polls;
        let (come, wait): (Vec<_>, Vec<_>) = self.late.drain(..).partition(due);
        self.late = wait;
        ready.extend(come.into_iter().map(|(_, done)| done));
        for mut done in outcomes {
            if self.strikes(Kind::OutcomeLost).is_some() {
                continue;
            }
            if let Some(word) = self.strikes(Kind::OutcomeLate) {
                self.late.push((polls + word % HELD_MAX, done));
                continue;
            }
            if let Some(word) = self.strikes(Kind::OutcomeMalformed) {
                done.outcomes.resize(word as usize % 8, Outcome::Moved);
            }
            if self.strikes(Kind::OutcomeTwice).is_some() {
                ready.push(done.clone());
            }
            match self.strikes(Kind::OutcomeReordered) {
                Some(_) => last.push(done),
                None => ready.push(done),
            }
        }
        for done in ready.into_iter().chain(last) {
            observe(Evidence::Outcome(&done));
            self.passed.push(Passed::Outcome(done));
        }
    }

    fn demoted(&mut self, done: &Demoted, observe: &mut dyn FnMut(Evidence<'_>)) {
        self.passed.push(Passed::Evidence);
        let times = match self.strikes(Kind::DemandEnds) {
            None => 1,
            Some(word) => (word % 2) * 2,
        };
        (0..times).for_each(|_| observe(Evidence::Demoted(done)));
    }

    /// Shows what is not so.
    fn evidence(&mut self, now: Nanos, first: Option<Access>, observe: &mut dyn FnMut(Evidence<'_>)) {
        if let Some(word) = self.strikes(Kind::Nonsense) {
            nonsense(word, now, observe);
        }
        if let (Some(access), Some(word)) = (first, self.strikes(Kind::Contradiction)) {
            let there = Access { node: NodeId((word % 6) as u16), ..access };
            observe(Evidence::Accesses { batch: &[access, there, access], mappings: &NoMappings });
        }
        if let Some(word) = self.strikes(Kind::ProcessGone) {
            let pid =
                first.and_then(|access| access.page).map_or(Pid((word >> 8) as u32 % 8), |page| page.pid);
            observe(if word & 1 == 0 { Evidence::Exit { pid } } else { Evidence::Exec { pid } });
            self.passed.push(Passed::Gone(pid));
        }
        if let Some(word) = self.strikes(Kind::Unknown) {
            unknown(word, now, observe);
        }
        if self.whole.is_some()
            && let Some(word) = self.strikes(Kind::NodeChanges)
        {
            self.change_nodes(word, observe);
        }
        if self.over && self.gone.is_some() {
            self.change_nodes(0, observe);
        }
        self.passed.push(Passed::Evidence);
    }

    /// Takes a node's memory away, or brings it back.
    fn change_nodes(&mut self, word: u64, observe: &mut dyn FnMut(Evidence<'_>)) {
        let Some(whole) = &self.whole else { return };
        let mut nodes = whole.nodes.clone();
        self.gone = match self.gone {
            Some(_) => None,
            None => Some(nodes[word as usize % nodes.len()].id),
        };
        for node in nodes.iter_mut().filter(|node| Some(node.id) == self.gone) {
            node.capacity_pages = 0;
        }
        // A machine has memory: the last node with any stays.
        let Ok(topology) = Topology::new(nodes) else {
            self.gone = None;
            return;
        };
        observe(Evidence::Topology(&topology));
        self.passed.push(Passed::Topology(topology));
    }
}

/// Evidence of arbitrary numbers.
fn nonsense(word: u64, now: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
    let other = word.rotate_left(29) ^ 0x9e37_79b9_7f4a_7c15;
    match word % 3 {
        0 => {
            let access = Access {
                time: Nanos(if word & 8 == 0 { other } else { now.0 }),
                pfn: (word & 16 == 0).then_some(Pfn(other >> (word >> 5 & 31))),
                page: (word & 32 == 0).then_some(VirtPage { pid: Pid(other as u32 % 8), vpn: other >> 12 }),
                order: (word >> 40) as u8,
                node: NodeId((word >> 48) as u16 & 7),
                accessor: (word & 64 == 0).then_some(NodeId(other as u16)),
                detail: Detail::Sample {
                    latency_cycles: other as u32,
                    store: word & 128 == 0,
                    period: word as u32,
                },
            };
            observe(Evidence::Accesses { batch: &[access], mappings: &NoMappings });
        }
        1 => {
            let region = region(word, other);
            observe(Evidence::Regions(&RegionSnapshot { time: now, regions: vec![region] }));
        }
        _ => {
            let page = RegionPage {
                page: VirtPage { pid: Pid(other as u32 % 8), vpn: other >> 12 },
                pfn: (word & 16 == 0).then_some(Pfn(other)),
                order: (word >> 40) as u8,
                node: NodeId((word >> 48) as u16 & 7),
                region: region(word, other),
                time: now,
            };
            observe(Evidence::RegionPages(&[page]));
        }
    }
}

fn region(word: u64, other: u64) -> Region {
    let space = match word & 4 {
        0 => RegionSpace::Physical(NodeId((word >> 16) as u16 & 7)),
        _ => RegionSpace::Virtual(Pid((word >> 16) as u32 % 8)),
    };
    Region {
        space,
        start: other,
        end: word,
        access_rate_bp: word as u16,
        age: Nanos(other),
        check: Nanos(word >> 8),
    }
}

/// What is of nothing that there is.
fn unknown(word: u64, now: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
    let scope = ScopeId((word >> 16) as u16);
    match word % 4 {
        0 => {
            let outcomes = vec![Outcome::Moved; (word >> 8) as usize % 600];
            observe(Evidence::Outcome(&BatchOutcome {
                id: BatchId(u64::MAX - word % 1000),
                time: now,
                outcomes,
            }));
        }
        1 => observe(Evidence::Demoted(&Demoted {
            id: u64::MAX - word % 1000,
            node: NodeId((word >> 8) as u16),
            pages: word,
            cpu: Nanos(word),
            by_scope: vec![(scope, word)],
        })),
        2 => observe(Evidence::Holding(Holding { scope, time: now, pages: word })),
        _ => observe(Evidence::Pressure(Pressure { scope, time: now, some_us: word, full_us: word >> 1 })),
    }
}
