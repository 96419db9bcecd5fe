//! Memory of a device, shared with its implementation: read and written a word at a time.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::mm::ProtFlags;

use super::mapping::Mapping;

/// A device's memory, mapped. The device may write at any time, so there is no slice of it: every
/// word is an atomic.
#[derive(Debug)]
pub struct DeviceMemory {
    mapping: Mapping,
    bytes: usize,
}

impl DeviceMemory {
    /// Maps all of a file such as `/sys/bus/pci/devices/*/resource2`.
    ///
    /// # Errors
    /// What open(2), fstat(2) or mmap(2) return; an empty file is invalid data.
    pub fn map(path: &Path) -> io::Result<DeviceMemory> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the device has no memory"));
        }
        let mapping = Mapping::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE, 0, bytes)?;
        Ok(DeviceMemory { mapping, bytes })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The 64-bit number at `at`, with acquire ordering: earlier writes of the device are visible.
    ///
    /// # Panics
    /// If it is not aligned or not within the memory.
    pub fn load(&self, at: usize) -> u64 {
        self.mapping.word(at).load(Ordering::Acquire)
    }

    /// Writes the 64-bit number at `at`, with release ordering: after all earlier reads.
    ///
    /// # Panics
    /// As [`load`](DeviceMemory::load).
    pub fn store(&self, at: usize, value: u64) {
        self.mapping.word(at).store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_what_the_other_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DeviceMemory::map(file.path()).is_err(), "nothing to map");
        std::fs::write(file.path(), [7u64, 9, 11].map(u64::to_ne_bytes).concat()).unwrap();
        let (ours, theirs) =
            (DeviceMemory::map(file.path()).unwrap(), DeviceMemory::map(file.path()).unwrap());
        assert_eq!((ours.bytes(), ours.load(8)), (24, 9));
        theirs.store(8, 10);
        assert_eq!(ours.load(8), 10);
        assert!(DeviceMemory::map(Path::new("/nowhere")).is_err());
    }
}
