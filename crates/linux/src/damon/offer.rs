//! Whether kdamonds of ours can be created, and their configuration.

use std::path::PathBuf;

use thermocline_core::admission::preferred::{NoTop, top_node};
use thermocline_core::config::{Config, DamonAddresses, Kernel};
use thermocline_core::units::NodeId;

use super::cgroups::{Cgroups, NotCgroups, Whose};
use super::setup::{self, Watched};
use super::{Follower, Setup, nr_kdamonds, on_demand};
use crate::actuator::{Change, Plan, plan, same_value};
use crate::root::{KernelFileError, Root, exists, read_optional};
use crate::topology::{Discovered, PfnMap};
use crate::zoneinfo;

/// Modules of the kernel that require exclusive use of DAMON while they run (Linux mm/damon:
/// `damon_start` with `exclusive`).
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", STAT];
/// The first kernel with migrate_hot and migrate_cold.
pub(crate) const MIGRATE_SINCE: (u32, u32) = (6, 11);
/// The one among them that only watches.
const STAT: &str = "damon_stat";

/// Whether DAMON_STAT may be stopped, and the key that says so.
struct StopStat {
    allowed: bool,
    key: &'static str,
}

/// Why DAMON cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotDamon {
    /// The kernel does not offer it.
    #[error(transparent)]
    Kernel(#[from] KernelFileError),
    /// Scopes that it cannot keep to.
    #[error(transparent)]
    Cgroups(#[from] NotCgroups),
    /// Our own source uses the kdamonds.
    #[error(
        "source.damon has DAMON's threads to itself; set source.damon.enabled = false to have cold regions demoted"
    )]
    Source,
    /// It is to promote to a node that is not of the top tier.
    #[error(transparent)]
    Target(#[from] NoTop),
    /// Others have kdamonds.
    #[error(
        "{} is {number}: somebody else has set up DAMON there, and the kernel lets nobody add to that without ending it; \
         stop whoever did (as with `damo stop`), then echo 0 > {}; what a killed thermocline left is ended by `thermocline restore`",
        path.display(), path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// Number of existing kdamonds.
        number: String,
    },
    /// A module of the kernel has exclusive use of DAMON.
    #[error("{module} runs and shares DAMON with nobody; echo N > {}{}", path.display(), if *module == STAT {
        format!(", or set {key} = true to have that done and undone")
    } else {
        String::new()
    })]
    Module {
        /// The module.
        module: &'static str,
        /// Its switch.
        path: PathBuf,
        /// The key that allows stopping it.
        key: &'static str,
    },
}

/// The setup of manager `damon` on this machine, if nobody else uses DAMON.
///
/// # Errors
/// Why it is not possible.
pub fn offer(root: &Root, config: &Config, found: &Discovered) -> Result<Setup, NotDamon> {
    let damon = &config.manager.damon;
    let cgroups = Cgroups::new(root, &config.scope)?;
    let follower = cgroups.map(|cgroups| Follower::new(root, cgroups, damon.young)).transpose()?;
    // A kernel without NUMA balancing does not need it switched off.
    let balancing = exists(&root.proc.join("sys/kernel/numa_balancing"));
    let kernel = Kernel { numa_balancing: damon.numa_balancing.filter(|_| balancing), ..Kernel::untouched() };
    let plan = plan(root, &kernel)?;
    let mut watched = with_memory(root, found)?;
    if let Some(to) = top_node(&found.topology, "manager.damon.target_nid", damon.target_nid)? {
        watched.iter_mut().filter_map(|w| w.up.as_mut()).for_each(|up| *up = to);
    }
    watched.retain(|w| w.up.is_some() || w.down.is_some());
    let key = "manager.damon.stop_damon_stat";
    let why = "so that DAMON moves pages, a kdamond a node";
    let plan = claim(root, plan, StopStat { allowed: damon.stop_damon_stat, key }, watched.len(), why)?;
    let whose = follower.as_ref().map_or(&Whose::All, Follower::whose);
    let (fills, schemes) = setup::fills(root, damon, &watched, whose);
    Ok(Setup { plan, fills, schemes, kdamonds: watched.len(), follower })
}

/// The setup with which cold regions of the top tier can be demoted on demand, if nobody else uses
/// DAMON.
///
/// # Errors
/// Why it is not possible.
pub fn offer_demotion(root: &Root, config: &Config, found: &Discovered) -> Result<Setup, NotDamon> {
    if root.kernel_version().is_some_and(|version| version < MIGRATE_SINCE) {
        let (major, minor) = MIGRATE_SINCE;
        let remedy = format!("boot a kernel of {major}.{minor} or later");
        return Err(KernelFileError::not_supported("migrate_cold", &nr_kdamonds(root), &remedy).into());
    }
    if config.source.damon.enabled {
        return Err(NotDamon::Source);
    }
    let mut watched = with_memory(root, found)?;
    watched.retain(|w| found.topology.is_top(w.node) && w.down.is_some());
    let key = "demotion.stop_damon_stat";
    let stop_stat = StopStat { allowed: config.demotion.stop_damon_stat, key };
    let why = "so that cold regions can be demoted, a kdamond a node of the top tier";
    let plan = claim(root, Plan::default(), stop_stat, watched.len(), why)?;
    let (fills, schemes) = on_demand::fills(root, &watched);
    Ok(Setup { plan, fills, schemes, kdamonds: watched.len(), follower: None })
}

/// What a source's kdamonds watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spaces {
    /// The frames of a node, each.
    Nodes(Vec<NodeId>),
    /// The addresses of one process each, given as the number of kdamonds; a kdamond is off until
    /// it has a process.
    Processes(usize),
}

/// The setup that only watches this machine, if nobody else uses DAMON; and what it watches.
///
/// # Errors
/// Why it is not possible.
pub fn offer_source(root: &Root, config: &Config, found: &Discovered) -> Result<(Setup, Spaces), NotDamon> {
    let keys = &config.source.damon;
    let (fills, kdamonds, watch, why) = match keys.addresses {
        DamonAddresses::Physical => {
            let watched = with_memory(root, found)?;
            let nodes = watched.iter().map(|w| w.node).collect();
            let why = "so that DAMON tells of regions, a kdamond a node";
            (setup::watch_nodes(root, keys, &watched), watched.len(), Spaces::Nodes(nodes), why)
        }
        DamonAddresses::Virtual => {
            // At most 256: it fits.
            let most = keys.processes_max as usize;
            let why = "so that DAMON tells of regions, a kdamond a process";
            (setup::watch_processes(root, keys, most), most, Spaces::Processes(most), why)
        }
    };
    let stop_stat = StopStat { allowed: keys.stop_damon_stat, key: "source.damon.stop_damon_stat" };
    let plan = claim(root, Plan::default(), stop_stat, kdamonds, why)?;
    let started = if matches!(watch, Spaces::Nodes(_)) { kdamonds } else { 0 };
    Ok((Setup { plan, fills, schemes: Vec::new(), kdamonds: started, follower: None }, watch))
}

/// Adds to a plan the settings that create our kdamonds, if nobody else has any. `stop_stat` says
/// whether DAMON_STAT may be stopped for it, and by which key.
fn claim(
    root: &Root,
    mut plan: Plan,
    stop_stat: StopStat,
    kdamonds: usize,
    why: &'static str,
) -> Result<Plan, NotDamon> {
    let path = nr_kdamonds(root);
    let what = "DAMON's sysfs interface";
    let Some(text) = read_optional(&path)? else {
        let remedy = "boot a kernel of 6.11 or later with CONFIG_DAMON_PADDR and CONFIG_DAMON_SYSFS";
        return Err(KernelFileError::not_supported(what, &path, remedy).into());
    };
    let number = text.trim().to_owned();
    if number != "0" {
        return Err(NotDamon::InUse { path, number });
    }
    for module in MODULES {
        let path = root.sys.join("module").join(module).join("parameters/enabled");
        if !read_optional(&path)?.is_some_and(|text| same_value(&text, "Y")) {
            continue;
        }
        if module != STAT || !stop_stat.allowed {
            return Err(NotDamon::Module { module, path, key: stop_stat.key });
        }
        plan.changes.push(Change {
            name: "damon_stat",
            undo: format!("echo Y > {}", path.display()),
            path,
            from: "Y".to_owned(),
            to: "N".to_owned(),
            why: "it shares DAMON with nobody",
        });
    }
    let undo = format!(
        "for on in {}/*/state; do echo off > $on; done; echo 0 > {}",
        path.parent().unwrap_or(&path).display(),
        path.display()
    );
    let to = kdamonds.to_string();
    plan.changes.push(Change { name: "nr_kdamonds", path, from: number, to, why, undo });
    Ok(plan)
}

/// Every node with memory: its memory, and the targets of its pages.
fn with_memory(root: &Root, found: &Discovered) -> Result<Vec<Watched>, KernelFileError> {
    let path = root.proc.join("zoneinfo");
    let Some(text) = read_optional(&path)? else {
        return Err(KernelFileError::not_supported("zone statistics", &path, "mount procfs"));
    };
    let frames = PfnMap::read(root, &zoneinfo::parse(&text))?;
    let topology = &found.topology;
    let capacity = |id: &NodeId| topology.node(*id).map_or(0, |node| node.capacity_pages);
    let nodes = topology.nodes.iter().filter(|node| node.capacity_pages > 0);
    let watch = |id: NodeId| {
        let ranges = frames.ranges().iter().filter(|range| range.node == id).copied().collect();
        // A scheme has one target. Among several at equal distance, the largest has most room.
        let promote = topology.promotion_targets(id, id);
        let best = promote.first().and_then(|first| topology.tier(*first));
        let top = promote.into_iter().filter(|to| topology.tier(*to) == best);
        let up = top.min_by_key(|to| (topology.distance(id, *to), std::cmp::Reverse(capacity(to)), *to));
        Watched { node: id, ranges, up, down: topology.demotion_targets(id).first().copied() }
    };
    Ok(nodes.map(|node| watch(node.id)).filter(|w| !w.ranges.is_empty()).collect())
}
