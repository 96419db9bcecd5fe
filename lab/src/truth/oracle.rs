//! The best placement that never moves a page.

/// The share (0 to 1) of all misses that the fast tier would have served, had the `capacity` pages
/// with the most misses been in it throughout; `None` without any miss. No fixed placement of whole
/// pages does better on these counts.
pub fn best_static(misses_by_page: impl IntoIterator<Item = u64>, capacity: usize) -> Option<f64> {
    let mut misses: Vec<u64> = misses_by_page.into_iter().collect();
    let all: u64 = misses.iter().sum();
    if capacity < misses.len() {
        // The first `capacity` are then the greatest, in any order.
        misses.select_nth_unstable_by(capacity, |a, b| b.cmp(a));
        misses.truncate(capacity);
    }
    let best: u64 = misses.iter().sum();
    (all > 0).then(|| best as f64 / all as f64)
}

/// The share (0 to 1) of the misses that went to pages for which `is_fast` holds; `None` without
/// any miss.
pub fn served_share<P>(
    pages: impl IntoIterator<Item = (P, u64)>,
    is_fast: impl Fn(&P) -> bool,
) -> Option<f64> {
    let (mut fast, mut all) = (0u64, 0u64);
    for (page, misses) in pages {
        all += misses;
        if is_fast(&page) {
            fast += misses;
        }
    }
    (all > 0).then(|| fast as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn hand_computed() {
        let misses = [1, 7, 0, 2, 10];
        assert_eq!(best_static(misses, 0), Some(0.0));
        assert_eq!(best_static(misses, 1), Some(0.5));
        assert_eq!(best_static(misses, 2), Some(0.85));
        assert_eq!(best_static(misses, 4), Some(1.0));
        assert_eq!(best_static(misses, 5), Some(1.0));
        assert_eq!(best_static(misses, 99), Some(1.0));
        assert_eq!(best_static([], 3), None);
        assert_eq!(best_static([0, 0], 1), None);
        assert_eq!(served_share([(1, 30u64), (2, 10)], |&page| page == 1), Some(0.75));
    }

    #[test]
    fn no_placement_beats_it() {
        for seed in 0..200 {
            let mut rng = Pcg32::seed_from_u64(seed);
            let pages: Vec<u64> = (0..12).map(|_| u64::from(rng.next_u32() % 50)).collect();
            let capacity = rng.next_u32() as usize % 13;
            let all: u64 = pages.iter().sum();
            let by_hand = (0u32..1 << 12)
                .filter(|set| set.count_ones() as usize == capacity)
                .map(|set| (0..12).filter(|i| set >> i & 1 == 1).map(|i| pages[i]).sum::<u64>())
                .max()
                .unwrap();
            assert_eq!(best_static(pages, capacity), Some(by_hand as f64 / all as f64), "seed {seed}");
        }
    }
}
