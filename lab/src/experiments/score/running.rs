//! A running manager, in the guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::manager::Manager;
use super::program::Whose;
use crate::experiments::daemon::{Daemon, counter};
use crate::experiments::runner::LOG;
use crate::experiments::within::{PROC, slow_node};

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
/// The kernel's settings for balancing and demotion; printed with every result.
const SETTINGS: [&str; 8] = [
    BALANCING,
    "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
    DEMOTION,
    "/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
];
const PROMOTED: &str = "pgpromote_success";
/// The prefix of the kernel's demotion counters (`pgdemote_kswapd`, `pgdemote_direct` and their
/// like).
const DEMOTED: &str = "pgdemote_";
/// Other kernel counters of balancing.
const COUNTERS: [&str; 5] =
    ["numa_pte_updates", "numa_hint_faults", "pgpromote_candidate", PROMOTED, "pgmigrate_fail"];
/// Clock ticks a second in /proc/PID/stat (Linux include/asm-generic/param.h: USER_HZ).
const TICKS_PER_S: f64 = 100.0;

/// A manager that was started.
pub(crate) enum Running {
    /// Only the kernel's own activities.
    Kernel,
    /// Our daemon.
    Daemon(Daemon),
}

/// A manager's final figures.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Base pages promoted by our daemon.
    pub(crate) promoted: u64,
    /// Base pages demoted by our daemon itself.
    pub(crate) demoted: u64,
    /// Base pages demoted by the kernel at our daemon's command; the kernel's counters have them
    /// too.
    pub(crate) commanded: u64,
    /// Base pages promoted by DAMON.
    pub(crate) damon_promoted: u64,
    /// Base pages demoted by DAMON.
    pub(crate) damon_demoted: u64,
    /// CPU time of our daemon, s.
    pub(crate) cpu_s: f64,
    /// CPU time of its BPF programs, s.
    pub(crate) bpf_s: f64,
}

/// Brings the kernel to the initial state of every manager: no page moves. Debian boots with
/// balancing between nodes on.
pub(crate) fn nobody_moves() -> anyhow::Result<()> {
    set_balancing("0")?;
    demotion(false)
}

/// Sets the kernel's balancing mode (Linux `kernel.numa_balancing`).
pub(crate) fn set_balancing(mode: &str) -> anyhow::Result<()> {
    write(BALANCING, mode)
}

/// Allows or forbids demotion by the kernel.
pub(crate) fn demotion(allowed: bool) -> anyhow::Result<()> {
    write(DEMOTION, if allowed { "true" } else { "false" })
}

impl Running {
    /// Starts `manager` for the memory of `whose`. Its files go into `folder`.
    pub(crate) fn start(
        manager: &Manager,
        whose: &Whose,
        daemon: &Path,
        folder: &Path,
    ) -> anyhow::Result<Running> {
        match manager {
            Manager::None => Ok(Running::Kernel),
            Manager::Numab2 => {
                demotion(true)?;
                set_balancing("2")?;
                Ok(Running::Kernel)
            }
            Manager::Damon { .. } | Manager::Thermocline { .. } => {
                let (pid, scope) = match (manager, whose) {
                    // DAMON knows no processes: it has the whole machine.
                    (Manager::Damon { .. }, _) | (_, Whose::Machine) => (None, None),
                    (_, Whose::Process(pid)) => (Some(*pid), None),
                    (_, Whose::Cgroup(path)) => (None, Some(format!("[[scope]]\ncgroup = \"{path}\"\n"))),
                    (_, Whose::Share { cgroup, mib }) => {
                        let of = format!("[[scope]]\ncgroup = \"{cgroup}\"\ntop_tier_share_mib = {mib}\n");
                        (None, Some(of + "[[scope]]\ncgroup = \"/\"\n"))
                    }
                };
                let text = manager.config().into_iter().chain(scope).reduce(|keys, scope| keys + &scope);
                let config = text.map(|text| -> anyhow::Result<_> {
                    let path = folder.join("config.toml");
                    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                    Ok(path)
                });
                let (config, log) = (config.transpose()?, folder.join(LOG));
                // DRAM is scaled down to the emulator's pace and the daemon is not: its code and
                // tables would take up to a tenth of the DRAM, but take a ten-thousandth on the
                // machine that the lab represents.
                let mut command = Command::new("numactl");
                command.arg(format!("--preferred={}", slow_node()?.0)).arg(daemon);
                Ok(Running::Daemon(Daemon::start(command, pid, config.as_deref(), Some(&log))?))
            }
        }
    }

    /// Our daemon's last snapshot, `Null` if there is none.
    pub(crate) fn snapshot(&self) -> Value {
        match self {
            Running::Kernel => Value::Null,
            Running::Daemon(daemon) => daemon.snapshot(),
        }
    }

    /// Ends it.
    pub(crate) fn end(self) -> anyhow::Result<Ended> {
        let Running::Daemon(daemon) = self else { return Ok(Ended::default()) };
        let last = daemon.end()?;
        let seconds = |value: &Value| value.as_u64().unwrap_or(0) as f64 / 1e9;
        let by_damon = |moved: &Value| moved["damon"].as_u64().unwrap_or(0);
        Ok(Ended {
            promoted: counter(&last, "pgpromote_success"),
            demoted: counter(&last, "pgdemote"),
            commanded: counter(&last, "demotion_done"),
            damon_promoted: by_damon(&last["moved"]["promoted"]),
            damon_demoted: by_damon(&last["moved"]["demoted"]),
            cpu_s: seconds(&last["cpu_time_ns"]),
            bpf_s: seconds(&last["source"]["bpf_run_time_ns"]),
        })
    }
}

/// The kernel's settings as they are now.
pub(crate) fn settings() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in SETTINGS {
        if let Ok(text) = fs::read_to_string(path) {
            let name = path.rsplit('/').next().unwrap_or(path);
            found.insert(name.to_owned(), text.trim().to_owned());
        }
    }
    found
}

/// CPU time in s of all kernel threads with this name prefix.
pub(crate) fn kthread_cpu_s(prefix: &str) -> f64 {
    let Ok(entries) = fs::read_dir(PROC) else { return 0.0 };
    let stats = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| ticks(&stat, prefix)).sum::<u64>() as f64 / TICKS_PER_S
}

/// User and system ticks of a line of /proc/PID/stat, if the name has the prefix.
fn ticks(stat: &str, prefix: &str) -> Option<u64> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    name.starts_with(prefix).then_some(())?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// The kernel's counters of balancing and demotion; one that this kernel lacks is absent.
pub(crate) fn counters() -> anyhow::Result<BTreeMap<String, u64>> {
    // Every CPU holds back up to 125 counts for a second or two (Linux mm/vmstat.c), which would be
    // attributed to the next manager.
    fs::read("/proc/sys/vm/stat_refresh").context("cannot have the kernel add up its counters")?;
    let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    Ok(counters_of(&text))
}

fn counters_of(vmstat: &str) -> BTreeMap<String, u64> {
    let pairs = vmstat.lines().filter_map(|line| line.split_once(' '));
    let wanted = pairs.filter(|(name, _)| COUNTERS.contains(name) || name.starts_with(DEMOTED));
    wanted.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The increase of each since `before`.
pub(crate) fn since(mut now: BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    for (name, value) in &mut now {
        *value = value.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    now
}

/// Base pages that the kernel has promoted, and those that it has demoted, regardless of the cause.
pub(crate) fn promoted_and_demoted(counters: &BTreeMap<String, u64>) -> (u64, u64) {
    let demoted = counters.iter().filter(|(name, _)| name.starts_with(DEMOTED)).map(|(_, value)| value).sum();
    (counters.get(PROMOTED).copied().unwrap_or(0), demoted)
}

fn write(path: &str, value: &str) -> anyhow::Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {value} to {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_threads_that_are_meant() {
        let stat = "47 (kswapd0 (x)) S 2 0 0 0 -1 10758208 0 0 0 0 3 40 0 0 20 0 1 0 99 0 0";
        assert_eq!(ticks(stat, "kswapd"), Some(43));
        assert_eq!(ticks(stat, "kdamond"), None);
        assert_eq!(ticks("", "kswapd"), None);
    }

    #[test]
    fn every_kind_of_demotion_counts() {
        let text = "pgpromote_success 7\npgdemote_kswapd 5\npgdemote_direct 2\npgdemote_proactive 1\npgmigrate_success 9\n";
        let before = counters_of("pgpromote_success 3\npgdemote_direct 2\n");
        let counters = since(counters_of(text), &before);
        assert_eq!(promoted_and_demoted(&counters), (4, 6));
        assert_eq!(counters.get("pgmigrate_success"), None);
        assert_eq!(promoted_and_demoted(&BTreeMap::new()), (0, 0));
    }
}
