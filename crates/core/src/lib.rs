//! The engine: evidence in, moves out; no clock, no I/O, no threads, no `unsafe`.
//!
//! The path of a page: [`access`] (evidence) → [`record`] (state per frame) → [`rule`] (is it hot?)
//! → [`weigh`] (combines sources) → [`queue`] (best first) → [`admission`] (may it move now?) →
//! [`moves::Batch`] → [`moves::Outcome`] → [`journal`]. Time is passed in as [`units::Nanos`] of
//! CLOCK_MONOTONIC.
//!
//! The owner of memory implements [`machine::Machine`]; [`driver::Driver`] steps it.

// Output goes through the command's writers, which handle a closed pipe.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
pub mod admission;
pub mod candidate;
pub mod cgroup;
pub mod config;
pub mod counters;
pub mod demand;
pub mod demotion;
pub mod driver;
pub mod engine;
pub mod hash;
mod index;
pub mod journal;
pub mod label;
pub mod limit;
pub mod machine;
pub mod moves;
pub mod pace;
pub mod payoff;
pub mod published;
pub mod queue;
pub mod record;
pub mod refusal;
pub mod rule;
pub mod statistics;
pub mod topology;
pub mod units;
pub mod weigh;
