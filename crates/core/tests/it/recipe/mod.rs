//! The book's recipe for a rule: its code compiles and does what the book says, and following it
//! touches as few files as the book lists.
#![allow(clippy::unwrap_used)]

mod config;
mod eager;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermocline_core::access::{Access, Detail, FaultLatency, NoMappings};
use thermocline_core::candidate::{Candidate, Candidates};
use thermocline_core::config::schema::Section;
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, TierId, VirtPage};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Existing files that a new rule may touch, documents aside.
const FILES_MAX: usize = 3;

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(WORKSPACE).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of the simulator's chapter that holds the recipe.
fn recipe() -> String {
    let chapter = read("docs/src/simulator.md");
    let from = chapter.split_once("## A rule of your own\n").expect("the recipe's heading").1;
    from.split("\n## ").next().unwrap_or(from).to_owned()
}

/// Lines without indentation, imports and blanks.
fn bare(code: &str) -> Vec<&str> {
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("use ")).collect()
}

#[test]
fn the_books_code_is_what_is_compiled_here() {
    let recipe = recipe();
    let blocks: Vec<Vec<&str>> =
        recipe.split("```rust\n").skip(1).map(|rest| bare(rest.split("```").next().unwrap_or(""))).collect();
    let folder = "crates/core/tests/it/recipe";
    let compiled = [read(format!("{folder}/eager.rs")), read(format!("{folder}/config.rs"))];
    assert_eq!(blocks.len(), compiled.len());
    for (block, compiled) in blocks.iter().zip(&compiled) {
        assert!(block.len() > 5, "{block:?}");
        let compiled = bare(compiled);
        let same = compiled.windows(block.len()).any(|lines| lines == *block);
        assert!(same, "the book has\n{}\nwhich is not in\n{}", block.join("\n"), compiled.join("\n"));
    }
}

/// What the rule proposes for a fault on `node` after a wait of `wait_ms`.
fn proposed(node: u16, wait_ms: u64) -> Vec<Candidate> {
    let with = |id, tier, distances: [u8; 2]| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: distances.to_vec(),
    };
    let topology = Topology::new(vec![with(0, 0, [10, 40]), with(1, 1, [40, 10])]).unwrap();
    let ctx = Context { topology: &topology, frequency_max: u8::MAX, mappings: &NoMappings };
    let access = Access {
        time: Nanos::from_s(5),
        pfn: Some(Pfn(7)),
        page: Some(VirtPage { pid: Pid(1), vpn: 7 }),
        order: 0,
        node: NodeId(node),
        accessor: Some(NodeId(0)),
        detail: Detail::HintFault {
            latency: Some(FaultLatency { time: Nanos::from_ms(wait_ms), faults: 0 }),
        },
    };
    let mut rule = eager::Eager::new(&config::rule::Eager::default(), Nanos::from_s(10));
    let mut out = Candidates::new(16);
    rule.on_access(&access, &mut Record::default(), &ctx, &mut out);
    out.drain().collect()
}

#[test]
fn it_promotes_at_the_first_early_fault_and_no_other() {
    let (soon, sooner) = (proposed(1, 1000), proposed(1, 10));
    assert_eq!((soon.len(), sooner.len()), (1, 1));
    assert!(sooner[0].score > soon[0].score);
    assert!(proposed(1, 1001).is_empty(), "later than wait_max_ms");
    assert!(proposed(0, 10).is_empty(), "it is in the top tier already");
}

#[test]
fn its_keys_are_listed_and_checked_without_another_line() {
    let mut listed = Vec::new();
    config::rule::Rule::sections("rule", &mut listed);
    let names: Vec<(&str, &str)> =
        listed.iter().flat_map(|(at, fields)| fields.iter().map(move |f| (at.as_str(), f.name))).collect();
    assert_eq!(names, [("rule.eager", "wait_max_ms")]);
    let mut rule = config::rule::Rule::default();
    rule.eager.wait_max_ms = 0;
    let mut wrong = Vec::new();
    rule.check("rule", &mut wrong);
    let keys: Vec<&str> = wrong.iter().map(|violation| violation.key.as_str()).collect();
    assert_eq!(keys, ["rule.eager.wait_max_ms"]);
}

/// Files below `folder`, tests and benchmarks aside, whose code names a rule in any spelling.
fn naming(folder: &Path, spellings: &[&str], out: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "benches", "target"].contains(&name.as_str()) {
            naming(&path, spellings, out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            if code.any(|line| spellings.iter().any(|spelling| line.contains(spelling))) {
                out.insert(path.strip_prefix(WORKSPACE).unwrap().to_owned());
            }
        }
    }
}

#[test]
fn a_rule_touches_the_files_that_the_recipe_lists_and_no_others() {
    // inter-arrival has all that a rule can have, and its name means nothing else.
    let mut found = BTreeSet::new();
    for folder in ["crates", "lab", "fuzz"] {
        let spellings = ["inter-arrival", "inter_arrival", "InterArrival"];
        naming(&Path::new(WORKSPACE).join(folder), &spellings, &mut found);
    }
    assert!(found.remove(Path::new("crates/core/src/rule/inter_arrival.rs")), "{found:?}");
    let recipe = recipe();
    let listed: BTreeSet<PathBuf> = recipe
        .split('`')
        .filter(|word| word.starts_with("crates/core/") && word.ends_with(".rs"))
        .filter(|word| !word.ends_with("/eager.rs"))
        .map(PathBuf::from)
        .collect();
    assert_eq!(found, listed);
    assert!(listed.len() <= FILES_MAX, "{listed:?}");
}
