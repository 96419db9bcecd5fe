//! The record of each page frame: one slot per frame, in sections that are allocated when first
//! needed.
//!
//! Four layouts, chosen at run time. `byte` and `word` are ours: their time saturates ("long ago")
//! and never aliases, because stamps count from a base that each section moves forward when
//! necessary. `pghot-byte` and `pghot-word` are the published layouts of S4 to the bit (see
//! [`crate::published::pghot`]): their time wraps, they count in jiffies, and pages of the top tier
//! have no record.
//!
//! | layout | bytes a page | frequency | node | resolution of time for a window of 3 s |
//! |---|---|---|---|---|
//! | `byte` | 1 | 0..=3 | once per 2 MiB | 537 ms |
//! | `word` | 4 | 0..=15 | yes | 4 ms |
//! | `pghot-byte` | 1 | 0..=3 | no | 128 jiffies, modulo 4096 |
//! | `pghot-word` | 4 | 0..=7 | yes | 1 jiffy, modulo 16384 |

mod directory;
mod layout;
mod pghot;
mod store;
#[cfg(test)]
mod tests;

use thermocline_mem::ArenaError;

use crate::access::Access;
use crate::config::RecordLayout;
use crate::record::directory::PFN_END;
use crate::record::layout::{Byte, Layout, Word};
use crate::record::pghot::{PghotByte, PghotWord};
use crate::record::store::Store;
use crate::topology::Topology;
use crate::units::{Nanos, NodeId, Pfn};

/// Timer frequencies that the published layouts support.
const HZ: std::ops::RangeInclusive<u32> = 1..=10_000;

/// The record of a page, decoded from any layout.
///
/// A rule sees the record as it was before the access and updates it. The time of the access and,
/// where known, the accessing node are stored by the layout itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Accesses counted; the layout saturates it at [`RecordTable::frequency_max`].
    pub frequency: u8,
    /// Time since the last recorded access, at the layout's resolution; `None` if there was none,
    /// or if it is longer ago than the layout reaches. The published layouts alias: their value is
    /// modulo their wrap.
    pub gap: Option<Nanos>,
    /// The node that accessed it last, where the layout keeps it.
    pub node: Option<NodeId>,
    /// The rule found the page hot and it has neither moved nor gone cold since.
    pub ready: bool,
}

/// Parameters of a [`RecordTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordParams {
    /// The layout.
    pub layout: RecordLayout,
    /// Timer frequency in Hz that the published layouts count in.
    pub hz: u32,
    /// Keep the accessing node once per 2 MiB beside the bytes of [`RecordLayout::Byte`].
    pub node_per_block: bool,
    /// The longest access interval that the rule must distinguish from "long ago"; our own layouts
    /// derive their resolution from it.
    pub window: Nanos,
    /// Sections of 128 MiB that may have slots at once. It costs address space only: 32 KiB (byte)
    /// or 128 KiB (word) each.
    pub sections_max: u32,
}

impl Default for RecordParams {
    /// `word`, for windows up to S4's 5000 ms and machines up to 16 TiB.
    fn default() -> RecordParams {
        RecordParams {
            layout: RecordLayout::Word,
            hz: 250,
            node_per_block: true,
            window: Nanos::from_ms(5000),
            sections_max: 1 << 17,
        }
    }
}

/// Why a table cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A kernel without a timer.
    #[error("hz is {0}; the published layouts need a timer frequency of 1 to 10000 Hz")]
    Hz(u32),
    /// The memory is not available.
    #[error("page records: {0}")]
    Memory(#[from] ArenaError),
}

/// The records of all page frames.
/// Frames are those of folios' heads: the caller resolves tail pages first.
#[derive(Debug)]
pub struct RecordTable {
    store: AnyStore,
}

#[derive(Debug)]
enum AnyStore {
    Byte(Store<Byte>),
    Word(Store<Word>),
    PghotByte(Store<PghotByte>),
    PghotWord(Store<PghotWord>),
}

/// Runs `$body` with `$store` bound to the store of the layout.
macro_rules! with_store {
    ($table:expr, $store:ident => $body:expr) => {
        match $table {
            AnyStore::Byte($store) => $body,
            AnyStore::Word($store) => $body,
            AnyStore::PghotByte($store) => $body,
            AnyStore::PghotWord($store) => $body,
        }
    };
}

impl RecordTable {
    /// An empty table.
    ///
    /// # Errors
    /// `hz` is out of range for a published layout, or the address space is not available.
    pub fn new(params: RecordParams) -> Result<RecordTable, RecordError> {
        let RecordParams { layout, hz, node_per_block, window, sections_max } = params;
        let published = matches!(layout, RecordLayout::PghotByte | RecordLayout::PghotWord);
        if published && !HZ.contains(&hz) {
            return Err(RecordError::Hz(hz));
        }
        let sections = (sections_max as usize).min((PFN_END >> directory::SECTION_SHIFT) as usize);
        let store = match layout {
            RecordLayout::Byte => AnyStore::Byte(Store::new(Byte::new(window), node_per_block, sections)?),
            RecordLayout::Word => AnyStore::Word(Store::new(Word::new(window), false, sections)?),
            RecordLayout::PghotByte => AnyStore::PghotByte(Store::new(PghotByte::new(hz), false, sections)?),
            RecordLayout::PghotWord => AnyStore::PghotWord(Store::new(PghotWord::new(hz), false, sections)?),
        };
        Ok(RecordTable { store })
    }

    /// Calls `each` for every access with the record of its frame from before the access, and
    /// stores the record as `each` leaves it, with the time of the access and, if known, the
    /// accessing node.
    ///
    /// A record's time never goes back: if accesses arrive out of order, the later one counts, and
    /// the interval is zero. Our own layouts treat an access as "long ago" if it lies further than
    /// their reach before the latest access to the section. The table looks ahead within the batch,
    /// so a batch should span less time than the rule's window. An access without a frame, or
    /// without a slot (see [`RecordTable::unrecorded`]; top tier in a published layout), gets an
    /// empty record that is discarded.
    pub fn observe(&mut self, batch: &[Access], each: impl FnMut(&Access, &mut Record)) {
        with_store!(&mut self.store, s => s.observe(batch, each));
    }

    /// The record of a frame as it would be seen at `now`; `None` if there is no record.
    pub fn get(&self, pfn: Pfn, now: Nanos) -> Option<Record> {
        with_store!(&self.store, s => s.get(pfn, now))
    }

    /// Asks the CPU for the record of a frame.
    pub fn prefetch(&self, pfn: Pfn) {
        with_store!(&self.store, s => s.prefetch(pfn));
    }

    /// Sets the readiness of a frame's record; returns whether the frame has one.
    pub fn set_ready(&mut self, pfn: Pfn, ready: bool) -> bool {
        with_store!(&mut self.store, s => s.set_ready(pfn, ready))
    }

    /// Clears the records of a folio of 2^`order` base pages at `pfn`: the next page there inherits
    /// no heat.
    pub fn clear(&mut self, pfn: Pfn, order: u8) {
        let end = Pfn(pfn.0.saturating_add(1u64.checked_shl(order.into()).unwrap_or(PFN_END)));
        with_store!(&mut self.store, s => s.clear(pfn, end));
    }

    /// Clears the records of frames `[start, end)`, which have disappeared, and frees the memory of
    /// whole sections. Frames that appear need no call: a section is allocated when it is first
    /// accessed.
    pub fn offline(&mut self, start: Pfn, end: Pfn) {
        with_store!(&mut self.store, s => s.offline(start, end));
    }

    /// Sets which nodes are in the top tier; the published layouts keep no record of their pages.
    /// Until the first call none is.
    pub fn set_topology(&mut self, topology: &Topology) {
        let top = topology.nodes.iter().map(|node| node.id).filter(|&id| topology.is_top(id));
        with_store!(&mut self.store, s => s.set_top_tier(top));
    }

    /// The highest frequency that the layout holds.
    pub fn frequency_max(&self) -> u8 {
        fn of<L: Layout>(_store: &Store<L>) -> u8 {
            L::FREQUENCY_MAX
        }
        with_store!(&self.store, s => of(s))
    }

    /// Whether the accessing node of a page, or of its 2 MiB block, is stored.
    pub fn keeps_node(&self) -> bool {
        with_store!(&self.store, s => s.keeps_node())
    }

    /// Memory that the table holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        with_store!(&self.store, s => s.memory_bytes())
    }

    /// Sections of 128 MiB that have slots.
    pub fn sections(&self) -> usize {
        with_store!(&self.store, s => s.sections())
    }

    /// Accesses with a frame that could not be recorded: beyond 4 PiB, more sections than
    /// [`RecordParams::sections_max`], or no memory for one more.
    pub fn unrecorded(&self) -> u64 {
        with_store!(&self.store, s => s.unrecorded())
    }

    /// Maximum error of the time in a record, in ns: the length of one unit of the layout's time.
    pub fn resolution(&self) -> Nanos {
        with_store!(&self.store, s => s.resolution())
    }
}
