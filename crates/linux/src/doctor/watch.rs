//! The doctor's examination again and again, for what begins and ends.

use std::time::{Duration, Instant, SystemTime};

use thermocline_core::config::Config;

use super::{Depth, Probe, look_at, probe_btf};
use crate::clock::now;
use crate::finding::{Follower, Programs, Told};
use crate::root::Root;
use crate::source::hintfault::layout::AttachPoint;

/// Least time between two looks at the mappings of processes, for which the kernel walks their page
/// tables.
const MAPPINGS_EVERY: Duration = Duration::from_secs(300);

/// Watches a machine.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    config: Config,
    /// What BPF programs can attach to, which does not change.
    attach_points: Result<Vec<AttachPoint>, String>,
    mappings: Option<(Instant, Programs)>,
    follower: Follower,
}

impl Watch {
    /// Watches the machine at `root` for a run with `config`.
    pub fn new(root: &Root, config: &Config) -> Watch {
        Watch::with(root, config, &probe_btf)
    }

    /// The same, with another way to query attach points.
    pub fn with(root: &Root, config: &Config, probe: Probe<'_>) -> Watch {
        let (attach_points, follower) = (probe(root), Follower::default());
        Watch { root: root.clone(), config: config.clone(), attach_points, mappings: None, follower }
    }

    /// Examines the machine. Returns what has begun and ended since the last time; the first time,
    /// everything that is open.
    pub fn look(&mut self) -> Vec<Told> {
        let kept = self.mappings.take().filter(|(at, _)| at.elapsed() < MAPPINGS_EVERY);
        let read = kept.as_ref().map_or_else(Instant::now, |(at, _)| *at);
        let depth = Depth::Everything(kept.map(|(_, mappings)| mappings));
        let report = look_at(&self.root, &self.config, &|_| self.attach_points.clone(), depth);
        let kept = Programs { blind: report.blind, confined: report.confined, away: report.away };
        self.mappings = Some((read, kept));
        self.follower.look(now(), SystemTime::now(), report.findings)
    }
}
