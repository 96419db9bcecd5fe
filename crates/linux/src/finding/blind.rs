//! Memory that hint faults cannot see: under a memory policy that the kernel does not scan, or
//! hugetlb.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use thermocline_core::config::Config;
use thermocline_core::units::{NodeId, Pid, ScopeId};

use super::{Confined, Look, cgroups, cpusets};
use crate::aside::Aside;
use crate::away::{self, Away};
use crate::numa_maps::{self, Mapping};
use crate::process;
use crate::record::{Entry, note};
use crate::residency::by_node;
use crate::root::{Root, read_optional};
use crate::scope::{Members, Scopes};
use crate::topology::Discovered;

/// Processes that the report lists; the sums count all.
pub const BLIND_PROCESSES_MAX: usize = 20;

/// Time for reading mappings: each reading walks the page tables of a process.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Longest time for one process.
const PROCESS_MAX: Duration = Duration::from_millis(500);

/// Memory that hint faults cannot see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blind {
    /// By process, the largest first; at most [`BLIND_PROCESSES_MAX`].
    pub processes: Vec<BlindProcess>,
    /// All processes together.
    pub total: BlindSum,
    /// By scope, for scopes with memory below the top tier.
    pub scopes: Vec<BlindScope>,
    /// Pool of huge pages by node, in use or not.
    pub hugetlb_pool_mib: Vec<(NodeId, u64)>,
    /// Processes whose mappings were read.
    pub looked_at: usize,
    /// Processes that were left out because of the time limit.
    pub not_looked_at: usize,
    /// Processes that did not answer in time, because their mmap lock is held, and their names.
    pub stuck: Vec<(Pid, String)>,
    /// Processes whose mappings this process may not read.
    pub unreadable: usize,
}

/// An amount of memory that hint faults cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlindSum {
    /// On all nodes.
    pub kib: u64,
    /// On nodes below the kernel's top tier, where it could have been promoted.
    pub lower_tier_kib: u64,
}

/// Memory of one process that hint faults cannot see, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlindProcess {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// The memory policy (`bind`, `prefer`, `interleave`, ...) or `hugetlb`.
    pub reason: String,
    /// The amount.
    #[serde(flatten)]
    pub sum: BlindSum,
}

/// What a scope has below the kernel's top tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlindScope {
    /// Its name.
    pub name: String,
    /// All of it.
    pub lower_tier_kib: u64,
    /// Of that, memory under a policy that the kernel does not scan, and hugetlb.
    pub policy_kib: u64,
    /// Of that, page cache that no process maps; known for scopes by cgroup.
    pub unmapped_kib: u64,
}

/// What the mappings of programs show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// Memory that hint faults cannot see.
    pub(crate) blind: Blind,
    /// Programs whose cpusets leave out the whole top tier.
    pub(crate) confined: Vec<Confined>,
    /// Programs whose threads are away from their memory.
    pub(crate) away: Vec<Away>,
}

/// Reads the mappings of all processes, the largest first, until the time limit, and sums what hint
/// faults cannot see below the kernel's top tier. It also collects programs whose cpusets leave out
/// the whole top tier, and those whose threads are away from their memory.
pub(crate) fn blind(look: &mut Look<'_>, config: &Config, found: Option<&Discovered>) -> Programs {
    let begin = Instant::now();
    let lower = lower_nodes(found);
    let aside = Aside::new(look.root, "its mappings were read", PROCESS_MAX);
    let (mut confined, mut away) = (Vec::new(), Vec::new());
    let mut blind = Blind { hugetlb_pool_mib: hugetlb_pools(look), ..Blind::default() };
    let memberships = memberships(look.root, config);
    let mut scopes: BTreeMap<ScopeId, BlindScope> = BTreeMap::new();
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
                if let Some(found) = found {
                    let program = (process.pid, process.comm.as_str());
                    away.extend(away::away(look.root, &found.topology, program, &by_node(&mappings)));
                }
                if let Some(scope) = memberships.get(&process.pid) {
                    let scope = scopes.entry(*scope).or_default();
                    for mapping in &mappings {
                        let kib = lower_kib(mapping, &lower);
                        scope.lower_tier_kib = scope.lower_tier_kib.saturating_add(kib);
                        let hidden = if is_hidden(mapping) { kib } else { 0 };
                        scope.policy_kib = scope.policy_kib.saturating_add(hidden);
                    }
                }
                blind.processes.extend(unseen(process.pid, &process.comm, &mappings, &lower));
            }
            Walked::Gone => {}
            Walked::Unreadable => blind.unreadable += 1,
            Walked::Stuck => blind.stuck.push((process.pid, process.comm.clone())),
        }
    }
    blind.scopes = by_scope(look, config, &lower, scopes);
    for process in &blind.processes {
        add(&mut blind.total, process.sum);
    }
    blind.processes.sort_by_key(|p| std::cmp::Reverse((p.sum.lower_tier_kib, p.sum.kib)));
    blind.processes.truncate(BLIND_PROCESSES_MAX);
    Programs { blind, confined, away }
}

/// The scope of each managed process; empty without scopes.
fn memberships(root: &Root, config: &Config) -> BTreeMap<Pid, ScopeId> {
    let scopes = Scopes::new(&config.scope).ok().filter(Scopes::are_any);
    let Some(scopes) = scopes else { return BTreeMap::new() };
    let look = move || {
        let mut members = Members::new(root, scopes);
        // What cannot be looked at belongs to no scope here.
        drop(members.look());
        members.iter().map(|member| (member.pid, member.scope)).collect()
    };
    // On a thread of its own: a recording of this thread's readings must hold no command lines and
    // no cgroups of processes that the report does not name.
    std::thread::scope(|scope| scope.spawn(look).join()).unwrap_or_default()
}

/// Adds page cache that no process maps, and the scopes' names.
fn by_scope(
    look: &mut Look<'_>,
    config: &Config,
    lower: &[NodeId],
    mut scopes: BTreeMap<ScopeId, BlindScope>,
) -> Vec<BlindScope> {
    for (place, scope) in config.scope.iter().enumerate() {
        let path = scope.cgroup_alone().filter(|_| !scope.exclude);
        if let Some((kib, unmapped_kib)) = path.and_then(|path| cgroups::on_nodes(look, &path, lower)) {
            let of = scopes.entry(ScopeId::of_place(place)).or_default();
            of.lower_tier_kib = of.lower_tier_kib.max(kib);
            of.unmapped_kib = unmapped_kib;
        }
    }
    let named = |(id, scope): (ScopeId, BlindScope)| {
        let place = usize::from(id.0).checked_sub(1)?;
        Some(BlindScope { name: config.scope.get(place)?.told(place), ..scope })
    };
    scopes.into_iter().filter_map(named).filter(|scope| scope.lower_tier_kib > 0).collect()
}

/// Nodes with memory below the kernel's top tier.
fn lower_nodes(found: Option<&Discovered>) -> Vec<NodeId> {
    let nodes = found.iter().flat_map(|f| f.topology.nodes.iter().map(move |n| (f, n)));
    nodes.filter(|(f, n)| n.capacity_pages > 0 && !f.kernel_top.contains(&n.id)).map(|(_, n)| n.id).collect()
}

/// The capacity of those nodes.
pub(super) fn lower_capacity_kib(found: Option<&Discovered>) -> u64 {
    let lower = lower_nodes(found);
    let size = found.map(|f| f.topology.page_bytes).unwrap_or_default();
    let all = found.iter().flat_map(|f| &f.topology.nodes);
    all.filter(|n| lower.contains(&n.id)).fold(0, |sum, n| sum + size.kib(n.capacity_pages))
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

/// Whether the kernel takes no hint faults in a mapping.
fn is_hidden(mapping: &Mapping) -> bool {
    mapping.hugetlb || !mapping.policy.has_hint_faults()
}

/// What a mapping has on these nodes.
fn lower_kib(mapping: &Mapping, lower: &[NodeId]) -> u64 {
    let below = mapping.pages.iter().filter(|(node, _)| lower.contains(node));
    below.fold(0, |sum, (_, pages)| sum.saturating_add(pages.saturating_mul(mapping.page_kib)))
}

/// The memory of one process that hint faults cannot see, by reason.
fn unseen(pid: Pid, comm: &str, mappings: &[Mapping], lower: &[NodeId]) -> Vec<BlindProcess> {
    let mut by_reason: BTreeMap<&str, BlindSum> = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| is_hidden(mapping)) {
        let reason = if mapping.hugetlb { "hugetlb" } else { mapping.policy.mode.as_str() };
        let lower_tier_kib = lower_kib(mapping, lower);
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
