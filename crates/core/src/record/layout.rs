//! The layout of a slot: the trait, and our own two layouts, whose time saturates and never
//! aliases.

use std::fmt::Debug;

use thermocline_mem::{Plain, prefetch};

use crate::record::Record;
use crate::units::{Nanos, NodeId, PAGE_SIZE};

/// A way to pack a record into a slot.
///
/// Time inside a slot is a *stamp*: ticks since its section's base. If the stamps of a layout are
/// limited, the section's slots are moved to a later base, lazily, when an access comes whose stamp
/// would not fit.
pub(super) trait Layout: Copy + Debug {
    /// The storage type of a slot; all bits zero is "never recorded".
    type Slot: Plain + PartialEq + Debug;
    /// The highest frequency that a slot holds.
    const FREQUENCY_MAX: u8;
    /// Whether a slot holds the accessing node.
    const NODE: bool;
    /// The largest stamp that a slot holds.
    const STAMP_MAX: u64;
    /// Whether accesses to top-tier pages are left unrecorded.
    const LOWER_TIERS_ONLY: bool;

    /// Length of one unit of the slot's time.
    fn resolution(&self) -> Nanos;

    /// `time` in ticks, below 2^62.
    fn ticks(&self, time: Nanos) -> u64;

    /// The base for a section at tick `now`. Before tick 0 it wraps, and stamps wrap back.
    fn base(&self, now: u64) -> u64;

    /// Makes every stamp earlier by `ticks`, as the base has become later; stamps that fall before
    /// it become "long ago".
    fn rebase(slots: &mut [Self::Slot], ticks: u64);

    /// Takes a slot apart, as seen at `stamp`.
    fn decode(&self, slot: Self::Slot, stamp: u64) -> Record;

    /// The slot after an access at `stamp` by a CPU of node `accessor` that left `record`.
    fn encode(&self, old: Self::Slot, record: &Record, accessor: Option<NodeId>, stamp: u64) -> Self::Slot;

    /// The slot with readiness `ready`.
    fn with_ready(slot: Self::Slot, ready: bool) -> Self::Slot;
}

/// The longest window that a clock supports, about 52 days: its stamp in ns fits 64 bits in every
/// layout.
const WINDOW_MAX: Nanos = Nanos(1 << 52);

/// The clock of our own layouts: its tick is a power of two of nanoseconds, so that a shift
/// converts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// log2 of a tick in ns.
    shift: u32,
    /// Ticks by which a new base lies in the past: intervals up to this are always known.
    reach: u64,
}

impl Clock {
    /// The finest clock, but not finer than 2^`finest` ns, that measures intervals of up to
    /// `window` with `codes` stamps and rebases a section at most once in three windows.
    fn new(window: Nanos, finest: u32, codes: u64) -> Clock {
        let reach = codes.div_ceil(4);
        let window = window.min(WINDOW_MAX);
        let mut shift = finest;
        while window.0 >> shift >= reach - 1 {
            shift += 1;
        }
        Clock { shift, reach }
    }

    /// Length of a tick.
    pub(super) const fn tick(self) -> Nanos {
        Nanos(1 << self.shift)
    }

    #[inline(always)]
    const fn ticks(self, time: Nanos) -> u64 {
        time.0 >> self.shift
    }

    const fn base(self, now: u64) -> u64 {
        now.wrapping_sub(self.reach)
    }

    /// Time from stamp `then` to stamp `now`; `None` if `then` is "long ago", zero if clocks
    /// disagree.
    #[inline(always)]
    fn gap(self, then: u64, now: u64) -> Option<Nanos> {
        let told = then != 0;
        // Whether a page was accessed before is unpredictable. With this value for those that were
        // not, a rule that asks for a short interval has one branch, rarely taken.
        let gap = std::hint::select_unpredictable(told, now.saturating_sub(then) << self.shift, u64::MAX);
        told.then_some(Nanos(gap))
    }
}

/// One byte: bits 0-1 frequency, 2 ready, 3-7 stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Byte(pub(super) Clock);

impl Byte {
    const READY_SHIFT: u32 = 2;
    const READY: u8 = 1 << Self::READY_SHIFT;
    const STAMP_SHIFT: u32 = 3;
    const STAMP: u8 = 0b1111_1000;

    /// For intervals up to `window`.
    pub(super) fn new(window: Nanos) -> Byte {
        Byte(Clock::new(window, 20, Self::STAMP_MAX))
    }
}

impl Layout for Byte {
    type Slot = u8;
    const FREQUENCY_MAX: u8 = 3;
    const NODE: bool = false;
    const STAMP_MAX: u64 = (Self::STAMP >> Self::STAMP_SHIFT) as u64;
    const LOWER_TIERS_ONLY: bool = false;

    fn resolution(&self) -> Nanos {
        self.0.tick()
    }

    #[inline(always)]
    fn ticks(&self, time: Nanos) -> u64 {
        self.0.ticks(time)
    }

    fn base(&self, now: u64) -> u64 {
        self.0.base(now)
    }

    fn rebase(slots: &mut [u8], ticks: u64) {
        let by = (ticks.min(Self::STAMP_MAX) as u8) << Self::STAMP_SHIFT;
        sweep(slots, |slot| (slot & Self::STAMP).saturating_sub(by) | (slot & !Self::STAMP));
    }

    #[inline(always)]
    fn decode(&self, slot: u8, stamp: u64) -> Record {
        Record {
            frequency: slot & Self::FREQUENCY_MAX,
            gap: self.0.gap((slot >> Self::STAMP_SHIFT).into(), stamp),
            node: None,
            ready: slot & Self::READY != 0,
        }
    }

    #[inline(always)]
    fn encode(&self, old: u8, record: &Record, _accessor: Option<NodeId>, stamp: u64) -> u8 {
        let stamp = (stamp as u32).max(u32::from(old >> Self::STAMP_SHIFT)) << Self::STAMP_SHIFT;
        let ready = u32::from(record.ready) << Self::READY_SHIFT;
        (stamp | ready | u32::from(record.frequency.min(Self::FREQUENCY_MAX))) as u8
    }

    fn with_ready(slot: u8, ready: bool) -> u8 {
        if ready { slot | Self::READY } else { slot & !Self::READY }
    }
}

/// Four bytes: bits 0-10 one more than the accessing node (0: unknown), 11-14 frequency, 15 ready,
/// 16-31 stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(pub(super) Clock);

impl Word {
    const NODE_MASK: u32 = (1 << 11) - 1;
    const FREQUENCY_SHIFT: u32 = 11;
    const READY_SHIFT: u32 = 15;
    const READY: u32 = 1 << Self::READY_SHIFT;
    const STAMP_SHIFT: u32 = 16;
    const STAMP: u32 = 0xffff_0000;

    /// For intervals up to `window`.
    pub(super) fn new(window: Nanos) -> Word {
        Word(Clock::new(window, 22, Self::STAMP_MAX))
    }
}

impl Layout for Word {
    type Slot = u32;
    const FREQUENCY_MAX: u8 = 15;
    const NODE: bool = true;
    const STAMP_MAX: u64 = (Self::STAMP >> Self::STAMP_SHIFT) as u64;
    const LOWER_TIERS_ONLY: bool = false;

    fn resolution(&self) -> Nanos {
        self.0.tick()
    }

    #[inline(always)]
    fn ticks(&self, time: Nanos) -> u64 {
        self.0.ticks(time)
    }

    fn base(&self, now: u64) -> u64 {
        self.0.base(now)
    }

    fn rebase(slots: &mut [u32], ticks: u64) {
        let by = (ticks.min(Self::STAMP_MAX) as u32) << Self::STAMP_SHIFT;
        sweep(slots, |slot| (slot & Self::STAMP).saturating_sub(by) | (slot & !Self::STAMP));
    }

    #[inline(always)]
    fn decode(&self, slot: u32, stamp: u64) -> Record {
        Record {
            frequency: (slot >> Self::FREQUENCY_SHIFT) as u8 & Self::FREQUENCY_MAX,
            gap: self.0.gap((slot >> Self::STAMP_SHIFT).into(), stamp),
            node: unpack_node(slot & Self::NODE_MASK),
            ready: slot & Self::READY != 0,
        }
    }

    #[inline(always)]
    fn encode(&self, old: u32, record: &Record, accessor: Option<NodeId>, stamp: u64) -> u32 {
        let stamp = (stamp as u32).max(old >> Self::STAMP_SHIFT) << Self::STAMP_SHIFT;
        let frequency = u32::from(record.frequency.min(Self::FREQUENCY_MAX)) << Self::FREQUENCY_SHIFT;
        let node = accessor.map_or(old & Self::NODE_MASK, |n| (u32::from(n.0) + 1).min(Self::NODE_MASK));
        stamp | frequency | node | (u32::from(record.ready) << Self::READY_SHIFT)
    }

    fn with_ready(slot: u32, ready: bool) -> u32 {
        if ready { slot | Self::READY } else { slot & !Self::READY }
    }
}

/// Passes all slots through `change`, prefetching two pages ahead: the CPU's own prefetcher stops
/// at each page.
fn sweep<T: Plain>(slots: &mut [T], change: impl Fn(T) -> T) {
    const LINE_BYTES: usize = 64;
    for line in slots.chunks_mut(LINE_BYTES / size_of::<T>()) {
        prefetch(line, 2 * PAGE_SIZE as usize / size_of::<T>());
        for slot in line {
            *slot = change(*slot);
        }
    }
}

/// The node of which `packed` is one more.
#[inline(always)]
pub(super) fn unpack_node(packed: u32) -> Option<NodeId> {
    (packed != 0).then_some(NodeId(packed.wrapping_sub(1) as u16))
}
