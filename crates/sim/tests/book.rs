//! The book's tables of the keys of scenarios and machines are those of the code: names, types and
//! meanings from the sources, defaults from what is read where a key is left out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thermocline_sim::machine::{Costs, Llc, MachineSpec, NodeSpec};
use thermocline_sim::scenario::Scenario;
use thermocline_sim::settings::KernelSettings;
use thermocline_sim::workload::spec::ReclaimSpec;
use thermocline_sim::workload::{
    ChunkRandom, Hotspot, KeyValue, Latest, Oltp, PatternSpec, Phases, Place, ProcessSpec, RandomStep,
    Recorded, Region, Stream, Think, Uniform, WalkStep, Zipf,
};
use toml::{Table, Value};

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/scenario-keys.md");
const BLESS: &str = "BLESS=1 cargo test --release -p thermocline-sim --test book";
/// Where the generated part begins.
const START: &str = "<!-- keys -->\n";

/// A key, as its source declares it.
struct Key {
    name: String,
    kind: String,
    meaning: String,
    required: bool,
}

/// The keys of a struct in a source file.
fn keys(file: &str, name: &str) -> Vec<Key> {
    let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (before, after) = text.split_once(&format!("pub struct {name} {{\n")).expect("the struct is there");
    let attributes = before.rsplit("\n\n").next().unwrap();
    let all_optional = attributes.contains("deny_unknown_fields, default");
    let body = after.split("\n}").next().unwrap();
    let (mut keys, mut meaning, mut optional) = (Vec::new(), String::new(), all_optional);
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            meaning += words;
        } else if line.starts_with("#[serde(") {
            optional |= line.contains("default");
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").unwrap();
            let meaning = std::mem::take(&mut meaning).trim().replace("[`", "`").replace("`]", "`");
            keys.push(Key { name: name.to_owned(), kind: kind.to_owned(), meaning, required: !optional });
            optional = all_optional;
        }
    }
    keys
}

/// A type in words, and a value of it.
fn kind(rust: &str) -> (&'static str, &'static str) {
    match rust {
        "Vec<f64>" => return ("numbers", "[]"),
        "Vec<u8>" => return ("whole numbers", "[]"),
        _ => {}
    }
    match rust.trim_start_matches("Option<").trim_end_matches('>') {
        "String" => ("text", "\"x\""),
        "bool" => ("true or false", "true"),
        "f64" => ("number", "1.0"),
        "u8" | "u16" | "u32" | "u64" => ("whole number", "1"),
        "i32" | "i64" => ("whole number, also negative", "1"),
        "Bytes" => ("size, as `\"64MiB\"`", "\"4KiB\""),
        "Span" => ("time, as `\"10s\"`", "\"1s\""),
        "NodeName" => ("node: a number, or `\"cpu\"`, `\"top\"`, `\"low\"`, `\"top1\"` ...", "0"),
        "Workload" => ("`\"A\"` to `\"F\"`", "\"A\""),
        "Split" => ("`\"blocks\"`, `\"interleaved\"` or `\"together\"`", "\"blocks\""),
        "PatternSpec" => ("table, see the patterns", "{ kind = \"idle\" }"),
        "BTreeMap<String, String" => ("table of texts", "{}"),
        _ if rust.starts_with("Vec<") => ("list of tables", "[]"),
        _ => ("table", "{}"),
    }
}

/// The rows of a table of keys.
fn rows<T: DeserializeOwned + Serialize>(file: &str, name: &str) -> String {
    let keys = keys(file, name);
    let least: String =
        keys.iter().filter(|k| k.required).map(|k| format!("{} = {}\n", k.name, kind(&k.kind).1)).collect();
    let read: T = toml::from_str(&least).unwrap_or_else(|e| panic!("{name}: {e}\n{least}"));
    let written = Table::try_from(read).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut out = "\n| key | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for key in &keys {
        let default = match written.get(&key.name) {
            _ if key.required => "required".to_owned(),
            None | Some(Value::Table(_) | Value::Array(_)) => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let _ = writeln!(out, "| `{}` | {} | {default} | {} |", key.name, kind(&key.kind).0, key.meaning);
    }
    out
}

fn pattern<T: DeserializeOwned + Serialize>(kind: &str, file: &str, name: &str) -> String {
    format!("\n### `kind = \"{kind}\"`\n{}", rows::<T>(file, name))
}

fn tables() -> String {
    let spec = "workload/spec.rs";
    let mut out = String::new();
    let mut part = |heading: &str, rows: String| {
        let _ = write!(out, "\n{heading}\n{rows}");
    };
    part("## A scenario", rows::<Scenario>("scenario/mod.rs", "Scenario"));
    part("## `[[process]]`", rows::<ProcessSpec>(spec, "ProcessSpec"));
    part("### `place = [{ ... }]`", rows::<Place>(spec, "Place"));
    part("### `think = { ... }`", rows::<Think>(spec, "Think"));
    part("### `reclaim = { ... }`", rows::<ReclaimSpec>(spec, "ReclaimSpec"));
    let patterns = [
        pattern::<Uniform>("uniform", "workload/uniform.rs", "Uniform"),
        pattern::<Zipf>("zipf", "workload/zipf.rs", "Zipf"),
        pattern::<Latest>("latest", "workload/latest.rs", "Latest"),
        pattern::<Hotspot>("hotspot", "workload/hotspot.rs", "Hotspot"),
        pattern::<ChunkRandom>("chunk-random", "workload/chunk_random.rs", "ChunkRandom"),
        pattern::<Stream>("stream", "workload/stream.rs", "Stream"),
        pattern::<Phases>("phases", "workload/steps.rs", "Phases"),
        format!("\nA step with `how = \"walk\"`:\n{}", rows::<WalkStep>("workload/steps.rs", "WalkStep")),
        format!(
            "\nA step with `how = \"random\"`:\n{}",
            rows::<RandomStep>("workload/steps.rs", "RandomStep")
        ),
        format!("\nA `region` of it:\n{}", rows::<Region>("workload/steps.rs", "Region")),
        pattern::<KeyValue>("key-value", "workload/key_value.rs", "KeyValue"),
        pattern::<Oltp>("oltp", "workload/oltp.rs", "Oltp"),
        pattern::<Recorded>("recorded", "workload/recorded.rs", "Recorded"),
        "\n### `kind = \"idle\"`\n\nNo keys.\n".to_owned(),
    ];
    part("## `pattern = { ... }`", patterns.concat());
    part("## `[kernel]`", rows::<KernelSettings>("settings.rs", "KernelSettings"));
    part("## A machine", rows::<MachineSpec>("machine/spec.rs", "MachineSpec"));
    part("### `[[node]]`", rows::<NodeSpec>("machine/spec.rs", "NodeSpec"));
    part("### `[llc]`", rows::<Llc>("machine/spec.rs", "Llc"));
    part("### `[cost]`", rows::<Costs>("machine/spec.rs", "Costs"));
    out
}

#[test]
fn the_book_shows_the_keys_that_there_are() {
    let chapter = std::fs::read_to_string(CHAPTER).unwrap();
    let (before, _) = chapter.split_once(START).expect("the chapter has the marker");
    let fresh = format!("{before}{START}{}", tables());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).unwrap();
    }
    let stale = fresh.lines().zip(chapter.lines()).find(|(a, b)| a != b);
    assert!(fresh == chapter, "docs/src/scenario-keys.md is stale at {stale:?}; refresh it with: {BLESS}");
}

/// A new pattern is missed by nobody: the kinds are those that an unknown one is told.
#[test]
fn every_pattern_has_a_table() {
    let error = toml::from_str::<PatternSpec>("kind = \"nonsense\"").unwrap_err().to_string();
    let kinds: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(kinds.len() >= 10, "{error}");
    let tables = tables();
    for kind in kinds {
        assert!(tables.contains(&format!("### `kind = \"{kind}\"`")), "{kind}");
    }
}
