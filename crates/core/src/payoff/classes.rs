//! What held-out pages have shown, by the octave of the access interval that was claimed of them.

use crate::units::Nanos;

/// Octaves of an interval, from 1 µs on.
pub(super) const OCTAVES: u8 = 40;
/// Time in which what was seen comes to count half.
const HALF_LIFE_S: f64 = 60.0;
/// Passes of held-out pages that suffice to judge a class.
const PASSES_MIN: f64 = 32.0;
/// Faults within a bound that suffice to use it: one in a thousand pages is early by chance.
const FAULTS_MIN: f64 = 4.0;
/// Longest stay, in watches.
const STAY_MAX: f64 = 10.0;

/// The octave of an interval.
pub(super) fn octave(gap: Nanos) -> u8 {
    ((gap.0 / 1000).max(1).ilog2() as u8).min(OCTAVES - 1)
}

/// Accesses a second in the middle of an octave.
pub(super) fn rate_of(octave: u8) -> f64 {
    1e6 / (1.5 * (1u64 << octave) as f64)
}

/// Passes of held-out pages, and the faults in them.
#[derive(Clone, Copy, Debug)]
struct Half {
    passes: f64,
    /// By the octave of their wait.
    faults: [f64; OCTAVES as usize],
}

/// The pages of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// In the first half of their watch, and in the second.
    halves: [Half; 2],
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Classes(Vec<Class>);

impl Default for Classes {
    fn default() -> Classes {
        Classes(vec![Class::default(); usize::from(OCTAVES)])
    }
}

impl Default for Class {
    fn default() -> Class {
        Class { halves: [Half { passes: 0.0, faults: [0.0; OCTAVES as usize] }; 2] }
    }
}

impl Classes {
    pub(super) fn of(&self, octave: u8) -> &Class {
        &self.0[usize::from(octave)]
    }

    /// A held-out page of a class has faulted after a wait of octave `wait`.
    pub(super) fn fault(&mut self, octave: u8, late: bool, wait: u8) {
        let class = &mut self.0[usize::from(octave)];
        class.pass(late, 1.0);
        class.fault(late, wait, 1.0);
    }

    /// One has not faulted in a pass.
    pub(super) fn silent(&mut self, octave: u8, late: bool) {
        self.0[usize::from(octave)].pass(late, 1.0);
    }

    /// Time passes: older faults count less.
    pub(super) fn fade(&mut self, passed_s: f64) {
        self.0.iter_mut().for_each(|class| class.fade(passed_s));
    }
}

impl Class {
    /// Pages have been passed, in so many passes in all.
    pub(super) fn pass(&mut self, late: bool, passes: f64) {
        self.halves[usize::from(late)].passes += passes;
    }

    /// So many pages have faulted after a wait of octave `wait`.
    pub(super) fn fault(&mut self, late: bool, wait: u8, pages: f64) {
        self.halves[usize::from(late)].faults[usize::from(wait)] += pages;
    }

    /// Time passes: older faults count less.
    pub(super) fn fade(&mut self, passed_s: f64) {
        let factor = (-passed_s / HALF_LIFE_S).exp2();
        for half in &mut self.halves {
            half.passes *= factor;
            half.faults.iter_mut().for_each(|faults| *faults *= factor);
        }
    }

    /// Whether there are enough passes to judge the class.
    pub(super) fn is_known(&self) -> bool {
        self.passes() >= PASSES_MIN
    }

    /// Accesses a second of its pages, at least: the largest bound, so many standard errors below
    /// what was seen.
    pub(super) fn rate(&self, errors: f64) -> f64 {
        self.bounds().map(|(below, rate)| rate * (1.0 - errors / below.sqrt())).fold(0.0, f64::max)
    }

    /// Time for which its pages stay as hot as they are, s, if they are watched for `watch_s`: of
    /// what they are worth in the first half, a part r is left in the second, and r of that in the
    /// next.
    pub(super) fn stay(&self, watch_s: f64) -> f64 {
        let [early, late] = &self.halves;
        let best = self.bounds().enumerate().max_by(|(_, a), (_, b)| a.1.total_cmp(&b.1)).map(|(i, _)| i);
        let Some(octave) = best.filter(|_| early.passes.min(late.passes) >= PASSES_MIN / 2.0) else {
            return watch_s;
        };
        let below = |half: &Half| half.faults[..=octave].iter().sum::<f64>();
        let of_early = (below(early) / early.passes).max(f64::MIN_POSITIVE);
        let of_late = (below(late) - below(late).sqrt()).max(0.0) / late.passes;
        let left = (of_late / of_early).min(1.0);
        let halves = 1.0 / (1.0 - left).max(0.5 / STAY_MAX);
        watch_s / 2.0 * halves
    }

    fn passes(&self) -> f64 {
        self.halves.iter().map(|half| half.passes).sum()
    }

    /// For each octave, the faults of at most such a wait, and the bound that follows.
    fn bounds(&self) -> impl Iterator<Item = (f64, f64)> {
        let passes = self.passes();
        let mut below = 0.0;
        (0..usize::from(OCTAVES)).map(move |octave| {
            below += self.halves.iter().map(|half| half.faults[octave]).sum::<f64>();
            let longest_s = (2u64 << octave) as f64 / 1e6;
            let enough = below >= FAULTS_MIN;
            (below, if enough { below / passes / longest_s } else { 0.0 })
        })
    }
}
