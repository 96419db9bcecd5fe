//! The plugin's modelled time, read in the guest from the memory that the plugin shares with it.

use thermocline_linux::root::Root;
use thermocline_linux::source::lab_clock::{LabClock, NoTime, VcpuTime};
use thermocline_linux::source::lab_device::NoLabDevice;

/// Opens the clocks; `None` if this is not a guest with them.
///
/// # Errors
/// When there is such a device but it cannot be used.
pub fn clock() -> anyhow::Result<Option<LabClock>> {
    match LabClock::open(&Root::default()) {
        Err(NoLabDevice::NoDevice) => Ok(None),
        clock => Ok(Some(clock?)),
    }
}

/// The present clocks of all processors.
///
/// # Errors
/// When this is not a guest with them, or time is not modelled.
pub fn now() -> anyhow::Result<Vec<VcpuTime>> {
    Ok(LabClock::open(&Root::default())?.read()?)
}

/// The sum of all clocks, ns; `None` while time is not modelled.
///
/// # Errors
/// [`NoTime::Restless`].
pub(super) fn sum_ns(clock: &LabClock) -> anyhow::Result<Option<u64>> {
    match clock.read() {
        Err(NoTime::Off) => Ok(None),
        vcpus => Ok(Some(vcpus?.iter().map(|vcpu| vcpu.ns).sum())),
    }
}
