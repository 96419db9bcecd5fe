//! The truth from outside the guest: what the [TCG plugin](../plugin/README.md) saw.
//!
//! [`Plugin`] communicates with it, from the host over its Unix socket or from inside the guest
//! over a serial port. [`read_dump`] reads its record of misses by page, and [`best_static`]
//! computes the best result of any placement that never moves a page: the reference for placements
//! that do.

mod attach;
mod dump;
mod layout;
mod model;
mod oracle;
mod plugin;

pub use attach::{AttachError, GUEST_PORT, attach, build, host_socket, offer_samples};
pub use dump::{DumpError, PageMisses, by_page, parse_dump, read_dump};
pub use layout::{Layout, LayoutError};
pub use model::{CPI_NS, Model, NodeModel};
pub use oracle::{best_static, served_share};
pub use plugin::{Counts, Modelled, NodeCounts, Plugin, PluginError, State};
