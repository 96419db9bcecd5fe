//! Makes the kernel's scans follow the pace that the engine wishes (`thermocline_core::pace`).
//!
//! It writes `scan_size_mb`, and for a renewal also the scan periods and the promote rate limit:
//! with the lowest limit that can be set, the kernel promotes 256 pages a second, each of which
//! makes one task recompute the interval between its steps. A value that an operator has set stays;
//! it is checked again from time to time, because the wish still holds.

use std::path::PathBuf;

use thermocline_core::pace::{Pacing, ScanPace};
use thermocline_core::units::Nanos;

use crate::actuator::{Actuator, ActuatorError, Plan, Written};

/// `numa_balancing_promote_rate_limit_MBps`: the kernel promotes nothing.
const NOTHING: u32 = 0;
/// The same: it promotes at the lowest rate that can be set. Ours.
const LITTLE: u32 = 1;
/// Time to the next attempt if a value could not be set because it is no longer ours.
const AGAIN: Nanos = Nanos::from_s(2);

/// A part of a wish that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paced {
    /// The step, to this many MB.
    Step(u32),
    /// The kernel promotes a little, so that tasks recompute the interval between their steps.
    Renewing,
    /// The kernel promotes nothing again.
    Renewed,
}

/// The kernel settings through which we pace its scans.
#[derive(Debug)]
pub struct Pace {
    size: Setting,
    period_min: Option<Setting>,
    period_max: Option<Setting>,
    /// `None` if it is not ours to change, or was not 0 at first.
    rate_limit: Option<Setting>,
    wished: Option<ScanPace>,
    tried: Nanos,
}

/// One setting.
#[derive(Debug)]
struct Setting {
    path: PathBuf,
    /// Its last value.
    set: Option<u32>,
}

impl Pace {
    /// `None` if `plan` does not set the step.
    pub fn new(plan: &Plan) -> Option<Pace> {
        let ours = |name| {
            let change = plan.changes.iter().find(|change| change.name == name)?;
            Some(Setting { path: change.path.clone(), set: change.to.parse().ok() })
        };
        Some(Pace {
            size: ours("scan_size_mb")?,
            period_min: ours("scan_period_min_ms"),
            period_max: ours("scan_period_max_ms"),
            rate_limit: ours("numa_balancing_promote_rate_limit_MBps")
                .filter(|limit| limit.set == Some(NOTHING)),
            wished: None,
            tried: Nanos(0),
        })
    }

    /// For modes in which nothing moves: the kernel must not promote either.
    pub fn without_renewals(self) -> Pace {
        Pace { rate_limit: None, ..self }
    }

    /// How much of a wish can be carried out.
    pub fn pacing(&self) -> Pacing {
        if self.rate_limit.is_some() { Pacing::Renewals } else { Pacing::Steps }
    }

    /// Sets the values that differ from the wish: first the step, then the periods, then the rate
    /// limit, so that no task recomputes with an old step or period. Returns the changes to report.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn follow(
        &mut self,
        now: Nanos,
        wish: ScanPace,
        actuator: &mut Actuator,
    ) -> Result<Option<Paced>, ActuatorError> {
        if self.wished == Some(wish) && now.since(self.tried) < AGAIN {
            return Ok(None);
        }
        (self.wished, self.tried) = (Some(wish), now);
        let size = self.size.set(wish.step_mb, actuator)?;
        let Some(rate_limit) = &mut self.rate_limit else {
            return Ok(size.then_some(Paced::Step(wish.step_mb)));
        };
        let periods =
            [(&mut self.period_min, wish.period_min_ms), (&mut self.period_max, wish.period_max_ms)];
        for (setting, wished_ms) in periods {
            if let (Some(setting), Some(ms)) = (setting, wished_ms) {
                setting.set(ms, actuator)?;
            }
        }
        if rate_limit.set(if wish.renewing { LITTLE } else { NOTHING }, actuator)? {
            return Ok(Some(if wish.renewing { Paced::Renewing } else { Paced::Renewed }));
        }
        // The steps of a renewal are part of it.
        Ok((size && !wish.renewing).then_some(Paced::Step(wish.step_mb)))
    }
}

impl Setting {
    /// Sets it if it differs; returns whether it was set. A value that an operator has set since
    /// stays.
    fn set(&mut self, value: u32, actuator: &mut Actuator) -> Result<bool, ActuatorError> {
        if self.set == Some(value) {
            return Ok(false);
        }
        let written = actuator.adjust(&self.path, &value.to_string())?;
        if written.is_some() {
            self.set = Some(value);
        }
        Ok(matches!(written, Some(Written::Changed { .. })))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::access::Scans;
    use thermocline_core::config::{Config, Kernel};
    use thermocline_core::pace;
    use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
    use thermocline_core::units::{NodeId, PAGES_PER_MIB, Pid, TierId};

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

    /// A kernel of files that is paced as the engine decides.
    struct Machine {
        root: Root,
        decider: pace::Pace,
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
            let decider = pace::Pace::new(&Config { kernel, ..Config::default() }).unwrap();
            let pace = Pace::new(&plan).unwrap();
            let lock = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
            let (mut actuator, _) = Actuator::live(&root, lock).unwrap();
            actuator.apply(&plan).unwrap();
            Machine { root, decider, pace, actuator, topology: topology(), _dir: dir }
        }

        fn look(&mut self, at_s: u64, mib: u64, scans: Option<Scans>) -> Option<Paced> {
            let (now, pacing) = (Nanos::from_s(at_s), self.pace.pacing());
            self.decider.see(scans);
            let wish = self.decider.look(now, &nodes(mib), &self.topology, pacing, None).unwrap();
            self.pace.follow(now, wish, &mut self.actuator).unwrap()
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
    fn every(interval_ms: u64) -> Option<Scans> {
        Some(Scans { pid: Pid(1), interval: Nanos::from_ms(interval_ms), mib: 1000, passes: 0 })
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
        assert_eq!(machine.look(50, 0, every(10)), Some(Paced::Step(8)));
        assert_eq!(machine.look(60, 300, every(8000)), Some(Paced::Step(240)), "seldom scanned");
        let size = machine.pace.size.path.clone();
        fs::write(&size, "7").unwrap();
        assert_eq!(machine.look(70, 1500, None), None, "an operator has set it");
        fs::write(&size, "240").unwrap();
        assert_eq!(machine.look(72, 1500, None), Some(Paced::Step(150)), "and has put it back");
        drop(machine.actuator);
        assert_eq!(fs::read_to_string(size).unwrap().trim(), "256");
    }

    #[test]
    fn tasks_that_are_seldom_scanned_recompute_after_a_pass_and_again_if_that_did_not_help() {
        let mut machine = Machine::new();
        // 1000 MiB in steps of 8 MB, 125 of them in five seconds: 40 ms.
        let steps = |interval_ms, passes| every(interval_ms).map(|scans| Scans { passes, ..scans });
        assert_eq!(machine.look(2, 1000, steps(1000, 0)), Some(Paced::Step(100)), "no pass has ended");
        assert_eq!(machine.look(4, 1000, steps(1000, 1)), Some(Paced::Renewing));
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
        assert_eq!(machine.look(46, 1000, steps(1000, 3)), Some(Paced::Renewing));
        assert_eq!(machine.look(47, 1000, steps(40, 3)), None, "often: other tasks have a pass");
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

    #[test]
    fn a_rate_limit_that_somebody_else_has_set_stays() {
        let mut machine = Machine::new();
        fs::write(machine.root.proc.join(RATE_LIMIT), "77").unwrap();
        let steps = every(1000).map(|scans| Scans { passes: 1, ..scans });
        assert_eq!(machine.look(4, 1000, steps), None);
        assert_eq!(machine.look(40, 1000, steps), None);
        assert_eq!(machine.values()[2], 77);
    }

    #[test]
    fn where_nothing_is_to_move_the_kernel_promotes_nothing_either() {
        let mut machine = Machine::new();
        machine.pace = machine.pace.without_renewals();
        let steps = every(1000).map(|scans| Scans { passes: 1, ..scans });
        assert_eq!(machine.look(4, 1000, steps), Some(Paced::Step(100)), "larger steps are all there is");
        assert_eq!(machine.look(40, 1000, steps), None);
        assert_eq!(machine.values(), [100, 5000, 0]);
    }

    #[test]
    fn a_rate_limit_with_which_the_kernel_promotes_stays() {
        let mut machine = Machine::new();
        let to_100 = Kernel {
            scan_size_mb: Some(9),
            numa_balancing_promote_rate_limit_mbps: Some(100),
            ..Kernel::default()
        };
        machine.pace = Pace::new(&plan(&machine.root, &to_100).unwrap()).unwrap();
        assert_eq!(machine.pace.pacing(), Pacing::Steps);
        let steps = every(1000).map(|scans| Scans { passes: 1, ..scans });
        assert_eq!(machine.look(4, 1000, steps), Some(Paced::Step(100)));
        assert_eq!(machine.values()[1..], [5000, 0], "as they were");
    }

    #[test]
    fn where_the_step_is_not_ours_nothing_is_paced() {
        assert!(Pace::new(&Plan::default()).is_none());
    }
}
