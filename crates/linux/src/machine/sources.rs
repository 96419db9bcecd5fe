//! The sources that the configuration switches on, and their cost.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use thermocline_core::config::Enabled;
use thermocline_core::units::Nanos;

use super::MachineError;
use crate::source::hintfault::HintFaults;
use crate::source::{Cost, Costed, Counted, EvidenceSource, Opening, ROWS, Rate, Row, SourceError};

/// A source configured as `auto` that cannot be used.
#[derive(Debug)]
struct Without {
    row: &'static Row,
    error: SourceError,
}

/// The open sources, with their rows.
#[derive(Debug)]
pub(super) struct Sources {
    open: Vec<(&'static Row, Box<dyn EvidenceSource>)>,
    without: Vec<Without>,
}

impl Sources {
    /// Opens what is switched on.
    pub(super) fn open(opening: &mut Opening<'_>) -> Result<Sources, MachineError> {
        let (mut open, mut without) = (Vec::new(), Vec::new());
        // A dry run opens no source that sets something, and is useful nevertheless.
        let mut insisted = false;
        for row in ROWS {
            let enabled = opening.config.source.keys(row.source).enabled();
            insisted |= enabled == Enabled::Yes;
            if enabled == Enabled::No {
                continue;
            }
            match ((row.open)(opening), enabled) {
                (Ok(opened), _) => open.extend(opened.map(|source| (row, source))),
                (Err(why), Enabled::Auto) => {
                    without.push(Without { row, error: SourceError { cannot: row.cannot, why } });
                }
                (Err(why), _) => return Err(SourceError { cannot: row.cannot, why }.into()),
            }
        }
        if open.is_empty() && !insisted {
            return Err(without.pop().map_or(MachineError::NoSource, |without| without.error.into()));
        }
        Ok(Sources { open, without })
    }

    /// Each open source.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn EvidenceSource> {
        self.open.iter().map(|(_, source)| &**source)
    }

    /// The same, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn EvidenceSource>> {
        self.open.iter_mut().map(|(_, source)| source)
    }

    /// The source at this place, in order of opening.
    pub(super) fn at(&mut self, place: usize) -> Option<&mut dyn EvidenceSource> {
        match self.open.get_mut(place) {
            Some((_, source)) => Some(&mut **source),
            None => None,
        }
    }

    /// The hint-fault source, if open: only it is filtered in the kernel, and knows which pages a
    /// scan has marked and how the kernel scans.
    pub(super) fn hintfault(&self) -> Option<&HintFaults> {
        self.iter().find_map(|source| source.as_any().downcast_ref())
    }

    /// The open sources in words, why a wanted one is not among them, and further remarks.
    pub(super) fn told(&self, besides: Option<String>) -> String {
        let open = self.iter().map(EvidenceSource::describe);
        let without =
            self.without.iter().map(|Without { row, error }| format!("no {}: {}", row.what, error.why));
        open.chain(without).chain(besides).collect::<Vec<_>>().join(", ")
    }

    /// The counters of each open source, with its row.
    pub(super) fn counted(&self) -> Vec<(&'static Row, Counted)> {
        self.open.iter().map(|(row, source)| (*row, source.counted())).collect()
    }

    /// What each open source has given and lost so far, by its name in the configuration.
    pub(super) fn rates(&self) -> Vec<(&'static str, Rate)> {
        self.open.iter().filter_map(|(row, source)| Some((row.source.key(), source.rate()?))).collect()
    }

    /// Each open source but hint faults.
    pub(super) fn others(&self) -> impl Iterator<Item = &dyn EvidenceSource> {
        self.open.iter().filter(|(row, _)| !is_hintfault(row)).map(|(_, source)| &**source)
    }

    /// Waits until a source has enough to be worth a poll, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let fds = self.iter().flat_map(EvidenceSource::fds);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = self.iter().filter_map(EvidenceSource::look_every).fold(timeout, Duration::min);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The cost of the sources; `cpu_time` is the daemon's total, `pages_moved` the pages that it
    /// has moved.
    pub(super) fn overhead(&self, cpu_time: Nanos, pages_moved: u64) -> Overhead {
        Overhead::new(self.iter().filter_map(EvidenceSource::cost), cpu_time, pages_moved)
    }
}

/// Whether it is the source whose counters status always has, zeros if it is not open.
fn is_hintfault(row: &Row) -> bool {
    row.source == thermocline_core::config::Source::HintFault
}

/// Minimum number of faults, samples or moved pages for a cost figure: below it, most of the cost
/// would be from starting, waking up and following scans.
const COSTED_MIN: u64 = 1000;

/// Cost of the evidence and of moving so far, in ns of CPU, and of a fault, a sample and a moved
/// page, if there were enough: the figures by which S1 compares its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overhead {
    /// The kernel's scans, in the programs that they mark, with our BPF programs there.
    pub scans_ns: u64,
    /// Hint faults: our BPF programs and reading the records.
    pub faults_ns: u64,
    /// Samples: reading them, as measured, and their interrupts, as estimated.
    pub samples_ns: u64,
    /// Scans, the daemon, BPF programs and interrupts.
    pub total_ns: u64,
    /// A hint fault: our BPF programs and reading the record. The fault itself is the kernel's and
    /// not included.
    pub fault_ns: Option<u64>,
    /// A sample, useful or not: reading it, as measured, and its interrupt, as estimated.
    pub sample_ns: Option<u64>,
    /// A page that we moved: the total.
    pub moved_page_ns: Option<u64>,
}

impl Overhead {
    fn new(costs: impl Iterator<Item = Cost>, cpu_time: Nanos, pages_moved: u64) -> Overhead {
        let (mut faults, mut samples, mut beside, mut scans) = ((0, 0), (0, 0), 0, 0);
        for cost in costs {
            let (ns, events) = match cost.of {
                Costed::Fault => &mut faults,
                Costed::Sample => &mut samples,
            };
            *ns += cost.read.0 + cost.beside.0;
            *events += cost.events;
            beside += cost.beside.0;
            scans += cost.scans.0;
        }
        let total = scans + cpu_time.0 + beside;
        let each = |(ns, of): (u64, u64)| (of >= COSTED_MIN).then(|| ns / of);
        Overhead {
            scans_ns: scans,
            faults_ns: faults.0,
            samples_ns: samples.0,
            total_ns: total,
            fault_ns: each(faults),
            sample_ns: each(samples),
            moved_page_ns: each((total, pages_moved)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_by_fault_by_sample_and_by_moved_page() {
        let overhead = |seen, taken, moved| {
            let cost = |of, events, read, beside, scans| Cost {
                of,
                events,
                read: Nanos(read),
                beside: Nanos(beside),
                scans: Nanos(scans),
            };
            let costs = [
                cost(Costed::Fault, seen, 1_000_000, 4_000_000, 8_000_000),
                cost(Costed::Sample, taken, 300_000, taken * 2_000, 0),
            ];
            Overhead::new(costs.into_iter(), Nanos(90_000_000), moved)
        };
        let cost = overhead(10_000, 1_000, 4_000);
        assert_eq!((cost.fault_ns, cost.sample_ns), (Some(500), Some(2_300)));
        assert_eq!((cost.scans_ns, cost.faults_ns, cost.samples_ns), (8_000_000, 5_000_000, 2_300_000));
        let total = 8_000_000 + 90_000_000 + 4_000_000 + 2_000_000;
        assert_eq!((cost.total_ns, cost.moved_page_ns), (total, Some(total / 4_000)));
        let few = overhead(40, 3, 1);
        let each = (few.fault_ns, few.sample_ns, few.moved_page_ns);
        assert_eq!(each, (None, None, None), "so few stand for nothing");
        let none = Overhead::new(std::iter::empty(), Nanos(5), 0);
        assert_eq!(none, Overhead { total_ns: 5, ..Overhead::default() });
    }
}
