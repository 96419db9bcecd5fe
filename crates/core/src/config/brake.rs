//! Section of the brake: when moves do more harm than good.

use crate::config::schema::Any;
use crate::section;

section! {
    /// `[brake]`: where a scope's memory pressure rises with our moves, or its pages go to and fro,
    /// it is moved slower, or not at all for a while.
    Brake {
        /// Slow and stop; false moves on whatever happens.
        enabled: bool = true, "", Any("true or false"), "ours", restart;
        /// Time over which stalls and moves are summed up before they are judged.
        period_ms: u64 = 2000, "ms", 500..=60000, "Linux 6.12 kernel/sched/psi.c: pressure is averaged over 2 s (PSI_FREQ)", restart;
        /// Share of the time in which some task of the scope waits for memory: how far it may be,
        /// while we move, above what it is while we do not.
        some_rise_percent: u8 = 10, "% of the time", 1..=100, "ours";
        /// The same for the time in which all of its tasks wait at once.
        full_rise_percent: u8 = 5, "% of the time", 1..=100, "ours";
        /// Pages that had been moved within admission.ping_pong_window_ms before, of all pages
        /// moved, above which the scope is slowed.
        ping_pong_percent: u8 = 50, "%", 1..=100, "ours; where nothing but ping-pong is moved, admission.ping_pong_moves makes it two in three";
        /// How long nothing moves where the least rate does harm, and at least four periods. It
        /// doubles each time that trying again does harm, until the scope is free again.
        stop_ms: u64 = 8000, "ms", 1000..=3600000, "ours: room for one period to calm down and three to learn from";
        /// Longest time that nothing moves before it is tried again.
        stop_max_ms: u64 = 60000, "ms", 1000..=3600000, "ours: as long as the ping-pong window";
    }
}
