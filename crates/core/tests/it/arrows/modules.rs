//! A crate's top-level modules and the arrows between them, from its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::tokens::tokens;

/// Reads a file, where there is one.
pub type Files<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A top-level module and one that it uses.
pub type Arrow = (String, String);

/// The arrows of the crate whose root is `root`, each with a place where it is found.
pub fn arrows(root: &Path, files: Files<'_>) -> BTreeMap<Arrow, String> {
    let text = files(root).unwrap_or_else(|| panic!("{} cannot be read", root.display()));
    let found = scan(&tokens(&text), &[]);
    let modules: BTreeSet<&String> = found.children.iter().map(|path| &path[0]).collect();
    // What the root re-exports is its module's.
    let through_root: BTreeMap<&String, &String> = found
        .paths
        .iter()
        .filter_map(|(_, path)| {
            let path = if path[0] == "self" || path[0] == "crate" { &path[1..] } else { path };
            (path.len() > 1 && modules.contains(&path[0])).then(|| (&path[path.len() - 1], &path[0]))
        })
        .collect();
    let mut out = BTreeMap::new();
    let mut todo: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let folder = root.parent().unwrap_or(Path::new(""));
    todo.extend(found.children.iter().map(|path| (folder.to_owned(), path.clone())));
    while let Some((folder, module)) = todo.pop() {
        let name = &module[module.len() - 1];
        let (as_file, inside) = (folder.join(format!("{name}.rs")), folder.join(name));
        let as_folder = inside.join("mod.rs");
        let Some((file, text)) =
            [as_file, as_folder].into_iter().find_map(|f| files(&f).map(|text| (f, text)))
        else {
            panic!("mod {}: no file in {}", module.join("::"), folder.display());
        };
        let found = scan(&tokens(&text), &module);
        for (from, path) in &found.paths {
            let Some(target) = absolute(from, path) else { continue };
            let Some(to) = modules.get(&target[0]).or_else(|| through_root.get(&target[0])) else {
                continue;
            };
            if **to != module[0] {
                let place = format!("{}: {}", file.display(), path.join("::"));
                out.entry((module[0].clone(), (*to).clone())).or_insert(place);
            }
        }
        todo.extend(found.children.into_iter().map(|child| (inside.clone(), child)));
    }
    out
}

/// What a file says of modules.
#[derive(Default)]
struct Found {
    /// Modules in files of their own.
    children: Vec<Vec<String>>,
    /// Paths, and the module that each is written in.
    paths: Vec<(Vec<String>, Vec<String>)>,
}

fn scan(tokens: &[String], module: &[String]) -> Found {
    let mut found = Found::default();
    let mut here = module.to_vec();
    // Depths at which modules were opened within the file.
    let (mut depth, mut opened) = (0usize, Vec::new());
    let mut at = 0;
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    while at < tokens.len() {
        match word(at) {
            "mod" if word(at + 2) == ";" => {
                found.children.push([&here[..], &[word(at + 1).to_owned()]].concat());
                at += 3;
            }
            "mod" if word(at + 2) == "{" => {
                here.push(word(at + 1).to_owned());
                opened.push(depth);
                depth += 1;
                at += 3;
            }
            "{" => (depth, at) = (depth + 1, at + 1),
            "}" => {
                depth = depth.saturating_sub(1);
                if opened.last() == Some(&depth) {
                    opened.pop();
                    here.pop();
                }
                at += 1;
            }
            // Not the captures of `impl Trait + use<'a>`.
            "use" if word(at + 1) != "<" => {
                let len = tokens[at..].iter().take_while(|t| *t != ";").count();
                let mut paths = Vec::new();
                tree(&tokens[at + 1..at + len], &[], &mut paths);
                found.paths.extend(paths.into_iter().map(|path| (here.clone(), path)));
                at += len;
            }
            "crate" | "super" | "self" if word(at + 1) == "::" => {
                let mut path = vec![word(at).to_owned()];
                while word(at + 1) == "::" && word(at + 2).starts_with(is_word) {
                    path.push(word(at + 2).to_owned());
                    at += 2;
                }
                found.paths.push((here.clone(), path));
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths of a `use` tree; one with another name keeps that, so that a re-export is found by it.
fn tree(tokens: &[String], before: &[String], out: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                let mut depth = 0usize;
                let mut start = at + 1;
                for (i, token) in tokens.iter().enumerate().skip(at) {
                    depth += usize::from(token == "{");
                    depth -= usize::from(token == "}");
                    if (token == "," && depth == 1) || depth == 0 {
                        if start < i {
                            tree(&tokens[start..i], &path, out);
                        }
                        start = i + 1;
                    }
                    if depth == 0 {
                        return;
                    }
                }
                return;
            }
            "as" => {
                if let Some(name) = tokens.get(at + 1) {
                    path.push(name.clone());
                }
                at += 2;
            }
            "::" => at += 1,
            word => {
                path.push(word.to_owned());
                at += 1;
            }
        }
    }
    if !path.is_empty() {
        out.push(path);
    }
}

/// The path from the crate's root; none where it leads out of the crate, stays in its module or is
/// the root.
fn absolute(from: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    for part in &path[1..] {
        if part == "super" {
            base.pop()?;
        } else {
            base.push(part.clone());
        }
    }
    (!base.is_empty()).then_some(base)
}
