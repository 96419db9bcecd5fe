//! The device of the lab's sampler, hot list and modelled time: QEMU's ivshmem, a PCI device that
//! consists only of memory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::root::{KernelFileError, Root, list_optional, read_optional};
use crate::sys::DeviceMemory;

/// Vendor and device (QEMU docs/specs/ivshmem-spec).
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
/// The BAR that is the shared memory.
const BAR: &str = "resource2";
/// The minimum size that `open` guarantees.
const HEAD_BYTES: usize = 32;
/// The first eight bytes of the memory that the lab's plugin lays out, and the word whose two
/// halves are the positions of the structures after the rings.
const MAGIC: u64 = u64::from_le_bytes(*b"TLCSAMP1");
const PLACES: usize = 24;
/// Structures there begin at pages of this size, and have one page of registers.
pub(crate) const PAGE: usize = 4096;
/// How often its memory is polled: nothing signals new data there.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why the lab's device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoLabDevice {
    /// There is no such device.
    #[error(
        "no device 1af4:1110 here: the lab's sampler, hot list and modelled time are there in guests of `lab run --misses --samples` alone"
    )]
    NoDevice,
    /// The device cannot be mapped.
    #[error("cannot map {}: {cause}; it needs CAP_SYS_ADMIN, and a kernel that is not locked down", path.display())]
    NotMapped {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// Its memory is not what it should be.
    #[error("{}: {what}", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file of the kernel cannot be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
}

/// Whether there is such a device; its memory is not read.
///
/// # Errors
/// [`NoLabDevice::NoDevice`] if there is none.
pub fn is_there(root: &Root) -> Result<(), NoLabDevice> {
    if devices(root)?.is_empty() { Err(NoLabDevice::NoDevice) } else { Ok(()) }
}

/// The memory of the first such device that `read` accepts; ivshmem has other uses as well.
///
/// # Errors
/// Why there is none; of several such devices, why not the last. `read` says what is wrong with its
/// memory.
pub(crate) fn open<T>(
    root: &Root,
    read: impl Fn(&DeviceMemory) -> Result<T, &'static str>,
) -> Result<(DeviceMemory, T), NoLabDevice> {
    let mut why = NoLabDevice::NoDevice;
    for device in devices(root)? {
        match try_one(device.join(BAR), &read) {
            Ok(found) => return Ok(found),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// The number at `at`, which the plugin wrote little-endian.
pub(crate) fn word(memory: &DeviceMemory, at: usize) -> u64 {
    u64::from_le(memory.load(at))
}

/// The lower and the upper half of a number.
pub(crate) fn halves(word: u64) -> (u32, u32) {
    // Both fit.
    (word as u32, (word >> 32) as u32)
}

/// The positions of the hot list's registers and of the clocks of modelled time; 0 if absent. The
/// memory must have at least 32 bytes.
///
/// # Errors
/// The memory belongs to another program.
pub(crate) fn places(memory: &DeviceMemory) -> Result<(usize, usize), &'static str> {
    if word(memory, 0) != MAGIC {
        return Err("it is not the memory that the lab's plugin lays out");
    }
    let (hot_list, clocks) = halves(word(memory, PLACES));
    Ok((hot_list as usize, clocks as usize))
}

/// Whether a whole page of the memory begins at `at`.
pub(crate) fn has_page(memory: &DeviceMemory, at: usize) -> bool {
    at.is_multiple_of(PAGE) && at <= memory.bytes() && memory.bytes() - at >= PAGE
}

/// A machine with the device whose memory is `bytes`, and the writer's view of that memory.
#[cfg(test)]
pub(crate) fn fake(bytes: &[u8]) -> (tempfile::TempDir, Root, DeviceMemory) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::at(folder.path());
    let device = root.sys.join("bus/pci/devices/0000:00:04.0");
    std::fs::create_dir_all(&device).unwrap();
    for (name, number) in [("vendor", VENDOR), ("device", DEVICE)] {
        std::fs::write(device.join(name), format!("{number}\n")).unwrap();
    }
    std::fs::write(device.join(BAR), bytes).unwrap();
    let writer = DeviceMemory::map(&device.join(BAR)).unwrap();
    (folder, root, writer)
}

/// The folders of all such devices, by address.
fn devices(root: &Root) -> Result<Vec<PathBuf>, KernelFileError> {
    let folder = root.sys.join("bus/pci/devices");
    let mut found = Vec::new();
    for name in list_optional(&folder)?.unwrap_or_default() {
        let device = folder.join(name);
        if is(&device, "vendor", VENDOR)? && is(&device, "device", DEVICE)? {
            found.push(device);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is(device: &Path, name: &str, wanted: &str) -> Result<bool, KernelFileError> {
    Ok(read_optional(&device.join(name))?.is_some_and(|text| text.trim() == wanted))
}

fn try_one<T>(
    path: PathBuf,
    read: impl Fn(&DeviceMemory) -> Result<T, &'static str>,
) -> Result<(DeviceMemory, T), NoLabDevice> {
    let memory = match DeviceMemory::map(&path) {
        Ok(memory) => memory,
        Err(cause) => return Err(NoLabDevice::NotMapped { path, cause }),
    };
    // At least a page is mapped, but the file may be smaller.
    if memory.bytes() < HEAD_BYTES {
        return Err(NoLabDevice::Strange { path, what: "it is too small" });
    }
    match read(&memory) {
        Ok(found) => Ok((memory, found)),
        Err(what) => Err(NoLabDevice::Strange { path, what }),
    }
}
