//! The guest: nodes and tiers, Debian's kernels, QEMU, and what runs in it from the first process
//! on.

pub(crate) mod apt;
mod cache;
mod channel;
mod cpio;
mod error;
mod fetch;
mod guest;
mod initramfs;
mod kernel;
mod modules;
mod nodes;
mod qemu;
mod release;
mod terminal;

pub use cache::Cache;
pub use error::{End, Error, Result};
pub use fetch::{Fetched, fetch};
pub use guest::{DISK, Guest, GuestBuilder, Outcome, Output};
pub use kernel::{Kernel, Line};
pub use nodes::{Machine, NodeSpec, ThpMode, parse_size};
