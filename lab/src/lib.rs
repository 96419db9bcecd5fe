//! A bootable machine with memory tiers.
//!
//! Boots Debian's own kernel in QEMU's software emulation (no KVM, no root) with several NUMA nodes and the HMAT
//! tables from which the kernel builds real memory tiers, on top of a copy-on-write view of the host's file
//! system, and runs a command in it.
//!
//! ```no_run
//! use thermocline_lab::{Guest, Line};
//!
//! let outcome = Guest::builder().kernel(Line::Newest).run("cat /proc/version")?;
//! assert_eq!(outcome.status, 0);
//! # Ok::<(), thermocline_lab::Error>(())
//! ```

mod apt;
mod cache;
mod channel;
mod cpio;
mod dataset;
mod error;
mod fetch;
mod guest;
mod initramfs;
mod kernel;
mod machine;
mod modules;
mod qemu;
mod release;
mod terminal;

pub mod truth;
pub mod workload;

pub use cache::Cache;
pub use dataset::{DISK, DataSet, Database};
pub use error::{End, Error, Result};
pub use fetch::{Fetched, fetch};
pub use guest::{Guest, GuestBuilder, Outcome, Output};
pub use kernel::{Kernel, Line};
pub use machine::{Machine, NodeSpec, ThpMode, parse_size};
