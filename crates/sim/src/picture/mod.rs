//! Pictures of results as SVG: black, white and greys, so that they can be printed, with names
//! beside what they name.
//!
//! `svg` has the strokes, `axis` the scales; [`bars`] compares managers, [`curves`] follows a
//! swept parameter, [`plan`] the size of DRAM.

mod axis;
mod bars;
mod curves;
mod plan;
pub(crate) mod svg;

pub use bars::{Bar, Group, bars};
pub use curves::{Curve, Panel, Sweep, curves};
pub use plan::{Planned, Spot, plan};
