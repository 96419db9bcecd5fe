//! The sources that the configuration switches on, and what they cost.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use thermocline_core::access::Access;
use thermocline_core::config::{Config, Enabled};
use thermocline_core::rule;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pid};

use super::MachineError;
use super::members::Managed;
use crate::clock::thread_cpu_time;
use crate::root::{KernelFileError, Root};
use crate::source::chmu::ChmuSource;
use crate::source::damon::DamonSource;
use crate::source::hintfault::{self, HintFaultSource, Options, Scope};
use crate::source::hwsample::useful::Judge;
use crate::source::hwsample::{self, OpenError, Sampler};
use crate::source::{AccessSource, Event, lab_device};
use crate::topology::{PfnMap, cpu_nodes};

/// What a process has done to its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Replaced it.
    Exec(Pid),
    /// Left it.
    Exit(Pid),
}

/// The open sources, one of them at least.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) hintfault: Option<HintFaultSource>,
    pub(super) hwsample: Option<Sampler>,
    pub(super) damon: Option<DamonSource>,
    pub(super) chmu: Option<ChmuSource>,
    /// Why there is no sampler where one was to be used if possible.
    no_sampler: Option<OpenError>,
    /// CPU time for reading hint faults.
    hintfault_read: Nanos,
}

impl Sources {
    /// Opens what is switched on, beside `damon`, which is open already where it can be.
    pub(super) fn open(
        root: &Root,
        config: &Config,
        damon: Option<DamonSource>,
        topology: &Topology,
        frames: &PfnMap,
        filter: &Scope,
        now: Nanos,
    ) -> Result<Sources, MachineError> {
        let hintfault = match config.source.hintfault.enabled {
            true => Some(open_hintfault(config, topology, filter)?),
            false => None,
        };
        let sampler = match config.source.hwsample.enabled {
            Enabled::No => Ok(None),
            Enabled::Yes => Ok(Some(open_hwsample(root, config, topology, frames, now)?)),
            Enabled::Auto => open_hwsample(root, config, topology, frames, now).map(Some),
        };
        let chmu = match config.source.chmu.enabled {
            true => Some(ChmuSource::open(root, &config.source.chmu, now)?),
            false => None,
        };
        // A dry run makes no kdamonds, and is of use all the same.
        let others = hintfault.is_some() || config.source.damon.enabled || chmu.is_some();
        let (hwsample, no_sampler) = match sampler {
            Ok(None) if !others => return Err(MachineError::NoSource),
            Err(error) if !others => return Err(error.into()),
            Ok(sampler) => (sampler, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Sources { hintfault, hwsample, damon, chmu, no_sampler, hintfault_read: Nanos(0) })
    }

    /// Memory came or went, nodes, tiers or CPUs have changed.
    pub(super) fn set_machine(
        &mut self,
        frames: &PfnMap,
        topology: &Topology,
    ) -> Result<(), KernelFileError> {
        let Some(sampler) = &mut self.hwsample else { return Ok(()) };
        sampler.set_frames(frames.clone());
        sampler.set_topology(topology)
    }

    /// The open sources in words, why one that was wanted is not among them, and what else there is to say of them.
    pub(super) fn told(&self, besides: Option<String>) -> String {
        let faults = self.hintfault.as_ref().map(|_| "hint faults".to_owned());
        let samples = self.hwsample.as_ref().map(|source| {
            let stats = source.stats();
            let failed = match stats.cpus_failed {
                0 => String::new(),
                n => format!(" ({n} CPUs could not be opened)"),
            };
            format!("{} on {} CPUs{failed}", stats.sampler, stats.cpus)
        });
        let without = self.no_sampler.as_ref().map(|why| format!("no hardware samples: {why}"));
        let regions = self.damon.as_ref().map(|source| match source.names_frames_alone() {
            true => format!("DAMON's regions of {} nodes", source.stats().started),
            false => "DAMON's regions of processes".to_owned(),
        });
        let counted = self.chmu.as_ref().map(|source| {
            let counters = source.stats().counters;
            format!("the hot list of the lab's device, which has {counters} counters")
        });
        [faults, samples, regions, counted, without, besides]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Appends hint faults to `accesses`, and to `ended` who replaced its address space or is gone; whether more may wait.
    pub(super) fn read_hintfault(
        &mut self,
        max: usize,
        now: Nanos,
        accesses: &mut Vec<Access>,
        ended: &mut Vec<Ended>,
    ) -> bool {
        let Some(source) = &mut self.hintfault else { return false };
        let start = thread_cpu_time();
        let read = collect(source, max, now, |_| true, accesses, Some(ended));
        if read > 0 {
            self.hintfault_read = self.hintfault_read.plus(thread_cpu_time().since(start));
        }
        read >= max
    }

    /// The same of hardware samples; of processes that end, hint faults tell sooner where they are read.
    pub(super) fn read_hwsample(
        &mut self,
        max: usize,
        now: Nanos,
        managed: &Managed,
        accesses: &mut Vec<Access>,
        ended: &mut Vec<Ended>,
    ) -> bool {
        let Some(source) = &mut self.hwsample else { return false };
        let ended = self.hintfault.is_none().then_some(ended);
        collect(source, max, now, |pid| managed.in_scope(pid), accesses, ended) >= max
    }

    /// Waits until a source has enough to be worth a poll, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let faults = self.hintfault.iter().flat_map(AccessSource::fds);
        let samples = self.hwsample.iter().flat_map(AccessSource::fds);
        let regions = self.damon.iter().flat_map(DamonSource::fds);
        let mut fds: Vec<PollFd<'_>> = faults
            .chain(samples)
            .chain(regions)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let samples_every = self.hwsample.as_ref().and_then(Sampler::look_every);
        let counted_every = self.chmu.as_ref().map(|_| lab_device::LOOK_EVERY);
        let timeout = samples_every.into_iter().chain(counted_every).fold(timeout, Duration::min);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What the sources cost; `cpu_time` is all that the daemon has used, `pages_moved` what it has moved.
    pub(super) fn overhead(&self, cpu_time: Nanos, pages_moved: u64) -> Overhead {
        let faults = self.hintfault.as_ref().and_then(|source| source.stats().ok());
        let samples = self.hwsample.as_ref().map(|sampler| (sampler.stats(), sampler.interrupt_ns()));
        Overhead::new(faults.as_ref(), self.hintfault_read, samples.as_ref(), cpu_time, pages_moved)
    }
}

fn collect(
    source: &mut impl AccessSource,
    max: usize,
    now: Nanos,
    in_scope: impl Fn(Pid) -> bool,
    accesses: &mut Vec<Access>,
    mut ended: Option<&mut Vec<Ended>>,
) -> usize {
    source.poll(max, now, in_scope, |event| match event {
        Event::Access(access) => accesses.push(access),
        Event::Exec(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exec(pid))),
        Event::Exit(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exit(pid))),
    })
}

fn open_hintfault(
    config: &Config,
    topology: &Topology,
    filter: &Scope,
) -> Result<HintFaultSource, hintfault::OpenError> {
    let mut options = Options {
        measure_run_time: true,
        ..Options::from_config(&config.source.hintfault, cpu_nodes(topology))
    };
    if let Some(restamp) = rule::build(config).restamp() {
        options.stamps.restamp = restamp;
    }
    let source = HintFaultSource::open(options, filter)?;
    Managed::leave_out_ourselves(&source);
    Ok(source)
}

fn open_hwsample(
    root: &Root,
    config: &Config,
    topology: &Topology,
    frames: &PfnMap,
    now: Nanos,
) -> Result<Sampler, OpenError> {
    let judge = Judge::new(frames.clone(), topology, config.rule.balance.enabled);
    Sampler::open(root, &config.source.hwsample, judge, now)
}

/// Faults, samples or moved pages below which no cost of one is told: most of it would be of starting, waking up and following scans.
const COSTED_MIN: u64 = 1000;

/// What a fault, a sample and a moved page cost, in ns of CPU, once there were some: the table by which S1 compares its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overhead {
    /// A hint fault: our BPF programs and reading the record. The fault itself is the kernel's and not in it.
    pub fault_ns: Option<u64>,
    /// A sample, useful or not: reading it, as measured, and its interrupt, as reckoned ([`Sampler::interrupt_ns`]).
    pub sample_ns: Option<u64>,
    /// A page that we moved: all CPU time of the daemon, BPF programs and interrupts.
    pub moved_page_ns: Option<u64>,
}

impl Overhead {
    fn new(
        faults: Option<&hintfault::Stats>,
        faults_read: Nanos,
        samples: Option<&(hwsample::Stats, u64)>,
        cpu_time: Nanos,
        pages_moved: u64,
    ) -> Overhead {
        let (seen, bpf_ns) = faults.map_or((0, 0), |s| (s.seen, s.bpf_run_time_ns));
        let (taken, read_ns) = samples.map_or((0, 0), |(s, _)| (s.samples.taken, s.read_ns.0));
        let interrupts_ns = taken * samples.map_or(0, |(_, interrupt_ns)| *interrupt_ns);
        let each = |ns: u64, of: u64| (of >= COSTED_MIN).then(|| ns / of);
        Overhead {
            fault_ns: each(bpf_ns + faults_read.0, seen),
            sample_ns: each(read_ns + interrupts_ns, taken),
            moved_page_ns: each(cpu_time.0 + bpf_ns + interrupts_ns, pages_moved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_by_fault_by_sample_and_by_moved_page() {
        let faults =
            |seen| hintfault::Stats { seen, bpf_run_time_ns: 4_000_000, ..hintfault::Stats::default() };
        let samples = |taken| {
            let mut samples = hwsample::Stats { read_ns: Nanos(300_000), ..hwsample::Stats::default() };
            samples.samples.taken = taken;
            (samples, 2_000)
        };
        let overhead = |seen, taken, moved| {
            let read = (Nanos(1_000_000), Nanos(90_000_000));
            Overhead::new(Some(&faults(seen)), read.0, Some(&samples(taken)), read.1, moved)
        };
        let cost = overhead(10_000, 1_000, 4_000);
        assert_eq!((cost.fault_ns, cost.sample_ns), (Some(500), Some(2_300)));
        assert_eq!(cost.moved_page_ns, Some((90_000_000 + 4_000_000 + 2_000_000) / 4_000));
        assert_eq!(overhead(40, 3, 1), Overhead::default(), "so few stand for nothing");
        assert_eq!(Overhead::new(None, Nanos(0), None, Nanos(5), 0), Overhead::default());
    }
}
