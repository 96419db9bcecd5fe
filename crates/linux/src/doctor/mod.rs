//! Whether thermocline can work on this machine, what stands in its way, and what would change
//! that.
//!
//! The doctor only reads. A file that cannot be read is a finding and does not end the examination.

mod blind;
mod bundle;
mod choices;
mod cpusets;
mod cxl;
mod kernel;
mod look;
mod managers;
mod memory;
mod moving;
mod named;
mod others;
mod permissions;
mod pressure;
mod report;
mod scopes;
mod sources;
mod text;
mod tiers;

use std::path::Path;

use thermocline_core::config::{Config, DemotionWay, Enabled, ManagerName, Unreachable};
use thermocline_core::units::NodeId;

use crate::actuator::{OTHER_PIDS, Plan, has_own_pids, plan};
use crate::demoter::{self, NotDemoting, Offer, Way};
use crate::manager;
use crate::root::Root;
use crate::source::hintfault::btf::{Btf, VMLINUX};
use crate::source::hintfault::layout::{self, AttachPoint};
use crate::source::{Facts, ROWS, Row};
use crate::topology::{Discovered, discover};
use crate::zoneinfo;

use look::Look;

pub use crate::source::{Probed, SourceStatus};
pub use blind::BLIND_PROCESSES_MAX;
pub use bundle::{bundle, told};
pub use choices::overridden;
pub use kernel::{KernelInfo, Mounts};
pub use report::{
    Blind, BlindProcess, BlindSum, Confined, Finding, Manager, Other, Permission, Remedy, Report, SCHEMA,
    Severity, Verdict,
};

/// Asks a kernel for the attach points of hint faults; an error says why it cannot be queried.
pub type Probe<'a> = &'a dyn Fn(&Root) -> Result<Vec<AttachPoint>, String>;

/// Nothing is changed in a pid namespace of its own.
fn own_pids(root: &Root) -> Option<Finding> {
    has_own_pids(root).then(|| Finding::new("pid_namespace", Severity::Blocker, OTHER_PIDS))
}

/// Examines the machine at `root` for a run with `config`.
pub fn examine(root: &Root, config: &Config) -> Report {
    examine_with(root, config, &probe_btf)
}

/// As [`examine`], with another way to query attach points: for a machine whose files were copied
/// from elsewhere.
pub fn examine_with(root: &Root, config: &Config, probe: Probe<'_>) -> Report {
    look_at(root, config, probe, Depth::Everything)
}

/// The blockers of `run` with `config`: those of [`examine`], found without reading processes.
pub fn blockers(root: &Root, config: &Config) -> Vec<Finding> {
    let mut findings = look_at(root, config, &probe_btf, Depth::Blockers).findings;
    findings.retain(|finding| finding.severity == Severity::Blocker);
    findings
}

/// The extent of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Everything except processes, which block nothing.
    Blockers,
    /// All.
    Everything,
}

fn look_at(root: &Root, config: &Config, probe: Probe<'_>, depth: Depth) -> Report {
    let mut look = Look::new(root);
    let kernel = KernelInfo::read(&mut look);
    let zones = zoneinfo::parse(&look.text(&root.proc.join("zoneinfo")).unwrap_or_default());
    let found = discover(root, &config.tiers);
    let mut findings = memory::topology(&mut look, &kernel, &found);
    let topology = found.ok();
    look.demotion(topology.as_ref());

    let engines = topology.as_ref().filter(|_| !config.manager.name.is_of_kernel());
    let demotion = engines.map(|found| demoter::offer(root, config, found));
    let plan = if config.manager.name.is_of_kernel() {
        Ok(kernels_plan(root, config, topology.as_ref()))
    } else {
        findings.extend(demotion.iter().filter_map(|offered| match offered {
            Ok(offer) => demotion_caveat(&offer.way, config.demotion.way),
            Err(why) => no_demotion(why),
        }));
        plan(root, &demoter::settings(config, demotion.as_ref().and_then(|offered| offered.as_ref().ok())))
    };
    let no_settings = plan.as_ref().err().map(ToString::to_string);
    let Plan { mut changes, skipped, .. } = plan.unwrap_or_default();
    if let Some(Ok(Offer { way: Way::Regions(setup), .. })) = &demotion {
        changes.extend(setup.plan.changes.clone());
    }
    if let Some(found) = engines {
        let used = |row: &&Row| config.source.keys(row.source).enabled() != Enabled::No;
        for row in ROWS.iter().filter(used) {
            // If it cannot be read, the source says why.
            changes.extend((row.plan)(root, config, found).unwrap_or_default().changes);
        }
    }
    findings
        .extend(skipped.iter().map(|s| Finding::new("kernel.scan_settings", Severity::Note, s.to_string())));
    let writes: Vec<&Path> = changes.iter().map(|c| c.path.as_path()).collect();
    let mut permissions = permissions::permissions(&mut look, kernel.lockdown.as_deref(), &writes);
    findings.append(&mut permissions.findings);
    findings.extend(permissions::descriptors(&mut look, config));
    let moves =
        !matches!(config.manager.name, ManagerName::Observe | ManagerName::Numab2 | ManagerName::Damon);
    let (may_move, no_moves) = moving::permission(&look, topology.as_ref());
    permissions.list.push(may_move);
    findings.extend(no_moves.filter(|_| moves));
    let given_up = moving::given_up(topology.as_ref(), &zones);
    findings.extend(moving::gave_up(&given_up, config));

    let mode = match config.manager.name {
        ManagerName::Numab2 => Some(2),
        ManagerName::Damon => config.manager.damon.numa_balancing,
        ManagerName::Thermocline | ManagerName::Observe => config.kernel.numa_balancing,
    };
    findings.extend(choices::numa_balancing(root, mode));
    let machine_pages = zoneinfo::node_states(&zones).iter().map(|node| node.managed_pages).sum();
    findings.extend(choices::guests(&mut look, mode, machine_pages));
    findings.extend(own_pids(root));
    let state_dir = Path::new(&config.daemon.state_dir);
    let ours = others::our_kdamonds(&look, state_dir);
    let others = others::others(&mut look, &kernel, mode, state_dir);
    findings.extend(others.findings);

    let mut facts = Facts {
        root,
        config,
        topology: topology.as_ref(),
        release: kernel.release.as_deref(),
        numa_balancing: kernel.numa_balancing,
        attach_points: probe(root),
        no_bpf: permissions.no_bpf,
        may_sample: permissions.may_sample,
        sees_frames: permissions.sees_frames,
        no_settings,
        our_kdamonds: ours,
        usable: None,
        failures: Vec::new(),
    };
    let (sources, in_the_way) = sources::sources(&mut look, &mut facts);
    let (managers, refused) =
        managers::managers(root, config, &kernel, topology.as_ref(), &sources, &given_up);
    // A manager of the kernel's needs no source of ours.
    findings.extend(in_the_way.into_iter().filter(|_| !config.manager.name.is_of_kernel()));
    // DAMON may be in use by a thermocline; that one runs, or was killed, is a separate finding.
    findings.extend(refused.filter(|_| !ours));

    let lower = lower_nodes(topology.as_ref());
    let (blind, confined) = match depth {
        Depth::Everything => blind::blind(&mut look, &lower, topology.as_ref()),
        Depth::Blockers => Default::default(),
    };
    findings.extend(blind::finding(&blind, capacity_kib(topology.as_ref(), &lower)));
    findings.extend(cpusets::finding(&confined));
    findings.extend(named::named(&mut look, config));
    findings.extend(
        topology.iter().flat_map(|found| memory::free_space(found, &zones, mode.or(kernel.numa_balancing))),
    );
    findings.extend(topology.iter().filter_map(|found| memory::closed(&mut look, found)));
    findings.extend(scopes::scopes(&look, config, &kernel, topology.as_ref()));
    findings.extend(pressure::pressure(&mut look, config));
    findings.extend(look.failures.into_iter().map(|why| Finding::new("unreadable", Severity::Note, why)));
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));

    let verdict = match findings.first().map_or(Severity::Ok, |worst| worst.severity) {
        Severity::Blocker => Verdict::Unusable,
        Severity::Problem => Verdict::Problems,
        Severity::Note | Severity::Ok => Verdict::Usable,
    };
    Report {
        schema: SCHEMA,
        verdict,
        kernel,
        topology,
        nodes: zoneinfo::node_states(&zones),
        sources,
        managers,
        permissions: permissions.list,
        changes,
        others: others.list,
        blind,
        confined,
        findings,
    }
}

/// The settings of a kernel manager; empty if it cannot work, which is a separate finding.
fn kernels_plan(root: &Root, config: &Config, found: Option<&Discovered>) -> Plan {
    let offered =
        found.and_then(|found| manager::offer(root, config, config.manager.name, found).ok().flatten());
    offered.map(|manager| manager.plan().clone()).unwrap_or_default()
}

/// A note if nothing would be demoted, unless configured so.
fn no_demotion(why: &NotDemoting) -> Option<Finding> {
    if matches!(why, NotDemoting::Config(Unreachable::Off | Unreachable::Direction)) {
        return None;
    }
    let cause = format!("nothing will be demoted, so that promotion ends where the top tier is full: {why}");
    Some(Finding::new("demotion.none", Severity::Note, cause))
}

/// A note if the way of demotion has limitations, unless it was configured.
fn demotion_caveat(way: &Way, asked: DemotionWay) -> Option<Finding> {
    let caveat = way.caveat().filter(|_| asked == DemotionWay::Auto)?;
    let cause = format!(
        "generations cannot be asked, so that cold pages go down {caveat}; switch MGLRU on \
         (/sys/kernel/mm/lru_gen/enabled) and mount debugfs, where the kernel is not locked down"
    );
    let id = if matches!(way, Way::Node) { "demotion.by_node" } else { "demotion.by_regions" };
    Some(Finding::new(id, Severity::Note, cause))
}

fn probe_btf(root: &Root) -> Result<Vec<AttachPoint>, String> {
    if !cfg!(feature = "bpf") {
        return Err(
            "this thermocline was built without BPF: build it with --features bpf, which needs clang".into(),
        );
    }
    let below_sys = VMLINUX.trim_start_matches("/sys/");
    match Btf::read(&root.sys.join(below_sys)) {
        Ok(btf) => Ok(layout::probe(&btf)),
        Err(error) => Err(error.to_string()),
    }
}

/// Nodes with memory below the kernel's top tier.
fn lower_nodes(found: Option<&Discovered>) -> Vec<NodeId> {
    let nodes = found.iter().flat_map(|f| f.topology.nodes.iter().map(move |n| (f, n)));
    nodes.filter(|(f, n)| n.capacity_pages > 0 && !f.kernel_top.contains(&n.id)).map(|(_, n)| n.id).collect()
}

fn capacity_kib(found: Option<&Discovered>, nodes: &[NodeId]) -> u64 {
    let size = found.map(|f| f.topology.page_bytes).unwrap_or_default();
    let all = found.iter().flat_map(|f| &f.topology.nodes);
    all.filter(|n| nodes.contains(&n.id)).fold(0, |sum, n| sum + size.kib(n.capacity_pages))
}
