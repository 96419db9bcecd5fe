//! By DAMON's regions (Linux 6.11 and later): a kdamond a node knows which regions have not been accessed for how long, and moves so much of
//! the coldest to the lower tier as it is told. It needs no debugfs, so that it works in a kernel that is locked down.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use thermocline_core::demotion::Demand;
use thermocline_core::units::PAGE_SIZE;

use super::DemoterStats;
use super::demand::{SPAN, Taken};
use crate::actuator::Commands;
use crate::damon::Setup;
use crate::damon::on_demand::{AGGREGATION_MS, CLOSED_BYTES, WINDOW_MS, file};

/// Time between two looks at what was done.
const NAP: Duration = Duration::from_millis(50);
/// How long the first page may take: the window of the demand before has to end, and then an aggregation.
const OPENING: Duration = Duration::from_millis(WINDOW_MS + 2 * AGGREGATION_MS);
/// When so long nothing more is tried, there is nothing more to try.
const QUIET: Duration = Duration::from_millis(2 * AGGREGATION_MS);

/// What the thread works with.
#[derive(Debug)]
pub(super) struct ByRegions {
    commands: Commands,
    setup: Setup,
    /// Bytes that each kdamond had moved when last asked: what went late belongs to the next demand.
    told: BTreeMap<usize, u64>,
}

/// Bytes since a kdamond began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    tried: u64,
    moved: u64,
}

impl ByRegions {
    pub(super) fn new(setup: Setup, commands: Commands) -> ByRegions {
        ByRegions { commands, setup, told: BTreeMap::new() }
    }

    /// Demotes what the demand asks for, as far as regions are as idle; returns what went down.
    ///
    /// # Errors
    /// The kdamond does not do what it is told: somebody has ended it, for instance.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<Taken> {
        let Some(kdamond) = self.setup.kdamond_of(demand.node) else { return Ok(Taken::default()) };
        let bytes = demand.pages.saturating_mul(PAGE_SIZE);
        let start = self.done(kdamond)?;
        let age = demand.idle.ms().div_ceil(AGGREGATION_MS).clamp(1, u32::MAX.into());
        self.commands.tell_kdamond(kdamond, file::AGE, &age.to_string())?;
        self.quota(kdamond, bytes.max(PAGE_SIZE))?;
        stats.evictions += 1;
        let begun = self.wait(kdamond, OPENING, &stopped, |done| done.tried > start.tried);
        // What is left of the window's quota stays; another window gives nothing.
        self.quota(kdamond, CLOSED_BYTES)?;
        let mut last = begun?;
        let end = Instant::now() + SPAN;
        while last.tried > start.tried && last.tried - start.tried < bytes && Instant::now() < end {
            let next = self.wait(kdamond, QUIET, &stopped, |done| done.tried > last.tried)?;
            if next == last {
                break;
            }
            last = next;
        }
        let before = self.told.insert(kdamond, last.moved).unwrap_or(start.moved);
        let pages = last.moved.saturating_sub(before) / PAGE_SIZE;
        stats.refused += u64::from(pages == 0);
        stats.demoted_pages += pages;
        stats.by_damon_pages += pages;
        Ok(Taken { pages, ..Taken::default() })
    }

    /// Waits until `enough`, at most `bound`; returns what was done by then.
    fn wait(
        &mut self,
        kdamond: usize,
        bound: Duration,
        stopped: &impl Fn() -> bool,
        enough: impl Fn(Done) -> bool,
    ) -> io::Result<Done> {
        let end = Instant::now() + bound;
        loop {
            let done = self.done(kdamond)?;
            if enough(done) || stopped() || Instant::now() >= end {
                return Ok(done);
            }
            std::thread::sleep(NAP);
        }
    }

    /// Has the kdamond take up another quota, at the end of an aggregation, for which this waits.
    fn quota(&mut self, kdamond: usize, bytes: u64) -> io::Result<()> {
        self.commands.tell_kdamond(kdamond, file::QUOTA, &bytes.to_string())?;
        self.commands.tell_kdamond(kdamond, file::STATE, "commit")
    }

    fn done(&mut self, kdamond: usize) -> io::Result<Done> {
        match self.commands.update_schemes_stats(kdamond) {
            // It is too busy to answer: the figures are those of the last time.
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) => return Err(e),
            _ => {}
        }
        let count = |file| {
            let text = self.commands.read_kdamond(kdamond, file)?;
            text.trim().parse::<u64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        Ok(Done { tried: count(file::TRIED)?, moved: count(file::MOVED)? })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use thermocline_core::units::{Nanos, NodeId};

    use super::*;
    use crate::actuator::door::Door;
    use crate::root::Root;

    /// A kdamond that knows so many cold bytes and looks at what it was told last when it is asked for figures.
    #[derive(Clone, Default)]
    struct Kdamond(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        cold: u64,
        told_quota: u64,
        quota: u64,
        moved: u64,
        ended: bool,
        told: Vec<String>,
    }

    impl Door for Kdamond {
        fn read(&self, path: &Path) -> io::Result<String> {
            let state = self.0.lock().unwrap();
            assert!(path.ends_with(file::TRIED) || path.ends_with(file::MOVED), "{}", path.display());
            Ok(format!("{}\n", state.moved))
        }

        fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            if state.ended {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            if path.ends_with(file::QUOTA) {
                state.told_quota = value.parse().unwrap();
            }
            match value {
                "commit" => state.quota = state.told_quota,
                // Less than a page is nothing.
                "update_schemes_stats" => {
                    let moved = state.quota.min(state.cold) / PAGE_SIZE * PAGE_SIZE;
                    state.cold -= moved;
                    state.moved += moved;
                    state.quota = 0;
                    return Ok(());
                }
                _ => {}
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            state.told.push(format!("{name} {value}"));
            Ok(())
        }

        fn reaches_kernel(&self) -> bool {
            true
        }
    }

    fn demand(pages: u64) -> Demand {
        let (allowances, braked) = (Vec::new(), Vec::new());
        Demand { id: 1, node: NodeId(0), pages, idle: Nanos::from_ms(1_900), allowances, braked }
    }

    fn demote(kdamond: &Kdamond, pages: u64) -> (io::Result<u64>, DemoterStats) {
        let commands = Commands::with_door(&Root::at("/absent"), Box::new(kdamond.clone()));
        let mut worker = ByRegions::new(Setup::of_one(NodeId(0), NodeId(2)), commands);
        let mut stats = DemoterStats::default();
        let taken = worker.carry_out(&demand(pages), || false, &mut stats);
        (taken.map(|taken| taken.pages), stats)
    }

    #[test]
    fn a_demand_opens_the_quota_once_and_closes_it() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().cold = 1000 * PAGE_SIZE;
        let (pages, stats) = demote(&kdamond, 100);
        assert_eq!((pages.unwrap(), stats.demoted_pages, stats.by_damon_pages), (100, 100, 100));
        let told = kdamond.0.lock().unwrap().told.join(", ");
        assert_eq!(told, "min 8, bytes 409600, state commit, bytes 1, state commit");
    }

    #[test]
    fn where_little_is_cold_little_goes_and_the_quota_is_closed_all_the_same() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().cold = 7 * PAGE_SIZE;
        assert_eq!(demote(&kdamond, 100).0.unwrap(), 7);
        let (pages, stats) = demote(&kdamond, 100);
        assert_eq!((pages.unwrap(), stats.refused), (0, 1));
        assert_eq!(kdamond.0.lock().unwrap().told_quota, CLOSED_BYTES);
    }

    #[test]
    fn a_kdamond_that_somebody_has_ended_is_a_failure() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().ended = true;
        assert!(demote(&kdamond, 100).0.is_err());
    }
}
