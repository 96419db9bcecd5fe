//! Why a page did or did not move.

use serde::Serialize;

use crate::access::Source;
use crate::admission::{Admitted, Braking, Standing};
use crate::candidate::gap_of_score;
use crate::engine::Engine;
use crate::journal::{Decision, What};
use crate::label::Label;
use crate::moves::BatchId;
use crate::payoff::{Judged, Room};
use crate::refusal::RefusalReason;
use crate::units::{Nanos, NodeId, Pfn, VirtPage};
use crate::weigh::Estimate;

/// Decisions that an explanation shows at most.
const DECISIONS_MAX: usize = 32;

/// What the engine knows of a page.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The page asked about.
    pub page: VirtPage,
    /// The page that maps the head of its folio: the one that the decisions are about.
    pub head: VirtPage,
    /// The head's frame, if known.
    pub pfn: Option<Pfn>,
    /// The record of the frame.
    pub record: Option<Remembered>,
    /// The state of the page now.
    pub state: PageState,
    /// The state of its process's scope, if that has a floor or a cap.
    pub scope: Option<Standing>,
    /// How that scope is braked.
    pub brake: Option<Braking>,
    /// What its promotion would gain, if it waits for that or was refused for it.
    pub gain: Option<Judged>,
    /// The latest decisions on it, oldest first.
    pub decisions: Vec<Decision>,
    /// All of it in a sentence.
    pub summary: String,
}

/// A record as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Remembered {
    /// Accesses counted.
    pub frequency: u8,
    /// Time since the last access in ms, if the record reaches that far.
    pub gap_ms: Option<u64>,
    /// The node that accessed it last, where the record keeps it.
    pub node: Option<NodeId>,
    /// Whether the rule finds it hot.
    pub ready: bool,
}

/// One source's estimate for a waiting page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The source.
    pub source: Source,
    /// The time between two accesses of the page, in µs.
    pub gap_us: u64,
    /// When the estimate expires.
    pub expires: Nanos,
}

impl From<(Source, Estimate)> for Said {
    fn from((source, estimate): (Source, Estimate)) -> Said {
        Said { source, gap_us: gap_of_score(estimate.score).0 / 1000, expires: estimate.expires }
    }
}

/// The state of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PageState {
    /// No candidate: nothing is known of it, or the rule did not propose it.
    Idle,
    /// A candidate that waits.
    Waiting {
        /// The combined score of all sources.
        score: u16,
        /// Each source's estimate.
        estimates: Vec<Said>,
        /// When the rule last proposed it.
        since: Nanos,
        /// When its evidence expires.
        expires: Nanos,
        /// Batches in which it failed to move.
        tries: u8,
        /// What holds it; `None` if its turn has not come.
        held: Option<RefusalReason>,
    },
    /// In flight.
    InFlight {
        /// In this batch.
        batch: BatchId,
        /// Time of issue.
        since: Nanos,
        /// To this node.
        to: NodeId,
    },
    /// Not moved for a while.
    LeftAlone {
        /// The reason.
        why: RefusalReason,
        /// The end of that time.
        until: Nanos,
        /// Moves of the page within the ping-pong window.
        moves: u32,
    },
}

impl Engine {
    /// Why the page did or did not move, from the engine's state.
    pub fn explain(&self, page: VirtPage) -> Explanation {
        self.explain_at(page, None)
    }

    /// The same, if the caller knows the page's present frame (pagemap). A page that was part of a
    /// folio in a decision is explained by the folio, whose record is that of its head.
    pub fn explain_at(&self, page: VirtPage, pfn: Option<Pfn>) -> Explanation {
        let decisions = self.journal.of(page, DECISIONS_MAX);
        let head = self.head(page, decisions.last());
        let tails_before = page.vpn - head.vpn;
        let given = pfn.map(|pfn| Pfn(pfn.0.saturating_sub(tails_before)));
        let seen = || self.queue.get(head).and_then(|w| w.candidate.pfn);
        let noted = || decisions.iter().rev().filter(|d| d.page == head).find_map(|d| d.pfn);
        let pfn = given.or_else(seen).or_else(noted);
        let record = pfn.and_then(|pfn| self.record(pfn)).map(|r| Remembered {
            frequency: r.frequency,
            gap_ms: r.gap.map(Nanos::ms),
            node: r.node,
            ready: r.ready,
        });
        let state = self.state(head);
        let summary = summary(&state, record.as_ref(), decisions.last(), self.clock());
        let scope = self.admission.scope_of(page.pid);
        let brake = self.brakes().into_iter().find(|braking| Some(braking.scope) == scope);
        let scope = self.standings().into_iter().find(|standing| Some(standing.scope) == scope);
        let gain = self.gain(head, decisions.last());
        Explanation { page, head, pfn, record, state, scope, brake, gain, decisions, summary }
    }

    /// What the promotion of a page would gain, by what the rule last claimed of it.
    fn gain(&self, head: VirtPage, last: Option<&Decision>) -> Option<Judged> {
        let payoff = self.payoff.as_ref()?;
        let scope = self.admission.scope_of(head.pid);
        let room = scope.map_or(Room::Priced, |scope| self.room_of(scope));
        if let Some(waiting) = self.queue.get(head) {
            return payoff.of(&waiting.candidate, room);
        }
        match last?.what {
            What::Refused { reason: RefusalReason::HeldOut | RefusalReason::NotWorth } => {
                Some(payoff.judged(gap_of_score(last?.score), room))
            }
            _ => None,
        }
    }

    /// The page by which the engine knows the folio of `page`: the page itself if the engine has
    /// state for it now.
    fn head(&self, page: VirtPage, last: Option<&Decision>) -> VirtPage {
        if let Some(flight) = self.admission.holder(page) {
            let covers = |w: &&Admitted| page.vpn.wrapping_sub(w.page.vpn) < 1 << w.candidate.order;
            return flight.candidates.iter().find(covers).map_or(page, |w| w.page);
        }
        match self.state(page) {
            PageState::Idle => last.map_or(page, |d| d.page),
            _ => page,
        }
    }

    fn state(&self, page: VirtPage) -> PageState {
        if let Some(flight) = self.admission.holder(page) {
            return PageState::InFlight { batch: flight.id, since: flight.issued, to: flight.target };
        }
        if let Some(waiting) = self.queue.get(page) {
            return PageState::Waiting {
                score: waiting.score,
                estimates: waiting.estimates.iter().map(Said::from).collect(),
                since: waiting.candidate.time,
                expires: waiting.candidate.expires,
                tries: waiting.tries,
                held: self.queue.held(page),
            };
        }
        match self.admission.left_alone(page, self.clock()) {
            Some(alone) => PageState::LeftAlone { why: alone.why, until: alone.until, moves: alone.moves },
            None => PageState::Idle,
        }
    }
}

fn summary(state: &PageState, record: Option<&Remembered>, last: Option<&Decision>, now: Nanos) -> String {
    let because = |reason: RefusalReason| format!("{}: {}", reason.name(), reason.meaning());
    match (state, last.map(|d| d.what)) {
        (PageState::InFlight { batch, since, to }, _) => {
            format!("on its way to {to} in batch {} for {} ms", batch.0, now.since(*since).ms())
        }
        (PageState::Waiting { score, held: Some(reason), .. }, _) => {
            format!("waits with score {score}; {}", because(*reason))
        }
        (PageState::Waiting { score, held: None, .. }, _) => {
            format!("waits with score {score}; its turn has not come")
        }
        (PageState::LeftAlone { why, until, .. }, _) => {
            format!("left alone for another {} ms; {}", until.since(now).ms(), because(*why))
        }
        (PageState::Idle, Some(What::Moved { .. })) => {
            "moved; nothing has made it a candidate since".to_owned()
        }
        (PageState::Idle, Some(What::Refused { reason })) => format!("refused; {}", because(reason)),
        (PageState::Idle, Some(What::Expired { held: Some(reason) })) => {
            format!("waited until its evidence was too old; {}", because(reason))
        }
        (PageState::Idle, Some(What::Expired { held: None })) => {
            "waited until its evidence was too old; its turn did not come".to_owned()
        }
        (PageState::Idle, Some(What::Failed { outcome, .. })) => {
            format!("did not move; the mover says {}", outcome.name())
        }
        (PageState::Idle, Some(_)) => "was a candidate and is none now; the decisions tell".to_owned(),
        (PageState::Idle, None) if record.is_some() => {
            "has been seen, but the rule has not found it worth moving".to_owned()
        }
        (PageState::Idle, None) => "no evidence of it, or none that is still remembered".to_owned(),
    }
}
