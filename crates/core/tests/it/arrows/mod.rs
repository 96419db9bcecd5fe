//! The plan of the house: which crate may lean on which, and no circles of top-level modules within
//! one.

mod fixtures;
mod modules;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use modules::{Arrow, arrows};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Each crate and those that it may depend on.
const PLAN: &[(&str, &[&str])] = &[
    ("crates/mem", &[]),
    ("crates/bpf", &[]),
    ("crates/core", &["thermocline-mem"]),
    ("crates/sim", &["thermocline-core", "thermocline-mem"]),
    ("crates/linux", &["thermocline-core", "thermocline-bpf"]),
    ("crates/wire", &["thermocline-core"]),
    ("crates/trace", &["thermocline-core"]),
    ("crates/front", &["thermocline-core", "thermocline-linux", "thermocline-sim", "thermocline-trace"]),
    (
        "crates/cli",
        &[
            "thermocline-core",
            "thermocline-front",
            "thermocline-linux",
            "thermocline-sim",
            "thermocline-trace",
            "thermocline-wire",
        ],
    ),
    ("crates/inputs", &["thermocline-core", "thermocline-linux", "thermocline-trace", "thermocline-wire"]),
    ("python", &["thermocline-front", "thermocline-sim", "thermocline-trace"]),
    ("lab", &["thermocline-core", "thermocline-linux"]),
];

/// Modules each of which leads to all others.
fn circles(arrows: &BTreeMap<Arrow, String>) -> BTreeSet<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        while let Some(module) = todo.pop() {
            let next = arrows.keys().filter(|(a, _)| a == module).map(|(_, b)| b);
            todo.extend(next.filter(|b| seen.insert((*b).clone())));
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|(a, _)| (a, reach(a))).collect();
    let leads = |a: &String, b: &String| all.get(a).is_some_and(|seen| seen.contains(b));
    let circle = |a: &String| all[a].iter().filter(|b| leads(b, a)).cloned().collect();
    all.keys().map(|a| circle(a)).filter(|circle: &BTreeSet<String>| !circle.is_empty()).collect()
}

/// A crate's circles, with the arrows that make them; nothing where there are none.
fn complaints(root: &str, arrows: &BTreeMap<Arrow, String>) -> String {
    let mut out = String::new();
    for circle in circles(arrows) {
        let _ = writeln!(out, "{root}: {circle:?} lean on each other:");
        let within = arrows.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
        for ((a, b), place) in within {
            let _ = writeln!(out, "    {a} -> {b}  {place}");
        }
    }
    out
}

/// The dependencies in a crate's manifest, of the names given; those that only tests use are left
/// out.
fn dependencies(manifest: &str, of: &BTreeSet<String>) -> BTreeSet<String> {
    let mut section = "";
    let mut out = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if section.ends_with("dependencies") && !section.starts_with("dev-") && of.contains(name) {
            out.insert(name.to_owned());
        }
    }
    out
}

/// Dependencies that the plan does not have.
fn against_plan(crates: &[(String, String)], plan: &[(&str, &[&str])]) -> Vec<String> {
    let name = |manifest: &str| {
        let line = manifest.lines().find(|line| line.starts_with("name ="));
        line.and_then(|line| line.split('"').nth(1)).unwrap_or_default().to_owned()
    };
    let names: BTreeSet<String> = crates.iter().map(|(_, manifest)| name(manifest)).collect();
    let mut out = Vec::new();
    for (folder, manifest) in crates {
        let Some((_, may)) = plan.iter().find(|(of, _)| of == folder) else {
            out.push(format!("{folder} is not in the plan"));
            continue;
        };
        let leans_on = dependencies(manifest, &names);
        let bad = leans_on.iter().filter(|name| !may.contains(&name.as_str()));
        out.extend(bad.map(|name| format!("{folder} -> {name}")));
    }
    out
}

/// The workspace's crates: folder and manifest.
fn crates() -> Vec<(String, String)> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let manifest = read(&Path::new(WORKSPACE).join("Cargo.toml"));
    let members = manifest.lines().find(|line| line.starts_with("members"));
    let folders = members.expect("a workspace has members").split('"').skip(1).step_by(2);
    folders.map(|f| (f.to_owned(), read(&Path::new(WORKSPACE).join(f).join("Cargo.toml")))).collect()
}

#[test]
fn crates_lean_on_each_other_as_planned() {
    let crates = crates();
    assert!(crates.len() >= PLAN.len());
    assert_eq!(against_plan(&crates, PLAN), Vec::<String>::new());
}

/// The book's table of the crates says what the plan does.
#[test]
fn the_book_has_the_plan() {
    let path = Path::new(WORKSPACE).join("docs/src/architecture.md");
    let book = std::fs::read_to_string(&path).unwrap();
    for (folder, may) in PLAN {
        let head = format!("| `{folder}` ");
        let row = book.lines().find(|line| line.starts_with(&head));
        let row = row.unwrap_or_else(|| panic!("{}: no row {head}", path.display()));
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let named: BTreeSet<String> =
            last.split('`').skip(1).step_by(2).map(|name| format!("thermocline-{name}")).collect();
        let planned: BTreeSet<String> = may.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(named, planned, "{folder}");
    }
}

#[test]
fn top_level_modules_form_no_circle() {
    let files = |path: &Path| std::fs::read_to_string(path).ok();
    let mut wrong = String::new();
    let mut roots = BTreeSet::new();
    for (folder, _) in crates() {
        for root in ["lib.rs", "main.rs"] {
            let path: PathBuf = [WORKSPACE, &folder, "src", root].iter().collect();
            if path.exists() {
                let root = format!("{folder}/src/{root}");
                wrong += &complaints(&root, &arrows(&path, &files));
                roots.insert(root);
            }
        }
    }
    assert!(roots.len() >= PLAN.len(), "crates were looked for in vain: {roots:?}");
    assert!(wrong.is_empty(), "\n{wrong}");
}
