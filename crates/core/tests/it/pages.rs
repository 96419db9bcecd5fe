//! A machine with a table of pages: it knows where each one is, moves them when asked to, and its
//! programs access them.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use thermocline_core::access::{
    Access, Detail, Evidence, FaultLatency, Holding, Membership, NoMappings, Region, RegionPage,
    RegionSnapshot, RegionSpace,
};
use thermocline_core::config::Scope;
use thermocline_core::demand::Demand;
use thermocline_core::machine::Machine;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::topology::{NodeState, Watermarks};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};

use crate::faulty::mix;
use crate::world::HIGH_PAGES;

/// Processes, and pages of each.
pub const PIDS: u32 = 4;
/// Pages of each process.
pub const VPNS: u64 = 64;
/// Pages that a node has room for.
const NODE_PAGES: u64 = 5000;

/// See the module's description.
pub struct Pages {
    state: u64,
    at: BTreeMap<VirtPage, NodeId>,
    moving: VecDeque<Batch>,
    demands: Vec<Demand>,
    nodes: Vec<NodeState>,
    polls: u64,
    polled: Nanos,
    scopes: Vec<Scope>,
    /// Its programs run.
    pub busy: bool,
}

impl Pages {
    /// Pages on all tiers, accessed as the seed says.
    pub fn new(seed: u64, scopes: &[Scope]) -> Pages {
        let pages = (0..PIDS).flat_map(|pid| (0..VPNS).map(move |vpn| VirtPage { pid: Pid(pid), vpn }));
        Pages {
            state: seed,
            at: pages.map(|page| (page, NodeId([0, 2, 3, 3][page.vpn as usize % 4]))).collect(),
            moving: VecDeque::new(),
            demands: Vec::new(),
            nodes: Vec::new(),
            polls: 0,
            polled: Nanos(0),
            scopes: scopes.to_vec(),
            busy: true,
        }
    }

    /// Other scopes are configured: processes are told of at the next look.
    pub fn set_scopes(&mut self, scopes: &[Scope]) {
        self.scopes = scopes.to_vec();
    }

    /// What a process is by the scopes. Even processes run in one cgroup, odd ones in another.
    pub fn membership(&self, pid: Pid) -> Membership {
        Membership::among(&self.scopes, |scope| scope.exclude, |scope| names(scope, pid))
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state)
    }

    fn any_page(&mut self) -> VirtPage {
        let n = self.random();
        VirtPage { pid: Pid((n >> 32) as u32 % PIDS), vpn: n % VPNS }
    }

    fn access(&mut self, now: Nanos) -> Access {
        let page = self.any_page();
        let n = self.random();
        let detail = match n % 4 {
            0 | 1 => {
                let time = Nanos::from_ms(n >> 8 & 255);
                Detail::HintFault { latency: Some(FaultLatency { time, faults: n as u32 >> 24 }) }
            }
            2 => Detail::Sample { latency_cycles: (n >> 16) as u32, store: Some(false), period: 1000 },
            _ => Detail::Count { count: 2, gap: Some(Nanos(n >> 40)) },
        };
        Access {
            time: now,
            pfn: Some(frame(page)),
            page: Some(page),
            order: 0,
            node: self.at[&page],
            accessor: Some(NodeId((n >> 4) as u16 % 2)),
            detail,
        }
    }

    /// Whoever else moves pages sends some to the slowest node.
    fn demote_some(&mut self) {
        for _ in 0..4 {
            let page = self.any_page();
            self.at.insert(page, NodeId(3));
        }
    }

    fn carry_out(&mut self, batch: &Batch) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for m in &batch.moves {
            let outcome = match self.at.get_mut(&m.page) {
                None => Outcome::Gone,
                Some(at) if *at == batch.target => Outcome::AlreadyThere,
                Some(at) if *at != m.from => Outcome::OtherNode,
                Some(at) => {
                    *at = batch.target;
                    Outcome::Moved
                }
            };
            outcomes.push(outcome);
        }
        outcomes
    }

    fn regions(&mut self, now: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
        let pid = Pid(self.random() as u32 % PIDS);
        let space = RegionSpace::Virtual(pid);
        let region = |start, access_rate_bp| Region {
            space,
            start,
            end: start + VPNS / 2,
            access_rate_bp,
            age: Nanos::from_s(3),
            check: Nanos::from_ms(5),
        };
        let regions = vec![region(0, 6000), region(VPNS / 2, 10)];
        let lower = |at: &NodeId| *at != NodeId(0) && *at != NodeId(1);
        let here = self.at.iter().filter(|(page, at)| page.pid == pid && lower(at));
        let pages: Vec<RegionPage> = here
            .map(|(&page, &node)| RegionPage {
                page,
                pfn: Some(frame(page)),
                order: 0,
                node,
                region: regions[usize::from(page.vpn >= VPNS / 2)],
                time: now,
            })
            .collect();
        observe(Evidence::Regions(&RegionSnapshot { time: now, regions }));
        observe(Evidence::RegionPages(&pages));
    }
}

/// Whether a scope names a process.
fn names(scope: &Scope, pid: Pid) -> bool {
    let cgroup = format!("/{}", pid.0 % 2);
    scope.pids.contains(&pid.0) || scope.cgroup.as_ref() == Some(&cgroup)
}

/// Each page has its own frame, which it keeps: no other page may inherit its heat.
fn frame(page: VirtPage) -> Pfn {
    Pfn(page.vpn + (u64::from(page.pid.0) << 12))
}

impl Machine for Pages {
    type Error = Infallible;

    fn poll(
        &mut self,
        now: Nanos,
        _due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        // New processes are found at a look, as live.
        if !self.scopes.is_empty() && self.busy && self.polls.is_multiple_of(32) {
            for pid in (0..PIDS).map(Pid) {
                observe(Evidence::Process { pid, membership: self.membership(pid) });
            }
        }
        self.polls += 1;
        self.polled = now;
        for _ in 0..2 {
            if let Some(batch) = self.moving.pop_front() {
                let outcomes = self.carry_out(&batch);
                observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: now, outcomes }));
            }
        }
        for demand in std::mem::take(&mut self.demands) {
            observe(Evidence::Demoted(&demand.done(demand.pages / 2, Nanos(1000))));
        }
        if self.busy {
            self.demote_some();
            let batch: Vec<Access> = (0..24).map(|_| self.access(now)).collect();
            observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
            if self.polls.is_multiple_of(4) {
                self.regions(now, observe);
            }
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let watermarks = Watermarks { high_pages: HIGH_PAGES, ..Watermarks::default() };
        let held = |node| self.at.values().filter(|at| **at == node).count() as u64;
        let state = |n| NodeState {
            node: NodeId(n),
            free_pages: NODE_PAGES - held(NodeId(n)),
            managed_pages: NODE_PAGES,
            watermarks,
        };
        self.nodes = (0..4).map(state).collect();
        for (place, scope) in self.scopes.iter().enumerate().filter(|(_, scope)| scope.is_limited()) {
            let top = self.at.iter().filter(|(page, at)| at.0 < 2 && names(scope, page.pid));
            let (scope, pages) = (ScopeId::of_place(place), top.count() as u64);
            observe(Evidence::Holding(Holding { scope, time: self.polled, pages }));
        }
        Ok(&self.nodes)
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
