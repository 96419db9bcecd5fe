//! A machine that fails: wraps any machine and spoils what passes between it and the engine.
//!
//! Which faults happen, and when, is a list, so that a course can be repeated and shortened.
//! Without faults the wrapped machine is as it was.

use std::collections::VecDeque;

use thermocline_core::access::{
    Access, Detail, Evidence, Holding, Mappings, Marked, Membership, Pressure, Region, RegionPage,
    RegionSnapshot, RegionSpace,
};
use thermocline_core::demand::Demand;
use thermocline_core::label::Label;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The next outcome never comes.
    Lose,
    /// The next outcome comes some polls later.
    Late,
    /// The next outcome comes twice.
    Twice,
    /// The next outcome comes after those of the following polls.
    Reorder,
    /// The next outcome says something else than what happened.
    Lie,
    /// The next outcome has too few entries, or too many.
    Malformed,
    /// The next batch fails as a whole, for any reason there is.
    Fail,
    /// The next batch waits for its mover.
    Hold,
    /// An outcome of a batch that never was.
    Forge,
    /// The latest outcome again.
    Again,
    /// An access of arbitrary numbers.
    Nonsense,
    /// The page accessed last, on another node, in another frame, of another size, at another time.
    Contradict,
    /// A region and a page of it, of arbitrary numbers.
    Region,
    /// Holdings and pressures of scopes, of arbitrary numbers.
    Scopes,
    /// A process exits, and is accessed all the same.
    Exit,
    /// A process replaces its address space.
    Exec,
    /// A process is to be left alone, or is in another scope, or in one that does not exist.
    Join,
    /// Frames disappear.
    Offline,
    /// A node disappears, or all are there again.
    Topology,
    /// A node has no free page for some polls.
    Full,
    /// The clock stands still for some polls.
    Stall,
    /// The clock jumps, ahead or back, for one poll.
    Jump,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 22] = [
        Kind::Lose,
        Kind::Late,
        Kind::Twice,
        Kind::Reorder,
        Kind::Lie,
        Kind::Malformed,
        Kind::Fail,
        Kind::Hold,
        Kind::Forge,
        Kind::Again,
        Kind::Nonsense,
        Kind::Contradict,
        Kind::Region,
        Kind::Scopes,
        Kind::Exit,
        Kind::Exec,
        Kind::Join,
        Kind::Offline,
        Kind::Topology,
        Kind::Full,
        Kind::Stall,
        Kind::Jump,
    ];
}

/// One fault: from which poll on, and numbers for whatever it leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Polls before it.
    pub poll: u32,
    /// What goes wrong.
    pub kind: Kind,
    /// Where, for how long, how: every value is valid.
    pub bits: u32,
}

/// What was passed to the engine, or asked of it, in order.
#[derive(Clone, Debug)]
pub enum Passed {
    /// How a batch ended.
    Outcome(BatchOutcome),
    /// A page of this process was accessed, or lies in a region.
    Accessed(Pid),
    /// The process is gone.
    Exit(Pid),
    /// The process has replaced its address space.
    Exec(Pid),
    /// What is to be done with the process.
    Process(Pid, Membership),
    /// The nodes there are.
    Topology(Topology),
    /// A batch was issued.
    Issued(Batch),
}

/// The faults to come and what those that came have left behind.
#[derive(Debug)]
pub struct Faults {
    plan: VecDeque<Fault>,
    topology: Topology,
    polls: u32,
    /// Faults of outcomes that wait for one.
    spoil: VecDeque<Fault>,
    /// Faults of batches that wait for one.
    hinder: VecDeque<Fault>,
    late: Vec<(u32, BatchOutcome)>,
    held: Vec<(u32, Batch)>,
    last: Option<BatchOutcome>,
    seen: Option<Access>,
    full: Option<(u32, u32)>,
    stalled: u32,
    jump: Option<u32>,
    clock: Nanos,
    nodes: Vec<NodeState>,
    /// What has passed since it was taken last.
    pub passed: Vec<Passed>,
    /// Faults that have happened, by kind.
    pub happened: [u64; Kind::ALL.len()],
}

/// A machine with faults; see the module's description.
pub struct FaultyMachine<'a, M: ?Sized> {
    /// The machine itself.
    pub inner: &'a mut M,
    /// Its faults.
    pub faults: &'a mut Faults,
}

impl Faults {
    /// Faults in order of their polls, on a machine with these nodes.
    pub fn new(plan: &[Fault], topology: Topology) -> Faults {
        Faults {
            plan: plan.iter().copied().collect(),
            topology,
            polls: 0,
            spoil: VecDeque::new(),
            hinder: VecDeque::new(),
            late: Vec::new(),
            held: Vec::new(),
            last: None,
            seen: None,
            full: None,
            stalled: 0,
            jump: None,
            clock: Nanos(0),
            nodes: Vec::new(),
            passed: Vec::new(),
            happened: [0; Kind::ALL.len()],
        }
    }

    /// What the clock shows at `now`; asked once a step, before it.
    pub fn clock(&mut self, now: Nanos) -> Nanos {
        if let Some(bits) = self.jump.take() {
            let by = Nanos::from_ms(u64::from(bits >> 1) % 3000);
            return if bits & 1 == 0 { now.plus(by) } else { Nanos(now.0.saturating_sub(by.0)) };
        }
        if self.stalled <= self.polls {
            self.clock = now;
        }
        self.clock
    }

    fn note(&mut self, kind: Kind) {
        self.happened[kind as usize] += 1;
    }

    /// Passes evidence on, spoiled where it is its turn.
    fn pass(&mut self, evidence: Evidence<'_>, observe: &mut dyn FnMut(Evidence<'_>)) {
        match evidence {
            Evidence::Outcome(done) => return self.spoil(done, observe),
            Evidence::Accesses { batch, .. } => {
                self.seen = batch.last().copied().or(self.seen);
                let pids = batch.iter().filter_map(|access| access.page).map(|page| page.pid);
                self.passed.extend(pids.map(Passed::Accessed));
            }
            Evidence::RegionPages(pages) => {
                self.passed.extend(pages.iter().map(|at| Passed::Accessed(at.page.pid)));
            }
            Evidence::Exit { pid } => self.passed.push(Passed::Exit(pid)),
            Evidence::Exec { pid } => self.passed.push(Passed::Exec(pid)),
            Evidence::Process { pid, membership } => self.passed.push(Passed::Process(pid, membership)),
            Evidence::Topology(topology) => self.passed.push(Passed::Topology(topology.clone())),
            _ => {}
        }
        observe(evidence);
    }

    fn tell(&mut self, done: &BatchOutcome, observe: &mut dyn FnMut(Evidence<'_>)) {
        self.passed.push(Passed::Outcome(done.clone()));
        self.last = Some(done.clone());
        observe(Evidence::Outcome(done));
    }

    fn spoil(&mut self, done: &BatchOutcome, observe: &mut dyn FnMut(Evidence<'_>)) {
        let Some(Fault { kind, bits, .. }) = self.spoil.pop_front() else {
            return self.tell(done, observe);
        };
        self.note(kind);
        let mut other = done.clone();
        match kind {
            Kind::Lose => {}
            // Up to some seconds: before and after the engine has given the batch up.
            Kind::Late => self.late.push((self.polls + 1 + bits % 128, other)),
            Kind::Reorder => self.late.push((self.polls + 1 + bits % 3, other)),
            Kind::Twice => {
                self.tell(done, observe);
                self.tell(done, observe);
            }
            Kind::Malformed => {
                let len = bits as usize % (2 * other.outcomes.len() + 2);
                other.outcomes.resize(len, Outcome::Moved);
                other.time = Nanos(u64::from(bits) << (bits % 32));
                self.tell(&other, observe);
            }
            _ => {
                for (i, outcome) in other.outcomes.iter_mut().enumerate() {
                    *outcome = any_outcome(bits as usize + i * (bits >> 8) as usize % 7);
                }
                self.tell(&other, observe);
            }
        }
    }

    /// Does what needs neither an outcome nor a batch.
    fn inject(&mut self, fault: Fault, now: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
        let bits = fault.bits;
        let wide = mix(bits.into());
        let pid = self.seen.and_then(|access| access.page).map_or(Pid(bits % 4), |page| page.pid);
        self.note(fault.kind);
        match fault.kind {
            Kind::Forge => {
                let id = BatchId(if bits & 1 == 0 { u64::from(bits % 64) + 1_000_000 } else { wide });
                let outcomes = vec![Outcome::Moved; bits as usize % 8];
                self.tell(&BatchOutcome { id, time: now, outcomes }, observe);
            }
            Kind::Again => {
                if let Some(last) = self.last.clone() {
                    self.tell(&last, observe);
                }
            }
            Kind::Nonsense => {
                let batch = [nonsense(wide), nonsense(mix(wide))];
                self.pass(Evidence::Accesses { batch: &batch, mappings: &Mad(wide) }, observe);
            }
            Kind::Contradict => {
                let Some(seen) = self.seen else { return };
                let nodes = &self.topology.nodes;
                let at = |n: u64| nodes[n as usize % nodes.len()].id;
                let elsewhere = Access { node: at(wide), accessor: Some(at(wide >> 8)), ..seen };
                let frame = Access { pfn: Some(Pfn(wide >> 40)), ..elsewhere };
                let size = Access { order: (wide >> 16) as u8 % 12, ..seen };
                let old = Access { time: Nanos(seen.time.0 / 2), ..seen };
                let ahead = Access { time: now.plus(Nanos::from_ms(bits.into())), ..seen };
                let batch = [elsewhere, frame, size, old, ahead, seen];
                self.pass(Evidence::Accesses { batch: &batch, mappings: &Mad(wide) }, observe);
            }
            Kind::Region => {
                let space = if bits & 1 == 0 {
                    RegionSpace::Physical(NodeId((wide >> 50) as u16 % 6))
                } else {
                    RegionSpace::Virtual(pid)
                };
                let (start, end) = (wide % 4096, mix(wide) % 8192);
                let (age, check) = (Nanos(mix(wide) >> (bits % 64)), Nanos(wide >> 30));
                let region = Region { space, start, end, access_rate_bp: wide as u16, age, check };
                let time = Nanos(if bits & 2 == 0 { now.0 } else { wide });
                self.pass(Evidence::Regions(&RegionSnapshot { time, regions: vec![region; 2] }), observe);
                let page = RegionPage {
                    page: VirtPage { pid, vpn: wide % 1024 },
                    pfn: (bits & 4 == 0).then_some(Pfn(wide >> 44)),
                    order: (bits >> 8) as u8 % 32,
                    node: NodeId((wide >> 20) as u16 % 6),
                    region,
                    time,
                };
                self.pass(Evidence::RegionPages(&[page]), observe);
            }
            Kind::Scopes => {
                let scope = ScopeId((wide % 5) as u16);
                let time = Nanos(if bits & 1 == 0 { now.0 } else { wide });
                observe(Evidence::Holding(Holding { scope, time, pages: wide >> (bits % 64) }));
                let (some_us, full_us) = (wide >> (bits % 64), mix(wide) >> (bits % 64));
                observe(Evidence::Pressure(Pressure { scope, time, some_us, full_us }));
            }
            Kind::Exit => self.pass(Evidence::Exit { pid }, observe),
            Kind::Exec => self.pass(Evidence::Exec { pid }, observe),
            Kind::Join => {
                let membership = match bits % 8 {
                    0 => Membership::Excluded,
                    1 => Membership::Unexamined,
                    n => Membership::Managed(ScopeId(n as u16 - 2)),
                };
                self.pass(Evidence::Process { pid, membership }, observe);
            }
            Kind::Offline => {
                let (start, end) = (Pfn(wide % (4 << 12)), Pfn(mix(wide) % (4 << 12)));
                self.pass(Evidence::MemoryOffline { start, end }, observe);
            }
            Kind::Topology => {
                let gone = (bits & 1 == 0).then(|| (bits >> 1) as usize % self.topology.nodes.len());
                if let Some(topology) = without(&self.topology, gone) {
                    self.pass(Evidence::Topology(&topology), observe);
                }
            }
            Kind::Full => self.full = Some((self.polls + bits % 32, bits >> 8)),
            Kind::Stall => self.stalled = self.polls + 1 + bits % 16,
            Kind::Jump => self.jump = Some(bits),
            _ => {}
        }
    }
}

impl<M: Machine + ?Sized> Machine for FaultyMachine<'_, M> {
    type Error = M::Error;

    fn poll(&mut self, now: Nanos, due: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), M::Error> {
        let FaultyMachine { inner, faults } = self;
        faults.polls += 1;
        let polls = faults.polls;
        let mut now_due = Vec::new();
        while let Some(fault) = faults.plan.pop_front_if(|fault| fault.poll <= polls) {
            match fault.kind {
                Kind::Lose | Kind::Late | Kind::Twice | Kind::Reorder | Kind::Lie | Kind::Malformed => {
                    faults.spoil.push_back(fault);
                }
                Kind::Fail | Kind::Hold => faults.hinder.push_back(fault),
                _ => now_due.push(fault),
            }
        }
        let released: Vec<Batch> =
            faults.held.extract_if(.., |(until, _)| *until <= polls).map(|(_, batch)| batch).collect();
        if !released.is_empty() {
            inner.submit(released);
        }
        inner.poll(now, due, &mut |evidence| faults.pass(evidence, observe))?;
        let late: Vec<BatchOutcome> =
            faults.late.extract_if(.., |(until, _)| *until <= polls).map(|(_, done)| done).collect();
        for done in late {
            faults.tell(&done, observe);
        }
        for fault in now_due {
            faults.inject(fault, now, observe);
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], M::Error> {
        let FaultyMachine { inner, faults } = self;
        let states = inner.nodes(&mut |evidence| observe(evidence))?;
        faults.nodes.clear();
        faults.nodes.extend_from_slice(states);
        if let Some((until, which)) = faults.full
            && until >= faults.polls
            && !states.is_empty()
        {
            faults.nodes[which as usize % states.len()].free_pages = 0;
        }
        Ok(&faults.nodes)
    }

    fn pacing(&self) -> Pacing {
        self.inner.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        self.inner.wish(wishes);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        let FaultyMachine { inner, faults } = self;
        let mut kept = Vec::new();
        for batch in batches {
            faults.passed.push(Passed::Issued(batch.clone()));
            match faults.hinder.pop_front() {
                Some(Fault { kind: Kind::Hold, bits, .. }) => {
                    faults.note(Kind::Hold);
                    faults.held.push((faults.polls + 1 + bits % 64, batch));
                }
                Some(Fault { bits, .. }) => {
                    faults.note(Kind::Fail);
                    // All but those that say that the page is where it should be: it is not.
                    let ends = |i: usize| match any_outcome(bits as usize + i * (bits >> 8) as usize % 3) {
                        Outcome::Moved | Outcome::AlreadyThere => Outcome::Busy,
                        other => other,
                    };
                    let outcomes = (0..batch.moves.len()).map(ends).collect();
                    let done = BatchOutcome { id: batch.id, time: faults.clock, outcomes };
                    faults.late.push((faults.polls + 1, done));
                }
                None => kept.push(batch),
            }
        }
        inner.submit(kept);
    }

    fn demotes(&self) -> bool {
        self.inner.demotes()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.inner.demote(demands);
    }

    fn is_looking(&self) -> bool {
        self.inner.is_looking()
    }
}

/// Mappings that say anything.
#[derive(Debug)]
struct Mad(u64);

impl Mappings for Mad {
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>> {
        let (start, end) = (mix(self.0 ^ page.vpn) >> (self.0 % 64), self.0 >> (page.vpn % 64));
        (self.0 & 1 == 0).then_some(start..end)
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        let word = mix(self.0 ^ page.vpn);
        let node = (word & 1 == 0).then_some(NodeId((word >> 8) as u16 % 8));
        (self.0 & 2 == 0).then_some(Marked { node, pfn: (word & 2 == 0).then_some(Pfn(word >> 30)) })
    }
}

fn any_outcome(n: usize) -> Outcome {
    Outcome::ALL[n % Outcome::ALL.len()]
}

/// An access of arbitrary numbers, most of them small enough to meet others.
fn nonsense(wide: u64) -> Access {
    let detail = match wide % 3 {
        0 => Detail::HintFault { latency: None },
        1 => Detail::Sample { latency_cycles: wide as u32, store: Some(true), period: (wide >> 32) as u32 },
        _ => Detail::Count { count: (wide >> 8) as u32, gap: Some(Nanos(wide >> 20)) },
    };
    let shift = wide >> 58;
    Access {
        time: Nanos(mix(wide) >> (wide >> 5 & 31)),
        pfn: (wide & 8 == 0).then_some(Pfn(mix(wide) >> shift)),
        page: (wide & 16 == 0).then_some(VirtPage { pid: Pid((wide >> 40) as u32 % 6), vpn: wide >> shift }),
        order: (wide >> 12) as u8 & 31,
        node: NodeId((wide >> 24) as u16 & 7),
        accessor: (wide & 32 == 0).then_some(NodeId((wide >> 48) as u16 & 15)),
        detail,
    }
}

/// The machine without one of its nodes; none where it would not be one.
fn without(whole: &Topology, gone: Option<usize>) -> Option<Topology> {
    let kept: Vec<usize> = (0..whole.nodes.len()).filter(|i| Some(*i) != gone).collect();
    let node = |&i: &usize| {
        let node = whole.nodes[i].clone();
        Node { distances: kept.iter().map(|&j| node.distances[j]).collect(), ..node }
    };
    Topology::new(kept.iter().map(node).collect()).ok()
}

/// Spreads a number over 64 bits (splitmix64).
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
