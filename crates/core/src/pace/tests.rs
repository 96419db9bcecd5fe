//! The decisions on figures reported by a lab machine, and their invariants.

use super::*;
use crate::config::Scope;
use crate::topology::{Node, Watermarks};
use crate::units::{NodeId, Pid, TierId};

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

/// DRAM is full; the two lower-tier nodes hold `mib` together.
fn nodes(mib: u64) -> Vec<NodeState> {
    let state = |id: u16, used_mib: u64| NodeState {
        node: NodeId(id),
        free_pages: 0,
        managed_pages: used_mib * PAGES_PER_MIB,
        watermarks: Watermarks::default(),
    };
    vec![state(0, 400), state(1, mib / 3), state(2, mib - mib / 3)]
}

fn kernel() -> Kernel {
    Kernel { scan_size_mb: Some(8), scan_period_max_ms: None, ..Kernel::default() }
}

fn pace(kernel: Kernel) -> Option<Pace> {
    Pace::new(&Config { kernel, ..Config::default() })
}

/// A machine whose scans are paced.
struct Machine {
    pace: Pace,
    topology: Topology,
    pacing: Pacing,
}

impl Machine {
    fn new() -> Machine {
        Machine { pace: pace(kernel()).unwrap(), topology: topology(), pacing: Pacing::Renewals }
    }

    fn wish(&mut self, at_s: u64, mib: u64, scans: Option<Scans>) -> Option<ScanPace> {
        self.pace.see(scans);
        self.pace.look(Nanos::from_s(at_s), &nodes(mib), &self.topology, self.pacing, None)
    }

    /// The step, the shortest period, and the rate limit that a renewal asks for.
    fn look(&mut self, at_s: u64, mib: u64, scans: Option<Scans>) -> [u32; 3] {
        let wish = self.wish(at_s, mib, scans).unwrap();
        assert_eq!(wish.period_max_ms, None, "it is left alone");
        [wish.step_mb, wish.period_min_ms.unwrap(), u32::from(wish.renewing)]
    }
}

/// A program of 1000 MiB, before its first pass has ended.
fn every(interval_ms: u64) -> Option<Scans> {
    Some(Scans { pid: Pid(1), interval: Nanos::from_ms(interval_ms), mib: 1000, passes: 0 })
}

fn passed(interval_ms: u64, passes: u32) -> Option<Scans> {
    every(interval_ms).map(|scans| Scans { passes, ..scans })
}

#[test]
fn the_step_grows_with_what_lower_tiers_hold_and_how_seldom_they_are_scanned() {
    let mut machine = Machine::new();
    let mut step = |at_s, mib, scans| machine.look(at_s, mib, scans)[0];
    assert_eq!(step(0, 50, None), 8, "a tenth is less than the least step");
    assert_eq!(step(1, 1500, None), 8, "too soon");
    assert_eq!(step(10, 1000, every(1000)), 100);
    assert_eq!(step(20, 1200, every(1000)), 100, "20 is less than a quarter");
    assert_eq!(step(30, 1_000_000, None), 256);
    assert_eq!(step(40, 8192, every(10)), 32, "256 steps");
    assert_eq!(step(50, 0, every(10)), 8);
    assert_eq!(step(60, 300, every(8000)), 240, "seldom scanned");
    assert_eq!(step(62, 1500, None), 150, "what was known does not hold any more");
}

#[test]
fn no_program_takes_a_step_at_every_tick_of_the_kernel() {
    // 100 GB in steps that 1250 ticks of 4 ms, the five seconds of a pass, have time for.
    assert_eq!(kernel().step_mb(8192.0, 100_000.0), Some(80));
}

#[test]
fn tasks_that_are_seldom_scanned_recompute_after_a_pass_and_again_if_that_did_not_help() {
    let mut machine = Machine::new();
    // 1000 MiB in steps of 8 MB, 125 of them in five seconds: 40 ms.
    assert_eq!(machine.look(2, 1000, passed(1000, 0)), [100, 5000, 0], "no pass has ended");
    let wide = [64, 5000 * 8 / 64, 1];
    assert_eq!(machine.look(4, 1000, passed(1000, 1)), wide, "as often as with steps of 8 MB");
    assert_eq!(machine.look(8, 1000, passed(1000, 1)), wide, "five steps");
    assert_eq!(machine.look(9, 1000, passed(1000, 1)), [8, 5000, 1], "and a pass");
    assert_eq!(machine.look(13, 1000, passed(1000, 1)), [8, 5000, 1]);
    assert_eq!(machine.look(15, 1000, passed(1000, 1)), [8, 5000, 0]);
    assert_eq!(machine.look(17, 1000, passed(1000, 1)), [100, 5000, 0], "of no help");
    assert_eq!(machine.look(44, 1000, passed(1000, 3)), [100, 5000, 0]);
    assert_eq!(machine.look(46, 1000, passed(1000, 3)), wide);
    assert_eq!(machine.look(47, 1000, passed(40, 3)), [8, 5000, 1], "often: other tasks have a pass");
    assert_eq!(machine.look(51, 1000, passed(40, 3)), [8, 5000, 1]);
    assert_eq!(machine.look(53, 1000, passed(40, 4)), [8, 5000, 0]);
    assert_eq!(machine.look(55, 1000, passed(79, 4)), [8, 5000, 0], "as often as configured");
    assert_eq!(machine.look(200, 1000, passed(40, 9)), [8, 5000, 0]);
}

#[test]
fn renewals_that_do_not_help_become_rare_and_those_after_one_that_did_do_not() {
    let mut machine = Machine::new();
    let mut begun = |from_s: u64, to_s: u64, interval_ms: u64| -> Vec<u64> {
        let renewing = |at_s: &u64| machine.look(*at_s, 1000, passed(interval_ms, 1))[2] == 1;
        let on: Vec<u64> = (from_s..to_s).filter(renewing).collect();
        let starts = on.iter().filter(|at| !on.contains(&(**at - 1)));
        starts.copied().collect()
    };
    // Each takes five steps of a second and a pass of five seconds; then 30 s, a minute, two.
    let starts = begun(1, 400, 1000);
    let apart: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(apart.len(), 3, "{starts:?}");
    for (apart, again) in apart.iter().zip([30, 60, 120]) {
        assert!((again + 8..again + 16).contains(apart), "{starts:?}");
    }
    assert_eq!(begun(400, 500, 40), [0u64; 0], "nothing to renew");
    let starts = begun(700, 800, 1000);
    assert!(starts.len() >= 2 && starts[1] - starts[0] < 46, "as at first: {starts:?}");
}

/// A task computes the same interval in the wide stage as with the finest step.
#[test]
fn a_wider_step_has_a_shorter_period() {
    for mib in [300, 1000, 3000] {
        let mut machine = Machine::new();
        let scans = passed(1500, 1).map(|scans| Scans { mib, ..scans });
        let [wide_mb, period_ms, renewing] = machine.look(2, mib, scans);
        assert_eq!(renewing, 1);
        let finest_mb = kernel().step_mb(mib as f64, 400.0 + mib as f64).unwrap();
        let computed = |period_ms: u32, step_mb: u32| f64::from(period_ms) / mib as f64 * f64::from(step_mb);
        let (wide, fine) = (computed(period_ms, wide_mb), computed(5000, finest_mb));
        assert!((wide / fine - 1.0).abs() < 0.01, "{mib} MiB: {wide} ms and {fine} ms between two steps");
    }
}

#[test]
fn a_machine_gets_as_much_of_it_as_it_can_set() {
    let mut machine = Machine { pacing: Pacing::Steps, ..Machine::new() };
    assert_eq!(machine.look(4, 1000, passed(1000, 1)), [100, 5000, 0], "larger steps are all there is");
    assert_eq!(machine.look(40, 1000, passed(1000, 1)), [100, 5000, 0]);
    let mut machine = Machine { pacing: Pacing::Nothing, ..Machine::new() };
    assert_eq!(machine.wish(4, 1000, passed(1000, 1)), None);
}

#[test]
fn where_the_kernel_promotes_anyway_or_may_not_or_no_period_is_set_nothing_is_renewed() {
    let promotes = Kernel { numa_balancing_promote_rate_limit_mbps: Some(100), ..kernel() };
    let alone = Kernel { scan_period_min_ms: None, ..kernel() };
    let config = |kernel| Config { kernel, ..Config::default() };
    let excluding = Config { scope: vec![Scope { exclude: true, ..Scope::default() }], ..config(kernel()) };
    for config in [config(promotes), config(alone), excluding] {
        let mut machine = Machine { pace: Pace::new(&config).unwrap(), ..Machine::new() };
        for at_s in (0..100).step_by(2) {
            let wish = machine.wish(at_s, 1000, passed(1000, 1)).unwrap();
            assert!(!wish.renewing && wish.period_min_ms == config.kernel.scan_period_min_ms);
        }
    }
}

#[test]
fn a_step_that_is_fixed_or_left_alone_is_not_paced() {
    let fixed = Kernel { scan_size_max_mb: None, ..Kernel::default() };
    let same = Kernel { scan_size_max_mb: Some(2), ..Kernel::default() };
    let alone = Kernel { scan_size_mb: None, ..Kernel::default() };
    for kernel in [fixed, same, alone] {
        assert!(pace(kernel).is_none());
    }
}

/// With any report, the step and the periods stay within their bounds.
#[test]
fn nonsense_is_survived() {
    let extremes = [0, 1, u64::MAX / 2, u64::MAX];
    let mut machine = Machine::new();
    let mut at_s = 0;
    for interval in extremes {
        for mib in extremes {
            for passes in [0, u32::MAX] {
                let scans = Scans { pid: Pid(1), interval: Nanos(interval), mib, passes };
                for used_mib in [0, 1000, 1 << 40] {
                    at_s += 3;
                    let [step_mb, period_ms, _] = machine.look(at_s, used_mib, Some(scans));
                    assert!((8..=256).contains(&step_mb) && (1..=5000).contains(&period_ms), "{scans:?}");
                }
            }
        }
    }
}

#[test]
fn the_step_follows_what_hint_faults_may_cost_once_for_each_measurement() {
    let mut machine = Machine::new();
    let mut step = |at_s, measured_s, factor| {
        let affordable = Affordable { measured: Nanos::from_s(measured_s), factor };
        machine.pace.see(None);
        let wish = machine.pace.look(
            Nanos::from_s(at_s),
            &nodes(1000),
            &machine.topology,
            machine.pacing,
            Some(affordable),
        );
        wish.unwrap().step_mb
    };
    let course =
        [(2, 1, 1.0), (4, 3, 0.5), (6, 3, 0.5), (8, 7, 9.0), (10, 9, 0.0), (12, 11, 0.0), (14, 13, 0.0)];
    // From the step of a pass in ten seconds: half, no less by the same measurement, and again the
    // whole.
    let steps = course.map(|(at, measured, factor)| step(at, measured, factor));
    assert_eq!(steps, [100, 50, 50, 100, 6, 1, 1]);
}

#[test]
fn the_step_is_what_a_pass_over_the_followed_process_needs_however_much_others_hold() {
    let mut machine = Machine::new();
    let of = |mib| Some(Scans { mib, ..every(1000).unwrap() });
    assert_eq!(machine.look(2, 4000, of(4000))[0], 256, "the most");
    assert_eq!(machine.look(4, 4000, of(500))[0], 50);
}
