//! The daemon's figures as text, for the lines and the summary of a run, and for `status`.

mod benefit;
mod explained;
mod kernel;
mod memory;
mod sources;
mod status;
mod worth;

pub use benefit::benefit;
pub use explained::{decisions, explained};
pub use kernel::{by_damon, by_kernel, kswapd, mib};
pub use memory::{brake_row, brakes, explained_scope, ledgers, rate, residency, scope_row, scopes};
pub use sources::{overhead, reverse};
pub use status::status;
pub use worth::worth;
