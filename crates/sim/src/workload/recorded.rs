//! Pattern `recorded`: the heat of a process's pages as it was estimated from a recording.
//!
//! This crate does not read recordings: whoever parses a scenario hands over the heat
//! ([`Setup::parse_with`](crate::scenario::Setup::parse_with)). Pages of about the same rates share
//! a cell; each epoch is a phase.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Pattern, Phase, Shape};
use crate::memory::CellMap;
use crate::memory::layout::{Layout, Listed};
use crate::random::Random;
use crate::spec::{SpecError, require};
use crate::units::Bytes;

/// Rates that differ by less than this factor are alike; more, if that makes too many cells.
const ALIKE: f64 = 1.15;
/// Maximum number of cells of a process.
const CELLS_MAX: usize = 1024;

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The recording: a folder, beside the scenario's own.
    pub trace: String,
    /// Which process of it, counted from 0.
    #[serde(default)]
    pub process: u32,
    #[serde(skip)]
    pub(crate) heat: Option<Arc<RecordedHeat>>,
}

/// How hot the pages of a process were.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedHeat {
    pages: u32,
    map: Vec<u32>,
    order: Listed,
    epochs: Vec<Epoch>,
}

#[derive(Clone, Debug, PartialEq)]
struct Epoch {
    accesses: u64,
    /// Share of the accesses of each cell.
    shares: Vec<f64>,
}

impl RecordedHeat {
    /// The heat of pages in the order of their addresses: groups of neighbouring pages, each with
    /// its number of pages, and its accesses a second in each epoch of so many seconds.
    ///
    /// # Errors
    /// There is no page, or no access; or there are more than 2^32 pages.
    pub fn new(groups: &[(u32, &[f64])], epoch_s: f64) -> Result<RecordedHeat, SpecError> {
        let wrong =
            |message: &str| SpecError::new("recording", message, "record for longer, while the program runs");
        let all: u64 = groups.iter().map(|(pages, _)| u64::from(*pages)).sum();
        let pages = u32::try_from(all).map_err(|_| wrong("has more than 16 TiB of memory"))?;
        let (of, cells) = cells(groups);
        // Positions are by cell, and within a cell by address.
        let mut sizes = vec![0u32; cells];
        for ((pages, _), cell) in groups.iter().zip(&of) {
            sizes[*cell] += pages;
        }
        let starts: Vec<u32> = sizes
            .iter()
            .scan(0, |next, size| {
                let start = *next;
                *next += size;
                Some(start)
            })
            .collect();
        let (mut next, mut positions) = (starts.clone(), Vec::with_capacity(pages as usize));
        for ((pages, _), cell) in groups.iter().zip(&of) {
            positions.extend(next[*cell]..next[*cell] + pages);
            next[*cell] += pages;
        }
        let number = groups.first().map_or(0, |(_, rates)| rates.len());
        let epoch = |epoch: usize| {
            let mut shares = vec![0.0; cells];
            for ((_, rates), cell) in groups.iter().zip(&of) {
                shares[*cell] += rates[epoch];
            }
            let accesses = (shares.iter().sum::<f64>() * epoch_s).round() as u64;
            Epoch { accesses, shares }
        };
        let mut epochs: Vec<Epoch> = (0..number).map(epoch).collect();
        epochs.retain(|epoch| epoch.accesses > 0);
        if pages == 0 || epochs.is_empty() {
            return Err(wrong("has no accesses of the process"));
        }
        Ok(RecordedHeat { pages, map: starts, order: Listed::new(positions), epochs })
    }

    /// Pages of the process.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

/// The cell of each group, and the number of cells.
fn cells(groups: &[(u32, &[f64])]) -> (Vec<usize>, usize) {
    let mut alike = ALIKE.ln();
    loop {
        let step = |rate: f64, pages: u32| match rate / f64::from(pages.max(1)) {
            rate if rate > 0.0 => (rate.ln() / alike).round() as i32,
            _ => i32::MIN,
        };
        let mut numbers: BTreeMap<Vec<i32>, usize> = BTreeMap::new();
        let of = |(pages, rates): &(u32, &[f64])| {
            let key = rates.iter().map(|rate| step(*rate, *pages)).collect();
            let next = numbers.len();
            *numbers.entry(key).or_insert(next)
        };
        let of: Vec<usize> = groups.iter().map(of).collect();
        if numbers.len() <= CELLS_MAX {
            return (of, numbers.len());
        }
        alike *= 2.0;
    }
}

impl Recorded {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        let Some(heat) = &self.heat else {
            let message = format!("the recording {} cannot be read here", self.trace);
            let remedy = "simulate the scenario with `sim` or `compare`";
            return Err(SpecError::new(format!("{place}.trace"), message, remedy));
        };
        let recorded = Bytes(u64::from(heat.pages) << thermocline_core::units::PAGE_SHIFT);
        require(
            heat.pages == pages,
            &format!("{place}.trace"),
            &format!("has {} pages of the process, and its footprint is {pages}", heat.pages),
            &format!("give footprint = \"{}B\"", recorded.0),
        )?;
        let left = (0..threads).map(|_| 0).collect();
        Ok(Box::new(Running { heat: Arc::clone(heat), threads: threads.max(1), left, phases: Vec::new() }))
    }
}

#[derive(Debug)]
struct Running {
    heat: Arc<RecordedHeat>,
    threads: u32,
    /// For each thread, its next epoch.
    left: Vec<usize>,
    /// The distributions of the epochs that have begun: threads share them.
    phases: Vec<Arc<Distribution>>,
}

impl Pattern for Running {
    fn layout(&self) -> Layout {
        Layout::Listed(self.heat.order.clone())
    }

    fn cells(&self) -> CellMap {
        CellMap::of(&self.heat.map, self.heat.pages)
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        let next = self.left.get_mut(thread as usize)?;
        let epoch = self.heat.epochs.get(*next)?;
        if self.phases.len() == *next {
            let shares = epoch.shares.iter().enumerate().map(|(cell, share)| (cell as u32, *share));
            self.phases.push(Arc::new(Distribution::weighted(shares)));
        }
        let distribution = Arc::clone(&self.phases[*next]);
        *next += 1;
        // The first threads make those accesses that cannot be divided.
        let (each, rest) =
            (epoch.accesses / u64::from(self.threads), epoch.accesses % u64::from(self.threads));
        let accesses = (each + u64::from(u64::from(thread) < rest)).max(1);
        Some(Phase { shape: Shape::Random(distribution), accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn recorded(heat: Option<RecordedHeat>) -> Recorded {
        Recorded { trace: "x.trace".to_owned(), process: 0, heat: heat.map(Arc::new) }
    }

    #[test]
    fn pages_keep_their_places_and_their_rates() {
        // Ten pages: one with 8 accesses a second, two with 1 each, seven idle; then all change.
        let groups: [(u32, &[f64]); 5] =
            [(3, &[0.0, 0.0]), (1, &[8.0, 0.0]), (2, &[2.0, 2.0]), (2, &[0.0, 0.0]), (2, &[0.0, 4.0])];
        let heat = RecordedHeat::new(&groups, 10.0).unwrap();
        let mut pattern = recorded(Some(heat)).build(10, 1, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let phases: Vec<Phase> = std::iter::from_fn(|| pattern.next_phase(0, &mut random)).collect();
        assert_eq!(phases.iter().map(|p| p.accesses).collect::<Vec<_>>(), [100, 60]);
        let (map, layout) = (pattern.cells(), pattern.layout());
        let share = |phase: usize, page: u32| {
            let Shape::Random(distribution) = &phases[phase].shape else { panic!("random") };
            let cell = map.cell_of(layout.position(page));
            let weight = distribution.weights().iter().find(|(c, _)| *c == cell).map_or(0.0, |(_, w)| *w);
            weight / f64::from(map.size(cell))
        };
        let of = |phase| (0..10).map(|page| (share(phase, page) * 100.0).round()).collect::<Vec<_>>();
        assert_eq!(of(0), [0.0, 0.0, 0.0, 80.0, 10.0, 10.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(1), [0.0, 0.0, 0.0, 0.0, 17.0, 17.0, 0.0, 0.0, 33.0, 33.0]);
        assert!((0..10).all(|page| layout.page(layout.position(page)) == page));
        assert_eq!(map.len(), 4, "idle pages share a cell");
    }

    #[test]
    fn threads_share_the_accesses() {
        let heat = RecordedHeat::new(&[(4, &[7.0])], 1.0).unwrap();
        let mut pattern = recorded(Some(heat)).build(4, 3, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let of = |thread| pattern.next_phase(thread, &mut random).map(|p| p.accesses);
        assert_eq!([0, 1, 2, 0].map(of), [Some(3), Some(2), Some(2), None]);
    }

    #[test]
    fn many_kinds_of_pages_share_cells() {
        let rates: Vec<[f64; 2]> = (0..20_000).map(|i| [1.2f64.powi(i % 90), 1.2f64.powi(i % 97)]).collect();
        let groups: Vec<(u32, &[f64])> = rates.iter().map(|rates| (1, &rates[..])).collect();
        let heat = RecordedHeat::new(&groups, 1.0).unwrap();
        assert!(heat.map.len() <= CELLS_MAX && heat.map.len() > 100, "{}", heat.map.len());
        assert_eq!(heat.pages(), 20_000);
    }

    #[test]
    fn what_does_not_suit_is_refused() {
        let error = |pattern: &Recorded| pattern.build(9, 1, "p").map(|_| ()).unwrap_err().to_string();
        assert!(error(&recorded(None)).contains("x.trace cannot be read here"));
        let heat = RecordedHeat::new(&[(4, &[7.0])], 1.0).unwrap();
        assert!(error(&recorded(Some(heat))).ends_with("give footprint = \"16384B\""));
        assert!(RecordedHeat::new(&[], 1.0).is_err() && RecordedHeat::new(&[(4, &[0.0])], 1.0).is_err());
    }
}
