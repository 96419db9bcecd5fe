//! Accesses one by one, drawn from a phase: used by exact mode.

use super::Shape;
use crate::memory::{Page, Space};
use crate::random::Random;

/// Fills `out` with the pages of the next accesses of a thread in a phase of this shape.
pub fn fill(space: &Space, shape: &mut Shape, random: &mut Random, out: &mut [Page]) {
    match shape {
        Shape::Random(distribution) => match distribution.even_positions() {
            Some(even) => {
                let (start, len) = (even.start, u64::from(even.end - even.start));
                for page in out {
                    *page = space.page(start + random.below(len) as u32);
                }
            }
            None => {
                for page in out {
                    *page = space.page(distribution.draw(&space.map, random));
                }
            }
        },
        Shape::Walk(walk) => {
            for page in out {
                *page = space.page(walk.access());
            }
        }
    }
}
