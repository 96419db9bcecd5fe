//! An honest machine: processes whose hot pages change, a mover that takes its time, and the truth.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use thermocline_core::access::{
    Access, Detail, Evidence, FaultLatency, Membership, NoMappings, Region, RegionPage, RegionSnapshot,
    RegionSpace,
};
use thermocline_core::demand::Demand;
use thermocline_core::machine::Machine;
use thermocline_core::moves::{Batch, BatchOutcome, Move, Outcome};
use thermocline_core::topology::{NodeState, Watermarks};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

use crate::world::HIGH_PAGES;

const PROCESSES: u32 = 5;
const PAGES_EACH: u64 = 600;
/// Base pages of each node with memory, which the processes fill to a half in all. DRAM is scarce.
const NODE_PAGES: [u64; 4] = [900, 900, 1200, 4000];
/// What a node says that it manages: its goal is as configured, which is less on small nodes.
const MANAGED_PAGES: u64 = 1 << 16;
/// Accesses that are reported at a poll.
const ACCESSES: u32 = 24;
/// Polls after which other pages are hot.
const EPOCH: u64 = 64;
/// The slow node, to which what is demoted goes.
const SLOW: NodeId = NodeId(3);

/// See the module's description.
pub struct Mill {
    random: Pcg64Mcg,
    /// Where each page is, and in which frame.
    pages: BTreeMap<VirtPage, (NodeId, Pfn)>,
    /// Base pages that each node holds.
    used: [u64; 4],
    frames: u64,
    moving: VecDeque<Batch>,
    demands: Vec<Demand>,
    states: Vec<NodeState>,
    polls: u64,
    regions: bool,
    /// Nothing is accessed any more.
    pub quiet: bool,
}

impl Mill {
    /// All pages on the slow node and the middle one, but for what DRAM nodes have already.
    pub fn new(seed: u64, regions: bool) -> Mill {
        let mut mill = Mill {
            random: Pcg64Mcg::new(seed.into()),
            pages: BTreeMap::new(),
            used: [0; 4],
            frames: 0,
            moving: VecDeque::new(),
            demands: Vec::new(),
            states: Vec::new(),
            polls: 0,
            regions,
            quiet: false,
        };
        (0..PROCESSES).for_each(|pid| mill.begin(Pid(pid)));
        mill
    }

    /// The scope of a process where scopes are configured; the last process is excluded.
    pub fn membership(pid: Pid) -> Membership {
        match pid.0 {
            0 | 2 => Membership::Managed(ScopeId(1)),
            1 | 3 => Membership::Managed(ScopeId(2)),
            _ => Membership::Excluded,
        }
    }

    /// Every page is on one node, and no node holds more than it has.
    pub fn check(&self) {
        assert_eq!(self.pages.len() as u64, u64::from(PROCESSES) * PAGES_EACH, "a page is lost");
        for (node, most) in NODE_PAGES.into_iter().enumerate() {
            let held = self.pages.values().filter(|(at, _)| usize::from(at.0) == node).count() as u64;
            assert!(held == self.used[node] && held <= most, "node {node} holds {held} pages");
        }
    }

    fn begin(&mut self, pid: Pid) {
        for vpn in 0..PAGES_EACH {
            let node = match vpn % 8 {
                0 => NodeId(0),
                1 => NodeId(1),
                2 | 3 => NodeId(2),
                _ => SLOW,
            };
            self.put(VirtPage { pid, vpn }, if self.has_room(node) { node } else { SLOW });
        }
    }

    fn has_room(&self, node: NodeId) -> bool {
        let node = usize::from(node.0);
        self.used[node] < NODE_PAGES[node] - HIGH_PAGES
    }

    /// Puts a page on a node, in a frame that was never used before.
    fn put(&mut self, page: VirtPage, node: NodeId) {
        self.frames += 1;
        let frame = Pfn(((u64::from(node.0) + 1) << 24) + self.frames);
        if let Some((before, _)) = self.pages.insert(page, (node, frame)) {
            self.used[usize::from(before.0)] -= 1;
        }
        self.used[usize::from(node.0)] += 1;
    }

    fn is_hot(&self, page: VirtPage) -> bool {
        let mixed = (page.vpn ^ u64::from(page.pid.0) << 10 ^ (self.polls / EPOCH) << 17)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed >> 61 == 0
    }

    fn accesses(&mut self, now: Nanos) -> Vec<Access> {
        let mut out = Vec::new();
        while out.len() < ACCESSES as usize {
            let page = VirtPage {
                pid: Pid(self.random.next_u32() % PROCESSES),
                vpn: u64::from(self.random.next_u32()) % PAGES_EACH,
            };
            if !self.is_hot(page) && self.random.next_u32() % 16 != 0 {
                continue;
            }
            let (node, pfn) = self.pages[&page];
            let wait = Nanos::from_ms(u64::from(self.random.next_u32() % 900));
            let detail = match self.random.next_u32() % 4 {
                0 => Detail::Sample { latency_cycles: self.random.next_u32(), store: false, period: 1000 },
                1 => Detail::Count { count: 100 + self.random.next_u32() % 1000, gap: Some(wait) },
                _ => Detail::HintFault { latency: Some(FaultLatency { time: wait, faults: 10 }) },
            };
            let accessor = Some(NodeId((self.random.next_u32() % 2) as u16));
            out.push(Access {
                time: now,
                pfn: Some(pfn),
                page: Some(page),
                order: 0,
                node,
                accessor,
                detail,
            });
        }
        out
    }

    fn show_regions(&self, now: Nanos, accesses: &[Access], observe: &mut dyn FnMut(Evidence<'_>)) {
        let of = |access: &Access| {
            let page = access.page?;
            let region = Region {
                space: RegionSpace::Virtual(page.pid),
                start: page.vpn,
                end: page.vpn + 1,
                access_rate_bp: 5000,
                age: Nanos::from_s(5),
                check: Nanos::from_ms(5),
            };
            let page = RegionPage { page, pfn: access.pfn, order: 0, node: access.node, region, time: now };
            Some((region, page))
        };
        let (regions, pages): (Vec<_>, Vec<_>) = accesses.iter().filter_map(of).unzip();
        observe(Evidence::Regions(&RegionSnapshot { time: now, regions }));
        observe(Evidence::RegionPages(&pages));
    }

    fn carry_out(&mut self, target: NodeId, m: &Move) -> Outcome {
        let Some((node, pfn)) = self.pages.get(&m.page).copied() else { return Outcome::Gone };
        if node == target {
            return Outcome::AlreadyThere;
        }
        if node != m.from {
            return Outcome::OtherNode;
        }
        if m.pfn.is_some_and(|wanted| wanted != pfn) {
            return Outcome::OtherPage;
        }
        if !self.has_room(target) {
            return Outcome::NodeFull;
        }
        self.put(m.page, target);
        Outcome::Moved
    }

    /// Demotes pages that are not hot.
    fn demoted(&mut self, demand: &Demand) -> u64 {
        let is_cold = |page: &VirtPage, node| node == demand.node && !self.is_hot(*page);
        let cold = self.pages.iter().filter(|(page, (node, _))| is_cold(page, *node));
        let cold: Vec<VirtPage> = cold.map(|(page, _)| *page).take(demand.pages as usize).collect();
        let mut done = 0;
        for page in cold {
            if self.has_room(SLOW) {
                self.put(page, SLOW);
                done += 1;
            }
        }
        done
    }
}

impl Machine for Mill {
    type Error = Infallible;

    fn poll(
        &mut self,
        now: Nanos,
        _due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        self.polls += 1;
        // A clock that goes back does not stop the mover: each poll ends the batch in work.
        if let Some(batch) = self.moving.pop_front() {
            let outcomes = batch.moves.iter().map(|m| self.carry_out(batch.target, m)).collect();
            observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: now, outcomes }));
        }
        for demand in std::mem::take(&mut self.demands) {
            let pages = self.demoted(&demand);
            observe(Evidence::Demoted(&demand.done(pages, Nanos(0))));
        }
        if self.quiet {
            return Ok(());
        }
        if self.polls.is_multiple_of(EPOCH * 4) {
            let pid = Pid(self.random.next_u32() % PROCESSES);
            observe(Evidence::Exit { pid });
            self.begin(pid);
            observe(Evidence::Process { pid, membership: Mill::membership(pid) });
        }
        let accesses = self.accesses(now);
        observe(Evidence::Accesses { batch: &accesses, mappings: &NoMappings });
        if self.regions {
            self.show_regions(now, &accesses, observe);
        }
        Ok(())
    }

    fn nodes(&mut self, _observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let watermarks = Watermarks { high_pages: HIGH_PAGES, ..Watermarks::default() };
        let state = |node| NodeState {
            node,
            free_pages: NODE_PAGES[usize::from(node.0)] - self.used[usize::from(node.0)],
            managed_pages: MANAGED_PAGES,
            watermarks,
        };
        self.states = (0..NODE_PAGES.len() as u16).map(|n| state(NodeId(n))).collect();
        Ok(&self.states)
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        self.moving.extend(batches);
    }

    fn demotes(&self) -> bool {
        true
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.demands.extend(demands);
    }
}
