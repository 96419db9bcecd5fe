//! Whether thermocline can work on this machine, what stands in its way, and what would change
//! that.
//!
//! The doctor only reads. A file that cannot be read is a finding and does not end the examination.

mod bundle;
mod choices;
mod cxl;
mod kernel;
mod managers;
mod memory;
mod moving;
mod named;
mod others;
mod permissions;
mod report;
mod scopes;
mod shares;
mod sources;
mod text;
mod tiers;
mod watch;

use std::path::Path;

use thermocline_core::config::{Config, DemotionWay, Enabled, ManagerName};

use crate::actuator::{OTHER_PIDS, Plan, has_own_pids, plan};
use crate::demoter::{self, Offer, Way};
use crate::finding::{
    Demoting, Facts, Look, Others, Programs, View, away, blind, cpusets, judge, our_kdamonds, wanted_mode,
};
use crate::manager;
use crate::root::Root;
use crate::source::hintfault::btf::{Btf, VMLINUX};
use crate::source::hintfault::layout::{self, AttachPoint};
use crate::source::{self, ROWS, Row, one_tier};
use crate::topology::{Discovered, discover};
use crate::zoneinfo;

pub use crate::finding::{
    BLIND_PROCESSES_MAX, Blind, BlindProcess, BlindSum, Confined, Finding, Kind, Remedy, Severity,
};
pub use crate::source::{Probed, SourceStatus};
pub use bundle::{bundle, told};
pub use choices::overridden;
pub use kernel::{KernelInfo, Mounts};
pub use report::{Manager, Other, Permission, Report, SCHEMA, Verdict};
pub use watch::Watch;

/// Asks a kernel for the attach points of hint faults; an error says why it cannot be queried.
pub type Probe<'a> = &'a dyn Fn(&Root) -> Result<Vec<AttachPoint>, String>;

/// Nothing is changed in a pid namespace of its own.
fn own_pids(root: &Root) -> Option<Finding> {
    has_own_pids(root).then(|| Finding::new(Kind::PidNamespace, OTHER_PIDS))
}

/// Examines the machine at `root` for a run with `config`.
pub fn examine(root: &Root, config: &Config) -> Report {
    examine_with(root, config, &probe_btf)
}

/// As [`examine`], with another way to query attach points: for a machine whose files were copied
/// from elsewhere.
pub fn examine_with(root: &Root, config: &Config, probe: Probe<'_>) -> Report {
    look_at(root, config, probe, Depth::Everything(None))
}

/// The blockers of `run` with `config`: those of [`examine`], found without reading processes.
pub fn blockers(root: &Root, config: &Config) -> Vec<Finding> {
    let mut findings = look_at(root, config, &probe_btf, Depth::Blockers).findings;
    findings.retain(|finding| finding.severity == Severity::Blocker);
    findings
}

/// The extent of an examination.
#[derive(Clone, Debug)]
enum Depth {
    /// Everything except processes and what may come and go while a daemon runs, which block
    /// nothing.
    Blockers,
    /// All, with the mappings of an earlier look if there are any.
    Everything(Option<Programs>),
}

fn look_at(root: &Root, config: &Config, probe: Probe<'_>, depth: Depth) -> Report {
    let mut look = Look::new(root);
    let mut facts = Facts::read(&mut look, config);
    let kernel = KernelInfo::read(&mut look);
    let found = discover(root, &config.tiers);
    let mut findings = memory::topology(&mut look, &kernel, &found, one_tier::is_watched(config));
    let topology = found.ok();
    look.demotion(topology.as_ref());

    let engines = topology.as_ref().filter(|_| !config.manager.name.is_of_kernel());
    let demotion = engines.map(|found| demoter::offer(root, config, found));
    let plan = if config.manager.name.is_of_kernel() {
        Ok(kernels_plan(root, config, topology.as_ref()))
    } else {
        let offered = demotion.iter().flatten();
        findings.extend(offered.filter_map(|offer| demotion_caveat(&offer.way, config.demotion.way)));
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
    findings.extend(
        skipped.iter().map(|s| Finding::new(Kind::KernelScanSettings, s.to_string()).about(s.to_string())),
    );
    let writes: Vec<&Path> = changes.iter().map(|c| c.path.as_path()).collect();
    let mut permissions = permissions::permissions(&mut look, kernel.lockdown.as_deref(), &writes);
    findings.append(&mut permissions.findings);
    findings.extend(permissions::descriptors(&mut look, config));
    let moves =
        !matches!(config.manager.name, ManagerName::Observe | ManagerName::Numab2 | ManagerName::Damon);
    let (may_move, no_moves) = moving::permission(&look, topology.as_ref());
    permissions.list.push(may_move);
    findings.extend(no_moves.filter(|_| moves));
    let given_up = moving::given_up(topology.as_ref(), &facts.zones);

    let mode = wanted_mode(config);
    findings.extend(choices::numa_balancing(root, mode));
    let machine_pages = zoneinfo::node_states(&facts.zones).iter().map(|node| node.managed_pages).sum();
    findings.extend(choices::guests(&mut look, mode, machine_pages));
    findings.extend(own_pids(root));
    let state_dir = Path::new(&config.daemon.state_dir);
    let ours = our_kdamonds(&look, state_dir);
    if let Depth::Everything(kept) = depth {
        facts.others.programs = Others::read_programs(&mut look);
        facts.take(kept.unwrap_or_else(|| blind(&mut look, config, topology.as_ref())));
        let demoting = Demoting::new(config, demotion.as_ref());
        let view = View { config, found: topology.as_ref(), demoting: &demoting, running: None };
        findings.extend(judge(&view, &facts));
    }
    let others = others::others(&mut look, &kernel, &facts, state_dir);
    findings.extend(others.findings);

    let mut probed = source::Facts {
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
    let (sources, in_the_way) = sources::sources(&mut look, &mut probed);
    let (managers, refused) =
        managers::managers(root, config, &kernel, topology.as_ref(), &sources, &given_up);
    // A manager of the kernel's needs no source of ours.
    findings.extend(in_the_way.into_iter().filter(|_| !config.manager.name.is_of_kernel()));
    // DAMON may be in use by a thermocline; that one runs, or was killed, is a separate finding.
    findings.extend(refused.filter(|_| !ours));

    findings.extend(cpusets::finding(&facts.confined));
    findings.extend(away::finding(&facts.away));
    findings.extend(named::named(&mut look, config));
    findings.extend(
        topology
            .iter()
            .flat_map(|found| memory::free_space(found, &facts.zones, mode.or(kernel.numa_balancing))),
    );
    findings.extend(topology.iter().filter_map(|found| memory::closed(&mut look, found)));
    findings.extend(scopes::scopes(&look, config, &kernel, topology.as_ref()));
    let states = zoneinfo::node_states(&facts.zones);
    findings
        .extend(topology.iter().filter_map(|found| shares::out_of_reach(&mut look, config, found, &states)));
    findings
        .extend(look.failures.into_iter().map(|why| Finding::new(Kind::Unreadable, why.clone()).about(why)));
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
        nodes: states,
        sources,
        managers,
        permissions: permissions.list,
        changes,
        others: others.list,
        blind: facts.blind,
        confined: facts.confined,
        away: facts.away,
        findings,
    }
}

/// The settings of a kernel manager; empty if it cannot work, which is a separate finding.
fn kernels_plan(root: &Root, config: &Config, found: Option<&Discovered>) -> Plan {
    let offered =
        found.and_then(|found| manager::offer(root, config, config.manager.name, found).ok().flatten());
    offered.map(|manager| manager.plan().clone()).unwrap_or_default()
}

/// A note if the way of demotion has limitations, unless it was configured.
fn demotion_caveat(way: &Way, asked: DemotionWay) -> Option<Finding> {
    let caveat = way.caveat().filter(|_| asked == DemotionWay::Auto)?;
    let cause = format!(
        "generations cannot be asked, so that cold pages go down {caveat}; switch MGLRU on \
         (/sys/kernel/mm/lru_gen/enabled) and mount debugfs, where the kernel is not locked down"
    );
    let kind = if matches!(way, Way::Node) { Kind::DemotionByNode } else { Kind::DemotionByRegions };
    Some(Finding::new(kind, cause))
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
