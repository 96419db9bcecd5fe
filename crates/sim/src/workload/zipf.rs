//! Pattern `zipf`: items of zipf popularity, scattered over the pages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ranks::{Ranks, check_exponent};
use super::steady::Steady;
use super::{Pattern, Phase, Shape};
use crate::memory::layout::{Layout, Shuffle};
use crate::spec::{SpecError, require};

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zipf {
    /// The item of rank r is accessed in proportion to r to the power of minus this.
    #[serde(default = "exponent")]
    pub exponent: f64,
    /// Items on a page: ranks are spread over the pages at random.
    #[serde(default = "one")]
    pub items_per_page: u32,
    /// Accesses of each thread.
    pub accesses: u64,
}

pub(super) fn exponent() -> f64 {
    0.99
}

pub(super) fn one() -> u32 {
    1
}

impl Zipf {
    pub(crate) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        self.spanning(1, pages, threads, place)
    }

    /// The same if an access continues through `span` pages.
    pub(super) fn spanning(
        &self,
        span: u32,
        pages: u32,
        threads: u32,
        place: &str,
    ) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.accesses > 0, &format!("{place}.accesses"), "is zero", "give each thread an access")?;
        check_exponent(self.exponent, place)?;
        let per_page = (1..=4096).contains(&self.items_per_page);
        require(per_page, &format!("{place}.items_per_page"), "is out of range", "give 1 to 4096")?;
        let (map, distribution) = Ranks::zipf(pages, self.items_per_page, span, self.exponent).falling();
        let phase = Phase { shape: Shape::Random(Arc::new(distribution)), accesses: self.accesses };
        Ok(Box::new(Steady::new(map, Layout::Shuffled(Shuffle::new(pages, 1)), phase, threads)))
    }
}
