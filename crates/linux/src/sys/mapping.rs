//! A memory mapping that is shared with the kernel: the basis of every ring.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
#[cfg(feature = "bpf")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is shared memory that is reached through atomics or, where the kernel has
// handed it over, read-only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` of `fd` from `offset` on.
    ///
    /// # Errors
    /// What mmap(2) returns.
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        protection: ProtFlags,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, offset)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { start, bytes })
    }

    /// The 64-bit number at `at`.
    ///
    /// # Panics
    /// If it is not aligned or not within the mapping.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "no word at {at} of {} bytes", self.bytes);
        // SAFETY: the place is aligned, since mappings begin at pages, and mapped as long as `self`
        // lives; the kernel too treats these words as atomics.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// The 32-bit number at `at`.
    ///
    /// # Panics
    /// As [`word`](Mapping::word).
    #[cfg(feature = "bpf")]
    pub(super) fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes, "no number at {at} of {} bytes", self.bytes);
        // SAFETY: as above.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// Bytes from `at` on.
    ///
    /// # Safety
    /// Nobody writes to them as long as the slice lives.
    ///
    /// # Panics
    /// If they are not within the mapping.
    pub(super) unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        assert!(len <= self.bytes && at <= self.bytes - len, "{len} bytes at {at} of {}", self.bytes);
        // SAFETY: within the mapping, and the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(at).as_ptr(), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `mmap` returned; no reference into it outlives `self`. A
        // failure leaves the range mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
