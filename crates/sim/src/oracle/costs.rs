//! The least time that any sequence of placements can take if moves cost time: an offline bound, by
//! dynamic programming over the sets of pages in fast memory.
//!
//! Exponential in the number of pages: for small cases only, where it shows what managers and rules
//! could gain at best if every move has a cost. It lies between [`super::min`], whose moves are
//! free, and the best static placement. A run has too many pages for it, so reports have only those
//! two.

use crate::memory::Page;

/// Maximum number of pages.
pub const PAGES_MAX: u32 = 16;

/// Costs of accesses and moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// An access to fast memory.
    pub fast: f64,
    /// An access to slow memory.
    pub slow: f64,
    /// A page that moves, in either direction.
    pub moved: f64,
}

/// The least time for the accesses of `trace` to pages below `pages`, of which `capacity` fit into
/// fast memory; those of the bit set `start` are in it at first. Before each access any pages may
/// move. `None` if there are more than [`PAGES_MAX`] pages.
pub fn least_time(trace: &[Page], pages: u32, capacity: u32, start: u32, costs: Costs) -> Option<f64> {
    if pages > PAGES_MAX || start >> pages != 0 || start.count_ones() > capacity {
        return None;
    }
    let sets = 1usize << pages;
    let fits = |set: usize| set.count_ones() <= capacity;
    let mut best = vec![f64::INFINITY; sets];
    best[start as usize] = 0.0;
    for page in trace {
        relax(&mut best, pages, capacity, costs.moved);
        for (set, time) in best.iter_mut().enumerate().filter(|(set, _)| fits(*set)) {
            *time += if set >> page & 1 == 1 { costs.fast } else { costs.slow };
        }
    }
    best.into_iter().reduce(f64::min)
}

/// Relaxes over moves: from every set to every other at the cost of the pages that differ.
fn relax(best: &mut [f64], pages: u32, capacity: u32, moved: f64) {
    // The cost is a sum over pages, so pages can be handled one by one; intermediate sets may
    // exceed the capacity.
    for page in 0..pages {
        for set in 0..best.len() {
            if set >> page & 1 == 0 {
                let other = set | 1 << page;
                let (without, with) = (best[set], best[other]);
                best[set] = without.min(with + moved);
                best[other] = with.min(without + moved);
            }
        }
    }
    for (set, time) in best.iter_mut().enumerate() {
        if set.count_ones() > capacity {
            *time = f64::INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::min;
    use crate::random::{Random, Stream};

    const FREE: Costs = Costs { fast: 1.0, slow: 3.0, moved: 0.0 };

    /// The least time by exhaustive search over the sets before every access.
    fn brute(trace: &[Page], pages: u32, capacity: u32, now: u32, costs: Costs) -> f64 {
        let Some((page, rest)) = trace.split_first() else { return 0.0 };
        let sets = (0..1u32 << pages).filter(|set| set.count_ones() <= capacity);
        let times = sets.map(|set| {
            let access = if set >> page & 1 == 1 { costs.fast } else { costs.slow };
            let moves = f64::from((set ^ now).count_ones()) * costs.moved;
            moves + access + brute(rest, pages, capacity, set, costs)
        });
        times.fold(f64::INFINITY, f64::min)
    }

    fn traces(pages: u64, len: usize) -> impl Iterator<Item = Vec<Page>> {
        let mut random = Random::new(9, Stream::Models);
        (0..40).map(move |_| (0..len).map(|_| random.below(pages) as Page).collect())
    }

    #[test]
    fn nothing_is_faster() {
        for (i, trace) in traces(4, 5).enumerate() {
            for moved in [0.0, 0.7, 1.9, 5.0] {
                let costs = Costs { moved, ..FREE };
                let start = [0b0000, 0b0011, 0b0100][i % 3];
                let found = least_time(&trace, 4, 2, start, costs).unwrap();
                assert!((found - brute(&trace, 4, 2, start, costs)).abs() < 1e-9, "{trace:?} at {moved}");
            }
        }
    }

    #[test]
    fn it_lies_between_min_and_the_best_placement_that_never_changes() {
        let (pages, capacity, n) = (8u32, 3u32, 60);
        for trace in traces(u64::from(pages), n) {
            let time = |moved, start| {
                least_time(&trace, pages, capacity, start, Costs { moved, ..FREE }).expect("few pages")
            };
            let count = |set: u32| trace.iter().filter(|page| set >> **page & 1 == 1).count() as f64;
            let sets = (0..1u32 << pages).filter(|set| set.count_ones() <= capacity);
            let (still, best) = sets
                .map(|set| (n as f64 * 3.0 - 2.0 * count(set), set))
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .unwrap();
            // MIN brings a page in by the access that misses; moves before an access can at most
            // save all of these.
            let bounded = n as f64 * 3.0 - 2.0 * min::hits(&trace, capacity as usize) as f64;
            let mut last = n as f64;
            for moved in [0.0, 0.5, 1.0, 2.0, 4.0, 1e6] {
                let found = time(moved, best);
                assert!((last..=still).contains(&found), "{found} not in {last}..={still}");
                last = found;
            }
            assert!((last - still).abs() < 1e-9, "where moves are dear, nobody moves");
            // A move costs what an access saves: the page that MIN brings in by a miss then costs
            // as much as it gains.
            assert!(time(2.0, best) >= bounded - 2.0 * f64::from(capacity), "below MIN");
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        assert_eq!(least_time(&[0], 17, 3, 0, FREE), None);
        assert_eq!(least_time(&[0], 4, 1, 0b11, FREE), None);
        assert_eq!(least_time(&[0], 4, 1, 0b10000, FREE), None);
        assert_eq!(least_time(&[], 4, 1, 0b1, FREE), Some(0.0));
    }
}
