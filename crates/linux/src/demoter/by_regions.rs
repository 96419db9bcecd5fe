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
use crate::damon::on_demand::{AGGREGATION_MS, file, scheme};

/// Time between two looks at what was done.
const NAP: Duration = Duration::from_millis(50);
/// How long the first page may take: the kdamond takes the scheme up at the end of an aggregation, and applies it after the next.
const OPENING: Duration = Duration::from_millis(4 * AGGREGATION_MS);
/// When so long nothing more is tried, there is nothing more to try.
const QUIET: Duration = Duration::from_millis(2 * AGGREGATION_MS);

/// What the thread works with.
#[derive(Debug)]
pub(super) struct ByRegions {
    commands: Commands,
    setup: Setup,
    /// Bytes that the scheme of each kdamond that has one had moved when last asked.
    told: BTreeMap<usize, u64>,
}

/// Bytes since a scheme was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    tried: u64,
    moved: u64,
}

impl ByRegions {
    pub(super) fn new(setup: Setup, commands: Commands) -> ByRegions {
        ByRegions { commands, setup, told: BTreeMap::new() }
    }

    /// Demotes what the demand asks for, as far as regions are as idle; returns what went down. The kdamond gets a new scheme for it, whose quota is given once:
    /// however late it is looked at again, no more goes than was asked for.
    ///
    /// # Errors
    /// The kdamond does not do what it is told: somebody has ended it, for instance.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<Taken> {
        let Some((kdamond, to)) = self.setup.kdamond_of(demand.node) else { return Ok(Taken::default()) };
        let bytes = demand.pages.max(1).saturating_mul(PAGE_SIZE);
        let age = demand.idle.ms().div_ceil(AGGREGATION_MS).clamp(1, u32::MAX.into());
        // What went after the last demand was told, belongs to this one.
        let late = match self.told.get(&kdamond).copied() {
            Some(told) => self.done(kdamond)?.moved.saturating_sub(told),
            None => 0,
        };
        self.commands.tell_kdamond(kdamond, file::SCHEMES, "0")?;
        self.commands.tell_kdamond(kdamond, file::STATE, "commit")?;
        self.told.remove(&kdamond);
        self.commands.tell_kdamond(kdamond, file::SCHEMES, "1")?;
        for (file, value) in scheme(to, bytes, age) {
            self.commands.tell_kdamond(kdamond, &file, &value)?;
        }
        self.commands.tell_kdamond(kdamond, file::STATE, "commit")?;
        self.told.insert(kdamond, 0);
        stats.evictions += 1;
        let mut last = self.wait(kdamond, OPENING, &stopped, Done::default())?;
        let end = Instant::now() + SPAN;
        while last.tried > 0 && last.tried < bytes && Instant::now() < end && !stopped() {
            let next = self.wait(kdamond, QUIET, &stopped, last)?;
            if next == last {
                break;
            }
            last = next;
        }
        self.told.insert(kdamond, last.moved);
        let pages = (late + last.moved) / PAGE_SIZE;
        stats.refused += u64::from(pages == 0);
        stats.demoted_pages += pages;
        stats.by_damon_pages += pages;
        Ok(Taken { pages, ..Taken::default() })
    }

    /// Waits until more was tried than `before`, at most `bound`; returns what was done by then.
    fn wait(
        &mut self,
        kdamond: usize,
        bound: Duration,
        stopped: &impl Fn() -> bool,
        before: Done,
    ) -> io::Result<Done> {
        let end = Instant::now() + bound;
        loop {
            let done = self.done(kdamond)?;
            if done.tried > before.tried || stopped() || Instant::now() >= end {
                return Ok(done);
            }
            std::thread::sleep(NAP);
        }
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

    const QUOTA: &str = "contexts/0/schemes/0/quotas/bytes";
    const AGE: &str = "contexts/0/schemes/0/access_pattern/age/min";

    /// A kdamond that knows so many cold bytes and looks at what it was told last when it is asked for figures.
    #[derive(Clone, Default)]
    struct Kdamond(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        cold: u64,
        told_quota: u64,
        quota: u64,
        /// Of the scheme that there is.
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
            if path.ends_with(QUOTA) {
                state.told_quota = value.parse().unwrap();
            }
            if path.ends_with(file::SCHEMES) {
                (state.told_quota, state.moved) = (0, 0);
            }
            match value {
                "commit" => state.quota = state.told_quota,
                // Less than a page is nothing.
                "update_schemes_stats" => {
                    let moved = state.quota.min(state.cold) / PAGE_SIZE * PAGE_SIZE;
                    state.cold -= moved;
                    state.moved += moved;
                    state.quota -= moved;
                    return Ok(());
                }
                _ => {}
            }
            if [file::SCHEMES, AGE, QUOTA, file::STATE].iter().any(|told| path.ends_with(told)) {
                let name = path.file_name().unwrap().to_str().unwrap();
                state.told.push(format!("{name} {value}"));
            }
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

    fn worker(kdamond: &Kdamond) -> ByRegions {
        let commands = Commands::with_door(&Root::at("/absent"), Box::new(kdamond.clone()));
        ByRegions::new(Setup::of_one(NodeId(0), NodeId(2)), commands)
    }

    fn demote(worker: &mut ByRegions, pages: u64) -> io::Result<u64> {
        let mut stats = DemoterStats::default();
        let taken = worker.carry_out(&demand(pages), || false, &mut stats)?;
        assert_eq!((stats.demoted_pages, stats.by_damon_pages), (taken.pages, taken.pages));
        assert_eq!(stats.refused, u64::from(taken.pages == 0));
        Ok(taken.pages)
    }

    #[test]
    fn a_demand_is_a_scheme_with_one_quota() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().cold = 1000 * PAGE_SIZE;
        assert_eq!(demote(&mut worker(&kdamond), 100).unwrap(), 100);
        let told = kdamond.0.lock().unwrap().told.join(", ");
        assert_eq!(told, "nr_schemes 0, state commit, nr_schemes 1, min 8, bytes 409600, state commit");
    }

    #[test]
    fn where_little_is_cold_little_goes_and_what_goes_late_is_told_with_the_next_demand() {
        let kdamond = Kdamond::default();
        let mut worker = worker(&kdamond);
        kdamond.0.lock().unwrap().cold = 7 * PAGE_SIZE;
        assert_eq!(demote(&mut worker, 100).unwrap(), 7);
        assert_eq!(demote(&mut worker, 100).unwrap(), 0);
        kdamond.0.lock().unwrap().cold = 500 * PAGE_SIZE;
        assert_eq!(demote(&mut worker, 10).unwrap(), 110, "100 of them late");
    }

    #[test]
    fn a_kdamond_that_somebody_has_ended_is_a_failure() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().ended = true;
        assert!(demote(&mut worker(&kdamond), 100).is_err());
    }
}
