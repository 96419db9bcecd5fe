//! A distribution of accesses: a weight for each of some cells, even within a cell.

use std::ops::Range;

use crate::memory::CellMap;
use crate::random::Random;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Cells (of the process) that are accessed, ascending, with their share of the accesses; the
    /// shares sum to 1.
    weights: Vec<(u32, f64)>,
    /// The positions, if all are equally likely.
    even: Option<Range<u32>>,
    /// Alias table: the probability to stay, and the alternative (A. J. Walker, 1977).
    alias: Vec<(f64, u32)>,
}

impl Distribution {
    /// Accesses spread evenly over the pages of neighbouring cells.
    pub fn even(map: &CellMap, cells: Range<u32>) -> Distribution {
        let positions = map.range(cells.start).start..map.range(cells.end - 1).end;
        let all = f64::from(positions.end - positions.start);
        let weights = cells.map(|cell| (cell, f64::from(map.size(cell)) / all)).collect();
        Distribution { weights, even: Some(positions), alias: Vec::new() }
    }

    /// Accesses by weight; cells without weight are left out. The weights need not sum to 1.
    pub fn weighted(weights: impl IntoIterator<Item = (u32, f64)>) -> Distribution {
        let mut weights: Vec<(u32, f64)> = weights.into_iter().filter(|(_, w)| *w > 0.0).collect();
        weights.sort_by_key(|(cell, _)| *cell);
        let sum: f64 = weights.iter().map(|(_, w)| w).sum();
        weights.iter_mut().for_each(|(_, w)| *w /= sum);
        let alias = alias(&weights);
        Distribution { weights, even: None, alias }
    }

    /// The cells and their shares, ascending by cell.
    #[inline]
    pub fn weights(&self) -> &[(u32, f64)] {
        &self.weights
    }

    /// The index of a cell in [`Distribution::weights`].
    #[inline]
    pub fn index_of(&self, cell: u32) -> Option<usize> {
        let first = self.weights.first()?.0;
        // Nearly always the cells follow each other without a gap.
        let guess = cell.checked_sub(first)? as usize;
        match self.weights.get(guess) {
            Some((c, _)) if *c == cell => Some(guess),
            _ => self.weights.binary_search_by_key(&cell, |(c, _)| *c).ok(),
        }
    }

    /// The positions, if all are equally likely.
    pub fn even_positions(&self) -> Option<Range<u32>> {
        self.even.clone()
    }

    /// Draws a position.
    #[inline]
    pub fn draw(&self, map: &CellMap, random: &mut Random) -> u32 {
        if let Some(even) = &self.even {
            return even.start + random.below(u64::from(even.end - even.start)) as u32;
        }
        let mut index = random.below(self.alias.len() as u64) as usize;
        let (stay, other) = self.alias[index];
        if random.unit() >= stay {
            index = other as usize;
        }
        let range = map.range(self.weights[index].0);
        range.start + random.below(u64::from(range.end - range.start)) as u32
    }
}

fn alias(weights: &[(u32, f64)]) -> Vec<(f64, u32)> {
    let n = weights.len();
    let mut table: Vec<(f64, u32)> =
        weights.iter().enumerate().map(|(i, (_, w))| (w * n as f64, i as u32)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| table[*i].0 < 1.0);
    while let (Some(s), Some(l)) = (small.pop(), large.last().copied()) {
        table[s].1 = l as u32;
        table[l].0 -= 1.0 - table[s].0;
        if table[l].0 < 1.0 {
            large.pop();
            small.push(l);
        }
    }
    // The remaining entries differ from 1 by rounding only.
    small.into_iter().chain(large).for_each(|i| table[i].0 = 1.0);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn draws_follow_the_weights() {
        let map = CellMap::of(&[0, 1, 3, 10, 500], 1000);
        let weights = [(0, 5.0), (2, 1.0), (3, 0.5), (4, 3.5)];
        let distribution = Distribution::weighted(weights);
        let mut random = Random::new(2, Stream::Accesses(0));
        let mut count = [0u32; 5];
        for _ in 0..400_000 {
            count[map.cell_of(distribution.draw(&map, &mut random)) as usize] += 1;
        }
        assert_eq!(count[1], 0);
        for (cell, weight) in weights {
            let share = f64::from(count[cell as usize]) / 400_000.0;
            assert!((share - weight / 10.0).abs() < 0.004, "{cell}: {share}");
        }
        assert_eq!(distribution.index_of(3), Some(2));
        assert_eq!(distribution.index_of(1), None);
    }

    #[test]
    fn even_means_every_position_of_the_range() {
        let map = CellMap::equal(1000, 300);
        let distribution = Distribution::even(&map, 1..4);
        let mut random = Random::new(2, Stream::Accesses(0));
        let drawn: Vec<u32> = (0..10_000).map(|_| distribution.draw(&map, &mut random)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&300), Some(&999)));
        assert!((distribution.weights().iter().map(|(_, w)| w).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(distribution.weights()[2].1, 100.0 / 700.0);
    }
}
