//! Accesses sampled by the processor: AMD IBS, Intel PEBS, Arm SPE, through perf_event_open(2).
//!
//! [`pmu`] finds the machine's sampler, [`attr`] builds the request to the kernel, [`record`] and
//! [`spe`] decode the results, and [`useful`] keeps the useful samples: user accesses that missed
//! the caches, on memory below the top tier, as determined by the physical address.
//!
//! None of the three has run on silicon with this code. Attributes are compared with what the
//! kernel's drivers accept, decoders are fuzzed, and the software event `page-faults` takes the
//! same path through the kernel's ring on any machine. The lab's sampler, `lab_rings`, stands in
//! for hardware where the feature `lab` is on.

pub mod attr;
#[cfg(feature = "lab")]
pub mod lab_rings;
pub mod pmu;
pub mod record;
pub mod spe;
pub mod useful;

mod error;
#[cfg(feature = "bpf")]
mod evidence;
mod open;
mod probe;
#[cfg(feature = "bpf")]
mod text;
mod threads;

use thermocline_core::config::Source;

use thermocline_core::statistics::Declared;

use crate::source::{Row, no_plan};

pub use error::OpenError;
pub use open::{HwSampleSource, Stats, descriptors};

/// See [`Row`].
pub(super) const ROW: Row = Row {
    source: Source::HwSample,
    what: "hardware samples",
    cannot: "accesses cannot be sampled",
    counted_as: "hwsample",
    sees_top_tier: true,
    probe: probe::probe,
    plan: no_plan,
    #[cfg(feature = "bpf")]
    open: evidence::open,
    statistics: || vec![("hwsample", Stats::statistics()), ("hwsample.samples", useful::Tally::statistics())],
};
