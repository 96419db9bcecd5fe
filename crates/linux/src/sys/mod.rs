//! Everything that needs `unsafe`: each system interface without a safe door gets one here.

#[cfg(feature = "bpf")]
pub mod bpf;
