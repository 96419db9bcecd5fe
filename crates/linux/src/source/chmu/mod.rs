//! Source `chmu`: hot lists kept by memory devices, as by CXL 3.2's hotness monitoring unit.
//!
//! The device counts accesses by unit of its own memory and lists the units that were hot. An entry
//! ([`entry`]) is a unit and a count. The unit's addresses are the device's own; its decoders map
//! them to the host's ([`decode`]), and the reverse map finds the page there. A page of a listed
//! unit counts for its share of the unit's accesses.
//!
//! No stock kernel has a driver for such a device. The only device is the one that the lab's plugin
//! keeps in shared memory; everything from the entry on is as for a real one. Entries are read as
//! fast as a budget of look-ups allows; the device counts units for which its list then has no
//! room.

pub mod decode;
pub mod entry;
#[cfg(all(feature = "lab", feature = "bpf"))]
mod evidence;
#[cfg(feature = "lab")]
mod list;
mod probe;
#[cfg(feature = "lab")]
mod registers;
mod stats;
#[cfg(all(feature = "lab", feature = "bpf"))]
mod text;

use thermocline_core::config::Source;

use thermocline_core::statistics::Declared;

use crate::source::{Row, no_plan};

#[cfg(feature = "lab")]
pub use list::{ChmuSource, OpenError, find};
pub use stats::Stats;

/// See [`Row`].
pub(super) const ROW: Row = Row {
    source: Source::Device,
    what: "hot lists",
    cannot: "hot lists cannot be read",
    counted_as: "hot_list",
    sees_top_tier: false,
    probe: probe::probe,
    plan: no_plan,
    #[cfg(feature = "bpf")]
    open,
    statistics: || vec![("hot_list", Stats::statistics())],
};

#[cfg(all(feature = "lab", feature = "bpf"))]
use evidence::open;

/// Nothing to read: there is no driver.
#[cfg(all(not(feature = "lab"), feature = "bpf"))]
fn open(_opening: &mut crate::source::Opening<'_>) -> crate::source::Opened {
    Err("no stock kernel has a driver for hot lists of CXL devices".into())
}
