//! A scheme's pattern, score and quota.

use thermocline_core::published::damon::{SCORE_MAX, Weights, hot_score};
use thermocline_core::units::{Nanos, PAGE_SIZE};

use super::frames::Frame;
use super::regions::Region;
use super::settings::{Action, Goal, SchemeSettings, next_input};
use crate::system::System;

/// Throughput that is assumed before there is any experience (Linux 6.12
/// `damos_set_effective_quota`): 4 MiB a ms.
const FIRST_PAGES_PER_MS: f64 = 1024.0;

/// The state of a scheme.
#[derive(Clone, Debug)]
pub struct Scheme {
    pub(super) settings: SchemeSettings,
    /// When the quota's window began.
    window: Option<Nanos>,
    /// When it is applied next.
    pub(super) due: Nanos,
    /// Frames that may be tried in the window; computed when it begins.
    allowed: u64,
    charged: u64,
    /// Frames tried and time spent so far, for the throughput.
    all_frames: u64,
    all_ns: f64,
    /// What a goal allows, in ten-thousandths of a byte.
    goal_bp: u64,
    /// Lowest score that is tried in the window.
    score_min: u32,
    /// Frame at which a window ran out, for the next one's first application.
    pub(super) resume: Option<Frame>,
}

impl Scheme {
    pub(super) fn new(settings: SchemeSettings) -> Scheme {
        Scheme {
            settings,
            window: None,
            due: Nanos(0),
            allowed: 0,
            charged: 0,
            all_frames: 0,
            all_ns: 0.0,
            goal_bp: 0,
            score_min: 0,
            resume: None,
        }
    }

    /// Whether its pattern matches a region with this many accesses.
    pub(super) fn fits(&self, region: &Region, accesses: u32) -> bool {
        self.settings.accesses.contains(&accesses) && region.age >= self.settings.age_min
    }

    /// The score by which regions are preferred, 0 to 99; an aggregation lasts `aggregation` and
    /// has `most` samples.
    pub(super) fn score(&self, region: &Region, accesses: u32, most: u32, aggregation: Nanos) -> u32 {
        let age = Nanos(u64::from(region.age).saturating_mul(aggregation.0));
        let (of_accesses, of_age) = self.settings.weights;
        let weights = Weights { accesses: of_accesses, age: of_age };
        let hot = hot_score(accesses.into(), most.into(), age, weights);
        match self.settings.action {
            Action::Promote => hot,
            Action::Demote => SCORE_MAX - hot,
        }
    }

    /// Begins a window of the quota if it is due; `candidates` has score and frames of the matching
    /// regions.
    pub(super) fn allow(&mut self, system: &System, candidates: impl Iterator<Item = (u32, u64)>) {
        if self.window.is_some_and(|since| system.now.since(since).0 < self.settings.reset.0) {
            return;
        }
        let mut allowed = self.settings.size_pages;
        if let Some(goal) = self.settings.goal {
            self.goal_bp = next_input(self.goal_bp.max(10_000), goal_score(system, goal));
            allowed = allowed.min(self.goal_bp / 10_000 / PAGE_SIZE);
        }
        if let Some(time_ms) = self.settings.time_ms {
            let per_ms = if self.all_ns > 0.0 {
                self.all_frames as f64 / self.all_ns * 1e6
            } else {
                FIRST_PAGES_PER_MS
            };
            allowed = allowed.min(((per_ms * time_ms) as u64).max(1));
        }
        let mut sizes = [0u64; SCORE_MAX as usize + 1];
        candidates.for_each(|(score, frames)| sizes[score as usize] += frames);
        let mut sum = 0;
        let enough = sizes.iter().enumerate().rev().find(|(_, size)| {
            sum += **size;
            sum >= allowed
        });
        self.score_min = enough.map_or(0, |(score, _)| score as u32);
        (self.window, self.allowed, self.charged) = (Some(system.now), allowed, 0);
    }

    /// Whether regions of this score may be tried in the window.
    pub(super) fn takes(&self, score: u32) -> bool {
        score >= self.score_min
    }

    /// Frames that may still be tried in the window.
    pub(super) fn left(&self) -> u64 {
        self.allowed.saturating_sub(self.charged)
    }

    /// Charges a region that was tried up to `end`.
    pub(super) fn charge(&mut self, frames: u64, ns: f64, end: Frame) {
        self.charged += frames;
        self.all_frames += frames;
        self.all_ns += ns;
        if self.left() == 0 {
            self.resume = Some(end);
        }
    }
}

/// How far a goal has been reached: 10,000 if it is just met. It is measured on the top tier's
/// first node.
fn goal_score(system: &System, goal: Goal) -> u64 {
    let node = &system.memory.nodes[0];
    let share_bp = |pages: u64| 10_000 * pages / node.capacity.max(1);
    let (now_bp, wanted_bp) = match goal {
        Goal::Used(bp) => (share_bp(node.used), bp),
        Goal::Free(bp) => (share_bp(system.memory.free(0)), bp),
    };
    now_bp * 10_000 / u64::from(wanted_bp.max(1))
}

#[cfg(test)]
mod tests {
    use thermocline_core::config::Damon;

    use super::*;
    use crate::kernel::damon::settings::{Recheck, Settings};

    #[test]
    fn hmsdk_prefers_the_longer_hot_and_the_longer_cold() {
        let settings = Settings::new(&Damon::default(), Recheck::References).expect("all of it is simulated");
        let (up, down) = (Scheme::new(settings.promote), Scheme::new(settings.demote));
        let aged = |age| Region { age, ..Region::new(0, 1) };
        let second = Nanos::from_s(2);
        let scored = |accesses, age| up.score(&aged(age), accesses, 20, second);
        assert!(scored(1, 100) > scored(20, 10), "frequency does not rank");
        let cold = |age| down.score(&aged(age), 0, 20, second);
        assert!(cold(1000) > cold(20));
        assert!(!down.fits(&aged(14), 0) && down.fits(&aged(15), 0) && !down.fits(&aged(15), 1));
        assert!(!up.fits(&aged(15), 0) && up.fits(&aged(0), 1));
    }

    #[test]
    fn mtier_ranks_by_frequency_too() {
        let scheme = Scheme::new(Settings::mtier().promote);
        let scored = |accesses| scheme.score(&Region::new(0, 1), accesses, 20, Nanos::from_ms(100));
        // Halfway between the two: 100 * 20/20 and 50 for an age below a second.
        assert_eq!((scored(20), scored(0)), (75 * 99 / 100, 25 * 99 / 100));
    }
}
