//! pghot (S4): one record per page, and kmigrated, which promotes pages with a ready record.
//!
//! 1. A hint fault updates the record of its page (core's `published::pghot`). Once it is ready,
//!    its section is hot.
//! 2. kmigrated of each lower node runs every 100 ms. It walks the hot sections and takes each
//!    ready record, which is emptied regardless of the result.
//! 3. If the target has plenty of room, the page is promoted and the threshold reset. Otherwise it
//!    must have been accessed recently, by a threshold that follows the candidates, and the rate
//!    limit must allow it; and the target must stay above its high watermark, or the page stays and
//!    kswapd is woken.
//!
//! A section is 128 MiB of frames; here, of page numbers. Source: S4, RFC v6.

use thermocline_core::published::pghot::{Mode, PghotRecord, Tuning, is_recent, jiffies, update};
use thermocline_core::published::threshold::{
    ADJUST_PERIOD_MS, RateLimit, Threshold, free_space_enough, rate_limit_pages,
};
use thermocline_core::units::Nanos;

use crate::memory::Page;
use crate::system::{Fault, System, Way};

/// Pages of a section.
const SECTION: usize = 32_768;
/// Time between two runs of kmigrated (S4: `kmigrated_sleep_ms`).
const SLEEP: Nanos = Nanos::from_ms(100);

/// Outcomes of the ready records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcomes {
    /// Records updated.
    pub recorded: u64,
    /// Ready records taken.
    pub taken: u64,
    /// Of these, not accessed recently enough.
    pub stale: u64,
    /// Above the rate limit.
    pub limited: u64,
    /// No room.
    pub no_room: u64,
    /// Promoted.
    pub promoted: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Pghot {
    mode: Mode,
    /// The record of each page, encoded; empty until the first fault.
    records: Vec<u32>,
    /// Sections with a ready record.
    hot: Vec<bool>,
    threshold: Threshold,
    rate: RateLimit,
    candidates: u64,
    /// When kmigrated runs next.
    pub due: Nanos,
    /// Outcomes of the ready records.
    pub outcomes: Outcomes,
}

impl Pghot {
    /// Creates the model without records.
    pub fn new(mode: Mode) -> Pghot {
        Pghot {
            mode,
            records: Vec::new(),
            hot: Vec::new(),
            threshold: Threshold::default(),
            rate: RateLimit::default(),
            candidates: 0,
            due: Nanos(0),
            outcomes: Outcomes::default(),
        }
    }

    /// Accesses further apart restart the count, in ms (S4's defaults).
    fn window_ms(&self) -> u64 {
        match self.mode {
            Mode::Default => 3000,
            Mode::Precise => 5000,
        }
    }

    /// Records the access of a hint fault.
    pub fn record(&mut self, system: &System, fault: &Fault) {
        let pages = system.memory.pages() as usize;
        if self.records.is_empty() {
            self.records = vec![0; pages];
            self.hot = vec![false; pages.div_ceil(SECTION)];
        }
        let (hz, page) = (system.machine.spec.hz, fault.page as usize);
        let tuning =
            Tuning { threshold: system.kernel.pghot_freq_threshold, window_ms: self.window_ms(), hz };
        let old = PghotRecord::decode(self.mode, self.records[page]);
        let target = system.machine.nodes[usize::from(fault.cpu_node)].id.0;
        let new = update(self.mode, old, jiffies(system.now, hz), target, tuning);
        self.records[page] = new.encode(self.mode);
        self.hot[page / SECTION] |= new.ready;
        self.outcomes.recorded += 1;
    }

    /// Runs kmigrated over the hot sections.
    pub fn run(&mut self, system: &mut System) {
        let mut spent_ns = 0.0;
        for section in 0..self.hot.len() {
            if !std::mem::take(&mut self.hot[section]) {
                continue;
            }
            let end = ((section + 1) * SECTION).min(self.records.len());
            for page in section * SECTION..end {
                let record = PghotRecord::decode(self.mode, self.records[page]);
                if record.ready {
                    self.records[page] = 0;
                    self.outcomes.taken += 1;
                    spent_ns += self.consider(system, page as Page, record);
                }
            }
        }
        self.due = system.now.plus(SLEEP).plus(Nanos(spent_ns as u64));
    }

    /// Handles a page whose record was ready; returns kmigrated's time in ns.
    fn consider(&mut self, system: &mut System, page: Page, record: PghotRecord) -> f64 {
        let Some(node) = system.memory.node(page) else { return 0.0 };
        // Default mode has one target for all pages: the first node of the top tier.
        let target = match self.mode {
            Mode::Default => 0,
            Mode::Precise => system.machine.index(record.nid).unwrap_or(0),
        };
        if !system.machine.is_kernel_lower(node) {
            return 0.0;
        }
        if free_space_enough(&system.node_state(target)) {
            self.threshold.reset();
            system.counters.pgpromote_candidate_nrl += 1;
        } else {
            let (hz, window) = (system.machine.spec.hz, self.window_ms());
            let limit = rate_limit_pages(system.kernel.promote_rate_limit_mbps);
            self.threshold.adjust(system.now, self.candidates, limit, window, ADJUST_PERIOD_MS);
            let threshold = self.threshold.ms(window);
            if !is_recent(self.mode, record, jiffies(system.now, hz), threshold, hz) {
                self.outcomes.stale += 1;
                return 0.0;
            }
            self.candidates += 1;
            if self.rate.limited(system.now, self.candidates, limit) {
                self.outcomes.limited += 1;
                return 0.0;
            }
        }
        let high = system.machine.nodes[usize::from(target)].watermarks.high_pages;
        if system.memory.free(target) <= high + 1 {
            system.wake_kswapd(target);
            self.outcomes.no_room += 1;
            return 0.0;
        }
        if system.move_page(page, target) == Way::Up {
            system.counters.other_promoted += 1;
        }
        self.outcomes.promoted += 1;
        system.machine.spec.cost.kthread_page_ns
    }
}
