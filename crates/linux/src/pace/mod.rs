//! The pace of the kernel's scans: how much memory one step marks, and how often a task takes one.
//!
//! A pass over a program takes its memory in steps of `scan_size_mb`, times the time between two of them. That time is a task's own, and in tiering
//! mode (`numa_balancing` 2) it stays as it is (Linux 6.12 kernel/sched/fair.c): a process has begun with `scan_period_min_ms` divided by its number of steps; a
//! thread, and with it a program that was started by vfork(2) or posix_spawn(3), has one step a `scan_delay_ms`; what has run under `numa_balancing` 1
//! for long, one in up to a minute.
//!
//! * *Renewal.* A task recomputes the interval between its steps at its first fault, after a pass, on
//!   a page that is in the top tier, or comes there by the fault
//!   (task_numa_fault, task_numa_placement). So the kernel is let promote a little for some steps where they come much more seldom than configured (see `renewal`).
//! * *Size.* Small steps separate hot pages from cold ones best, and idle mappings, which take a step each, hold a pass up the less the shorter the time between steps
//!   is. Programs that are seldom scanned all the same need larger steps, or the second look at a page would come hours after the first.

mod renewal;

use std::path::{Path, PathBuf};

use thermocline_core::config::Kernel;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::actuator::{Actuator, ActuatorError, Plan, Written};
use crate::source::hintfault::stamps::Steps;
use renewal::Renewal;

/// Time in which the lower tiers' used memory is to be marked once.
const PASS: Nanos = Nanos::from_s(10);
/// What is taken for the time between two steps while it is not known: a thread's.
const INTERVAL: Nanos = Nanos::from_s(1);
/// Time between two looks.
const LOOK_EVERY: Nanos = Nanos::from_s(2);
/// Time between two looks during a renewal: it ends as soon as it has done its work.
const LOOK_RENEWING: Nanos = Nanos::from_ms(200);

/// What was changed at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paced {
    /// The step, to so many MB.
    Step(u32),
    /// Tasks recompute the interval between steps: steps were so far apart.
    Renewing(Nanos),
    /// The kernel promotes nothing again.
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

impl Pace {
    /// None where `plan` does not set the step, or it is not to be changed while running.
    pub fn new(kernel: &Kernel, plan: &Plan) -> Option<Pace> {
        let (least_mb, most_mb) = (kernel.scan_size_mb?, kernel.scan_size_max_mb?);
        let config = kernel.clone();
        let ours = |name| plan.changes.iter().find(|change| change.name == name).map(|change| &change.path);
        let renewal = Renewal::new(kernel, plan);
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

    /// Where the kernel is to promote nothing, not even in a renewal: nothing moves, or somebody is
    /// left alone.
    pub fn without_renewals(self) -> Pace {
        Pace { renewal: None, ..self }
    }

    /// Looks, every two seconds and more often during a renewal, how much memory lower tiers hold and how often the kernel scans; sets the step where it is off by a quarter, and begins or ends
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
        let renewing = self.renewal.as_ref().is_some_and(Renewal::is_under_way);
        let every = if renewing { LOOK_RENEWING } else { LOOK_EVERY };
        if self.looked.is_some_and(|looked| now.since(looked) < every) {
            return Ok(None);
        }
        self.looked = Some(now);
        let (steps, used_mb) = (steps(), used_mb(nodes, topology));
        let finest_mb = self.config.step_mb(used_mb, machine_mb(nodes)).unwrap_or(self.most_mb);
        let interval = steps.map_or(INTERVAL, |steps| steps.interval);
        let of_pass_mb = (used_mb * interval.0 as f64 / PASS.0 as f64).ceil() as u32;
        if let Some(renewal) = &mut self.renewal {
            if renewing {
                let was_wide = renewal.is_wide();
                let ended = renewal.go_on(now, steps.as_ref(), finest_mb, actuator)?;
                if was_wide && !renewal.is_wide() {
                    adjust(&self.size, finest_mb, actuator)?;
                    self.set_mb = finest_mb;
                    renewal.whole_periods(actuator)?;
                }
                return Ok(ended.then_some(Paced::Renewed));
            }
            if steps.is_some_and(|steps| renewal.is_due(now, &steps, finest_mb)) {
                let wide_mb = Renewal::wide_mb(of_pass_mb.min(self.most_mb), finest_mb);
                adjust(&self.size, wide_mb, actuator)?;
                self.set_mb = wide_mb;
                let begun = renewal.begin(now, interval, (wide_mb, finest_mb), actuator)?;
                return Ok(begun.then_some(Paced::Renewing(interval)));
            }
        }
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

    const RATE_LIMIT: &str = "sys/kernel/numa_balancing_promote_rate_limit_MBps";

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
            fs::write(root.proc.join(RATE_LIMIT), "65536").unwrap();
            let kernel = Kernel { scan_size_mb: Some(8), scan_period_max_ms: None, ..Kernel::default() };
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

        /// Step, period and rate limit.
        fn values(&self) -> [u32; 3] {
            let of = |path: PathBuf| fs::read_to_string(path).unwrap().trim().parse().unwrap();
            let folder = self.root.debugfs().join("sched/numa_balancing");
            let limit = self.root.proc.join(RATE_LIMIT);
            [of(folder.join("scan_size_mb")), of(folder.join("scan_period_min_ms")), of(limit)]
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
        // 1000 MiB in steps of 8 MB, 125 of them in five seconds: 40 ms.
        let steps = |interval_ms, passes| every(interval_ms).map(|steps| Steps { passes, ..steps });
        assert_eq!(machine.look(2, 1000, steps(1000, 0)), Some(Paced::Step(100)), "no pass has ended");
        assert_eq!(machine.look(4, 1000, steps(1000, 1)), Some(Paced::Renewing(Nanos::from_s(1))));
        let [wide_mb, shortened_ms, limit] = machine.values();
        assert_eq!((wide_mb, limit), (64, 1), "so that a third of the program is looked at");
        assert_eq!(shortened_ms, 5000 * 8 / 64, "as often as with steps of 8 MB");
        assert_eq!(machine.look(8, 1000, steps(1000, 1)), None, "five steps");
        assert_eq!(machine.values()[0], 64);
        assert_eq!(machine.look(9, 1000, steps(1000, 1)), None, "and a pass, or what would be one");
        assert_eq!(machine.values(), [8, 5000, 1]);
        assert_eq!(machine.look(13, 1000, steps(1000, 1)), None);
        assert_eq!(machine.look(15, 1000, steps(1000, 1)), Some(Paced::Renewed));
        assert_eq!(machine.values(), [8, 5000, 0]);
        assert_eq!(machine.look(17, 1000, steps(1000, 1)), Some(Paced::Step(100)), "of no help");
        assert_eq!(machine.look(44, 1000, steps(1000, 3)), None);
        assert_eq!(machine.look(46, 1000, steps(1000, 3)), Some(Paced::Renewing(Nanos::from_s(1))));
        assert_eq!(machine.look(47, 1000, steps(40, 3)), None, "often: other tasks have a pass to reckon");
        assert_eq!(machine.values(), [8, 5000, 1]);
        assert_eq!(machine.look(51, 1000, steps(40, 3)), None);
        assert_eq!(machine.look(53, 1000, steps(40, 4)), Some(Paced::Renewed));
        assert_eq!(machine.values(), [8, 5000, 0]);
        assert_eq!(machine.look(55, 1000, steps(79, 4)), None, "as often as configured");
        assert_eq!(machine.look(200, 1000, steps(40, 9)), None);
        drop(machine.actuator);
        let root = machine.root;
        let limit = fs::read_to_string(root.proc.join(RATE_LIMIT)).unwrap();
        assert_eq!(limit.trim(), "65536");
    }

    /// What a task computes in the wide stage is what it would with the finest step.
    #[test]
    fn a_wider_step_has_a_shorter_period() {
        for mib in [300, 1000, 3000] {
            let mut machine = Machine::new();
            let steps = every(1500).map(|steps| Steps { passes: 1, mib, ..steps });
            assert!(matches!(machine.look(2, mib, steps), Some(Paced::Renewing(_))));
            let [wide_mb, period_ms, _] = machine.values();
            let finest_mb = machine.pace.config.step_mb(mib as f64, 400.0 + mib as f64).unwrap();
            let reckoned =
                |period_ms: u32, step_mb: u32| f64::from(period_ms) / mib as f64 * f64::from(step_mb);
            let (wide, fine) = (reckoned(period_ms, wide_mb), reckoned(5000, finest_mb));
            assert!((wide / fine - 1.0).abs() < 0.01, "{mib} MiB: {wide} ms and {fine} ms between two steps");
        }
    }

    #[test]
    fn a_rate_limit_that_somebody_else_has_set_stays() {
        let mut machine = Machine::new();
        fs::write(machine.root.proc.join(RATE_LIMIT), "77").unwrap();
        let steps = every(1000).map(|steps| Steps { passes: 1, ..steps });
        assert_eq!(machine.look(4, 1000, steps), None);
        assert_eq!(machine.look(40, 1000, steps), None);
        assert_eq!(machine.values()[2], 77);
    }

    #[test]
    fn where_nothing_is_to_move_the_kernel_promotes_nothing_either() {
        let mut machine = Machine::new();
        machine.pace = machine.pace.without_renewals();
        let steps = every(1000).map(|steps| Steps { passes: 1, ..steps });
        assert_eq!(machine.look(4, 1000, steps), Some(Paced::Step(100)), "larger steps are all there is");
        assert_eq!(machine.look(40, 1000, steps), None);
        assert_eq!(machine.values(), [100, 5000, 0]);
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
