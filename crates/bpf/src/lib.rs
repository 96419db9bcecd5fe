//! The BPF programs that watch NUMA hint faults, compiled, with the types of their skeleton.
//!
//! This crate only contains the object. `thermocline-linux` loads it, sets its constants and reads
//! its ring. No other crate needs clang.

pub use libbpf_rs;

/// The compiled object, to be opened by libbpf.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hintfault.bpf.o"));

pub use skel::types::{rodata, tc_counters, tc_filter};

mod skel {
    #![allow(
        unsafe_code,
        unused_imports,
        missing_docs,
        dead_code,
        unreachable_pub,
        clippy::all,
        clippy::unwrap_used
    )]
    include!(concat!(env!("OUT_DIR"), "/hintfault.skel.rs"));
}
