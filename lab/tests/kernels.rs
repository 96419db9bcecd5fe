//! The book's table of kernels agrees with what the doctor says on each kernel.
//!
//! `BLESS=1` rewrites the table.

#![allow(clippy::unwrap_used)]

mod soak;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use soak::where_time_is_no_matter;
use thermocline_lab::{Guest, Line};

/// The book's chapter.
const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/kernels.md");
const BLESS: &str =
    "BLESS=1 THERMOCLINE_SOAK=1 cargo test --release -p thermocline-lab --test kernels -- --nocapture";
/// Where the generated part begins and ends.
const START: &str = "<!-- kernels -->\n";
const END: &str = "<!-- /kernels -->\n";

/// What a kernel answered.
struct Answers {
    release: String,
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

/// `yes` if it works at once, `so` if it works otherwise, else `no`.
fn either(at_once: bool, otherwise: bool, so: &str) -> String {
    match (at_once, otherwise) {
        (true, _) => "yes".to_owned(),
        (false, true) => so.to_owned(),
        (false, false) => "no".to_owned(),
    }
}

const ALONE: &str = "with `stop_damon_stat`";

/// A row of the table: its name, and its cell for a kernel.
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

/// The chapter in three parts: the text before the table, the table, the text after it.
fn chapter() -> [String; 3] {
    let text = std::fs::read_to_string(CHAPTER).unwrap();
    let (before, rest) = text.split_once(START).expect("the chapter has the first marker");
    let (table, behind) = rest.split_once(END).expect("the chapter has the second marker");
    [before, table, behind].map(str::to_owned)
}

/// The cells of the row that begins with `name`.
fn cells(table: &str, name: &str) -> Vec<String> {
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let row = rows.find(|row| row.split(" | ").next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("docs/src/kernels.md has no row `{name}`: {BLESS}"));
    row.split(" | ").skip(1).map(str::to_owned).collect()
}

/// The rows that identify kernels, before those of their features.
const KERNEL: &str = "kernel";
const LINE: &str = "line of the lab";

fn names_of_lines() -> Vec<String> {
    Line::ALL.iter().map(|line| format!("`{line}`")).collect()
}

fn table(releases: &[String], features: &[Vec<String>]) -> String {
    let row = |name: &str, cells: &[String]| format!("| {name} | {} |\n", cells.join(" | "));
    let mut table = row(KERNEL, releases) + "|---|" + &"---|".repeat(releases.len()) + "\n";
    table += &row(LINE, &names_of_lines());
    ROWS.iter().zip(features).fold(table, |table, ((name, _), cells)| table + &row(name, cells))
}

#[test]
fn the_books_table_has_every_line_and_every_feature() {
    let [_, book, _] = chapter();
    let features: Vec<_> = ROWS.iter().map(|(name, _)| cells(&book, name)).collect();
    assert_eq!(book, table(&cells(&book, KERNEL), &features), "docs/src/kernels.md is stale: {BLESS}");
    assert!(features.iter().all(|cells| cells.len() == Line::ALL.len()), "a kernel has no cell: {BLESS}");
}

/// Boots a line and runs the doctor.
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
    Some(Answers { release: outcome.release, folder: folder.to_owned() })
}

#[test]
fn the_books_table_is_what_the_doctor_says() {
    where_time_is_no_matter(|| {
        let [before, book, behind] = chapter();
        let mut releases = Vec::new();
        let mut features = vec![Vec::new(); ROWS.len()];
        for line in Line::ALL {
            let share = tempfile::Builder::new().prefix("kernels").tempdir_in("/tmp").unwrap();
            let Some(answers) = ask(line, share.path()) else { return };
            releases.push(answers.release.trim_end_matches("-amd64").to_owned());
            for (cells, (_, cell)) in features.iter_mut().zip(&ROWS) {
                cells.push(cell(&answers));
            }
        }
        println!("{}", table(&releases, &features));
        if std::env::var_os("BLESS").is_some() {
            let fresh = [&before, START, &table(&releases, &features), END, &behind].concat();
            return std::fs::write(CHAPTER, fresh).unwrap();
        }
        // A newer Debian kernel does not make the rest of the table untrue.
        let so = table(&cells(&book, KERNEL), &features);
        assert_eq!(book, so, "docs/src/kernels.md is stale; refresh it with: {BLESS}");
    });
}
