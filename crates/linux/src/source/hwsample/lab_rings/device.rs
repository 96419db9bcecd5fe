//! The device behind which the lab's sampler is: QEMU's ivshmem, a PCI device whose memory is all that there is to it.

use std::io;
use std::path::{Path, PathBuf};

use super::layout::Layout;
use crate::root::{KernelFileError, Root, list_optional, read_optional};
use crate::sys::DeviceMemory;

/// Vendor and device (QEMU docs/specs/ivshmem-spec).
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
/// The BAR that is the shared memory.
const BAR: &str = "resource2";

/// Why there are no rings.
#[derive(Debug, thiserror::Error)]
pub enum NoRings {
    /// There is no such device.
    #[error(
        "no device 1af4:1110 here: the lab's sampler is there in guests of `lab run --misses --samples` alone"
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
    /// Its memory is no sampler's.
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

/// Whether there is such a device; what its memory holds is not looked at.
///
/// # Errors
/// [`NoRings::NoDevice`] where there is none.
pub fn is_there(root: &Root) -> Result<(), NoRings> {
    if devices(root)?.is_empty() { Err(NoRings::NoDevice) } else { Ok(()) }
}

/// The memory of the first device that holds a sampler's rings; ivshmem has other uses as well.
///
/// # Errors
/// Why there is none; of several such devices, why not the last.
pub(super) fn open(root: &Root) -> Result<(DeviceMemory, Layout), NoRings> {
    let mut why = NoRings::NoDevice;
    for device in devices(root)? {
        match rings(device.join(BAR)) {
            Ok(found) => return Ok(found),
            Err(error) => why = error,
        }
    }
    Err(why)
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

fn rings(path: PathBuf) -> Result<(DeviceMemory, Layout), NoRings> {
    let memory = match DeviceMemory::map(&path) {
        Ok(memory) => memory,
        Err(cause) => return Err(NoRings::NotMapped { path, cause }),
    };
    // A page is the least that is ever mapped, but not the least that a file may have.
    if memory.bytes() < 24 {
        return Err(NoRings::Strange { path, what: "it is too small" });
    }
    match Layout::read([0, 8, 16].map(|at| u64::from_le(memory.load(at))), memory.bytes()) {
        Ok(layout) => Ok((memory, layout)),
        Err(what) => Err(NoRings::Strange { path, what }),
    }
}
