//! What held-out pages have shown, by the octave of the access interval that was claimed of them.

use crate::units::Nanos;

/// Octaves of an interval, from 1 µs on.
pub(super) const OCTAVES: u8 = 40;
/// Time in which what was seen comes to count half.
const HALF_LIFE_S: f64 = 60.0;
/// Passes of held-out pages that suffice to judge a class.
const PASSES_MIN: f64 = 32.0;
/// Passes of an age that suffice to judge a class well: no more of its pages are held out.
const PASSES_ENOUGH: f64 = 256.0;
/// Faults within a bound that suffice to use it: one in a thousand pages is early by chance.
const FAULTS_MIN: f64 = 4.0;
/// Ages that are told apart.
const AGES: usize = 4;
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

/// For how long a page has been held out: up to an eighth, a quarter, a half and all of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(usize);

impl Age {
    /// None after the watch.
    pub(super) fn of(time: Nanos, watch: Nanos) -> Option<Age> {
        (0..AGES).find(|age| time.0 < watch.0 >> (AGES - 1 - age)).map(Age)
    }

    #[cfg(test)]
    pub(super) fn plus(self, ages: usize) -> Age {
        Age(self.0 + ages)
    }

    /// The part of the watch that it lasts.
    fn part(self) -> f64 {
        let end = |age: usize| 1.0 / (1u32 << (AGES - 1 - age)) as f64;
        end(self.0) - if self.0 == 0 { 0.0 } else { end(self.0 - 1) }
    }
}

/// Passes of pages of an age, and the faults in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    passes: f64,
    /// By the octave of their wait.
    faults: [f64; OCTAVES as usize],
}

impl Default for Passes {
    fn default() -> Passes {
        Passes { passes: 0.0, faults: [0.0; OCTAVES as usize] }
    }
}

impl Passes {
    /// Pages have been passed so many times in all.
    pub(super) fn pass(&mut self, passes: f64) {
        self.passes += passes;
    }

    /// So many pages have faulted after a wait of octave `wait`.
    pub(super) fn fault(&mut self, wait: u8, pages: f64) {
        self.faults[usize::from(wait)] += pages;
    }

    /// Time passes: what is older counts less.
    pub(super) fn fade(&mut self, passed_s: f64) {
        let factor = (-passed_s / HALF_LIFE_S).exp2();
        self.passes *= factor;
        self.faults.iter_mut().for_each(|faults| *faults *= factor);
    }

    /// Whether there are enough of them to judge by.
    pub(super) fn is_known(&self) -> bool {
        self.passes >= PASSES_MIN
    }

    /// Accesses a second of such pages, at least: if a share F of them faults within x of being
    /// marked, that is F / x. The largest such bound counts, so many standard errors below what was
    /// seen.
    pub(super) fn rate(&self, errors: f64) -> f64 {
        let mut below = 0.0;
        let bounds = self.faults.iter().enumerate().map(|(octave, faults)| {
            below += faults;
            let longest_s = (2u64 << octave) as f64 / 1e6;
            let enough = below >= FAULTS_MIN && self.passes > 0.0;
            if enough { below / self.passes / longest_s * (1.0 - errors / below.sqrt()) } else { 0.0 }
        });
        bounds.fold(0.0, f64::max)
    }
}

/// The pages of a class, by age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class([Passes; AGES]);

impl Class {
    /// Whether anything is known of it.
    pub(super) fn is_known(&self) -> bool {
        self.0.iter().any(Passes::is_known)
    }

    /// Whether so much is known that no more of its pages need to be held out. What was seen fades,
    /// so that others follow.
    pub(super) fn is_well_known(&self) -> bool {
        self.0.iter().any(|passes| passes.passes >= PASSES_ENOUGH)
    }

    /// Accesses a second of its youngest pages that are known.
    pub(super) fn rate(&self, errors: f64) -> f64 {
        self.0.iter().find(|passes| passes.is_known()).map_or(0.0, |passes| passes.rate(errors))
    }

    /// Accesses of a page beyond those of a page of rate `price`, from when it was held out until
    /// it is no longer accessed more often than that, at least: pages lose their heat, so an age
    /// that is not known has at least the rate of the next older one.
    pub(super) fn least(&self, watch_s: f64, price: f64, errors: f64) -> f64 {
        let mut rate = 0.0f64;
        let mut sum = 0.0;
        for age in (0..AGES).rev() {
            let passes = &self.0[age];
            if passes.is_known() {
                rate = rate.max(passes.rate(errors));
            }
            sum += (rate - price).max(0.0) * Age(age).part() * watch_s;
        }
        sum + self.later(watch_s, price, errors)
    }

    /// The same, as far as is known: an age that is not has the rate of the next younger one.
    pub(super) fn most(&self, watch_s: f64, price: f64) -> f64 {
        let mut rate = self.rate(0.0);
        let mut sum = 0.0;
        for (age, passes) in self.0.iter().enumerate() {
            if passes.is_known() {
                rate = passes.rate(0.0);
            }
            sum += (rate - price).max(0.0) * Age(age).part() * watch_s;
        }
        let last = &self.0[AGES - 1];
        let unknown = (rate - price).max(0.0) * watch_s * STAY_MAX;
        sum + if last.is_known() { self.later(watch_s, price, 0.0) } else { unknown }
    }

    /// The same of the time after the watch: of what a page is worth in one half of it, a part r is
    /// left in the next.
    fn later(&self, watch_s: f64, price: f64, errors: f64) -> f64 {
        let [.., before, last] = &self.0;
        let of_last = (last.rate(errors) - price).max(0.0);
        if !last.is_known() || of_last == 0.0 {
            return 0.0;
        }
        // Between the middles of the two ages lie three eighths of the watch.
        let of_before = (before.rate(0.0) - price).max(of_last);
        let left = if before.is_known() { (of_last / of_before).powf(4.0 / 3.0) } else { 0.0 };
        let halves = (1.0 / (1.0 - left).max(0.5 / STAY_MAX) - 1.0).max(0.0);
        of_last * halves * watch_s / 2.0
    }
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Classes(Vec<Class>);

impl Default for Classes {
    fn default() -> Classes {
        Classes(vec![Class::default(); usize::from(OCTAVES)])
    }
}

impl Classes {
    pub(super) fn of(&self, octave: u8) -> &Class {
        &self.0[usize::from(octave)]
    }

    fn passes(&mut self, octave: u8, age: Age) -> &mut Passes {
        &mut self.0[usize::from(octave)].0[age.0]
    }

    /// A held-out page of a class has faulted after a wait of octave `wait`.
    pub(super) fn fault(&mut self, octave: u8, age: Age, wait: u8) {
        let passes = self.passes(octave, age);
        passes.pass(1.0);
        passes.fault(wait, 1.0);
    }

    /// One has not faulted in a pass.
    pub(super) fn silent(&mut self, octave: u8, age: Age) {
        self.passes(octave, age).pass(1.0);
    }

    /// Time passes: what is older counts less.
    pub(super) fn fade(&mut self, passed_s: f64) {
        self.0.iter_mut().flat_map(|class| &mut class.0).for_each(|passes| passes.fade(passed_s));
    }
}
