//! A source of accesses in random order.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::access::{Access, Detail, FaultLatency};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

use crate::machine::SLOW;

/// Accesses in a batch.
pub(crate) const BATCH: u64 = 512;
/// Seed of every random order here.
pub(crate) const SEED: u64 = 20;
/// Share of the accesses that become candidates.
pub(crate) const CANDIDATE_SHARE: f64 = 0.01;

/// Accesses to random pages of one slow node by the CPUs of two fast ones.
pub(crate) struct Source {
    random: Pcg64Mcg,
    pages: u64,
    time: Nanos,
    /// Time from one access to the next.
    step: Nanos,
    batch: Vec<Access>,
    numbers: Vec<u64>,
}

impl Source {
    /// Accesses to `pages` pages, so far apart that [`CANDIDATE_SHARE`] of them find their page
    /// accessed within `window`: at threshold 2 that share becomes candidates.
    pub(crate) fn new(pages: u64, window: Nanos) -> Source {
        // Of uniformly random accesses a share of 1 - exp(-n / pages) hits a page that one of the
        // last n hit.
        let within_window = -(1.0 - CANDIDATE_SHARE).ln() * pages as f64;
        Source {
            random: Pcg64Mcg::seed_from_u64(SEED),
            pages,
            time: Nanos::from_s(1000),
            step: Nanos((window.0 as f64 / within_window) as u64),
            batch: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// When the latest access was.
    pub(crate) fn time(&self) -> Nanos {
        self.time
    }

    /// The next batch, as a source of hint faults delivers it.
    pub(crate) fn next(&mut self) -> &[Access] {
        self.batch.clear();
        for _ in 0..BATCH {
            let random = self.random.next_u64();
            let page = below(self.pages, random);
            self.time = self.time.plus(self.step);
            let latency = FaultLatency { time: Nanos(random >> 33), faults: 1 };
            self.batch.push(Access {
                time: self.time,
                pfn: Some(Pfn(page)),
                page: Some(VirtPage { pid: Pid(7), vpn: page }),
                order: 0,
                node: SLOW,
                accessor: Some(NodeId((random & 1) as u16)),
                detail: Detail::HintFault { latency: Some(latency) },
            });
        }
        &self.batch
    }

    /// The page numbers of the next batch alone.
    pub(crate) fn next_numbers(&mut self) -> &[u64] {
        self.numbers.clear();
        for _ in 0..BATCH {
            let random = self.random.next_u64();
            self.numbers.push(below(self.pages, random));
        }
        &self.numbers
    }
}

/// A number below `end`: the high half of a product, at the cost of a multiplication.
fn below(end: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(end)) >> 64) as u64
}

/// A page number as an index.
pub(crate) fn index(page: u64) -> usize {
    usize::try_from(page).unwrap_or(usize::MAX)
}
