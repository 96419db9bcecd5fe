//! How many pages one command evicts.
//!
//! Machines take from a microsecond to milliseconds for a page. A command can only be interrupted
//! by a signal, and its cost is known only afterwards, so it is kept short. It should not be so
//! small that reading the generations before each command costs more.

use thermocline_core::units::Nanos;

const LEAST_PAGES: u64 = 32;
const MOST_PAGES: u64 = 4096;
/// A command that takes less CPU time than this is followed by one twice as large.
const SHORT: Nanos = Nanos::from_ms(5);
/// A command that takes more is followed by one half as large.
const LONG: Nanos = Nanos::from_ms(20);

/// The size of the next command, which adapts to the cost of the last ones.
#[derive(Debug)]
pub(super) struct Step {
    pages: u64,
}

impl Default for Step {
    /// A size that takes a kernel less than a millisecond.
    fn default() -> Step {
        Step { pages: 128 }
    }
}

impl Step {
    /// Base pages.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// A command of this size, or a smaller one, took `cpu` of CPU time.
    pub(super) fn took(&mut self, cpu: Nanos) {
        if cpu < SHORT {
            self.pages = (self.pages * 2).min(MOST_PAGES);
        } else if cpu > LONG {
            self.pages = (self.pages / 2).max(LEAST_PAGES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_grow_until_they_take_long_enough_and_shrink_where_pages_are_slow() {
        let mut step = Step::default();
        let mut sizes = |ns_a_page: u64| {
            for _ in 0..20 {
                step.took(Nanos(step.pages() * ns_a_page));
            }
            step.pages()
        };
        assert_eq!(sizes(3_000), 2048, "6 ms");
        assert_eq!(sizes(50_000), 256, "13 ms");
        assert_eq!(sizes(10_000_000), LEAST_PAGES);
        assert_eq!(sizes(100), MOST_PAGES);
    }
}
