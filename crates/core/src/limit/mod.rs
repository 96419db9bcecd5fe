//! Limits that promotion and demotion share: pages in a sliding second, and pages that stay free.

mod rate;
mod reserve;

pub(crate) use rate::Rate;
pub use reserve::Reserve;
