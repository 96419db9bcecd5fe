//! The thread that looks up frames: a process may block readers of its pagemap, and the rest of the
//! daemon must not wait for that.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use thermocline_core::config;
use thermocline_core::units::{Nanos, Pid};

use super::ReverseError;
use super::scan::{Found, Memory, SLICE_PAGES, Slice, Slices, slice};
use super::table::VPN_END;
use crate::aside::Aside;
use crate::pagemap::{Entry, Pagemap, PagemapError};
use crate::root::Root;
use crate::sys::pagemap_scan::Region;

/// Ends of user space in pages, the widest first: 53 bits of addresses are the most that can be
/// recorded; 52 and 48 (arm64), 47 (x86-64 without five-level page tables). The last page is never
/// used.
const ENDS: [u64; 4] = [VPN_END - 1, (1 << 40) - 1, (1 << 36) - 1, (1 << 35) - 1];

/// Messages of the thread.
#[derive(Debug)]
pub(super) enum Told {
    /// Pages of a process.
    Pages {
        /// The process.
        pid: Pid,
        /// Its pages.
        found: Vec<Found>,
    },
    /// The round is over.
    Round(Round),
}

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Pages whose frames were looked up.
    pub(super) looked_up: u64,
    /// Pages whose frames the kernel hides.
    pub(super) hidden: u64,
    /// Processes that may not be read.
    pub(super) unreadable: u64,
    /// CPU time.
    pub(super) cpu: Nanos,
    /// How long it took.
    pub(super) took: Nanos,
}

/// The pace of the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pages_per_s: u64,
    cpu_permille: u64,
}

impl Budget {
    pub(super) fn new(config: &config::Reverse) -> Budget {
        Budget { pages_per_s: config.pages_per_s.into(), cpu_permille: config.cpu_permille.into() }
    }

    /// The minimum duration of a slice of `pages` pages that has used `cpu` of CPU time.
    fn time(self, pages: u64, cpu: Nanos) -> Duration {
        let by_pages = pages.saturating_mul(1_000_000_000) / self.pages_per_s;
        let by_cpu = cpu.0.saturating_mul(1000) / self.cpu_permille;
        Duration::from_nanos(by_pages.max(by_cpu))
    }
}

/// Processes rounds until the sender is gone.
pub(super) fn work(
    mut memory: impl Slices,
    budget: Budget,
    rounds: &Receiver<Vec<Pid>>,
    told: &SyncSender<Told>,
) {
    for pids in rounds {
        let began = Instant::now();
        let mut round = Round::default();
        for pid in pids {
            if !process(&mut memory, budget, pid, &mut round, told) {
                return;
            }
        }
        round.took = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if told.send(Told::Round(round)).is_err() {
            return;
        }
    }
}

/// Looks up all of a process; false if the receiver is gone.
fn process(
    memory: &mut impl Slices,
    budget: Budget,
    pid: Pid,
    round: &mut Round,
    told: &SyncSender<Told>,
) -> bool {
    let mut from = Some(0);
    while let Some(at) = from {
        let began = Instant::now();
        let Slice { next, looked_up, hidden, cpu, found } = match memory.slice(pid, at..VPN_END, SLICE_PAGES)
        {
            Ok(slice) => slice,
            Err(PagemapError::Gone(_)) => Slice::default(),
            Err(PagemapError::NotPermitted(_) | PagemapError::Io(..)) => {
                round.unreadable += 1;
                Slice::default()
            }
        };
        from = next;
        round.looked_up += looked_up;
        round.hidden += hidden;
        round.cpu = round.cpu.plus(cpu);
        if !found.is_empty() && told.send(Told::Pages { pid, found }).is_err() {
            return false;
        }
        std::thread::sleep(budget.time(looked_up, cpu).saturating_sub(began.elapsed()));
    }
    true
}

/// The processes of this machine.
#[derive(Debug)]
pub(crate) struct Live {
    proc: PathBuf,
    end: u64,
    aside: Aside,
}

/// The same, read by a thread that may block.
#[derive(Debug)]
struct There {
    proc: PathBuf,
    end: u64,
    open: Option<(Pid, Pagemap)>,
}

/// Time limit of a slice of a process.
const SLICE_MAX: Duration = Duration::from_secs(2);

impl Live {
    /// Determines the end of user space.
    ///
    /// # Errors
    /// The kernel does not offer PAGEMAP_SCAN, or hides frames from us.
    pub(crate) fn new(root: &Root) -> Result<Live, ReverseError> {
        let proc = root.proc.as_path();
        let own = Pagemap::open(proc, Pid(std::process::id()))?;
        let mut regions = [Region::default()];
        let errno = |e: &PagemapError| match e {
            PagemapError::Io(_, cause) => cause.raw_os_error(),
            _ => None,
        };
        for end in ENDS {
            match own.present(0, end, 1, &mut regions) {
                Ok((count, _)) => {
                    let page = regions[..count].first().map_or(0, |region| region.vpns().start);
                    let entry = own.entry(page)?.unwrap_or_default();
                    if entry.present() && entry.pfn().is_none() {
                        return Err(ReverseError::Hidden);
                    }
                    let aside = Aside::new(root, "its pages were looked up", SLICE_MAX);
                    return Ok(Live { proc: proc.to_owned(), end, aside });
                }
                Err(e) if errno(&e) == Some(libc::EFAULT) => {}
                Err(e) if errno(&e) == Some(libc::ENOTTY) => return Err(ReverseError::NotOffered),
                Err(e) => return Err(e.into()),
            }
        }
        Err(ReverseError::NotOffered)
    }
}

impl Slices for Live {
    fn slice(&mut self, pid: Pid, within: Range<u64>, pages_max: u64) -> Result<Slice, PagemapError> {
        let mut there = There { proc: self.proc.clone(), end: self.end, open: None };
        let read = self.aside.ask(pid, move || slice(&mut there, pid, within, pages_max));
        read.map_err(|hung| PagemapError::new(&self.proc, hung.into()))?
    }
}

impl Memory for There {
    /// Opens the pagemap again: after an exec the old one shows the old memory.
    fn present(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        pages_max: u64,
        regions: &mut [Region],
    ) -> Result<(usize, Option<u64>), PagemapError> {
        self.open = None;
        let (map, to) = (Pagemap::open(&self.proc, pid)?, to.min(self.end));
        if from >= to {
            return Ok((0, None));
        }
        let (count, walked) = map.present(from, to, pages_max, regions)?;
        self.open = Some((pid, map));
        Ok((count, Some(walked).filter(|walked| *walked < to)))
    }

    fn entries(&mut self, pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
        match &self.open {
            Some((open, map)) if *open == pid => map.read(vpn, entries),
            _ => Pagemap::open(&self.proc, pid)?.read(vpn, entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_as_long_as_the_tighter_budget_asks() {
        let budget = Budget { pages_per_s: 1_000_000, cpu_permille: 50 };
        assert_eq!(budget.time(8192, Nanos(1000)), Duration::from_micros(8192));
        assert_eq!(budget.time(8192, Nanos::from_ms(1)), Duration::from_millis(20));
    }
}
