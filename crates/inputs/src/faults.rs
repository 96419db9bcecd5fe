//! Records of the BPF ring from anywhere, all the way to the latencies of hint faults.
//!
//! Of the first byte one bit chooses the stamps and another the form: records as they are, of 40
//! bytes each, or of eight bytes each of which one is made whose processes, threads, pages and
//! times are few enough to meet. Whatever they say: no panic, no more memory than was allowed,
//! every fault counted once, and no latency longer than there has been time.

use thermocline_core::units::{Nanos, Pid};
use thermocline_linux::source::hintfault::decode::{RECORD_BYTES, Record, decode};
use thermocline_linux::source::hintfault::stamps::{StampOptions, Stamps};

const PROCESSES_MAX: usize = 2;
const HISTORY_BYTES: usize = 16 << 10;
/// A chunk's history takes more than its page states.
const CHUNKS_MAX: u64 = (HISTORY_BYTES / 512) as u64;

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let options =
        StampOptions { processes_max: PROCESSES_MAX, history_bytes: HISTORY_BYTES, restamp: how & 1 != 0 };
    let mut told = Told { stamps: Stamps::new(options), faults: 0, now: 0 };
    if how & 2 == 0 {
        bytes.chunks(RECORD_BYTES).for_each(|record| told.take(record));
    } else {
        for few in bytes.as_chunks().0 {
            let record = told.made_of(few);
            told.take(&record);
        }
    }
}

struct Told {
    stamps: Stamps,
    faults: u64,
    /// Of the records that are made.
    now: u64,
}

impl Told {
    fn take(&mut self, record: &[u8]) {
        match decode(record) {
            Ok(Record::Fault(fault)) => {
                let marked = self.stamps.is_marked(fault.pid, fault.vpn);
                let latency = self.stamps.fault(&fault);
                self.faults += 1;
                assert!(latency.is_some() || !marked);
                assert!(latency.is_none_or(|latency| latency.time <= fault.time));
            }
            Ok(Record::ScanBegin(scan)) => self.stamps.scan_begin(scan),
            Ok(Record::ScanTick(tick)) => self.stamps.scan_tick(tick),
            Ok(Record::ScanEnd(scan)) => self.stamps.scan_end(scan),
            Ok(Record::Exec(pid) | Record::Exit(pid)) => {
                self.stamps.forget(pid);
                assert!(!self.stamps.is_marked(pid, 0));
            }
            Ok(Record::Stamp(stamp)) => self.stamps.lost(Pid(stamp.tid), stamp.jiffies),
            Err(_) => {}
        }
        let stats = self.stamps.stats();
        assert_eq!(stats.stamped + stats.unstamped, self.faults);
        assert!(stats.processes <= PROCESSES_MAX as u64 && stats.chunks <= CHUNKS_MAX, "{stats:?}");
        // A chunk is 2 MiB.
        assert!(self.stamps.scans(Nanos(self.now)).is_none_or(|scans| scans.mib <= 2 * stats.chunks));
    }

    /// A record of one of four processes with two threads each, in the first 256 MiB, no later than
    /// 16 ms after the one before.
    fn made_of(&mut self, few: &[u8; 8]) -> [u8; RECORD_BYTES] {
        let [kind, who, low, high, pages, wait_low, wait_high, rest] = *few;
        self.now += u64::from(u16::from_le_bytes([wait_low, wait_high])) << 8;
        let start = u64::from(u16::from_le_bytes([low, high])) << 12;
        let end = match kind % 9 {
            // Where a fault has its frame.
            1 => u64::from(rest),
            _ => start + (u64::from(pages) << 12),
        };
        let mut record = [0; RECORD_BYTES];
        record[0] = kind % 9;
        record[4..8].copy_from_slice(&u32::from(who % 4).to_ne_bytes());
        record[8..16].copy_from_slice(&self.now.to_ne_bytes());
        record[16..24].copy_from_slice(&start.to_ne_bytes());
        record[24..32].copy_from_slice(&end.to_ne_bytes());
        record[32..36].copy_from_slice(&u32::from(who / 4 % 2).to_ne_bytes());
        record[36..38].copy_from_slice(&u16::from(pages).to_ne_bytes());
        record[38..40].copy_from_slice(&u16::from(rest % 2).to_ne_bytes());
        record
    }
}
