//! `target_nid`: pages go to the node that is named where the evidence does not say who accesses
//! them.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

/// Pages on node 0 and on node 1 after half a GiB on CXL, which is nearest to node 0, was accessed
/// for a while.
fn after(manager: &str, changes: &[&str]) -> Result<(u64, u64), String> {
    let common = ["process.0.footprint=512MiB", "process.0.threads=4", "limit=20s"];
    let changes: Vec<String> = common.iter().chain(changes).map(|c| (*c).to_owned()).collect();
    let setup = Setup::preset("promote-8g", &changes).map_err(|e| e.to_string())?;
    let manager = ManagerName::parse(manager).map_err(|e| e.to_string())?;
    let report = run(&setup, Arm { manager, mode: ModeName::Event, seed: 1 }).map_err(|e| e.to_string())?;
    Ok((report.processes[0].pages[0], report.processes[0].pages[1]))
}

#[test]
fn pages_of_regions_go_to_the_node_that_is_named() {
    let fast = ["config.manager.damon.aggregation_ms=1000", "config.manager.damon.sample_ms=50"];
    // The kernel itself promotes at hint faults while there is plenty of room.
    let alone = ["config.source.hintfault.enabled=false", "config.source.damon.enabled=true"];
    for (manager, key, more) in [
        ("thermocline:regions", "config.source.damon.target_nid", &alone[..]),
        ("thermocline:regions", "config.engine.target_nid", &alone),
        ("damon", "config.manager.damon.target_nid", &fast),
    ] {
        let (near, far) = after(manager, more).expect("it runs");
        assert!(near > 1000 && far == 0, "{manager}: {near} {far}");
        let named = format!("{key}=1");
        let (near, far) = after(manager, &[more, &[named.as_str()]].concat()).expect("it runs");
        assert!(near == 0 && far > 1000, "{manager}, {named}: {near} {far}");
        let lower = format!("{key}=2");
        let error = after(manager, &[more, &[lower.as_str()]].concat()).expect_err("node 2 is CXL");
        assert!(error.contains("target_nid") && error.contains("no node of the top tier"), "{error}");
    }
}

#[test]
fn a_record_that_keeps_no_node_sends_all_pages_to_the_node_that_is_named() {
    // Every thread runs on node 0. Nodes that are 32 apart are refused to such records otherwise.
    // With a GiB of DRAM there is never so much room that the kernel promotes on its own.
    let layout = [
        "machine.node.0.memory=1GiB",
        "machine.node.1.memory=1GiB",
        "config.engine.record=pghot-byte",
        "config.engine.record_node_per_block=false",
        "config.engine.far_distance=254",
        "config.rule.frequency.freq_threshold=1",
    ];
    let (near, far) = after("thermocline:frequency", &layout).expect("it runs");
    assert!(near > 1000 && far == 0, "{near} {far}");
    let named = [&layout[..], &["config.engine.target_nid=1"]].concat();
    let (near, far) = after("thermocline:frequency", &named).expect("it runs");
    assert!(near == 0 && far > 1000, "{near} {far}");
}
