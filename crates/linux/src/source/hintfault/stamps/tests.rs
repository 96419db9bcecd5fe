//! Tests of the stamps computed from scans.

use super::*;
use thermocline_core::units::NodeId;

const PID: Pid = Pid(42);

fn stamps(restamp: bool) -> Stamps {
    Stamps::new(StampOptions { processes_max: 8, history_bytes: 1 << 20, restamp })
}

fn scan_of(pid: Pid, start: u64, end: u64, ms: u64, updated: u32) -> RawScan {
    RawScan { pid, tid: pid.0, time: Nanos::from_ms(ms), start, end, updated }
}

/// Scans `start..end` from `begin_ms` to `end_ms` and marks pages.
fn scan(stamps: &mut Stamps, start: u64, end: u64, begin_ms: u64, end_ms: u64) {
    stamps.scan_begin(scan_of(PID, start, end, begin_ms, 0));
    stamps.scan_end(scan_of(PID, start, end, end_ms, 1));
}

fn fault_of(pid: Pid, vpn: u64, ms: u64, pmd: bool) -> RawFault {
    let time = Nanos::from_ms(ms);
    RawFault { pid, tid: pid.0, time, vpn, pfn: None, place: None, order: 0, node: NodeId(2), cpu: 0, pmd }
}

/// Latency of a fault of `PID`, in milliseconds and faults.
fn fault(stamps: &mut Stamps, vpn: u64, ms: u64) -> Option<(u64, u32)> {
    stamps.fault(&fault_of(PID, vpn, ms, false)).map(|l| (l.time.ms(), l.faults))
}

#[test]
fn latency_is_measured_from_the_first_scan_after_the_last_fault() {
    let mut s = stamps(false);
    scan(&mut s, 0, 512, 100, 100);
    scan(&mut s, 0, 512, 200, 200);
    assert_eq!(fault(&mut s, 1, 250), Some((150, 0)), "marked at 100, still marked at 200");
    assert_eq!(fault(&mut s, 1, 260), None, "not scanned since");
    scan(&mut s, 0, 512, 300, 300);
    assert_eq!(fault(&mut s, 1, 310), Some((10, 0)), "the two faults came before that scan");
    assert_eq!(fault(&mut s, 2, 320), Some((220, 3)), "marked at 100; three faults of the process since");
}

#[test]
fn the_time_of_scans_is_added_up_whether_they_mark_anything_or_not() {
    let mut s = stamps(false);
    scan(&mut s, 0, 512, 100, 140);
    s.scan_begin(scan_of(PID, 0, 512, 200, 0));
    s.scan_end(scan_of(PID, 0, 512, 205, 0));
    // Its end was never seen.
    s.scan_begin(scan_of(PID, 0, 512, 300, 0));
    assert_eq!(s.stats().scan_time, Nanos::from_ms(45));
}

#[test]
fn restamping_takes_the_latest_scan() {
    let mut s = stamps(true);
    scan(&mut s, 0, 512, 100, 100);
    assert_eq!(fault(&mut s, 9, 150), Some((50, 0)));
    s.scan_begin(scan_of(PID, 0, 512, 200, 0));
    s.scan_end(scan_of(PID, 0, 512, 200, 0));
    assert_eq!(fault(&mut s, 1, 250), Some((50, 0)), "a scan that finds all pages marked stamps them again");
    assert_eq!(fault(&mut s, 1, 260), None);
}

#[test]
fn a_scan_that_marked_nothing_stamps_nothing() {
    let mut s = stamps(false);
    s.scan_begin(scan_of(PID, 0, 512, 100, 0));
    s.scan_end(scan_of(PID, 0, 512, 110, 0));
    assert_eq!(fault(&mut s, 1, 150), None);
}

#[test]
fn time_passes_evenly_over_a_scan() {
    let mut s = stamps(false);
    // 8 chunks in 80 ms: 10 ms each. The middle of the first is passed at 5 ms.
    scan(&mut s, 0, 8 * 512, 1000, 1080);
    assert_eq!(fault(&mut s, 0, 1100), Some((95, 0)));
    assert_eq!(fault(&mut s, 7 * 512 + 511, 1100), Some((25, 1)));
    assert_eq!(fault(&mut s, 8 * 512, 1100), None, "the end is exclusive");
}

#[test]
fn a_range_may_begin_and_end_within_chunks() {
    let mut s = stamps(false);
    scan(&mut s, 510, 514, 100, 100);
    for (vpn, stamped) in [(509, false), (510, true), (511, true), (512, true), (513, true), (514, false)] {
        assert_eq!(fault(&mut s, vpn, 150).is_some(), stamped, "page {vpn}");
    }
}

#[test]
fn faults_during_a_scan_are_settled_when_it_ends() {
    let mut s = stamps(false);
    scan(&mut s, 0, 1024, 0, 100);
    s.scan_begin(scan_of(PID, 0, 1024, 1000, 0));
    // The scan reaches page 256 at 1025 ms and page 768 at 1075 ms. Both were marked before it
    // began.
    assert_eq!(fault(&mut s, 256, 1050), Some((1025, 0)), "stamped in mid chunk, at 25 ms");
    assert_eq!(fault(&mut s, 768, 1050), Some((975, 1)), "stamped at 75 ms");
    s.scan_end(scan_of(PID, 0, 1024, 1100, 1000));
    assert_eq!(fault(&mut s, 256, 1200), None, "faulted after the scan had passed it");
    assert_eq!(fault(&mut s, 768, 1200), Some((125, 3)), "marked at 1075, after its fault");
}

#[test]
fn a_page_marked_by_the_scan_under_way_has_the_time_it_likely_came_by() {
    let mut s = stamps(false);
    scan(&mut s, 0, 1024, 0, 100);
    for vpn in [0, 512] {
        fault(&mut s, vpn, 500);
    }
    s.scan_begin(scan_of(PID, 0, 1024, 1000, 0));
    assert_eq!(fault(&mut s, 512, 1060), Some((10, 0)), "at the pace of the last scan it came by at 1050");
    assert_eq!(fault(&mut s, 0, 1060), Some((60, 1)));
}

#[test]
fn a_huge_page_faults_as_a_whole_and_is_not_counted_in_faults() {
    let mut s = stamps(false);
    scan(&mut s, 0, 1024, 100, 100);
    let latency = s.fault(&fault_of(PID, 0, 150, true)).unwrap();
    assert_eq!((latency.time.ms(), latency.faults), (50, 0));
    assert_eq!(fault(&mut s, 5, 160), None, "the whole entry answered");
    assert_eq!(fault(&mut s, 600, 170), Some((70, 1)), "only the base page's fault counts");
}

#[test]
fn lost_faults_count_and_moved_pages_wait_for_the_next_scan() {
    let mut s = stamps(false);
    scan(&mut s, 0, 512, 100, 100);
    s.lost(PID, 70_000);
    assert_eq!(fault(&mut s, 1, 150), Some((50, 70_000)));
    assert!(s.is_marked(PID, 2));
    s.moved(PID, 2);
    assert!(!s.is_marked(PID, 2));
    assert_eq!(fault(&mut s, 2, 160), None);
    scan(&mut s, 0, 512, 200, 200);
    assert_eq!(fault(&mut s, 2, 260), Some((60, 0)));
}

#[test]
fn a_process_that_ends_takes_its_history_along() {
    let mut s = stamps(false);
    scan(&mut s, 0, 512 * 3, 100, 100);
    assert_eq!((s.stats().processes, s.stats().chunks), (1, 3));
    s.forget(PID);
    assert_eq!((s.stats().processes, s.stats().chunks), (0, 0));
    assert_eq!(fault(&mut s, 1, 150), None, "the same number may be another process now");
    scan(&mut s, 0, 512 * 3, 200, 200);
    assert_eq!(s.stats().chunks_evicted, 0, "the room is used again");
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_is_counted() {
    let mut s = stamps(false);
    let room = s.chunks_max as u64;
    scan(&mut s, 0, 512 * room, 100, 100);
    assert_eq!((s.stats().chunks, s.stats().chunks_evicted), (room, 0));
    let other = Pid(43);
    s.scan_begin(scan_of(other, 0, 512 * 10, 200, 0));
    s.scan_end(scan_of(other, 0, 512 * 10, 200, 1));
    assert_eq!((s.stats().chunks, s.stats().chunks_evicted), (room, 10));
    assert!(s.is_marked(other, 0));
    let left = (0..room).filter(|chunk| s.is_marked(PID, chunk * 512)).count() as u64;
    assert_eq!(left, room - 10);
    // An absurd range is cut to the room available.
    s.scan_begin(scan_of(other, 0, u64::MAX >> 12, 300, 0));
    s.scan_end(scan_of(other, 0, u64::MAX >> 12, 300, 1));
    assert_eq!(s.stats().chunks, room);
}

#[test]
fn the_process_scanned_longest_ago_makes_room() {
    let mut s = stamps(false);
    for pid in 1..=9 {
        s.scan_begin(scan_of(Pid(pid), 0, 512, 1000 - u64::from(pid == 5) * 500, 0));
    }
    assert_eq!((s.stats().processes, s.stats().processes_evicted), (8, 1));
    assert!(!s.processes.contains_key(&5));
}

#[test]
fn a_scan_whose_end_was_lost_counts_as_finished_at_the_usual_pace() {
    let mut s = stamps(false);
    scan(&mut s, 0, 1024, 0, 100);
    for vpn in [0, 512] {
        fault(&mut s, vpn, 500);
    }
    s.scan_begin(scan_of(PID, 0, 1024, 1000, 0));
    s.scan_begin(scan_of(PID, 4096, 8192, 2000, 0));
    assert_eq!(fault(&mut s, 512, 2100), Some((1025, 0)), "chunk 1 passed in its middle at 1075");
    assert_eq!(s.stats().scans_unfinished, 1);
    s.scan_end(scan_of(PID, 0, 512, 2200, 1));
    assert_eq!(s.stats().scans_unfinished, 2, "an end that does not fit its beginning");
}

#[test]
fn ticks_tell_how_a_scan_went_along() {
    let mut s = stamps(false);
    s.scan_begin(scan_of(PID, 0, 4 * 512, 1000, 0));
    // Three chunks are scanned at once, then the thread is off the CPU for 50 ms. The last chunk
    // takes 4 ms.
    for ms in [1000, 1002, 1004, 1056] {
        s.scan_tick(scan_of(PID, 0, 0, ms, 0));
    }
    s.scan_end(scan_of(PID, 0, 4 * 512, 1060, 2048));
    assert_eq!(fault(&mut s, 512, 1100), Some((98, 0)));
    assert_eq!(fault(&mut s, 3 * 512, 1100), Some((44, 1)));
}

#[test]
fn ticks_of_a_sparse_range_are_spread_over_it() {
    let mut s = stamps(false);
    s.scan_begin(scan_of(PID, 0, 8 * 512, 1000, 0));
    for ms in [1000, 1010] {
        s.scan_tick(scan_of(PID, 0, 0, ms, 0));
    }
    s.scan_end(scan_of(PID, 0, 8 * 512, 1020, 600));
    assert_eq!(fault(&mut s, 3 * 512, 1100), Some((100, 0)), "in the first half");
    assert_eq!(fault(&mut s, 4 * 512, 1100), Some((90, 1)), "in the second");
}

#[test]
fn ticks_tell_a_scan_under_way_from_one_still_to_come() {
    let mut s = stamps(false);
    scan(&mut s, 0, 1024, 0, 0);
    s.scan_begin(scan_of(PID, 0, 1024, 1000, 0));
    s.scan_tick(scan_of(PID, 0, 0, 1000, 0));
    fault(&mut s, 0, 1030);
    fault(&mut s, 512, 1030);
    s.scan_tick(scan_of(PID, 0, 0, 1050, 0));
    s.scan_end(scan_of(PID, 0, 1024, 1060, 1000));
    assert_eq!(fault(&mut s, 0, 1100), None, "faulted after the scan had passed it");
    assert_eq!(fault(&mut s, 512, 1100), Some((50, 3)), "marked at 1050, after its fault");
}

#[test]
fn the_interval_of_steps_is_that_of_the_process_in_which_pages_wait_longest_for_scans() {
    let mut stamps = stamps(false);
    for step in 0..20 {
        let at = 1000 + step * 400;
        // Ranges that follow each other immediately are one step.
        scan(&mut stamps, step * 1024, step * 1024 + 512, at, at + 1);
        scan(&mut stamps, step * 1024 + 512, step * 1024 + 1024, at + 2, at + 3);
        // Another process has more faults, more is marked in it, and it is scanned more often.
        for _ in 0..3 {
            stamps.fault(&fault_of(Pid(77), 0, at + 10, false));
        }
        for again in [100, 200, 300] {
            stamps.scan_begin(scan_of(Pid(77), 0, 8, at + again, 0));
            stamps.scan_end(scan_of(Pid(77), 0, 8, at + again + 1, 8));
        }
    }
    let now = Nanos::from_s(9);
    let steps = stamps.scans(now).unwrap();
    assert_eq!((steps.interval.ms(), steps.mib, steps.passes), (400, 80, 0));

    // The process was idle for an hour, which does not count as a slow scan. It started again with
    // its first page.
    scan(&mut stamps, 0, 512, 3_600_000, 3_600_001);
    assert_eq!(stamps.scans(Nanos::from_s(3600)).unwrap(), Scans { passes: 1, ..steps });
}
