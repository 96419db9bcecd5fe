//! Hot lists of the memory devices below the top tier: the units of [`crate::kernel::chmu`], set by
//! `[source.chmu]`, read by the daemon at the end of each epoch.

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::{ChmuSource, Config, HotListMode};
use thermocline_core::units::Nanos;

use crate::kernel::chmu::Chmu;
use crate::memory::{Page, flags};
use crate::spec::SpecError;
use crate::system::{SampledAccess, System};

/// See the module's description.
#[derive(Debug)]
pub(super) struct HotLists {
    keys: ChmuSource,
    /// One for each node; empty before the first epoch, since a device's size is a setting of the
    /// run.
    units: Vec<Chmu>,
    pub(super) due: Nanos,
}

impl HotLists {
    /// Hot lists, if they are switched on.
    ///
    /// # Errors
    /// The device's mode is not simulated.
    pub(super) fn new(config: &Config) -> Result<Option<HotLists>, SpecError> {
        let keys = config.source.chmu.clone();
        if keys.enabled && keys.mode == HotListMode::AlwaysOn {
            let message = "\"always-on\" is not simulated";
            return Err(SpecError::new("config.source.chmu.mode", message, "use \"epoch\""));
        }
        Ok(keys.enabled.then(|| HotLists { keys, units: Vec::new(), due: Nanos(0) }))
    }

    /// Accesses from one that is counted to the next.
    pub(super) fn accesses(&self) -> f64 {
        f64::from(self.keys.downsampling)
    }

    /// The device counts an access.
    pub(super) fn count(&mut self, system: &System, sample: &SampledAccess) {
        let node = system.memory.flags(sample.page) & flags::NODE;
        if !system.machine.is_top(node)
            && let Some(unit) = self.units.get_mut(usize::from(node))
        {
            unit.count((u64::from(sample.page) / self.keys.unit_pages()) as Page);
        }
    }

    /// Appends the lists' entries at the end of an epoch, as many as there is time to look up.
    pub(super) fn run(&mut self, system: &System, out: &mut Vec<Access>) {
        if system.now < self.due {
            return;
        }
        if self.units.is_empty() {
            let k = &system.kernel;
            let unit = Chmu::new(k.chmu_counters as usize, self.keys.threshold, k.chmu_list as usize);
            self.units = vec![unit; system.machine.nodes.len()];
        }
        let pages = self.keys.unit_pages();
        let mut left = u64::from(self.keys.pages_per_s).saturating_mul(self.keys.epoch_ms) / 1000;
        for (i, node) in system.machine.nodes.iter().enumerate() {
            for (unit, counted) in self.units[i].end_epoch() {
                let count = u64::from(counted).saturating_mul(self.keys.downsampling.into());
                let share = (count / pages).clamp(1, u32::MAX.into()) as u32;
                let gap =
                    self.keys.counted_for().map(|time| Nanos(time.0.saturating_mul(pages) / count.max(1)));
                let first = u64::from(unit) * pages;
                for page in first..(first + pages).min(system.memory.pages()) {
                    let page = page as Page;
                    if left == 0 || system.memory.node(page) != Some(i as u8) {
                        continue;
                    }
                    left -= 1;
                    out.push(Access {
                        time: system.now,
                        pfn: Some(system.pfn(page)),
                        page: Some(system.virt(page)),
                        order: 0,
                        node: node.id,
                        accessor: None,
                        detail: Detail::Count { count: share, gap },
                    });
                }
            }
        }
        self.due = system.now.plus(Nanos::from_ms(self.keys.epoch_ms));
    }
}
