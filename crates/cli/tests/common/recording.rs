//! Recordings of simulated runs.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::command::{errors, run};

/// A scenario that is over soon and in which DRAM becomes full.
const SCENARIO: &str = "name = \"recorded\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n\
    [kernel]\nscan_delay_ms = 20\nscan_size_mb = 8\n\
    [[process]]\nname = \"p\"\nnode = 0\nthreads = 1\nfootprint = \"32MiB\"\nplace = [{ node = 1 }]\n\
    pattern = { kind = \"phases\", repeat = 1, step = [\
    { how = \"random\", accesses = 100000000, region = [\
    { from = 0.0, to = 0.25, weight = 0.9 }, { from = 0.25, to = 1.0, weight = 0.1 }] }] }\n";
const CHANGES: [&str; 3] = [
    "--set=machine.node.0.memory=\"20MiB\"",
    "--set=machine.node.1.memory=\"64MiB\"",
    "--set=config.kernel.scan_period_min_ms=100",
];

/// Records a simulated run into `folder`.
pub fn record(folder: &Path, more: &[&str]) -> Output {
    let scenario = folder.with_extension("toml");
    fs::write(&scenario, SCENARIO).expect("it can be written");
    let (scenario, to) = (scenario.display().to_string(), format!("--record={}", folder.display()));
    let args = [&["sim", &scenario, &to][..], &CHANGES, more].concat();
    let output = run(&args);
    assert!(output.status.success(), "{args:?}: {}", errors(&output));
    output
}
