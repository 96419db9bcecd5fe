//! Time and memory that are this process's own: the machine may be shared.

use rustix::time::{ClockId, clock_gettime};

use crate::source::BATCH;

/// CPU time of this thread in ns; what others take does not count.
pub(crate) fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time in ns for each access of `batches` batches, as `work` takes them in.
pub(crate) fn ns_per_access(batches: u64, work: impl FnOnce(u64)) -> f64 {
    let start = cpu_ns();
    work(batches);
    (cpu_ns() - start) / (batches * BATCH) as f64
}

/// Resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells of every process");
    let pages = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.expect("the second field of statm is the resident set") * rustix::param::page_size() as u64
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
