//! Whether a configuration can demote on this kernel, and the settings needed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use thermocline_core::config::{Config, DemotionWay, Kernel, Unreachable};
use thermocline_core::demotion::{Reach, reach};
use thermocline_core::units::{NodeId, TierId};

use super::{charged, demotion_enabled, own_cgroup};
use crate::actuator::{lru_gen, node_reclaim};
use crate::damon::{NotDamon, Setup, offer_demotion};
use crate::root::{KernelFileError, Root, exists, read_optional};
use crate::topology::Discovered;

/// The method by which the kernel demotes cold pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By cgroup and by how long pages have been idle.
    Generations,
    /// By how long regions have been idle, with the kdamonds that know it.
    Regions(Box<Setup>),
    /// By the node alone.
    Node,
}

impl Way {
    /// Its name in the configuration.
    pub fn name(&self) -> DemotionWay {
        match self {
            Way::Generations => DemotionWay::Generations,
            Way::Regions(_) => DemotionWay::Regions,
            Way::Node => DemotionWay::Node,
        }
    }

    /// A limitation of the way; `None` for the way without one.
    pub fn caveat(&self) -> Option<&'static str> {
        match self {
            Way::Generations => None,
            Way::Regions(_) => {
                Some("by DAMON's regions, which know idle times and neither cpusets nor memory policies")
            }
            Way::Node => {
                Some("whatever the kernel finds coldest on a node, also where that was accessed lately")
            }
        }
    }
}

/// Whose memory is demoted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whose memory.
    pub reach: Reach,
    /// The way.
    pub way: Way,
}

/// Why nothing is demoted.
#[derive(Debug, thiserror::Error)]
pub enum NotDemoting {
    /// The configuration does not allow it.
    #[error(transparent)]
    Config(#[from] Unreachable),
    /// The kernel does not offer it.
    #[error(transparent)]
    Kernel(#[from] KernelFileError),
    /// The kernel offers it, and somebody has switched it off.
    #[error("reclaim by generations (MGLRU) is switched off: echo y > {}", .0.display())]
    GenerationsOff(PathBuf),
    /// The kernel has it and does not allow its use.
    #[error("{} cannot be written: {error}; {}", path.display(), refusal(error))]
    Closed {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// It was tried and has failed.
    #[error("demotion by {} has failed before", .0)]
    Failed(&'static str),
    /// DAMON is not available for it.
    #[error("cold regions cannot be demoted: {0}")]
    Damon(#[from] NotDamon),
    /// No way can be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoWay(Vec<NotDemoting>),
    /// The way would take memory that is out of scope.
    #[error(
        "{} knows no scopes; remove them, or have generations (MGLRU) asked, where the kernel lets them be", .0
    )]
    Scopes(&'static str),
    /// Scopes are cgroups of v2, and reclaim goes by those of v1.
    #[error(
        "the memory controller is in cgroup v1, so that reclaim does not know the scopes; boot with \
         systemd.unified_cgroup_hierarchy=1"
    )]
    MemoryElsewhere,
    /// There is no slower node.
    #[error("all memory is in one tier, so that there is nowhere to demote to")]
    OneTier,
    /// The kernel would demote to other nodes than intended, or, if it knows no slower node, swap
    /// out and drop.
    #[error(
        "the kernel demotes by its own tiers, and these are not the tiers in use; unset [tiers], or see `thermocline \
         doctor` for how the kernel can be made to see them"
    )]
    OtherTiers,
    /// The kernel would demote to an excluded node.
    #[error("the kernel demotes to {0} too, which tiers.exclude leaves out")]
    Excluded(NodeId),
}

/// Whose memory is demoted on the machine that was found, and how.
///
/// # Errors
/// Why none is.
pub fn offer(root: &Root, config: &Config, found: &Discovered) -> Result<Offer, NotDemoting> {
    offer_but(root, config, found, &[])
}

/// The same, without ways that have failed.
///
/// # Errors
/// Why no memory is demoted.
pub fn offer_but(
    root: &Root,
    config: &Config,
    found: &Discovered,
    failed: &[DemotionWay],
) -> Result<Offer, NotDemoting> {
    let (scope, ids) = own_cgroup::by_cgroup(root, &config.scope);
    let mut reach = reach(&Config { scope, ..config.clone() })?;
    for subtree in &mut reach.only {
        let place = usize::from(subtree.scope.0).saturating_sub(1);
        subtree.scope = ids.get(place).copied().unwrap_or(subtree.scope);
    }
    let way = way(root, config, &reach, found, failed)?;
    let demotion = demotion_enabled(root);
    if !exists(&demotion) {
        let remedy = "boot a kernel of 5.15 or later with CONFIG_MIGRATION";
        return Err(KernelFileError::not_supported("demotion", &demotion, remedy).into());
    }
    if found.topology.tiers_with_memory() < 2 {
        return Err(NotDemoting::OneTier);
    }
    if !same_tiers(found) {
        return Err(NotDemoting::OtherTiers);
    }
    if let Some(node) = excluded_below(found) {
        return Err(NotDemoting::Excluded(node));
    }
    Ok(Offer { reach, way })
}

/// The configured way; with `auto`, the usable one with the strongest guarantees.
fn way(
    root: &Root,
    config: &Config,
    reach: &Reach,
    found: &Discovered,
    failed: &[DemotionWay],
) -> Result<Way, NotDemoting> {
    let asked = config.demotion.way;
    let ways: &[DemotionWay] = match &asked {
        DemotionWay::Auto => &[DemotionWay::Generations, DemotionWay::Regions, DemotionWay::Node],
        one => std::slice::from_ref(one),
    };
    let mut whys = Vec::new();
    for &way in ways {
        let offered = if failed.contains(&way) {
            Err(NotDemoting::Failed(name(way)))
        } else {
            match way {
                DemotionWay::Regions => regions(root, config, reach, found),
                DemotionWay::Node => whole_nodes(root, reach, found).map(|()| Way::Node),
                DemotionWay::Generations | DemotionWay::Auto => {
                    generations(root, reach).map(|()| Way::Generations)
                }
            }
        };
        match offered {
            Ok(way) => return Ok(way),
            Err(why) => whys.push(why),
        }
    }
    Err(NotDemoting::NoWay(whys))
}

/// The name of a way in the configuration.
fn name(way: DemotionWay) -> &'static str {
    match way {
        DemotionWay::Auto => "auto",
        DemotionWay::Generations => "generations",
        DemotionWay::Regions => "regions",
        DemotionWay::Node => "node",
    }
}

/// The remedy if a file cannot be opened for writing.
fn refusal(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => "a kernel that is locked down, as with Secure Boot, keeps debugfs closed",
        _ => "run as root, outside of containers",
    }
}

/// Whether a file of the kernel may be written: an existing file may still be closed. Nothing is
/// written.
fn try_open(path: PathBuf) -> Result<(), NotDemoting> {
    match std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path) {
        Ok(_) => Ok(()),
        Err(error) => Err(NotDemoting::Closed { path, error }),
    }
}

/// Whether the nodes with memory are in the kernel's tiers as they are in ours, and in more than
/// one.
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

/// An excluded node below the kernel's top tier: the kernel may demote to it.
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
        if matches!(offer.way, Way::Node) {
            kernel.min_unmapped_ratio.get_or_insert(0);
            kernel.min_slab_ratio.get_or_insert(0);
        }
    }
    kernel
}

/// Whether this kernel offers generations.
///
/// # Errors
/// What is missing, and what would provide it.
fn generations(root: &Root, reach: &Reach) -> Result<(), NotDemoting> {
    if *reach != Reach::default() && charged::elsewhere(root) {
        return Err(NotDemoting::MemoryElsewhere);
    }
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
    if !exists(&file) {
        let remedy = "mount debugfs: mount -t debugfs none /sys/kernel/debug";
        return Err(KernelFileError::not_supported(what, &file, remedy).into());
    }
    try_open(file)
}

/// Whether DAMON can move regions, and memory of all processes may be demoted.
fn regions(root: &Root, config: &Config, reach: &Reach, found: &Discovered) -> Result<Way, NotDemoting> {
    if *reach != Reach::default() {
        return Err(NotDemoting::Scopes("demotion by DAMON's regions"));
    }
    Ok(Way::Regions(Box::new(offer_demotion(root, config, found)?)))
}

/// Whether the kernel can reclaim a node, and memory of all processes may be demoted.
///
/// # Errors
/// What is missing, and what would provide it.
fn whole_nodes(root: &Root, reach: &Reach, found: &Discovered) -> Result<(), NotDemoting> {
    if *reach != Reach::default() {
        return Err(NotDemoting::Scopes("the kernel's reclaim of a node"));
    }
    let top = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0 && found.topology.is_top(n.id));
    for file in top.map(|node| node_reclaim(root, node.id)) {
        if !exists(&file) {
            let remedy = "boot a kernel of 6.18 or later";
            return Err(KernelFileError::not_supported("reclaim of one node", &file, remedy).into());
        }
        try_open(file)?;
    }
    Ok(())
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

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_way_that_keeps_most_promises_is_chosen_of_those_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let tiers = found(&[0, 1], &[&[0], &[1]]);
        let without = |way, scope, failed: &[DemotionWay]| {
            let mut config = Config { scope, ..Config::default() };
            config.demotion.way = way;
            let offer = offer_but(&root, &config, &tiers, failed);
            offer.map(|offer| offer.way.name()).map_err(|why| why.to_string())
        };
        let asked = |way, scope| without(way, scope, &[]);
        let auto = || asked(DemotionWay::Auto, Vec::new());
        let refusal = |way| asked(way, Vec::new()).unwrap_err();
        write(root.sys.join("kernel/mm/numa/demotion_enabled"), "false\n");
        let zone = |node, start| {
            format!(
                "Node {node}, zone Normal\n  pages free 1\n        spanned 32768\n        present 32768\n        managed 32768\n  \
                 start_pfn: {start}\n"
            )
        };
        write(root.proc.join("zoneinfo"), &(zone(0, 0) + &zone(1, 32768)));
        let why = refusal(DemotionWay::Auto);
        let lacking = ["CONFIG_LRU_GEN", "CONFIG_DAMON", "node0/reclaim"];
        assert!(lacking.iter().all(|what| why.contains(what)), "{why}");

        write(root.sys.join("devices/system/node/node0/reclaim"), "");
        assert_eq!(auto(), Ok(DemotionWay::Node));
        assert!(refusal(DemotionWay::Generations).contains("CONFIG_LRU_GEN"));
        let scope = vec![Scope { cgroup: Some("/a".to_owned()), ..Scope::default() }];
        assert!(asked(DemotionWay::Auto, scope.clone()).unwrap_err().contains("CONFIG_LRU_GEN"));
        assert!(asked(DemotionWay::Node, scope.clone()).unwrap_err().contains("knows no scopes"));

        write(root.sys.join("kernel/mm/damon/admin/kdamonds/nr_kdamonds"), "0\n");
        assert_eq!(auto(), Ok(DemotionWay::Regions));
        assert!(asked(DemotionWay::Regions, scope.clone()).unwrap_err().contains("knows no scopes"));
        let failed = [DemotionWay::Regions];
        assert_eq!(without(DemotionWay::Auto, Vec::new(), &failed), Ok(DemotionWay::Node));

        write(root.sys.join("kernel/mm/lru_gen/enabled"), "0x0007\n");
        write(root.debugfs().join("lru_gen"), "");
        assert_eq!(auto(), Ok(DemotionWay::Generations));
        assert_eq!(asked(DemotionWay::Auto, scope), Ok(DemotionWay::Generations));
        assert_eq!(asked(DemotionWay::Node, Vec::new()), Ok(DemotionWay::Node));
        assert_eq!(asked(DemotionWay::Regions, Vec::new()), Ok(DemotionWay::Regions));
        // Reclaim uses paths of version 1 there, which are unrelated to scopes.
        write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write(root.sys.join("fs/cgroup/cgroup.controllers"), "cpuset\n");
        let named = vec![Scope { cgroup: Some("/a".to_owned()), ..Scope::default() }];
        assert!(asked(DemotionWay::Auto, named.clone()).unwrap_err().contains("cgroup v1"));
        assert_eq!(auto(), Ok(DemotionWay::Generations));
        write(root.sys.join("fs/cgroup/cgroup.controllers"), "cpuset memory\n");
        assert_eq!(asked(DemotionWay::Auto, named), Ok(DemotionWay::Generations));
        let failed = [DemotionWay::Generations, DemotionWay::Regions];
        assert_eq!(without(DemotionWay::Auto, Vec::new(), &failed), Ok(DemotionWay::Node));
        // A file that exists and cannot be opened for writing, as in a locked-down kernel.
        fs::remove_file(root.debugfs().join("lru_gen")).unwrap();
        fs::create_dir(root.debugfs().join("lru_gen")).unwrap();
        assert_eq!(auto(), Ok(DemotionWay::Regions));
        assert!(refusal(DemotionWay::Generations).contains("cannot be written"));
    }

    #[test]
    fn lockdown_is_named_where_the_kernel_answers_so() {
        let closed = |errno| {
            let error = std::io::Error::from_raw_os_error(errno);
            NotDemoting::Closed { path: PathBuf::from("/lru_gen"), error }.to_string()
        };
        assert!(closed(libc::EPERM).contains("locked down"));
        assert!(!closed(libc::EACCES).contains("locked down"));
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
