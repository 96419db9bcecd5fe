//! The managers that can work on this machine.

use thermocline_core::config::{Config, ManagerName};
use thermocline_core::units::NodeId;

use crate::damon::MIGRATE_SINCE;
use crate::doctor::kernel::KernelInfo;
use crate::doctor::report::Manager;
use crate::finding::{Finding, Ground, Kind};
use crate::lists::nodes_text;
use crate::manager::{CannotManage, KernelManager, offer};
use crate::root::Root;
use crate::source::Probed;
use crate::topology::Discovered;

/// All managers, and what keeps the chosen one from working. Kswapd has given up on the nodes
/// `given_up`.
pub(super) fn managers(
    root: &Root,
    config: &Config,
    kernel: &KernelInfo,
    found: Option<&Discovered>,
    sources: &[Probed],
    given_up: &[NodeId],
) -> (Vec<Manager>, Option<Finding>) {
    let list: Vec<Manager> = ManagerName::ALL
        .into_iter()
        .map(|name| {
            let (usable, detail) = match can(root, config, kernel, found, sources, given_up, name) {
                Ok(what) => (true, what),
                Err(why) => (false, why),
            };
            Manager { name: name.text(), chosen: name == config.manager.name, usable, detail }
        })
        .collect();
    // Problems of the engine are found with its sources.
    let chosen = list.iter().find(|m| m.chosen && !m.usable && config.manager.name.is_of_kernel());
    let finding = chosen.filter(|_| found.is_some()).map(|m| {
        let cause = format!("manager {} cannot work: {}", m.name, m.detail);
        Finding::new(Kind::ManagerRefused, cause).fix(
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
    sources: &[Probed],
    given_up: &[NodeId],
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
        Some(KernelManager::Numab2(_)) => numab2(config, given_up),
        None if sources.iter().all(|s| s.status.is_refused()) => {
            Err("no source of evidence can be used".to_owned())
        }
        None if found.topology.tiers_with_memory() < 2 => Err(CannotManage::OneTier.to_string()),
        None if name == ManagerName::Observe => Ok("shows what is hot, moves nothing".to_owned()),
        None => Ok(format!("the engine promotes by rule {} and demotes", config.rule.name.text())),
    }
}

/// What NUMA balancing would do, which makes room by kswapd alone.
fn numab2(config: &Config, given_up: &[NodeId]) -> Result<String, String> {
    let what = "the kernel promotes after hint faults and demotes by reclaim";
    if given_up.is_empty() || config.manager.numab2.demotion_enabled != Some(true) {
        return Ok(what.to_owned());
    }
    let nodes = nodes_text(&given_up.iter().map(|id| u32::from(id.0)).collect::<Vec<u32>>());
    if config.demotion.revive_kswapd {
        return Ok(format!("{what}, once kswapd is back on {nodes}, which `run` tries to have"));
    }
    Err(format!(
        "it demotes by kswapd alone, which has given up on {nodes}, and demotion.revive_kswapd is false"
    ))
}
