//! The section of the reverse map.

use crate::section;

section! {
    /// `[reverse]`: whose page a frame is, for evidence that names frames and no process. Nothing
    /// is read before there is such evidence.
    Reverse {
        /// Memory for the map at most: 8 bytes a frame of lower tiers, a section of 128 MiB at a
        /// time.
        memory_mib: u32 = 256, "MiB", 1..=1048576, "ours: 128 GiB of lower tiers", restart;
        /// Pages whose frames are looked up in a second, at most.
        pages_per_s: u32 = 1_000_000, "pages/s", 1000..=1_000_000_000, "ours: 4 GiB in a second", restart;
        /// CPU time for looking them up, in thousandths of one CPU.
        cpu_permille: u16 = 50, "1/1000", 1..=1000, "ours", restart;
        /// From the beginning of one round through all processes in scope to that of the next, at
        /// least; a round begins only where frames were asked for that the last one had not found.
        round_ms: u64 = 5000, "ms", 100..=3_600_000, "ours", restart;
    }
}
