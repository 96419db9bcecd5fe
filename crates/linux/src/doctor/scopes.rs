//! The demands of the configuration's scopes, and those that cannot be met on this machine.

use thermocline_core::access::Holding;
use thermocline_core::config::{Config, DemotionMode, Scope};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::doctor::kernel::KernelInfo;
use crate::finding::{Finding, Ground, Kind, Look, Severity};
use crate::scope::Holdings;
use crate::scope::cpuset::Cpusets;
use crate::topology::Discovered;

/// Kernel actions that scopes cannot prevent, and the state of scopes with a floor or a cap.
pub(super) fn scopes(
    look: &Look<'_>,
    config: &Config,
    kernel: &KernelInfo,
    found: Option<&Discovered>,
) -> Vec<Finding> {
    if config.scope.is_empty() {
        return Vec::new();
    }
    let cause = "kernel.numa_balancing is one switch for the whole machine: processes outside of the configured scopes \
                 are not moved by thermocline, but the kernel scans them too";
    let mut findings = vec![Finding::new(Kind::ScopeScannedGlobally, cause)];
    if let Some(found) = found {
        findings.extend(holdings(look, config, found));
        findings.extend(floors_too_large(config, found));
        findings.extend(may_be_slow(look, config, kernel, found));
    }
    findings.extend(floors_and_the_kernel(config, kernel));
    findings
}

fn floors(config: &Config) -> impl Iterator<Item = &Scope> {
    config.scope.iter().filter(|scope| scope.keeps_some())
}

/// The top-tier holding of each scope with a floor or a cap.
fn holdings(look: &Look<'_>, config: &Config, found: &Discovered) -> Vec<Finding> {
    let unknown = |why: String| {
        let cause = format!(
            "nothing would be promoted into a scope with a cap, or demoted from one with a floor: {why}"
        );
        Finding::new(Kind::ScopeTopTierUnknown, cause)
    };
    let holdings = match Holdings::new(look.root, &config.scope) {
        Ok(holdings) => holdings,
        Err(error) => return vec![unknown(error.to_string())],
    };
    let read = holdings.read(&found.topology, Nanos(0));
    read.map(|holding| holding.map_or_else(|error| unknown(error.to_string()), |h| told(config, &h)))
        .collect()
}

fn told(config: &Config, holding: &Holding) -> Finding {
    let place = usize::from(holding.scope.0).saturating_sub(1);
    let mut cause = format!("scope[{place}] holds {} MiB of the top tier", holding.pages / PAGES_PER_MIB);
    if let Some(scope) = config.scope.get(place) {
        if scope.never_slow {
            cause.push_str(", and nothing is demoted from it");
        } else if scope.top_tier_floor_mib > 0 {
            cause.push_str(&format!(", its floor is {} MiB", scope.top_tier_floor_mib));
        }
        if let Some(cap_mib) = scope.top_tier_cap_mib {
            cause.push_str(&format!(", its cap is {cap_mib} MiB"));
        }
    }
    Finding::new(Kind::ScopeTopTier, cause).of_scope(format!("[{place}]"))
}

fn floors_too_large(config: &Config, found: &Discovered) -> Option<Finding> {
    let floors_mib =
        config.scope.iter().fold(0u64, |sum, scope| sum.saturating_add(scope.top_tier_floor_mib));
    let top = found.topology.nodes.iter().filter(|node| found.topology.is_top(node.id));
    let top_mib = found.topology.page_bytes.mib(top.map(|node| node.capacity_pages).sum());
    let cause =
        format!("the scopes' floors are {floors_mib} MiB together, and the top tier has {top_mib} MiB");
    let finding = Finding::new(Kind::ScopeFloorsTooLarge, cause);
    (floors_mib > top_mib).then(|| {
        finding.fix(Ground::OURS, "lower scope.top_tier_floor_mib: what is not there cannot be kept")
    })
}

/// Scopes that are never to be slow, and whose cpusets allow lower tiers.
fn may_be_slow(look: &Look<'_>, config: &Config, kernel: &KernelInfo, found: &Discovered) -> Vec<Finding> {
    let cpusets = Cpusets::new(look.root);
    let nodes = |top: bool| {
        let with_memory = found.topology.nodes.iter().filter(|node| node.capacity_pages > 0);
        let these = with_memory.filter(|node| found.topology.is_top(node.id) == top);
        these.map(|node| u32::from(node.id.0)).collect::<Vec<_>>()
    };
    let (top, lower) = (list(&nodes(true)), nodes(false));
    let scopes = config.scope.iter().enumerate().filter(|(_, scope)| scope.never_slow);
    let finding = |(place, scope): (usize, &Scope)| {
        let path = scope.cgroup_alone()?;
        // What cannot be read is said of the scope's holding.
        let mems = cpusets.mems(&path, |file| std::fs::read_to_string(file)).ok()?;
        let allowed: Vec<u32> = lower
            .iter()
            .copied()
            .filter(|node| mems.as_ref().is_none_or(|mems| mems.contains(node)))
            .collect();
        if allowed.is_empty() {
            return None;
        }
        let older = if kernel.is_older_than(6, 18) {
            "; kernels before 6.18 may demote under memory pressure whatever a cpuset says: keep kernel.demotion_enabled = false"
        } else {
            ""
        };
        let cause = format!(
            "scope[{place}] is never_slow, and its cpuset allows node {}: the kernel may allocate its memory there, and \
             demote it",
            list(&allowed)
        );
        let fix = format!(
            "write {top} to cpuset.mems of {path} (systemd: AllowedMemoryNodes={top}), which moves what is slow now as well; \
             what does not fit there then ends in an out-of-memory kill{older}"
        );
        Some(Finding::new(Kind::ScopeMayBeSlow, cause).of_scope(format!("[{place}]")).fix(Ground::OURS, fix))
    };
    scopes.filter_map(finding).collect()
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The kernel's own demotion under memory pressure knows no floors.
fn floors_and_the_kernel(config: &Config, kernel: &KernelInfo) -> Option<Finding> {
    floors(config).next()?;
    let consent = config.demotion.mode == DemotionMode::On;
    let stays_on = kernel.demotion_enabled == Some(true) && config.kernel.demotion_enabled.is_none();
    let cause = "demotion by the kernel is enabled: under memory pressure it may demote memory of any cgroup, also below a scope's \
                 top_tier_floor_mib and of one that is never_slow: both hold for what thermocline asks for";
    match (consent, stays_on) {
        (true, _) => Some(Finding::new(Kind::ScopeFloorAndKernel, cause)),
        (false, true) => {
            Some(Finding::new(Kind::ScopeFloorAndKernel, cause).with_severity(Severity::Problem).fix(
                Ground::OURS,
                "set kernel.demotion_enabled = false, or demotion.mode = \"on\" to accept it",
            ))
        }
        (false, false) => None,
    }
}
