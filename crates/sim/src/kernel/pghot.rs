//! pghot (S4): one record per page, and kmigrated, which promotes pages with a ready record.
//!
//! 1. A hint fault or a hardware sample updates the record of its page (core's
//!    `published::pghot`). Once it is ready, its section is hot.
//! 2. kmigrated of each lower node runs every `kernel.pghot_sleep_ms`. It walks the hot sections
//!    and takes each ready record, which is emptied regardless of the result.
//! 3. The target is the record's node in precise mode, and `kernel.pghot_target_nid` in default
//!    mode. If it has plenty of room, the page is promoted and the target's threshold reset.
//!    Otherwise the page must have been accessed recently, by a threshold that follows the target's
//!    candidates, and the rate limit must allow it; and the target must stay above its high
//!    watermark, or the page stays and kswapd is woken.
//!
//! A section is 128 MiB of frames; here, of page numbers. Batches (`kmigrated_batch_nr`) change no
//! decision and have no cost of their own here. Source: S4, RFC v6.

use thermocline_core::published::pghot::{Mode, PghotRecord, Tuning, is_recent, jiffies, update};
use thermocline_core::published::threshold::{ADJUST_PERIOD_MS, rate_limit_pages};
use thermocline_core::units::Nanos;

use super::hint_fault::{migrate, passes};
use crate::machine::{Machine, NodeIndex};
use crate::memory::Page;
use crate::settings::KernelSettings;
use crate::system::{NEVER, System};

/// Pages of a section.
const SECTION: usize = 32_768;

/// The kernel thread of one lower node.
#[derive(Clone, Debug)]
struct Kmigrated {
    node: NodeIndex,
    /// Sections with a ready record of a page on the node.
    hot: Vec<bool>,
    due: Nanos,
}

/// See the module's description.
#[derive(Debug)]
pub struct Pghot {
    mode: Mode,
    /// The record of each page, encoded; empty until the first access.
    records: Vec<u32>,
    threads: Vec<Kmigrated>,
    /// Records updated.
    pub recorded: u64,
    /// Accesses without a target: they ask for a node that is not of the top tier.
    pub refused: u64,
}

impl Pghot {
    /// Creates the model without records, for the lower nodes of a machine.
    pub fn new(mode: Mode, machine: &Machine) -> Pghot {
        let nodes = machine.kernel_top..machine.nodes.len() as NodeIndex;
        let threads = nodes.map(|node| Kmigrated { node, hot: Vec::new(), due: Nanos(0) }).collect();
        Pghot { mode, records: Vec::new(), threads, recorded: 0, refused: 0 }
    }

    /// When a kmigrated runs next.
    pub fn due(&self) -> Nanos {
        self.threads.iter().map(|thread| thread.due).min().unwrap_or(NEVER)
    }

    /// Records an access, by a CPU of this node, to a page of a lower node.
    pub fn record(&mut self, system: &System, page: Page, node: NodeIndex, cpu_node: NodeIndex) {
        if self.mode == Mode::Precise && system.machine.is_kernel_lower(cpu_node) {
            self.refused += 1;
            return;
        }
        let pages = system.memory.pages() as usize;
        self.records.resize(pages, 0);
        let (hz, at) = (system.machine.spec.hz, page as usize);
        let window_ms = window_ms(self.mode, &system.kernel);
        let tuning = Tuning { threshold: system.kernel.pghot_freq_threshold, window_ms, hz };
        let old = PghotRecord::decode(self.mode, self.records[at]);
        let target = system.machine.nodes[usize::from(cpu_node)].id.0;
        let new = update(self.mode, old, jiffies(system.now, hz), target, tuning);
        self.records[at] = new.encode(self.mode);
        self.recorded += 1;
        if let Some(thread) = self.threads.iter_mut().find(|thread| thread.node == node) {
            thread.hot.resize(pages.div_ceil(SECTION), false);
            thread.hot[at / SECTION] |= new.ready;
        }
    }

    /// Runs each kmigrated that is due over its hot sections.
    pub fn run(&mut self, system: &mut System) {
        let now = system.now;
        for thread in self.threads.iter_mut().filter(|thread| thread.due <= now) {
            let mut spent_ns = 0.0;
            for section in 0..thread.hot.len() {
                if !std::mem::take(&mut thread.hot[section]) {
                    continue;
                }
                let end = ((section + 1) * SECTION).min(self.records.len());
                for page in section * SECTION..end {
                    let record = PghotRecord::decode(self.mode, self.records[page]);
                    if record.ready && system.memory.node(page as Page) == Some(thread.node) {
                        self.records[page] = 0;
                        if consider(self.mode, system, page as Page, record) {
                            spent_ns += system.machine.spec.cost.kthread_page_ns;
                        }
                    }
                }
            }
            system.aside_ns += spent_ns;
            let sleep = Nanos::from_ms(system.kernel.pghot_sleep_ms);
            thread.due = system.now.plus(sleep).plus(Nanos(spent_ns as u64));
        }
    }
}

/// Accesses further apart restart the count, in ms.
pub fn window_ms(mode: Mode, kernel: &KernelSettings) -> u64 {
    kernel.pghot_freq_window_ms.unwrap_or(mode.window_ms())
}

/// The node that all pages of default mode go to, by its number in `pghot_target_nid`; -1 is the
/// node of the top tier that is nearest to the page's.
pub fn default_target(machine: &Machine, nid: i32, page: NodeIndex) -> Option<NodeIndex> {
    if let Ok(nid) = u16::try_from(nid) {
        return machine.index(nid).filter(|node| !machine.is_kernel_lower(*node));
    }
    let distances = &machine.spec.node[usize::from(page)].distances;
    (0..machine.kernel_top).min_by_key(|node| distances[usize::from(*node)])
}

/// Handles a page whose record was ready; returns whether it was promoted.
fn consider(mode: Mode, system: &mut System, page: Page, record: PghotRecord) -> bool {
    let Some(node) = system.memory.node(page) else { return false };
    system.counters.kthread_taken += 1;
    let target = match mode {
        Mode::Default => default_target(&system.machine, system.kernel.pghot_target_nid, node),
        Mode::Precise => system.machine.index(record.nid),
    };
    let Some(target) = target.filter(|target| !system.machine.is_kernel_lower(*target)) else {
        system.counters.not_promotable += 1;
        return false;
    };
    let recent = |system: &mut System| {
        let (hz, reference) = (system.machine.spec.hz, window_ms(mode, &system.kernel));
        let limit = rate_limit_pages(system.kernel.promote_rate_limit_mbps);
        let balance = &mut system.balance[usize::from(target)];
        balance.threshold.adjust(system.now, balance.candidates, limit, reference, ADJUST_PERIOD_MS);
        let threshold = balance.threshold.ms(reference);
        is_recent(mode, record, jiffies(system.now, hz), threshold, hz)
    };
    passes(system, target, recent) && migrate(system, page, target)
}
