//! What keeps the tree readable: width, length, words and heads of every file of the workspace.

mod fixtures;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Folders whose files are not written by hand.
const MADE: &[&str] = &["target", "book", "corpus", "artifacts", "seeds", ".git"];
/// Files that are generated, or that have the words because they forbid them.
const LEFT_OUT: &[&str] = &[
    "docs/src/config-keys.md",
    "docs/src/scenario-keys.md",
    "crates/core/tests/it/tidy/rules.rs",
    "crates/core/tests/it/tidy/fixtures.rs",
];
const ENDINGS: &[&str] = &["rs", "c", "h", "sh", "md", "toml"];

/// Largest file in bytes: what is larger was downloaded, measured or built. The list of what cargo
/// has locked is as long as it has to be.
const BYTES_MAX: u64 = 64 << 10;

/// Every file that is not in a folder of [`MADE`], by its path in the workspace.
fn paths() -> Vec<(String, PathBuf)> {
    let (mut out, mut todo) = (Vec::new(), vec![PathBuf::from(WORKSPACE)]);
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(&folder).expect("the workspace can be read") {
            let entry = entry.expect("the workspace can be read");
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_folder = path.is_dir() && !path.is_symlink();
            if is_folder && !MADE.contains(&name.as_str()) {
                todo.push(path);
            } else if !is_folder {
                let within = path.strip_prefix(WORKSPACE).unwrap_or(&path).to_string_lossy().into_owned();
                out.push((within, path));
            }
        }
    }
    out.sort();
    out
}

/// Every file that is held to the rules, by its path in the workspace.
fn files() -> Vec<(String, String)> {
    let held = |name: &str| {
        ENDINGS.iter().any(|end| name.ends_with(&format!(".{end}"))) && !LEFT_OUT.contains(&name)
    };
    let held = paths().into_iter().filter(|(name, _)| held(name));
    held.map(|(name, path)| (name, fs::read_to_string(path).expect("it is UTF-8 text"))).collect()
}

fn none_complains(rule: fn(&str, &str) -> Vec<String>) {
    let complaints: Vec<String> = files().iter().flat_map(|(path, text)| rule(path, text)).collect();
    assert!(complaints.is_empty(), "{} places:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn comments_and_prose_have_at_most_100_columns() {
    none_complains(rules::width);
}

#[test]
fn files_stay_short() {
    none_complains(rules::length);
    let gone = rules::gone(|path| Path::new(WORKSPACE).join(path).exists());
    assert!(gone.is_empty(), "{}", gone.join("\n"));
}

#[test]
fn nothing_is_here_that_was_downloaded_measured_or_built() {
    let size = |path: &PathBuf| fs::symlink_metadata(path).expect("it is there").len();
    let large = paths().into_iter().filter(|(name, path)| name != "Cargo.lock" && size(path) > BYTES_MAX);
    let large: Vec<String> = large.map(|(name, _)| name).collect();
    assert!(large.is_empty(), "above {BYTES_MAX} bytes; delete them, or keep them below target: {large:?}");
}

#[test]
fn words_are_those_of_the_field() {
    none_complains(rules::words);
}

#[test]
fn each_file_begins_by_saying_what_it_is() {
    none_complains(rules::head);
}

#[test]
fn the_whole_tree_is_read() {
    let files = files();
    for path in ["README.md", "crates/core/src/lib.rs", "lab/plugin/misses.c", "fuzz/fuzz_targets/engine.rs"]
    {
        assert!(files.iter().any(|(name, _)| name == path), "{path} was not read");
    }
}
