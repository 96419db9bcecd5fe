//! Threads of a process that draw their accesses from the same distribution.

use std::sync::Arc;

use crate::memory::Cells;
use crate::random::Random;
use crate::system::System;
use crate::workload::Distribution;

/// After this many changes of single cells the sums are recomputed, so that rounding errors cannot
/// accumulate.
const CHANGES_MAX: u32 = 1 << 14;

/// Shares of the accesses that go to a cell's pages.
#[derive(Clone, Copy, Debug, Default)]
struct Term {
    /// To marked pages.
    marked: f64,
    /// Marked pages.
    pages: u32,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) process: usize,
    pub(super) distribution: Arc<Distribution>,
    /// Threads in this phase, running or not.
    pub(super) users: u32,
    /// Accesses of a thread that has run since the group was created.
    pub(super) clock: f64,
    first_cell: u32,
    running: Vec<u32>,
    /// The clock at the end of each running thread's phase.
    ends: Vec<f64>,
    first_end: f64,
    /// Samples per access, summed over the running threads.
    sampled: f64,
    terms: Vec<Term>,
    /// Shares that go to unmarked pages of each node, cell by cell.
    shares: Vec<f64>,
    marked: f64,
    /// Sums of them.
    on: Vec<f64>,
    marked_pages: u64,
    changes: u32,
    /// Time for the accesses to unmarked pages, per access made: D in the module's description.
    time_ns: f64,
    access_ns: Vec<f64>,
    think_ns: f64,
    /// Accesses of all threads, divided by the share of unmarked pages; and how much of it has been
    /// passed to each cell.
    made: f64,
    told: Vec<f64>,
    sizes: Vec<f64>,
}

impl Group {
    pub(super) fn new(system: &System, process: usize, distribution: Arc<Distribution>) -> Group {
        let space = &system.memory.spaces[process];
        let n = distribution.weights().len();
        let nodes = system.machine.nodes.len();
        let mut group = Group {
            process,
            users: 0,
            clock: 0.0,
            first_cell: space.first_cell,
            running: Vec::new(),
            ends: Vec::new(),
            first_end: f64::INFINITY,
            sampled: 0.0,
            terms: vec![Term::default(); n],
            shares: vec![0.0; n * nodes],
            marked: 0.0,
            on: vec![0.0; nodes],
            marked_pages: 0,
            changes: 0,
            time_ns: 0.0,
            access_ns: Vec::new(),
            think_ns: 0.0,
            made: 0.0,
            told: vec![0.0; n],
            sizes: distribution.weights().iter().map(|(c, _)| f64::from(space.map.size(*c))).collect(),
            distribution,
        };
        group.look(system);
        group
    }

    /// Reads all its cells.
    pub(super) fn look(&mut self, system: &System) {
        let process = &system.processes[self.process];
        self.access_ns.clone_from(&process.access_ns);
        self.think_ns = process.think_ns;
        for i in 0..self.terms.len() {
            self.look_at(system, i);
        }
        self.sum_up();
    }

    /// Updates one cell, if it belongs to the group.
    pub(super) fn changed(&mut self, system: &System, cell: u32) {
        let Some(index) = self.index_of(cell) else { return };
        let old = self.terms[index];
        self.look_at(system, index);
        let new = self.terms[index];
        self.changes += 1;
        if self.terms.len() == 1 || self.changes >= CHANGES_MAX {
            self.sum_up();
            return;
        }
        self.marked += new.marked - old.marked;
        self.marked_pages = self.marked_pages + u64::from(new.pages) - u64::from(old.pages);
        self.time();
    }

    fn index_of(&self, cell: u32) -> Option<usize> {
        cell.checked_sub(self.first_cell).and_then(|c| self.distribution.index_of(c))
    }

    /// Reads a cell's shares; updates only the sums by node.
    fn look_at(&mut self, system: &System, index: usize) {
        let (cell, weight) = self.distribution.weights()[index];
        let count = system.memory.cells.count(self.first_cell + cell);
        let per_page = weight / self.sizes[index];
        let nodes = self.on.len();
        let shares = self.shares[index * nodes..][..nodes].iter_mut().zip(&mut self.on);
        let mut pages = 0;
        for ((share, sum), (on, marked)) in shares.zip(count.on.iter().zip(count.marked)) {
            let new = f64::from(on - marked) * per_page;
            *sum += new - *share;
            *share = new;
            pages += marked;
        }
        self.terms[index] = Term { marked: f64::from(pages) * per_page, pages };
    }

    fn sum_up(&mut self) {
        self.changes = 0;
        (self.marked, self.marked_pages) = (0.0, 0);
        self.on.fill(0.0);
        let shares = self.shares.chunks_exact(self.on.len());
        for (term, shares) in self.terms.iter().zip(shares) {
            self.marked += term.marked;
            self.marked_pages += u64::from(term.pages);
            for (sum, share) in self.on.iter_mut().zip(shares) {
                *sum += share;
            }
        }
        self.time();
    }

    fn time(&mut self) {
        let accesses = self.on.iter().zip(&self.access_ns).map(|(on, ns)| on * ns);
        self.time_ns = accesses.sum::<f64>() + self.unmarked() * self.think_ns;
    }

    fn unmarked(&self) -> f64 {
        self.on.iter().sum()
    }

    pub(super) fn threads(&self) -> usize {
        self.running.len()
    }

    pub(super) fn running(&self, index: usize) -> u32 {
        self.running[index]
    }

    /// Faults per ns of all its running threads.
    pub(super) fn fault_rate(&self) -> f64 {
        // Counted in whole pages: rounding must not cause a fault if nothing is marked.
        if self.running.is_empty() || self.marked_pages == 0 {
            0.0
        } else {
            self.running.len() as f64 * self.marked / self.time_ns.max(f64::MIN_POSITIVE)
        }
    }

    /// Samples per ns of accesses to unmarked pages.
    pub(super) fn sample_rate(&self) -> f64 {
        if self.sampled > 0.0 && self.time_ns > 0.0 {
            self.sampled * self.unmarked() / self.time_ns
        } else {
            0.0
        }
    }

    /// Time in ns until the first running thread's phase ends, if nothing happens before.
    pub(super) fn until_phase_end(&self) -> f64 {
        if self.running.is_empty() {
            return f64::INFINITY;
        }
        let left = (self.first_end - self.clock).max(0.0);
        let unmarked = self.unmarked();
        if left == 0.0 {
            0.0
        } else if unmarked > 0.0 {
            left * self.time_ns / unmarked
        } else {
            f64::INFINITY
        }
    }

    pub(super) fn first_to_end(&self) -> Option<u32> {
        let first = self.ends.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
        Some(self.running[first.0])
    }

    /// The thread at this share of the running threads' samples.
    pub(super) fn sampled_thread(&self, share: f64, sampled: impl Fn(u32) -> f64) -> Option<u32> {
        let mut left = share * self.sampled;
        let mut last = None;
        for thread in &self.running {
            let own = sampled(*thread);
            if own > 0.0 {
                last = Some(*thread);
                left -= own;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }

    pub(super) fn join(&mut self, thread: u32, end: f64, sampled: f64) {
        self.running.push(thread);
        self.ends.push(end);
        self.first_end = self.first_end.min(end);
        self.sampled += sampled;
    }

    pub(super) fn part(&mut self, thread: u32, sampled: f64) {
        let Some(i) = self.running.iter().position(|t| *t == thread) else { return };
        self.running.swap_remove(i);
        let end = self.ends.swap_remove(i);
        if end <= self.first_end {
            self.first_end = self.ends.iter().copied().fold(f64::INFINITY, f64::min);
        }
        self.sampled = if self.running.is_empty() { 0.0 } else { (self.sampled - sampled).max(0.0) };
    }

    /// Advances time; returns the accesses made.
    pub(super) fn pass(&mut self, ns: f64, served: &mut [f64]) -> f64 {
        if self.running.is_empty() || self.time_ns <= 0.0 {
            return 0.0;
        }
        let each = ns / self.time_ns;
        let all = each * self.running.len() as f64;
        self.made += all;
        for (served, on) in served.iter_mut().zip(&self.on) {
            *served += all * on;
        }
        let unmarked = self.unmarked();
        self.clock += each * unmarked;
        all * unmarked
    }

    /// Draws the cell of the next fault, by the share of accesses that go to its marked pages.
    pub(super) fn marked_cell(&self, random: &mut Random) -> Option<u32> {
        let weights = self.distribution.weights();
        if let [(cell, _)] = weights {
            return Some(*cell);
        }
        let mut left = random.unit() * self.marked;
        let mut last = None;
        for (term, (cell, _)) in self.terms.iter().zip(weights) {
            if term.pages > 0 {
                last = Some(*cell);
                left -= term.marked;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }

    /// Passes to a cell how often its pages have been accessed since the last call.
    pub(super) fn tell(&mut self, cell: u32, cells: &mut Cells) {
        if let Some(index) = self.index_of(cell) {
            self.tell_index(index, cells);
        }
    }

    /// The same for all cells.
    pub(super) fn tell_all(&mut self, cells: &mut Cells) {
        for index in 0..self.told.len() {
            self.tell_index(index, cells);
        }
    }

    fn tell_index(&mut self, index: usize, cells: &mut Cells) {
        let since = self.made - self.told[index];
        if since > 0.0 {
            let (cell, weight) = self.distribution.weights()[index];
            cells.add_accesses(self.first_cell + cell, since * weight / self.sizes[index]);
            self.told[index] = self.made;
        }
    }
}
