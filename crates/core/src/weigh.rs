//! Combines the estimates of several sources for one page.
//!
//! Each source that makes a rule propose a page gives an estimate of the access interval, which is
//! the proposal's [score](crate::candidate::score_of_rate). An octave is 64 points, so the mean of
//! scores is the geometric mean of intervals. The certainty of a source is its *weight* w: prior
//! variance of log(access interval) over the variance left after one observation. For the estimates
//! s that have not expired:
//!
//! * the page's score is the weighted mean `sum(w s) / sum(w)`;
//! * its rank adds a score of 0 with weight 1: `sum(w s) / (1 + sum(w))`. A page is assumed to be
//!   cold until evidence shows otherwise, so of equal scores the one known from a more certain
//!   source, or from more sources, goes first.
//!
//! With one source alone, the order is that of the scores.

use serde::ser::{Serialize, SerializeSeq, Serializer};

use crate::access::Source;
use crate::candidate::Candidate;
use crate::config;
use crate::label::Label;
use crate::units::Nanos;

/// Number of sources.
const SOURCES: usize = Source::ALL.len();
/// Steps of a rank in a point of score: enough for scores to keep their order in ranks.
const STEPS: u64 = 32;

/// The weight of each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights([u64; SOURCES]);

impl Weights {
    /// The configured weights.
    pub fn new(keys: &config::Sources) -> Weights {
        Weights(std::array::from_fn(|n| keys.keys(Source::ALL[n]).weight().into()))
    }

    /// The weight of a source.
    pub fn of(&self, source: Source) -> u64 {
        self.0[source.index()]
    }
}

/// One source's estimate for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Its [score](crate::candidate::score_of_rate).
    pub score: u16,
    /// When it expires.
    pub expires: Nanos,
}

/// The estimates of all sources for a page.
/// Every entry of the queue has one, so it is kept small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimates {
    /// The sources with an estimate; what the arrays hold for others is 0.
    told: Sources,
    scores: [u16; SOURCES],
    expires: [Nanos; SOURCES],
}

/// The combined result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// The page's score.
    pub score: u16,
    /// Its rank: the highest goes first.
    pub rank: u32,
    /// The source with the largest influence.
    pub chief: Source,
}

impl Weighed {
    /// The result of a single candidate.
    pub fn of(candidate: &Candidate) -> Weighed {
        Weighed { score: candidate.score, rank: 0, chief: candidate.source }
    }
}

impl Estimates {
    /// The estimate of a proposal.
    pub fn of(candidate: &Candidate) -> Estimates {
        let mut estimates = Estimates::default();
        estimates.take(candidate.source, Estimate { score: candidate.score, expires: candidate.expires });
        estimates
    }

    /// Takes the estimate of a source, in place of its last one.
    fn take(&mut self, source: Source, estimate: Estimate) {
        self.told = self.told.and(source);
        self.scores[source.index()] = estimate.score;
        self.expires[source.index()] = estimate.expires;
    }

    /// Merged with later estimates at `now`: the latest of each source, unless expired.
    pub fn renewed(&self, later: &Estimates, now: Nanos) -> Estimates {
        let mut renewed = Estimates::default();
        for (source, estimate) in self.iter().chain(later.iter()) {
            renewed.take(source, estimate);
        }
        let live = renewed.iter().filter(|(_, estimate)| estimate.expires > now);
        live.fold(Estimates::default(), |mut live, (source, estimate)| {
            live.take(source, estimate);
            live
        })
    }

    /// Each source with an estimate, and the estimate.
    pub fn iter(&self) -> impl Iterator<Item = (Source, Estimate)> + '_ {
        let of = |source: Source| {
            let (score, expires) = (self.scores[source.index()], self.expires[source.index()]);
            (source, Estimate { score, expires })
        };
        self.told.iter().map(of)
    }

    /// The sources with an estimate.
    pub fn sources(&self) -> Sources {
        self.told
    }

    /// The combined result; `None` without an estimate.
    pub fn weigh(&self, weights: &Weights) -> Option<Weighed> {
        let chief = self
            .iter()
            .map(|(source, _)| source)
            .reduce(|best, next| if weights.of(next) > weights.of(best) { next } else { best })?;
        let (sum, all) = self.iter().fold((0, 0), |(sum, all), (source, estimate)| {
            let weight = weights.of(source);
            (sum + weight * u64::from(estimate.score), all + weight)
        });
        // Neither mean exceeds the highest score.
        let (score, rank) = ((sum / all.max(1)) as u16, (sum * STEPS / (1 + all)) as u32);
        Some(Weighed { score, rank, chief })
    }
}

/// A set of sources; it serialises as a list of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources(u8);

impl Sources {
    /// The set with `source` added.
    pub fn and(self, source: Source) -> Sources {
        Sources(self.0 | 1 << source.index())
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL.iter().copied().filter(move |source| self.0 & (1 << source.index()) != 0)
    }
}

impl Serialize for Sources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for source in self.iter() {
            list.serialize_element(&source)?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::candidate::score_of_rate;

    fn weights() -> Weights {
        Weights::new(&config::Sources::default())
    }

    /// Estimates of sources, each valid for ten seconds from `now` on.
    fn say(said: &[(Source, Nanos)], now: Nanos) -> Estimates {
        let mut estimates = Estimates::default();
        for (source, gap) in said {
            let estimate = Estimate { score: score_of_rate(*gap), expires: now.plus(Nanos::from_s(10)) };
            estimates.take(*source, estimate);
        }
        estimates
    }

    fn weighed(said: &[(Source, Nanos)]) -> Weighed {
        say(said, Nanos(0)).weigh(&weights()).unwrap()
    }

    #[test]
    fn two_sources_of_equal_weight_meet_at_the_geometric_mean() {
        let (fast, slow) = (Nanos::from_ms(10), Nanos::from_ms(1000));
        let both = weighed(&[(Source::HintFault, fast), (Source::HwSample, slow)]);
        // Scores are linear inside an octave, so the mean is approximate.
        assert!(both.score.abs_diff(score_of_rate(Nanos::from_ms(100))) <= 6, "{both:?}");
        // A region counts less, a counter more.
        let region = weighed(&[(Source::HintFault, fast), (Source::Damon, slow)]);
        let counter = weighed(&[(Source::HintFault, fast), (Source::Device, slow)]);
        assert!(counter.score < both.score && both.score < region.score);
        assert_eq!((region.chief, counter.chief), (Source::HintFault, Source::Device));
    }

    #[test]
    fn of_equal_scores_the_one_goes_first_that_is_known_better() {
        let gap = Nanos::from_ms(50);
        let ranks = [
            &[(Source::Damon, gap)][..],
            &[(Source::HintFault, gap)],
            &[(Source::HintFault, gap), (Source::Damon, gap)],
            &[(Source::HintFault, gap), (Source::HwSample, gap)],
            &[(Source::Device, gap)],
        ]
        .map(weighed);
        assert!(ranks.is_sorted_by(|a, b| a.rank < b.rank), "{ranks:?}");
        assert!(ranks.iter().all(|w| w.score == score_of_rate(gap)));
    }

    #[test]
    fn what_was_said_too_long_ago_counts_no_more_and_a_later_word_replaces_an_earlier_one() {
        let (fast, slow) = (Nanos::from_ms(1), Nanos::from_ms(1000));
        let first = say(&[(Source::HintFault, fast), (Source::HwSample, fast)], Nanos(0));
        let later = say(&[(Source::HintFault, slow)], Nanos::from_s(9));
        let both = first.renewed(&later, Nanos::from_s(9));
        assert_eq!(
            both,
            say(&[(Source::HintFault, slow)], Nanos::from_s(9)).renewed(&both, Nanos::from_s(9))
        );
        assert_eq!(both.sources().iter().collect::<Vec<_>>(), [Source::HintFault, Source::HwSample]);
        let alone = first.renewed(&later, Nanos::from_s(10));
        assert_eq!(alone, later);
    }

    #[test]
    fn a_set_of_sources_is_told_by_their_names() {
        let set = Sources::default().and(Source::Damon).and(Source::HintFault);
        assert_eq!(serde_json::to_value(set).unwrap(), serde_json::json!(["hint-fault", "damon"]));
        assert_eq!(Estimates::default().weigh(&weights()), None);
    }

    proptest! {
        #[test]
        fn with_one_source_alone_the_order_is_that_of_the_scores(
            source in 0..SOURCES, weight in 1u64..=100, one in any::<u16>(), other in any::<u16>(),
        ) {
            let weights = Weights([weight; SOURCES]);
            let rank = |score| {
                let mut estimates = Estimates::default();
                estimates.take(Source::ALL[source], Estimate { score, expires: Nanos(1) });
                estimates.weigh(&weights).unwrap()
            };
            prop_assert_eq!(rank(one).rank.cmp(&rank(other).rank), one.cmp(&other));
            prop_assert_eq!(rank(one).score, one);
        }

        #[test]
        fn the_score_lies_between_what_the_sources_say(scores in proptest::array::uniform4(any::<u16>())) {
            let mut all = Estimates::default();
            for (source, score) in Source::all().zip(scores) {
                all.take(source, Estimate { score, expires: Nanos(1) });
            }
            let score = all.weigh(&weights()).unwrap().score;
            prop_assert!(scores.iter().min().unwrap() <= &score && &score <= scores.iter().max().unwrap());
        }
    }
}
