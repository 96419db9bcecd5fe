//! The figures of a recording while it is made.

use thermocline_core::statistics;
use thermocline_core::units::Nanos;

statistics! {
    /// The figures of a recording.
    RecordingStats "recording" {
        /// Pieces of evidence recorded, in finished parts: what a kill leaves readable.
        pieces: u64, "pieces", Counter;
        /// Pieces of evidence that were not recorded because the disk did not keep up.
        lost: u64, "pieces", Counter trouble;
        /// Size of the finished parts.
        bytes: u64, "bytes", Gauge;
        /// Finished parts.
        parts: u64, "parts", Counter;
        /// Oldest parts removed to stay within the size.
        parts_removed: u64, "parts", Counter;
        /// Events that wait in memory for the disk.
        waiting_bytes: u64, "bytes", Gauge;
        /// CPU time of the thread that writes.
        writing_ns: u64, "ns", Counter;
        /// Time that the daemon's loop took to copy what is recorded.
        copying_ns: u64, "ns", Counter;
        /// The recording has ended before the daemon.
        ended: bool, "", Gauge trouble;
    }
    beside {
        /// Where it lies.
        folder: String;
        /// Why it has ended before the daemon, if it has.
        why: Option<String>;
    }
}

impl RecordingStats {
    /// CPU time of the recording so far.
    pub fn cost(&self) -> Nanos {
        Nanos(self.writing_ns.saturating_add(self.copying_ns))
    }
}
