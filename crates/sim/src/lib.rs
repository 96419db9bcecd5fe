//! A simulated machine: tiers of memory, the kernel's background activities, programs, and core's
//! engine.
//!
//! ```text
//!  scenario (TOML) ──▶ Setup ──▶ run ──▶ Report
//!                                 │
//!            ┌────────────────────┴─────────────────────┐
//!            │ loop { mode.advance(world, next due);    │      mode: exact (every access) or
//!            │        world.run_due() }                 │            event (from fault to fault)
//!            └────────────────────┬─────────────────────┘
//!   World = patterns ──▶ phases ──▶ mode ──▶ hint faults, samples ──▶ Manager ──▶ engine (core), or the kernel's rule
//!           models (scanner, kswapd, traffic, ...) ──▶ System (memory, counters, nodes) ◀── both
//! ```
//!
//! * [`machine`]: nodes in tiers, latencies, bandwidth, watermarks, costs. Presets in
//!   `machine/presets`.
//! * [`workload`]: processes and their [`workload::Pattern`]s, which give phases: a distribution
//!   over cells, or a walk.
//! * [`memory`]: the page tables as arrays, about nine bytes a page.
//! * [`kernel`]: models of the kernel's activities, each a [`kernel::Model`] on the
//!   [`system::System`]. They see no accesses, only marks, faults, samples and accessed bits, so
//!   they are the same under both modes.
//! * [`manager`]: what decides: nothing, the kernel, or Thermocline's unchanged engine, whose moves
//!   take simulated time.
//! * [`mode`]: the two ways to let programs run. [`counters`]: the counters, and the laws that hold
//!   in every run.
//! * [`operations`]: how long one operation of a program takes.
//! * [`oracle`]: what the best placements could achieve.
//! * [`scenario`]: presets, and for each parameter whether it is published, from the kernel, fitted
//!   or assumed.
//! * [`fit`]: free parameters from the published figures of one column. [`reproduce`]: published
//!   tables beside ours.
//! * [`picture`]: results as SVG.
//! * [`sweep`]: every combination of parameters, scenarios, managers and seeds.
//!
//! To add a pattern, see [`workload`]; a kernel model, [`kernel`]; a manager, [`manager`]; a
//! machine or a scenario: a TOML file in `presets/` and a line in the `PRESETS` beside it.
//!
//! Time is in nanoseconds; a run begins at [`system::START`]. Equal scenario, arm and seed give
//! equal reports, to the bit, on any number of cores: every thread and every purpose draws from a
//! stream of its own ([`random`]), and nothing depends on the order in which runs happen to end.

// Output goes through the command's writers, which handle a closed pipe.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod counters;
mod course;
pub mod effect;
pub mod fit;
pub mod kernel;
pub mod machine;
pub mod manager;
pub mod memory;
pub mod mode;
pub mod operations;
pub mod oracle;
pub mod picture;
mod populate;
pub mod random;
pub mod report;
pub mod reproduce;
pub mod residence;
pub mod run;
pub mod scenario;
pub mod settings;
pub mod spec;
pub mod stalls;
pub mod stats;
pub mod sweep;
pub mod system;
mod traffic;
pub mod units;
pub mod workload;
pub mod world;
