//! What a source has seen of each unit of memory, in a form that all sources share.

use thermocline_core::access::RegionSpace;
use thermocline_core::units::Nanos;

/// The kinds of evidence from which heat can be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeatSource {
    /// Hint faults: the time from the mark of a scan to the next access.
    HintFaults,
    /// Hardware samples: one access in so many.
    Samples,
    /// DAMON's regions: the share of the checks that found an access.
    Regions,
}

impl HeatSource {
    /// All of them, the one that tells pages apart best first.
    pub const ALL: [HeatSource; 3] = [HeatSource::Samples, HeatSource::HintFaults, HeatSource::Regions];

    /// Its name.
    pub const fn text(self) -> &'static str {
        match self {
            HeatSource::HintFaults => "hint-faults",
            HeatSource::Samples => "samples",
            HeatSource::Regions => "regions",
        }
    }
}

/// Pages that share their evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which of [`Evidence::spaces`].
    pub space: u32,
    /// Its pages.
    pub pages: u32,
    /// The first of them: a virtual page number, or a frame.
    pub first: u64,
}

/// What was seen of a unit in an epoch. With accesses at random times at the rate λ, its likelihood
/// is `(1 - exp(-λ check))^hits exp(-λ quiet_s)`. For exact times that is, up to a factor,
/// `λ^hits exp(-λ quiet_s)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Accesses found.
    pub hits: f64,
    /// Time in which an access would have been found and none was, in seconds; for samples, time
    /// over the sampling period.
    pub quiet_s: f64,
}

impl Count {
    /// The rate under which it is most probable, in accesses a second, if an access is found within
    /// `check_s` seconds; `None` if it is without bounds.
    pub fn rate(self, check_s: f64) -> Option<f64> {
        match (self.hits > 0.0, self.quiet_s > 0.0) {
            (false, _) => Some(0.0),
            (true, false) => None,
            (true, true) if check_s > 0.0 => Some((self.hits * check_s / self.quiet_s).ln_1p() / check_s),
            (true, true) => Some(self.hits / self.quiet_s),
        }
    }

    /// Both together.
    pub fn plus(self, other: Count) -> Count {
        Count { hits: self.hits + other.hits, quiet_s: self.quiet_s + other.quiet_s }
    }
}

/// The evidence of one source.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The source.
    pub source: HeatSource,
    /// An access is found within so much time, in seconds; 0 if times or numbers are exact.
    pub check_s: f64,
    /// The first time that it covers.
    pub start: Nanos,
    /// The last.
    pub end: Nanos,
    /// The address spaces, ascending.
    pub spaces: Vec<RegionSpace>,
    /// The units, ascending by space and first page; disjoint.
    pub units: Vec<Unit>,
    /// For each unit, its [`Count`] in each epoch.
    pub counts: Vec<Count>,
    /// For each unit, its evidence in two halves: every other access or check, each with the time
    /// before it.
    pub halves: Vec<[Count; 2]>,
    /// What an access that is found costs its program, in seconds.
    pub cost_s: f64,
    /// Epochs of equal length.
    pub epochs: usize,
    /// Whether a unit's rate is that of each of its pages, not of all of them together.
    pub by_page: bool,
    /// Pages in use that this source would have seen, and of which it saw no access.
    pub silent_pages: u64,
    /// What was seen of each of them.
    pub silent: Count,
    /// Pages in use that this source does not see.
    pub dark_pages: u64,
}

impl Evidence {
    /// What was seen of a unit in each epoch.
    pub fn of(&self, unit: usize) -> &[Count] {
        &self.counts[unit * self.epochs..][..self.epochs]
    }

    /// The rate, in accesses a second, above which rates are alike to the source; `None` if there
    /// is no such rate. A check finds 95 % of the accesses at it.
    pub fn reach(&self) -> Option<f64> {
        (self.check_s > 0.0).then(|| 3.0 / self.check_s)
    }

    /// By which factor a rate may be greater than it is estimated, if `accesses` a second are made
    /// in all: a scan marks many pages at once, so that each access is found and costs time, and
    /// the accesses that come at once come later than they would have.
    pub fn slowed(&self, accesses: f64) -> f64 {
        1.0 + accesses * self.cost_s
    }

    /// Pages with evidence.
    pub fn seen_pages(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.pages)).sum()
    }

    /// The length of an epoch, in seconds.
    pub fn epoch_s(&self) -> f64 {
        self.end.since(self.start).0 as f64 / 1e9 / self.epochs as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_rate() {
        let count = Count { hits: 6.0, quiet_s: 3.0 };
        assert_eq!((count.rate(0.0), Count::default().rate(0.0)), (Some(2.0), Some(0.0)));
        // Of ten checks of a second each, six found an access: 1 - exp(-rate) is 0.6.
        let checks = Count { hits: 6.0, quiet_s: 4.0 };
        assert!((checks.rate(1.0).expect("finite") - -(0.4f64.ln())).abs() < 1e-12);
        assert_eq!(Count { hits: 6.0, quiet_s: 0.0 }.rate(1.0), None);
    }
}
