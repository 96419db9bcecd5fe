//! The layout of the registers of the lab's device (`lab/plugin/hotlist.h`); any bytes are handled.
//!
//! All is little-endian. The sampler's file says where they are; the slots of the list follow them.
//! The device is configured by writing its settings and then a new generation.

use thermocline_core::config::{ChmuSource as Keys, HotListMode};

use super::decode::{Decoder, Decoders};
use crate::source::lab_device::{PAGE, halves, has_page, places, word};
use crate::sys::DeviceMemory;

/// The first eight bytes of the registers.
const MAGIC: [u8; 8] = *b"TLCCHMU1";
/// Maximum number of slots accepted.
const SLOTS_MAX: u64 = 1 << 20;
/// Maximum number of decoders of the device.
const DECODERS_MAX: u64 = 2;
const DECODER_BYTES: usize = 32;

/// Offsets of the device's properties.
const SLOTS: usize = 8;
const COUNTERS: usize = 16;
const DEVICE_BYTES: usize = 24;
const DECODERS: usize = 32;
const FIRST_DECODER: usize = 40;
/// Offsets of its settings.
const GENERATION: usize = 512;
const MODE: usize = 520;
const UNIT_BYTES: usize = 528;
const THRESHOLD: usize = 536;
const EPOCH_NS: usize = 544;
const DOWNSAMPLING: usize = 552;
const TAIL: usize = 560;
/// Offsets of its state.
const APPLIED: usize = 1024;
const RUNNING: usize = 1032;
const HEAD: usize = 1040;

/// Counters of the device, by their offset.
pub(super) const OVERFLOW: usize = 1048;
/// Counters that one unit took over from another.
pub(super) const TAKEN_OVER: usize = 1056;
/// Accesses counted.
pub(super) const COUNTED: usize = 1064;
/// Epochs that have ended.
pub(super) const EPOCHS: usize = 1072;

/// The device, as described by its registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    at: usize,
    slots: u64,
    /// Low bits of an entry that are the count.
    pub(super) counter_bits: u32,
    /// Units that it can count at a time.
    pub(super) counters: u64,
    /// Where its memory is in the host's addresses.
    pub(super) decoders: Decoders,
}

fn mode(mode: HotListMode) -> u64 {
    match mode {
        HotListMode::Epoch => 1,
        HotListMode::AlwaysOn => 2,
    }
}

impl Device {
    /// Finds the device in the memory of the lab's device, which has at least 32 bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(memory: &DeviceMemory) -> Result<Device, &'static str> {
        let (at, _) = places(memory)?;
        if at == 0 {
            return Err(
                "the lab's plugin keeps no hot list: it was loaded with hot-list=0, or is of an older version",
            );
        }
        if !has_page(memory, at) {
            return Err("its hot list does not lie in it");
        }
        let word = |offset| word(memory, at + offset);
        if word(0) != u64::from_le_bytes(MAGIC) {
            return Err("its hot list is of another version");
        }
        let (slots, counter_bits) = halves(word(SLOTS));
        let slots = u64::from(slots);
        if !slots.is_power_of_two() || slots > SLOTS_MAX || memory.bytes() - at - PAGE < slots as usize * 8 {
            return Err("its hot list cannot be so long");
        }
        let count = word(DECODERS);
        if count == 0 || count > DECODERS_MAX {
            return Err("it has no decoders, or too many");
        }
        let decoder = |n: usize| {
            let word = |offset| word(FIRST_DECODER + n * DECODER_BYTES + offset);
            let (ways, granularity) = halves(word(16));
            Decoder::new(word(0), word(8), ways, granularity, halves(word(24)).0)
        };
        let decoders = Decoders::new((0..count as usize).map(decoder).collect::<Result<_, _>>()?);
        if decoders.device_bytes() != word(DEVICE_BYTES) {
            return Err("its decoders are for more or for less memory than it has");
        }
        Ok(Device { at, slots, counter_bits, counters: word(COUNTERS), decoders })
    }

    /// Configures the device.
    pub(super) fn set(&self, memory: &DeviceMemory, keys: &Keys) {
        let settings = [
            (UNIT_BYTES, keys.unit_bytes.into()),
            (THRESHOLD, keys.threshold.into()),
            (EPOCH_NS, keys.epoch_ms * 1_000_000),
            (DOWNSAMPLING, keys.downsampling.into()),
        ];
        settings.into_iter().for_each(|(at, value): (usize, u64)| self.store(memory, at, value));
        self.switch(memory, mode(keys.mode));
    }

    /// Switches the device off.
    pub(super) fn set_off(&self, memory: &DeviceMemory) {
        self.switch(memory, 0);
    }

    fn switch(&self, memory: &DeviceMemory, mode: u64) {
        self.store(memory, MODE, mode);
        self.store(memory, GENERATION, self.load(memory, GENERATION).wrapping_add(1));
    }

    /// Whether it has refused its settings; it reads them only at the first access.
    pub(super) fn refuses(&self, memory: &DeviceMemory) -> bool {
        let taken = self.load(memory, APPLIED) == self.load(memory, GENERATION);
        taken && self.load(memory, RUNNING) != self.load(memory, MODE)
    }

    /// Slots of the list.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Entries written and not read, by the marks: more than the number of slots if the marks were
    /// overwritten.
    pub(super) fn waiting(&self, memory: &DeviceMemory) -> u64 {
        self.load(memory, HEAD).wrapping_sub(self.load(memory, TAIL))
    }

    /// Takes the entry that has waited longest.
    pub(super) fn take(&self, memory: &DeviceMemory) -> u64 {
        let tail = self.load(memory, TAIL);
        let bits = word(memory, self.at + PAGE + (tail & (self.slots - 1)) as usize * 8);
        self.store(memory, TAIL, tail.wrapping_add(1));
        bits
    }

    /// Discards the waiting entries.
    pub(super) fn give_up(&self, memory: &DeviceMemory) {
        self.store(memory, TAIL, self.load(memory, HEAD));
    }

    /// One of the device's counters.
    pub(super) fn load(&self, memory: &DeviceMemory, register: usize) -> u64 {
        word(memory, self.at + register)
    }

    fn store(&self, memory: &DeviceMemory, register: usize, value: u64) {
        memory.store(self.at + register, value.to_le());
    }
}
