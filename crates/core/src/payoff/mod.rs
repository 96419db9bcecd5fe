//! A move must be worth it: what promotions and evidence may cost, given what they gain.
//!
//! 1. One page in 64 that is proposed for promotion is *held out*: it stays where it is for
//!    `watch_s`, and its hint faults go on being seen. So it shows what promoting others gains. Of
//!    a class that is well known none are, until that has faded.
//! 2. Held-out pages are judged in classes, by the octave of the access interval that the rule
//!    claims. If in a share F of the passes they fault within x of being marked, their access rate
//!    is at least F / x. The largest such bound is the rate of the class.
//! 3. The *price* of room in DRAM is what a demoted page loses: at most the mean rate of the pages
//!    of lower tiers, whose rate is found by the same bound, and a quarter more; at most what pages
//!    that demotion found idle can have; nothing while there is room, and for a scope that holds
//!    less than its share.
//! 4. A promotion gains the time that is saved by an access, times the accesses by which a page
//!    exceeds the price until it no longer does. That is found from the rates at four ages: up to
//!    an eighth, a quarter, a half and all of `watch_s` after the proposal, and what is left then
//!    goes on to fade as fast. An age that is not known is between its neighbours.
//! 5. A class is *worth it* if the least gain exceeds the cost of a move both ways by two standard
//!    errors of F, and *not worth it* if the greatest does not. Pages of the latter are refused.
//! 6. What is not known yet is tried within a budget, a share of the programs' CPU time. Half of it
//!    pays for hint faults, the other half for trials and demotion. Half of what promotions of
//!    known classes gain may be spent on hint faults too. What pages that are marked will cost by
//!    the rate at which they fault counts as spent. Without budget, scans mark less. Where
//!    some classes are not worth it and none is, a quarter of the budget is spent.
//!
//! Pages that are accessed less often than claimed wait with the rate that was seen, so that
//! demotion looks for pages that are colder than that.
//!
//! Only hint faults are judged so: evidence from other sources passes. Source: ours. It needs no
//! model of a program, and no proposal's claim is believed for longer than it takes to check it.

mod account;
mod classes;
mod held_out;
mod price;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::access::{Access, Detail, Programs, Source};
use crate::candidate::{Candidate, gap_of_score, score_of_rate};
use crate::config;
use crate::demand::Supply;
use crate::moves::Direction;
use crate::pace::Affordable;
use crate::refusal::RefusalReason;
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use account::Account;
use classes::{Class, Classes};
use held_out::{Draw, HeldOut};
use price::Price;

/// Time between two looks at held-out pages.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Assumed cost of learning whether a page is idle, ns: the multi-generational LRU updates its age
/// in a walk through page tables.
const AGE_NS: f64 = 25.0;
/// Room is made ahead of promotions for so long after a page of a class that is worth it was
/// proposed.
const WORTH_LIFE: Nanos = Nanos::from_s(30);

/// What is known of the pages of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Too little.
    Unknown,
    /// They gain more than a move costs.
    Worth,
    /// They gain less.
    NotWorth,
}

/// What the room costs that a page is promoted into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// What the page loses that makes it.
    Priced,
    /// Nothing: the page's scope holds less than its share, and has a right to the room.
    Owed,
}

/// What a promotion of a page with a certain claim gains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// What is known of such pages.
    pub verdict: Verdict,
    /// Accesses a second that held-out pages of the class have.
    pub rate: f64,
    /// Accesses a second that a page which is demoted for it loses.
    pub price: f64,
    /// Time for which it counts, s.
    pub stay_s: f64,
    /// Time saved by an access, ns.
    pub saved_ns: f64,
    /// Cost of a move both ways, ns.
    pub move_ns: u32,
}

impl Judged {
    /// The gain of a promotion, ns.
    pub fn gain_ns(&self) -> f64 {
        (self.rate - self.price) * self.stay_s * self.saved_ns
    }
}

type Verdicts = [Verdict; classes::OCTAVES as usize];

/// See the module's description.
#[derive(Debug)]
pub struct Payoff {
    keys: config::Payoff,
    watch_s: f64,
    move_ns: u32,
    fault_ns: f64,
    saved_ns: f64,
    held_out: HeldOut,
    classes: Classes,
    /// Base pages that are marked and have not faulted yet.
    marked: f64,
    /// Of each class by its own pages alone, as of the last look, where room is priced and owed.
    verdicts: [Verdicts; 2],
    price: Price,
    /// What room costs whom it costs least.
    best_room: Room,
    evidence: Account,
    trials: Account,
    /// When time last passed.
    looked: Option<Nanos>,
    worth_until: Nanos,
}

impl Payoff {
    /// With nothing known.
    pub fn new(keys: &config::Payoff, topology: &Topology) -> Payoff {
        let half = || Account::new(f64::from(keys.budget_percent) / 200.0, keys.loan_s);
        Payoff {
            watch_s: keys.watch_s as f64,
            move_ns: keys.move_ns,
            fault_ns: keys.fault_ns.into(),
            saved_ns: saved_ns(topology, keys),
            keys: keys.clone(),
            held_out: HeldOut::new(Nanos::from_s(keys.watch_s)),
            classes: Classes::default(),
            marked: 0.0,
            verdicts: [[Verdict::Unknown; classes::OCTAVES as usize]; 2],
            price: Price::default(),
            best_room: Room::Priced,
            evidence: half(),
            trials: half(),
            looked: None,
            worth_until: Nanos(0),
        }
    }

    /// Nodes have appeared, disappeared or changed their tier.
    pub fn set_topology(&mut self, topology: &Topology) {
        self.saved_ns = saved_ns(topology, &self.keys);
    }

    /// Takes accesses: hint faults cost time, and those of held-out pages count for their class.
    pub fn see(&mut self, batch: &[Access]) {
        let mut faults = 0u32;
        let mut pages = 0;
        for access in batch {
            let Detail::HintFault { latency } = access.detail else { continue };
            faults += 1;
            pages += access.pages();
            let (Some(latency), Some(page)) = (latency, access.page) else { continue };
            let draw = Draw::of(page, access.pfn);
            if !self.held_out.may_hold(draw, access.time) {
                continue;
            }
            let wait = classes::octave(Nanos(latency.time.0.saturating_mul(access.pages())));
            if self.held_out.is_selected(draw, access.time) {
                self.price.lower.fault(wait, access.pages() as f64);
            }
            if let Some((octave, age)) = self.held_out.faulted(page, access.time) {
                self.classes.fault(octave, age, wait);
            }
        }
        self.marked = (self.marked - pages as f64).max(0.0);
        self.evidence.spend(f64::from(faults) * self.fault_ns);
    }

    /// Whether a page may wait for its promotion; returns the score with which it waits.
    ///
    /// # Errors
    /// It is held out, or not worth it.
    pub fn door(&mut self, candidate: &Candidate, room: Room, now: Nanos) -> Result<u16, RefusalReason> {
        let (true, Some(page)) = (is_judged(candidate), candidate.page) else { return Ok(candidate.score) };
        let gap = gap_of_score(candidate.score);
        let octave = classes::octave(gap);
        let more = !self.classes.of(octave).is_well_known();
        if self.held_out.holds(page, Draw::of(page, candidate.pfn), octave, more, now) {
            return Err(RefusalReason::HeldOut);
        }
        match self.verdict(octave, room) {
            Verdict::NotWorth => Err(RefusalReason::NotWorth),
            Verdict::Unknown => Ok(candidate.score),
            Verdict::Worth => {
                self.worth_until = now.plus(WORTH_LIFE);
                let seen = self.classes.of(octave).rate(0.0);
                let longer = if seen > 0.0 { classes::rate_of(octave) / seen } else { 1.0 };
                Ok(score_of_rate(Nanos((gap.0 as f64 * longer.max(1.0)) as u64)))
            }
        }
    }

    /// Whether a page whose turn has come may be promoted now.
    ///
    /// # Errors
    /// It is not worth it, or it would be a trial and the budget is spent. A scope need not wait
    /// for its share until there is budget.
    pub fn gate(&self, candidate: &Candidate, room: Room) -> Result<(), RefusalReason> {
        if !is_judged(candidate) {
            return Ok(());
        }
        match self.verdict(classes::octave(gap_of_score(candidate.score)), room) {
            Verdict::NotWorth => Err(RefusalReason::NotWorth),
            Verdict::Unknown if room == Room::Priced && !self.trials.has_credit() => {
                Err(RefusalReason::BudgetSpent)
            }
            Verdict::Unknown | Verdict::Worth => Ok(()),
        }
    }

    /// A page has been promoted.
    pub fn promoted(&mut self, candidate: &Candidate, room: Room) {
        if !is_judged(candidate) {
            return;
        }
        let pages = (1u64 << candidate.order) as f64;
        let octave = classes::octave(gap_of_score(candidate.score));
        match self.verdict(octave, room) {
            Verdict::Worth => {
                let class = self.classes.of(octave);
                let gain = self.gain_ns(class, room, 2.0) - f64::from(self.move_ns);
                self.evidence.earn(gain.max(0.0) / 2.0 * pages);
            }
            Verdict::Unknown | Verdict::NotWorth => self.trials.spend(f64::from(self.move_ns) * pages),
        }
    }

    /// A demand has ended, for which all pages of a node were looked at: that is part of the cost
    /// of promotions.
    pub fn supplied(&mut self, supply: &Supply, node_pages: u64, now: Nanos) {
        self.trials.spend(node_pages as f64 * AGE_NS);
        self.price.see_supply(supply, node_pages, now);
    }

    /// Whether top tiers have more room than demotion makes.
    pub fn see_room(&mut self, room: bool) {
        self.price.see_room(room);
    }

    /// Takes the CPU time that programs have used.
    pub fn programs(&mut self, programs: &Programs) {
        self.evidence.programs(programs);
        self.trials.programs(programs);
    }

    /// A process is gone, or not managed any more.
    pub fn forget(&mut self, pid: Pid) {
        self.held_out.forget(pid);
    }

    /// Time passes. `pass` is how long a scan takes, and of whose memory, if that is known; lower
    /// tiers hold `lower_pages`; `best_room` is what room costs whom it costs least.
    pub fn tick(&mut self, now: Nanos, (pass, of): (Nanos, Option<Pid>), lower_pages: u64, best_room: Room) {
        self.best_room = best_room;
        // Clocks begin anywhere: of the time before the first look nothing is known.
        let since = now.since(*self.looked.get_or_insert(now));
        if since < LOOK_EVERY {
            return;
        }
        self.looked = Some(now);
        let since_s = since.0 as f64 / 1e9;
        self.classes.fade(since_s);
        self.price.tick(now, since_s);
        let (classes, passes) = (&mut self.classes, since.0 as f64 / pass.0.max(1) as f64);
        self.price.lower.pass(passes * lower_pages as f64 / held_out::ONE_IN as f64);
        // What a scan finds marked stays so.
        let unmarked = (lower_pages as f64 - self.marked).max(0.0);
        self.marked = (self.marked + passes * unmarked).min(lower_pages as f64);
        self.held_out.tick(now, passes, pass, of, |octave, age| classes.silent(octave, age));
        // Each candidate asks for one, and they change as slowly as pages show themselves.
        self.verdicts = [Room::Priced, Room::Owed]
            .map(|room| std::array::from_fn(|octave| self.look_at(octave as u8, room)));
    }

    /// Whether anything may be promoted now: there is budget for trials, or pages that are worth it
    /// were proposed lately.
    pub fn may_promote(&self) -> bool {
        self.trials.has_credit() || self.looked.is_some_and(|looked| looked < self.worth_until)
    }

    /// By how much hint faults may change; `None` if they may cost what they will.
    pub fn faults_affordable(&self) -> Option<Affordable> {
        self.evidence.affordable(self.nothing_to_gain(), self.marked * self.fault_ns)
    }

    /// Whether some classes are known not to be worth a move, and none to be worth it.
    fn nothing_to_gain(&self) -> bool {
        let verdicts = &self.verdicts[self.best_room as usize];
        verdicts.contains(&Verdict::NotWorth) && !verdicts.contains(&Verdict::Worth)
    }

    /// Pages that are held out now.
    pub fn held_out(&self) -> usize {
        self.held_out.len()
    }

    /// What is left of the budget for hint faults, and for trials.
    pub fn left(&self) -> [Nanos; 2] {
        [self.evidence.left(), self.trials.left()]
    }

    /// What a promotion of a candidate gains; `None` if such candidates are not judged.
    pub fn of(&self, candidate: &Candidate, room: Room) -> Option<Judged> {
        is_judged(candidate).then(|| self.judged(gap_of_score(candidate.score), room))
    }

    /// What a promotion of a page with such a claim gains.
    pub fn judged(&self, gap: Nanos, room: Room) -> Judged {
        let octave = classes::octave(gap);
        let (class, price) = (self.classes.of(octave), self.price_of(room));
        let rate = class.rate(0.0);
        let accesses = class.least(self.watch_s, price, 0.0);
        Judged {
            verdict: self.verdict(octave, room),
            rate,
            price,
            stay_s: if rate > price { accesses / (rate - price) } else { 0.0 },
            saved_ns: self.saved_ns,
            move_ns: self.move_ns,
        }
    }

    /// The verdict on a class. While its own pages tell nothing: worth it, if the next colder class
    /// that is known is; not worth it, if the next hotter one is not.
    fn verdict(&self, octave: u8, room: Room) -> Verdict {
        let (hotter, rest) = self.verdicts[room as usize].split_at(usize::from(octave));
        let [own, colder @ ..] = rest else { return Verdict::Unknown };
        if *own != Verdict::Unknown {
            return *own;
        }
        let is_known = |verdict: &&Verdict| **verdict != Verdict::Unknown;
        match (colder.iter().find(is_known), hotter.iter().rev().find(is_known)) {
            (Some(Verdict::Worth), _) => Verdict::Worth,
            (_, Some(Verdict::NotWorth)) => Verdict::NotWorth,
            _ => Verdict::Unknown,
        }
    }

    fn look_at(&self, octave: u8, room: Room) -> Verdict {
        let (class, cost_ns) = (self.classes.of(octave), f64::from(self.move_ns));
        let most_ns = || class.most(self.watch_s, self.price_of(room)) * self.saved_ns;
        if self.gain_ns(class, room, 2.0) > cost_ns {
            Verdict::Worth
        } else if class.is_known() && most_ns() < cost_ns {
            Verdict::NotWorth
        } else {
            Verdict::Unknown
        }
    }

    /// What a promotion gains at least, if rates are so many standard errors below what was seen.
    fn gain_ns(&self, class: &Class, room: Room, errors: f64) -> f64 {
        class.least(self.watch_s, self.price_of(room), errors) * self.saved_ns
    }

    fn price_of(&self, room: Room) -> f64 {
        match room {
            Room::Priced => self.price.get(),
            Room::Owed => 0.0,
        }
    }
}

fn is_judged(candidate: &Candidate) -> bool {
    candidate.direction == Direction::Promote && candidate.source == Source::HintFault
}

/// Time saved by an access to the fastest tier instead of another, ns.
fn saved_ns(topology: &Topology, keys: &config::Payoff) -> f64 {
    let least = |top: bool| {
        let of_tier = topology.nodes.iter().filter(|n| n.capacity_pages > 0 && topology.is_top(n.id) == top);
        of_tier.filter_map(|n| n.read_latency_ns).min()
    };
    let known = least(true).zip(least(false)).and_then(|(top, lower)| lower.checked_sub(top));
    known.filter(|saved| *saved > 0).unwrap_or(keys.saved_ns).into()
}
