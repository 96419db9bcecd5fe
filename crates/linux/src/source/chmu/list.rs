//! Reads the list of the lab's device and maps its units to frames.

use std::ops::Range;

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::ChmuSource as Keys;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn};

use super::Stats;
use super::entry::Format;
use super::registers::{COUNTED, Device, EPOCHS, OVERFLOW, TAKEN_OVER};
use crate::reverse::Resident;
use crate::root::Root;
use crate::source::Owners;
use crate::source::budget::Budget;
use crate::source::lab_device::{self, NoLabDevice};
use crate::sys::DeviceMemory;
use crate::topology::PfnMap;

/// Entries that have waited this long without a reader are outdated.
const OLD: Nanos = Nanos::from_s(2);

/// Why there is no hot list.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no device with one that could be read.
    #[error(
        "no stock kernel has a driver for hot lists of CXL devices, and the lab's device cannot be read: {0}"
    )]
    NoDevice(#[from] NoLabDevice),
    /// Its entries cannot be read.
    #[error("the device's hot list cannot be read: {0}")]
    Strange(&'static str),
}

/// A unit whose frames are being looked up.
#[derive(Clone, Debug)]
struct Unit {
    /// The remaining part of it, in the device's addresses.
    left: Range<u64>,
    /// Its count, without downsampling.
    count: u64,
    /// The frames of the page found last.
    known: Range<u64>,
}

/// The open source.
#[derive(Debug)]
pub struct ChmuSource {
    memory: DeviceMemory,
    device: Device,
    format: Format,
    keys: Keys,
    budget: Budget,
    unit: Option<Unit>,
    /// Entries that may still be read in this round: so it ends even if the marks are overwritten
    /// meanwhile.
    entries_left: u64,
    read_at: Nanos,
    /// The device's counters when it was opened.
    before: Stats,
    stats: Stats,
}

/// Whether there is a device whose list can be read.
///
/// # Errors
/// Why there is none.
pub fn find(root: &Root) -> Result<(), OpenError> {
    lab_device::open(root, Device::read)?;
    Ok(())
}

impl ChmuSource {
    /// Configures the device. Entries already on its list are discarded.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(root: &Root, keys: &Keys, now: Nanos) -> Result<ChmuSource, OpenError> {
        let (memory, device) = lab_device::open(root, Device::read)?;
        let format = Format::new(device.counter_bits, keys.unit_bytes).map_err(OpenError::Strange)?;
        device.set(&memory, keys);
        device.give_up(&memory);
        let budget = Budget::new(keys.pages_per_s);
        let stats = Stats { counters: device.counters, ..Stats::default() };
        let keys = keys.clone();
        let mut source = ChmuSource {
            memory,
            device,
            format,
            keys,
            budget,
            unit: None,
            entries_left: 0,
            read_at: now,
            before: stats,
            stats,
        };
        source.before = source.of_device();
        Ok(source)
    }

    /// Appends accesses to pages of listed units, at most `max` and as many as the budget allows;
    /// returns how many frames were looked up. An access whose page is not known names only its
    /// frame. Never blocks.
    pub fn read(
        &mut self,
        max: usize,
        now: Nanos,
        (frames, topology): (&PfnMap, &Topology),
        owners: &mut (impl Owners + ?Sized),
        accesses: &mut Vec<Access>,
    ) -> usize {
        self.check_marks(now);
        let most = self.budget.available(now).min(max as u64);
        let mut looked = 0;
        while looked < most {
            let Some((pfn, count)) = self.next_frame() else { break };
            looked += 1;
            let Some(node) = frames.node_of(pfn) else {
                self.stats.not_memory += 1;
                continue;
            };
            if !topology.is_lower(node) {
                self.stats.top_tier += 1;
                continue;
            }
            self.stats.looked_up += 1;
            let owner = owners.owner(pfn);
            if let (Some(owner), Some(unit)) = (owner, &mut self.unit) {
                self.stats.pages += 1;
                unit.known = owner.pfn.0..owner.pfn.0.saturating_add(1 << owner.order);
            }
            let (page, pfn, order) = match owner {
                Some(Resident { page, pfn, order }) => (Some(page), pfn, order),
                None => (None, pfn, 0),
            };
            let detail = self.detail(count);
            accesses.push(Access { time: now, pfn: Some(pfn), page, order, node, accessor: None, detail });
        }
        self.budget.spend(looked);
        // At most `max`: it fits.
        looked as usize
    }

    /// The detail of a page whose unit has this count: its share of the count.
    fn detail(&self, count: u64) -> Detail {
        let pages = self.keys.unit_pages();
        let share = (count / pages).clamp(1, u32::MAX.into());
        let gap = self.keys.counted_for().map(|time| Nanos(time.0.saturating_mul(pages) / count.max(1)));
        // It fits: it was clamped.
        Detail::Count { count: share as u32, gap }
    }

    /// The next frame of a listed unit, except those of the page found last, and the unit's count.
    fn next_frame(&mut self) -> Option<(Pfn, u64)> {
        loop {
            if let Some(unit) = &mut self.unit {
                while let Some(pfn) = self.device.decoders.next_frame(&mut unit.left) {
                    if !unit.known.contains(&pfn.0) {
                        return Some((pfn, unit.count));
                    }
                }
            }
            self.unit = Some(self.next_unit()?);
        }
    }

    /// Reads the next valid entry.
    fn next_unit(&mut self) -> Option<Unit> {
        while self.entries_left > 0 {
            self.entries_left -= 1;
            let entry = self.format.decode(self.device.take(&self.memory));
            self.stats.entries += 1;
            let addresses = self.format.addresses(entry.unit);
            let Some(left) = addresses.filter(|a| self.device.decoders.host(a.start).is_some()) else {
                self.stats.malformed += 1;
                continue;
            };
            let counted = match self.keys.counted_for() {
                Some(_) => entry.count,
                None => self.keys.threshold.into(),
            };
            let count = counted.saturating_mul(self.keys.downsampling.into());
            return Some(Unit { left, count, known: 0..0 });
        }
        None
    }

    /// Discards waiting entries that are outdated or impossible.
    fn check_marks(&mut self, now: Nanos) {
        let waiting = self.device.waiting(&self.memory);
        if waiting > self.device.slots() {
            // The marks were overwritten: the entries between them were never listed.
            self.stats.malformed += 1;
            self.device.give_up(&self.memory);
        } else if now.since(self.read_at) >= OLD {
            self.stats.old += waiting;
            self.device.give_up(&self.memory);
            self.unit = None;
        }
        self.read_at = now;
        self.entries_left = self.device.waiting(&self.memory).min(self.device.slots());
    }

    fn of_device(&self) -> Stats {
        let load = |register| self.device.load(&self.memory, register);
        Stats {
            overflow: load(OVERFLOW),
            taken_over: load(TAKEN_OVER),
            counted: load(COUNTED),
            epochs: load(EPOCHS),
            ..self.stats
        }
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        let (now, before) = (self.of_device(), &self.before);
        Stats {
            waiting: self.device.waiting(&self.memory).min(self.device.slots()),
            overflow: now.overflow.wrapping_sub(before.overflow),
            taken_over: now.taken_over.wrapping_sub(before.taken_over),
            counted: now.counted.wrapping_sub(before.counted),
            epochs: now.epochs.wrapping_sub(before.epochs),
            refused: self.device.refuses(&self.memory),
            ..now
        }
    }
}

impl Drop for ChmuSource {
    /// The device need not count without a reader.
    fn drop(&mut self) {
        self.device.set_off(&self.memory);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
