//! Counters of hot lists.

thermocline_core::statistics! {
    /// Counters since the start. Every frame that was looked up belongs to a page (`pages`) or to
    /// no known process; `not_memory`, `top_tier` and `malformed` count those not looked up.
    #[derive(Copy)]
    Stats "hot_list" {
        /// Entries read.
        entries: u64, "entries", Counter;
        /// Frames of their units that were looked up.
        looked_up: u64, "frames", Counter;
        /// Pages found there.
        pages: u64, "pages", Counter;
        /// Entries that wait in the device's list.
        waiting: u64, "entries", Gauge;
        /// Hot units that found the device's list full.
        overflow: u64, "units", Counter trouble;
        /// Times that a unit took the counter of another one, because the device has too few: its
        /// list is then incomplete.
        taken_over: u64, "units", Counter trouble;
        /// Accesses that the device has counted.
        counted: u64, "accesses", Counter;
        /// Epochs of the device that have ended.
        epochs: u64, "epochs", Counter;
        /// Entries with an invalid unit number, and invalid marks of the list.
        malformed: u64, "entries", Counter trouble;
        /// Entries that were discarded because they were not read for too long.
        old: u64, "entries", Counter trouble;
        /// Frames that are not online memory.
        not_memory: u64, "frames", Counter trouble;
        /// Frames of the top tier.
        top_tier: u64, "frames", Counter trouble;
        /// Units that the device can count at a time.
        counters: u64, "units", Gauge;
        /// The device has refused its settings, and does nothing.
        refused: bool, "", Gauge trouble;
    }
}
