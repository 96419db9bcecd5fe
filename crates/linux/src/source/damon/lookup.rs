//! Pages of processes' regions, looked up by a thread: a process may block readers of its pagemap,
//! and the rest of the daemon must not wait for that.
//!
//! The thread processes one process's regions at a time, the hottest first, and looks up their
//! pages, for at most ten seconds. The frames show which pages are in lower tiers. Pages of the top
//! tier have to be looked up too, because the kernel does not distinguish them beforehand.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use thermocline_core::access::{Region, RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn, Pid, VirtPage};

use crate::reverse::{Found, HUGE_ORDER, Live, ReverseError, SLICE_PAGES, Slices};
use crate::root::Root;
use crate::topology::PfnMap;

/// Time limit for a process's regions: 5 GiB with the default budget.
const WALK_MAX: Duration = Duration::from_secs(10);
/// Minimum time between the starts of two walks through a process: candidates of the last one are
/// still in flight.
const WALK_EVERY: Nanos = Nanos::from_ms(500);
/// Slices of pages that may wait to be taken; beyond that the thread waits.
const SLICES: usize = 4;
/// Minimum number of budget checks per second.
const SLICES_PER_S: u64 = 16;

/// A process's accessed regions.
#[derive(Debug)]
struct Job {
    pid: Pid,
    time: Nanos,
    /// The hottest first.
    regions: Vec<Region>,
}

#[derive(Debug)]
enum Told {
    Pages {
        pid: Pid,
        time: Nanos,
        region: Region,
        looked_up: u64,
        found: Vec<Found>,
    },
    /// The regions are finished; whether the time limit was reached.
    Done {
        cut_short: bool,
    },
}

/// The waiting regions of one process.
#[derive(Debug)]
struct Waiting {
    began: Option<Nanos>,
    next: Option<(Nanos, Vec<Region>)>,
}

/// The thread, and the processes waiting for it.
#[derive(Debug)]
pub(super) struct Lookup {
    jobs: SyncSender<Job>,
    told: Receiver<Told>,
    busy: bool,
    processes: BTreeMap<Pid, Waiting>,
    looked_up: u64,
    cut_short: u64,
}

impl Lookup {
    /// Starts the thread, which does nothing yet.
    ///
    /// # Errors
    /// The kernel does not report where processes have memory, or hides frames from us.
    pub(super) fn start(root: &Root, pages_per_s: u32) -> Result<Lookup, ReverseError> {
        Lookup::start_on(Live::new(root)?, pages_per_s)
    }

    fn start_on(mut memory: impl Slices + Send + 'static, pages_per_s: u32) -> Result<Lookup, ReverseError> {
        let (jobs, asked) = sync_channel(1);
        let (tell, told) = sync_channel(SLICES);
        let work = move || {
            for job in asked {
                if walk(&mut memory, u64::from(pages_per_s), &job, &tell).is_none() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("damon".to_owned()).spawn(work).map_err(ReverseError::Thread)?;
        Ok(Lookup { jobs, told, busy: false, processes: BTreeMap::new(), looked_up: 0, cut_short: 0 })
    }

    /// Takes the newest regions of a process.
    pub(super) fn offer(&mut self, snapshot: &RegionSnapshot) {
        let Some(RegionSpace::Virtual(pid)) = snapshot.regions.first().map(|region| region.space) else {
            return;
        };
        let accessed = snapshot.regions.iter().copied().filter(|region| region.access_rate_bp > 0);
        let mut regions: Vec<Region> = accessed.collect();
        regions.sort_by_key(|r| (std::cmp::Reverse((r.access_rate_bp, r.age)), r.start));
        let fresh = || Waiting { began: None, next: None };
        self.processes.entry(pid).or_insert_with(fresh).next = Some((snapshot.time, regions));
    }

    /// A process is no longer watched.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Appends the pages of lower tiers found meanwhile, if their process is still watched, and
    /// gives the thread new work.
    pub(super) fn take(
        &mut self,
        now: Nanos,
        frames: &PfnMap,
        topology: &Topology,
        pages: &mut Vec<RegionPage>,
    ) {
        loop {
            match self.told.try_recv() {
                Ok(Told::Pages { pid, time, region, looked_up, found }) => {
                    self.looked_up += looked_up;
                    if self.processes.contains_key(&pid) {
                        let at = found.iter().filter_map(|found| page(pid, time, region, found, frames));
                        pages.extend(at.filter(|at| topology.is_lower(at.node)));
                    }
                }
                Ok(Told::Done { cut_short }) => {
                    self.busy = false;
                    self.cut_short += u64::from(cut_short);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let due = |waiting: &Waiting| {
            let rested = waiting.began.is_none_or(|began| now.since(began) >= WALK_EVERY);
            waiting.next.is_some() && rested
        };
        if self.busy {
            return;
        }
        let first = self.processes.iter_mut().filter(|(_, w)| due(w)).min_by_key(|(_, w)| w.began);
        if let Some((&pid, waiting)) = first
            && let Some((time, regions)) = waiting.next.take()
        {
            waiting.began = Some(now);
            self.busy = self.jobs.try_send(Job { pid, time, regions }).is_ok();
        }
    }

    /// Pages looked up, and walks that reached the time limit.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.looked_up, self.cut_short)
    }
}

fn page(pid: Pid, time: Nanos, region: Region, found: &Found, frames: &PfnMap) -> Option<RegionPage> {
    let pfn = Pfn(found.pfn);
    Some(RegionPage {
        page: VirtPage { pid, vpn: found.vpn },
        pfn: Some(pfn),
        order: if found.huge { HUGE_ORDER } else { 0 },
        node: frames.node_of(pfn)?,
        region,
        time,
    })
}

/// Looks up a process's regions; `None` if the receiver is gone.
fn walk(memory: &mut impl Slices, pages_per_s: u64, job: &Job, tell: &SyncSender<Told>) -> Option<()> {
    let began = Instant::now();
    let pages_max = (pages_per_s / SLICES_PER_S).clamp(1, SLICE_PAGES);
    let mut cut_short = false;
    'regions: for &region in &job.regions {
        let mut from = Some(region.start);
        while let Some(at) = from {
            if began.elapsed() >= WALK_MAX {
                cut_short = true;
                break 'regions;
            }
            let start = Instant::now();
            // A process that is gone, or may not be read, has no pages.
            let Ok(slice) = memory.slice(job.pid, at..region.end, pages_max) else { break 'regions };
            from = slice.next;
            let looked_up = slice.looked_up;
            let (pid, time) = (job.pid, job.time);
            tell.send(Told::Pages { pid, time, region, looked_up, found: slice.found }).ok()?;
            let must_take =
                Duration::from_nanos(looked_up.saturating_mul(1_000_000_000) / pages_per_s.max(1));
            std::thread::sleep(must_take.saturating_sub(start.elapsed()));
        }
    }
    tell.send(Told::Done { cut_short }).ok()
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::NodeId;

    use super::super::testing::{self, topology};
    use super::*;
    use crate::pagemap::{Entry, PagemapError};
    use crate::reverse::Memory;
    use crate::sys::pagemap_scan;
    use crate::topology::PfnRange;

    /// Every page of process 1 is in the frame of the same number, from 2^20 on in huge pages; the
    /// others have ended.
    struct One;

    impl Memory for One {
        fn present(
            &mut self,
            pid: Pid,
            from: u64,
            to: u64,
            pages_max: u64,
            regions: &mut [pagemap_scan::Region],
        ) -> Result<(usize, Option<u64>), PagemapError> {
            if pid != Pid(1) {
                return Err(PagemapError::Gone(std::path::PathBuf::new()));
            }
            let end = to.min(from + pages_max);
            regions[0] = pagemap_scan::Region::new(from, end, from >= 1 << 20);
            Ok((1, (end < to).then_some(end)))
        }

        fn entries(&mut self, _pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
            for (vpn, entry) in (vpn..).zip(entries.iter_mut()) {
                *entry = Entry(1 << 63 | vpn);
            }
            Ok(entries.len())
        }
    }

    /// Frames below 1000 are on node 0, all others on node 2, which is slower.
    fn machine() -> (PfnMap, Topology) {
        let range = |node, start, end| PfnRange { node: NodeId(node), start: Pfn(start), end: Pfn(end) };
        let frames = PfnMap::new(vec![range(0, 0, 1000), range(2, 1000, 1 << 30)]);
        (frames, topology())
    }

    fn snapshot(pid: u32, regions: &[(u64, u64, u16)]) -> RegionSnapshot {
        testing::snapshot(RegionSpace::Virtual(Pid(pid)), 7, regions)
    }

    /// All pages that are found until the thread has nothing to do.
    fn take(lookup: &mut Lookup, now_ms: u64) -> Vec<RegionPage> {
        let (frames, topology) = machine();
        let mut pages = Vec::new();
        let began = Instant::now();
        loop {
            lookup.take(Nanos::from_ms(now_ms), &frames, &topology, &mut pages);
            if !lookup.busy {
                return pages;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it does not come to an end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn vpns(pages: &[RegionPage]) -> Vec<u64> {
        pages.iter().map(|at| at.page.vpn).collect()
    }

    #[test]
    fn pages_of_lower_tiers_are_found_the_hottest_first() {
        let mut lookup = Lookup::start_on(One, 1_000_000).unwrap();
        lookup.offer(&snapshot(1, &[(900, 1100, 500), (2000, 2050, 9000), (3000, 4000, 0)]));
        let pages = take(&mut lookup, 0);
        assert_eq!(vpns(&pages), (2000..2050).chain(1000..1100).collect::<Vec<_>>());
        let first = pages[0];
        assert_eq!((first.node, first.pfn, first.time), (NodeId(2), Some(Pfn(2000)), Nanos::from_ms(7)));
        assert_eq!((first.page.pid, first.region.access_rate_bp), (Pid(1), 9000));
        assert_eq!(lookup.counts(), (250, 0));
        // Too soon for another walk through it.
        lookup.offer(&snapshot(1, &[(2000, 2001, 500)]));
        assert!(take(&mut lookup, 499).is_empty());
        assert_eq!(vpns(&take(&mut lookup, 500)), [2000]);
    }

    #[test]
    fn huge_pages_are_found_whole_and_cost_little() {
        let mut lookup = Lookup::start_on(One, 1_000_000).unwrap();
        let huge = 1 << 20;
        lookup.offer(&snapshot(1, &[(huge + 7, huge + 1024 + 1, 500)]));
        let pages = take(&mut lookup, 0);
        assert_eq!(vpns(&pages), [huge, huge + 512, huge + 1024]);
        assert!(pages.iter().all(|at| at.order == 9));
        assert_eq!(lookup.counts().0, 6);
    }

    #[test]
    fn the_budget_is_kept_and_processes_take_turns() {
        let mut lookup = Lookup::start_on(One, 10_000).unwrap();
        lookup.offer(&snapshot(1, &[(2000, 4000, 500)]));
        lookup.offer(&snapshot(2, &[(2000, 4000, 500)]));
        let began = Instant::now();
        assert_eq!(take(&mut lookup, 0).len(), 2000);
        assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
        assert!(lookup.processes[&Pid(2)].next.is_none(), "it had its turn, and is gone");
        // It is no longer watched.
        lookup.offer(&snapshot(1, &[(2000, 2100, 500)]));
        let (frames, topology) = machine();
        lookup.take(Nanos::from_s(1), &frames, &topology, &mut Vec::new());
        assert!(lookup.busy);
        lookup.forget(Pid(1));
        assert!(take(&mut lookup, 1000).is_empty());
    }
}
