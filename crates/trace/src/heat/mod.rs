//! How hot each page was: accesses a second, by epoch, from recorded evidence, with what is not
//! known of it.
//!
//! ```text
//!  recording ─▶ collect ─▶ waits | samples | regions ─▶ Evidence ─▶ fit ─▶ Heat ─▶ Drawn
//! ```
//!
//! * Each source becomes [`Evidence`]: for each unit of memory, accesses found, and time in which
//!   one would have been found and was not. One source is used for a recording.
//! * Accesses of a unit are taken to come at random times, at a rate that is constant in an epoch.
//! * How rates are distributed over memory is estimated first ([`mixture`]); a unit's own counts
//!   then say which of these rates it may have. [`Heat::draw`] draws one of them for each: a
//!   picture of memory as it may have been. The difference between several of them is what the
//!   evidence leaves open.
//! * Rates above [`Evidence::reach`] are alike to the source.
//! * Units of regions hold pages of different rates. How these are distributed is told by checks of
//!   several lengths ([`Spectrum`]), where a recording has them.
//! * Whether heat changed during the recording is decided by the evidence: among 1, 2, 4 and 8
//!   epochs those are taken under which the counts are most probable.

pub mod band;
pub mod collect;
mod epochs;
mod evidence;
mod fit;
pub mod mixture;
mod passes;
mod random;
mod regions;
mod samples;
mod spectrum;
mod waits;

pub use evidence::{Count, Evidence, HeatSource, Unit};
pub use spectrum::{Checks, Extremes, Spectrum};

use thermocline_core::config::Config;
use thermocline_core::rule;
use thermocline_core::units::Nanos;

use crate::reader::Recording;
use collect::{Collected, collect};
use epochs::Epochs;
use fit::fitted;
use mixture::{Cells, Mixture};
use random::Random;

/// Epochs that are told apart, at most.
pub const EPOCHS_MAX: usize = 8;
/// How exactly marks are timed in simulated recordings: marks are kept in units of 2^16 ns.
const SIMULATED_CHECK: Nanos = Nanos(1 << 16);
/// The same for real machines: the mark of a page is the time at which the scan reached its 2 MiB.
const LIVE_CHECK: Nanos = Nanos(1_000_000);

/// Why heat cannot be estimated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeatError {
    /// There is no time in it.
    #[error("it covers no time: it has fewer than two steps; record for longer")]
    Empty,
    /// There is no evidence of the source.
    #[error(
        "it has no evidence of {}; {}",
        .source_wanted.map_or("accesses", HeatSource::text),
        .has
    )]
    NoEvidence {
        /// The source that was asked for.
        source_wanted: Option<HeatSource>,
        /// What it has instead, and what to do.
        has: String,
    },
}

/// What to estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The source; the one that sees most by default.
    pub source: Option<HeatSource>,
    /// How many epochs; what the evidence speaks for by default.
    pub epochs: Option<usize>,
}

/// The heat of a recording. See the module's description.
#[derive(Clone, Debug)]
pub struct Heat {
    evidence: Evidence,
    cells: Cells,
    mixture: Mixture,
    /// For each unit, its mean rate by each half of the evidence; then that of each silent page.
    halves: [Vec<f64>; 2],
    spectrum: Option<Spectrum>,
    seen: [u64; 2],
    notes: Vec<String>,
}

/// Rates that memory may have had.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// For each unit, its rate in each epoch: accesses a second to all its pages.
    pub rates: Vec<f64>,
    /// For each unit, whether its rate in some epoch is one above which rates are alike.
    pub capped: Vec<bool>,
    /// Pages that were silent, and the rate of each of them, in accesses a second.
    pub silent: Vec<(f64, f64)>,
}

/// Estimates the heat of a recording.
///
/// # Errors
/// It has no evidence that heat can be estimated from.
pub fn estimate(recording: &Recording, options: Options) -> Result<Heat, HeatError> {
    let collected = collect(recording);
    let config = recording.config().ok();
    let restamps = config.as_ref().is_some_and(restamps);
    let check = match recording.setting("clock") {
        Some("simulated") => SIMULATED_CHECK,
        _ => LIVE_CHECK,
    };
    of_collected(&collected, options, check, restamps)
}

/// Whether scans mark marked pages again.
fn restamps(config: &Config) -> bool {
    rule::build(config).restamp().unwrap_or(config.source.hintfault.restamp)
}

/// The same for what was collected of a recording. `check`: how exactly marks are timed;
/// `restamps`: whether scans mark marked pages again.
///
/// # Errors
/// As [`estimate`].
pub fn of_collected(
    collected: &Collected,
    options: Options,
    check: Nanos,
    restamps: bool,
) -> Result<Heat, HeatError> {
    let (start, end) = collected.span.filter(|(start, end)| start < end).ok_or(HeatError::Empty)?;
    let epochs = Epochs { start, end, number: EPOCHS_MAX };
    let mut found = Vec::new();
    let wanted = |source| options.source.is_none_or(|wanted| wanted == source);
    if wanted(HeatSource::Samples) && !collected.samples.is_empty() {
        found.push(samples::evidence(collected, epochs));
    }
    if wanted(HeatSource::HintFaults) && !collected.faults.is_empty() {
        found.push(waits::evidence(collected, epochs, check, restamps));
    }
    if wanted(HeatSource::Regions) {
        found.extend(regions::evidence(collected, epochs));
    }
    let evidence = best(found)
        .ok_or_else(|| HeatError::NoEvidence { source_wanted: options.source, has: has(collected) })?;
    let mut heat = fitted(&evidence, options.epochs);
    heat.notes = notes(collected, evidence.source);
    heat.seen = collected.seen;
    heat.spectrum = (evidence.source == HeatSource::Regions).then(|| Spectrum::of(collected)).flatten();
    Ok(heat)
}

/// What there is in place of the evidence that is missing.
fn has(collected: &Collected) -> String {
    let kinds = [
        (!collected.faults.is_empty(), "hint faults"),
        (!collected.samples.is_empty(), "samples"),
        (!collected.snapshots.is_empty(), "regions"),
        (collected.unmarked_faults > 0, "hint faults of pages whose scan was not seen"),
        (collected.device_counts > 0, "counts of devices, which name hot pages only"),
    ];
    let there: Vec<&str> = kinds.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    let what = if there.is_empty() { "nothing else".to_owned() } else { there.join(", ") };
    format!("it has {what}; record for longer, while the programs run, or switch on another source")
}

/// The source that tells pages apart, unless it does not see most of the memory; then regions.
fn best(found: Vec<Evidence>) -> Option<Evidence> {
    let suits = |e: &Evidence| !e.by_page && e.dark_pages <= e.seen_pages() + e.silent_pages;
    found.into_iter().min_by_key(|e| (!suits(e), !e.by_page, std::cmp::Reverse(e.seen_pages())))
}

fn notes(collected: &Collected, source: HeatSource) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |is: bool, text: String| {
        if is {
            notes.push(text);
        }
    };
    let unmarked = collected.unmarked_faults;
    note(
        source == HeatSource::HintFaults && unmarked > 0,
        format!("{unmarked} hint faults say nothing, because the scan before them was not seen"),
    );
    note(
        source == HeatSource::Samples && !samples::periods_known(&collected.samples),
        "the sampling period is unknown: shares are right, but rates are too low".to_owned(),
    );
    note(collected.missing > 0, format!("{} events of the recording are missing", collected.missing));
    note(collected.damaged > 0, format!("{} files of the recording are damaged", collected.damaged));
    notes
}

impl Heat {
    /// The evidence.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What of the recording could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The share of the pieces of evidence that saw a page in the top tier; `None` for a source
    /// that does not say.
    pub fn seen_in_top(&self) -> Option<f64> {
        let [top, low] = self.seen;
        let says = self.evidence.source != HeatSource::Regions && top + low > 0;
        says.then(|| top as f64 / (top + low) as f64)
    }

    /// How rates are distributed over pages, where checks of several lengths tell it.
    pub fn spectrum(&self) -> Option<&Spectrum> {
        self.spectrum.as_ref()
    }

    /// For each unit, its mean rate by one half of the evidence and by the other, in accesses a
    /// second to all its pages; then that of each silent page.
    pub fn halves(&self) -> [&[f64]; 2] {
        [&self.halves[0], &self.halves[1]]
    }

    /// Rates that memory may have had: the same for the same number. Number 0 has the most probable
    /// distribution of rates; others have that of a sample drawn anew, so that they differ by what
    /// is not known of it.
    pub fn draw(&self, number: u64) -> Drawn {
        let mut random = Random::new(number);
        let refitted = match number {
            0 => self.mixture.clone(),
            _ => self.cells.refit(&self.mixture, &mut random),
        };
        let posteriors = self.cells.posteriors(&refitted);
        let evidence = &self.evidence;
        let top = self.cells.grid().rates.len() - 1;
        let mut drawn = Drawn {
            rates: Vec::with_capacity(evidence.counts.len()),
            capped: Vec::with_capacity(evidence.units.len()),
            silent: Vec::new(),
        };
        for (number, unit) in evidence.units.iter().enumerate() {
            let pages = if evidence.by_page { f64::from(unit.pages) } else { 1.0 };
            let mut capped = false;
            for epoch in 0..evidence.epochs {
                let count = number * evidence.epochs + epoch;
                let place = self.cells.draw(&posteriors, count, &mut random);
                capped |= self.cells.grid().capped && place == top;
                drawn.rates.push(self.cells.grid().rates[place] * pages);
            }
            drawn.capped.push(capped);
        }
        if evidence.silent_pages > 0 {
            let shares = self.cells.shares(&posteriors, evidence.counts.len());
            let of = |(share, rate): (f64, &f64)| (share * evidence.silent_pages as f64, *rate);
            drawn.silent = shares.into_iter().zip(&self.cells.grid().rates).map(of).collect();
            drawn.silent.retain(|(pages, _)| *pages > 0.0);
        }
        drawn
    }
}

impl Drawn {
    /// The rate of a unit over all epochs, in accesses a second to all its pages.
    pub fn mean(&self, unit: usize, epochs: usize) -> f64 {
        self.rates[unit * epochs..][..epochs].iter().sum::<f64>() / epochs as f64
    }
}
