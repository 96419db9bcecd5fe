//! Records of a perf ring: decodes bytes to samples; any bytes are handled.
//!
//! Layouts: Linux include/uapi/linux/perf_event.h, `enum perf_event_type`; a sample has the fields
//! of [`SAMPLE_TYPE`](super::attr::SAMPLE_TYPE), in the kernel's order and in the machine's byte
//! order.

use thermocline_core::units::{Nanos, Pid};

use crate::sys::perf::ring::HEADER_BYTES;

/// Bytes of a sample.
pub const SAMPLE_BYTES: usize = 72;

const KIND_LOST: u32 = 2;
const KIND_COMM: u32 = 3;
const KIND_EXIT: u32 = 4;
const KIND_THROTTLE: u32 = 5;
const KIND_SAMPLE: u32 = 9;
const KIND_AUX: u32 = 11;
const KIND_LOST_SAMPLES: u32 = 13;

/// The low three bits of the flags are the CPU's mode; these two mean a guest.
const MODE_MASK: u16 = 7;
const MODE_GUEST_KERNEL: u16 = 4;
const MODE_GUEST_USER: u16 = 5;
/// On a COMM record: the name changed because the process replaced its address space.
const COMM_EXEC: u16 = 1 << 13;

/// A sample as the kernel wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawSample {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: u32,
    /// The time, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// The data address, 0 where the hardware had none.
    pub address: u64,
    /// The CPU.
    pub cpu: u32,
    /// Latency in cycles, if the hardware reports it.
    pub weight: u64,
    /// What the memory system did.
    pub data_src: DataSrc,
    /// The physical address, 0 where it is not known.
    pub physical: u64,
    /// Bytes of the page that maps the address, 0 where that is not known.
    pub page_bytes: u64,
    /// The CPU ran a guest: the data address is the guest's, the physical one the host's.
    pub guest: bool,
}

/// `union perf_mem_data_src`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSrc(pub u64);

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load.
    Load,
    /// A store.
    Store,
    /// Neither, or not known.
    Other,
}

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In a cache or an I/O device.
    NotMemory,
    /// In any memory.
    Memory,
    /// The hardware does not report it.
    Unknown,
}

impl DataSrc {
    /// Load or store (bits 0-4; a load may also be a prefetch).
    pub const fn operation(self) -> Operation {
        if self.0 & 0x4 != 0 {
            Operation::Store
        } else if self.0 & 0x2 != 0 {
            Operation::Load
        } else {
            Operation::Other
        }
    }

    /// Where it was served. Used only to distinguish misses from hits: no table of Linux 6.12 for
    /// Intel ever names CXL, so the physical address determines the memory (Linux 6.12
    /// arch/x86/events/intel/ds.c).
    pub const fn level(self) -> Level {
        // mem_lvl_num, bits 33-36: RAM 0xd, PMEM 0xe, CXL 9; 0xf is "not available", 0 "not set".
        let number = self.0 >> 33 & 0xf;
        // mem_lvl, bits 5-18: of those LOC_RAM 0x80, REM_RAM1 0x100, REM_RAM2 0x200; NA 1, HIT 2,
        // MISS 4 name no place.
        let level = self.0 >> 5 & 0x3fff;
        match number {
            0xd | 0xe | 9 => Level::Memory,
            _ if level & 0x380 != 0 => Level::Memory,
            0 | 0xf if level & !0x7 == 0 => Level::Unknown,
            _ => Level::NotMemory,
        }
    }
}

/// One record of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A sample.
    Sample(RawSample),
    /// This many records were lost because the ring was full, or samples before they reached it.
    Lost(u64),
    /// The kernel stopped the event for the rest of a tick, because there were too many interrupts.
    Throttle,
    /// The first thread of a process ended.
    Exit(Pid),
    /// A process replaced its address space.
    Exec(Pid),
    /// Bytes in the AUX area are ready.
    Aux {
        /// Their position, counted from the start of the event.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// Why some are missing (PERF_AUX_FLAG_*); 0 where none is.
        flags: u64,
    },
    /// A record of no interest here.
    Other,
}

/// Why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a perf record of kind {kind} in {bytes} bytes, which is too few")]
pub struct Malformed {
    /// The kind in its header.
    pub kind: u32,
    /// Its length, header included.
    pub bytes: usize,
}

/// Decodes one record, header included.
///
/// # Errors
/// [`Malformed`] for a record that is shorter than its kind. Never panics.
pub fn decode(record: &[u8]) -> Result<Record, Malformed> {
    let Some((head, _)) = record.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed { kind: 0, bytes: record.len() });
    };
    let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
    let flags = u16::from_ne_bytes([head[4], head[5]]);
    let short = Malformed { kind, bytes: record.len() };
    match kind {
        KIND_SAMPLE => {
            let sample = record.first_chunk::<SAMPLE_BYTES>().ok_or(short)?;
            Ok(Record::Sample(self::sample(sample, flags)))
        }
        KIND_LOST => Ok(Record::Lost(u64_at(record, 16).ok_or(short)?)),
        KIND_LOST_SAMPLES => Ok(Record::Lost(u64_at(record, 8).ok_or(short)?)),
        KIND_THROTTLE => Ok(Record::Throttle),
        KIND_EXIT => {
            let (pid, tid) = pair(record, 8).zip(pair(record, 16)).map(|(a, b)| (a.0, b.0)).ok_or(short)?;
            Ok(if pid == tid { Record::Exit(Pid(pid)) } else { Record::Other })
        }
        KIND_COMM if flags & COMM_EXEC != 0 => Ok(Record::Exec(Pid(pair(record, 8).ok_or(short)?.0))),
        KIND_AUX => {
            let field = |at| u64_at(record, at).ok_or(short);
            Ok(Record::Aux { offset: field(8)?, bytes: field(16)?, flags: field(24)? })
        }
        _ => Ok(Record::Other),
    }
}

fn sample(record: &[u8; SAMPLE_BYTES], flags: u16) -> RawSample {
    let u32_at = |at: usize| u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let u64_at = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&record[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    RawSample {
        pid: Pid(u32_at(8)),
        tid: u32_at(12),
        time: Nanos(u64_at(16)),
        address: u64_at(24),
        cpu: u32_at(32),
        weight: u64_at(40),
        data_src: DataSrc(u64_at(48)),
        physical: u64_at(56),
        page_bytes: u64_at(64),
        guest: matches!(flags & MODE_MASK, MODE_GUEST_KERNEL | MODE_GUEST_USER),
    }
}

fn u64_at(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

/// Two 32-bit numbers.
fn pair(record: &[u8], at: usize) -> Option<(u32, u32)> {
    let [a, b, c, d, e, f, g, h] = *record.get(at..)?.first_chunk::<8>()?;
    Some((u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])))
}

impl RawSample {
    /// The sample as a record, for tests and measurements.
    pub fn bytes(&self) -> [u8; SAMPLE_BYTES] {
        let mut out = [0; SAMPLE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &KIND_SAMPLE.to_ne_bytes());
        put(4, &if self.guest { MODE_GUEST_USER } else { 2 }.to_ne_bytes());
        put(6, &(SAMPLE_BYTES as u16).to_ne_bytes());
        put(8, &self.pid.0.to_ne_bytes());
        put(12, &self.tid.to_ne_bytes());
        put(16, &self.time.0.to_ne_bytes());
        put(24, &self.address.to_ne_bytes());
        put(32, &self.cpu.to_ne_bytes());
        put(40, &self.weight.to_ne_bytes());
        put(48, &self.data_src.0.to_ne_bytes());
        put(56, &self.physical.to_ne_bytes());
        put(64, &self.page_bytes.to_ne_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, flags: u16, words: &[u64]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend(flags.to_ne_bytes());
        out.extend(((HEADER_BYTES + 8 * words.len()) as u16).to_ne_bytes());
        out.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        out
    }

    fn two(low: u32, high: u32) -> u64 {
        let [a, b, c, d] = low.to_ne_bytes();
        let [e, f, g, h] = high.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    #[test]
    fn a_sample_has_its_fields_in_the_kernels_order() {
        // TID, TIME, ADDR, CPU, WEIGHT, DATA_SRC, PHYS_ADDR, DATA_PAGE_SIZE: ascending, except for
        // fields that we do not use.
        let words = [two(7, 8), 123, 0x7f00_0000_1040, two(3, 0), 350, 0x12, 0x4000_0040, 1 << 21];
        let Ok(Record::Sample(sample)) = decode(&record(9, 2, &words)) else { panic!() };
        assert_eq!((sample.pid, sample.tid, sample.time), (Pid(7), 8, Nanos(123)));
        assert_eq!((sample.address, sample.cpu, sample.weight), (0x7f00_0000_1040, 3, 350));
        assert_eq!((sample.data_src, sample.physical), (DataSrc(0x12), 0x4000_0040));
        assert_eq!((sample.page_bytes, sample.guest), (1 << 21, false));
        assert_eq!(decode(&sample.bytes()), Ok(Record::Sample(sample)));
        let Ok(Record::Sample(guest)) = decode(&record(9, 5, &words)) else { panic!() };
        assert!(guest.guest);
    }

    #[test]
    fn what_the_kernel_tells_besides() {
        assert_eq!(decode(&record(2, 0, &[1, 99])), Ok(Record::Lost(99)));
        assert_eq!(decode(&record(13, 0, &[5])), Ok(Record::Lost(5)));
        assert_eq!(decode(&record(5, 0, &[1, 2, 3])), Ok(Record::Throttle));
        assert_eq!(decode(&record(6, 0, &[1, 2, 3])), Ok(Record::Other));
        // pid, ppid, tid, ptid, time.
        assert_eq!(decode(&record(4, 0, &[two(7, 1), two(7, 1), 9])), Ok(Record::Exit(Pid(7))));
        assert_eq!(decode(&record(4, 0, &[two(7, 1), two(8, 1), 9])), Ok(Record::Other), "a mere thread");
        assert_eq!(decode(&record(3, COMM_EXEC, &[two(7, 7), 0])), Ok(Record::Exec(Pid(7))));
        assert_eq!(decode(&record(3, 0, &[two(7, 7), 0])), Ok(Record::Other), "a mere name");
        let aux = Record::Aux { offset: 64, bytes: 32, flags: 1 };
        assert_eq!(decode(&record(11, 0, &[64, 32, 1])), Ok(aux));
        assert_eq!(decode(&record(9, 0, &[1, 2])), Err(Malformed { kind: 9, bytes: 24 }));
        assert_eq!(decode(&[1, 2]), Err(Malformed { kind: 0, bytes: 2 }));
    }

    #[test]
    fn data_source_tells_misses_from_hits_and_nothing_more() {
        const LOAD: u64 = 0x2;
        let number = |n: u64| DataSrc(n << 33 | LOAD);
        for (n, level) in [(1, Level::NotMemory), (3, Level::NotMemory), (0xb, Level::NotMemory)] {
            assert_eq!(number(n).level(), level, "{n:#x}");
        }
        for memory in [0xd, 0xe, 9] {
            assert_eq!(number(memory).level(), Level::Memory);
        }
        assert_eq!(number(0xf).level(), Level::Unknown);
        assert_eq!(DataSrc(1 << 5 | LOAD).level(), Level::Unknown, "mem_lvl NA");
        assert_eq!(DataSrc(0x102 << 5 | LOAD).level(), Level::Memory, "remote RAM in the old field");
        assert_eq!(DataSrc(0x42 << 5 | LOAD).level(), Level::NotMemory, "an L3 hit in the old field");
        assert_eq!(DataSrc(0x1).operation(), Operation::Other);
        assert_eq!(DataSrc(0x4).operation(), Operation::Store);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96), kind in 0u32..16) {
            let _ = decode(&bytes);
            let mut record = bytes;
            if let Some(head) = record.first_chunk_mut::<4>() {
                *head = kind.to_ne_bytes();
            }
            let _ = decode(&record);
        }
    }
}
