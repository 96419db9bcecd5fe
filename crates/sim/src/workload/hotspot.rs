//! Pattern `hotspot`: a share of the pages takes a share of the accesses, and the hot pages change
//! from time to time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Pattern, Phase, Shape};
use crate::memory::CellMap;
use crate::memory::layout::{Layout, Shuffle};
use crate::random::Random;
use crate::spec::{SpecError, require};

/// Number of cells that memory is divided into if the hot pages change.
const CELLS: u32 = 240;

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotspot {
    /// Share of the pages that are hot.
    pub hot_share: f64,
    /// Share of the accesses that go to them.
    pub access_share: f64,
    /// Accesses of each thread.
    pub accesses: u64,
    /// Hot pages are scattered over memory, instead of adjacent.
    #[serde(default = "yes")]
    pub scattered: bool,
    /// Accesses of a thread from one change to the next; 0 for never.
    #[serde(default)]
    pub drift_every: u64,
    /// Share of the hot pages that a change replaces.
    #[serde(default)]
    pub drift_share: f64,
}

fn yes() -> bool {
    true
}

impl Hotspot {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.accesses > 0, &format!("{place}.accesses"), "is zero", "give each thread an access")?;
        let shares = [
            ("hot_share", self.hot_share),
            ("access_share", self.access_share),
            ("drift_share", self.drift_share),
        ];
        for (key, share) in shares {
            let known = (0.0..=1.0).contains(&share);
            require(known, &format!("{place}.{key}"), "is no share", "give 0 to 1")?;
        }
        let hot_pages = (f64::from(pages) * self.hot_share).round() as u32;
        let some = hot_pages > 0 && hot_pages < pages;
        require(
            some,
            &format!("{place}.hot_share"),
            "leaves no hot or no cold page",
            "give a share between",
        )?;
        let drifts = self.drift_every > 0;
        let (map, hot) = if drifts {
            let map = CellMap::equal(pages, pages.div_ceil(CELLS));
            let hot = ((f64::from(map.len()) * self.hot_share).round() as u32).clamp(1, map.len() - 1);
            (map, hot)
        } else {
            (CellMap::of(&[0, hot_pages], pages), 1)
        };
        let step = if drifts { ((f64::from(hot) * self.drift_share).round() as u32).max(1) } else { 0 };
        let cells = map.len() as usize;
        Ok(Box::new(Running {
            map,
            layout: if self.scattered { Layout::Shuffled(Shuffle::new(pages, 2)) } else { Layout::Identity },
            hot,
            access_share: self.access_share,
            step,
            every: if drifts { self.drift_every } else { u64::MAX },
            made: vec![(0, self.accesses); threads as usize],
            shared: vec![None; cells],
        }))
    }
}

#[derive(Debug)]
struct Running {
    map: CellMap,
    layout: Layout,
    /// Cells that are hot.
    hot: u32,
    access_share: f64,
    /// Cells by which the hot range advances at a change.
    step: u32,
    every: u64,
    /// Changes that each thread has had, and its remaining accesses.
    made: Vec<(u64, u64)>,
    /// The distribution for each first hot cell, cached: threads share it.
    shared: Vec<Option<Arc<Distribution>>>,
}

impl Pattern for Running {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        let (changes, left) = self.made.get_mut(thread as usize)?;
        if *left == 0 {
            return None;
        }
        let cells = self.map.len();
        let first = ((*changes * u64::from(self.step)) % u64::from(cells)) as u32;
        *changes += 1;
        let accesses = self.every.min(*left);
        *left -= accesses;
        let (map, hot, share) = (&self.map, self.hot, self.access_share);
        let distribution = self.shared[first as usize].get_or_insert_with(|| {
            let is_hot = |cell: u32| (cell + cells - first) % cells < hot;
            let pages = |wanted: bool| -> f64 {
                (0..cells).filter(|c| is_hot(*c) == wanted).map(|c| f64::from(map.size(c))).sum()
            };
            let (hot_pages, cold_pages) = (pages(true), pages(false));
            let weight = |cell: u32| {
                let per_page = if is_hot(cell) { share / hot_pages } else { (1.0 - share) / cold_pages };
                (cell, per_page * f64::from(map.size(cell)))
            };
            Arc::new(Distribution::weighted((0..cells).map(weight)))
        });
        Some(Phase { shape: Shape::Random(distribution.clone()), accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn hot_cells(phase: &Phase) -> Vec<u32> {
        let Shape::Random(d) = &phase.shape else { panic!("random") };
        let high = d.weights().iter().map(|w| w.1).fold(0.0, f64::max);
        d.weights().iter().filter(|w| w.1 > high / 2.0).map(|w| w.0).collect()
    }

    #[test]
    fn the_hot_share_of_the_pages_takes_its_share_of_the_accesses() {
        let spec = Hotspot {
            hot_share: 0.2,
            access_share: 0.9,
            accesses: 5,
            scattered: true,
            drift_every: 0,
            drift_share: 0.0,
        };
        let mut pattern = spec.build(1000, 1, "pattern").unwrap();
        let phase = pattern.next_phase(0, &mut Random::new(1, Stream::Phases(0))).unwrap();
        let Shape::Random(d) = &phase.shape else { panic!("random") };
        assert_eq!((d.weights()[0].0, pattern.cells().size(0)), (0, 200));
        assert!((d.weights()[0].1 - 0.9).abs() < 1e-12);
        assert!(spec.build(2, 1, "pattern").is_err());
    }

    #[test]
    fn a_drift_replaces_its_share_of_the_hot_pages() {
        let spec = Hotspot {
            hot_share: 0.2,
            access_share: 0.9,
            accesses: 2500,
            scattered: false,
            drift_every: 1000,
            drift_share: 0.25,
        };
        let mut pattern = spec.build(24_000, 1, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let phases: Vec<Phase> = std::iter::from_fn(|| pattern.next_phase(0, &mut random)).collect();
        assert_eq!(phases.iter().map(|p| p.accesses).collect::<Vec<_>>(), [1000, 1000, 500]);
        let (before, after) = (hot_cells(&phases[0]), hot_cells(&phases[1]));
        assert_eq!((before.len(), after.len()), (48, 48));
        assert_eq!(before.iter().filter(|c| !after.contains(c)).count(), 12);
    }
}
