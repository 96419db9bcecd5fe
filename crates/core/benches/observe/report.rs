//! What measurements share: how they begin, and their results: a table for people, `results.json`
//! for machines, pictures.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

/// Why there are no results.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Measures, with `target/bench`, wherever cargo builds, to write to. `measure` says whether every
/// bar holds.
pub(crate) fn run(measure: impl FnOnce(&Path) -> Result<bool, Failure>) -> ExitCode {
    // `cargo test --benches` asks for nothing to be measured; only `cargo bench` gives this.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("skipped: a measurement of minutes and gigabytes; run cargo bench");
        return ExitCode::SUCCESS;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target").into());
    let folder = target.join("bench");
    let made = std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()).into());
    match made.and_then(|()| measure(&folder)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes a PNG of an SVG where rsvg-convert is installed, and says what is written.
pub(crate) fn written(svg: &Path) {
    println!("written: {}", svg.display());
    let png = svg.with_extension("png");
    let converted = Command::new("rsvg-convert").arg("-o").arg(&png).arg(svg).status();
    if converted.is_ok_and(|s| s.success()) {
        println!("written: {}", png.display());
    }
}

/// One figure.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it is compared with, in the same unit.
    pub(crate) reference: Option<f64>,
    /// How they compare: the share of the reference's rate that is reached, or of its amount that
    /// is used.
    pub(crate) ratio: Option<f64>,
    /// What the ratio has to be.
    pub(crate) bar: Option<Bar>,
}

/// A limit on a ratio.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    /// A figure without anything to compare it with.
    pub(crate) fn plain(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit, reference: None, ratio: None, bar: None }
    }

    /// Whether the bar holds; without a bar nothing can fail.
    pub(crate) fn holds(&self) -> bool {
        match (self.ratio, self.bar) {
            (Some(ratio), Some(Bar::AtLeast(limit))) => ratio >= limit,
            (Some(ratio), Some(Bar::AtMost(limit))) => ratio <= limit,
            (None, Some(_)) => false,
            (_, None) => true,
        }
    }

    fn bar_text(&self) -> Option<String> {
        self.bar.map(|bar| match bar {
            Bar::AtLeast(limit) => format!(">= {limit}"),
            Bar::AtMost(limit) => format!("<= {limit}"),
        })
    }

    fn json(&self) -> Value {
        let holds = self.bar.map(|_| self.holds());
        json!({
            "name": self.name, "value": self.value, "unit": self.unit, "reference": self.reference,
            "ratio": self.ratio, "bar": self.bar_text(), "holds": holds,
        })
    }
}

/// Prints the figures.
pub(crate) fn print(figures: &[Figure]) {
    let number = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.2}"));
    println!(
        "{:<46} {:>14} {:<9} {:>14} {:>6} {:>7}  holds",
        "figure", "value", "unit", "reference", "ratio", "bar"
    );
    for figure in figures {
        println!(
            "{:<46} {:>14} {:<9} {:>14} {:>6} {:>7}  {}",
            figure.name,
            number(Some(figure.value)),
            figure.unit,
            number(figure.reference),
            number(figure.ratio),
            figure.bar_text().unwrap_or_else(|| "-".to_owned()),
            figure.bar.map_or("-", |_| if figure.holds() { "yes" } else { "NO" }),
        );
    }
}

/// Puts the figures into `results.json` in `folder`, in place of those with the same names; others
/// stay.
pub(crate) fn write(folder: &Path, figures: &[Figure]) -> std::io::Result<PathBuf> {
    let path = folder.join("results.json");
    let mut list = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    list.retain(|old| !figures.iter().any(|new| old["name"] == new.name.as_str()));
    list.extend(figures.iter().map(Figure::json));
    std::fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")?;
    Ok(path)
}
