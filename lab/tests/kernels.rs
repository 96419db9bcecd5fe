//! The book's table of kernels is what the doctor says on each of them.

#![allow(clippy::unwrap_used)]

mod soak;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use soak::where_time_is_no_matter;
use thermocline_lab::{Guest, Line};

/// The book's chapter, and what is before and behind its table.
const CHAPTER: &str = include_str!("../../docs/src/kernels.md");

/// What a kernel answered.
struct Answers {
    folder: PathBuf,
}

impl Answers {
    fn report(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.folder.join(format!("report-{name}"))).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"))
    }

    fn fact(&self, name: &str) -> bool {
        std::fs::read_to_string(self.folder.join("facts")).unwrap().lines().any(|line| line == name)
    }

    fn has_tiers(&self) -> bool {
        self.report("default")["topology"]["kernel_tiers"].as_array().unwrap().len() > 1
    }

    fn source(&self, report: &str, name: &str) -> Value {
        let report = self.report(report);
        report["sources"].as_array().unwrap().iter().find(|source| source["name"] == name).unwrap().clone()
    }

    fn reads(&self, report: &str, source: &str) -> bool {
        self.source(report, source)["status"] == "usable"
    }

    fn manages(&self, report: &str, name: &str) -> bool {
        let report = self.report(report);
        let managers = report["managers"].as_array().unwrap();
        managers.iter().find(|manager| manager["name"] == name).unwrap()["usable"] == true
    }

    fn demotes(&self, report: &str) -> bool {
        let report = self.report(report);
        !report["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == "demotion.none")
    }
}

/// `yes`, or `so` where it is only so, or `no`.
fn either(at_once: bool, otherwise: bool, so: &str) -> String {
    match (at_once, otherwise) {
        (true, _) => "yes".to_owned(),
        (false, true) => so.to_owned(),
        (false, false) => "no".to_owned(),
    }
}

const ALONE: &str = "with `stop_damon_stat`";

/// A row of the table: what it is called, and its cell for a kernel.
type Row = (&'static str, fn(&Answers) -> String);

const ROWS: [Row; 10] = [
    ("[tiers](doctor.md#all-nodes-in-one-tier) from", |a| {
        match (a.has_tiers(), a.fact("dax")) {
            (true, false) => "HMAT, CDAT",
            (true, true) => "dax devices alone",
            (false, _) => "nothing",
        }
        .to_owned()
    }),
    ("[hint faults](sources.md), seen in", |a| {
        let source = a.source("default", "hintfault");
        let function = source["attach_points"][0]["name"].as_str().unwrap_or_default();
        if source["status"] == "usable" { format!("`{function}`") } else { "no".to_owned() }
    }),
    ("[DAMON's regions](sources.md#damons-regions)", |a| {
        either(a.reads("source", "damon"), a.reads("source-alone", "damon"), ALONE)
    }),
    ("[demotion](demotion.md#how-it-is-done) by generations", |a| {
        either(a.demotes("generations"), a.demotes("generations-on"), "once switched on")
    }),
    ("demotion by DAMON's regions", |a| either(a.demotes("regions"), a.demotes("regions-alone"), ALONE)),
    ("demotion by the node", |a| either(a.demotes("node"), false, "")),
    ("demotion on request counted apart", |a| either(a.fact("pgdemote_proactive"), false, "")),
    ("[manager](managers.md) `numab2`", |a| either(a.manages("default", "numab2"), false, "")),
    ("manager `damon` (`migrate_hot`, `migrate_cold`)", |a| {
        either(a.manages("manager", "damon"), a.manages("manager-alone", "damon"), ALONE)
    }),
    ("manager `damon` for some [cgroups](managers.md#cgroups)", |a| {
        either(a.manages("cgroups", "damon"), a.manages("cgroup", "damon"), "for one")
    }),
];

/// The cells of the table's line that begins with `name`.
fn cells(name: &str) -> Vec<&'static str> {
    let mut lines = CHAPTER.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let line = lines.find(|line| line.split(" | ").next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("docs/src/kernels.md has no row `{name}`"));
    line.split(" | ").skip(1).collect()
}

#[test]
fn the_books_table_has_every_line_and_every_feature() {
    assert_eq!(cells("line of the lab"), Line::ALL.map(|line| format!("`{line}`")));
    for (name, _) in &ROWS {
        assert_eq!(cells(name).len(), Line::ALL.len(), "{name}");
    }
    assert_eq!(cells("kernel").len(), Line::ALL.len());
}

/// Boots a line and asks.
fn ask(line: Line, folder: &Path) -> Option<Answers> {
    let thermocline =
        Path::new(env!("CARGO_BIN_EXE_lab")).ancestors().nth(2).unwrap().join("release/thermocline");
    let guest = Guest::builder()
        .kernel(line)
        .timeout(Some(Duration::from_secs(200)))
        .share(folder)
        .env("THERMOCLINE", thermocline.to_str().unwrap());
    let outcome = match guest.run(include_str!("kernels.sh")) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            println!("skipped: {error}");
            return None;
        }
        outcome => outcome.unwrap(),
    };
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    println!("{line}: {} in {:.0} s", outcome.release, outcome.total.as_secs_f64());
    Some(Answers { folder: folder.to_owned() })
}

#[test]
fn the_books_table_is_what_the_doctor_says() {
    where_time_is_no_matter(|| {
        let mut wrong = Vec::new();
        for (column, line) in Line::ALL.into_iter().enumerate() {
            let share = tempfile::Builder::new().prefix("kernels").tempdir_in("/tmp").unwrap();
            let Some(answers) = ask(line, share.path()) else { continue };
            for (name, cell) in &ROWS {
                let (book, so) = (cells(name)[column], cell(&answers));
                println!("{line}: {name}: {so}");
                if book != so {
                    wrong.push(format!("{name}, {line}: `{so}`, where the book has `{book}`"));
                }
            }
        }
        assert!(wrong.is_empty(), "docs/src/kernels.md: {}", wrong.join("; "));
    });
}
