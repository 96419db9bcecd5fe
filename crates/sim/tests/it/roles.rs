//! Presets name nodes by what they are for, and run on whatever machine the doctor has described.

use thermocline_core::units::Nanos;
use thermocline_sim::machine::{Doctor, MachineSpec, NODES_MAX};
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::{PRESETS, Setup};

/// A preset's processes: the node that each runs on, and those that its memory comes from.
type Nodes = (&'static str, &'static [(u16, &'static [u16])]);

/// On its own machine, by the numbers that the kernel has there.
const AT_HOME: [Nodes; 28] = [
    ("alternating-8g", &[(0, &[0, 1])]),
    ("btree", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("chunks-192g", &[(1, &[1, 2])]),
    ("chunks-small", &[(0, &[0, 1])]),
    ("drifting-10g", &[(0, &[0, 1])]),
    ("graph500", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("guest-ram", &[(0, &[1])]),
    ("hashjoin", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("hotcold", &[(0, &[0]), (0, &[1, 0])]),
    ("hotspot-05g", &[(0, &[0, 1])]),
    ("lab-hotcold", &[(0, &[0]), (0, &[0, 1])]),
    ("lab-redis", &[(0, &[0]), (0, &[0, 1])]),
    ("mysql-oltp", &[(0, &[0, 1])]),
    ("nas-bt", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("nas-cg", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("nas-ft", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("nas-mg", &[(0, &[0, 1, 2]), (1, &[0, 1, 2])]),
    ("overcommit-160g", &[(1, &[1, 2])]),
    ("promote-8g", &[(0, &[2])]),
    ("redis", &[(0, &[0]), (0, &[1, 0])]),
    ("redis-memtier", &[(1, &[1, 2])]),
    ("redis-ycsb-latest", &[(0, &[0, 2]), (0, &[0, 2]), (0, &[0, 2])]),
    ("redis-ycsb-zipfian", &[(0, &[0, 2]), (0, &[0, 2]), (0, &[0, 2])]),
    ("remote-8g", &[(0, &[2])]),
    ("slow-beside-fast", &[(0, &[0, 1]), (0, &[0, 1])]),
    ("stream-beside-store", &[(0, &[0, 1]), (0, &[0, 1])]),
    ("uniform-12g", &[(0, &[0, 1])]),
    ("zipf-8g", &[(0, &[0, 1])]),
];

/// Machines of the doctor: nodes with CPUs and nodes without, 1 TiB each.
const MACHINES: [(&[u16], &[u16]); 7] = [
    (&[4, 5, 6, 7], &[9]),
    (&[0], &[2, 3, 4, 5]),
    (&[0], &[2]),
    (&[0, 1], &[2]),
    (&[0, 1], &[]),
    (&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11]),
    (&[0, 1, 2, 3], &upwards::<{ NODES_MAX - 4 }>(4)),
];

/// So many numbers from one on.
const fn upwards<const N: usize>(first: u16) -> [u16; N] {
    let mut numbers = [first; N];
    let mut i = 1;
    while i < N {
        numbers[i] = numbers[i - 1] + 1;
        i += 1;
    }
    numbers
}

fn nodes(setup: &Setup) -> Vec<(u16, Vec<u16>)> {
    let id = |node: Option<u8>| setup.machine.nodes[usize::from(node.expect("a node"))].id.0;
    let of = |process: &thermocline_sim::workload::ProcessSpec| {
        let places = process.place.iter().map(|p| id(p.node.on(&setup.machine))).collect();
        (id(process.node.on(&setup.machine)), places)
    };
    setup.scenario.process.iter().map(of).collect()
}

/// What the doctor says of such a machine.
fn machine((with_cpus, without): (&[u16], &[u16])) -> MachineSpec {
    let all = || with_cpus.iter().map(|n| (*n, 0)).chain(without.iter().map(|n| (*n, 1)));
    let node = |(id, tier): (u16, u8)| {
        let distances: Vec<u8> =
            all().map(|(other, t)| if other == id { 10 } else { 20 + 30 * (t | tier) }).collect();
        let cpus: Vec<u32> =
            if tier == 0 { (0..64).map(|c| 64 * u32::from(id) + c).collect() } else { vec![] };
        format!(
            r#"{{ "id": {id}, "tier": {tier}, "cpus": {cpus:?}, "capacity_pages": 268435456,
                "read_latency_ns": null, "read_bandwidth_mbps": null, "distances": {distances:?} }}"#
        )
    };
    let nodes: Vec<String> = all().map(node).collect();
    let report = format!(
        r#"{{ "kernel": {{ "hz": 250 }}, "nodes": [ {{ "watermarks": {{ "min_pages": 5000 }} }} ],
            "topology": {{ "topology": {{ "page_bytes": 4096, "nodes": [ {} ] }} }} }}"#,
        nodes.join(", ")
    );
    serde_json::from_str::<Doctor>(&report).expect("a report").machine().expect("it has nodes")
}

fn on(machine: &MachineSpec, name: &str, changes: &[String]) -> Result<Setup, String> {
    let text = Setup::text(name).expect("a preset");
    Setup::parse_on(name, text, &|_| Ok(machine.clone()), changes).map_err(|e| e.to_string())
}

#[test]
fn at_home_presets_are_on_the_nodes_that_were_published() {
    assert_eq!(AT_HOME.len(), PRESETS.len());
    for (name, expected) in AT_HOME {
        let setup = Setup::preset(name, &[]).expect("a preset");
        let expected: Vec<(u16, Vec<u16>)> = expected.iter().map(|(cpu, p)| (*cpu, p.to_vec())).collect();
        assert_eq!(nodes(&setup), expected, "{name}");
    }
}

#[test]
fn every_preset_runs_on_every_machine_with_its_memory_where_it_is_meant_to_be() {
    for (with_cpus, without) in MACHINES {
        let spec = machine((with_cpus, without));
        for (name, at_home) in AT_HOME {
            let home = Setup::preset(name, &[]).expect("a preset");
            let setup = match on(&spec, name, &[]) {
                Ok(setup) => setup,
                Err(error) => {
                    assert!(without.is_empty(), "{name} on {with_cpus:?} and {without:?}: {error}");
                    assert!(error.contains("has one tier") && error.contains("needs two"), "{name}: {error}");
                    continue;
                }
            };
            let is_top =
                |setup: &Setup, id: u16| setup.machine.is_top(setup.machine.index(id).expect("a node"));
            for ((cpu, places), (_, places_at_home)) in nodes(&setup).iter().zip(at_home) {
                assert!(with_cpus.contains(cpu), "{name}: {cpu}");
                for (place, place_at_home) in places.iter().zip(*places_at_home) {
                    let tops = (is_top(&setup, *place), is_top(&home, *place_at_home));
                    assert_eq!(tops.0, tops.1, "{name} on {with_cpus:?} and {without:?}: {place}");
                }
            }
        }
    }
}

#[test]
fn what_runs_on_other_machines_has_the_same_course_as_at_home() {
    for (with_cpus, without) in MACHINES.into_iter().filter(|(_, without)| !without.is_empty()) {
        let spec = machine((with_cpus, without));
        for (name, mode) in [
            ("hotcold", ModeName::Event),
            ("lab-hotcold", ModeName::Event),
            ("lab-hotcold", ModeName::Exact),
            ("lab-redis", ModeName::Event),
            ("redis", ModeName::Event),
        ] {
            let mut setup = on(&spec, name, &[]).expect("it fits");
            setup.scenario.limit.0 = Nanos::from_ms(20);
            let arm = Arm { manager: ManagerName::Numab2, mode, seed: 1 };
            let report = run(&setup, arm).unwrap_or_else(|e| panic!("{name}: {e}"));
            let used: u64 = report.nodes.iter().map(|n| n.used_pages).sum();
            assert_eq!(used, setup.pages(), "{name} on {with_cpus:?} and {without:?}");
            let names: Vec<u16> = report.nodes.iter().map(|n| n.node).collect();
            assert_eq!(names, [with_cpus, without].concat());
        }
    }
}

#[test]
fn of_more_nodes_than_a_page_can_name_the_most_is_told() {
    let many = upwards::<{ NODES_MAX }>(1);
    let error = on(&machine((&[0], &many)), "hotcold", &[]).expect_err("they are too many");
    assert!(error.contains("has 64 nodes") && error.contains("at most 63"), "{error}");
}
