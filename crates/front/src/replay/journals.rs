//! Compares two journals that come piece by piece.

use std::collections::VecDeque;

use serde::Serialize;
use thermocline_core::journal::Decision;

/// The first decision that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its number, from 0.
    pub number: u64,
    /// What was recorded; `None`: nothing more.
    pub recorded: Option<Decision>,
    /// What the replay decided.
    pub replayed: Option<Decision>,
}

/// What of two journals is not compared yet, and what came out so far. Decisions that are equal are
/// equal bytes: both journals are written by the same serialisation of all of a decision.
#[derive(Debug, Default)]
pub struct Journals {
    recorded: VecDeque<Decision>,
    replayed: VecDeque<Decision>,
    counts: [u64; 2],
    equal: u64,
    first: Option<Difference>,
}

impl Journals {
    /// Adds the next decisions of both.
    pub fn add(&mut self, recorded: &[Decision], replayed: &[Decision]) {
        self.counts[0] += recorded.len() as u64;
        self.counts[1] += replayed.len() as u64;
        if self.first.is_some() {
            return;
        }
        self.recorded.extend(recorded);
        self.replayed.extend(replayed);
        while let (Some(a), Some(b)) = (self.recorded.front(), self.replayed.front()) {
            if a != b {
                self.first = Some(Difference { number: self.equal, recorded: Some(*a), replayed: Some(*b) });
                return;
            }
            self.equal += 1;
            self.recorded.pop_front();
            self.replayed.pop_front();
        }
    }

    /// Decisions recorded, and replayed.
    pub fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// Whether they are the same.
    pub fn is_same(&self) -> bool {
        self.first().is_none()
    }

    /// The first that differs, once all were added.
    pub fn first(&self) -> Option<Difference> {
        let (recorded, replayed) = (self.recorded.front().copied(), self.replayed.front().copied());
        self.first.clone().or_else(|| {
            let ends = recorded.is_some() || replayed.is_some();
            ends.then_some(Difference { number: self.equal, recorded, replayed })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::diff::tests::decision;
    use super::*;
    use thermocline_core::journal::What;

    #[test]
    fn it_does_not_matter_how_they_come() {
        let all: Vec<Decision> = (0..10).map(|n| decision(n, What::Proposed)).collect();
        let mut journals = Journals::default();
        journals.add(&all[..3], &all[..1]);
        journals.add(&[], &all[1..9]);
        journals.add(&all[3..], &all[9..]);
        assert!(journals.is_same());
        assert_eq!(journals.counts(), [10, 10]);
        journals.add(&[], &all[..1]);
        let first = journals.first().unwrap();
        assert_eq!((first.number, first.recorded, first.replayed), (10, None, Some(all[0])));
    }

    #[test]
    fn the_first_difference_stays_the_first() {
        let mut journals = Journals::default();
        journals.add(&[decision(1, What::Proposed)], &[decision(1, What::Evicted)]);
        journals.add(&[decision(2, What::Proposed)], &[decision(2, What::Exited)]);
        assert_eq!(journals.first().map(|first| first.number), Some(0));
        assert_eq!(journals.counts(), [2, 2]);
    }
}
