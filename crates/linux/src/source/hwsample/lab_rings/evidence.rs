//! The lab's sampler as a source of the machine.

use std::any::Any;
use std::time::Duration;

use thermocline_core::topology::Topology;

use super::LabRings;
use crate::root::{KernelFileError, Root};
use crate::source::hwsample::evidence::{cost, counted, rate};
use crate::source::{Cost, Counted, EvidenceSource, Frames, Rate, Turn, lab_device};
use crate::topology::PfnMap;

impl EvidenceSource for LabRings {
    fn describe(&self) -> String {
        format!("{} on {} CPUs", self.stats.sampler, self.stats.cpus)
    }

    fn counted(&self) -> Counted {
        counted(&self.stats())
    }

    /// No process is named, so no sample can be out of scope yet.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        turn.collect(self, |_| true) >= turn.max
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn look_every(&self) -> Option<Duration> {
        Some(lab_device::LOOK_EVERY)
    }

    fn frames(&self, _root: &Root) -> Frames {
        Frames::Alone
    }

    fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) -> Result<(), KernelFileError> {
        self.judge.set_frames(frames.clone());
        self.judge.set_topology(topology);
        Ok(())
    }

    /// The emulator causes no interrupts.
    fn cost(&self) -> Option<Cost> {
        Some(cost(&self.stats(), 0))
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate(&self.stats()))
    }
}
