//! perf_event_open(2) and the rings behind it.
#![allow(unsafe_code)]

pub mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::mm::ProtFlags;

use super::mapping::Mapping;
use ring::{Read, Scratch, Waiting};

/// Bytes of the attribute: PERF_ATTR_SIZE_VER7 (Linux 5.13). Later kernels take the rest as zeros.
pub const ATTR_BYTES: usize = 128;

/// ioctls of an event and the flag that extends them to its group (Linux
/// include/uapi/linux/perf_event.h).
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_FLAG_GROUP: libc::c_ulong = 1;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Places in the first page of a mapping, `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const AUX_HEAD: usize = 1056;
const AUX_TAIL: usize = 1064;
const AUX_OFFSET: usize = 1072;
const AUX_SIZE: usize = 1080;

/// The scope of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All processes on a CPU.
    Everybody,
    /// The calling thread and its children only, for tests on shared machines.
    OwnThread,
    /// This thread, on any CPU.
    Thread(u32),
}

/// An open event.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Event {
    /// Opens an event on `cpu`, or, for a single thread, on any CPU, in the group of `leader` if
    /// there is one.
    ///
    /// # Errors
    /// What perf_event_open(2) returns: EACCES or EPERM without CAP_PERFMON, ENODEV if the CPU is
    /// offline, ENOENT or EOPNOTSUPP if the PMU does not know the event, EBUSY or ENOSPC if it is
    /// in use.
    pub fn open(
        attr: &[u8; ATTR_BYTES],
        whose: Whose,
        cpu: u32,
        leader: Option<&Event>,
    ) -> io::Result<Event> {
        let cpu = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (pid, cpu) = match whose {
            Whose::Everybody => (-1i32, cpu),
            Whose::OwnThread => (0, cpu),
            Whose::Thread(tid) => (i32::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?, -1),
        };
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attr` is as long as it says itself, and the kernel only reads it.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), pid, cpu, group, FLAG_FD_CLOEXEC)
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
            Ok(fd) if fd >= 0 => Ok(Event { fd: unsafe { OwnedFd::from_raw_fd(fd) } }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Switches the event and its group on.
    ///
    /// # Errors
    /// What ioctl(PERF_EVENT_IOC_ENABLE) returns.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the third argument is a number.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE as _, IOC_FLAG_GROUP) })
    }

    /// Sets the number of events from one sample to the next.
    ///
    /// # Errors
    /// What ioctl(PERF_EVENT_IOC_PERIOD) returns: EINVAL for a period that the PMU cannot do.
    pub fn set_period(&self, events: u64) -> io::Result<()> {
        // SAFETY: the third argument points to 8 bytes that the kernel only reads.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_PERIOD as _, &raw const events) })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A ring's memory: the kernel reads our read position.
fn map(event: &Event, offset: u64, bytes: usize) -> io::Result<Mapping> {
    Mapping::new(event.as_fd(), ProtFlags::READ | ProtFlags::WRITE, offset, bytes)
}

/// The reading end of an event's ring.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    page: usize,
    size: u64,
}

impl Ring {
    /// Maps a ring of `bytes` (a power of two, whole pages) for `event`.
    ///
    /// # Errors
    /// What mmap(2) returns: EPERM if the limit of locked memory is reached, EINVAL for an invalid
    /// ring size.
    pub fn map(event: &Event, bytes: u32) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let size = bytes as usize;
        if !bytes.is_power_of_two() || size < page {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Ring { mapping: map(event, 0, page + size)?, page, size: bytes.into() })
    }

    /// Bytes that wait to be read.
    pub fn waiting(&self) -> u64 {
        let written = self.mapping.word(DATA_HEAD).load(Ordering::Acquire);
        written.wrapping_sub(self.mapping.word(DATA_TAIL).load(Ordering::Relaxed))
    }

    /// Passes up to `records_max` waiting records to `each`, in order, and frees their space.
    pub fn read(&mut self, records_max: usize, scratch: &mut Scratch, each: impl FnMut(&[u8])) -> Read {
        let tail = self.mapping.word(DATA_TAIL).load(Ordering::Relaxed);
        let written = self.mapping.word(DATA_HEAD).load(Ordering::Acquire).wrapping_sub(tail);
        if written == 0 {
            return Read::default();
        }
        let written = written.min(self.size) as usize;
        let start = (tail & (self.size - 1)) as usize;
        let first = written.min(self.size as usize - start);
        // SAFETY: both are within the data that follows the first page. The kernel has written
        // them, and it writes nothing there before the tail has passed, below.
        let waiting = unsafe {
            Waiting {
                first: self.mapping.slice(self.page + start, first),
                second: self.mapping.slice(self.page, written - first),
            }
        };
        let read = waiting.read(records_max, scratch, each);
        let tail = tail.wrapping_add(read.bytes as u64);
        self.mapping.word(DATA_TAIL).store(tail, Ordering::Release);
        read
    }
}

/// The reading end of an event's AUX area, where a PMU writes directly.
#[derive(Debug)]
pub struct Aux {
    area: Mapping,
    size: u64,
}

impl Aux {
    /// Maps an AUX area of `bytes` (a power of two, whole pages) behind the ring of `event`.
    ///
    /// # Errors
    /// What mmap(2) returns: EOPNOTSUPP or EINVAL if the PMU has none.
    pub fn map(event: &Event, ring: &mut Ring, bytes: u32) -> io::Result<Aux> {
        let offset = ring.page as u64 + ring.size;
        ring.mapping.word(AUX_OFFSET).store(offset, Ordering::Relaxed);
        ring.mapping.word(AUX_SIZE).store(bytes.into(), Ordering::Relaxed);
        Ok(Aux { area: map(event, offset, bytes as usize)?, size: bytes.into() })
    }

    /// Passes `bytes` from `offset` on to `each`, in two pieces if they wrap around the area's end,
    /// and frees their space. Returns whether they were present; if not, all waiting bytes are
    /// discarded, so that the hardware is not left without space.
    pub fn read(
        &mut self,
        ring: &mut Ring,
        offset: u64,
        bytes: u64,
        each: impl FnOnce(&[u8], &[u8]),
    ) -> bool {
        let tail = ring.mapping.word(AUX_TAIL);
        let head = ring.mapping.word(AUX_HEAD).load(Ordering::Acquire);
        let waiting = head.wrapping_sub(tail.load(Ordering::Relaxed));
        let end = offset.wrapping_add(bytes);
        let ahead = end.wrapping_sub(tail.load(Ordering::Relaxed));
        if bytes > self.size || ahead > waiting.min(self.size) || ahead < bytes {
            tail.store(head, Ordering::Release);
            return false;
        }
        let start = (offset & (self.size - 1)) as usize;
        let first = (bytes as usize).min(self.size as usize - start);
        // SAFETY: both are within the area and between its tail and its head: the hardware writes
        // nothing there before the tail has passed, below.
        unsafe { each(self.area.slice(start, first), self.area.slice(0, bytes as usize - first)) };
        tail.store(end, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests;
