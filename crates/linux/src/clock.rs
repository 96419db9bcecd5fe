//! The clocks of the live machine.

use rustix::time::{ClockId, Timespec, clock_gettime};
use thermocline_core::units::Nanos;

/// CLOCK_MONOTONIC: the engine's time, and that of BPF's bpf_ktime_get_ns.
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process, all threads, user and kernel.
pub fn cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanos(t: Timespec) -> Nanos {
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
