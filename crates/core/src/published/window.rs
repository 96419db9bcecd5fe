//! S2's window of pages handled ahead of a stream of hint faults.
//!
//! Source: S2, "mm: Add speculative numa fault support" (2021-12), field `numafault_ahead` of a
//! mapping: the page after the last fault, and a number of pages. There is one window per mapping:
//! interleaved streams destroy each other's, and a descending stream is taken for random (its
//! author's TODO).

/// Pages of a window that opens.
pub const OPEN: u64 = 2;
/// Pages that a window grows by when the stream went past it.
pub const GROW: u64 = 1;
/// Pages that a window shrinks by at a fault elsewhere.
pub const SHRINK: u64 = 2;

/// The window after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The page after the fault.
    pub start: u64,
    /// Pages expected; 0 if no stream is seen.
    pub pages: u64,
}

impl Window {
    /// The pages to handle after the fault, one more than the window has.
    pub const fn ahead(self) -> std::ops::Range<u64> {
        let pages = if self.pages == 0 { 0 } else { self.pages + 1 };
        self.start..self.start.saturating_add(pages)
    }
}

/// The next window of a mapping after a fault on page `fault`. `left` pages follow it in its
/// mapping and its 2 MiB block.
///
/// A window that grows, stays or shrinks ends with them. One that opens does not, as in the patch;
/// who handles the pages ahead stops there.
pub fn adjust(previous: Option<Window>, fault: u64, left: u64) -> Window {
    let clamp = |pages: u64| pages.min(left);
    let pages = match previous {
        None => OPEN,
        Some(Window { start, pages: 0 }) => {
            if fault == start || fault == start.saturating_add(1) {
                OPEN
            } else {
                0
            }
        }
        Some(Window { start, pages }) => {
            let end = start.saturating_add(pages);
            if fault == end || fault == end.saturating_add(1) {
                clamp(pages + GROW)
            } else if (start..end).contains(&fault) {
                clamp(pages)
            } else {
                clamp(pages.saturating_sub(SHRINK))
            }
        }
    };
    Window { start: fault.saturating_add(1), pages }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows after faults on these pages of a large mapping.
    fn run(faults: &[u64]) -> Vec<u64> {
        let mut window = None;
        faults
            .iter()
            .map(|fault| {
                let next = adjust(window, *fault, 511);
                window = Some(next);
                assert_eq!(next.start, fault + 1);
                next.pages
            })
            .collect()
    }

    #[test]
    fn it_opens_at_two_and_grows_by_one_with_each_fault_past_it() {
        // Window 2 handles pages 101, 102, 103; the stream goes on at 104 and so forth.
        assert_eq!(run(&[100, 104, 109, 115]), [2, 3, 4, 5]);
        assert_eq!(adjust(None, 100, 511).ahead(), 101..104);
        // The last page handled may have failed: a fault on it goes past the window as well.
        assert_eq!(run(&[100, 103, 107]), [2, 3, 4]);
    }

    #[test]
    fn a_fault_inside_keeps_it() {
        assert_eq!(run(&[100, 101, 102]), [2, 2, 2]);
    }

    #[test]
    fn a_fault_elsewhere_shrinks_it_by_two_until_it_closes() {
        assert_eq!(run(&[100, 104, 109, 5000, 9000, 13]), [2, 3, 4, 2, 0, 0]);
        // Closed, it opens again after two faults in a row.
        assert_eq!(run(&[100, 5000, 9000, 9001, 9005]), [2, 0, 0, 2, 3]);
        assert_eq!(run(&[100, 5000, 9000, 9002]), [2, 0, 0, 2]);
    }

    #[test]
    fn what_the_original_lacks() {
        // A descending stream is random.
        assert_eq!(run(&[100, 99, 98, 97, 96]), [2, 0, 0, 0, 0]);
        // Two streams in one mapping undo each other.
        assert_eq!(run(&[100, 5000, 101, 5001, 102, 5002]), [2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn it_ends_with_its_block_or_mapping_unless_it_opens() {
        let at = |pages, fault, left| adjust(Some(Window { start: 500, pages }), fault, left).pages;
        assert_eq!([at(8, 508, 3), at(8, 505, 6), at(8, 511, 0)], [3, 6, 0], "grown, kept, shrunk");
        assert_eq!(adjust(None, 511, 0), Window { start: 512, pages: 2 });
        assert_eq!(at(0, 501, 1), 2, "opened again");
        assert!(adjust(Some(Window { start: 0, pages: 0 }), 7, 9).ahead().is_empty());
    }
}
