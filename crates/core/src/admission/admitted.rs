//! What the door lets in: a candidate and where it may go, from the door to its outcome.

use crate::admission::Route;
use crate::candidate::Candidate;
use crate::units::{ScopeId, VirtPage};
use crate::weigh::Estimates;

/// A candidate that the door let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What was proposed, last.
    pub candidate: Candidate,
    /// What each source says of the page.
    pub estimates: Estimates,
    /// What they say together.
    pub score: u16,
    /// The page that it is about.
    pub page: VirtPage,
    /// The scope of its process.
    pub scope: ScopeId,
    /// The nodes that it may go to.
    pub route: Route,
    /// Batches that it was in without moving.
    pub tries: u8,
}

impl Admitted {
    /// A candidate that was in no batch yet.
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

    /// Base pages of its folio.
    pub const fn pages(&self) -> u64 {
        1 << self.candidate.order
    }
}
