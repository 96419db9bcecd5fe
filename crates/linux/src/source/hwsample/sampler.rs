//! Whichever sampler the configuration names.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use thermocline_core::config::{HwSample, SamplerName};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pid};

use super::lab_rings::LabRings;
use super::period::INTERRUPT_NS;
use super::useful::Judge;
use super::{HwSampleSource, OpenError, Stats};
use crate::root::{KernelFileError, Root};
use crate::source::{AccessSource, Event, lab_device};
use crate::topology::PfnMap;

/// An open sampler.
#[derive(Debug)]
pub enum Sampler {
    /// The processor's, through perf_event_open(2).
    Perf(Box<HwSampleSource>),
    /// The lab's.
    Lab(Box<LabRings>),
}

impl Sampler {
    /// Opens the sampler that the configuration names.
    ///
    /// # Errors
    /// [`OpenError`], with the remedy; nothing stays open.
    pub fn open(root: &Root, config: &HwSample, judge: Judge, now: Nanos) -> Result<Sampler, OpenError> {
        Ok(match config.sampler {
            SamplerName::LabRings => Sampler::Lab(Box::new(LabRings::open(root, config, judge, now)?)),
            _ => Sampler::Perf(Box::new(HwSampleSource::open(root, config, judge, now)?)),
        })
    }

    /// Whether its samples name the process, but for those of a KVM guest's accesses.
    pub fn names_processes(&self) -> bool {
        matches!(self, Sampler::Perf(_))
    }

    /// Whether it may tell of accesses without their process: then somebody has to find out whose frames they are.
    pub fn leaves_processes_open(&self, root: &Root) -> bool {
        !self.names_processes() || root.sys.join("module/kvm").exists()
    }

    /// How long its rings may be left alone, where no descriptor tells of them.
    pub fn look_every(&self) -> Option<Duration> {
        match self {
            Sampler::Perf(_) => None,
            Sampler::Lab(_) => Some(lab_device::LOOK_EVERY),
        }
    }

    /// Estimated cost of a sample to the CPU that it interrupts, ns.
    pub fn interrupt_ns(&self) -> u64 {
        match self {
            Sampler::Perf(_) => INTERRUPT_NS,
            Sampler::Lab(_) => 0,
        }
    }

    /// What the rule wants the period to be, where it wants something; the lab's is not ours to set.
    pub fn set_wish(&mut self, period: Option<u32>) {
        if let Sampler::Perf(source) = self {
            source.set_wish(period);
        }
    }

    /// Memory came or went.
    pub fn set_frames(&mut self, frames: PfnMap) {
        match self {
            Sampler::Perf(source) => source.set_frames(frames),
            Sampler::Lab(rings) => rings.judge().set_frames(frames),
        }
    }

    /// Nodes, tiers or CPUs have changed.
    ///
    /// # Errors
    /// sysfs does not tell the CPUs; those that were sampled still are.
    pub fn set_topology(&mut self, topology: &Topology) -> Result<(), KernelFileError> {
        match self {
            Sampler::Perf(source) => source.set_topology(topology),
            Sampler::Lab(rings) => {
                rings.judge().set_topology(topology);
                Ok(())
            }
        }
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        match self {
            Sampler::Perf(source) => source.stats(),
            Sampler::Lab(rings) => rings.stats(),
        }
    }
}

impl AccessSource for Sampler {
    fn poll(
        &mut self,
        records_max: usize,
        now: Nanos,
        in_scope: impl Fn(Pid) -> bool,
        each: impl FnMut(Event),
    ) -> usize {
        match self {
            Sampler::Perf(source) => source.poll(records_max, now, in_scope, each),
            Sampler::Lab(rings) => rings.poll(records_max, now, in_scope, each),
        }
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let perf = match self {
            Sampler::Perf(source) => Some(source.fds()),
            Sampler::Lab(_) => None,
        };
        perf.into_iter().flatten()
    }
}
