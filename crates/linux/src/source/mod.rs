//! Sources of evidence, one folder each. [`ROWS`] lists them for all users of sources.
//!
//! A source's folder has its row, the doctor's check (`probe`), the text of its counters (`text`),
//! and the implementation of the machine's interface (`evidence`).

mod budget;
pub mod chmu;
mod counted;
pub mod damon;
#[cfg(feature = "bpf")]
mod evidence;
pub mod hintfault;
pub mod hwsample;
#[cfg(feature = "lab")]
pub mod lab_clock;
#[cfg(feature = "lab")]
pub mod lab_device;
pub mod one_tier;
mod row;

use std::os::fd::BorrowedFd;

use thermocline_core::access::Access;
use thermocline_core::units::{Nanos, Pfn, Pid};

use crate::reverse::Resident;

pub use counted::{Counted, troubles};
#[cfg(feature = "bpf")]
pub use evidence::{
    BoxedError, Cost, Costed, Ended, EvidenceSource, Frames, Opened, Opening, Rate, SourceError, Turn,
};
pub use row::{Facts, Probed, Row, SourceStatus, no_plan};

/// Every source, in the order in which they are opened, read and reported.
pub const ROWS: &[Row] = &[hintfault::ROW, hwsample::ROW, damon::ROW, chmu::ROW];

/// What a source of accesses delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An access to a page.
    Access(Access),
    /// A process is gone; its number may be reused.
    Exit(Pid),
    /// A process replaced its address space: what is known of its pages is void.
    Exec(Pid),
}

/// A source of accesses to single pages.
pub trait AccessSource {
    /// Delivers what waits, up to about `records_max` records, and returns how many were read.
    /// Never blocks. A source that cannot keep processes out of scope from being recorded leaves
    /// their accesses out here, and counts them.
    fn poll(
        &mut self,
        records_max: usize,
        now: Nanos,
        in_scope: impl Fn(Pid) -> bool,
        each: impl FnMut(Event),
    ) -> usize;

    /// Descriptors that become readable when there is enough for a poll.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;
}

/// Looks up the page in a frame.
pub trait Owners {
    /// The page in a frame, if known and managed; for a huge page its head.
    fn owner(&mut self, pfn: Pfn) -> Option<Resident>;
}

#[cfg(test)]
mod tests {
    use thermocline_core::config::Source;

    use super::*;

    #[test]
    fn every_source_of_the_configuration_has_one_row() {
        let rows: Vec<Source> = ROWS.iter().map(|row| row.source).collect();
        assert_eq!(rows, Source::all().collect::<Vec<_>>());
        let mut keys: Vec<&str> = ROWS.iter().map(|row| row.counted_as).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), ROWS.len(), "each has counters of its own");
    }
}
