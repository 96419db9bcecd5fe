//! What one operation of a program accesses: a request to a store, a transaction.

use std::ops::Range;
use std::sync::Arc;

use super::Distribution;
use crate::random::Random;

/// Visits to pages of some cells, each page drawn on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Visits {
    /// The cells (of the process).
    pub cells: Range<u32>,
    /// Least and largest number of visits, between which all are equally likely; the fraction of a
    /// number is the chance of one more.
    pub number: (f64, f64),
    /// Accesses to the page at each.
    pub accesses: f64,
}

impl Visits {
    /// Always this many, of one access each.
    pub fn single(cells: Range<u32>, number: f64) -> Visits {
        Visits { cells, number: (number, number), accesses: 1.0 }
    }

    /// Draws how many there are.
    pub fn draw(&self, random: &mut Random) -> u32 {
        let (least, largest) = self.number;
        let number = if least < largest { least + random.unit() * (largest - least) } else { least };
        number as u32 + u32::from(random.chance(number.fract()))
    }

    /// Mean accesses.
    pub fn mean(&self) -> f64 {
        (self.number.0 + self.number.1) / 2.0 * self.accesses
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The kinds of operation, each with its share of them; the shares sum to 1.
    pub kinds: Vec<(f64, Vec<Visits>)>,
    /// How the pages are picked; `None`: as the threads do in their present phase.
    pub popularity: Option<Arc<Distribution>>,
}

impl Operation {
    /// Mean accesses of an operation.
    pub fn accesses(&self) -> f64 {
        self.kinds.iter().map(|(share, all)| share * all.iter().map(Visits::mean).sum::<f64>()).sum()
    }
}
