//! The answer as text, and as a picture.

use std::fmt::Write as _;

use thermocline_core::units::PAGE_SIZE;
use thermocline_sim::picture::{Planned, Spot};
use thermocline_trace::plan::{Band, Open, Point};

use super::Answer;
use crate::words::bytes;

/// The answer for people: a sentence, a table, the assumptions.
pub fn text(answer: &Answer) -> String {
    let mut out = format!("{}\n\n", sentence(answer));
    let _ = writeln!(out, "      DRAM  of memory  accesses served by DRAM, %  time, against all in DRAM");
    for point in &answer.points {
        let share = point.dram_pages as f64 * PAGE_SIZE as f64 / answer.memory.seen as f64;
        let _ = writeln!(
            out,
            "{:>10}  {:>7.0} %  {:>26}  {:>25}",
            bytes(point.dram_pages * PAGE_SIZE),
            share * 100.0,
            cell(point.share, 100.0, 1),
            cell(point.slowdown, 1.0, 3),
        );
    }
    if let Some(open) = answer.open {
        let _ = writeln!(out, "\n{}", why(open, answer));
    }
    let _ = writeln!(
        out,
        "\nIf the program waits for memory for another share of its time, a loss of {} needs",
        percent(answer.question.loss)
    );
    for other in &answer.others {
        let _ = writeln!(
            out,
            "  {:>4}  {}",
            percent(other.memory_bound),
            dram(other.dram, answer.memory.seen).trim_end_matches(',')
        );
    }
    let _ = writeln!(
        out,
        "\nEvidence: {}, of {}{}",
        evidence(answer),
        bytes(answer.memory.seen),
        rate(answer.accesses_per_s)
    );
    out += "Assumed:\n";
    for assumption in &answer.assumptions {
        let _ = writeln!(out, "- {assumption}");
    }
    for note in &answer.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// The source, and how long it was recorded.
fn evidence(answer: &Answer) -> String {
    match answer.seconds {
        Some(seconds) => format!("{} over {seconds:.0} s", answer.source),
        None => answer.source.to_owned(),
    }
}

fn rate(accesses: Band) -> String {
    match (accesses.low, accesses.likely) {
        (_, Some(likely)) => format!("; about {likely:.3e} accesses a second"),
        (Some(low), None) => format!("; at least {low:.3e} accesses a second"),
        _ => String::new(),
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (percent - percent.round()).abs() < 1e-6 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// The answer in one sentence.
pub fn sentence(answer: &Answer) -> String {
    let (loss, seen) = (percent(answer.question.loss), answer.memory.seen);
    let bound = percent(answer.question.memory_bound);
    let given = if answer.memory_bound_given { "" } else { " (assumed)" };
    if answer.share_needed <= 0.0 {
        return format!(
            "{}: no DRAM is needed for a loss within {loss}: waiting for memory {bound} of the time{given}, \
             the program is at most {} slower",
            answer.recording,
            percent(answer.question.slowdown(0.0) - 1.0)
        );
    }
    format!(
        "{}: {} of the {} seen keep the loss within {loss}, if the program waits for memory {bound} of its \
         time{given} and pages are placed at best",
        answer.recording,
        dram(answer.smallest, seen),
        bytes(seen),
    )
}

/// DRAM, with its band.
fn dram(dram: Band, seen: u64) -> String {
    let size = |value: f64| format!("{} ({:.0} %)", bytes(value as u64), value / seen.max(1) as f64 * 100.0);
    match (dram.likely, dram.low, dram.high) {
        (_, Some(low), Some(high)) if high <= low => format!("{} of DRAM", size(high)),
        (Some(likely), Some(low), Some(high)) => {
            format!("{} of DRAM, by the evidence {} to {},", size(likely), bytes(low as u64), size(high))
        }
        (_, _, Some(high)) => {
            format!("{} of DRAM, or less by as much as the evidence cannot tell,", size(high))
        }
        _ => "all of it".to_owned(),
    }
}

/// A value with its band, as `92.1 (91.0 to 93.2)`.
fn cell(band: Band, factor: f64, digits: usize) -> String {
    let number = |value: f64| format!("{:.digits$}", value * factor);
    match (band.low, band.likely, band.high) {
        (Some(low), _, Some(high)) if number(low) == number(high) => number(low),
        (Some(low), Some(likely), Some(high)) => {
            format!("{} ({} to {})", number(likely), number(low), number(high))
        }
        (Some(low), Some(likely), None) => format!("{} ({} or more)", number(likely), number(low)),
        (None, Some(likely), Some(high)) => format!("{} ({} or less)", number(likely), number(high)),
        (Some(low), None, None) => format!("{} or more", number(low)),
        (None, None, Some(high)) => format!("{} or less", number(high)),
        _ => "unknown".to_owned(),
    }
}

fn why(open: Open, answer: &Answer) -> String {
    match open {
        Open::Reach { per_s, pages } => format!(
            "More may be served than the table says: about {} have more than {per_s:.0} accesses a second a \
             page, and {} cannot tell how many.",
            bytes((pages * PAGE_SIZE as f64) as u64),
            answer.source
        ),
        Open::Regions => {
            "More may be served than the table says: pages of a region are not told apart.".to_owned()
        }
    }
}

/// The answer as a picture.
pub fn picture(answer: &Answer) -> Planned {
    let seen = answer.memory.seen.max(1) as f64;
    let spot = |point: &Point, of: &dyn Fn(&Point) -> Band| {
        let Band { low, likely, high } = of(point);
        Spot { dram: point.dram_pages as f64 * PAGE_SIZE as f64 / seen, low, likely, high }
    };
    let of = |of: &dyn Fn(&Point) -> Band| answer.points.iter().map(|point| spot(point, of)).collect();
    let slowest = answer.question.slowdown(0.0).max(1.0 + answer.question.loss).max(1.01);
    let needed = (answer.share_needed > 0.0).then_some(answer.smallest.high).flatten();
    let [fast, slow] = answer.question.latency_ns;
    let mut notes = vec![format!(
        "Evidence: {}. Memory: {} of {fast:.0} and {slow:.0} ns; the program waits for it {} \
         of its time with all in DRAM{}.",
        evidence(answer),
        bytes(answer.memory.seen),
        percent(answer.question.memory_bound),
        if answer.memory_bound_given { "" } else { " (assumed)" },
    )];
    notes.extend(answer.open.map(|open| why(open, answer)));
    if answer.memory.dark > 0 {
        notes.push(format!(
            "Not drawn: {} in use that {} cannot see.",
            bytes(answer.memory.dark),
            answer.source
        ));
    }
    let loss = percent(answer.question.loss);
    let title = match needed {
        Some(_) => {
            let dram = dram(answer.smallest, answer.memory.seen);
            format!("{}: {dram} keep the loss within {loss}", answer.recording)
        }
        None => format!("{}: no DRAM is needed for a loss within {loss}", answer.recording),
    };
    Planned {
        title,
        notes,
        memory: format!("% of {}", bytes(answer.memory.seen)),
        share: of(&|point| point.share),
        slowdown: of(&|point| point.slowdown),
        slowest,
        wanted: 1.0 + answer.question.loss,
        enough: needed.map(|high| high / seen),
    }
}
