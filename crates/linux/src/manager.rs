//! Managers: what decides which pages move, and the kernel settings that it needs.

use thermocline_core::config::{Config, Kernel, ManagerName};
use thermocline_core::topology::Node;
use thermocline_core::units::NodeId;

use crate::actuator::{Actuator, Plan, plan};
use crate::configuration;
use crate::damon::{self, NotDamon, Setup};
use crate::demoter;
use crate::root::{KernelFileError, Root};
use crate::topology::Discovered;

/// Why a kernel manager cannot work here.
#[derive(Debug, thiserror::Error)]
pub enum CannotManage {
    /// It would move memory that it must not.
    #[error(
        "manager {} acts on the whole machine and knows no scopes; remove the scopes (and --pid), or choose manager thermocline, or damon, which knows scopes by cgroup",
        .0.text()
    )]
    Scopes(ManagerName),
    /// The kernel's tiers are not those in use, so that it would not promote, or promote elsewhere.
    #[error(
        "the kernel promotes and demotes by its own tiers, and these are not the tiers in use; unset [tiers], or see \
         `thermocline doctor` for how the kernel can be made to see them"
    )]
    OtherTiers,
    /// The kernel would move pages to and from an excluded node.
    #[error(
        "manager numab2 cannot leave {0} out, which tiers.exclude names: the kernel moves pages there and from there; \
         remove it from tiers.exclude, or choose another manager"
    )]
    Excluded(NodeId),
    /// There are no two tiers to move between.
    #[error(
        "all memory of this machine is in one tier: there is nothing to promote from, and nothing to demote to"
    )]
    OneTier,
    /// To the kernel all nodes are top tier.
    #[error(
        "all nodes with memory are top tier to the kernel, which neither scans them in tiering mode nor promotes from them"
    )]
    NothingBelow,
    /// DAMON cannot be used.
    #[error(transparent)]
    Damon(#[from] NotDamon),
    /// A setting is absent or cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelFileError),
}

/// A kernel manager, with the settings that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelManager {
    /// NUMA balancing in tiering mode, with these settings.
    Numab2(Plan),
    /// DAMON.
    Damon(Box<Setup>),
}

impl KernelManager {
    /// Its name.
    pub fn name(&self) -> ManagerName {
        match self {
            KernelManager::Numab2(_) => ManagerName::Numab2,
            KernelManager::Damon(_) => ManagerName::Damon,
        }
    }

    /// The settings that it needs.
    pub fn plan(&self) -> &Plan {
        match self {
            KernelManager::Numab2(plan) => plan,
            KernelManager::Damon(setup) => &setup.plan,
        }
    }
}

/// The kernel manager chosen by the configuration, on this machine; `None` if the engine decides,
/// or nothing does.
///
/// # Errors
/// Why it cannot work here, and what would change that.
pub fn offer(
    root: &Root,
    config: &Config,
    name: ManagerName,
    found: &Discovered,
) -> Result<Option<KernelManager>, CannotManage> {
    if !name.is_of_kernel() {
        return Ok(None);
    }
    if found.topology.tiers_with_memory() < 2 {
        return Err(CannotManage::OneTier);
    }
    if name == ManagerName::Damon {
        return Ok(Some(KernelManager::Damon(Box::new(damon::offer(root, config, found)?))));
    }
    if !config.scope.is_empty() {
        return Err(CannotManage::Scopes(name));
    }
    if let Some(&node) = found.excluded.first() {
        return Err(CannotManage::Excluded(node));
    }
    if !demoter::same_tiers(found) {
        return Err(CannotManage::OtherTiers);
    }
    let below = |n: &Node| n.capacity_pages > 0 && !found.kernel_top.contains(&n.id);
    if !found.topology.nodes.iter().any(below) {
        return Err(CannotManage::NothingBelow);
    }
    let numab2 = &config.manager.numab2;
    let kernel = Kernel {
        numa_balancing: Some(2),
        numa_balancing_promote_rate_limit_mbps: numab2.promote_rate_limit_mbps,
        demotion_enabled: numab2.demotion_enabled,
        ..Kernel::untouched()
    };
    Ok(Some(KernelManager::Numab2(plan(root, &kernel)?)))
}

/// Why a manager cannot take over from the present one, whose settings `actuator` holds, as far as
/// can be determined before those are put back. `config` names the new manager.
pub fn refusal(root: &Root, config: &Config, found: &Discovered, actuator: &Actuator) -> Option<String> {
    if let Err(error) = configuration::check(config) {
        return Some(error.to_string());
    }
    match offer(root, config, config.manager.name, found) {
        Ok(_) => None,
        // They are gone by the time it takes over.
        Err(CannotManage::Damon(NotDamon::InUse { path, .. })) if actuator.has_set(&path) => None,
        Err(why) => Some(why.to_string()),
    }
}
