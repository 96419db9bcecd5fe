//! The progress of a run at regular times.

use thermocline_core::units::Nanos;

use crate::counters::Course;
use crate::kernel::Model;
use crate::system::System;

/// Records the pages promoted and demoted, at regular times.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) every: Nanos,
    pub(crate) due: Nanos,
    /// When the first process began.
    pub(crate) start: Nanos,
}

impl Model for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn due(&self, _system: &System) -> Nanos {
        self.due
    }

    fn run(&mut self, system: &mut System) {
        let (promoted, demoted) = (system.counters.promoted(), system.counters.demoted());
        system.course.push(Course { time_s: system.now.since(self.start).0 as f64 / 1e9, promoted, demoted });
        self.due = system.now.plus(self.every);
    }
}
