//! A bootable machine with memory tiers.
//!
//! Boots Debian's own kernel in QEMU's software emulation (no KVM, no root) with several NUMA nodes
//! and the HMAT tables from which the kernel builds real memory tiers. The guest's files are a
//! copy-on-write view of the host's. Then it runs a command.
//!
//! ```no_run
//! use thermocline_lab::{Guest, Line};
//!
//! let outcome = Guest::builder().kernel(Line::Newest).run("cat /proc/version")?;
//! assert_eq!(outcome.status, 0);
//! # Ok::<(), thermocline_lab::Error>(())
//! ```

mod machine;
pub mod programs;
pub mod truth;

pub use machine::{
    Cache, DISK, End, Error, Fetched, Guest, GuestBuilder, Kernel, Line, Machine, NodeSpec, Outcome, Output,
    Result, ThpMode, fetch, parse_size,
};
pub use programs::{DataSet, Database};
