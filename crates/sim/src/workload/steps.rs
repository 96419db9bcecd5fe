//! Pattern `phases`: steps that are repeated in order; each walks through a part of memory, or
//! draws its accesses from some parts.
//!
//! A walk continues where the step's last one ended, so short steps can alternate two streams, or a
//! stream and random accesses, at any granularity.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ranks::{Ranks, check_exponent};
use super::stream::{Split, part};
use super::{Distribution, Pattern, Phase, Shape, Walk};
use crate::memory::CellMap;
use crate::random::Random;
use crate::spec::{SpecError, require};

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Repetitions of the steps.
    pub repeat: u64,
    /// The steps.
    pub step: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Step {
    /// A walk.
    Walk(WalkStep),
    /// Random accesses.
    Random(RandomStep),
}

/// A walk through a part of memory, which the threads share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkStep {
    /// Where the part begins, as a share of memory.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Stride in pages; negative for a descending walk.
    #[serde(default = "next_page")]
    pub stride: i64,
    /// Accesses to a page before the next.
    #[serde(default = "lines")]
    pub accesses_per_page: u32,
    /// How much of its pages each thread visits.
    #[serde(default = "once")]
    pub passes: f64,
    /// What each thread walks through.
    #[serde(default)]
    pub split: Split,
}

/// Accesses to one or more parts of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomStep {
    /// Accesses of each thread.
    pub accesses: u64,
    /// The parts.
    pub region: Vec<Region>,
}

/// A part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Where it begins, as a share of memory.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its weight among the parts of the step.
    pub weight: f64,
    /// Popularity of its pages: zipf with this exponent, falling from its first page; all alike if
    /// it is 0.
    #[serde(default)]
    pub exponent: f64,
}

fn next_page() -> i64 {
    1
}

fn lines() -> u32 {
    64
}

fn once() -> f64 {
    1.0
}

/// Maximum number of steps.
const STEPS_MAX: usize = 64;
/// Maximum number of cells: many make event mode slow.
const CELLS_MAX: usize = 4096;

/// The pages of a share of memory.
fn pages_of(from: f64, to: f64, pages: u32, place: &str) -> Result<std::ops::Range<u32>, SpecError> {
    let known = (0.0..=1.0).contains(&from) && (0.0..=1.0).contains(&to);
    let range = (f64::from(pages) * from).round() as u32..(f64::from(pages) * to).round() as u32;
    require(known && !range.is_empty(), place, "holds no page", "give from and to as shares, 0 to 1")?;
    Ok(range)
}

/// Ranges of pages with their shares of the accesses.
type Pieces = Vec<(std::ops::Range<u32>, f64)>;

fn pieces(step: &RandomStep, pages: u32, place: &str) -> Result<Pieces, SpecError> {
    let mut pieces = Vec::new();
    for (i, region) in step.region.iter().enumerate() {
        let place = format!("{place}.region[{i}]");
        let range = pages_of(region.from, region.to, pages, &place)?;
        check_exponent(region.exponent, &place)?;
        let known = region.weight > 0.0 && region.weight <= 1e9;
        require(known, &format!("{place}.weight"), "is no weight", "give a number above 0")?;
        if region.exponent == 0.0 {
            pieces.push((range, region.weight));
            continue;
        }
        let ranks = Ranks::zipf(range.end - range.start, 1, 1, region.exponent);
        let cells: Vec<(u32, f64)> = ranks.cells().collect();
        let all: f64 = cells.iter().map(|(_, share)| share).sum();
        for (i, (start, share)) in cells.iter().enumerate() {
            let end = cells.get(i + 1).map_or(range.end, |(next, _)| range.start + next);
            pieces.push((range.start + start..end, region.weight * share / all));
        }
    }
    Ok(pieces)
}

/// The distribution of pieces over cells that begin where pieces begin.
fn distribution(map: &CellMap, pieces: &Pieces) -> Distribution {
    let mut weights = vec![0.0; map.len() as usize];
    for (range, share) in pieces {
        let each = share / f64::from(range.end - range.start);
        for cell in map.cell_of(range.start)..=map.cell_of(range.end - 1) {
            weights[cell as usize] += each * f64::from(map.size(cell));
        }
    }
    Distribution::weighted(weights.into_iter().enumerate().map(|(i, w)| (i as u32, w)))
}

impl Phases {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.repeat > 0, &format!("{place}.repeat"), "is zero", "give 1 or more")?;
        let steps = format!("{place}.step");
        let some = (1..=STEPS_MAX).contains(&self.step.len());
        require(some, &steps, "has none, or more than 64", "give 1 to 64")?;
        let mut all: Vec<Option<Pieces>> = Vec::new();
        let mut starts = vec![0];
        for (i, step) in self.step.iter().enumerate() {
            let place = format!("{steps}[{i}]");
            match step {
                Step::Walk(walk) => {
                    let range = pages_of(walk.from, walk.to, pages, &place)?;
                    let known = walk.passes > 0.0 && walk.passes <= 1e9 && walk.accesses_per_page > 0;
                    require(known, &place, "makes no access", "give passes and accesses_per_page above 0")?;
                    let near = walk.stride != 0 && walk.stride.unsigned_abs() < range.len().max(2) as u64;
                    require(near, &format!("{place}.stride"), "is 0 or too long", "give less than its part")?;
                    all.push(None);
                }
                Step::Random(random) => {
                    let some = random.accesses > 0 && !random.region.is_empty();
                    require(some, &place, "makes no access", "give accesses and a region")?;
                    let few = random.region.len() <= STEPS_MAX;
                    require(few, &place, "has more than 64 regions", "give fewer")?;
                    let pieces = pieces(random, pages, &place)?;
                    starts.extend(pieces.iter().flat_map(|(range, _)| [range.start, range.end]));
                    all.push(Some(pieces));
                }
            }
        }
        starts.retain(|start| *start < pages);
        starts.sort_unstable();
        starts.dedup();
        require(starts.len() <= CELLS_MAX, &steps, "has too many different parts", "give fewer regions")?;
        let map = CellMap::of(&starts, pages);
        let shared = all.iter().map(|p| p.as_ref().map(|p| Arc::new(distribution(&map, p)))).collect();
        let state = Thread { next: 0, visited: vec![0; self.step.len()] };
        let state = vec![state; threads as usize];
        Ok(Box::new(Running { spec: self.clone(), pages, map, shared, threads: state }))
    }
}

/// The state of a thread.
#[derive(Clone, Debug)]
struct Thread {
    /// Steps that it has begun.
    next: u64,
    /// Pages that it has visited in each walking step.
    visited: Vec<u64>,
}

#[derive(Debug)]
struct Running {
    spec: Phases,
    pages: u32,
    map: CellMap,
    shared: Vec<Option<Arc<Distribution>>>,
    threads: Vec<Thread>,
}

impl Pattern for Running {
    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        let threads = self.threads.len() as u32;
        let state = self.threads.get_mut(thread as usize)?;
        let steps = self.spec.step.len() as u64;
        if state.next >= steps.saturating_mul(self.spec.repeat) {
            return None;
        }
        let index = (state.next % steps) as usize;
        state.next += 1;
        match &self.spec.step[index] {
            Step::Random(step) => {
                let distribution = self.shared[index].as_ref()?.clone();
                Some(Phase { shape: Shape::Random(distribution), accesses: step.accesses })
            }
            Step::Walk(step) => {
                let range = pages_of(step.from, step.to, self.pages, "").ok()?;
                let (within, first) = part(range, step.split, thread, threads, step.stride < 0);
                let len = i128::from(within.end - within.start);
                let visits = ((len as f64 * step.passes).round() as u64).max(1);
                let gone = i128::from(state.visited[index]) * i128::from(step.stride);
                let offset = (i128::from(first - within.start) + gone).rem_euclid(len);
                state.visited[index] += visits;
                let at = within.start + offset as u32;
                let walk = Walk::new(at, step.stride, within, step.accesses_per_page);
                let accesses = visits * u64::from(step.accesses_per_page);
                Some(Phase { shape: Shape::Walk(walk), accesses })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn phases(toml: &str, threads: u32) -> (CellMap, Vec<Phase>) {
        let spec: Phases = toml::from_str(toml).unwrap();
        let mut pattern = spec.build(1000, threads, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let phases = std::iter::from_fn(|| pattern.next_phase(0, &mut random)).collect();
        (pattern.cells(), phases)
    }

    #[test]
    fn a_stream_and_random_accesses_alternate_and_the_stream_goes_on() {
        let (map, phases) = phases(
            "repeat = 3\n[[step]]\nhow = \"walk\"\nfrom = 0.0\nto = 0.8\npasses = 0.4\n\
             [[step]]\nhow = \"random\"\naccesses = 70\nregion = [{ from = 0.8, to = 1.0, weight = 3.0 }, \
             { from = 0.9, to = 1.0, weight = 1.0 }]\n",
            2,
        );
        let starts: Vec<u32> = phases
            .iter()
            .filter_map(|p| match &p.shape {
                Shape::Walk(walk) => Some(walk.at),
                Shape::Random(_) => None,
            })
            .collect();
        // The first of two threads has 400 of the 800 pages, and visits 160 at a time.
        assert_eq!((phases.len(), starts), (6, vec![0, 160, 320]));
        assert_eq!((phases[0].accesses, phases[1].accesses), (160 * 64, 70));
        let Shape::Random(d) = &phases[1].shape else { panic!("random") };
        let share = |from: u32| d.weights().iter().find(|(c, _)| map.range(*c).start == from).unwrap().1;
        assert!((share(800) - 0.375).abs() < 1e-12 && (share(900) - 0.625).abs() < 1e-12);
    }

    #[test]
    fn what_accesses_nothing_is_refused() {
        for toml in [
            "repeat = 0\nstep = []",
            "repeat = 1\nstep = []",
            "repeat = 1\nstep = [{ how = \"walk\", from = 0.5, to = 0.5 }]",
            "repeat = 1\nstep = [{ how = \"walk\", from = 0.0, to = 1.0, stride = 0 }]",
            "repeat = 1\nstep = [{ how = \"random\", accesses = 1, region = [] }]",
            "repeat = 1\nstep = [{ how = \"random\", accesses = 1, region = [{ from = 0.0, to = 2.0, weight = 1.0 }] }]",
        ] {
            let spec: Phases = toml::from_str(toml).unwrap();
            assert!(spec.build(1000, 1, "pattern").is_err(), "{toml}");
        }
    }
}
