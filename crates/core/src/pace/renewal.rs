//! Renewal: tasks are made to recompute the interval between their scan steps.
//!
//! A task recomputes its scan period at its first top-tier fault after a pass, with the step and
//! the period that are set at that moment. Scans do not mark the top tier, but a page that the
//! kernel promotes at the fault is there, and counts. So the kernel may promote at the lowest rate
//! that can be set, in two stages:
//!
//! 1. *Wide*: few steps that cover much of the program, so that they meet hot pages anywhere, until
//!    steps come often, or for the time of five steps. A task divides its period by the number of
//!    steps, so the period is shortened as the step is widened: tasks compute the same interval as
//!    with the finest step.
//! 2. *Fine*: the finest step and the whole period for one pass. In it the other tasks of the
//!    program recompute too. It also shows how often steps come: after a wide step a task waits 32
//!    times as long as the step took, regardless of the interval it has computed.
//!
//! `numa_balancing` 3 would have tasks recompute as well, because scans mark the top tier then. But
//! the kernel then also moves pages between nodes of the top tier, and wakes kswapd where one is
//! full: hot pages there are demoted.

use crate::access::Scans;
use crate::config::Config;
use crate::units::Nanos;

/// Renew when steps come 4x slower than configured: a program that runs half of the time, and whose
/// steps take time, stays within that factor.
const SELDOM: u64 = 4;
/// Steps within which tasks should fault on a page that the kernel promotes.
const WIDE_STEPS: u64 = 5;
/// Widest step, MB: with a wider one, the kernel's limit of [`MB_PER_S_MAX`] would determine the
/// computed interval.
const WIDE_MB_MAX: u32 = 64;
/// Shortest stage, so that what was marked can fault.
const STAGE_MIN: Nanos = Nanos::from_s(2);
/// Longest stage.
const STAGE_MAX: Nanos = Nanos::from_s(60);
/// Time to the second renewal; it doubles with each, because a program that hardly runs is scanned
/// rarely with any interval.
const AGAIN: Nanos = Nanos::from_s(30);
/// Longest time to the next renewal: if none of a program's hot pages is on a lower tier, a renewal
/// has no effect until one is.
const AGAIN_MAX: Nanos = Nanos::from_s(600);
/// Memory that the kernel lets one task scan in a second, at most, MB (Linux 6.12
/// kernel/sched/fair.c, MAX_SCAN_WINDOW).
const MB_PER_S_MAX: u32 = 2560;

/// The state of renewals.
#[derive(Debug)]
pub(super) struct Renewal {
    /// Time that a pass should take.
    period: Nanos,
    stage: Option<Stage>,
    next: Nanos,
    again: Nanos,
}

/// The stage of a renewal.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Wide { ends: Nanos },
    Fine { ends: Nanos },
}

impl Renewal {
    /// `None` if the rate limit or the period is left alone; if the kernel promotes anyway, so that
    /// tasks recompute without us; or if a scope excludes processes, because in a renewal the
    /// kernel promotes pages of any process.
    pub(super) fn new(config: &Config) -> Option<Renewal> {
        let kernel = &config.kernel;
        let promotes_nothing = kernel.numa_balancing_promote_rate_limit_mbps == Some(0);
        let excludes = config.scope.iter().any(|scope| scope.exclude);
        let period_ms = kernel.scan_period_min_ms.filter(|_| promotes_nothing && !excludes)?;
        Some(Renewal { period: Nanos::from_ms(period_ms.into()), stage: None, next: Nanos(0), again: AGAIN })
    }

    /// Whether a renewal should begin. No task recomputes before a pass has ended.
    pub(super) fn is_due(&mut self, now: Nanos, scans: &Scans, finest_mb: u32) -> bool {
        let seldom = self.is_seldom(scans, finest_mb);
        if !seldom {
            self.again = AGAIN;
        }
        seldom && scans.passes > 0 && now >= self.next
    }

    /// Whether steps come much less often than the period requires with the finest step.
    fn is_seldom(&self, scans: &Scans, finest_mb: u32) -> bool {
        let in_a_pass = scans.mib.div_ceil(finest_mb.into()).max(1);
        let least = Nanos::from_ms((1000 / (MB_PER_S_MAX / finest_mb).max(1)).into());
        scans.interval.0 >= SELDOM * (self.period.0 / in_a_pass).max(least.0)
    }

    /// The step of the wide stage; `of_pass_mb` is the step that completes a pass in time.
    pub(super) fn wide_mb(of_pass_mb: u32, finest_mb: u32) -> u32 {
        of_pass_mb.min(WIDE_MB_MAX).max(finest_mb)
    }

    /// Begins one; `interval` is the time between two steps.
    pub(super) fn begin(&mut self, now: Nanos, interval: Nanos) {
        let length = Nanos(interval.0.saturating_mul(WIDE_STEPS)).clamp(STAGE_MIN, STAGE_MAX);
        self.stage = Some(Stage::Wide { ends: now.plus(length) });
    }

    /// Continues the renewal under way. Returns whether it has ended.
    pub(super) fn go_on(&mut self, now: Nanos, scans: Option<&Scans>, finest_mb: u32) -> bool {
        let often = scans.is_some_and(|scans| !self.is_seldom(scans, finest_mb));
        match self.stage {
            Some(Stage::Wide { ends }) if often || now >= ends => {
                self.stage = Some(Stage::Fine { ends: now.plus(self.period.clamp(STAGE_MIN, STAGE_MAX)) });
                false
            }
            Some(Stage::Wide { .. }) => false,
            Some(Stage::Fine { ends }) if now < ends => false,
            Some(Stage::Fine { .. }) | None => {
                self.stage = None;
                self.next = now.plus(self.again);
                self.again = Nanos(self.again.0 * 2).min(AGAIN_MAX);
                true
            }
        }
    }

    /// Whether steps should be wide.
    pub(super) fn is_wide(&self) -> bool {
        matches!(self.stage, Some(Stage::Wide { .. }))
    }
}

/// The period in ms with which tasks compute, for the wide step, the same interval as for the
/// finest step and a period of `ms`.
pub(super) fn shortened_ms(ms: u32, wide_mb: u32, finest_mb: u32) -> u32 {
    let shortened = u64::from(ms) * u64::from(finest_mb) / u64::from(wide_mb.max(1));
    u32::try_from(shortened).unwrap_or(ms).max(1)
}
