//! Kernel settings, one per line.

use super::{Import, quantity};

/// What becomes of a setting.
enum To {
    /// A key of ours with the same number.
    Key(&'static str),
    /// Nothing, for this reason.
    Refused(&'static str),
}

/// Settings that concern tiering.
const KNOWN: [(&str, To); 18] = [
    ("kernel.numa_balancing_promote_rate_limit_MBps", To::Key("admission.rate_limit_mbps")),
    ("kernel.numa_balancing_scan_size_mb", To::Key("kernel.scan_size_mb")),
    ("kernel.numa_balancing_scan_period_min_ms", To::Key("kernel.scan_period_min_ms")),
    ("kernel.numa_balancing_scan_period_max_ms", To::Key("kernel.scan_period_max_ms")),
    ("kernel.numa_balancing_scan_delay_ms", To::Key("kernel.scan_delay_ms")),
    ("kernel.numa_balancing_hot_threshold_ms", To::Key("rule.latency.hot_threshold_ms")),
    ("vm.min_unmapped_ratio", To::Key("kernel.min_unmapped_ratio")),
    ("vm.min_slab_ratio", To::Key("kernel.min_slab_ratio")),
    ("vm.demote_scale_factor", To::Key("demotion.free_goal_bp")),
    ("vm.pghot_promote_freq_window_ms", To::Key("rule.frequency.freq_window_ms")),
    ("vm.pghot_freq_threshold", To::Key("rule.frequency.freq_threshold")),
    (
        "vm.zone_reclaim_mode",
        To::Refused(
            "the kernel reclaims by it whatever thermocline does; demotion.mode decides what thermocline demotes",
        ),
    ),
    (
        "vm.watermark_scale_factor",
        To::Refused(
            "thermocline keeps demotion.free_goal_bp free above the kernel's watermarks; leave it in sysctl.d",
        ),
    ),
    ("vm.watermark_boost_factor", To::Refused(OF_KERNEL)),
    ("vm.min_free_kbytes", To::Refused(OF_KERNEL)),
    ("vm.swappiness", To::Refused("thermocline does not swap; leave it in sysctl.d")),
    ("vm.numa_stat", To::Refused(OF_KERNEL)),
    ("vm.numa_zonelist_order", To::Refused(OF_KERNEL)),
];
/// MB/s that the kernel promotes at most if nobody says otherwise (Linux 6.12 kernel/sched/fair.c).
const KERNELS_RATE_LIMIT: &str = "65536";
const OF_KERNEL: &str = "it is the kernel's own affair; leave it in sysctl.d";
const OTHER: &str = "it has nothing to do with tiers";

/// Key and value of a line; `None` for an empty line or a comment.
fn split(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let line = line.strip_prefix('-').unwrap_or(line);
    if line.starts_with(['#', ';']) {
        return None;
    }
    line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
}

/// Whether a text consists of kernel settings: every line sets one.
pub(super) fn is_one(text: &str) -> bool {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let first = ["kernel.", "vm.", "fs.", "net.", "dev.", "user.", "debug.", "abi.", "sunrpc.", "crypto."];
    let is = |line: &str| {
        let line = line.strip_prefix('-').unwrap_or(line).replace('/', ".");
        line.contains('=') && first.iter().any(|prefix| line.starts_with(prefix))
    };
    lines.clone().next().is_some() && lines.all(is)
}

pub(super) fn read(text: &str, import: &mut Import) {
    for (n, line) in text.lines().enumerate() {
        let number = n + 1;
        let Some((key, value)) = split(line) else {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with(['#', ';']) {
                import.refuse(number, line, "it is no line of the form key = value");
            }
            continue;
        };
        let key = key.replace('/', ".");
        let theirs = format!("{key} = {value}");
        if key == "kernel.numa_balancing" {
            numa_balancing(number, &theirs, value, import);
            continue;
        }
        match KNOWN.iter().find(|(known, _)| *known == key) {
            Some((_, To::Key("admission.rate_limit_mbps"))) if value == "0" => {
                import.anyway(
                    number,
                    theirs,
                    "thermocline sets it while it runs, to promote in the kernel's place",
                );
            }
            Some((_, To::Key("admission.rate_limit_mbps"))) if value == KERNELS_RATE_LIMIT => {
                import.refuse(
                    number,
                    theirs,
                    "it is the kernel's default, which limits nothing; admission.rate_limit_mbps stays at its own \
                     default",
                );
            }
            Some((_, To::Key(ours))) => import.set_number(number, &theirs, ours, quantity::number(value)),
            Some((_, To::Refused(why))) => import.refuse(number, theirs, *why),
            None => import.refuse(number, key, OTHER),
        }
    }
}

/// The mode is a mask: 1 balances, 2 scans lower tiers.
fn numa_balancing(line: usize, theirs: &str, value: &str, import: &mut Import) {
    match quantity::number(value) {
        Ok(0) => import.refuse(
            line,
            theirs,
            "thermocline has the kernel scan while it runs, and puts 0 back at the end; without hint faults set \
             source.hintfault.enabled = false and another source",
        ),
        number => import.set_number(line, theirs, "kernel.numa_balancing", number),
    }
}
