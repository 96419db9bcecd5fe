//! Fits the distribution of rates to evidence.

use super::EPOCHS_MAX;
use super::Heat;
use super::evidence::{Count, Evidence};
use super::mixture::Cells;

/// The evidence with fewer epochs.
fn merged(evidence: &Evidence, epochs: usize) -> Evidence {
    let each = evidence.epochs / epochs;
    let sum = |counts: &[Count]| counts.iter().fold(Count::default(), |sum, count| sum.plus(*count));
    let counts = evidence.counts.chunks(each).map(sum).collect();
    Evidence { counts, epochs, ..evidence.clone() }
}

/// Fits the distribution of rates; with the number of epochs under which the evidence is most
/// probable, where it is not given.
pub(super) fn fitted(evidence: &Evidence, epochs: Option<usize>) -> Heat {
    let numbers: Vec<usize> = match epochs {
        Some(number) => vec![number.clamp(1, EPOCHS_MAX).next_power_of_two()],
        None => vec![1, 2, 4, 8],
    };
    let one = |number: usize| {
        let evidence = merged(evidence, number);
        let epochs = number as f64;
        let silent = Count { hits: 0.0, quiet_s: evidence.silent.quiet_s / epochs };
        let counts: Vec<(Count, f64)> = evidence.counts.iter().map(|count| (*count, 1.0)).collect();
        let counts = [counts, vec![(silent, evidence.silent_pages as f64 * epochs)]].concat();
        let cells = Cells::new(&counts, evidence.check_s);
        let mixture = cells.fit();
        let probability = cells.evidence(&mixture);
        (
            probability,
            Heat {
                evidence,
                cells,
                mixture,
                halves: Default::default(),
                spectrum: None,
                seen: [0; 2],
                notes: Vec::new(),
            },
        )
    };
    let mut best = one(numbers[0]);
    for number in &numbers[1..] {
        let other = one(*number);
        if other.0 > best.0 {
            best = other;
        }
    }
    Heat { halves: halves(evidence), ..best.1 }
}

/// The mean rates by each half of the evidence.
fn halves(evidence: &Evidence) -> [Vec<f64>; 2] {
    let silent = Count { hits: 0.0, quiet_s: evidence.silent.quiet_s / 2.0 };
    let of = |half: usize| {
        let counts = evidence.halves.iter().map(move |halves| (halves[half], 1.0));
        counts.chain([(silent, evidence.silent_pages as f64)])
    };
    let cells = Cells::new(&of(0).chain(of(1)).collect::<Vec<_>>(), evidence.check_s);
    let means = cells.means(&cells.fit());
    let (first, second) = means.split_at(evidence.units.len() + 1);
    let whole = |means: &[f64]| {
        let rate = |(number, mean): (usize, &f64)| match evidence.units.get(number) {
            Some(unit) if evidence.by_page => mean * f64::from(unit.pages),
            _ => *mean,
        };
        means.iter().enumerate().map(rate).collect()
    };
    [whole(first), whole(second)]
}
