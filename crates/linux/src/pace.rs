//! How much memory one scan marks, set again as lower tiers fill and empty, and as the kernel scans more or less often.
//!
//! A thread's scans come once a second of its time, whatever its memory (Linux 6.12 kernel/sched/fair.c, init_numa_balancing: a
//! thread starts with `scan_delay_ms` as its period, and in tiering mode nothing changes it); those of a task that has run
//! under `numa_balancing=1` for long come once in up to a minute. So the time of a pass over a program is its memory in steps
//! of `scan_size_mb`, times the time between two of them. Small steps tell hot pages from cold ones best; large or seldom scanned programs
//! need larger ones, or the second look at a page would come hours after the first.

use std::path::PathBuf;

use thermocline_core::config::Kernel;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::actuator::{Actuator, ActuatorError, Plan, Written};

/// Time in which the lower tiers' used memory is to be marked once.
const PASS: Nanos = Nanos::from_s(10);
/// Steps that come more often than this make the pass shorter, not smaller steps necessary.
const INTERVAL_MIN: Nanos = Nanos::from_s(1);
/// Time between two looks.
const LOOK_EVERY: Nanos = Nanos::from_s(10);

/// Sets `scan_size_mb` between `kernel.scan_size_mb` and `kernel.scan_size_max_mb`.
#[derive(Debug)]
pub struct Pace {
    path: PathBuf,
    least_mb: u32,
    most_mb: u32,
    set_mb: u32,
    looked: Option<Nanos>,
}

impl Pace {
    /// None where `plan` does not set the step, or it is not to be changed while running.
    pub fn new(kernel: &Kernel, plan: &Plan) -> Option<Pace> {
        let (least_mb, most_mb) = (kernel.scan_size_mb?, kernel.scan_size_max_mb?);
        let step = plan.changes.iter().find(|change| change.name == "scan_size_mb")?;
        (most_mb > least_mb).then(|| Pace {
            path: step.path.clone(),
            least_mb,
            most_mb,
            set_mb: least_mb,
            looked: None,
        })
    }

    /// Looks, every ten seconds, how much memory lower tiers hold, and sets the step where it is off by a quarter. `interval` tells the
    /// time between two steps, where known. Returns the new step in MB where it was changed.
    ///
    /// # Errors
    /// The value cannot be written.
    pub fn look(
        &mut self,
        now: Nanos,
        nodes: &[NodeState],
        topology: &Topology,
        interval: impl FnOnce() -> Option<Nanos>,
        actuator: &mut Actuator,
    ) -> Result<Option<u32>, ActuatorError> {
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY) {
            return Ok(None);
        }
        self.looked = Some(now);
        let wanted_mb = self.step_mb(nodes, topology, interval().unwrap_or_default());
        if wanted_mb.abs_diff(self.set_mb) * 4 < self.set_mb {
            return Ok(None);
        }
        let Some(Written::Changed { .. }) = actuator.adjust(&self.path, &wanted_mb.to_string())? else {
            return Ok(None);
        };
        self.set_mb = wanted_mb;
        Ok(Some(wanted_mb))
    }

    fn step_mb(&self, nodes: &[NodeState], topology: &Topology, interval: Nanos) -> u32 {
        let top = topology.nodes.iter().map(|node| node.tier).min();
        let lower = nodes.iter().filter(|state| topology.tier(state.node) > top);
        let used_pages: u64 = lower.map(|s| s.managed_pages.saturating_sub(s.free_pages)).sum();
        let used_mb = used_pages as f64 / PAGES_PER_MIB as f64;
        let step_mb = used_mb * interval.max(INTERVAL_MIN).0 as f64 / PASS.0 as f64;
        (step_mb.ceil() as u32).clamp(self.least_mb, self.most_mb)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::topology::{Node, Watermarks};
    use thermocline_core::units::{NodeId, TierId};

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
            free_pages: (1 << 30) - used_mib * PAGES_PER_MIB,
            managed_pages: 1 << 30,
            watermarks: Watermarks::default(),
        };
        vec![state(0, 4_000_000), state(1, mib / 3), state(2, mib - mib / 3)]
    }

    #[test]
    fn the_step_grows_with_what_lower_tiers_hold_within_its_bounds_and_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.proc.join("sys/kernel/random")).unwrap();
        fs::write(root.proc.join("sys/kernel/random/boot_id"), "boot").unwrap();
        let folder = root.debugfs().join("sched/numa_balancing");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scan_size_mb"), "256").unwrap();
        let kernel = Kernel {
            numa_balancing: None,
            numa_balancing_promote_rate_limit_mbps: None,
            scan_period_min_ms: None,
            scan_period_max_ms: None,
            ..Kernel::default()
        };
        let plan = plan(&root, &kernel).unwrap();
        let mut pace = Pace::new(&kernel, &plan).unwrap();
        let lock = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
        let (mut actuator, _) = Actuator::live(&root, lock).unwrap();
        actuator.apply(&plan).unwrap();

        let topology = topology();
        let mut looks = |seconds, mib, interval_s: u64, actuator: &mut Actuator| {
            let interval = (interval_s > 0).then(|| Nanos::from_s(interval_s));
            pace.look(Nanos::from_s(seconds), &nodes(mib), &topology, || interval, actuator).unwrap()
        };
        assert_eq!(looks(0, 300, 0, &mut actuator), None, "a tenth is less than the least step");
        assert_eq!(looks(5, 1500, 0, &mut actuator), None, "too soon");
        assert_eq!(looks(10, 1000, 1, &mut actuator), Some(100));
        assert_eq!(looks(20, 1200, 1, &mut actuator), None, "20 is less than a quarter");
        assert_eq!(looks(30, 1_000_000, 0, &mut actuator), Some(256));
        assert_eq!(fs::read_to_string(folder.join("scan_size_mb")).unwrap().trim(), "256");
        assert_eq!(looks(40, 0, 0, &mut actuator), Some(32));
        assert_eq!(looks(50, 300, 8, &mut actuator), Some(240), "seldom scanned");
        fs::write(folder.join("scan_size_mb"), "7").unwrap();
        assert_eq!(looks(60, 1500, 0, &mut actuator), None, "an operator has set it");
        fs::write(folder.join("scan_size_mb"), "240").unwrap();
        drop(actuator);
        assert_eq!(fs::read_to_string(folder.join("scan_size_mb")).unwrap().trim(), "256");
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
