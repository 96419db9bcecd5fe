//! How scans pass over the memory of processes, and which of them the pace follows.
//!
//! All processes are scanned with one step, but each has its own interval between two of them, in
//! CPU time: a server that mostly sleeps is passed over seldom beside a program that computes. The
//! pace follows the process in which pages wait longest for scans: the pages that a pass marks,
//! times the time that it takes. So a process counts for nothing that has its memory in the top
//! tier, or all of it marked already.

use super::{Interval, PASS};
use crate::access::Scans;
use crate::units::{Nanos, Pid};

/// A process whose last step was so many of its intervals ago is asleep, and nothing waits in it.
const ASLEEP: u64 = 4;

/// Measures how scans pass over the memory of a process.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    interval: Interval,
    ended: u32,
    /// Pages that were marked in the pass under way, and in the one before.
    marked: [u64; 2],
}

impl Passes {
    /// A step begins.
    pub fn step(&mut self, at: Nanos) {
        self.interval.step(at);
    }

    /// Pages were marked.
    pub fn mark(&mut self, pages: u64) {
        self.marked[0] += pages;
    }

    /// A pass has ended.
    pub fn end(&mut self) {
        self.ended = self.ended.saturating_add(1);
        self.marked = [0, self.marked[0]];
    }

    /// When the last step began; `None` before the first.
    pub fn last_step(&self) -> Option<Nanos> {
        self.interval.last_step()
    }

    fn scans(&self, pid: Pid, mib: u64) -> Option<Scans> {
        Some(Scans { pid, interval: self.interval.median()?, mib, passes: self.ended })
    }

    fn is_asleep(&self, interval: Nanos, now: Nanos) -> bool {
        let longest = Nanos(interval.0.saturating_mul(ASLEEP)).max(PASS);
        self.last_step().is_some_and(|last| now.since(last) > longest)
    }

    /// Page-nanoseconds, for steps of 1 MiB.
    fn waiting(&self, scans: &Scans) -> u128 {
        let in_a_pass = self.marked[0].max(self.marked[1]);
        (u128::from(in_a_pass) * u128::from(scans.interval.0)).saturating_mul(scans.mib.into())
    }
}

/// How the kernel scans the process that the pace follows at `now`, of those given with their
/// memory in MiB; `None` before the third step of each. Among processes in which nothing waits, it
/// is the largest that is not asleep.
pub fn followed<'a>(now: Nanos, processes: impl Iterator<Item = (Pid, &'a Passes, u64)>) -> Option<Scans> {
    let known = processes.filter_map(|(pid, passes, mib)| Some((passes, passes.scans(pid, mib)?)));
    let key = |(passes, scans): &(&Passes, Scans)| {
        let awake = !passes.is_asleep(scans.interval, now);
        (awake, passes.waiting(scans), scans.mib, scans.pid)
    };
    known.max_by_key(key).map(|(_, scans)| scans)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with a step every `interval_ms` up to `until_ms`, each of which marks `marked`.
    fn stepped(interval_ms: u64, until_ms: u64, marked: u64) -> Passes {
        let mut passes = Passes::default();
        for at in (0..=until_ms).step_by(interval_ms as usize) {
            passes.step(Nanos::from_ms(at));
            passes.mark(marked);
        }
        passes.end();
        passes
    }

    fn follow(now_ms: u64, processes: &[(&Passes, u64)]) -> Option<usize> {
        let numbered = processes.iter().enumerate();
        let processes = numbered.map(|(i, (passes, mib))| (Pid(i as u32), *passes, *mib));
        followed(Nanos::from_ms(now_ms), processes).map(|scans| scans.pid.0 as usize)
    }

    #[test]
    fn a_server_that_mostly_sleeps_counts_more_than_a_hog_in_the_top_tier() {
        let (hog, server) = (stepped(40, 20_000, 0), stepped(1000, 20_000, 256));
        assert_eq!(follow(20_000, &[(&hog, 4000), (&server, 200)]), Some(1));
        // As soon as more waits in the hog, it is the one.
        let hog = stepped(40, 20_000, 256);
        assert_eq!(follow(20_000, &[(&hog, 4000), (&server, 200)]), Some(0));
    }

    #[test]
    fn who_is_asleep_counts_only_where_all_are() {
        let (sleeper, other) = (stepped(1000, 20_000, 256), stepped(1000, 60_000, 1));
        assert_eq!(follow(20_000, &[(&sleeper, 1000), (&other, 10)]), Some(0));
        assert_eq!(follow(60_000, &[(&sleeper, 1000), (&other, 10)]), Some(1));
        assert_eq!(follow(600_000, &[(&sleeper, 1000), (&other, 10)]), Some(0));
    }

    #[test]
    fn where_nothing_waits_the_largest_counts() {
        let passes = stepped(1000, 20_000, 0);
        assert_eq!(follow(20_000, &[(&passes, 10), (&passes, 30), (&passes, 20)]), Some(1));
        assert_eq!(follow(20_000, &[(&Passes::default(), 10)]), None);
    }

    #[test]
    fn a_pass_that_is_under_way_counts_with_what_it_has_marked() {
        let (mut grown, idle) = (stepped(1000, 20_000, 0), stepped(1000, 20_000, 1));
        assert_eq!(follow(20_000, &[(&grown, 100), (&idle, 100)]), Some(1));
        grown.mark(1000);
        assert_eq!(follow(20_000, &[(&grown, 100), (&idle, 100)]), Some(0));
    }
}
