//! Hardware samples: IBS as in [`crate::manager::Ibs`], read by the daemon.
//!
//! A sample is delivered if its page lies below the top tier, and also in the top tier if the rule
//! balances. The period is the one that samples live, of core.
//! Only delivered samples cost their thread: the filter drops the others.

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::{Config, Enabled};
use thermocline_core::pace::SamplePeriod;

use crate::machine::Machine;
use crate::manager::ibs::ACCESSES_PER_UOP;
use crate::memory::flags;
use crate::system::{START, SampledAccess, System};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Samples {
    balances: bool,
    period: SamplePeriod,
}

impl Samples {
    /// Samples, if they are switched on: the simulated machine has IBS.
    pub(super) fn new(config: &Config, machine: &Machine) -> Option<Samples> {
        let keys = &config.source.hwsample;
        let cpus: u32 = machine.spec.node.iter().map(|node| node.cpus).sum();
        (keys.enabled != Enabled::No).then(|| Samples {
            balances: config.rule.balance.enabled,
            period: SamplePeriod::new(keys, cpus as usize, START),
        })
    }

    /// Accesses from one sample to the next.
    pub(super) fn accesses(&self) -> f64 {
        f64::from(self.period.events()) * ACCESSES_PER_UOP
    }

    /// The evidence of a sample, if any.
    pub(super) fn take(&mut self, system: &System, sample: &SampledAccess) -> Option<Access> {
        let node = system.memory.node(sample.page)?;
        let lower = !system.machine.is_top(node);
        let period = self.accesses() as u32;
        self.period.read(1, lower.into(), (!lower).into(), 0, false);
        self.period.look(system.now);
        if !lower && !self.balances {
            return None;
        }
        let id = |node: u8| system.machine.nodes[usize::from(node)].id;
        Some(Access {
            time: system.now,
            pfn: Some(system.pfn(sample.page)),
            page: Some(system.virt(sample.page)),
            order: 0,
            node: id(node & flags::NODE),
            accessor: Some(id(sample.cpu_node)),
            detail: Detail::Sample { latency_cycles: 0, store: Some(sample.store), period },
        })
    }
}
