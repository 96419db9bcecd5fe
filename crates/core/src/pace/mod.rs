//! The pace of the kernel's scans: how much memory one step marks, and how long a pass is to take.
//!
//! A pass over a program takes its memory in steps of `scan_size_mb`, times the time between two of
//! them. Each task has its own interval, which does not change in tiering mode (`numa_balancing` 2;
//! Linux 6.12 kernel/sched/fair.c). A process starts with `scan_period_min_ms` divided by its
//! number of steps. A thread, or a program started by vfork(2) or posix_spawn(3), has one step per
//! `scan_delay_ms`. A task that has run under `numa_balancing` 1 for long has one in up to a
//! minute.
//!
//! * *Renewal.* After a pass, a task recomputes the interval between its steps at its first fault
//!   on a page that is in the top tier or is promoted by the fault (task_numa_fault,
//!   task_numa_placement). So if steps come much less often than configured, the kernel may promote
//!   a little for some steps; see `renewal`.
//! * *Cost.* The step is smaller where its hint faults cost more than can be paid for
//!   ([`payoff`](crate::payoff)).
//! * *Size.* Small steps separate hot pages from cold ones best, and short intervals reduce the
//!   delay by idle mappings, which take a step each. Programs that are rarely scanned need larger
//!   steps, or a page would be scanned for the second time hours after the first.

mod interval;
mod passes;
mod renewal;
mod samples;

#[cfg(test)]
mod tests;

pub use passes::{Passes, followed};
pub use samples::{INTERRUPT_NS, SamplePeriod};

use crate::access::Scans;
use crate::config::{Config, Kernel};
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, PAGES_PER_MIB, Pid};
use interval::Interval;
use renewal::Renewal;

/// Time in which all used memory of lower tiers should be marked once.
pub(crate) const PASS: Nanos = Nanos::from_s(10);
/// Assumed interval between two steps while it is unknown: that of a thread.
const INTERVAL: Nanos = Nanos::from_s(1);
/// What can be paid for grows at most twofold from one decision to the next, because the faults of
/// a step come only later. It falls faster.
const PAID_GROWTH: f64 = 2.0;
const PAID_FALL: f64 = 1.0 / 16.0;
/// The least share of a step: it is at least 1 MB anyway.
const PAID_MIN: f64 = 1.0 / 256.0;
/// Time between two decisions.
const LOOK_EVERY: Nanos = Nanos::from_s(2);
/// Time between two decisions during a renewal, which ends as soon as it has had its effect.
const LOOK_RENEWING: Nanos = Nanos::from_ms(200);

/// By how much hint faults may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affordable {
    /// When their cost was measured. The factor holds once for each measurement: steps taken since
    /// do not show in it.
    pub measured: Nanos,
    /// How many times as many as then can be paid for.
    pub factor: f64,
}

/// How much of a [`ScanPace`] a machine's kernel can follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Nothing of it.
    #[default]
    Nothing,
    /// The step.
    Steps,
    /// The step, the periods and renewals.
    Renewals,
}

/// How the kernel should scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPace {
    /// Memory that one step marks, MB: `scan_size_mb`.
    pub step_mb: u32,
    /// Shortest time for a pass over a task's memory, ms: `scan_period_min_ms`. `None` leaves it
    /// alone.
    pub period_min_ms: Option<u32>,
    /// The longest, ms: `scan_period_max_ms`. `None` leaves it alone.
    pub period_max_ms: Option<u32>,
    /// Whether the kernel should promote at the lowest rate that can be set, so that tasks
    /// recompute the interval between their steps; otherwise it promotes nothing.
    pub renewing: bool,
}

impl ScanPace {
    /// How often a report of the scans is needed: more often during a renewal.
    pub const fn look_every(self) -> Nanos {
        if self.renewing { LOOK_RENEWING } else { LOOK_EVERY }
    }
}

/// Decides on the step between `kernel.scan_size_mb` and `kernel.scan_size_max_mb`, and on when
/// tasks should recompute by `kernel.scan_period_min_ms`.
#[derive(Debug)]
pub struct Pace {
    config: Kernel,
    most_mb: u32,
    looked: Option<Nanos>,
    /// How the kernel scans, as last reported.
    scans: Option<Scans>,
    renewal: Option<Renewal>,
    /// Share of the step that can be paid for.
    paid: f64,
    /// The measurement that it follows.
    measured: Option<Nanos>,
    wish: ScanPace,
}

impl Pace {
    /// `None` if the step is left alone or must not change.
    pub fn new(config: &Config) -> Option<Pace> {
        let kernel = &config.kernel;
        let (least_mb, most_mb) = (kernel.scan_size_mb?, kernel.scan_size_max_mb?);
        (most_mb > least_mb).then(|| Pace {
            config: kernel.clone(),
            most_mb,
            looked: None,
            scans: None,
            renewal: Renewal::new(config),
            paid: 1.0,
            measured: None,
            wish: ScanPace {
                step_mb: least_mb,
                period_min_ms: kernel.scan_period_min_ms,
                period_max_ms: kernel.scan_period_max_ms,
                renewing: false,
            },
        })
    }

    /// Takes other scopes: one that excludes processes ends renewals.
    pub fn reload(&mut self, config: &Config) {
        match Renewal::new(config) {
            None if self.renewal.is_some() => {
                self.renewal = None;
                self.wish.renewing = false;
                self.wish.period_min_ms = self.config.scan_period_min_ms;
                self.wish.period_max_ms = self.config.scan_period_max_ms;
            }
            Some(renewal) if self.renewal.is_none() => self.renewal = Some(renewal),
            _ => {}
        }
    }

    /// Takes a report of how the kernel scans; `None` if that is not known, or no longer.
    pub fn see(&mut self, scans: Option<Scans>) {
        self.scans = scans;
    }

    /// Decides every two seconds, and more often during a renewal, from the memory that lower tiers
    /// hold and from how often the kernel scans. It changes the step if that is off by a quarter,
    /// and begins or ends a renewal. Returns how the kernel should scan from now on; `None` if the
    /// machine cannot set that. `affordable` is `None` if hint faults may cost what they will.
    pub fn look(
        &mut self,
        now: Nanos,
        nodes: &[NodeState],
        topology: &Topology,
        pacing: Pacing,
        affordable: Option<Affordable>,
    ) -> Option<ScanPace> {
        if pacing == Pacing::Nothing {
            return None;
        }
        if self.looked.is_none_or(|looked| now.since(looked) >= self.wish.look_every()) {
            self.looked = Some(now);
            self.afford(affordable);
            self.decide(now, used_mb(nodes, topology), machine_mb(nodes), pacing);
        }
        Some(self.wish)
    }

    fn afford(&mut self, affordable: Option<Affordable>) {
        let Some(Affordable { measured, factor }) = affordable else { return };
        if self.measured.replace(measured) != Some(measured) {
            self.paid = (self.paid * factor.clamp(PAID_FALL, PAID_GROWTH)).clamp(PAID_MIN, 1.0);
        }
    }

    /// The time that a pass takes, and over whose memory, if that is known.
    pub fn pass(&self) -> (Nanos, Option<Pid>) {
        let of = |scans: Scans| {
            scans.interval.0.saturating_mul(scans.mib.div_ceil(self.wish.step_mb.max(1).into()))
        };
        self.scans.map_or((PASS, None), |scans| (Nanos(of(scans).max(1)), Some(scans.pid)))
    }

    fn decide(&mut self, now: Nanos, used_mb: f64, machine_mb: f64, pacing: Pacing) {
        let finest_mb = self.config.step_mb(used_mb, machine_mb).unwrap_or(self.most_mb);
        let interval = self.scans.map_or(INTERVAL, |scans| scans.interval);
        // No process has more on lower tiers than it has.
        let of_one_mb = self.scans.map_or(used_mb, |scans| used_mb.min(scans.mib as f64));
        let of_pass_mb = (of_one_mb * interval.0 as f64 / PASS.0 as f64).ceil() as u32;
        if let Some(renewal) = self.renewal.as_mut().filter(|_| pacing == Pacing::Renewals) {
            if self.wish.renewing {
                let was_wide = renewal.is_wide();
                self.wish.renewing = !renewal.go_on(now, self.scans.as_ref(), finest_mb);
                if was_wide && !renewal.is_wide() {
                    // Whole periods come only with the finest step: a task that recomputes in
                    // between is scanned too often for one pass, and recomputes after it. In the
                    // other order it would be scanned too rarely, for a long time.
                    self.wish.step_mb = finest_mb;
                    self.wish.period_min_ms = self.config.scan_period_min_ms;
                    self.wish.period_max_ms = self.config.scan_period_max_ms;
                }
                return;
            }
            if self.scans.is_some_and(|scans| renewal.is_due(now, &scans, finest_mb)) {
                let wide_mb = Renewal::wide_mb(of_pass_mb.min(self.most_mb), finest_mb);
                let shortened = |ms| renewal::shortened_ms(ms, wide_mb, finest_mb);
                renewal.begin(now, interval);
                self.wish = ScanPace {
                    step_mb: wide_mb,
                    period_min_ms: self.config.scan_period_min_ms.map(shortened),
                    period_max_ms: self.config.scan_period_max_ms.map(shortened),
                    renewing: true,
                };
                return;
            }
        }
        let wanted_mb = f64::from(of_pass_mb.clamp(finest_mb, self.most_mb));
        let wanted_mb = ((wanted_mb * self.paid) as u32).max(1);
        if u64::from(wanted_mb.abs_diff(self.wish.step_mb)) * 4 >= u64::from(self.wish.step_mb) {
            self.wish.step_mb = wanted_mb;
        }
    }
}

fn machine_mb(nodes: &[NodeState]) -> f64 {
    nodes.iter().map(|state| state.managed_pages).sum::<u64>() as f64 / PAGES_PER_MIB as f64
}

/// Used memory of lower tiers.
fn used_mb(nodes: &[NodeState], topology: &Topology) -> f64 {
    let top = topology.nodes.iter().map(|node| node.tier).min();
    let lower = nodes.iter().filter(|state| topology.tier(state.node) > top);
    let used_pages: u64 = lower.map(|s| s.managed_pages.saturating_sub(s.free_pages)).sum();
    used_pages as f64 / PAGES_PER_MIB as f64
}
