//! Nodes and tiers: whether there is something to move between, and memory that is not in use yet.

use thermocline_core::units::NodeId;

use crate::doctor::cxl;
use crate::doctor::kernel::KernelInfo;
use crate::doctor::tiers;
use crate::finding::{Finding, Ground, Kind, Look, Severity};
use crate::lists::nodes_text;
use crate::mover::closed;
use crate::root::{exists, link_target};
use crate::topology::{DiscoverError, Discovered, TierOrigin};
use crate::zoneinfo::{Zone, free_space_promotion};

/// Findings about the topology, or about its absence. `is_watched`: no page is to be moved, and a
/// source sees memory of all tiers.
pub(super) fn topology(
    look: &mut Look<'_>,
    kernel: &KernelInfo,
    found: &Result<Discovered, DiscoverError>,
    is_watched: bool,
) -> Vec<Finding> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![Finding::new(Kind::TopologyUnreadable, error.to_string())],
    };
    let mut findings = unused_memory(look);
    let nothing_unused = findings.is_empty();
    let with_memory = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0).count();
    let mut alone = if with_memory < 2 {
        Some(single_node(kernel, nothing_unused))
    } else {
        (found.topology.tiers_with_memory() < 2).then(|| one_tier(look, kernel, found))
    };
    if is_watched {
        alone = alone.map(|finding| finding.with_severity(Severity::Note));
    }
    let damon = exists(&look.root.sys.join("kernel/mm/damon/admin"));
    findings.extend(alone.map(|finding| {
        finding.run(
            Ground::seen(damon && nothing_unused && !is_watched),
            "or record how its memory is used, and ask how much of it could be slower (`thermocline plan`)",
            "thermocline record --for 10m -o recording",
        )
    }));
    findings.extend(mapped_against_the_kernel(found));
    findings.extend(tiers::contradictions(found));
    findings.extend(tiers::page_size(found));
    findings.extend(tiers::excluded(found));
    findings
}

/// Nodes whose free memory lets the kernel promote past every limit, in the mode that will be set.
pub(super) fn free_space(found: &Discovered, zones: &[Zone], mode: Option<u32>) -> Vec<Finding> {
    if mode.is_none_or(|mode| mode & 2 == 0) {
        return Vec::new();
    }
    let below =
        found.topology.nodes.iter().any(|n| n.capacity_pages > 0 && !found.kernel_top.contains(&n.id));
    let open = |node: &&NodeId| {
        let cpus = found.topology.node(**node).is_some_and(|n| !n.cpus.is_empty());
        cpus && free_space_promotion(zones, **node, found.topology.page_bytes)
    };
    found
        .kernel_top
        .iter()
        .filter(|_| below)
        .filter(open)
        .map(|node| {
            let cause = format!(
                "free-space promotion active on {node}: it has more free memory than its promo watermark + max(1 GiB, \
                 1/16 of it), so that in tiering mode the kernel itself promotes every page there at its first hint \
                 fault, whatever rate limit, rule or scope says; it ends when the node fills, and until then such moves \
                 are counted as the kernel's"
            );
            Finding::new(Kind::MemoryFreeSpacePromotion, cause).on(&[*node])
        })
        .collect()
}

/// Nodes that the cpuset of this process leaves out; `run` is assumed to start in the same cpuset
/// as the doctor.
pub(super) fn closed(look: &mut Look<'_>, found: &Discovered) -> Option<Finding> {
    let closed = closed::closed(look.root, &found.topology);
    let closed = look.keep(closed)?;
    if closed.nodes.is_empty() {
        return None;
    }
    let nodes = nodes_text(&closed.nodes);
    let (severity, so) = match closed.top {
        true => (Severity::Blocker, "that is the whole top tier, so that run would refuse to start"),
        false => (Severity::Problem, "what should move there stays where it is, as if there were no room"),
    };
    let cause = format!("this process runs in a cpuset that leaves out {nodes}: {so}");
    Some(
        Finding::new(Kind::TopologyClosed, cause)
            .with_severity(severity)
            .fix(Ground::OURS, "run thermocline in a cgroup whose cpuset.mems has all nodes"),
    )
}

fn single_node(kernel: &KernelInfo, nothing_unused: bool) -> Finding {
    let cause = "this machine has one node with memory: there is no other kind of memory to move pages to, and nothing \
                 to tier";
    let finding = Finding::new(Kind::TopologySingleNode, cause);
    finding
        .fix(
            Ground::seen(kernel.booted_with("numa=off")),
            "boot without numa=off, which hides all nodes but one",
        )
        .fix(
            Ground::seen(nothing_unused),
            "add memory of another kind (CXL, HBM, a far socket) that appears as a node of its own",
        )
        .run(Ground::seen(nothing_unused), "or see it work on a tiered machine in the lab", "make demo")
}

fn one_tier(look: &mut Look<'_>, kernel: &KernelInfo, found: &Discovered) -> Finding {
    let cause = match found.origin {
        TierOrigin::Kernel => {
            "the kernel has put all nodes into one memory tier: it scans none of them in tiering mode, and nothing is \
             ever promoted"
        }
        TierOrigin::Assumed => "this kernel lists no memory tiers, so all nodes count as one",
        TierOrigin::TierMap => "tiers.nodes puts all nodes into one tier",
    };
    let mut finding = Finding::new(Kind::TopologyOneTier, cause);
    if found.origin == TierOrigin::TierMap {
        return finding.fix(
            Ground::OURS,
            "give each kind of memory a list of its own, fastest first, as in nodes = [[0, 1], [2]]",
        );
    }
    let tables = look.root.sys.join("firmware/acpi/tables");
    let acpi = exists(&tables);
    if kernel.is_older_than(6, 7) {
        finding = finding
            .fix(
                Ground::seen(acpi),
                "boot Linux 6.7 or later, which derives tiers from the firmware's HMAT and CDAT tables",
            )
            .fix(
                Ground::seen(exists(&look.root.sys.join("bus/dax"))),
                "or have slow memory brought by the driver kmem, which puts it into a lower tier on this kernel too: \
                 daxctl reconfigure-device --mode=system-ram, for memory that is a dax device (CXL, or what the \
                 firmware marks as for a specific purpose)",
            );
    } else {
        finding = finding.fix(
            Ground::seen(acpi && !exists(&tables.join("HMAT"))),
            "the firmware has no HMAT table, which tells the kernel how fast each memory is: update it or switch HMAT \
             on in its setup (a QEMU guest: -machine hmat=on with -numa hmat-lb for each pair of nodes)",
        );
    }
    match tiers::suggested_map(&found.topology) {
        Ok(Some(map)) => finding.fix(Ground::OURS, format!(
            "or say which nodes are slow in the configuration: by what the firmware tells of latency and bandwidth, \
             [tiers] nodes = {map}; that decides where pages are placed, but the kernel still scans none of these \
             nodes in tiering mode: evidence has to come from another source, or from kernel.numa_balancing = 3, with \
             which the kernel moves pages too"
        )),
        Ok(None) => finding,
        Err(unknown) => finding.fix(Ground::OURS, format!(
            "or say which nodes are slow with [tiers] nodes in the configuration, once that is measured: it cannot be \
             told here, since the firmware does not tell how fast the memory is of {}",
            nodes_text(&unknown)
        )),
    }
}

/// Nodes that the tier map puts below the top and that the kernel counts as top tier.
fn mapped_against_the_kernel(found: &Discovered) -> Option<Finding> {
    let top = found.topology.top_tier();
    let unseen: Vec<u32> = found
        .topology
        .nodes
        .iter()
        .filter(|n| n.capacity_pages > 0 && Some(n.tier) != top && found.kernel_top.contains(&n.id))
        .map(|n| u32::from(n.id.0))
        .collect();
    if unseen.is_empty() {
        return None;
    }
    let cause = format!(
        "below the top tier here, but top tier to the kernel: {}; it does not scan them in tiering mode, and their pages \
         give no hint faults",
        nodes_text(&unseen)
    );
    Some(
        Finding::new(Kind::TopologyNotScanned, cause).fix(
            Ground::OURS,
            "use another source for them, or set kernel.numa_balancing = 3 in the configuration: the kernel then scans \
             all nodes, and moves pages towards the accessing CPU itself",
        ),
    )
}

/// Memory that is present and not used as memory: devices in devdax mode, CXL memory without a
/// region, offline blocks.
fn unused_memory(look: &mut Look<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in look.list(&look.root.sys.join("bus/dax/devices"), "dax") {
        let name = device.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let driver = link_target(&device.join("driver"));
        if driver.as_deref().and_then(|d| d.file_name()).is_some_and(|d| d == "kmem") {
            continue;
        }
        let mib = look.number::<u64>(&device.join("size")).unwrap_or(0) >> 20;
        let node = look.word(&device.join("target_node")).unwrap_or_else(|| "unknown".to_owned());
        let cause =
            format!("{name} ({mib} MiB, node {node}) is a dax device and not part of the machine's memory");
        // A device without a node cannot become one's memory.
        let has_node = node.parse::<u16>().is_ok() && mib > 0;
        findings.push(Finding::new(Kind::MemoryDevdax, cause).about(&name).run(
            Ground::seen(has_node),
            "make it memory, if nothing uses the device",
            format!("daxctl reconfigure-device --mode=system-ram {name}"),
        ));
    }
    findings.extend(cxl::unused(look));
    findings.extend(offline_blocks(look));
    findings
}

fn offline_blocks(look: &mut Look<'_>) -> Option<Finding> {
    let folder = look.root.sys.join("devices/system/memory");
    let size = look.word(&folder.join("block_size_bytes"));
    let mib = size.and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or(0) >> 20;
    let blocks: Vec<_> = look
        .list(&folder, "memory")
        .into_iter()
        .filter(|block| look.word(&block.join("state")).as_deref() == Some("offline"))
        .collect();
    let first = blocks.first()?.join("state");
    let count = blocks.len() as u64;
    let cause = format!("{count} memory blocks ({} MiB) are offline", count * mib);
    let movable =
        look.text(&first.with_file_name("valid_zones")).is_some_and(|zones| zones.contains("Movable"));
    Some(Finding::new(Kind::MemoryOffline, cause).run(
        Ground::seen(movable),
        "bring each online, movable, if it is meant to be used",
        format!("echo online_movable > {}", first.display()),
    ))
}
