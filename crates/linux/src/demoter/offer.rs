//! Whether a configuration can demote on this kernel, and what it needs set for that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use thermocline_core::config::{Config, DemotionWay, Kernel};
use thermocline_core::demotion::{Reach, Unreachable, reach};
use thermocline_core::units::{NodeId, TierId};

use super::{demotion_enabled, own_cgroup};
use crate::actuator::{lru_gen, node_reclaim};
use crate::root::{KernelFileError, Root, read_optional};
use crate::topology::Discovered;

/// How the kernel is asked for cold pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By cgroup and by how long pages have been idle.
    Generations,
    /// By the node alone.
    Node,
}

/// Whose memory is demoted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whose.
    pub reach: Reach,
    /// How.
    pub way: Way,
}

/// Why nothing is demoted.
#[derive(Debug, thiserror::Error)]
pub enum NotDemoting {
    /// The configuration does not let it.
    #[error(transparent)]
    Config(#[from] Unreachable),
    /// The kernel does not offer it.
    #[error(transparent)]
    Kernel(#[from] KernelFileError),
    /// The kernel offers it, and somebody has switched it off.
    #[error("reclaim by generations (MGLRU) is switched off: echo y > {}", .0.display())]
    GenerationsOff(PathBuf),
    /// The way that is configured would take memory that is out of scope.
    #[error(
        "the kernel's reclaim of a node knows no scopes; remove them, or set demotion.way = \"generations\" where the kernel has them"
    )]
    Scopes,
    /// The kernel would demote to other nodes than we mean, or, where it knows of no slower node, swap out and drop.
    #[error(
        "the kernel demotes by its own tiers, and these are not the tiers in use; unset [tiers], or see `thermocline \
         doctor` for how the kernel can be made to see them"
    )]
    OtherTiers,
    /// The kernel would demote to a node that is left out.
    #[error("the kernel demotes to {0} too, which tiers.exclude leaves out")]
    Excluded(NodeId),
}

/// Whose memory is demoted on the machine that was found, and how.
///
/// # Errors
/// Why nobody's.
pub fn offer(root: &Root, config: &Config, found: &Discovered) -> Result<Offer, NotDemoting> {
    let (scope, ids) = own_cgroup::by_cgroup(root, &config.scope);
    let mut reach = reach(&Config { scope, ..config.clone() })?;
    for subtree in &mut reach.only {
        let place = usize::from(subtree.scope.0).saturating_sub(1);
        subtree.scope = ids.get(place).copied().unwrap_or(subtree.scope);
    }
    let way = way(root, config.demotion.way, &reach, found)?;
    let demotion = demotion_enabled(root);
    if !demotion.exists() {
        let remedy = "boot a kernel of 5.15 or later with CONFIG_MIGRATION";
        return Err(KernelFileError::not_supported("demotion", &demotion, remedy).into());
    }
    if !same_tiers(found) {
        return Err(NotDemoting::OtherTiers);
    }
    if let Some(node) = excluded_below(found) {
        return Err(NotDemoting::Excluded(node));
    }
    Ok(Offer { reach, way })
}

/// The way that is asked for; left to us, the one that keeps to scopes and idle times, where there is one.
fn way(root: &Root, asked: DemotionWay, reach: &Reach, found: &Discovered) -> Result<Way, NotDemoting> {
    let by_generations = || generations(root).map(|()| Way::Generations);
    let by_node = || whole_nodes(root, reach, found).map(|()| Way::Node);
    match asked {
        DemotionWay::Generations => by_generations(),
        DemotionWay::Node => by_node(),
        // Why there are no generations is what can be mended.
        DemotionWay::Auto => by_generations().or_else(|why| by_node().map_err(|_| why)),
    }
}

/// Whether the nodes with memory are in the kernel's tiers as they are in ours, and in more than one.
pub(crate) fn same_tiers(found: &Discovered) -> bool {
    let mut ours: BTreeMap<TierId, BTreeSet<NodeId>> = BTreeMap::new();
    for node in found.topology.nodes.iter().filter(|n| n.capacity_pages > 0) {
        ours.entry(node.tier).or_default().insert(node.id);
    }
    let has_memory = |id: &&NodeId| found.topology.node(**id).is_some_and(|n| n.capacity_pages > 0);
    let theirs =
        found.kernel_tiers.iter().map(|tier| tier.nodes.iter().filter(has_memory).copied().collect());
    let theirs: Vec<BTreeSet<NodeId>> = theirs.filter(|nodes: &BTreeSet<NodeId>| !nodes.is_empty()).collect();
    ours.len() > 1 && ours.into_values().eq(theirs)
}

/// A node that is left out and below the kernel's top tier: the kernel may demote to it.
pub(crate) fn excluded_below(found: &Discovered) -> Option<NodeId> {
    let top = |id: &NodeId| found.kernel_top.contains(id);
    let slowest_top = found.kernel_tiers.iter().rposition(|tier| tier.nodes.iter().any(top));
    let below = found.kernel_tiers.iter().skip(slowest_top.map_or(0, |at| at + 1));
    let mut below = below.flat_map(|tier| &tier.nodes);
    below.find(|id| found.excluded.contains(id)).copied()
}

/// The settings of `config`, and those that demotion needs.
pub fn settings(config: &Config, offer: Option<&Offer>) -> Kernel {
    let mut kernel = config.kernel.clone();
    if let Some(offer) = offer {
        kernel.demotion_enabled = Some(true);
        if offer.way == Way::Node {
            kernel.min_unmapped_ratio.get_or_insert(0);
            kernel.min_slab_ratio.get_or_insert(0);
        }
    }
    kernel
}

/// Whether this kernel can be asked for what is idle.
///
/// # Errors
/// What it does not offer, and what would bring it.
fn generations(root: &Root) -> Result<(), NotDemoting> {
    let switch = root.sys.join("kernel/mm/lru_gen/enabled");
    let what = "reclaim by generations (MGLRU)";
    let Some(text) = read_optional(&switch)? else {
        let remedy = "boot a kernel of 6.1 or later with CONFIG_LRU_GEN; Debian's have it";
        return Err(KernelFileError::not_supported(what, &switch, remedy).into());
    };
    let bits = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    if bits & 1 == 0 {
        return Err(NotDemoting::GenerationsOff(switch));
    }
    let file = lru_gen(root);
    if !file.exists() {
        let remedy = "mount debugfs: mount -t debugfs none /sys/kernel/debug";
        return Err(KernelFileError::not_supported(what, &file, remedy).into());
    }
    Ok(())
}

/// Whether it can be asked for what is coldest on a node, and everybody's memory may go.
///
/// # Errors
/// What it does not offer, and what would bring it.
fn whole_nodes(root: &Root, reach: &Reach, found: &Discovered) -> Result<(), NotDemoting> {
    if *reach != Reach::default() {
        return Err(NotDemoting::Scopes);
    }
    let top = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0 && found.topology.is_top(n.id));
    let files = top.map(|node| node_reclaim(root, node.id));
    match files.into_iter().find(|file| !file.exists()) {
        None => Ok(()),
        Some(file) => {
            let remedy = "boot a kernel of 6.18 or later";
            Err(KernelFileError::not_supported("reclaim of one node", &file, remedy).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::config::Scope;
    use thermocline_core::topology::{Node, Topology};

    use super::*;
    use crate::topology::{KernelTier, TierOrigin};

    /// Nodes with memory, each in a tier of ours, and the kernel's tiers.
    fn found(ours: &[u8], kernel: &[&[u16]]) -> Discovered {
        let node = |(id, tier): (usize, &u8)| Node {
            id: NodeId(id as u16),
            tier: TierId(*tier),
            cpus: Vec::new(),
            capacity_pages: 1,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10; ours.len()],
        };
        let tier = |(i, nodes): (usize, &&[u16])| KernelTier {
            number: i as u32,
            nodes: nodes.iter().map(|n| NodeId(*n)).collect(),
        };
        Discovered {
            topology: Topology::new(ours.iter().enumerate().map(node).collect()).unwrap(),
            origin: TierOrigin::Kernel,
            kernel_tiers: kernel.iter().enumerate().map(tier).collect(),
            kernel_top: Vec::new(),
            excluded: Vec::new(),
            page_size_known: true,
        }
    }

    #[test]
    fn the_kernels_tiers_have_to_be_those_in_use() {
        assert!(same_tiers(&found(&[0, 0, 1], &[&[0, 1], &[2]])));
        assert!(!same_tiers(&found(&[0, 0, 1], &[&[0, 1, 2]])), "the kernel would swap out");
        assert!(!same_tiers(&found(&[0, 1, 1], &[&[0, 1], &[2]])), "the kernel would demote past node 1");
        assert!(!same_tiers(&found(&[0, 0], &[&[0, 1]])));
        assert!(!same_tiers(&found(&[0, 1], &[])));
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let tiers = found(&[0, 1], &[&[0], &[1]]);
        let why = || offer(&root, &Config::default(), &tiers).unwrap_err().to_string();
        assert!(why().contains("does not offer reclaim by generations"), "{}", why());
        let folder = root.sys.join("kernel/mm/lru_gen");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("enabled"), "0x0000\n").unwrap();
        assert!(why().contains("echo y >"), "{}", why());
        fs::write(folder.join("enabled"), "0x0007\n").unwrap();
        assert!(why().contains("mount debugfs"), "{}", why());
        fs::create_dir_all(root.debugfs()).unwrap();
        fs::write(root.debugfs().join("lru_gen"), "").unwrap();
        assert!(why().contains("CONFIG_MIGRATION"), "{}", why());
        fs::create_dir_all(root.sys.join("kernel/mm/numa")).unwrap();
        fs::write(root.sys.join("kernel/mm/numa/demotion_enabled"), "false\n").unwrap();
        let everybody = |way| Offer { reach: Reach::default(), way };
        assert_eq!(offer(&root, &Config::default(), &tiers).unwrap(), everybody(Way::Generations));
        let excluded = Scope { cgroup: Some("/a".to_owned()), exclude: true, ..Scope::default() };
        let config = Config { scope: vec![excluded], ..Config::default() };
        assert!(matches!(offer(&root, &config, &tiers), Err(NotDemoting::Config(Unreachable::Excluded(0)))));
    }

    #[test]
    fn whole_nodes_are_the_second_choice_and_only_where_no_scope_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let tiers = found(&[0, 1], &[&[0], &[1]]);
        let asked = |way, scope| {
            let mut config = Config { scope, ..Config::default() };
            config.demotion.way = way;
            offer(&root, &config, &tiers).map(|offer| offer.way).map_err(|why| why.to_string())
        };
        fs::create_dir_all(root.sys.join("kernel/mm/numa")).unwrap();
        fs::write(root.sys.join("kernel/mm/numa/demotion_enabled"), "false\n").unwrap();
        assert!(asked(DemotionWay::Auto, Vec::new()).unwrap_err().contains("CONFIG_LRU_GEN"));
        assert!(asked(DemotionWay::Node, Vec::new()).unwrap_err().contains("node0/reclaim"));
        fs::create_dir_all(root.sys.join("devices/system/node/node0")).unwrap();
        fs::write(root.sys.join("devices/system/node/node0/reclaim"), "").unwrap();
        assert_eq!(asked(DemotionWay::Auto, Vec::new()), Ok(Way::Node));
        assert_eq!(asked(DemotionWay::Node, Vec::new()), Ok(Way::Node));
        assert!(asked(DemotionWay::Generations, Vec::new()).unwrap_err().contains("CONFIG_LRU_GEN"));
        let scope = vec![Scope { cgroup: Some("/a".to_owned()), ..Scope::default() }];
        assert!(asked(DemotionWay::Auto, scope.clone()).unwrap_err().contains("CONFIG_LRU_GEN"));
        assert!(asked(DemotionWay::Node, scope).unwrap_err().contains("knows no scopes"));
        fs::create_dir_all(root.sys.join("kernel/mm/lru_gen")).unwrap();
        fs::write(root.sys.join("kernel/mm/lru_gen/enabled"), "0x0007\n").unwrap();
        fs::create_dir_all(root.debugfs()).unwrap();
        fs::write(root.debugfs().join("lru_gen"), "").unwrap();
        assert_eq!(asked(DemotionWay::Auto, Vec::new()), Ok(Way::Generations));
        assert_eq!(asked(DemotionWay::Node, Vec::new()), Ok(Way::Node));
    }

    #[test]
    fn demotion_is_enabled_only_for_it() {
        let config = Config::default();
        let set = |way| {
            let kernel = settings(&config, Some(&Offer { reach: Reach::default(), way }));
            (kernel.demotion_enabled, kernel.min_unmapped_ratio, kernel.min_slab_ratio)
        };
        assert_eq!(set(Way::Generations), (Some(true), None, None));
        assert_eq!(set(Way::Node), (Some(true), Some(0), Some(0)), "a node without page cache to spare");
        assert_eq!(settings(&config, None), config.kernel);
    }
}
