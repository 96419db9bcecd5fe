//! Check: has a scope's memory pressure, or its ping-pong, risen with our moves?
//!
//! Time is divided into periods of `brake.period_ms`. At the end of each period every scope is
//! judged by:
//!
//! ```text
//! moving     64 base pages or more were in flight in batches, or were demoted by demands
//! quiet      not moving, and neither was the period before: after-effects of moves have passed
//! stall      share of the period that some, or all, of the scope's tasks waited for memory (PSI)
//! baseline   moving average of the stall of quiet periods, weight 1/4; lowered by moving periods
//! spread     mean deviation of quiet periods from the baseline
//! again      share of the pages moved that had moved before, in `admission.ping_pong_window_ms`
//!
//! harm       moving, and stall > baseline + 2 spread + rise   (pressure)
//!            or again > `brake.ping_pong_percent`             (ping-pong)
//!
//! harm       halves the scope's rate, to less than was used; below 1/64, or below what can be
//!            judged, the scope stops
//! no harm    doubles it again; after a stop the lowest rate is tried first
//! ```
//!
//! So pressure is attributed to moves only by comparison. A stop is also the experiment: if the
//! pressure is the same without moves, it is the baseline, and the scope goes on. If it comes back
//! with the moves, each stop is twice as long as the one before.

mod baseline;
mod ladder;
mod tally;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::access::Pressure;
use crate::config::{self, Config, ScopeMap};
use crate::demand::Allowance;
use crate::limit::Rate;
use crate::published::threshold::rate_limit_pages;
use crate::refusal::RefusalReason;
use crate::units::{Nanos, ScopeId};
use baseline::Baseline;
use ladder::Ladder;
use tally::{MOVING_PAGES, Stall, Tally};

/// Periods that a stop lasts at least: in the first the effects of earlier moves fade, the others
/// show the load without moves.
const STOP_PERIODS: u64 = 4;
/// Changes that are kept until they are reported.
const CHANGES_MAX: usize = 256;

/// What a scope is braked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its tasks wait for memory more than without moves.
    Pressure,
    /// Its pages ping-pong.
    PingPong,
}

/// How a scope is braked, and the figures of the latest period that it was judged by; shares in
/// 1/10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Braking {
    /// The scope.
    pub scope: ScopeId,
    /// Share of its rate that it has: 10000 free, 0 stopped.
    pub rate_bp: u64,
    /// What it is braked by, where it is.
    pub by: Option<Cause>,
    /// For how long it has been braked.
    pub for_ms: Option<u64>,
    /// Time that some task waited for memory.
    pub some_bp: Option<u32>,
    /// The same without moves.
    pub some_baseline_bp: Option<u32>,
    /// Time that all tasks waited for memory.
    pub full_bp: Option<u32>,
    /// The same without moves.
    pub full_baseline_bp: Option<u32>,
    /// Pages that had been moved before, of those moved.
    pub again_bp: Option<u32>,
}

#[derive(Debug)]
struct Brake {
    scope: ScopeId,
    /// Base pages a second that batches and demands may carry where nothing is braked.
    batch_limit_pages: u64,
    demand_limit_pages: u64,
    tally: Tally,
    was_moving: bool,
    some: Baseline,
    full: Baseline,
    ladder: Ladder,
    /// What is used of the braked rates.
    batches: Rate,
    demands: Rate,
    /// Since when and by what it is braked.
    braked: Option<(Nanos, Cause)>,
    /// Periods in which it was braked, in all.
    braked_for: Nanos,
    stall: Option<Stall>,
    again_bp: Option<u32>,
}

/// The brakes of all scopes.
#[derive(Debug)]
pub(super) struct Brakes {
    keys: config::Brake,
    /// By scope number; empty where nothing is braked.
    scopes: Vec<Brake>,
    /// When the period began.
    begun: Option<Nanos>,
    /// Scopes that were braked, stopped or freed, and how many there ever were.
    changes: VecDeque<Braking>,
    written: u64,
}

impl Brakes {
    pub(super) fn new(config: &Config) -> Brakes {
        let batch_limit = rate_limit_pages(config.admission.rate_limit_mbps);
        let demand_limit = rate_limit_pages(config.demotion.rate_limit_mbps);
        let named = config.scope.iter().map(|scope| batch_limit * u64::from(scope.rate_share_percent) / 100);
        let limits = std::iter::once(batch_limit).chain(named);
        let keys = config.brake.clone();
        let ids = std::iter::once(ScopeId::DEFAULT).chain((0..config.scope.len()).map(ScopeId::of_place));
        let brake = |(scope, limit)| Brake::new(scope, limit, demand_limit, &keys);
        let scopes = if keys.enabled { ids.zip(limits).map(brake).collect() } else { Vec::new() };
        Brakes { keys, scopes, begun: None, changes: VecDeque::new(), written: 0 }
    }

    /// Takes other scopes, keys and limits; a scope that remains stays braked as before.
    pub(super) fn reload(&mut self, config: &Config, map: &ScopeMap) {
        let new = Brakes::new(config);
        self.keys = new.keys;
        for mut brake in std::mem::replace(&mut self.scopes, new.scopes) {
            brake.scope = map.of(brake.scope);
            if let Some(now) = self.of_mut(brake.scope) {
                brake.reload(now);
                *now = brake;
            }
        }
        self.changes.iter_mut().for_each(|change| change.scope = map.of(change.scope));
    }

    fn of_mut(&mut self, scope: ScopeId) -> Option<&mut Brake> {
        self.scopes.get_mut(usize::from(scope.0))
    }

    /// Takes what PSI says of a scope, where the scope can be braked.
    pub(super) fn tell(&mut self, pressure: &Pressure) {
        if let Some(brake) = self.of_mut(pressure.scope) {
            brake.tally.tell(pressure);
        }
    }

    /// Judges the period where it is over.
    pub(super) fn tick(&mut self, now: Nanos) {
        let begun = *self.begun.get_or_insert(now);
        let span = now.since(begun);
        if span < Nanos::from_ms(self.keys.period_ms) {
            return;
        }
        self.begun = Some(now);
        for brake in &mut self.scopes {
            let kind = |brake: &Brake| (brake.ladder.is_free(), brake.ladder.is_stopped());
            let before = kind(brake);
            if brake.braked.is_some() {
                brake.braked_for = brake.braked_for.plus(span);
            }
            brake.judge(now, span, &self.keys);
            if kind(brake) != before {
                if self.changes.len() >= CHANGES_MAX {
                    self.changes.pop_front();
                }
                self.changes.push_back(brake.stands(now));
                self.written += 1;
            }
        }
    }

    /// The gate: whether the scope may be issued `pages` more in this second.
    pub(super) fn check(&mut self, scope: ScopeId, now: Nanos, pages: u64) -> Result<(), RefusalReason> {
        let Some(brake) = self.of_mut(scope).filter(|brake| !brake.ladder.is_free()) else { return Ok(()) };
        let passes = !brake.ladder.is_stopped() && brake.batches.fits(now, pages);
        if passes { Ok(()) } else { Err(RefusalReason::Braked) }
    }

    /// Pages of the scope are issued.
    pub(super) fn issue(&mut self, scope: ScopeId, now: Nanos, pages: u64) {
        let Some(brake) = self.of_mut(scope) else { return };
        brake.tally.issue(pages);
        if !brake.ladder.is_free() {
            brake.batches.charge(now, pages);
        }
    }

    /// What became of pages that were issued is known, or will never be.
    pub(super) fn land(&mut self, scope: ScopeId, pages: u64) {
        if let Some(brake) = self.of_mut(scope) {
            brake.tally.land(pages);
        }
    }

    /// Pages of the scope have moved, and had been moved before.
    pub(super) fn moved(&mut self, scope: ScopeId, pages: u64, again: bool) {
        if let Some(brake) = self.of_mut(scope) {
            brake.tally.moved(pages, again);
        }
    }

    /// Pages of the scope have gone down by a demand.
    pub(super) fn demoted(&mut self, scope: ScopeId, pages: u64) {
        if let Some(brake) = self.of_mut(scope) {
            brake.tally.demoted(pages);
        }
    }

    /// What demands may take of each braked scope in this second; of a stopped one, nothing.
    pub(super) fn allowances(&mut self, now: Nanos) -> Vec<Allowance> {
        let braked = self.scopes.iter_mut().filter(|brake| !brake.ladder.is_free());
        let room = |brake: &mut Brake| if brake.ladder.is_stopped() { 0 } else { brake.demands.room(now) };
        braked.map(|brake| Allowance { scope: brake.scope, pages: room(brake) }).collect()
    }

    /// A demand may take so much.
    pub(super) fn allow(&mut self, allowance: Allowance, now: Nanos) {
        if let Some(brake) = self.of_mut(allowance.scope) {
            brake.demands.charge(now, allowance.pages);
        }
    }

    /// How all scopes stand.
    pub(super) fn standings(&self, now: Nanos) -> Vec<Braking> {
        self.scopes.iter().map(|brake| brake.stands(now)).collect()
    }

    /// For how long a scope has been braked in all.
    pub(super) fn braked_for(&self, scope: ScopeId) -> Nanos {
        self.scopes.get(usize::from(scope.0)).map_or(Nanos(0), |brake| brake.braked_for)
    }

    /// The changes from number `from` on (the run's first is number 0), as far as they are kept,
    /// and the number to ask from next time.
    pub(super) fn changes(&self, from: u64) -> (Vec<Braking>, u64) {
        let oldest = self.written - self.changes.len() as u64;
        let skip = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX);
        (self.changes.iter().skip(skip).copied().collect(), self.written)
    }
}

impl Brake {
    fn new(scope: ScopeId, batch_limit_pages: u64, demand_limit_pages: u64, keys: &config::Brake) -> Brake {
        Brake {
            scope,
            batch_limit_pages,
            demand_limit_pages,
            tally: Tally::default(),
            was_moving: false,
            some: Baseline::default(),
            full: Baseline::default(),
            ladder: Ladder::new(
                (u128::from(batch_limit_pages) * u128::from(keys.period_ms) / 1000) as u64,
                2 * MOVING_PAGES,
                Nanos::from_ms(keys.stop_ms.max(keys.period_ms.saturating_mul(STOP_PERIODS))),
                Nanos::from_ms(keys.stop_max_ms),
            ),
            batches: Rate::new(batch_limit_pages),
            demands: Rate::new(demand_limit_pages),
            braked: None,
            braked_for: Nanos(0),
            stall: None,
            again_bp: None,
        }
    }

    fn reload(&mut self, new: &Brake) {
        self.batch_limit_pages = new.batch_limit_pages;
        self.demand_limit_pages = new.demand_limit_pages;
        self.ladder.reload(&new.ladder);
        self.batches.set_limit(self.ladder.of(self.batch_limit_pages));
        self.demands.set_limit(self.ladder.of(self.demand_limit_pages));
    }

    fn stands(&self, now: Nanos) -> Braking {
        Braking {
            scope: self.scope,
            rate_bp: self.ladder.rate_bp(),
            by: self.braked.map(|(_, cause)| cause),
            for_ms: self.braked.map(|(since, _)| now.since(since).ms()),
            some_bp: self.stall.map(|stall| stall.some_bp),
            some_baseline_bp: self.some.stall_bp(),
            full_bp: self.stall.map(|stall| stall.full_bp),
            full_baseline_bp: self.full.stall_bp(),
            again_bp: self.again_bp,
        }
    }

    /// Ends a period that was so long.
    fn judge(&mut self, now: Nanos, span: Nanos, keys: &config::Brake) {
        let moving = self.tally.is_moving();
        self.stall = self.tally.stall();
        self.again_bp = self.tally.again_bp();
        let harm = self.harm(moving, keys);
        self.learn(moving);
        let (rate_bp, stopped) = (self.ladder.rate_bp(), self.ladder.is_stopped());
        match harm {
            Some(cause) => {
                let used_bp = self.tally.used_bp(self.batch_limit_pages, self.demand_limit_pages, span);
                self.ladder.harm(now, used_bp);
                self.braked = Some((self.braked.map_or(now, |(since, _)| since), cause));
            }
            None => self.ladder.calm(now),
        }
        if self.ladder.is_stopped() && !stopped {
            self.some.forget();
            self.full.forget();
        }
        if self.ladder.is_free() {
            self.braked = None;
        } else if self.ladder.rate_bp() != rate_bp {
            self.batches = Rate::new(self.ladder.of(self.batch_limit_pages));
            self.demands = Rate::new(self.ladder.of(self.demand_limit_pages));
        }
        self.was_moving = moving;
        self.tally.next();
    }

    fn harm(&self, moving: bool, keys: &config::Brake) -> Option<Cause> {
        let rise_bp = |percent: u8| u32::from(percent) * 100;
        let risen = |stall: Stall| {
            self.some.is_exceeded(stall.some_bp, rise_bp(keys.some_rise_percent))
                || self.full.is_exceeded(stall.full_bp, rise_bp(keys.full_rise_percent))
        };
        if moving && self.stall.is_some_and(risen) {
            return Some(Cause::Pressure);
        }
        self.again_bp.filter(|bp| *bp > rise_bp(keys.ping_pong_percent)).map(|_| Cause::PingPong)
    }

    fn learn(&mut self, moving: bool) {
        let Some(stall) = self.stall else { return };
        for (baseline, stall_bp) in [(&mut self.some, stall.some_bp), (&mut self.full, stall.full_bp)] {
            match (moving, self.was_moving) {
                (true, _) => baseline.moving(stall_bp),
                (false, false) => baseline.quiet(stall_bp),
                (false, true) => {}
            }
        }
    }
}
