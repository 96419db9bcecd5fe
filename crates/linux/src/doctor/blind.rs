//! Memory that hint faults cannot see: under a memory policy that the kernel does not scan, or
//! hugetlb.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thermocline_core::units::{NodeId, Pid};

use crate::aside::Aside;
use crate::doctor::cpusets;
use crate::doctor::look::Look;
use crate::doctor::report::{Blind, BlindProcess, BlindSum, Confined, Finding, Ground, Severity};
use crate::numa_maps::{self, Mapping};
use crate::process;
use crate::record::{Entry, note};
use crate::root::{Root, read_optional};
use crate::topology::Discovered;

/// Processes that the report lists; the sums count all.
pub const BLIND_PROCESSES_MAX: usize = 20;

/// Time for reading mappings: each reading walks the page tables of a process.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Longest time for one process.
const PROCESS_MAX: Duration = Duration::from_millis(500);

/// Share of the lower tiers' memory from which unseen memory is a problem rather than a note.
const PROBLEM_PERCENT: u64 = 10;

/// Reads the mappings of all processes, the largest first, until the time limit. `lower` are the
/// nodes below the kernel's top tier. It also collects programs whose cpusets leave out the whole
/// top tier.
pub(super) fn blind(
    look: &mut Look<'_>,
    lower: &[NodeId],
    found: Option<&Discovered>,
) -> (Blind, Vec<Confined>) {
    let begin = Instant::now();
    let aside = Aside::new(look.root, "its mappings were read", PROCESS_MAX);
    let mut confined = Vec::new();
    let mut blind = Blind { hugetlb_pool_mib: hugetlb_pools(look), ..Blind::default() };
    let pids = process::list(look.root);
    let pids = look.keep(pids).unwrap_or_default();
    // The rest is left out: there are too many.
    let mut pids = pids.into_iter();
    let stats = pids.by_ref().take_while(|_| begin.elapsed() < TIME_MAX / 2);
    let stats = stats.filter_map(|pid| process::stat(look.root, pid).ok().flatten());
    let mut processes: Vec<process::Stat> = stats.filter(|s| !s.kernel_thread && s.rss_pages > 0).collect();
    processes.sort_by_key(|s| std::cmp::Reverse(s.rss_pages));
    blind.not_looked_at = pids.count();
    for (i, process) in processes.iter().enumerate() {
        if begin.elapsed() > TIME_MAX {
            blind.not_looked_at += processes.len() - i;
            break;
        }
        if let Some(found) = found {
            confined.extend(cpusets::confined(look.root, process.pid, &process.comm, found));
        }
        match walk(look.root, &aside, process.pid) {
            Walked::Mappings(mappings) => {
                blind.looked_at += 1;
                blind.processes.extend(unseen(process.pid, &process.comm, &mappings, lower));
            }
            Walked::Gone => {}
            Walked::Unreadable => blind.unreadable += 1,
            Walked::Stuck => blind.stuck.push((process.pid, process.comm.clone())),
        }
    }
    for process in &blind.processes {
        add(&mut blind.total, process.sum);
    }
    blind.processes.sort_by_key(|p| std::cmp::Reverse((p.sum.lower_tier_kib, p.sum.kib)));
    blind.processes.truncate(BLIND_PROCESSES_MAX);
    (blind, confined)
}

/// The result of reading a process's mappings.
#[derive(Debug)]
enum Walked {
    /// They were read.
    Mappings(Vec<Mapping>),
    /// It is gone, or has none.
    Gone,
    /// They may not be read.
    Unreadable,
    /// It did not answer in time.
    Stuck,
}

fn walk(root: &Root, aside: &Aside, pid: Pid) -> Walked {
    let path = root.proc.join(pid.0.to_string()).join("numa_maps");
    let read = aside.ask(pid, {
        let path = path.clone();
        move || read_optional(&path)
    });
    match read {
        Ok(Ok(Some(text))) => {
            note(&path, || Entry::File(text.clone().into_bytes()));
            Walked::Mappings(text.lines().filter_map(numa_maps::parse_line).collect())
        }
        Ok(Ok(None)) => Walked::Gone,
        Ok(Err(_)) => Walked::Unreadable,
        Err(_) => Walked::Stuck,
    }
}

/// A finding if memory below the top tier cannot be seen; `capacity_kib` is the capacity of the
/// lower tiers.
pub(super) fn finding(blind: &Blind, capacity_kib: u64) -> Option<Finding> {
    let BlindSum { lower_tier_kib, .. } = blind.total;
    if lower_tier_kib < 1024 {
        return None;
    }
    let much = lower_tier_kib.saturating_mul(100) >= capacity_kib.saturating_mul(PROBLEM_PERCENT);
    let severity = if much { Severity::Problem } else { Severity::Note };
    let names: Vec<String> = blind
        .processes
        .iter()
        .filter(|p| p.sum.lower_tier_kib > 0)
        .take(3)
        .map(|p| format!("{} (pid {}, {}, {} MiB)", p.comm, p.pid.0, p.reason, p.sum.lower_tier_kib / 1024))
        .collect();
    let cause = format!(
        "{} MiB below the top tier give no hint faults, for their memory policy or for being hugetlb, and stay where they are, as a \
         policy asks for: {}",
        lower_tier_kib / 1024,
        names.join("; ")
    );
    let bound = blind.processes.iter().any(|p| p.reason == "bind" && p.sum.lower_tier_kib > 0);
    Some(Finding::new("memory.blind", severity, cause).run(
        Ground::seen(bound),
        "if what is bound may be promoted, bind it to all nodes that it may use, and have the policy ask for it",
        "numactl --balancing --membind=NODES COMMAND",
    ))
}

/// The memory of one process that hint faults cannot see, by reason.
fn unseen(pid: Pid, comm: &str, mappings: &[Mapping], lower: &[NodeId]) -> Vec<BlindProcess> {
    let mut by_reason: BTreeMap<&str, BlindSum> = BTreeMap::new();
    for mapping in mappings.iter().filter(|m| m.hugetlb || !m.policy.has_hint_faults()) {
        let reason = if mapping.hugetlb { "hugetlb" } else { mapping.policy.mode.as_str() };
        let kib = |pages: u64| pages.saturating_mul(mapping.page_kib);
        let below = mapping.pages.iter().filter(|(node, _)| lower.contains(node));
        let lower_tier_kib = below.fold(0u64, |sum, (_, pages)| sum.saturating_add(kib(*pages)));
        add(by_reason.entry(reason).or_default(), BlindSum { kib: mapping.kib(), lower_tier_kib });
    }
    by_reason
        .into_iter()
        .filter(|(_, sum)| sum.kib > 0)
        .map(|(reason, sum)| BlindProcess { pid, comm: comm.to_owned(), reason: reason.to_owned(), sum })
        .collect()
}

fn add(sum: &mut BlindSum, part: BlindSum) {
    sum.kib = sum.kib.saturating_add(part.kib);
    sum.lower_tier_kib = sum.lower_tier_kib.saturating_add(part.lower_tier_kib);
}

/// Memory set aside for huge pages on each node that has any.
fn hugetlb_pools(look: &mut Look<'_>) -> Vec<(NodeId, u64)> {
    let mut pools = Vec::new();
    for node in look.list(&look.root.sys.join("devices/system/node"), "node") {
        let name = node.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(id) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else { continue };
        let mut kib = 0u64;
        for size in look.list(&node.join("hugepages"), "hugepages-") {
            let name = size.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let page: Option<u64> = name
                .strip_prefix("hugepages-")
                .and_then(|n| n.strip_suffix("kB"))
                .and_then(|n| n.parse().ok());
            let count: u64 = look.number(&size.join("nr_hugepages")).unwrap_or(0);
            kib = kib.saturating_add(page.unwrap_or(0).saturating_mul(count));
        }
        if kib > 0 {
            pools.push((NodeId(id), kib / 1024));
        }
    }
    pools
}
