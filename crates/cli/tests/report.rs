//! Reports from outside: pages of simulated, imported, broken and hostile recordings.

#[path = "reports/broken.rs"]
mod broken;
#[path = "common/command.rs"]
mod command;
#[path = "reports/last.rs"]
mod last;
#[path = "reports/page.rs"]
mod page;
#[path = "common/recording.rs"]
mod recording;
#[path = "reports/sums.rs"]
mod sums;

use std::fs;
use std::path::{Path, PathBuf};

use command::{errors, run};

/// Bytes of a page, at most.
const PAGE_MAX: usize = 5 << 20;
/// The sections, in order.
const SECTIONS: [&str; 8] = ["flows", "held", "heat", "refusals", "reasons", "cost", "sources", "plan"];

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Records a simulated run into `folder`; returns the report of `sim --json`.
fn record(folder: &Path, more: &[&str]) -> serde_json::Value {
    let output = recording::record(folder, &[&["--json"][..], more].concat());
    let mut reports: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("a list");
    reports.pop().expect("a report")
}

/// The page of a recording.
fn page_of(folder: &Path, more: &[&str]) -> String {
    let file = folder.with_extension("html");
    let output = run(&[&["report", plain(folder), "-o", plain(&file)][..], more].concat());
    assert!(output.status.success(), "{}", errors(&output));
    let page = fs::read_to_string(&file).expect("it is written");
    assert!(page.len() <= PAGE_MAX, "{} bytes", page.len());
    well_formed(&page);
    page
}

/// Whether every element ends, in order, nothing is loaded, and nothing can run.
fn well_formed(page: &str) {
    let alone = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, words) =
            part.split_once('>').unwrap_or_else(|| panic!("no tag: {}", &part[..part.len().min(80)]));
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
        match (tag.starts_with('/'), tag.ends_with('/') || alone.contains(&name)) {
            (true, _) => {
                assert_eq!(open.pop(), Some(name), "before {}", &words[..words.floor_char_boundary(80)])
            }
            (false, true) => {}
            (false, false) => open.push(name),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
        let handler = tag.split_whitespace().skip(1).any(is_handler);
        assert!(!handler, "{tag}");
    }
    assert!(open.is_empty(), "{open:?} stay open");
    for wrong in ["<script", "javascript:", "<link", "<img", "@import", "url(", "NaN", "inf "] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    // The name of SVG is the only address in it.
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    assert!(page.contains("default-src 'none'"), "nothing may be loaded");
}

/// The rows of a table, each a list of its cells' text.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let start =
        page.find(&format!("<table id=\"{id}\">")).unwrap_or_else(|| panic!("there is no table {id}"));
    let table = &page[start..];
    let body = &table[table.find("<tbody>").expect("a body")..table.find("</table>").expect("an end")];
    let cells = |row: &str| {
        let cells = row.split("<td").skip(1);
        let text = |cell: &str| {
            let cell = cell.split_once('>').expect("a cell").1;
            cell[..cell.find("</td>").expect("its end")]
                .replace("<code>", "")
                .replace("</code>", "")
                .replace("&#39;", "'")
        };
        cells.map(text).collect()
    };
    body.split("<tr>").skip(1).map(cells).collect()
}

/// The number in a cell; `None` if it is unknown.
fn number(cell: &str) -> Option<u64> {
    (cell != "unknown")
        .then(|| cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{cell} is no number")))
}

/// The row of a table that begins with a name.
fn row(page: &str, id: &str, name: &str) -> Vec<String> {
    let all = rows(page, id);
    all.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
}

/// The answer, as text.
fn answer(page: &str) -> String {
    let start = page.find("<p class=\"answer\">").expect("an answer") + 18;
    let words = &page[start..];
    words[..words.find("</p>").expect("its end")].replace("<code>", "").replace("</code>", "")
}

/// A folder below a new one.
fn folder(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    (dir, path)
}
