//! The pace of the kernel's scans: how much memory one step marks, and how often a task takes one.
//!
//! A pass over a program takes its memory in steps of `scan_size_mb`, times the time between two of them. That time is a task's own, and in tiering
//! mode (`numa_balancing` 2) it stays as it is (Linux 6.12 kernel/sched/fair.c): a process has begun with `scan_period_min_ms` divided by its number of steps; a
//! thread, and with it a program that was started by vfork(2) or posix_spawn(3), has one step a `scan_delay_ms`; what has run under `numa_balancing` 1
//! for long, one in up to a minute.
//!
//! * *Renewal.* A task reckons its time between steps anew when, after a pass, a page of the top tier faults (task_numa_placement). Scans mark such pages only
//!   where `numa_balancing` has bit 1. So that bit is set for some steps where they come much more seldom than configured.
//! * *Size.* Small steps tell hot pages from cold ones best, and idle mappings, which take a step each, hold a pass up the less the shorter the time between steps
//!   is. Programs that are seldom scanned all the same need larger steps, or the second look at a page would come hours after the first.

use std::path::{Path, PathBuf};

use thermocline_core::config::Kernel;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::actuator::{Actuator, ActuatorError, Plan, Written};
use crate::source::hintfault::stamps::Steps;

/// Time in which the lower tiers' used memory is to be marked once.
const PASS: Nanos = Nanos::from_s(10);
/// What is taken for the time between two steps while it is not known: a thread's.
const INTERVAL: Nanos = Nanos::from_s(1);
/// Time between two looks.
const LOOK_EVERY: Nanos = Nanos::from_s(2);
/// `numa_balancing`: scans mark lower tiers.
const TIERING: u32 = 2;
/// `numa_balancing`: scans mark the top tier too.
const TIERING_AND_NORMAL: u32 = 3;
/// Where steps are so many times as far apart as configured, tasks are to reckon anew: a program that runs for half of the time, and for whose pages steps take time, is within that.
const SELDOM: u64 = 4;
/// Steps of a renewal: one of them has to come by a page of the top tier that faults.
const RENEWAL_STEPS: u64 = 5;
/// Shortest renewal, so that what was marked can fault.
const RENEWAL_MIN: Nanos = Nanos::from_s(2);
/// Longest renewal.
const RENEWAL_MAX: Nanos = Nanos::from_s(60);
/// Time to the second renewal; it doubles with each, for a program that hardly runs is scanned seldom whatever it has reckoned.
const AGAIN: Nanos = Nanos::from_s(30);
/// Longest time to the next renewal.
const AGAIN_MAX: Nanos = Nanos::from_s(3600);

/// Memory that the kernel lets one task scan in a second, at most, MB (MAX_SCAN_WINDOW).
const MB_PER_S_MAX: u32 = 2560;

/// What was changed at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paced {
    /// The step, to so many MB.
    Step(u32),
    /// Tasks reckon their time between steps anew: steps were so far apart.
    Renewing(Nanos),
    /// Scans mark lower tiers alone again.
    Renewed,
}

/// Sets `scan_size_mb` between `kernel.scan_size_mb` and `kernel.scan_size_max_mb`, and has tasks take up `kernel.scan_period_min_ms`.
#[derive(Debug)]
pub struct Pace {
    config: Kernel,
    size: PathBuf,
    most_mb: u32,
    set_mb: u32,
    looked: Option<Nanos>,
    renewal: Option<Renewal>,
}

/// When tasks reckon anew.
#[derive(Debug)]
struct Renewal {
    mode: PathBuf,
    /// Scans are to take this long for a pass.
    period: Nanos,
    ends: Option<Nanos>,
    next: Nanos,
    again: Nanos,
}

impl Pace {
    /// None where `plan` does not set the step, or it is not to be changed while running.
    pub fn new(kernel: &Kernel, plan: &Plan) -> Option<Pace> {
        let (least_mb, most_mb) = (kernel.scan_size_mb?, kernel.scan_size_max_mb?);
        let config = kernel.clone();
        let ours = |name| plan.changes.iter().find(|change| change.name == name).map(|change| &change.path);
        // A mode that is not ours to change is somebody's wish.
        let mode = ours("numa_balancing").filter(|_| kernel.numa_balancing == Some(TIERING));
        let renewal = mode.zip(kernel.scan_period_min_ms).map(|(mode, period_ms)| Renewal {
            mode: mode.clone(),
            period: Nanos::from_ms(period_ms.into()),
            ends: None,
            next: Nanos(0),
            again: AGAIN,
        });
        let size = ours("scan_size_mb")?.clone();
        (most_mb > least_mb).then_some(Pace {
            config,
            size,
            most_mb,
            set_mb: least_mb,
            looked: None,
            renewal,
        })
    }

    /// Looks, every two seconds, how much memory lower tiers hold and how often the kernel scans; sets the step where it is off by a quarter, and begins or ends
    /// a renewal. `steps` tells how often the kernel scans, where known.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn look(
        &mut self,
        now: Nanos,
        nodes: &[NodeState],
        topology: &Topology,
        steps: impl FnOnce() -> Option<Steps>,
        actuator: &mut Actuator,
    ) -> Result<Option<Paced>, ActuatorError> {
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY) {
            return Ok(None);
        }
        self.looked = Some(now);
        let (steps, used_mb) = (steps(), used_mb(nodes, topology));
        let finest_mb = self.config.step_mb(used_mb, machine_mb(nodes)).unwrap_or(self.most_mb);
        if let Some(renewal) = &mut self.renewal {
            if renewal.ends.is_some() {
                return Ok(renewal.end(now, actuator)?.then_some(Paced::Renewed));
            }
            if let Some(seldom) = steps.filter(|steps| renewal.is_due(now, steps, finest_mb)) {
                // First, because tasks divide their period by the number of steps.
                adjust(&self.size, finest_mb, actuator)?;
                self.set_mb = finest_mb;
                let begun = renewal.begin(now, seldom.interval, actuator)?;
                return Ok(begun.then_some(Paced::Renewing(seldom.interval)));
            }
        }
        let interval = steps.map_or(INTERVAL, |steps| steps.interval);
        let of_pass_mb = (used_mb * interval.0 as f64 / PASS.0 as f64).ceil() as u32;
        let wanted_mb = of_pass_mb.clamp(finest_mb, self.most_mb);
        if wanted_mb.abs_diff(self.set_mb) * 4 < self.set_mb {
            return Ok(None);
        }
        if !adjust(&self.size, wanted_mb, actuator)? {
            return Ok(None);
        }
        self.set_mb = wanted_mb;
        Ok(Some(Paced::Step(wanted_mb)))
    }
}

impl Renewal {
    /// Whether steps come much more seldom than they would by the period, with steps of `step_mb`. Before a pass has ended nothing is reckoned.
    fn is_due(&mut self, now: Nanos, steps: &Steps, step_mb: u32) -> bool {
        let in_a_pass = steps.mib.div_ceil(step_mb.into()).max(1);
        let least = Nanos::from_ms((1000 / (MB_PER_S_MAX / step_mb).max(1)).into());
        let seldom = steps.interval.0 >= SELDOM * (self.period.0 / in_a_pass).max(least.0);
        if !seldom {
            self.again = AGAIN;
        }
        seldom && steps.passes > 0 && now >= self.next
    }

    /// Whether it has begun: an operator who has set another mode has the say.
    fn begin(&mut self, now: Nanos, interval: Nanos, actuator: &mut Actuator) -> Result<bool, ActuatorError> {
        let length = Nanos(interval.0.saturating_mul(RENEWAL_STEPS)).clamp(RENEWAL_MIN, RENEWAL_MAX);
        self.ends = Some(now.plus(length));
        adjust(&self.mode, TIERING_AND_NORMAL, actuator)
    }

    /// Whether it has ended, which it does in its time.
    fn end(&mut self, now: Nanos, actuator: &mut Actuator) -> Result<bool, ActuatorError> {
        if self.ends.is_some_and(|ends| now < ends) {
            return Ok(false);
        }
        self.ends = None;
        self.next = now.plus(self.again);
        self.again = Nanos(self.again.0 * 2).min(AGAIN_MAX);
        adjust(&self.mode, TIERING, actuator)
    }
}

/// Writes a value of ours anew; whether it is another one now. Where an operator has set one since, that stays.
fn adjust(path: &Path, value: u32, actuator: &mut Actuator) -> Result<bool, ActuatorError> {
    Ok(matches!(actuator.adjust(path, &value.to_string())?, Some(Written::Changed { .. })))
}

fn machine_mb(nodes: &[NodeState]) -> f64 {
    nodes.iter().map(|state| state.managed_pages).sum::<u64>() as f64 / PAGES_PER_MIB as f64
}

/// What lower tiers hold.
fn used_mb(nodes: &[NodeState], topology: &Topology) -> f64 {
    let top = topology.nodes.iter().map(|node| node.tier).min();
    let lower = nodes.iter().filter(|state| topology.tier(state.node) > top);
    let used_pages: u64 = lower.map(|s| s.managed_pages.saturating_sub(s.free_pages)).sum();
    used_pages as f64 / PAGES_PER_MIB as f64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::topology::{Node, Watermarks};
    use thermocline_core::units::{NodeId, Pid, TierId};

    use super::*;
    use crate::actuator::{Lock, plan};
    use crate::root::Root;

    fn topology() -> Topology {
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as _),
            cpus: if id == 0 { vec![0] } else { Vec::new() },
            capacity_pages: 1 << 30,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 10, 10],
        };
        Topology::new((0..3).map(node).collect()).unwrap()
    }

    /// DRAM is full; the two lower tiers hold `mib` together.
    fn nodes(mib: u64) -> Vec<NodeState> {
        let state = |id: u16, used_mib: u64| NodeState {
            node: NodeId(id),
            free_pages: 0,
            managed_pages: used_mib * PAGES_PER_MIB,
            watermarks: Watermarks::default(),
        };
        vec![state(0, 400), state(1, mib / 3), state(2, mib - mib / 3)]
    }

    /// A kernel of files that is paced.
    struct Machine {
        root: Root,
        pace: Pace,
        actuator: Actuator,
        topology: Topology,
        _dir: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::at(dir.path());
            fs::create_dir_all(root.proc.join("sys/kernel/random")).unwrap();
            fs::write(root.proc.join("sys/kernel/random/boot_id"), "boot").unwrap();
            let folder = root.debugfs().join("sched/numa_balancing");
            fs::create_dir_all(&folder).unwrap();
            for (name, value) in [("scan_size_mb", "256"), ("scan_period_min_ms", "1000")] {
                fs::write(folder.join(name), value).unwrap();
            }
            fs::write(root.proc.join("sys/kernel/numa_balancing"), "1").unwrap();
            let kernel = Kernel {
                numa_balancing_promote_rate_limit_mbps: None,
                scan_size_mb: Some(8),
                scan_period_max_ms: None,
                ..Kernel::default()
            };
            let plan = plan(&root, &kernel).unwrap();
            let pace = Pace::new(&kernel, &plan).unwrap();
            let lock = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
            let (mut actuator, _) = Actuator::live(&root, lock).unwrap();
            actuator.apply(&plan).unwrap();
            Machine { root, pace, actuator, topology: topology(), _dir: dir }
        }

        fn look(&mut self, at_s: u64, mib: u64, steps: Option<Steps>) -> Option<Paced> {
            let now = Nanos::from_s(at_s);
            self.pace.look(now, &nodes(mib), &self.topology, || steps, &mut self.actuator).unwrap()
        }

        fn values(&self) -> (String, String) {
            let of = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_owned();
            let size = self.root.debugfs().join("sched/numa_balancing/scan_size_mb");
            (of(size), of(self.root.proc.join("sys/kernel/numa_balancing")))
        }
    }

    /// Before the first pass has ended.
    fn every(interval_ms: u64) -> Option<Steps> {
        Some(Steps { pid: Pid(1), interval: Nanos::from_ms(interval_ms), mib: 1000, passes: 0 })
    }

    #[test]
    fn the_step_grows_with_what_lower_tiers_hold_and_how_seldom_they_are_scanned_and_is_put_back() {
        let mut machine = Machine::new();
        assert_eq!(machine.look(0, 50, None), None, "a tenth is less than the least step");
        assert_eq!(machine.look(1, 1500, None), None, "too soon");
        assert_eq!(machine.look(10, 1000, every(1000)), Some(Paced::Step(100)));
        assert_eq!(machine.look(20, 1200, every(1000)), None, "20 is less than a quarter");
        assert_eq!(machine.look(30, 1_000_000, None), Some(Paced::Step(256)));
        assert_eq!(machine.look(40, 8192, every(10)), Some(Paced::Step(32)), "256 steps");
        let most = machine.pace.config.step_mb(8192.0, 100_000.0);
        assert_eq!(most, Some(80), "or no program takes one at every tick");
        assert_eq!(machine.look(50, 0, every(10)), Some(Paced::Step(8)));
        assert_eq!(machine.look(60, 300, every(8000)), Some(Paced::Step(240)), "seldom scanned");
        let size = machine.pace.size.clone();
        fs::write(&size, "7").unwrap();
        assert_eq!(machine.look(70, 1500, None), None, "an operator has set it");
        fs::write(&size, "240").unwrap();
        drop(machine.actuator);
        assert_eq!(fs::read_to_string(size).unwrap().trim(), "256");
    }

    #[test]
    fn tasks_that_are_seldom_scanned_reckon_anew_after_a_pass_and_again_if_that_did_not_help() {
        let mut machine = Machine::new();
        let values = |size: &str, mode: &str| (size.to_owned(), mode.to_owned());
        // 1000 MiB in steps of 8 MB, 125 of them in five seconds: 40 ms.
        let steps = |interval_ms, passes| every(interval_ms).map(|steps| Steps { passes, ..steps });
        assert_eq!(machine.look(2, 1000, steps(1000, 0)), Some(Paced::Step(100)), "no pass has ended");
        assert_eq!(machine.look(4, 1000, steps(1000, 1)), Some(Paced::Renewing(Nanos::from_s(1))));
        assert_eq!(machine.values(), values("8", "3"));
        assert_eq!(machine.look(8, 1000, steps(1000, 1)), None, "five steps");
        assert_eq!(machine.look(10, 1000, steps(1000, 1)), Some(Paced::Renewed));
        assert_eq!(machine.values(), values("8", "2"));
        assert_eq!(machine.look(12, 1000, steps(1000, 1)), Some(Paced::Step(100)), "of no help");
        assert_eq!(machine.look(39, 1000, steps(1000, 3)), None);
        assert_eq!(machine.look(41, 1000, steps(1000, 3)), Some(Paced::Renewing(Nanos::from_s(1))));
        assert_eq!(machine.look(50, 1000, steps(40, 3)), Some(Paced::Renewed));
        assert_eq!(machine.look(52, 1000, steps(79, 3)), None, "as often as configured");
        assert_eq!(machine.look(200, 1000, steps(40, 9)), None);
        let mode = machine.root.proc.join("sys/kernel/numa_balancing");
        drop(machine.actuator);
        assert_eq!(fs::read_to_string(mode).unwrap().trim(), "1");
    }

    #[test]
    fn a_mode_that_somebody_else_has_set_stays() {
        let mut machine = Machine::new();
        let mode = machine.root.proc.join("sys/kernel/numa_balancing");
        fs::write(&mode, "0").unwrap();
        let steps = every(1000).map(|steps| Steps { passes: 1, ..steps });
        assert_eq!(machine.look(4, 1000, steps), None);
        assert_eq!(machine.look(40, 1000, steps), None);
        assert_eq!(machine.values().1, "0");
    }

    #[test]
    fn a_step_that_is_fixed_or_left_alone_is_not_paced() {
        let fixed = Kernel { scan_size_max_mb: None, ..Kernel::default() };
        let alone = Kernel { scan_size_mb: None, ..Kernel::default() };
        for kernel in [fixed, alone, Kernel::default()] {
            assert!(Pace::new(&kernel, &Plan::default()).is_none());
        }
    }
}
