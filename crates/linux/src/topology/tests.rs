//! Topologies from folders that look like sysfs.

use std::fs;

use super::*;

/// A folder that looks like a machine; files are written by path.
struct Machine {
    _dir: tempfile::TempDir,
    root: Root,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        Machine { _dir: dir, root }
    }

    /// Three nodes as the lab boots them: two with a CPU, one of memory alone.
    fn three_nodes() -> Machine {
        let m = Machine::new();
        m.sys("devices/system/node/online", "0-2\n");
        m.sys("devices/system/node/possible", "0-2\n");
        for (node, cpus, distance, latency) in
            [(0, "0\n", "10 32 60\n", 100), (1, "1\n", "32 10 50\n", 100), (2, "\n", "60 50 10\n", 350)]
        {
            m.sys(&format!("devices/system/node/node{node}/cpulist"), cpus);
            m.sys(&format!("devices/system/node/node{node}/distance"), distance);
            let meminfo = format!("Node {node} MemTotal:        1048576 kB\nNode {node} MemFree: 1 kB\n");
            m.sys(&format!("devices/system/node/node{node}/meminfo"), &meminfo);
            let initiators = format!("devices/system/node/node{node}/access0/initiators");
            m.sys(&format!("{initiators}/read_latency"), &format!("{latency}\n"));
            m.sys(&format!("{initiators}/read_bandwidth"), "0\n");
            m.sys(&format!("{initiators}/node0/uevent"), "");
        }
        m
    }

    fn tiers(self, tiers: &[(u32, &str)]) -> Machine {
        for (number, nodes) in tiers {
            self.sys(&format!("devices/virtual/memory_tiering/memory_tier{number}/nodelist"), nodes);
        }
        self
    }

    fn sys(&self, path: &str, text: &str) {
        let path = self.root.sys.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn discover(&self, map: &[&[u16]]) -> Result<Discovered, DiscoverError> {
        discover(
            &self.root,
            &TierMap { nodes: map.iter().map(|t| t.to_vec()).collect(), ..TierMap::default() },
        )
    }
}

fn tier_numbers(found: &Discovered) -> Vec<u8> {
    found.topology.nodes.iter().map(|n| n.tier.0).collect()
}

#[test]
fn kernel_tiers_are_ordered_by_number_not_by_name() {
    let m = Machine::three_nodes().tiers(&[(105, "2\n"), (4, "0-1\n"), (22, "\n")]);
    m.sys("devices/virtual/memory_tiering/uevent", "");
    let found = m.discover(&[]).unwrap();
    assert_eq!(found.origin, TierOrigin::Kernel);
    assert_eq!(tier_numbers(&found), [0, 0, 1]);
    assert_eq!(found.kernel_top, [NodeId(0), NodeId(1)]);
    assert_eq!(found.kernel_tiers.len(), 2, "a tier without nodes is none");
    let cxl = found.topology.node(NodeId(2)).unwrap();
    assert_eq!(cxl.cpus, [0u32; 0]);
    assert_eq!(cxl.capacity_pages, 262_144);
    assert_eq!(cxl.read_latency_ns, Some(350));
    assert_eq!(cxl.read_bandwidth_mbps, None, "0 means that the firmware does not tell");
    assert_eq!(cxl.distances, [60, 50, 10]);
}

#[test]
fn the_view_of_a_device_is_not_taken_for_the_cpus() {
    let m = Machine::three_nodes();
    fs::remove_dir_all(m.root.sys.join("devices/system/node/node2/access0")).unwrap();
    let figures = |access: &str, of: Option<&str>, ns: &str| {
        let initiators = format!("devices/system/node/node2/{access}/initiators");
        m.sys(&format!("{initiators}/read_latency"), ns);
        m.sys(&format!("{initiators}/read_bandwidth"), "419431\n");
        of.iter().for_each(|node| m.sys(&format!("{initiators}/{node}/uevent"), ""));
        let node = m.discover(&[]).unwrap().topology.nodes[2].clone();
        (node.read_latency_ns, node.read_bandwidth_mbps)
    };
    assert_eq!(figures("access0", None, "8\n"), (None, None), "nobody says whose view it is");
    assert_eq!(figures("access0", Some("node2"), "8\n"), (None, None), "the node has no CPUs");
    assert_eq!(figures("access0", Some("node1"), "9\n"), (Some(9), Some(419_431)), "node 1 has a CPU");
    assert_eq!(figures("access1", Some("node2"), "7\n"), (Some(9), Some(419_431)), "a class of its own");
    fs::remove_dir_all(m.root.sys.join("devices/system/node/node2/access1/initiators/node2")).unwrap();
    assert_eq!(figures("access1", None, "300\n").0, Some(300), "access1 is of CPUs by definition");
}

#[test]
fn nodes_without_ordinary_memory_are_not_used() {
    let m = Machine::three_nodes().tiers(&[(4, "0-1\n"), (22, "2\n")]);
    assert_eq!(m.discover(&[]).unwrap().topology.nodes.len(), 3);
    m.sys("devices/system/node/has_memory", "0-1\n");
    let found = m.discover(&[]).unwrap();
    let ids: Vec<u16> = found.topology.nodes.iter().map(|n| n.id.0).collect();
    assert_eq!((ids, found.kernel_top.len()), (vec![0, 1], 2));
}

#[test]
fn a_node_that_is_left_out_is_neither_source_nor_target_nor_counted() {
    let m = Machine::three_nodes().tiers(&[(4, "0-1\n"), (22, "2\n")]);
    let without = |exclude: &[u16], nodes: &[&[u16]]| {
        let nodes = nodes.iter().map(|t| t.to_vec()).collect();
        discover(&m.root, &TierMap { nodes, exclude: exclude.to_vec() })
    };
    let found = without(&[1], &[]).unwrap();
    let topology = &found.topology;
    assert_eq!(topology.node(NodeId(1)).unwrap().capacity_pages, 0, "it is known by its CPU");
    assert!(!topology.is_top(NodeId(1)) && !topology.is_lower(NodeId(1)));
    assert_eq!(topology.promotion_target(NodeId(2), Some(NodeId(1))), Some(NodeId(0)));
    assert_eq!(topology.promotion_targets(NodeId(2), NodeId(1)), [NodeId(0)]);
    assert!(topology.demotion_targets(NodeId(1)).is_empty());
    assert_eq!((found.excluded, found.kernel_top), (vec![NodeId(1)], vec![NodeId(0)]));

    let found = without(&[2], &[&[0, 1]]).unwrap();
    assert_eq!(found.topology.nodes.len(), 2, "memory alone is left out as if it were not there");
    assert!(!found.topology.is_lower(NodeId(2)));
    assert!(found.topology.demotion_targets(NodeId(0)).is_empty());
    assert_eq!(crate::demoter::excluded_below(&found), Some(NodeId(2)), "the kernel would demote there");
    assert_eq!(crate::demoter::excluded_below(&without(&[1], &[]).unwrap()), None);

    let refused = |exclude: &[u16], nodes: &[&[u16]]| without(exclude, nodes).unwrap_err().to_string();
    assert!(refused(&[7], &[]).starts_with("tiers.exclude names node 7, which this machine does not have"));
    assert!(refused(&[2], &[&[0, 1], &[2]]).starts_with("node 2 is in tiers.nodes and in tiers.exclude"));
}

#[test]
fn more_than_seven_nodes_with_gaps_in_their_numbers() {
    let m = Machine::new();
    let ids = [0u16, 2, 3, 5, 8, 13, 21, 34, 130];
    let online: Vec<String> = ids.iter().map(ToString::to_string).collect();
    m.sys("devices/system/node/online", &online.join(","));
    m.sys("devices/system/node/possible", "0-255\n");
    for (at, id) in ids.iter().enumerate() {
        let node = format!("devices/system/node/node{id}");
        m.sys(&format!("{node}/cpulist"), if at < 3 { ["0-1", "2-3", "4-5"][at] } else { "" });
        // Node 2 has CPUs and no memory; node 8 has nothing at all.
        let kib = if matches!(id, 2 | 8) { 0 } else { 1 << 20 };
        m.sys(&format!("{node}/meminfo"), &format!("Node {id} MemTotal: {kib} kB\n"));
        let row: Vec<&str> = (0..ids.len()).map(|to| if to == at { "10" } else { "40" }).collect();
        m.sys(&format!("{node}/distance"), &row.join(" "));
    }
    let m = m.tiers(&[(4, "0,3"), (22, "5,13,21,34,130")]);
    let topology = m.discover(&[]).unwrap().topology;
    assert_eq!(topology.nodes.iter().map(|n| n.id.0).collect::<Vec<_>>(), [0, 2, 3, 5, 13, 21, 34, 130]);
    assert_eq!(topology.promotion_targets(NodeId(130), NodeId(3)), [NodeId(3), NodeId(0)]);
    assert_eq!(
        topology.promotion_target(NodeId(130), Some(NodeId(2))),
        Some(NodeId(0)),
        "node 2 has no memory"
    );
    assert_eq!(topology.demotion_targets(NodeId(0)).len(), 5);
    assert_eq!(cpu_nodes(&topology)[5], NodeId(3));
}

#[test]
fn memory_that_comes_online_is_in_the_capacity() {
    let m = Machine::three_nodes();
    let mut watcher = Watcher::new(&m.root, &TierMap::default(), &[]).unwrap();
    m.sys("devices/system/node/node2/meminfo", "Node 2 MemTotal: 2097152 kB\n");
    assert!(watcher.look(&[]).unwrap().is_empty(), "a balloon that breathes is no news");
    assert_eq!(watcher.discovered().topology.nodes[2].capacity_pages, 524_288);
}

#[test]
fn capacities_are_counted_in_the_machines_pages() {
    use thermocline_core::units::PageSize;
    for size in PageSize::ALL {
        let m = Machine::three_nodes();
        let pages = size.pages_in_kib(1 << 20);
        let zone =
            |node| format!("Node {node}, zone Normal\n  pages free 1\n present {pages}\n managed {pages}\n");
        fs::create_dir_all(&m.root.proc).unwrap();
        fs::write(m.root.proc.join("zoneinfo"), (0..3).map(zone).collect::<String>()).unwrap();
        let found = m.discover(&[]).unwrap();
        assert_eq!((found.topology.page_bytes, found.page_size_known), (size, true));
        assert_eq!(found.topology.nodes[2].capacity_pages, pages);
    }
    assert!(!Machine::three_nodes().discover(&[]).unwrap().page_size_known);
}

#[test]
fn cpu_initiators_are_preferred_over_others() {
    let m = Machine::three_nodes();
    m.sys("devices/system/node/node2/access1/initiators/read_latency", "300\n");
    assert_eq!(m.discover(&[]).unwrap().topology.nodes[2].read_latency_ns, Some(300));
}

#[test]
fn without_kernel_tiers_all_nodes_are_one() {
    let found = Machine::three_nodes().discover(&[]).unwrap();
    assert_eq!(found.origin, TierOrigin::Assumed);
    assert_eq!(tier_numbers(&found), [0, 0, 0]);
    assert_eq!(found.kernel_top.len(), 3);
}

#[test]
fn memory_faster_than_dram_is_top_tier_to_the_kernel() {
    let m = Machine::three_nodes().tiers(&[(2, "2\n"), (4, "0-1\n")]);
    let found = m.discover(&[]).unwrap();
    assert_eq!(tier_numbers(&found), [1, 1, 0]);
    assert_eq!(found.kernel_top.len(), 3, "the kernel scans none of them");
}

#[test]
fn the_tier_map_overrides_placement_but_not_what_the_kernel_scans() {
    let m = Machine::three_nodes().tiers(&[(4, "0-2\n")]);
    let found = m.discover(&[&[0], &[], &[1], &[2]]).unwrap();
    assert_eq!(found.origin, TierOrigin::TierMap);
    assert_eq!(tier_numbers(&found), [0, 1, 2]);
    assert_eq!(found.kernel_top.len(), 3);
}

#[test]
fn a_tier_map_that_does_not_fit_is_refused_with_the_node() {
    let m = Machine::three_nodes();
    for (map, expect) in [
        (
            vec![&[0u16, 1][..], &[7]],
            "tiers.nodes names node 7, which this machine does not have; it has nodes 0-2",
        ),
        (vec![&[0, 1], &[2, 1]], "tiers.nodes names node 1 twice"),
        (vec![&[0], &[2]], "tiers.nodes does not name node 1, which has memory"),
    ] {
        let error = m.discover(&map).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
}

#[test]
fn the_tier_map_may_name_a_node_that_can_still_come() {
    let m = Machine::three_nodes();
    m.sys("devices/system/node/possible", "0-3\n");
    assert_eq!(tier_numbers(&m.discover(&[&[0, 1], &[2, 3]]).unwrap()), [0, 0, 1]);
}

#[test]
fn a_kernel_without_numa_has_one_node() {
    let m = Machine::new();
    m.sys("devices/system/cpu/online", "0-3\n");
    fs::create_dir_all(&m.root.proc).unwrap();
    fs::write(m.root.proc.join("meminfo"), "MemTotal:        8192 kB\n").unwrap();
    let found = m.discover(&[]).unwrap();
    assert_eq!(found.topology.nodes[0].cpus, [0, 1, 2, 3]);
    assert_eq!(found.topology.nodes[0].capacity_pages, 2048);
    assert_eq!(found.topology.nodes[0].distances, [10]);
}

#[test]
fn nodes_with_neither_memory_nor_cpus_are_left_out_with_their_distances() {
    let m = Machine::three_nodes();
    m.sys("devices/system/node/node1/cpulist", "\n");
    m.sys("devices/system/node/node1/meminfo", "Node 1 MemTotal: 0 kB\n");
    let found = m.discover(&[]).unwrap();
    assert_eq!(found.topology.nodes.len(), 2);
    assert_eq!(found.topology.distance(NodeId(0), NodeId(2)), Some(60));
}

#[test]
fn errors_carry_the_file() {
    let m = Machine::three_nodes();
    m.sys("devices/system/node/online", "zero\n");
    let error = m.discover(&[]).unwrap_err().to_string();
    assert!(error.ends_with("devices/system/node/online: \"zero\" is no list of nodes"), "{error}");
    let empty = Machine::new().discover(&[]).unwrap_err();
    assert!(matches!(empty, DiscoverError::Topology { cause: TopologyError::Empty, .. }));
}

fn zone(node: u16, start: u64, present: u64) -> crate::zoneinfo::Zone {
    crate::zoneinfo::Zone {
        node: NodeId(node),
        start_pfn: Some(start),
        spanned: present,
        present,
        managed: present,
        ..Default::default()
    }
}

fn range(start: u64, end: u64, node: u16) -> PfnRange {
    use thermocline_core::units::Pfn;
    PfnRange { start: Pfn(start), end: Pfn(end), node: NodeId(node) }
}

#[test]
fn hotplug_shows_as_ranges_that_come_and_go() {
    let m = Machine::three_nodes();
    m.sys("devices/system/memory/block_size_bytes", "8000000\n");
    for (block, node) in [(0, 0), (1, 1), (4, 2), (5, 2)] {
        m.sys(&format!("devices/system/node/node{node}/memory{block}/state"), "");
        let state = if block == 5 { "offline\n" } else { "online\n" };
        m.sys(&format!("devices/system/memory/memory{block}/state"), state);
    }
    let pages = 0x800_0000 >> 12;
    let before = [zone(0, 0, pages), zone(1, pages, pages), zone(2, 4 * pages, pages)];
    let mut watcher = Watcher::new(&m.root, &TierMap::default(), &before).unwrap();
    assert_eq!(watcher.pfns().ranges()[2], range(4 * pages, 5 * pages, 2));
    assert!(watcher.look(&before).unwrap().is_empty());

    m.sys("devices/system/memory/memory5/state", "online\n");
    m.sys("devices/system/memory/memory1/state", "offline\n");
    let after = [zone(0, 0, pages), zone(2, 4 * pages, 2 * pages)];
    let change = watcher.look(&after).unwrap();
    assert_eq!(change.online, [range(5 * pages, 6 * pages, 2)]);
    assert_eq!(change.offline, [range(pages, 2 * pages, 1)]);
    assert!(!change.topology);

    m.sys("devices/system/node/node1/cpulist", "\n");
    assert!(watcher.look(&after).unwrap().topology);
}

#[test]
fn a_block_of_two_nodes_is_split_where_their_zones_meet() {
    let m = Machine::three_nodes();
    m.sys("devices/system/memory/block_size_bytes", "8000000\n");
    for node in [0, 1] {
        m.sys(&format!("devices/system/node/node{node}/memory0/state"), "");
    }
    let map = PfnMap::read(&m.root, &[zone(0, 0, 100), zone(1, 100, 50)]).unwrap();
    assert_eq!(map.ranges(), [range(0, 100, 0), range(100, 150, 1)]);
}

#[test]
fn without_memory_blocks_zone_spans_tell() {
    let m = Machine::three_nodes();
    let map = PfnMap::read(&m.root, &[zone(0, 1, 99), zone(1, 100, 50)]).unwrap();
    assert_eq!(map.ranges(), [range(1, 100, 0), range(100, 150, 1)]);
}
