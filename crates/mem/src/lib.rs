//! Prefetch and huge-page arrays: what a table of a byte a page needs to be fast at a terabyte.
//!
//! One of the two places of the workspace where `unsafe` is allowed; everything public here is safe
//! to call.

#![allow(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arena;
mod prefetch;

pub use arena::{Arena, ArenaError, HUGE_PAGE_BYTES, Plain};
pub use prefetch::{prefetch, prefetch_all};
