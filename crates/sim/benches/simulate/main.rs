//! `cargo bench -p thermocline-sim`: how fast the machine is simulated, and in how much memory.
//!
//! 1. Exact mode over 50 million pages, uniform, with Thermocline's engine attached. The bar: at
//!    least 60 % of the rate of batched, prefetched random updates of an array with a byte a page,
//!    drawn by the same generator. The two alternate, so that whatever disturbs the machine
//!    disturbs both.
//! 2. Event mode at the published scale: `chunks-192g` under every manager, at most 1 GiB a run and
//!    the time of [`limit_s`] on one core.
//! 3. Growth with pages, 8 GiB to 4 TiB, and with faults: time, and memory of at most 12 bytes a
//!    page and 64 MiB.
//!
//! `cargo bench -p thermocline-sim -- exact` measures that part alone; the others are `scale` and
//! `growth`.
//!
//! Times are CPU times of one thread. Writes `results.json`, `sim-growth.svg` and `.png` to
//! `target/bench`; the exit status is 1 where a bar does not hold.

mod chart;
mod limit;
mod measure;
// The same table and the same results.json as the measurements of the engine.
#[path = "../../../core/benches/observe/report.rs"]
mod report;

use std::path::Path;
use std::process::ExitCode;

use report::{Bar, Failure, Figure};
use thermocline_sim::manager::ManagerName;

fn main() -> ExitCode {
    report::run(run)
}

fn run(folder: &Path) -> Result<bool, Failure> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|a| a == part);
    let mut figures = Vec::new();
    if wanted("scale") {
        figures.extend(published_scale()?);
    }
    if wanted("exact") {
        figures.extend(exact()?);
    }
    if wanted("growth") {
        figures.extend(growth(folder)?);
    }
    report::print(&figures);
    println!("\nwritten: {}", report::write(folder, &figures)?.display());
    Ok(figures.iter().all(Figure::holds))
}

/// `chunks-192g` in event mode.
fn published_scale() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for manager in ManagerName::all() {
        let manager = &*manager.text();
        let cost = measure::scenario("chunks-192g", &[], manager)?;
        let bar = |limit: f64, value: f64| (Some(limit), Some(value / limit));
        for (what, value, unit, (reference, ratio)) in [
            ("time", cost.seconds, "s", bar(limit_s(manager), cost.seconds)),
            ("memory", cost.bytes, "bytes", bar((1u64 << 30) as f64, cost.bytes)),
        ] {
            let name = format!("sim: chunks-192g under {manager}, {what}");
            figures.push(Figure { name, value, unit, reference, ratio, bar: Some(Bar::AtMost(1.0)) });
        }
    }
    Ok(figures)
}

/// What a run of `chunks-192g` may take in s. The manager that others are compared with and the
/// default rule are held to what they should take; the others to about twice what they took when
/// the limit was set, so that a run that becomes slower shows.
fn limit_s(manager: &str) -> f64 {
    match manager {
        "numab2" => 2.0,
        "thermocline:adaptive" => 3.0,
        // Moves nearly everything that is accessed.
        "thermocline:regions" => 20.0,
        "numab1" => 8.0,
        ours if ours.starts_with("thermocline:") => 8.0,
        _ => 4.0,
    }
}

/// Exact mode beside its limit.
fn exact() -> Result<Vec<Figure>, Failure> {
    let (mut simulated, mut bytes, mut words) = (Vec::new(), Vec::new(), Vec::new());
    let mut array = limit::array::<u8>();
    let mut wide = limit::array::<u64>();
    for _ in 0..5 {
        bytes.push(limit::update(&mut array));
        simulated.push(measure::exact_ns_per_access()?);
        words.push(limit::update(&mut wide));
    }
    let (simulated, bytes, words) =
        (measure::median(simulated), measure::median(bytes), measure::median(words));
    let figure = |name: &str, reference: f64, bar| Figure {
        name: name.to_owned(),
        value: simulated,
        unit: "ns/access",
        reference: Some(reference),
        ratio: Some(reference / simulated),
        bar,
    };
    Ok(vec![
        figure("sim: exact mode, 50 M pages, engine attached", bytes, Some(Bar::AtLeast(0.6))),
        figure("sim: the same beside an array of 8 bytes a page", words, None),
    ])
}

/// Time and memory as sizes grow.
fn growth(folder: &Path) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let mut by_pages = Vec::new();
    for gib in [8u64, 32, 128, 512, 1024, 2048, 4096] {
        let cost = measure::of_size(gib, 8)?;
        let pages = (gib << 18) as f64;
        by_pages.push((gib as f64, cost));
        figures.push(Figure::plain(format!("sim growth: {gib} GiB, time"), cost.seconds, "s"));
        let allowed = 12.0 * pages + (64 << 20) as f64;
        figures.push(Figure {
            name: format!("sim growth: {gib} GiB, memory"),
            value: cost.bytes,
            unit: "bytes",
            reference: Some(allowed),
            ratio: Some(cost.bytes / allowed),
            bar: Some(Bar::AtMost(1.0)),
        });
    }
    // From a size at which the time is no longer only that of starting.
    let per_page = |(gib, cost): &(f64, measure::Cost)| cost.seconds / gib;
    figures.push(linear(
        "sim growth: time a page, 128 GiB to 4 TiB",
        per_page(&by_pages[2]),
        per_page(&by_pages[6]),
    ));
    let mut by_faults = Vec::new();
    for visits in [16u64, 64, 256, 1024] {
        let cost = measure::of_size(64, visits)?;
        by_faults.push((cost.faults, cost));
        figures.push(Figure::plain(format!("sim growth: {visits} visits, time"), cost.seconds, "s"));
    }
    let per_fault = |a: &measure::Cost, b: &measure::Cost| (b.seconds - a.seconds) / (b.faults - a.faults);
    figures.push(linear(
        "sim growth: time a fault, from 64 to 1024 visits",
        per_fault(&by_faults[0].1, &by_faults[1].1),
        per_fault(&by_faults[2].1, &by_faults[3].1),
    ));
    report::written(&chart::draw(folder, &by_pages, &by_faults)?);
    Ok(figures)
}

/// What something costs at a large size beside what it costs at a small one: half as much again is
/// noise and caches.
fn linear(name: &str, small: f64, large: f64) -> Figure {
    Figure {
        name: name.to_owned(),
        value: large * 1e6,
        unit: "us",
        reference: Some(small * 1e6),
        ratio: Some(large / small),
        bar: Some(Bar::AtMost(1.5)),
    }
}
