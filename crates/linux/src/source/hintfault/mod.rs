//! NUMA hint faults, observed through BPF.
//!
//! While `kernel.numa_balancing` is 2 the kernel scans the memory below the top tier: it makes a
//! range of page table entries inaccessible and stamps their pages with the time. The next access
//! to such a page is a *hint fault*. The sooner it follows the scan, the hotter the page is. BPF
//! programs (crate `thermocline-bpf`) write a record of every such fault and of every scanned range
//! into a ring. [`HintFaultSource`] reads the ring and computes each fault's latency from the
//! ranges.
//!
//! Reading BTF, decoding records and computing stamps need neither BPF nor privileges. Opening the
//! source needs feature `bpf`, CAP_BPF and CAP_PERFMON.

pub mod btf;
pub mod decode;
pub mod layout;
pub mod stamps;

mod chunk;
mod probe;
mod stats;
#[cfg(feature = "bpf")]
mod text;

#[cfg(feature = "bpf")]
mod evidence;
#[cfg(feature = "bpf")]
mod load;
#[cfg(feature = "bpf")]
mod open;
#[cfg(feature = "bpf")]
mod places;

use thermocline_core::config::Source;

use thermocline_core::statistics::Declared;

use crate::source::{Row, no_plan};

#[cfg(feature = "bpf")]
pub use evidence::HintFaults;
#[cfg(feature = "bpf")]
pub use load::{OpenError, Scope};
#[cfg(feature = "bpf")]
pub use open::{Event, HintFault, HintFaultSource, Options};
pub use stats::Stats;

/// See [`Row`].
pub(super) const ROW: Row = Row {
    source: Source::HintFault,
    what: "hint faults",
    cannot: "hint faults cannot be watched",
    counted_as: "source",
    sees_top_tier: false,
    probe: probe::probe,
    plan: no_plan,
    #[cfg(feature = "bpf")]
    open: evidence::open,
    statistics: || vec![("source", Stats::statistics()), ("source.stamps", stamps::StampStats::statistics())],
};
