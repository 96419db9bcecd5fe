//! The sampler as the machine drives it.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde_json::{Value, json};
use thermocline_core::machine::Wishes;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use super::Sampler;
use super::useful::Judge;
use crate::root::{KernelFileError, Root};
use crate::source::{AccessSource, Cost, Costed, EvidenceSource, Frames, Opened, Opening, Rate, Turn};
use crate::topology::PfnMap;

pub(super) fn open(opening: &mut Opening<'_>) -> Opened {
    let config = opening.config;
    let judge = Judge::new(opening.frames.clone(), &opening.found.topology, config.rule.balance.enabled);
    let sampler = Sampler::open(opening.root, &config.source.hwsample, judge, opening.now)?;
    Ok(Some(Box::new(sampler)))
}

impl EvidenceSource for Sampler {
    fn describe(&self) -> String {
        let stats = self.stats();
        let failed = match stats.cpus_failed {
            0 => String::new(),
            n => format!(" ({n} CPUs could not be opened)"),
        };
        format!("{} on {} CPUs{failed}", stats.sampler, stats.cpus)
    }

    fn stats(&self) -> Value {
        json!(self.stats())
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        let in_scope = turn.in_scope;
        turn.collect(self, in_scope) >= turn.max
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        AccessSource::fds(self).collect()
    }

    fn look_every(&self) -> Option<Duration> {
        self.look_every()
    }

    fn frames(&self, root: &Root) -> Frames {
        match (self.leaves_processes_open(root), self.names_processes()) {
            (false, _) => Frames::Named,
            (true, true) => Frames::SomeAlone,
            (true, false) => Frames::Alone,
        }
    }

    fn tells_ends(&self) -> bool {
        true
    }

    fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) -> Result<(), KernelFileError> {
        self.set_frames(frames.clone());
        self.set_topology(topology)
    }

    fn wish(&mut self, wishes: &Wishes) {
        self.set_wish(wishes.sample_period_uops);
    }

    fn cost(&self) -> Option<Cost> {
        let stats = self.stats();
        let taken = stats.samples.taken;
        let beside = Nanos(taken * self.interrupt_ns());
        Some(Cost { of: Costed::Sample, events: taken, read: stats.read_ns, beside })
    }

    fn rate(&self) -> Option<Rate> {
        let stats = self.stats();
        Some(Rate { what: "useful samples", count: stats.samples.useful, lost: stats.lost })
    }
}
