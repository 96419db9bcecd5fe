//! Experiments with real programs on a tiered guest: each has a part on the host, which boots the
//! guest and judges, and a part inside, which runs and records.

mod daemon;
pub(crate) mod demo;
pub(crate) mod remote;
mod runner;
pub(crate) mod score;
pub(crate) mod share;
pub(crate) mod spill;
mod who;
mod within;

pub(crate) use runner::Inside;
