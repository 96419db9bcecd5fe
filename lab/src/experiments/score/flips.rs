//! Which pages move back and forth between tiers, under any manager.
//!
//! The kernel counts moves, not returns, and each manager counts in its own way. So all are judged
//! by the same reading of the page table every few seconds. A page that leaves and comes back
//! between two readings is not noticed.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thermocline_core::units::{NodeId, PAGE_SHIFT};
use thermocline_lab::programs::residency::{NodeMap, page_frames};

use crate::experiments::within::PROC;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(3);
const NAP: Duration = Duration::from_millis(100);

/// The state of one page.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// The tier it was last seen in: DRAM or not; `None` before it was seen.
    dram: Option<bool>,
    /// How often it changed its tier; two is a return.
    changes: u8,
}

/// The pages of a range.
#[derive(Debug)]
pub(crate) struct Flips {
    pages: Vec<Page>,
}

impl Flips {
    /// The state of `pages` pages.
    pub(crate) fn new(pages: usize) -> Flips {
        Flips { pages: vec![Page::default(); pages] }
    }

    /// Takes a reading of all pages: whether each is in DRAM, `None` if it is not in memory.
    pub(crate) fn look(&mut self, tiers: impl IntoIterator<Item = Option<bool>>) {
        for (page, now) in self.pages.iter_mut().zip(tiers) {
            if let Some(now) = now {
                page.changes = page.changes.saturating_add(u8::from(page.dram == Some(!now)));
                page.dram = Some(now);
            }
        }
    }

    /// Pages that have come back to a tier that they had left.
    pub(crate) fn returned(&self) -> u64 {
        self.pages.iter().filter(|page| page.changes >= 2).count() as u64
    }
}

/// Reads a process's pages on a separate thread.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Flips>>,
}

impl Watch {
    /// Starts with a first reading.
    pub(crate) fn start(pid: u32, range: &Range<u64>, slow: NodeId) -> anyhow::Result<Watch> {
        let nodes = NodeMap::read(Path::new("/sys"))?;
        let (first, count) = (range.start >> PAGE_SHIFT, (range.end - range.start) >> PAGE_SHIFT);
        let look = move |flips: &mut Flips| -> anyhow::Result<()> {
            let frames = page_frames(Path::new(PROC), pid, first, count)?;
            flips.look(frames.into_iter().map(|frame| Some(nodes.node(frame?)? != slow)));
            Ok(())
        };
        let mut flips = Flips::new(count as usize);
        look(&mut flips)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(NAP);
                if last.elapsed() >= EVERY {
                    look(&mut flips)?;
                    last = Instant::now();
                }
            }
            look(&mut flips)?;
            Ok(flips)
        });
        Ok(Watch { stop, thread })
    }

    /// Ends with a last reading; returns the number of pages that returned.
    pub(crate) fn end(self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let flips =
            self.thread.join().map_err(|_| anyhow::anyhow!("the thread that watches pages panicked"))??;
        Ok(flips.returned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_is_two_changes_and_absence_is_none() {
        let (fast, slow) = (Some(true), Some(false));
        let mut flips = Flips::new(5);
        flips.look([slow, slow, fast, None, fast]);
        flips.look([slow, fast, slow, fast, None]);
        assert_eq!(flips.returned(), 0);
        flips.look([fast, slow, fast, slow, fast]);
        assert_eq!(flips.returned(), 2);
        flips.look([fast, fast, slow, fast, slow]);
        assert_eq!(flips.returned(), 3);
    }
}
