//! Candidates: pages that a rule proposes to move, with reason and score.

use serde::Serialize;

use crate::access::{Access, Source};
use crate::label::labels;
use crate::moves::Direction;
use crate::units::{Nanos, NodeId, Pfn, VirtPage};

/// Why a rule proposes a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The hint-fault latency is below the threshold.
    ShortLatency,
    /// Few hint faults between scan and access.
    FewFaults,
    /// Two samples of the page came soon after one another.
    ShortInterval,
    /// Accessed often enough within the window.
    Frequent,
    /// Its estimated access rate stands out from the rest of its tier.
    HighRate,
    /// Its target has room to spare: either for all memory of lower tiers, or nothing stands out
    /// and the page is among the more often accessed.
    FreeRoom,
    /// Nothing stands out, the page is among the more often accessed, and its full target may hold
    /// far colder pages.
    Exchange,
    /// The neighbour of a hot page in a stream.
    Neighbour,
    /// It lies in a hot region.
    HotRegion,
    /// It lies in a cold region.
    ColdRegion,
    /// Another node of its tier accesses it.
    RemoteAccess,
}

labels!(Reason {
    ShortLatency = "short_latency",
    FewFaults = "few_faults",
    ShortInterval = "short_interval",
    Frequent = "frequent",
    HighRate = "high_rate",
    FreeRoom = "free_room",
    Exchange = "exchange",
    Neighbour = "neighbour",
    HotRegion = "hot_region",
    ColdRegion = "cold_region",
    RemoteAccess = "remote_access",
});

/// A page that a rule proposes to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The page to move; without it a candidate cannot be moved live (evidence that names only
    /// frames needs the reverse map).
    pub page: Option<VirtPage>,
    /// Its frame.
    pub pfn: Option<Pfn>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// Where it is.
    pub from: NodeId,
    /// The target the rule wants; `None` leaves the choice to admission (nearest top-tier node to
    /// the accessor).
    pub target: Option<NodeId>,
    /// The node that accesses it, where known.
    pub accessor: Option<NodeId>,
    /// The direction.
    pub direction: Direction,
    /// Rank: the candidate with the highest score moves first. Rules that know a rate use
    /// [`score_of_rate`].
    pub score: u16,
    /// Why the rule proposes it.
    pub reason: Reason,
    /// The source of the evidence on which the rule proposed it.
    pub source: Source,
    /// When it was proposed.
    pub time: Nanos,
    /// When the proposal is too old to act on.
    pub expires: Nanos,
}

impl Candidate {
    /// Proposes to promote the accessed folio. The target is left to admission; the candidate
    /// expires `life` after the access.
    #[inline]
    pub fn promotion(access: &Access, score: u16, reason: Reason, life: Nanos) -> Candidate {
        Candidate {
            page: access.page,
            pfn: access.pfn,
            order: access.order,
            from: access.node,
            target: None,
            accessor: access.accessor,
            direction: Direction::Promote,
            score,
            reason,
            source: access.detail.source(),
            time: access.time,
            expires: access.time.plus(life),
        }
    }
}

/// The score of a page with an access interval of `gap`: 2000 minus 64 times log2 of the interval
/// in µs. It makes scores of rules and sources that measure a rate comparable. 1 µs gives 2000, 1
/// ms about 1362, 1 s about 724.
pub fn score_of_rate(gap: Nanos) -> u16 {
    let us = (gap.0 / 1000).max(1);
    let whole = us.ilog2();
    // Sixty-fourths of an octave, linear inside it: monotone, and integer on every machine.
    // Below 2^55 µs the product fits: no gap in ns is longer.
    let part = (((us - (1 << whole)) << 6) >> whole) as u32;
    2000u32.saturating_sub(whole * 64 + part) as u16
}

/// The approximate access interval of a score: the inverse of [`score_of_rate`]. The lowest scores
/// mean 36 minutes and more.
pub fn gap_of_score(score: u16) -> Nanos {
    let sixty_fourths = 2000u32.saturating_sub(score.into());
    let (whole, part) = (sixty_fourths / 64, u64::from(sixty_fourths % 64));
    // At most 31 octaves: it fits.
    Nanos(((1u64 << whole) * 1000 * (64 + part)) / 64)
}

/// Collects the candidates of a rule; bounded, so that a faulty rule cannot exhaust memory.
#[derive(Debug)]
pub struct Candidates {
    items: Vec<Candidate>,
    limit: usize,
    dropped: u64,
}

impl Candidates {
    /// A collector of at most `limit` candidates.
    pub fn new(limit: usize) -> Candidates {
        Candidates { items: Vec::new(), limit, dropped: 0 }
    }

    /// Takes a candidate, or counts it as dropped if the collector is full.
    pub fn push(&mut self, candidate: Candidate) {
        if self.items.len() < self.limit {
            self.items.push(candidate);
        } else {
            self.dropped += 1;
        }
    }

    /// The candidates so far, oldest first.
    pub fn items(&self) -> &[Candidate] {
        &self.items
    }

    /// Removes and yields all candidates, keeping the memory for the next round.
    pub fn drain(&mut self) -> impl Iterator<Item = Candidate> + '_ {
        self.items.drain(..)
    }

    /// Candidates that did not fit since the collector was created.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fall_with_the_gap_and_span_the_useful_range() {
        assert_eq!(score_of_rate(Nanos(0)), 2000);
        assert_eq!(score_of_rate(Nanos::from_ms(1)), 2000 - (9 * 64 + 61));
        assert_eq!(score_of_rate(Nanos::from_s(1)), 2000 - (19 * 64 + 58));
        let mut last = u16::MAX;
        for us in 1..100_000u64 {
            let score = score_of_rate(Nanos(us * 1000));
            assert!(score <= last);
            last = score;
        }
        assert!(score_of_rate(Nanos(u64::MAX)) < 100);
    }

    #[test]
    fn a_score_tells_its_gap_again() {
        for us in [1u64, 7, 1000, 229_376, 1_000_000, 1_000_000_000] {
            let gap = gap_of_score(score_of_rate(Nanos(us * 1000))).0 as f64 / 1000.0;
            assert!((gap / us as f64 - 1.0).abs() < 1.0 / 64.0, "{us}: {gap}");
        }
        assert_eq!(gap_of_score(u16::MAX), Nanos(1000));
    }
}
