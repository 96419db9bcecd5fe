//! Everything that needs `unsafe`: each system interface without a safe wrapper gets one here.

#[cfg(feature = "bpf")]
pub mod bpf;
#[cfg(test)]
pub(crate) mod counted;
#[cfg(feature = "lab")]
mod device_memory;
mod mapping;
#[allow(unsafe_code)]
mod move_pages;
pub mod pagemap_scan;
pub mod perf;

#[cfg(feature = "lab")]
pub use device_memory::DeviceMemory;
#[cfg(test)]
pub(crate) use move_pages::refuse_move_pages;
pub use move_pages::{MovePagesError, MoveWhat, move_pages, query_pages};
