//! Hardware samples: IBS as in [`crate::manager::Ibs`], read by the daemon.
//!
//! A sample is delivered if its page lies below the top tier, and also in the top tier if the rule
//! balances. The period is the rule's wish, or follows S1's formula, one for all threads, as live.
//! Only delivered samples cost their thread: the filter drops the others.

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::{Config, Enabled, HwSample};
use thermocline_core::published::scan_period::{Accesses, SAMPLES, adapt};

use crate::manager::ibs::ACCESSES_PER_UOP;
use crate::memory::flags;
use crate::system::{SampledAccess, System};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Samples {
    keys: HwSample,
    balances: bool,
    adapted: u32,
    /// The rule's wish.
    pub(super) wish: Option<u32>,
    since: Accesses,
}

impl Samples {
    /// Samples, if they are switched on: the simulated machine has IBS.
    pub(super) fn new(config: &Config) -> Option<Samples> {
        let keys = config.source.hwsample.clone();
        (keys.enabled != Enabled::No).then(|| Samples {
            balances: config.rule.balance.enabled,
            adapted: keys.period.clamp(keys.period_min, keys.period_max.max(keys.period_min)),
            wish: None,
            since: Accesses::default(),
            keys,
        })
    }

    /// Accesses from one sample to the next.
    pub(super) fn accesses(&self) -> f64 {
        f64::from(self.wish.unwrap_or(self.adapted)) * ACCESSES_PER_UOP
    }

    /// The evidence of a sample, if any.
    pub(super) fn take(&mut self, system: &System, sample: &SampledAccess) -> Option<Access> {
        let node = system.memory.node(sample.page)?;
        let lower = !system.machine.is_top(node);
        if !lower && !self.balances {
            return None;
        }
        let period = self.accesses() as u32;
        self.adapt(lower);
        let id = |node: u8| system.machine.nodes[usize::from(node)].id;
        Some(Access {
            time: system.now,
            pfn: Some(system.pfn(sample.page)),
            page: Some(system.virt(sample.page)),
            order: 0,
            node: id(node & flags::NODE),
            accessor: Some(id(sample.cpu_node)),
            detail: Detail::Sample { latency_cycles: 0, store: sample.store, period },
        })
    }

    fn adapt(&mut self, lower: bool) {
        let since = &mut self.since;
        since.local += u64::from(!lower);
        since.remote += u64::from(lower);
        since.shared += u64::from(lower);
        if since.remote >= u64::from(SAMPLES) {
            let max = self.keys.period_max.max(self.keys.period_min);
            self.adapted = adapt(self.adapted, self.keys.period_min, max, since);
            *since = Accesses::default();
        }
    }
}
