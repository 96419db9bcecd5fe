//! By DAMON's regions (Linux 6.11 and later): one kdamond per node knows for how long regions have
//! not been accessed, and moves as much of the coldest to the lower tier as requested. It needs no
//! debugfs, so it works in a locked-down kernel.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use thermocline_core::demand::Demand;
use thermocline_core::units::PAGE_SIZE;

use super::DemoterStats;
use super::demand::{SPAN, Taken};
use crate::actuator::Commands;
use crate::damon::Setup;
use crate::damon::on_demand::{AGGREGATION_MS, file, fired, loaded};

/// Time between two readings of the result.
const NAP: Duration = Duration::from_millis(50);
/// How long a quota may take to come into effect: a window begins when the kdamond checks a scheme,
/// once per aggregation.
const LOADING: Duration = Duration::from_millis(8 * AGGREGATION_MS);
/// How long the first page may take: the kdamond reads the scheme at the end of an aggregation, and
/// applies it after the next.
const OPENING: Duration = Duration::from_millis(4 * AGGREGATION_MS);
/// If nothing more is tried for this long, there is nothing more to try.
const QUIET: Duration = Duration::from_millis(2 * AGGREGATION_MS);

/// The thread's state.
#[derive(Debug)]
pub(super) struct ByRegions {
    commands: Commands,
    setup: Setup,
    /// The last figures of the scheme of each kdamond that has one.
    told: BTreeMap<usize, Done>,
}

/// Bytes since a scheme was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    tried: u64,
    moved: u64,
}

impl ByRegions {
    pub(super) fn new(setup: Setup, commands: Commands) -> ByRegions {
        ByRegions { commands, setup, told: BTreeMap::new() }
    }

    /// Carries out a demand as far as regions are idle enough; returns the pages demoted. The
    /// scheme gets its quota only once, so until it is loaded again no more is demoted than was
    /// asked for.
    ///
    /// # Errors
    /// The kdamond does not follow commands: somebody has ended it, for instance.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<Taken> {
        let Some((kdamond, to)) = self.setup.kdamond_of(demand.node) else { return Ok(Taken::default()) };
        let bytes = demand.pages.max(1).saturating_mul(PAGE_SIZE);
        let age = demand.idle.ms().div_ceil(AGGREGATION_MS).clamp(1, u32::MAX.into());
        // Pages moved after the last demand's report belong to this one.
        let told = match self.told.get(&kdamond) {
            Some(told) => *told,
            None => {
                self.commands.tell_kdamond(kdamond, file::SCHEMES, "1")?;
                Done::default()
            }
        };
        self.told.insert(kdamond, told);
        self.commit(kdamond, loaded(to, bytes))?;
        if !self.is_loaded(kdamond, bytes, &stopped)? {
            stats.refused += 1;
            return Ok(Taken::default());
        }
        let begun = self.done(kdamond)?;
        self.commit(kdamond, fired(age))?;
        stats.evictions += 1;
        let mut last = self.wait(kdamond, OPENING, &stopped, begun)?;
        let end = Instant::now() + SPAN;
        while last.tried > begun.tried
            && last.tried - begun.tried < bytes
            && Instant::now() < end
            && !stopped()
        {
            let next = self.wait(kdamond, QUIET, &stopped, last)?;
            if next == last {
                break;
            }
            last = next;
        }
        self.told.insert(kdamond, last);
        let pages = last.moved.saturating_sub(told.moved) / PAGE_SIZE;
        stats.refused += u64::from(pages == 0);
        stats.demoted_pages += pages;
        stats.by_damon_pages += pages;
        Ok(Taken { pages, ..Taken::default() })
    }

    /// Has the kdamond apply these values.
    fn commit(&mut self, kdamond: usize, values: Vec<(String, String)>) -> io::Result<()> {
        for (file, value) in values {
            self.commands.tell_kdamond(kdamond, &file, &value)?;
        }
        self.commands.tell_kdamond(kdamond, file::STATE, "commit")
    }

    /// Waits until the quota is in effect, for at most [`LOADING`]; returns whether it is. The same
    /// quota may have been in effect before, so it is read after the kdamond has checked the scheme
    /// again.
    fn is_loaded(&mut self, kdamond: usize, bytes: u64, stopped: &impl Fn() -> bool) -> io::Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < LOADING && !stopped() {
            std::thread::sleep(NAP);
            if begun.elapsed() < QUIET {
                continue;
            }
            // One that is too busy to answer does so next time.
            if self.commands.update_schemes_quotas(kdamond).is_ok()
                && self.number(kdamond, file::QUOTA)? == bytes
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until more was tried than `before`, for at most `bound`; returns the figures by then.
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
        Ok(Done { tried: self.number(kdamond, file::TRIED)?, moved: self.number(kdamond, file::MOVED)? })
    }

    fn number(&self, kdamond: usize, file: &str) -> io::Result<u64> {
        let text = self.commands.read_kdamond(kdamond, file)?;
        text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
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

    const BYTES: &str = "contexts/0/schemes/0/quotas/bytes";
    const WINDOW: &str = "contexts/0/schemes/0/quotas/reset_interval_ms";
    const AGE: &str = "contexts/0/schemes/0/access_pattern/age/min";

    /// A kdamond that knows `cold` bytes of cold memory, and checks its scheme whenever it is asked
    /// for figures. As in Linux 6.12.117, its quota is 0, which limits nothing, until its second
    /// window begins.
    #[derive(Clone, Default)]
    struct Kdamond(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        cold: u64,
        files: BTreeMap<String, u64>,
        /// The committed values.
        known: BTreeMap<String, u64>,
        begun: bool,
        quota: u64,
        charged: u64,
        moved: u64,
        /// It never applies a quota.
        deaf: bool,
        ended: bool,
        told: Vec<String>,
    }

    impl State {
        fn looks(&mut self) {
            let known = |name: &str| self.known.get(name).copied().unwrap_or(0);
            if known(file::SCHEMES) == 0 {
                return;
            }
            if self.begun && known(WINDOW) <= 1 && !self.deaf {
                (self.quota, self.charged) = (known(BYTES), 0);
            }
            self.begun = true;
            if known(AGE) < u64::from(u32::MAX) {
                let left = if self.quota == 0 { u64::MAX } else { self.quota - self.charged };
                // Less than a page counts as nothing.
                let moved = left.min(self.cold) / PAGE_SIZE * PAGE_SIZE;
                self.cold -= moved;
                self.charged += moved;
                self.moved += moved;
            }
        }
    }

    impl Door for Kdamond {
        fn read(&self, path: &Path) -> io::Result<String> {
            let state = self.0.lock().unwrap();
            let value = if path.ends_with(file::QUOTA) { state.quota } else { state.moved };
            Ok(format!("{value}\n"))
        }

        fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            if state.ended {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            for name in [file::SCHEMES, AGE, BYTES, WINDOW, file::STATE] {
                if path.ends_with(name) && !value.starts_with("update") {
                    let short = name.rsplit('/').next().unwrap();
                    state.told.push(format!("{short} {value}"));
                }
                if path.ends_with(name) && name != file::STATE {
                    state.files.insert(name.to_owned(), value.parse().unwrap());
                }
            }
            if value == "commit" {
                state.known = state.files.clone();
            }
            if path.ends_with(file::STATE) {
                state.looks();
            }
            Ok(())
        }

        fn reaches_kernel(&self) -> bool {
            true
        }
    }

    fn demand(pages: u64) -> Demand {
        let (allowances, braked) = (Vec::new(), Vec::new());
        Demand { id: 1, node: NodeId(0), pages, idle: Nanos::from_ms(1_900), allowances, braked, only: None }
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
        let loaded = "nr_schemes 1, min 4294967295, bytes 409600, reset_interval_ms 1, state commit";
        assert_eq!(told, format!("{loaded}, min 8, reset_interval_ms 86400000, state commit"));
    }

    #[test]
    fn nothing_goes_before_the_quota_is_known() {
        let kdamond = Kdamond::default();
        {
            let mut state = kdamond.0.lock().unwrap();
            (state.cold, state.deaf) = (1000 * PAGE_SIZE, true);
        }
        let mut worker = worker(&kdamond);
        assert_eq!(demote(&mut worker, 100).unwrap(), 0);
        kdamond.0.lock().unwrap().deaf = false;
        assert_eq!(demote(&mut worker, 100).unwrap(), 100);
        assert_eq!(demote(&mut worker, 100).unwrap(), 100, "the same again");
        assert_eq!(kdamond.0.lock().unwrap().cold, 800 * PAGE_SIZE);
    }

    #[test]
    fn where_little_is_cold_little_goes_and_what_goes_late_is_told_with_the_next_demand() {
        let kdamond = Kdamond::default();
        let mut worker = worker(&kdamond);
        kdamond.0.lock().unwrap().cold = 7 * PAGE_SIZE;
        assert_eq!(demote(&mut worker, 100).unwrap(), 7);
        assert_eq!(demote(&mut worker, 100).unwrap(), 0);
        kdamond.0.lock().unwrap().cold = 500 * PAGE_SIZE;
        kdamond.0.lock().unwrap().looks();
        assert_eq!(demote(&mut worker, 10).unwrap(), 110, "100 of them late");
    }

    #[test]
    fn a_kdamond_that_somebody_has_ended_is_a_failure() {
        let kdamond = Kdamond::default();
        kdamond.0.lock().unwrap().ended = true;
        assert!(demote(&mut worker(&kdamond), 100).is_err());
    }
}
