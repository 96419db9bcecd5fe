//! How the kernel scans: the report to the engine, and the engine's wish.

use thermocline_core::access::Scans;
use thermocline_core::pace::{Pacing, ScanPace};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use super::{LiveMachine, now};
use crate::actuator::{Actuator, ActuatorError};
use crate::pace::{Pace, Paced};
use crate::process;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// `None` if scans are not paced.
    pace: Option<Pace>,
    /// The last report and its time.
    seen: Option<Scans>,
    looked: Option<Nanos>,
    wished: Option<ScanPace>,
}

impl Scanning {
    /// Whether the engine decides on the pace at `at`, for which it needs the report.
    pub(super) fn is_due(&self, at: Nanos) -> bool {
        let is_over =
            |(looked, wish): (Nanos, ScanPace)| at < looked || at.since(looked) >= wish.look_every();
        self.pace.is_some() && self.looked.zip(self.wished).is_none_or(is_over)
    }

    pub(super) fn pacing(&self) -> Pacing {
        self.pace.as_ref().map_or(Pacing::Nothing, Pace::pacing)
    }

    pub(super) fn wish(&mut self, wished: Option<ScanPace>) {
        self.wished = wished;
    }
}

impl LiveMachine {
    /// Paces the kernel's scans from now on.
    pub fn set_pace(&mut self, pace: Pace) {
        self.scanning.pace = Some(pace);
    }

    /// Carries out the engine's wish. Returns what was changed. If that fails, scans are not paced
    /// any more.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn pace_scans(&mut self, actuator: &mut Actuator) -> Result<Option<Paced>, ActuatorError> {
        let Scanning { pace: Some(pace), wished: Some(wish), .. } = &mut self.scanning else {
            return Ok(None);
        };
        let paced = pace.follow(now(), *wish, actuator);
        if paced.is_err() {
            self.scanning.pace = None;
        }
        paced
    }

    /// Time between two scan steps of the process that the pace follows, where known.
    pub fn scan_interval(&self) -> Option<Nanos> {
        self.scanning.seen.map(|scans| scans.interval)
    }

    /// How the kernel scans the process that the pace follows, where known; with all its memory,
    /// because its steps pass over the top tier too.
    pub(super) fn look_at_scans(&mut self, at: Nanos) -> Option<Scans> {
        self.scanning.looked = Some(at);
        let scans = self.sources.hintfault().and_then(|opened| opened.source.scans(at));
        self.scanning.seen = scans.map(|scans| {
            let stat = process::stat(&self.root, scans.pid).ok().flatten();
            Scans { mib: stat.map_or(scans.mib, |stat| stat.rss_pages / PAGES_PER_MIB), ..scans }
        });
        self.scanning.seen
    }
}
