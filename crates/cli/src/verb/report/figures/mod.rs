//! The figures of a report, as SVG without scripts.
//!
//! [`svg`] has the strokes, [`axis`] the scales and the time along a figure; the others draw one
//! figure each. Lines and areas differ by form and brightness too, so that no colour is needed.

pub mod axis;
pub mod curve;
pub mod flows;
pub mod heat;
pub mod held;
pub mod reasons;
pub mod svg;

pub use svg::Figure;
