//! The running kernel: release, timer, lockdown, settings that matter to tiering.

use serde::Serialize;

use crate::actuator::chosen;
use crate::finding::Look;
use crate::root::kernel_version;

/// The running kernel and its settings. `None` means "this kernel has no such thing".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelInfo {
    /// As printed by `uname -r`.
    pub release: Option<String>,
    /// The words of its boot command line that concern memory and permissions.
    pub command_line: String,
    /// Timer frequency, from the kernel's configuration or derived from its tick counter, where
    /// either is shown.
    pub hz: Option<u32>,
    /// `none`, `integrity` or `confidentiality`; `None` if it cannot be determined, because
    /// securityfs is not mounted.
    pub lockdown: Option<String>,
    /// kernel.numa_balancing: bit 0 moves pages towards the running CPU, bit 1 is tiering.
    pub numa_balancing: Option<u32>,
    /// kernel.numa_balancing_promote_rate_limit_MBps.
    pub promote_rate_limit_mbps: Option<u64>,
    /// Whether the kernel demotes cold pages instead of swapping or dropping them.
    pub demotion_enabled: Option<bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_hugepages: Option<String>,
    /// Swap space.
    pub swap_mib: u64,
    /// Folders that debugfs, tracefs, bpffs and cgroup v2 are mounted at.
    pub mounts: Mounts,
}

/// Where file systems of the kernel are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mounts {
    /// debugfs: the scan settings are there.
    pub debugfs: Option<String>,
    /// tracefs.
    pub tracefs: Option<String>,
    /// securityfs: shows whether the kernel is locked down.
    pub securityfs: Option<String>,
    /// bpffs.
    pub bpffs: Option<String>,
    /// cgroup v2: scopes by cgroup need it.
    pub cgroup2: Option<String>,
}

/// Timer frequencies that kernels are built with (Linux kernel/Kconfig.hz, and Alpha's and the
/// user-mode kernel's).
const HZ: [u32; 6] = [24, 100, 250, 300, 1000, 1024];

impl KernelInfo {
    /// Reads the available settings.
    pub(super) fn read(look: &mut Look<'_>) -> KernelInfo {
        let sysctl = look.root.proc.join("sys/kernel");
        let mm = look.root.sys.join("kernel/mm");
        let release = look.word(&sysctl.join("osrelease"));
        let lockdown = look.text(&look.root.sys.join("kernel/security/lockdown"));
        let demotion = look.word(&mm.join("numa/demotion_enabled"));
        let hugepages = look.text(&mm.join("transparent_hugepage/enabled"));
        let command_line = look.word(&look.root.proc.join("cmdline")).unwrap_or_default();
        let table = look.text(&look.root.proc.join("self/mounts")).unwrap_or_default();
        KernelInfo {
            hz: configured_hz(look, release.as_deref()).or_else(|| hz(look)),
            release,
            command_line: boot_words(&command_line),
            lockdown: lockdown.map(|text| chosen(&text).to_owned()).or_else(|| without_lockdown(&table)),
            numa_balancing: look.number(&sysctl.join("numa_balancing")),
            promote_rate_limit_mbps: look.number(&sysctl.join("numa_balancing_promote_rate_limit_MBps")),
            demotion_enabled: demotion.map(|text| crate::actuator::same_value(&text, "1")),
            transparent_hugepages: hugepages.map(|text| chosen(&text).to_owned()),
            swap_mib: swap_mib(&look.text(&look.root.proc.join("swaps")).unwrap_or_default()),
            mounts: mounts(&table),
        }
    }

    /// Whether the kernel is older than `major.minor`; false if the release cannot be determined.
    pub fn is_older_than(&self, major: u32, minor: u32) -> bool {
        let version = self.release.as_deref().and_then(kernel_version);
        version.is_some_and(|version| version < (major, minor))
    }

    /// Whether a word stands on the boot command line.
    pub fn booted_with(&self, word: &str) -> bool {
        self.command_line.split_ascii_whitespace().any(|w| w == word)
    }
}

/// A kernel whose securityfs has no such file was built without lockdown.
fn without_lockdown(mounts: &str) -> Option<String> {
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("securityfs"));
    mounted.then(|| "none".to_owned())
}

/// Prefixes of words of the boot command line that concern memory or our permissions. Other words,
/// which may hold addresses and secrets, are not read.
const BOOT_WORDS: [&str; 18] = [
    "numa",
    "hmat",
    "nohmat",
    "cxl",
    "efi=",
    "memmap",
    "movable",
    "kernelcore",
    "hugepages",
    "default_hugepagesz",
    "transparent_hugepage",
    "lockdown",
    "lsm=",
    "security=",
    "cgroup",
    "psi",
    "kpti",
    "systemd.unified",
];

pub(super) fn boot_words(line: &str) -> String {
    let told = |word: &&str| BOOT_WORDS.iter().any(|known| word.starts_with(known));
    line.split_ascii_whitespace().filter(told).collect::<Vec<_>>().join(" ")
}

fn configured_hz(look: &mut Look<'_>, release: Option<&str>) -> Option<u32> {
    let config = look.text(&look.root.boot.join(format!("config-{}", release?)))?;
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?.trim().parse().ok()
}

/// The tick counter starts 300 seconds before 2^32 (Linux include/linux/jiffies.h,
/// INITIAL_JIFFIES), so its value and the uptime give the frequency.
fn hz(look: &mut Look<'_>) -> Option<u32> {
    let schedstat = look.text(&look.root.proc.join("schedstat"))?;
    let uptime = look.text(&look.root.proc.join("uptime"))?;
    let ticks: f64 = schedstat.lines().find_map(|l| l.strip_prefix("timestamp "))?.trim().parse().ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let hz = (ticks - 2f64.powi(32)) / (uptime - 300.0);
    HZ.into_iter().find(|&known| (hz / f64::from(known) - 1.0).abs() < 0.02)
}

fn swap_mib(swaps: &str) -> u64 {
    let kib = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    swaps.lines().filter_map(kib).fold(0, u64::saturating_add) / 1024
}

fn mounts(table: &str) -> Mounts {
    let find = |kind: &str| {
        let place = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (place, found) = (words.next()?, words.next()?);
            (found == kind).then(|| place.to_owned())
        };
        table.lines().find_map(place)
    };
    Mounts {
        debugfs: find("debugfs"),
        tracefs: find("tracefs"),
        securityfs: find("securityfs"),
        bpffs: find("bpf"),
        cgroup2: find("cgroup2"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        let info = |release: &str| KernelInfo { release: Some(release.to_owned()), ..KernelInfo::default() };
        assert!(info("6.1.0-23-amd64").is_older_than(6, 12));
        assert!(!info("6.12.117+deb12-amd64").is_older_than(6, 12));
        assert!(!info("7.2.13").is_older_than(6, 12));
        assert!(!info("unknown").is_older_than(6, 12));
    }

    #[test]
    fn swap_is_summed_and_its_heading_is_not() {
        let text =
            "Filename Type Size Used Priority\n/dev/sda2 partition 2097148 0 -2\n/swap file 1028 0 -3\n";
        assert_eq!(swap_mib(text), 2049);
    }
}
