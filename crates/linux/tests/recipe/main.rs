//! The recipe for a source in CONTRIBUTING.md: a source that follows it compiles and works, and
//! touches as few files as the recipe lists.
#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used)]

mod listing;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::schema::Section;
use thermocline_core::config::{Config, Enabled, SourceKeys};
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, TierId};
use thermocline_linux::root::Root;
use thermocline_linux::source::hintfault::Scope;
use thermocline_linux::source::{EvidenceSource, Facts, Frames, Opening, SourceStatus, Turn};
use thermocline_linux::topology::{Discovered, PfnMap, PfnRange, TierOrigin};

use listing::{ListingSource, ROW};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Existing files that a new source may touch, documents aside.
const FILES_MAX: usize = 4;

/// A machine whose frames 0x100..0x200 are on node 1.
struct Machine {
    _folder: tempfile::TempDir,
    root: Root,
    config: Config,
    found: Discovered,
    frames: PfnMap,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        fs::create_dir_all(&root.proc).unwrap();
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: 1 << 20,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20],
        };
        let topology = Topology::new(vec![node(0), node(1)]).unwrap();
        let found = Discovered {
            topology,
            origin: TierOrigin::Assumed,
            kernel_tiers: Vec::new(),
            kernel_top: vec![NodeId(0)],
            excluded: Vec::new(),
            page_size_known: true,
        };
        let frames = PfnMap::new(vec![PfnRange { start: Pfn(0x100), end: Pfn(0x200), node: NodeId(1) }]);
        Machine { _folder: folder, root, config: Config::default(), found, frames }
    }

    fn open(&self) -> Box<dyn EvidenceSource> {
        let (root, config, found, frames) = (&self.root, &self.config, &self.found, &self.frames);
        let scope = &Scope::whole_machine();
        let mut opening = Opening { root, config, found, frames, scope, actuator: None, now: Nanos(0) };
        (ROW.open)(&mut opening).unwrap().unwrap()
    }

    fn poll(&self, source: &mut dyn EvidenceSource, now: Nanos) -> Vec<Access> {
        let (mut accesses, mut region_pages) = (Vec::new(), Vec::new());
        let mut turn = Turn {
            max: 100,
            now,
            frames: &self.frames,
            topology: &self.found.topology,
            in_scope: &|_| true,
            owners: None,
            accesses: &mut accesses,
            region_pages: &mut region_pages,
            regions: &mut |_| {},
            ended: None,
        };
        assert!(!source.poll(&mut turn), "all was read");
        accesses
    }
}

#[test]
fn the_example_reads_what_it_says() {
    let machine = Machine::new();
    let mut source = machine.open();
    assert!(machine.poll(&mut *source, Nanos(1)).is_empty(), "there is no list yet");
    fs::write(machine.root.proc.join("thermocline-hot-frames"), "300 7\n999999 1\nnonsense\n").unwrap();
    let read = machine.poll(&mut *source, Nanos(5));
    let found: Vec<_> = read.iter().map(|a| (a.time, a.pfn, a.node, a.page)).collect();
    assert_eq!(found, [(Nanos(5), Some(Pfn(300)), NodeId(1), None)]);
    assert_eq!(read[0].detail, Detail::Count { count: 7, gap: None });
    assert!(machine.poll(&mut *source, Nanos(9)).is_empty(), "each list is read once");
    assert_eq!(source.frames(&machine.root), Frames::Alone);
    assert_eq!(source.counted().text, "listing: 3 lines read, 2 of no frame here\n");
}

#[test]
fn the_example_has_keys_and_is_looked_for() {
    let names: Vec<&str> = ListingSource::fields().iter().map(|field| field.name).collect();
    assert_eq!(names, ["enabled", "weight"]);
    let keys = ListingSource { enabled: true, ..ListingSource::default() };
    assert_eq!((keys.enabled(), keys.weight()), (Enabled::Yes, 8));
    let machine = Machine::new();
    let mut facts = Facts {
        root: &machine.root,
        config: &machine.config,
        topology: Some(&machine.found),
        release: None,
        numa_balancing: None,
        attach_points: Ok(Vec::new()),
        no_bpf: None,
        may_sample: true,
        sees_frames: true,
        no_settings: None,
        our_kdamonds: false,
        usable: None,
        failures: Vec::new(),
    };
    assert_eq!((ROW.probe)(&mut facts).status, SourceStatus::Usable);
}

/// Files below `folder` whose code, tests and comments aside, names the source.
fn naming(folder: &Path, out: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            naming(&path, out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(&text);
            let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            if lines.any(|line| line.to_lowercase().contains("chmu")) {
                out.insert(path.strip_prefix(WORKSPACE).unwrap().to_owned());
            }
        }
    }
}

#[test]
fn a_source_touches_the_files_that_the_recipe_lists_and_no_others() {
    // chmu has all that a source needs, and nothing else is named so. The simulator's model of it
    // belongs to a manager there.
    let mut found = BTreeSet::new();
    for folder in ["crates/core/src", "crates/linux/src", "crates/cli/src"] {
        naming(&Path::new(WORKSPACE).join(folder), &mut found);
    }
    let own = |path: &PathBuf| {
        path.starts_with("crates/linux/src/source/chmu")
            || path.ends_with("crates/core/src/config/chmu_source.rs")
    };
    assert!(found.iter().any(own), "{found:?}");
    found.retain(|path| !own(path));
    let guide = fs::read_to_string(Path::new(WORKSPACE).join("CONTRIBUTING.md")).unwrap();
    let recipe = guide.split_once("## Add a source\n").expect("the recipe's heading").1;
    let recipe = recipe.split("\n## ").next().unwrap_or(recipe);
    let listed: BTreeSet<PathBuf> = recipe
        .split('`')
        .filter(|word| word.starts_with("crates/") && word.ends_with(".rs"))
        .filter(|word| !word.contains("NAME"))
        .map(PathBuf::from)
        .collect();
    assert!(found.is_subset(&listed), "{found:?} beside {listed:?}");
    assert!(listed.len() <= FILES_MAX, "{listed:?}");
    for path in &listed {
        assert!(Path::new(WORKSPACE).join(path).is_file(), "{path:?}");
    }
}
