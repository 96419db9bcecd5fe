//! A candidate that the door admitted, and the nodes it may go to; kept until its outcome.

use crate::admission::Route;
use crate::candidate::Candidate;
use crate::units::{ScopeId, VirtPage};
use crate::weigh::Estimates;

/// A candidate that the door admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The latest proposal.
    pub candidate: Candidate,
    /// Each source's estimate for the page.
    pub estimates: Estimates,
    /// The combined score of the estimates.
    pub score: u16,
    /// The page to move.
    pub page: VirtPage,
    /// The scope of its process.
    pub scope: ScopeId,
    /// The nodes that it may go to.
    pub route: Route,
    /// Batches in which it failed to move.
    pub tries: u8,
}

impl Admitted {
    /// A candidate that has not been in a batch.
    pub fn new(candidate: &Candidate, page: VirtPage, scope: ScopeId, route: Route) -> Admitted {
        Admitted {
            candidate: *candidate,
            estimates: Estimates::of(candidate),
            score: candidate.score,
            page,
            scope,
            route,
            tries: 0,
        }
    }

    /// The same with another score than the rule's.
    pub fn rated(self, score: u16) -> Admitted {
        Admitted { estimates: Estimates::of(&Candidate { score, ..self.candidate }), score, ..self }
    }

    /// Base pages of its folio.
    pub const fn pages(&self) -> u64 {
        1 << self.candidate.order
    }
}
