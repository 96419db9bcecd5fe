//! Least recently used: a cache that knows the past and not the future, and Che's approximation of
//! it.
//!
//! A reference beside [`super::min`]: reclaim by active and inactive lists approximates it.

use std::collections::{BTreeMap, HashMap};

use crate::memory::Page;

/// Accesses of `trace` that hit among the `capacity` pages used last.
pub fn hits(trace: &[Page], capacity: usize) -> u64 {
    let mut used: HashMap<Page, usize> = HashMap::new();
    // Cached pages, by their last use.
    let mut held: BTreeMap<usize, Page> = BTreeMap::new();
    let mut hits = 0;
    for (at, page) in trace.iter().enumerate() {
        if let Some(then) = used.insert(*page, at)
            && held.remove(&then).is_some()
        {
            hits += 1;
        }
        held.insert(at, *page);
        if held.len() > capacity {
            held.pop_first();
        }
    }
    hits
}

/// The share of hits that Che's approximation gives, for independent accesses with these
/// probabilities: number of pages, and probability of each of them (H. Che, Y. Tung and Z. Wang,
/// 2002).
pub fn che(pages: &[(f64, f64)], capacity: f64) -> f64 {
    let held = |time: f64| -> f64 { pages.iter().map(|(n, p)| n * (1.0 - (-p * time).exp())).sum() };
    if pages.iter().map(|(n, _)| n).sum::<f64>() <= capacity {
        return 1.0;
    }
    // The time after which a page is evicted, by bisection.
    let (mut low, mut high) = (0.0, 1.0);
    while held(high) < capacity {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if held(middle) < capacity { low = middle } else { high = middle }
    }
    pages.iter().map(|(n, p)| n * p * (1.0 - (-p * high).exp())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::min;
    use crate::random::{Random, Stream};
    use crate::workload::{Shape, Zipf};

    /// A list that is searched and shifted: slow, but obviously correct.
    fn plain(trace: &[Page], capacity: usize) -> u64 {
        let mut list: Vec<Page> = Vec::new();
        let mut hits = 0;
        for page in trace {
            if let Some(at) = list.iter().position(|p| p == page) {
                list.remove(at);
                hits += 1;
            }
            list.insert(0, *page);
            list.truncate(capacity);
        }
        hits
    }

    #[test]
    fn as_a_list_that_is_searched() {
        let mut random = Random::new(4, Stream::Models);
        for _ in 0..100 {
            let trace: Vec<Page> = (0..300).map(|_| (random.below(6) * random.below(6)) as Page).collect();
            for capacity in [0, 1, 2, 5, 12, 30] {
                let found = hits(&trace, capacity);
                assert_eq!(found, plain(&trace, capacity), "{capacity}: {trace:?}");
                assert!(found <= min::hits(&trace, capacity), "more than who knows the future");
            }
        }
    }

    #[test]
    fn che_foretells_the_hits_of_the_zipf_that_is_simulated() {
        let pages = 20_000u32;
        let spec = Zipf { exponent: 0.99, items_per_page: 1, accesses: 1 };
        let mut pattern = spec.build(pages, 1, "pattern").unwrap();
        let map = pattern.cells();
        let phase = pattern.next_phase(0, &mut Random::new(1, Stream::Phases(0))).unwrap();
        let Shape::Random(distribution) = phase.shape else { panic!("random") };
        let cells = distribution.weights().iter().map(|(c, w)| (f64::from(map.size(*c)), w));
        let each: Vec<(f64, f64)> = cells.map(|(size, weight)| (size, weight / size)).collect();
        let mut random = Random::new(8, Stream::Accesses(0));
        let (warm, n) = (400_000, 1_000_000);
        let trace: Vec<Page> = (0..warm + n).map(|_| distribution.draw(&map, &mut random)).collect();
        for capacity in [500, 2000, 8000] {
            let found = (hits(&trace, capacity) - hits(&trace[..warm], capacity)) as f64 / n as f64;
            let foretold = che(&each, capacity as f64);
            assert!((found - foretold).abs() < 0.005, "{capacity}: {found}, Che {foretold}");
        }
        assert_eq!(che(&each, f64::from(pages)), 1.0);
    }
}
