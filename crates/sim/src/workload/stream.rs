//! Pattern `stream`: threads walk through memory, up or down, page by page or in strides.

use serde::{Deserialize, Serialize};

use super::{Pattern, Phase, Shape, Walk};
use crate::memory::CellMap;
use crate::random::Random;
use crate::spec::{SpecError, require};

/// Which part of memory a thread walks through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Each thread a part of its own.
    #[default]
    Blocks,
    /// All of it, the threads evenly apart.
    Interleaved,
    /// All of it, all threads from the same page.
    Together,
}

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Stride in pages; negative for a descending stream. At the end of its part a thread continues
    /// at the other end.
    #[serde(default = "next_page")]
    pub stride: i64,
    /// Accesses to a page before the next one: 64 is one per cache line.
    #[serde(default = "lines")]
    pub accesses_per_page: u32,
    /// Times that each thread goes through as many pages as its part has.
    pub passes: f64,
    /// Which part of memory a thread walks through.
    #[serde(default)]
    pub split: Split,
    /// Threads start anywhere in their part. Streams and scans that always start at the same place
    /// may stay in step by chance; the mean over random starts is typical.
    #[serde(default)]
    pub random_start: bool,
}

fn next_page() -> i64 {
    1
}

fn lines() -> u32 {
    64
}

/// The part of a range that thread `thread` of `threads` takes, and where it starts, as `split`
/// says.
pub(super) fn part(
    range: std::ops::Range<u32>,
    split: Split,
    thread: u32,
    threads: u32,
    descending: bool,
) -> (std::ops::Range<u32>, u32) {
    let len = u64::from(range.end - range.start);
    let cut = |t: u32| range.start + (len * u64::from(t) / u64::from(threads.max(1))) as u32;
    let within = match split {
        Split::Blocks if len >= u64::from(threads) => cut(thread)..cut(thread + 1),
        _ => range.clone(),
    };
    let at = match split {
        Split::Interleaved => cut(thread),
        _ if descending => within.end - 1,
        _ => within.start,
    };
    (within, at)
}

impl Stream {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.stride != 0, &format!("{place}.stride"), "is zero", "give pages, 1 for the next one")?;
        let far = self.stride.unsigned_abs() < u64::from(pages).max(2);
        require(far, &format!("{place}.stride"), "is longer than the footprint", "give less")?;
        let some = self.accesses_per_page > 0;
        require(some, &format!("{place}.accesses_per_page"), "is zero", "give 1 or more")?;
        let known = self.passes > 0.0 && self.passes <= 1e9;
        require(known, &format!("{place}.passes"), "is no number of passes", "give a number above 0")?;
        Ok(Box::new(Running { spec: self.clone(), pages, threads, left: vec![true; threads as usize] }))
    }
}

#[derive(Debug)]
struct Running {
    spec: Stream,
    pages: u32,
    threads: u32,
    /// Threads that have not begun.
    left: Vec<bool>,
}

impl Pattern for Running {
    fn cells(&self) -> CellMap {
        CellMap::equal(self.pages, self.pages)
    }

    fn next_phase(&mut self, thread: u32, random: &mut Random) -> Option<Phase> {
        if !std::mem::take(self.left.get_mut(thread as usize)?) {
            return None;
        }
        let spec = &self.spec;
        let (within, at) = part(0..self.pages, spec.split, thread, self.threads, spec.stride < 0);
        let len = u64::from(within.end - within.start);
        let at = if spec.random_start { within.start + random.below(len) as u32 } else { at };
        let visits = (len as f64 * spec.passes).ceil().max(1.0) as u64;
        let walk = Walk::new(at, spec.stride, within, spec.accesses_per_page);
        Some(Phase { shape: Shape::Walk(walk), accesses: visits * u64::from(spec.accesses_per_page) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream as Purpose;

    fn starts(split: Split, stride: i64) -> Vec<(u32, u32, u32, u64)> {
        let spec = Stream { stride, accesses_per_page: 64, passes: 2.0, split, random_start: false };
        let mut pattern = spec.build(1000, 4, "pattern").unwrap();
        let mut random = Random::new(1, Purpose::Phases(0));
        (0..4)
            .map(|thread| {
                let phase = pattern.next_phase(thread, &mut random).unwrap();
                assert!(pattern.next_phase(thread, &mut random).is_none());
                let Shape::Walk(walk) = phase.shape else { panic!("walk") };
                (walk.within.start, walk.within.end, walk.at, phase.accesses)
            })
            .collect()
    }

    #[test]
    fn threads_share_memory_as_told() {
        assert_eq!(starts(Split::Blocks, 1)[1], (250, 500, 250, 2 * 250 * 64));
        assert_eq!(starts(Split::Blocks, -1)[1], (250, 500, 499, 2 * 250 * 64));
        assert_eq!(starts(Split::Interleaved, 1)[1], (0, 1000, 250, 2 * 1000 * 64));
        assert_eq!(starts(Split::Together, 3)[1], (0, 1000, 0, 2 * 1000 * 64));
    }
}
