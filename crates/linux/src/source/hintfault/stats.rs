//! The counters of hint faults.

use super::stamps::StampStats;

thermocline_core::statistics! {
    /// Counters since the source was opened.
    ///
    /// In the kernel, `seen = filtered + submitted + dropped`; of the submitted, all but those that
    /// still wait in the ring have been delivered by the source's `poll`.
    #[derive(Copy)]
    Stats "source" {
        /// Hint faults that reached the BPF program: what vmstat counts as numa_hint_faults, from
        /// attaching on.
        seen: u64, "faults", Counter;
        /// Hint faults out of scope.
        filtered: u64, "faults", Counter;
        /// Hint faults written to the ring.
        submitted: u64, "faults", Counter;
        /// Hint faults lost because the ring was full.
        dropped: u64, "faults", Counter trouble;
        /// Hint faults delivered by `poll`.
        delivered: u64, "faults", Counter;
        /// Records of scans and processes written to the ring.
        scans: u64, "records", Counter;
        /// Records of scans and processes lost because the ring was full: latencies then refer to
        /// an earlier scan.
        scans_dropped: u64, "records", Counter trouble;
        /// Records that could not be decoded: always 0 unless kernel side and user side disagree.
        malformed: u64, "records", Counter trouble;
        /// Bytes that wait in the ring.
        ring_waiting_bytes: u64, "bytes", Gauge;
        /// Time spent in our BPF programs, in nanoseconds (only with `measure_run_time`).
        bpf_run_time_ns: u64, "ns", Counter;
        /// Runs of our BPF programs (only with `measure_run_time`).
        bpf_runs: u64, "runs", Counter;
        /// Runs that the kernel skipped because the program was already running on that CPU.
        bpf_missed: u64, "runs", Counter trouble;
    }
    beside {
        /// How latencies fared.
        stamps: StampStats;
    }
}
