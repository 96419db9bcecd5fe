//! The pages that compete for the DRAM of one node: the cut of their waits, and the value of a
//! wait.

use crate::candidate::Reason;
use crate::config;
use crate::demand::{COLDER, DemandReason, Supply};
use crate::rule::Gauge;
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId};

use super::prior::Prior;
use super::sample::{self, Bin, Cut, Sample};

/// Time between two evaluations of the sample while pages fault: several within the second or so in
/// which a marked program's faults come, because the waits change as soon as the hot pages have
/// moved.
const LOOK_EVERY: Nanos = Nanos::from_ms(100);
/// Time between two evaluations while no page faults.
const LOOK_IDLE: Nanos = Nanos::from_s(1);
/// Squared correlation of waits from which hot and cold pages count as two kinds. If it is less,
/// popularity falls off smoothly.
const CLEAR: f64 = 0.1;
/// Share of the pages below the cut while nothing is known, in percent.
const BEST_PERCENT: u32 = 25;
/// Where the top tier is full, a page is proposed if it is hot with this probability: it is
/// promoted only in exchange for a far colder one.
const CERTAIN_ENOUGH: f64 = 0.5;
/// If at most this share of the remaining pages is below the cut, the pages that stood out have
/// been promoted.
const REMAINS_MIN: f64 = 0.02;
/// Maximum share of the pages below the cut while room is filled, in percent: the slowest are cold
/// regardless of room.
const FILL_PERCENT_MAX: u32 = 90;

/// What the waits of one target's pages say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Too few pages so far.
    Unknown,
    /// No difference between pages is visible.
    Alike,
    /// Some pages are early repeatedly.
    StandOut(Cut),
}

/// Why pages below the cut are proposed, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Nothing is proposed. Faults are counted, so that counts exist when hot pages are seen to
    /// stand out.
    Counting,
    /// They are hot.
    Hot,
    /// There is room to fill.
    Fill,
    /// They are among the better ones, and the target may hold far colder pages.
    Exchange,
}

/// The pages that compete for the DRAM of one node.
#[derive(Clone, Debug)]
pub struct Target {
    sample: Sample,
    looked: Nanos,
    pages: u32,
    state: State,
    /// Waits of this bin and below are below the cut.
    cut: Option<Bin>,
    /// The cut when pages last stood out.
    last_cut: Option<Bin>,
    purpose: Purpose,
    /// Faults in a row below the cut that suffice where a page can only be promoted in exchange for
    /// another.
    enough: Option<u8>,
    /// When pages last stood out, or the time of the first fault.
    stood_out: Nanos,
    /// Base pages that may be filled.
    room: u64,
    /// No node of the top tier has room.
    full: bool,
    /// The prior by which single waits are judged.
    prior: Prior,
    /// A page with this access interval or a shorter one is worth the pages that the target gave
    /// although nothing waited for them; 0 if it gave none.
    worth: Nanos,
    /// Base pages that are free beyond what demotion keeps free.
    spare: u64,
    /// The bin at or below which as many pages wait as are spare.
    spare_cut: Option<Bin>,
}

/// A hint fault of a page that may go to the target.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Time from the scan to the fault, times the base pages.
    pub wait: Nanos,
    /// Its bin.
    pub bin: Bin,
    /// Base pages.
    pub pages: u64,
    /// Faults in a row below the cut, including this one.
    pub times: u8,
    /// The number that confirms the page.
    pub confirmed: u8,
}

/// Base pages of a node that may be filled: those free above the high watermark and a sixteenth of
/// the node.
pub fn room(state: &NodeState) -> u64 {
    let spare = state.watermarks.high_pages.saturating_add(state.managed_pages / 16);
    state.free_pages.saturating_sub(spare)
}

impl Target {
    pub fn new(now: Nanos) -> Target {
        Target {
            sample: Sample::new(),
            looked: now,
            pages: 0,
            state: State::Unknown,
            cut: None,
            last_cut: None,
            purpose: Purpose::Counting,
            enough: None,
            stood_out: now,
            room: 0,
            full: false,
            prior: Prior::new(Nanos(0), Nanos(0)),
            worth: Nanos(0),
            spare: 0,
            spare_cut: None,
        }
    }

    /// Adds a page's fault to the sample.
    pub fn faulted(&mut self, key: u64, bin: Bin, time: Nanos) {
        self.sample.fault(key, bin, time);
    }

    /// A page of the sample has been promoted, or is gone.
    pub fn moved(&mut self, key: u64) {
        self.sample.moved(key);
    }

    /// Updates the node's free memory, and stops filling when it runs out.
    pub fn set_room(&mut self, state: &NodeState) {
        self.room = room(state);
        if self.purpose == Purpose::Fill && self.room == 0 {
            self.purpose = Purpose::Counting;
        }
    }

    /// Whether no node of the top tier has room.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Base pages that are free beyond what demotion keeps free.
    pub fn set_spare(&mut self, pages: u64) {
        self.spare = pages;
    }

    /// Takes the result of a demand for cold pages of the node.
    pub fn set_worth(&mut self, supply: &Supply) {
        match supply.reason {
            DemandReason::Goal if supply.is_met() => self.worth = Nanos(supply.idle.0 / COLDER),
            DemandReason::Goal | DemandReason::Waiting => self.worth = Nanos(0),
            DemandReason::Allocations | DemandReason::Cap | DemandReason::Share => {}
        }
    }

    /// Whether a wait is below the cut; `None` if there is no cut yet.
    pub fn below_cut(&self, bin: Bin) -> Option<bool> {
        self.cut.map(|cut| bin <= cut)
    }

    /// Decides whether to propose a page after this fault: the reason, and the estimated access
    /// interval.
    pub fn judge(&mut self, fault: &Fault, config: &config::rule::Adaptive) -> Option<(Reason, Nanos)> {
        let &Fault { wait, bin, pages, times, confirmed } = fault;
        let needed = self.enough.map_or(confirmed, |enough| enough.min(confirmed));
        let hot = times >= needed && self.purpose != Purpose::Counting;
        let likely = self.prior.gap(wait, times);
        if hot {
            let reason = match self.purpose {
                Purpose::Fill => Reason::FreeRoom,
                Purpose::Exchange => Reason::Exchange,
                Purpose::Hot | Purpose::Counting => Reason::HighRate,
            };
            let sure = times >= confirmed && self.purpose != Purpose::Exchange;
            return Some((reason, if sure { wait } else { likely }));
        }
        if config.exchange && likely <= self.worth {
            return Some((Reason::Exchange, likely));
        }
        (config.fill && self.takes_spare(bin, pages)).then_some((Reason::FreeRoom, likely))
    }

    /// Whether a page with such a wait is among the best for which there is spare memory; if so,
    /// takes that memory.
    fn takes_spare(&mut self, bin: Bin, pages: u64) -> bool {
        let takes = self.spare >= pages && self.spare_cut.is_some_and(|cut| bin <= cut);
        if takes {
            self.spare -= pages;
        }
        takes
    }

    /// Evaluates the sample when it is due; `held` are the base pages of all lower tiers.
    pub fn tick(&mut self, now: Nanos, held: u64, config: &config::rule::Adaptive) {
        let since = now.since(self.looked);
        if since >= LOOK_IDLE || (since >= LOOK_EVERY && self.sample.changed()) {
            self.looked = now;
            self.look(now, held, config);
        }
    }

    /// Evaluates the sample and sets the cut.
    fn look(&mut self, now: Nanos, held: u64, config: &config::rule::Adaptive) {
        let waits = self.sample.waits(now);
        self.pages = waits.pages();
        // Relative to what lower tiers hold, not to the pages seen so far: the first to fault are
        // only a part.
        let spare_percent = (self.spare * 100 / self.sample.population(now).max(held).max(1)).min(100) as u32;
        self.spare_cut = (spare_percent > 0).then(|| waits.quantile(spare_percent));
        self.prior = Prior::new(sample::wait(waits.quantile(10)), sample::wait(waits.quantile(50)));
        self.state = match waits.cut() {
            _ if self.pages < config.pages_min => State::Unknown,
            Some(cut) => State::StandOut(cut),
            None => State::Alike,
        };
        if let State::StandOut(cut) = self.state
            && cut.agreement >= CLEAR
        {
            self.stood_out = now;
        }
        let settled = now.since(self.stood_out) >= Nanos::from_s(config.settle_s);
        let fill = config.fill && settled && self.room > 0 && waits.can_tell();
        let exchange = config.exchange && self.full;
        // The pages that stood out have been promoted but still count in the sample: the remaining
        // ones must be distinguished among themselves.
        let gone = |cut: Cut| exchange && waits.share_below(cut.bin) < REMAINS_MIN;
        self.enough = match self.state {
            _ if !exchange => None,
            State::StandOut(cut) if cut.agreement >= CLEAR && !gone(cut) => {
                (1..=config.confirmations).find(|times| cut.certainty(*times) >= CERTAIN_ENOUGH)
            }
            State::StandOut(_) | State::Alike => Some(1),
            State::Unknown => None,
        };
        match (self.state, self.last_cut) {
            (State::StandOut(_) | State::Alike, _) if fill => {
                // So that as many pages pass by chance alone as there is room for.
                let share = self.room as f64 / self.sample.population(now).max(1) as f64;
                let percent = 100.0 * share.powf(1.0 / f64::from(config.confirmations));
                self.purpose = Purpose::Fill;
                self.cut = Some(waits.quantile((percent as u32).clamp(BEST_PERCENT, FILL_PERCENT_MAX)));
            }
            (State::StandOut(cut), _) if gone(cut) => {
                self.purpose = Purpose::Exchange;
                self.cut = Some(waits.quantile(BEST_PERCENT));
                self.last_cut = Some(cut.bin);
            }
            (State::StandOut(cut), _) => {
                self.purpose = Purpose::Hot;
                // Pages less hot than those that stand out clearly are promoted only in exchange
                // for far colder ones.
                let widened = exchange && cut.agreement < CLEAR;
                let best = if widened { waits.quantile(BEST_PERCENT) } else { 0 };
                self.cut = Some(cut.bin.max(best));
                self.last_cut = self.cut;
            }
            (State::Unknown, Some(_)) => {}
            (State::Unknown, None) => {
                self.purpose = Purpose::Counting;
                self.cut = None;
            }
            (State::Alike, Some(last)) if !settled => self.cut = Some(last.min(waits.quantile(10))),
            (State::Alike, _) => {
                self.last_cut = None;
                self.purpose = if exchange { Purpose::Exchange } else { Purpose::Counting };
                self.cut = Some(waits.quantile(BEST_PERCENT));
            }
        }
    }

    pub fn gauges(&self, node: NodeId) -> Vec<Gauge> {
        let gauge = |name, value| Gauge { name, node: Some(node), value };
        let agreement = match self.state {
            State::StandOut(cut) => (cut.agreement * 100.0) as u64,
            State::Unknown | State::Alike => 0,
        };
        // The cut includes its bin: it ends where the next one begins.
        let cut_us = match (self.purpose, self.cut) {
            (Purpose::Counting, _) | (_, None) => 0,
            (_, Some(bin)) => sample::wait(bin + 1).0 / 1000,
        };
        vec![
            gauge("cut_us", cut_us),
            gauge("agreement_percent", agreement),
            gauge("filling", u64::from(self.purpose == Purpose::Fill)),
            gauge("pages_sampled", self.pages.into()),
        ]
    }
}
