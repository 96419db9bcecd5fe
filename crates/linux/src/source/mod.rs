//! Sources of evidence, one module each.

mod budget;
pub mod chmu;
pub mod damon;
pub mod hintfault;
pub mod hwsample;
pub mod lab_clock;
pub mod lab_device;

use std::os::fd::BorrowedFd;

use thermocline_core::access::Access;
use thermocline_core::units::{Nanos, Pfn, Pid};

use crate::reverse::Resident;

/// What a source delivers.
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
    /// Delivers what waits, up to about `records_max` records, and returns how many were read. Never blocks. A source that cannot keep
    /// processes out of scope from being recorded leaves their accesses out here, and counts them.
    fn poll(
        &mut self,
        records_max: usize,
        now: Nanos,
        in_scope: impl Fn(Pid) -> bool,
        each: impl FnMut(Event),
    ) -> usize;

    /// Descriptors that become readable when there is enough to be worth a poll.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;
}

/// Knows whose page lies in a frame.
pub trait Owners {
    /// The page whose memory is managed, where one is known; of a huge page its head.
    fn owner(&mut self, pfn: Pfn) -> Option<Resident>;
}
