//! Which processes are watched: the largest in scope, each by one of our kdamonds.

use std::collections::{BTreeMap, BTreeSet};

use thermocline_core::units::{Nanos, PAGE_SHIFT, Pid};

use super::mapped::Watched;
use crate::process;
use crate::root::Root;
use crate::scope::Member;

/// Time between two checks for ended processes.
pub(super) const ENDED_EVERY: Nanos = Nanos::from_s(1);
/// Time between two readings of the sizes of processes.
const SIZES_EVERY: Nanos = Nanos::from_s(5);
/// Processes that start to be watched at the same time: the kernel is slow for each.
const STARTS_MAX: usize = 8;

thermocline_core::statistics! {
    /// Counters and states of the processes.
    Watching "regions_processes" {
        /// Processes that are watched now, or about to be: their mappings are being read.
        watched: usize, "processes", Gauge;
        /// Processes that are large enough, and for which there is no kdamond left.
        left_out: usize, "processes", Gauge trouble;
        /// Times that a process began to be watched.
        begun: u64, "times", Counter;
        /// Processes that could not be watched, because the kernel refused or somebody had ended
        /// their kdamond.
        failed: u64, "processes", Counter trouble;
        /// Times that a kdamond's addresses were changed, because its process's mappings had
        /// changed.
        renewed: u64, "times", Counter;
    }
    beside {
        /// How well each process is watched.
        each: Vec<Watched>;
    }
}

/// The identity of a process: its number alone may be reused.
pub(super) type Who = (Pid, u64);

/// Actions on kdamonds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Kdamonds whose process has ended, left the scope or lost its place.
    pub(super) end: Vec<usize>,
    /// Kdamonds, off by then, and the processes that they shall watch.
    pub(super) begin: Vec<(usize, Who)>,
}

/// The processes watched by each kdamond.
#[derive(Debug)]
pub(super) struct Processes {
    kdamonds: Vec<Option<Who>>,
    min_pages: u64,
    /// Processes that are not tried again, or not before a time.
    failed: BTreeMap<Who, Option<Nanos>>,
    sizes_looked: Option<Nanos>,
    /// Kdamonds that hang: they can neither be ended nor given to others.
    pub(super) hung: BTreeSet<usize>,
    pub(super) stats: Watching,
}

impl Processes {
    pub(super) fn new(kdamonds: usize, min_mib: u64) -> Processes {
        Processes {
            kdamonds: vec![None; kdamonds],
            min_pages: min_mib << (20 - PAGE_SHIFT),
            failed: BTreeMap::new(),
            sizes_looked: None,
            hung: BTreeSet::new(),
            stats: Watching::default(),
        }
    }

    /// Updates the set: ended processes lose their places at once, new ones are looked for every
    /// few seconds.
    pub(super) fn look(&mut self, root: &Root, now: Nanos, members: impl Iterator<Item = Member>) -> Steps {
        let members: BTreeSet<Who> = members.map(|member| (member.pid, member.start_time)).collect();
        let gone = |(number, who): &(usize, &Option<Who>)| {
            who.is_some_and(|who| !members.contains(&who)) && !self.hung.contains(number)
        };
        let end = self.kdamonds.iter().enumerate().filter(gone).map(|(number, _)| number).collect();
        self.failed.retain(|who, until| members.contains(who) && until.is_none_or(|until| now < until));
        let mut steps = Steps { end, begin: Vec::new() };
        if self.sizes_looked.is_none_or(|looked| now.since(looked) >= SIZES_EVERY) {
            self.sizes_looked = Some(now);
            let size = |who: Who| {
                let stat = process::stat(root, who.0).ok().flatten()?;
                (stat.start_time == who.1).then_some((who, stat.rss_pages))
            };
            let candidates = members.iter().filter(|who| !self.failed.contains_key(who));
            self.choose(&candidates.copied().filter_map(size).collect(), &mut steps);
        }
        steps
    }

    /// The largest come first. A watched process keeps its place unless another is twice as large:
    /// DAMON starts from scratch with each.
    fn choose(&mut self, sizes: &BTreeMap<Who, u64>, steps: &mut Steps) {
        let size = |who: &Who| sizes.get(who).copied().unwrap_or(0);
        let watched: BTreeSet<Who> = self.kdamonds.iter().flatten().copied().collect();
        let mut others: Vec<Who> = sizes
            .keys()
            .filter(|who| !watched.contains(who) && size(who) >= self.min_pages)
            .copied()
            .collect();
        others.sort_by_key(|who| std::cmp::Reverse(size(who)));
        let staying = |number: &usize| !steps.end.contains(number);
        let mut free: Vec<usize> =
            (0..self.kdamonds.len()).filter(|n| self.kdamonds[*n].is_none() || !staying(n)).rev().collect();
        let taken = self.kdamonds.iter().enumerate();
        let taken = taken.filter(|(number, _)| staying(number) && !self.hung.contains(number));
        let mut smallest: Vec<(u64, usize)> =
            taken.filter_map(|(number, who)| Some((size(&(*who)?), number))).collect();
        smallest.sort_unstable();
        let mut smallest = smallest.into_iter();
        let mut chosen = 0;
        for who in &others {
            let number = free.pop().or_else(|| {
                let (_, number) =
                    smallest.next().filter(|(small, _)| size(who) >= small.saturating_mul(2))?;
                steps.end.push(number);
                Some(number)
            });
            let Some(number) = number.filter(|_| chosen < STARTS_MAX) else { break };
            steps.begin.push((number, *who));
            chosen += 1;
        }
        self.stats.left_out = others.len() - chosen;
    }

    /// The process that a kdamond watches.
    pub(super) fn watched_by(&self, number: usize) -> Option<Who> {
        self.kdamonds.get(number).copied().flatten()
    }

    /// A kdamond no longer watches a process. Returns that process.
    pub(super) fn ended(&mut self, number: usize) -> Option<Who> {
        let who = self.kdamonds.get_mut(number).and_then(Option::take);
        self.count();
        who
    }

    /// Assigns a process to a kdamond.
    pub(super) fn given(&mut self, number: usize, who: Who) {
        if let Some(place) = self.kdamonds.get_mut(number) {
            *place = Some(who);
        }
        self.count();
    }

    /// A kdamond watches the process that it was given.
    pub(super) fn begun(&mut self) {
        self.stats.begun += 1;
    }

    /// A process cannot be watched, and is not tried again.
    pub(super) fn failed(&mut self, who: Who) {
        if self.failed.insert(who, None).is_none() {
            self.stats.failed += 1;
        }
    }

    /// A process cannot be watched before a time.
    pub(super) fn put_off(&mut self, who: Who, until: Nanos) {
        self.failed.insert(who, Some(until));
    }

    fn count(&mut self) {
        self.stats.watched = self.kdamonds.iter().flatten().count();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::units::ScopeId;

    use super::*;

    struct Machine {
        dir: tempfile::TempDir,
        members: Vec<Member>,
        now: Nanos,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { dir: tempfile::tempdir().unwrap(), members: Vec::new(), now: Nanos(0) }
        }

        /// Adds a process of `mib` MiB.
        fn process(&mut self, pid: u32, start: u64, mib: u64) {
            let folder = self.dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            let pages = mib << 8;
            let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1000 {pages} 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            self.end(pid);
            self.members.push(Member { pid: Pid(pid), start_time: start, scope: ScopeId(0) });
        }

        fn end(&mut self, pid: u32) {
            self.members.retain(|member| member.pid != Pid(pid));
        }

        /// Updates after this many seconds, applies the actions, and returns them: kdamonds that
        /// end, and those that begin, with their process.
        fn look(&mut self, processes: &mut Processes, after_s: u64) -> (Vec<usize>, Vec<(usize, u32)>) {
            self.now = self.now.plus(Nanos::from_s(after_s));
            let root = Root::at(self.dir.path());
            let steps = processes.look(&root, self.now, self.members.iter().copied());
            for number in &steps.end {
                processes.ended(*number).unwrap();
            }
            for (number, who) in &steps.begin {
                assert_eq!(processes.kdamonds[*number], None);
                processes.given(*number, *who);
                processes.begun();
            }
            (steps.end, steps.begin.iter().map(|(number, who)| (*number, who.0.0)).collect())
        }
    }

    #[test]
    fn the_largest_are_watched_until_they_end() {
        let mut m = Machine::new();
        let mut processes = Processes::new(2, 16);
        [(10, 20), (11, 40), (12, 30), (13, 15)].into_iter().for_each(|(pid, mib)| m.process(pid, 1, mib));
        assert_eq!(m.look(&mut processes, 0), (vec![], vec![(0, 11), (1, 12)]));
        assert_eq!((processes.stats.watched, processes.stats.left_out), (2, 1), "one is too small");
        m.end(11);
        assert_eq!(m.look(&mut processes, 1), (vec![0], vec![]), "sizes are looked at every few seconds");
        assert_eq!(m.look(&mut processes, 4), (vec![], vec![(0, 10)]));
        // Another process by the same number.
        m.process(12, 2, 30);
        assert_eq!(m.look(&mut processes, 5), (vec![1], vec![(1, 12)]));
        assert_eq!((processes.stats.begun, processes.stats.left_out), (4, 0));
    }

    #[test]
    fn a_place_is_given_up_for_one_twice_as_large() {
        let mut m = Machine::new();
        let mut processes = Processes::new(2, 0);
        m.process(10, 1, 20);
        m.process(11, 1, 30);
        m.look(&mut processes, 0);
        m.process(12, 1, 39);
        assert_eq!(m.look(&mut processes, 5), (vec![], vec![]));
        assert_eq!(processes.stats.left_out, 1);
        m.process(12, 1, 60);
        assert_eq!(m.look(&mut processes, 5), (vec![1], vec![(1, 12)]), "the smallest goes");
        assert_eq!(m.look(&mut processes, 5), (vec![], vec![]), "and does not come back");
    }

    #[test]
    fn a_kdamond_that_hangs_is_neither_ended_nor_given_to_another() {
        let mut m = Machine::new();
        let mut processes = Processes::new(2, 0);
        m.process(10, 1, 20);
        m.process(11, 1, 30);
        assert_eq!(m.look(&mut processes, 0).1, [(0, 11), (1, 10)]);
        processes.hung.insert(1);
        m.process(12, 1, 90);
        m.end(10);
        assert_eq!(
            m.look(&mut processes, 5),
            (vec![0], vec![(0, 12)]),
            "the place of the smallest that does not hang"
        );
        processes.hung.clear();
        assert_eq!(m.look(&mut processes, 1), (vec![1], vec![]));
        assert_eq!(m.look(&mut processes, 4).1, [(1, 11)]);
    }

    #[test]
    fn many_begin_a_few_at_a_time_and_what_failed_is_not_tried_again() {
        let mut m = Machine::new();
        let mut processes = Processes::new(20, 0);
        (10..30).for_each(|pid| m.process(pid, 1, 20));
        assert_eq!(m.look(&mut processes, 0).1.len(), STARTS_MAX);
        assert_eq!(m.look(&mut processes, 5).1.len(), STARTS_MAX);
        let who = processes.ended(3).unwrap();
        processes.failed(who);
        assert_eq!(m.look(&mut processes, 5).1.len(), 4);
        assert_eq!((processes.stats.failed, processes.stats.left_out, processes.stats.watched), (1, 0, 19));
        // A process by that number that is another one.
        m.process(who.0.0, 9, 20);
        assert_eq!(m.look(&mut processes, 5).1, [(19, who.0.0)], "in the place that was left");
    }

    #[test]
    fn who_is_put_off_leaves_the_place_to_others_until_then() {
        let mut m = Machine::new();
        let mut processes = Processes::new(1, 0);
        m.process(10, 1, 20);
        m.process(11, 1, 30);
        assert_eq!(m.look(&mut processes, 0).1, [(0, 11)]);
        let who = processes.ended(0).unwrap();
        processes.put_off(who, m.now.plus(Nanos::from_s(60)));
        assert_eq!(m.look(&mut processes, 5).1, [(0, 10)]);
        m.end(10);
        assert_eq!(m.look(&mut processes, 30), (vec![0], vec![]));
        assert_eq!(m.look(&mut processes, 30).1, [(0, 11)]);
        assert_eq!(processes.stats.failed, 0);
    }
}
