//! The sampler as a source of the machine.

use std::any::Any;
use std::os::fd::BorrowedFd;

use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use super::useful::Judge;
use super::{HwSampleSource, Stats, text};
use crate::root::{KernelFileError, Root};
use crate::source::{
    AccessSource, Cost, Costed, Counted, EvidenceSource, Frames, Opened, Opening, Rate, Turn,
};
use crate::topology::PfnMap;
use thermocline_core::pace::INTERRUPT_NS;

pub(super) fn open(opening: &mut Opening<'_>) -> Opened {
    let (root, keys, now) = (opening.root, &opening.config.source.hwsample, opening.now);
    let balances = opening.config.rule.balance.enabled;
    let judge = Judge::new(opening.frames.clone(), &opening.found.topology, balances);
    #[cfg(feature = "lab")]
    if keys.sampler == thermocline_core::config::SamplerName::LabRings {
        return Ok(Some(Box::new(super::lab_rings::LabRings::open(root, keys, judge, now)?)));
    }
    Ok(Some(Box::new(HwSampleSource::open(root, keys, judge, now)?)))
}

/// A sampler's part of a line of `run`.
pub(super) fn rate(stats: &Stats) -> Rate {
    Rate { what: "useful samples", count: stats.samples.useful, lost: stats.lost }
}

/// The cost of samples; each interrupts a CPU for `interrupt_ns`.
pub(super) fn cost(stats: &Stats, interrupt_ns: u64) -> Cost {
    let taken = stats.samples.taken;
    Cost {
        of: Costed::Sample,
        events: taken,
        read: stats.read_ns,
        beside: Nanos(taken * interrupt_ns),
        scans: Nanos(0),
    }
}

/// A sampler's counters.
pub(super) fn counted(stats: &Stats) -> Counted {
    Counted::new(stats, text::text(stats)).and(&stats.samples)
}

impl EvidenceSource for HwSampleSource {
    fn describe(&self) -> String {
        let stats = self.stats();
        let failed = match stats.cpus_failed {
            0 => String::new(),
            n => format!(" ({n} CPUs could not be opened)"),
        };
        format!("{} on {} CPUs{failed}", stats.sampler, stats.cpus)
    }

    fn counted(&self) -> Counted {
        counted(&self.stats())
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

    /// Samples of a KVM guest's accesses name no process.
    fn frames(&self, root: &Root) -> Frames {
        if root.sys.join("module/kvm").exists() { Frames::SomeAlone } else { Frames::Named }
    }

    fn tells_ends(&self) -> bool {
        true
    }

    fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) -> Result<(), KernelFileError> {
        self.set_frames(frames.clone());
        self.set_topology(topology)
    }

    fn cost(&self) -> Option<Cost> {
        Some(cost(&self.stats(), INTERRUPT_NS))
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate(&self.stats()))
    }
}
