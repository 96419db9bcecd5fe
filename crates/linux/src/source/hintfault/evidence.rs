//! Hint faults as a source of evidence that the machine drives.

use std::any::Any;
use std::os::fd::BorrowedFd;

use thermocline_core::config::Config;
use thermocline_core::moves::{Move, Outcome};
use thermocline_core::rule;
use thermocline_core::units::Nanos;

use super::{HintFaultSource, Options, Stats, text};
use crate::clock::thread_cpu_time;
use crate::source::{AccessSource, Cost, Costed, Counted, EvidenceSource, Opened, Opening, Rate, Turn};
use crate::topology::cpu_nodes;

pub(super) fn open(opening: &mut Opening<'_>) -> Opened {
    let config = opening.config;
    let mut options = Options {
        measure_run_time: true,
        ..Options::from_config(&config.source.hintfault, cpu_nodes(&opening.found.topology))
    };
    options.stamps.restamp = restamp(config);
    let source = HintFaultSource::open(options, opening.scope)?;
    Ok(Some(Box::new(HintFaults { source, read: Nanos(0) })))
}

/// Whether a later scan stamps a page again while the page is still marked. The rule takes
/// precedence over the configuration.
fn restamp(config: &Config) -> bool {
    rule::build(config).restamp().unwrap_or(config.source.hintfault.restamp)
}

/// The open source, and what reading it costs.
#[derive(Debug)]
pub struct HintFaults {
    /// The source.
    pub source: HintFaultSource,
    /// CPU time that the daemon spent reading it.
    read: Nanos,
}

impl HintFaults {
    /// The counters, if the kernel returns them.
    fn stats(&self) -> Option<Stats> {
        self.source.stats().ok()
    }
}

impl EvidenceSource for HintFaults {
    fn describe(&self) -> String {
        "hint faults".to_owned()
    }

    fn counted(&self) -> Counted {
        let stats = self.stats().unwrap_or_default();
        Counted::new(&stats, text::text(&stats)).and(&stats.stamps)
    }

    /// The kernel side has already filtered by scope.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        let start = thread_cpu_time();
        let read = turn.collect(&mut self.source, |_| true);
        if read > 0 {
            self.read = self.read.plus(thread_cpu_time().since(start));
        }
        read >= turn.max
    }

    fn reload(&mut self, config: &Config) {
        self.source.set_restamp(restamp(config));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        AccessSource::fds(&self.source).collect()
    }

    fn tells_ends(&self) -> bool {
        true
    }

    fn ended(&mut self, done: &Move, outcome: Outcome) {
        if outcome == Outcome::Moved {
            self.source.page_moved(done.page);
        }
    }

    fn cost(&self) -> Option<Cost> {
        let stats = self.stats()?;
        let beside = Nanos(stats.bpf_run_time_ns);
        Some(Cost {
            of: Costed::Fault,
            events: stats.seen,
            read: self.read,
            beside,
            scans: stats.stamps.scan_time,
        })
    }

    fn rate(&self) -> Option<Rate> {
        let stats = self.stats().unwrap_or_default();
        Some(Rate { what: "faults", count: stats.seen, lost: stats.dropped })
    }
}
