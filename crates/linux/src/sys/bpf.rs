//! The parts of BPF for which libbpf-rs has no safe interface: a ring read without a callback per
//! record, and run-time figures.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::mm::ProtFlags;
use thermocline_bpf::libbpf_rs::libbpf_sys;

use super::mapping::Mapping;

/// Bytes before each record: its length with two flag bits, and a page offset that only the kernel
/// uses (Linux include/uapi/linux/bpf.h, BPF_RINGBUF_HDR_SZ).
const HEADER_BYTES: u64 = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Space is handed back to the kernel after this many records, so that a full ring refills while we
/// read.
const RELEASE_EVERY: usize = 256;

/// The reading end of a BPF ring buffer. There must be no other reader.
#[derive(Debug)]
pub struct Ring {
    consumer: Mapping,
    /// The producer's position in the first page, then the data twice over, so that no record is
    /// split.
    producer: Mapping,
    page: usize,
    size: u64,
}

impl Ring {
    /// Maps the ring behind `fd`, whose data takes `size` bytes (a power of two, whole pages).
    ///
    /// # Errors
    /// What mmap(2) returns; EINVAL for a size that no ring has.
    pub fn map(fd: BorrowedFd<'_>, size: u32) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let bytes = size as usize;
        if !size.is_power_of_two() || bytes < page {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let consumer = Mapping::new(fd, ProtFlags::READ | ProtFlags::WRITE, 0, page)?;
        let producer = Mapping::new(fd, ProtFlags::READ, page as u64, page + 2 * bytes)?;
        Ok(Ring { consumer, producer, page, size: size.into() })
    }

    /// Bytes that wait to be read, headers included.
    pub fn waiting(&self) -> u64 {
        let written = self.producer.word(0).load(Ordering::Acquire);
        written.wrapping_sub(self.consumer.word(0).load(Ordering::Relaxed))
    }

    /// Passes up to `records_max` waiting records to `each`, in order, and returns how many there
    /// were.
    ///
    /// Stops early at a record that the kernel is still writing.
    pub fn drain(&mut self, records_max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let written = self.producer.word(0).load(Ordering::Acquire);
        let mut read = self.consumer.word(0).load(Ordering::Relaxed);
        let mut records = 0;
        while records < records_max && read != written {
            let at = self.page + (read & (self.size - 1)) as usize;
            let header = self.producer.half_word(at).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = u64::from(header & !DISCARDED);
            if length > self.size - HEADER_BYTES {
                break;
            }
            if header & DISCARDED == 0 {
                // SAFETY: the record is committed, so that the kernel does not write to it until
                // the consumer's position passes it, below. The data are mapped twice over, so that
                // it lies in one piece.
                let record = unsafe { self.producer.slice(at + HEADER_BYTES as usize, length as usize) };
                each(record);
            }
            read = read.wrapping_add((HEADER_BYTES + length).next_multiple_of(8));
            records += 1;
            if records % RELEASE_EVERY == 0 {
                self.consumer.word(0).store(read, Ordering::Release);
            }
        }
        self.consumer.word(0).store(read, Ordering::Release);
        records
    }
}

/// The kernel's measurements of one BPF program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramRunTime {
    /// Time spent in the program, in nanoseconds; counted only while statistics are on.
    pub run_time_ns: u64,
    /// Runs; counted only while statistics are on.
    pub runs: u64,
    /// Runs skipped because the program was already running on that CPU.
    pub missed: u64,
}

/// Reads the kernel's figures of a loaded program.
///
/// # Errors
/// What bpf(BPF_OBJ_GET_INFO_BY_FD) returns.
pub fn program_run_time(program: BorrowedFd<'_>) -> io::Result<ProgramRunTime> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is valid for `bytes` bytes, and all its pointers are null, so the kernel
    // writes nowhere else.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut bytes) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(ProgramRunTime { run_time_ns: info.run_time_ns, runs: info.run_cnt, missed: info.recursion_misses })
}

/// Makes the kernel measure the run time of all BPF programs until the returned descriptor is
/// closed.
///
/// # Errors
/// What bpf(BPF_ENABLE_STATS) returns: EPERM without CAP_SYS_ADMIN.
pub fn enable_run_time_statistics() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
