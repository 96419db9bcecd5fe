//! Admission: may this page move, and may it move now?
//!
//! One file per check. At the *door*, when a rule proposes, a candidate is refused for reasons that
//! do not change while it waits: no address for the mover, direction off, process excluded, no
//! target, moved recently, in flight already. At the *gate*, when its turn comes at a tick, it is
//! held for reasons that may pass: rate limit, share of its scope, room on the target, batches in
//! flight, the brake of its scope, what is kept for shares of other scopes. Floor and cap of its
//! scope are checked in both places, because pages in flight use them up. The order of the checks
//! is the order of the code below; every refusal has a [`RefusalReason`].

mod admitted;
mod brake;
mod claims;
mod direction;
pub mod far_nodes;
mod in_flight;
mod lately;
mod limits;
mod movable;
pub mod preferred;
mod recent;
mod room;
mod scope;
mod standing;
mod target;

pub use admitted::Admitted;
pub use brake::{Braking, Cause};
pub use claims::Claims;
pub use in_flight::Flight;
pub use movable::{ORDER_MAX, PID_LIMIT, VPN_LIMIT};
pub use recent::LeftAlone;
pub use standing::Standing;
pub use target::{Route, Targets};

use std::collections::BTreeMap;

use crate::access::{Holding, Membership, Pressure};
use crate::candidate::Candidate;
use crate::config::{self, Config, ScopeMap};
use crate::demand::{Allowance, Giving, Shares};
use crate::limit::{Rate, Reserve};
use crate::moves::{Batch, BatchId, Direction, Move};
use crate::published::threshold::rate_limit_pages;
use crate::refusal::{Effect, RefusalReason};
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId, Pid, ScopeId, VirtPage};
use brake::Brakes;
use in_flight::InFlight;
use limits::Limits;
use preferred::{NoTop, Preferred};
use recent::Recent;
use room::Rooms;
use scope::Scopes;

/// What admission knows of the machine and of earlier moves.
#[derive(Debug)]
pub struct Admission {
    config: config::Admission,
    preferred: Preferred,
    targets: Targets,
    scopes: Scopes,
    limits: Limits,
    brakes: Brakes,
    rate: Rate,
    recent: Recent,
    in_flight: InFlight,
}

/// Why a candidate does not pass the gate, and which others that stops at this tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This candidate, finally: it is refused.
    Refused(RefusalReason),
    /// This candidate.
    One(RefusalReason),
    /// Every candidate of its lane.
    Lane(RefusalReason),
    /// All candidates: they wait for the next tick.
    Everybody(RefusalReason),
}

impl Stop {
    /// The reason.
    pub const fn reason(self) -> RefusalReason {
        match self {
            Stop::Refused(reason) | Stop::One(reason) | Stop::Lane(reason) | Stop::Everybody(reason) => {
                reason
            }
        }
    }
}

/// The gate at one tick: what the nodes can take.
#[derive(Debug)]
pub struct Gate {
    now: Nanos,
    rooms: Rooms,
    /// What claims have a right to: rate now, and room now and for what comes next.
    claims: Claims,
    kept: Claims,
}

impl Admission {
    /// Admission without earlier moves.
    ///
    /// # Errors
    /// A `target_nid` that is no node of the top tier.
    pub fn new(config: &Config, topology: &Topology) -> Result<Admission, NoTop> {
        let limit_pages = rate_limit_pages(config.admission.rate_limit_mbps);
        let preferred = Preferred::new(config, topology)?;
        Ok(Admission {
            preferred,
            targets: Targets::new(topology, preferred),
            scopes: Scopes::new(&config.scope, limit_pages),
            limits: Limits::new(&config.scope),
            brakes: Brakes::new(config),
            rate: Rate::new(limit_pages),
            recent: Recent::new(&config.admission),
            in_flight: InFlight::default(),
            config: config.admission.clone(),
        })
    }

    /// Takes other keys and scopes; moves in flight and what is remembered stay. `map` leads from
    /// the scopes `before` to the new ones.
    pub fn reload(&mut self, before: &[config::Scope], config: &Config, map: &ScopeMap) {
        let limit_pages = rate_limit_pages(config.admission.rate_limit_mbps);
        self.rate.set_limit(limit_pages);
        self.scopes.reload(&config.scope, limit_pages, map);
        self.in_flight.renumber(map);
        let (scopes, in_flight) = (&self.scopes, &mut self.in_flight);
        in_flight.retain(|pid| scopes.check(pid).is_ok());
        let up = |scope| in_flight.of_scope(scope, Direction::Promote);
        self.limits.reload(before, &config.scope, map, up);
        self.brakes.reload(config, map);
        self.recent.reload(&config.admission);
        self.config = config.admission.clone();
    }

    /// Nodes have appeared or disappeared: earlier routes are invalid.
    pub fn set_topology(&mut self, topology: &Topology) {
        self.targets = Targets::new(topology, self.preferred);
        self.limits.forget();
    }

    /// The door: the entry with which a candidate may wait.
    ///
    /// # Errors
    /// The first reason against it.
    #[inline]
    pub fn door(
        &self,
        topology: &Topology,
        candidate: &Candidate,
        now: Nanos,
    ) -> Result<Admitted, RefusalReason> {
        let page = movable::check(candidate)?;
        direction::check(&self.config, candidate.direction)?;
        let scope = self.scopes.check(page.pid)?;
        let route = self.targets.check(topology, candidate)?;
        if candidate.expires <= now {
            return Err(RefusalReason::Expired);
        }
        self.recent.check(page, now)?;
        self.in_flight.check(page, candidate)?;
        self.limits.door(scope, candidate.direction, now)?;
        debug_assert!(!self.targets.nodes(route).is_empty(), "{page} is let in and has nowhere to go to");
        debug_assert!(!self.targets.nodes(route).contains(&candidate.from), "{page} would stay where it is");
        Ok(Admitted::new(candidate, page, scope, route))
    }

    /// Asks the CPU for what the door, or the record of a move, looks up of a page.
    #[inline]
    pub fn prefetch(&self, page: VirtPage) {
        self.recent.prefetch(page);
    }

    /// Where a candidate may go in the present topology.
    ///
    /// # Errors
    /// Nowhere.
    pub fn route(&self, topology: &Topology, candidate: &Candidate) -> Result<Route, RefusalReason> {
        self.targets.check(topology, candidate)
    }

    /// The nodes of a route, best first.
    pub fn nodes(&self, route: Route) -> &[NodeId] {
        self.targets.nodes(route)
    }

    /// Opens the gate for a tick; `waiting` has the base pages that each scope would hold more if
    /// it could.
    pub fn gate(&mut self, now: Nanos, nodes: &[NodeState], waiting: &BTreeMap<ScopeId, u64>) -> Gate {
        self.recent.tick(now);
        self.brakes.tick(now);
        let (claims, kept) = (self.limits.claims(now, waiting), self.limits.kept(now, waiting));
        Gate { now, rooms: self.rooms(nodes), claims, kept }
    }

    fn rooms(&self, nodes: &[NodeState]) -> Rooms {
        Rooms::new(nodes, Reserve::new(&self.config), |node| self.in_flight.towards(node))
    }

    /// Whether a route has a node with room at this tick.
    ///
    /// # Errors
    /// No target has room for a single page.
    pub fn open(&self, gate: &Gate, route: Route) -> Result<(), RefusalReason> {
        gate.rooms.check(self.targets.nodes(route), 1).map(drop)
    }

    /// The gate: where a waiting candidate may go now. `others_wait` says whether candidates of
    /// another scope wait.
    ///
    /// # Errors
    /// The first reason against it, and which candidates it stops.
    pub fn pass(&mut self, gate: &Gate, admitted: &Admitted, others_wait: bool) -> Result<NodeId, Stop> {
        let pages = admitted.pages();
        self.in_flight.check(admitted.page, &admitted.candidate).map_err(Stop::One)?;
        let limits = self.limits.check(admitted.scope, admitted.candidate.direction, pages, gate.now);
        limits.map_err(|reason| match reason.effect() {
            Effect::Refused => Stop::Refused(reason),
            Effect::Held => Stop::Lane(reason),
        })?;
        self.brakes.check(admitted.scope, gate.now, pages).map_err(Stop::Lane)?;
        // The best candidate waits for its second: smaller folios must not pass it for ever.
        if !self.rate.fits(gate.now, pages) {
            return Err(Stop::Everybody(RefusalReason::RateLimited));
        }
        self.scopes.check_share(admitted.scope, gate.now, pages, others_wait).map_err(Stop::Lane)?;
        let targets = self.targets.nodes(admitted.route);
        if admitted.candidate.direction == Direction::Promote && gate.kept.sum() > 0 {
            gate.claims.check(admitted.scope, pages, self.rate.room(gate.now)).map_err(Stop::Lane)?;
            gate.kept.check(admitted.scope, pages, gate.rooms.sum(targets)).map_err(Stop::Lane)?;
        }
        gate.rooms.check(targets, pages).map_err(Stop::One)
    }

    /// Records that a candidate that passed goes into batch `id`.
    pub fn take(&mut self, gate: &mut Gate, id: BatchId, admitted: &Admitted, m: &Move, target: NodeId) {
        debug_assert_eq!(m.page, admitted.page, "a move is its candidate's");
        debug_assert!(self.targets.nodes(admitted.route).contains(&target), "{target} is not on the route");
        debug_assert!(self.rate.fits(gate.now, m.pages()), "taken beyond the rate limit");
        self.rate.charge(gate.now, m.pages());
        self.scopes.charge(admitted.scope, gate.now, m.pages());
        self.limits.charge(admitted.scope, admitted.candidate.direction, m.pages());
        self.brakes.issue(admitted.scope, gate.now, m.pages());
        gate.rooms.take(target, m.pages());
        if admitted.candidate.direction == Direction::Promote {
            gate.claims.take(admitted.scope, m.pages());
            gate.kept.take(admitted.scope, m.pages());
            self.limits.promoted(admitted.scope, gate.now, m.pages());
        }
        self.in_flight.hold(id, admitted.page, m, target);
    }

    /// Records a batch of candidates that were taken.
    pub fn issue(&mut self, batch: &Batch, candidates: Vec<Admitted>, now: Nanos) {
        self.in_flight.issue(batch, candidates, now);
    }

    /// Batches that may still be issued.
    pub fn batches_free(&self) -> usize {
        (self.config.batches_in_flight as usize).saturating_sub(self.in_flight.batches())
    }

    /// Takes out a batch whose outcome has come; `None` if it is not in flight.
    pub fn land(&mut self, id: BatchId) -> Option<Flight> {
        let flight = self.in_flight.land(id)?;
        for admitted in &flight.candidates {
            let pages = admitted.pages();
            self.limits.settle(admitted.scope, flight.direction, pages);
            self.brakes.land(admitted.scope, pages);
        }
        Some(flight)
    }

    /// Takes out a batch whose outcome is overdue, the oldest first.
    pub fn lose(&mut self, now: Nanos) -> Option<Flight> {
        let id = self.in_flight.overdue(now, Nanos::from_ms(self.config.outcome_timeout_ms))?;
        self.land(id)
    }

    /// The oldest batch in flight.
    pub fn oldest_batch(&self) -> Option<BatchId> {
        self.in_flight.oldest()
    }

    /// What was in flight when scopes changed has ended: holdings are believed again.
    pub fn unfence(&mut self) {
        self.limits.unfence();
    }

    /// Whether a scope has a share of the top tier.
    pub fn has_shares(&self) -> bool {
        self.limits.has_shares()
    }

    /// Whether a scope is known to hold less than its share.
    pub fn lacks_share(&self, scope: ScopeId, now: Nanos) -> bool {
        self.limits.lacks_share(scope, now)
    }

    /// Whether some scope does.
    pub fn anyone_lacks_share(&self, now: Nanos) -> bool {
        self.limits.anyone_lacks_share(now)
    }

    /// Takes a scope's holding of the top tier; false if it is none that counts.
    pub fn tell(&mut self, holding: &Holding) -> bool {
        self.limits.tell(holding)
    }

    /// What may be demoted from each scope with a floor that has something to spare, and from each
    /// braked one, and which hold more than they may, or than others' claims leave them. `nodes`
    /// are those of the top tier.
    pub fn giving(&mut self, now: Nanos, nodes: &[NodeState], waiting: &BTreeMap<ScopeId, u64>) -> Giving {
        let claims = self.limits.claims(now, waiting);
        let targets: Vec<NodeId> = nodes.iter().map(|state| state.node).collect();
        Giving {
            spare: self.limits.spare(now),
            braked: self.brakes.allowances(now),
            over: self.limits.over(now),
            shares: Shares {
                claimed: claims.by_scope().collect(),
                room: if claims.sum() > 0 { self.rooms(nodes).sum(&targets) } else { 0 },
                above: if claims.sum() > 0 { self.limits.above(now) } else { Vec::new() },
                beyond: self.limits.beyond_shares(now),
            },
        }
    }

    /// Records how much a demand may demote.
    pub fn allow(&mut self, allowances: &[Allowance]) {
        allowances.iter().for_each(|a| self.limits.charge(a.scope, Direction::Demote, a.pages));
    }

    /// Settles the allowances of a demand that has ended or was given up.
    pub fn settle_allowances(&mut self, allowances: &[Allowance]) {
        allowances.iter().for_each(|a| self.limits.settle(a.scope, Direction::Demote, a.pages));
    }

    /// The state of each scope whose holding counts.
    pub fn standings(&self, now: Nanos, waiting: &BTreeMap<ScopeId, u64>) -> Vec<Standing> {
        self.limits.standings(now, waiting)
    }

    /// The scope of a process whose memory may move.
    pub fn scope_of(&self, pid: Pid) -> Option<ScopeId> {
        self.scopes.check(pid).ok()
    }

    /// Takes the memory pressure of a scope: how long its tasks have waited.
    pub fn feel(&mut self, pressure: &Pressure) {
        self.brakes.tell(pressure);
    }

    /// Charges what a demand may take from braked scopes.
    pub fn charge_braked(&mut self, allowances: &[Allowance], now: Nanos) {
        allowances.iter().for_each(|a| self.brakes.allow(*a, now));
    }

    /// Pages were demoted by a demand.
    pub fn demoted(&mut self, pages: u64, by_scope: &[(ScopeId, u64)]) {
        if self.scopes.is_managed(ScopeId::DEFAULT) {
            self.brakes.demoted(ScopeId::DEFAULT, pages);
        } else {
            by_scope.iter().for_each(|(scope, pages)| self.brakes.demoted(*scope, *pages));
        }
    }

    /// The brakes of the scopes whose memory may move.
    pub fn brakes(&self, now: Nanos) -> Vec<Braking> {
        let managed = |braking: &Braking| self.scopes.is_managed(braking.scope);
        self.brakes.standings(now).into_iter().filter(managed).collect()
    }

    /// For how long each scope whose memory may move has been braked in all.
    pub fn braked_for(&self) -> impl Iterator<Item = (ScopeId, Nanos)> {
        self.scopes.managed().map(|scope| (scope, self.brakes.braked_for(scope)))
    }

    /// Scopes that were braked, stopped or freed, from change number `from` on, and the number to
    /// pass next time.
    pub fn brake_changes(&self, from: u64) -> (Vec<Braking>, u64) {
        self.brakes.changes(from)
    }

    /// We moved a candidate's page; returns how many times within the ping-pong window.
    pub fn moved(&mut self, admitted: &Admitted, now: Nanos) -> u32 {
        let up = admitted.candidate.direction == Direction::Promote;
        let moves = self.recent.moved(admitted.page, up, now);
        self.brakes.moved(admitted.scope, admitted.pages(), moves > 1);
        moves
    }

    /// Whether the page, accessed on a lower tier, was promoted by us within the ping-pong window;
    /// true once for each promotion.
    pub fn came_back(&mut self, page: VirtPage, time: Nanos) -> bool {
        self.recent.came_back(page, time)
    }

    /// Leaves a page alone for `admission.quarantine_ms`.
    pub fn quarantine(&mut self, page: VirtPage, now: Nanos, why: RefusalReason) {
        self.recent.quarantine(page, now, why);
    }

    /// Whether a refusal of the page is worth reporting: for each reason only the first is.
    pub fn is_news(&mut self, page: VirtPage, reason: RefusalReason) -> bool {
        use RefusalReason::{Lost, NoPermission, PingPong, Pinned, Resident, Shared};
        match reason {
            RefusalReason::InFlight => false,
            Resident | PingPong | Pinned | NoPermission | Shared | Lost => self.recent.first_refusal(page),
            _ => true,
        }
    }

    /// Records the membership of a process; `None` if process or scope number is invalid, else
    /// whether the membership changed.
    pub fn assign(&mut self, pid: Pid, membership: Membership) -> Option<bool> {
        self.scopes.assign(pid, membership)
    }

    /// A process has exited: its number may go to another process.
    pub fn exit(&mut self, pid: Pid) {
        self.scopes.exit(pid);
        self.recent.exit(pid);
    }

    /// A process has replaced its pages.
    pub fn exec(&mut self, pid: Pid) {
        self.recent.exit(pid);
    }

    /// Moves in flight of the process's pages are not tried again if they fail.
    pub fn revoke(&mut self, pid: Pid) {
        self.in_flight.exit(pid);
    }

    /// The batch that holds the page, if one does.
    pub fn holder(&self, page: VirtPage) -> Option<&Flight> {
        self.in_flight.holder(page)
    }

    /// Why the page is left alone now, if it is.
    pub fn left_alone(&self, page: VirtPage, now: Nanos) -> Option<LeftAlone> {
        self.recent.left_alone(page, now)
    }

    /// Batches in flight.
    pub fn batches_in_flight(&self) -> usize {
        self.in_flight.batches()
    }

    /// Moves in flight.
    pub fn moves_in_flight(&self) -> usize {
        self.in_flight.moves()
    }

    /// Base pages in flight towards a node.
    pub fn pages_towards(&self, node: NodeId) -> u64 {
        self.in_flight.towards(node)
    }

    /// Entries in the log of recent moves.
    pub fn recent_len(&self) -> usize {
        self.recent.len()
    }

    /// Entries of that log that were dropped too early.
    pub fn recent_forgotten(&self) -> u64 {
        self.recent.forgotten()
    }

    /// Approximate memory of the log of recent moves in bytes.
    pub fn recent_bytes(&self) -> usize {
        self.recent.bytes()
    }
}
