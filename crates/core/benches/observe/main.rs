//! `cargo bench -p thermocline-core --bench observe`: how fast accesses are observed, and in how
//! much memory.
//!
//! One terabyte of pages (256 Mi), accessed in random order, in batches of 512. *Observing* is the
//! way of every access: frame look-up, record, rule `frequency`; 1 % become candidates. The bar: at
//! least half the rate of batched, prefetched read-modify-writes to an array of the same size that
//! the same batches drive. Both times include making the batches. The two alternate, so that
//! whatever disturbs the machine disturbs both. The whole engine, with admission, queue, journal
//! and moves, has limits in ns, for a core of 2026. Writes `results.json`, `growth.svg` and
//! `growth.png` to `target/bench`; the exit status is 1 where a bar does not hold.

mod array;
mod chart;
mod clock;
mod growth;
mod machine;
mod report;
mod source;

use std::path::Path;
use std::process::ExitCode;

use thermocline_core::config::RecordLayout;

use crate::array::{Slot, array, change, change_by_number};
use crate::clock::{median, ns_per_access};
use crate::machine::{Observer, engine, show_and_move, window};
use crate::report::{Bar, Failure, Figure};
use crate::source::{BATCH, SEED, Source};

/// Pages of one TiB.
const PAGES: u64 = 1 << 28;
/// Batches in a round: long enough that every section of `byte` is given a later base in each.
const ROUND: u64 = 1 << 15;
const ROUNDS: usize = 12;
/// Limits of the whole engine in ns: for an access that is observed, and for a page that is moved.
const ACCESS_NS: f64 = 27.0;
const MOVE_NS: f64 = 600.0;
/// Bytes that the records may take besides those for each page.
const FIXED_BYTES: f64 = (8 << 20) as f64;

fn main() -> ExitCode {
    report::run(run)
}

fn run(folder: &Path) -> Result<bool, Failure> {
    println!("observing random accesses to 256 Mi pages, seed {SEED}; CPU time, {ROUNDS} rounds\n");
    let mut figures = measure::<u8>("byte", RecordLayout::Byte, 1.1);
    figures.extend(measure::<u32>("word", RecordLayout::Word, 4.1));
    let byte: Vec<_> = growth::SIZES_GIB.map(|gib| growth::at_size::<u8>(RecordLayout::Byte, gib)).into();
    let word: Vec<_> = growth::SIZES_GIB.map(|gib| growth::at_size::<u32>(RecordLayout::Word, gib)).into();
    let queued: Vec<_> = growth::QUEUED.map(|n| (n, growth::at_queue(n))).into();
    for (name, points) in [("byte", &byte), ("word", &word)] {
        for p in points {
            figures.push(Figure {
                name: format!("growth: observe {name}, {} GiB", p.gib),
                value: p.observe_ns,
                unit: "ns/access",
                reference: Some(p.array_ns),
                ratio: Some(p.array_ns / p.observe_ns),
                bar: None,
            });
            figures.push(Figure::plain(
                format!("growth: {name} memory, {} GiB", p.gib),
                p.bytes as f64,
                "bytes",
            ));
        }
    }
    figures.extend(
        queued.iter().map(|(n, ns)| Figure::plain(format!("growth: engine, {n} queued"), *ns, "ns/access")),
    );
    report::print(&figures);
    let results = report::write(folder, &figures)?;
    println!("\nwritten: {}", results.display());
    report::written(&chart::draw(folder, &byte, &word, &queued)?);
    Ok(figures.iter().all(Figure::holds))
}

/// Rate and memory of one layout.
fn measure<T: Slot>(name: &str, layout: RecordLayout, bytes_per_page: f64) -> Vec<Figure> {
    let mut observer = Observer::new(layout, PAGES);
    let mut source = Source::new(PAGES, window());
    let bytes = growth::fill(&mut observer, &mut source, PAGES) as f64;
    let allowed = bytes_per_page * PAGES as f64 + FIXED_BYTES;

    let mut array = array::<T>(PAGES);
    let mut array_source = Source::new(PAGES, window());
    observer.candidates = 0;
    let (mut observed, mut changed, mut numbered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        changed.push(ns_per_access(ROUND, |n| change(&mut array, &mut array_source, n)));
        observed.push(ns_per_access(ROUND, |n| observer.observe(&mut source, n)));
        numbered.push(ns_per_access(ROUND, |n| change_by_number(&mut array, &mut array_source, n)));
    }
    let share = observer.candidates as f64 / (ROUNDS as u64 * ROUND * BATCH) as f64;
    drop((observer, array));

    // The sum and not only the middle: a sweep that falls into few rounds is paid for as well.
    let of_totals = changed.iter().sum::<f64>() / observed.iter().sum::<f64>();
    let of_rounds = median(changed.iter().zip(&observed).map(|(c, o)| c / o).collect());
    let number_ns = median(numbered);
    let observe_ns = observed.iter().sum::<f64>() / ROUNDS as f64;
    let figure = |name: String, value, reference, bar| Figure {
        name,
        value,
        unit: "ns/access",
        reference: Some(reference),
        ratio: Some(reference / value),
        bar,
    };
    let mut figures = vec![
        Figure {
            ratio: Some(of_totals.min(of_rounds)),
            ..figure(format!("observe {name}"), observe_ns, median(changed), Some(Bar::AtLeast(0.5)))
        },
        figure(format!("observe {name}, array driven by bare numbers"), observe_ns, number_ns, None),
        Figure::plain(format!("observe {name}: become candidates"), share * 100.0, "%"),
        Figure {
            name: format!("{name}: memory for 256 Mi pages"),
            value: bytes,
            unit: "bytes",
            reference: Some(allowed),
            ratio: Some(bytes / allowed),
            bar: Some(Bar::AtMost(1.0)),
        },
    ];
    figures.extend(whole_engine(name, layout));
    figures
}

/// The same accesses through the whole engine, with admission, queue, journal and moves.
fn whole_engine(name: &str, layout: RecordLayout) -> Vec<Figure> {
    let mut engine = engine(layout, PAGES, thermocline_core::config::Queue::default().capacity);
    let mut source = Source::new(PAGES, window());
    show_and_move(&mut engine, &mut source, ROUND);
    let moved = engine.counters().moved;
    let mut moving = 0.0;
    let all = ns_per_access(4 * ROUND, |n| moving = show_and_move(&mut engine, &mut source, n));
    let moved = (engine.counters().moved - moved) as f64;
    let per_access = all - moving / (4 * ROUND * BATCH) as f64;
    let within = |name: String, value: f64, unit, limit: f64| Figure {
        name,
        value,
        unit,
        reference: Some(limit),
        ratio: Some(value / limit),
        bar: Some(Bar::AtMost(1.0)),
    };
    let access = format!("engine, {name}: with admission, queue, journal");
    let outcome = format!("engine, {name}: ticks and outcomes");
    vec![
        within(access, per_access, "ns/access", ACCESS_NS),
        within(outcome, moving / moved, "ns/move", MOVE_NS),
    ]
}
