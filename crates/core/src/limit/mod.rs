//! Limits that promotion and demotion keep alike: pages in a sliding second, and pages that stay
//! free.

mod rate;
mod reserve;

pub(crate) use rate::Rate;
pub use reserve::Reserve;
