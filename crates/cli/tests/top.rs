//! The screen on recordings, from outside: the same counts as `report` and `replay`, at any moment.

#[path = "screens/book.rs"]
mod book;
#[path = "common/command.rs"]
mod command;
#[path = "screens/counts.rs"]
mod counts;
#[path = "screens/odd.rs"]
mod odd;

use std::fs;
use std::path::Path;

use command::{errors, run};

/// Two services on too little DRAM, and a hog; each service has a share.
const SCENARIO: &str = "name = \"shared\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n\
    [kernel]\nscan_delay_ms = 20\nscan_size_mb = 8\n\
    [[process]]\nname = \"a-service-with-a-rather-long-name\"\nnode = 0\nthreads = 1\nfootprint = \"32MiB\"\n\
    place = [{ node = 1 }]\npattern = { kind = \"phases\", repeat = 1, step = [\
    { how = \"random\", accesses = 100000000, region = [\
    { from = 0.0, to = 0.25, weight = 0.9 }, { from = 0.25, to = 1.0, weight = 0.1 }] }] }\n\
    [[process]]\nname = \"hog\"\nthreads = 1\nnode = 0\nfootprint = \"96MiB\"\nbackground = true\n\
    together = true\nplace = [{ node = 0 }]\npattern = { kind = \"stream\", passes = 100000.0 }\n";

/// What is set beside it: 112 MiB of DRAM and three scopes.
const CHANGES: [&str; 4] = [
    "--set=machine.node.0.memory=\"112MiB\"",
    "--set=machine.node.1.memory=\"256MiB\"",
    "--set=config.kernel.scan_period_min_ms=100",
    "--set=config.scope=[{ cgroup = \"/a-service-with-a-rather-long-name\", top_tier_share_mib = 24 }, \
     { cgroup = \"/hog\", top_tier_share_mib = 40 }, { cgroup = \"/\" }]",
];

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Records a simulated run with shares into `folder`.
fn record(folder: &Path) {
    let scenario = folder.with_extension("toml");
    fs::write(&scenario, SCENARIO).expect("it can be written");
    let to = format!("--record={}", folder.display());
    let args = [&["sim", plain(&scenario), &to, "--rule=adaptive", "--mode=event", "--seed=7"][..], &CHANGES]
        .concat();
    let output = run(&args);
    assert!(output.status.success(), "{}", errors(&output));
}

/// A frame of a recording.
fn frame(folder: &Path, more: &[&str]) -> String {
    let output = run(&[&["top", plain(folder), "--once"][..], more].concat());
    assert!(output.status.success(), "{more:?}: {}", errors(&output));
    String::from_utf8(output.stdout).expect("it is text")
}
