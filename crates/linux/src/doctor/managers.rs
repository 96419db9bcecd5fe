//! Who can decide which pages move on this machine.

use thermocline_core::config::{Config, ManagerName};

use crate::damon::MIGRATE_SINCE;
use crate::doctor::kernel::KernelInfo;
use crate::doctor::report::{Finding, Ground, Manager, Severity, Source};
use crate::manager::{CannotManage, KernelManager, offer};
use crate::root::Root;
use crate::topology::Discovered;

/// All managers, and what keeps the chosen one from working.
pub(super) fn managers(
    root: &Root,
    config: &Config,
    kernel: &KernelInfo,
    found: Option<&Discovered>,
    sources: &[Source],
) -> (Vec<Manager>, Option<Finding>) {
    let list: Vec<Manager> = ManagerName::ALL
        .into_iter()
        .map(|name| {
            let (usable, detail) = match can(root, config, kernel, found, sources, name) {
                Ok(what) => (true, what),
                Err(why) => (false, why),
            };
            Manager { name: name.text(), chosen: name == config.manager.name, usable, detail }
        })
        .collect();
    // What keeps the engine from working is found where its sources are looked at.
    let chosen = list.iter().find(|m| m.chosen && !m.usable && config.manager.name.is_of_kernel());
    let finding = chosen.filter(|_| found.is_some()).map(|m| {
        let cause = format!("manager {} cannot work: {}", m.name, m.detail);
        Finding::new("manager.refused", Severity::Blocker, cause).fix(
            Ground::seen(list.iter().any(|m| m.usable && m.name != "observe")),
            "choose another with manager.name or `thermocline run --manager`",
        )
    });
    (list, finding)
}

/// What a manager would do here, or why it cannot.
fn can(
    root: &Root,
    config: &Config,
    kernel: &KernelInfo,
    found: Option<&Discovered>,
    sources: &[Source],
    name: ManagerName,
) -> Result<String, String> {
    let found = found.ok_or("the nodes could not be found")?;
    let (major, minor) = MIGRATE_SINCE;
    if name == ManagerName::Damon && kernel.is_older_than(major, minor) {
        return Err(format!(
            "this kernel is older than {major}.{minor}, which brought migrate_hot and migrate_cold"
        ));
    }
    match offer(root, config, name, found).map_err(|why| why.to_string())? {
        Some(KernelManager::Damon(setup)) => Ok(setup.told().join(", ")),
        Some(KernelManager::Numab2(_)) => {
            Ok("the kernel promotes after hint faults and demotes by reclaim".to_owned())
        }
        None if sources.iter().all(|s| s.status.is_refused()) => {
            Err("no source of evidence can be used".to_owned())
        }
        None if found.topology.tiers_with_memory() < 2 => Err(CannotManage::OneTier.to_string()),
        None if name == ManagerName::Observe => Ok("shows what is hot, moves nothing".to_owned()),
        None => Ok(format!("the engine promotes by rule {} and demotes", config.rule.name.text())),
    }
}
