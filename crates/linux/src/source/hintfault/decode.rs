//! Decodes records of the BPF ring. Any bytes are safe input.
//!
//! The layouts are those of `crates/bpf/src/bpf/intf.h`; a test below reads that header and
//! compares. Records are in native byte order.

use thermocline_core::units::{Nanos, NodeId, PAGE_SHIFT, Pfn, Pid};

/// Bytes of every record.
pub const RECORD_BYTES: usize = 40;

const KIND_FAULT: u8 = 1;
const KIND_SCAN_BEGIN: u8 = 2;
const KIND_SCAN_TICK: u8 = 3;
const KIND_SCAN_END: u8 = 4;
const KIND_EXEC: u8 = 5;
const KIND_EXIT: u8 = 6;
const KIND_STAMP: u8 = 7;
const KIND_CLOCK: u8 = 8;

const FAULT_PMD: u16 = 1;
const FAULT_PLACE: u16 = 2;
const PFN_UNKNOWN: u64 = u64::MAX;

/// Largest folio order that is accepted: 1 GiB in 4 KiB pages.
const ORDER_MAX: u8 = 18;

/// A hint fault, as the kernel saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFault {
    /// Owner of the address space.
    pub pid: Pid,
    /// The faulting thread, in the initial pid namespace.
    pub tid: u32,
    /// Time of the fault, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// Virtual page number. If a PMD faulted, that of its first page.
    pub vpn: u64,
    /// The frame mapped at `vpn`, if the kernel side can read it.
    pub pfn: Option<Pfn>,
    /// The address of its `struct page`, if only that is known.
    pub place: Option<u64>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// The node that holds the folio.
    pub node: NodeId,
    /// The CPU that faulted.
    pub cpu: u16,
    /// Whether the entry of a whole huge page (2 MiB on x86-64) faulted, not that of a base page.
    pub pmd: bool,
}

/// A range of virtual pages that a scan marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawScan {
    /// Owner of the address space.
    pub pid: Pid,
    /// The scanning thread.
    pub tid: u32,
    /// When it began or ended, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// First virtual page number.
    pub start: u64,
    /// Virtual page number after the last.
    pub end: u64,
    /// Base pages marked; 0 until the scan has ended.
    pub updated: u32,
}

/// The kernel's own stamp of the page of a thread's latest hint fault, or only the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStamp {
    /// The faulting or scanning thread.
    pub tid: u32,
    /// Time of the record, CLOCK_MONOTONIC.
    pub time: Nanos,
    /// The kernel's tick count at that time.
    pub jiffies: u64,
    /// The stamp, in milliseconds modulo its width; `None` when a scan reaches a page table.
    pub stamp: Option<u64>,
}

/// One record of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A hint fault.
    Fault(RawFault),
    /// A scan is about to mark a range.
    ScanBegin(RawScan),
    /// A scan visits its next page table; the range is empty.
    ScanTick(RawScan),
    /// A scan has marked a range.
    ScanEnd(RawScan),
    /// A process has replaced its address space.
    Exec(Pid),
    /// A process is gone.
    Exit(Pid),
    /// The kernel's stamp (lab tests only).
    Stamp(RawStamp),
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short or too long.
    #[error("a ring record of {0} bytes where {RECORD_BYTES} are expected")]
    Length(usize),
    /// A kind that no program writes.
    #[error("a ring record of unknown kind {0}")]
    Kind(u8),
    /// A range that ends before it starts, or an order above 1 GiB.
    #[error("a ring record of kind {0} with impossible values")]
    Value(u8),
}

/// Decodes one record.
///
/// # Errors
/// [`Malformed`] for bytes that no program of ours writes. Never panics.
pub fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
    let record: &[u8; RECORD_BYTES] = bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))?;
    let pid = Pid(u32_at(record, 4));
    let time = Nanos(u64_at(record, 8));
    match record[0] {
        KIND_FAULT => fault(record, pid, time),
        KIND_SCAN_BEGIN => scan(record, pid, time).map(Record::ScanBegin),
        KIND_SCAN_TICK => scan(record, pid, time).map(Record::ScanTick),
        KIND_SCAN_END => scan(record, pid, time).map(Record::ScanEnd),
        KIND_EXEC => Ok(Record::Exec(pid)),
        KIND_EXIT => Ok(Record::Exit(pid)),
        KIND_STAMP | KIND_CLOCK => Ok(Record::Stamp(RawStamp {
            tid: u32_at(record, 32),
            time,
            jiffies: u64_at(record, 16),
            stamp: (record[0] == KIND_STAMP).then(|| u64_at(record, 24)),
        })),
        kind => Err(Malformed::Kind(kind)),
    }
}

fn fault(record: &[u8; RECORD_BYTES], pid: Pid, time: Nanos) -> Result<Record, Malformed> {
    let order = record[1];
    if order > ORDER_MAX {
        return Err(Malformed::Value(KIND_FAULT));
    }
    let (page, flags) = (u64_at(record, 24), u16_at(record, 38));
    let by_place = flags & FAULT_PLACE != 0;
    Ok(Record::Fault(RawFault {
        pid,
        tid: u32_at(record, 32),
        time,
        vpn: u64_at(record, 16) >> PAGE_SHIFT,
        pfn: (page != PFN_UNKNOWN && !by_place).then_some(Pfn(page)),
        place: by_place.then_some(page),
        order,
        node: NodeId(u16_at(record, 2)),
        cpu: u16_at(record, 36),
        pmd: flags & FAULT_PMD != 0,
    }))
}

fn scan(record: &[u8; RECORD_BYTES], pid: Pid, time: Nanos) -> Result<RawScan, Malformed> {
    let (start, end) = (u64_at(record, 16), u64_at(record, 24));
    if start > end {
        return Err(Malformed::Value(record[0]));
    }
    Ok(RawScan {
        pid,
        tid: u32_at(record, 32),
        time,
        start: start >> PAGE_SHIFT,
        end: end >> PAGE_SHIFT,
        updated: u32_at(record, 36),
    })
}

fn u16_at(record: &[u8; RECORD_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8; RECORD_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

fn u64_at(record: &[u8; RECORD_BYTES], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

#[cfg(test)]
mod tests;
