//! What a pane has to show, before it is fitted to its place.

use super::table::{Column, Row};
use crate::args::Pane;
use crate::top::state::State;

/// The content of a pane.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// What stands beside the title.
    pub note: String,
    /// Lines above the rows, and whether each shows that something is wrong.
    pub intro: Vec<(String, bool)>,
    /// The columns of the rows.
    pub columns: &'static [Column],
    /// The rows.
    pub rows: Vec<Row>,
    /// What is said in the place of rows where there are none.
    pub none: String,
}

/// The content of a pane.
pub fn body(state: &State, pane: Pane) -> Body {
    let Some(reading) = &state.shown().reading else {
        return Body { none: "nothing is known yet".to_owned(), ..Body::default() };
    };
    match pane {
        Pane::Tiers => super::tiers::body(state, reading),
        Pane::Scopes => super::scopes::body(state, reading),
        Pane::Sources => super::sources::body(state, reading),
        Pane::Refusals => super::refusals::body(state, reading),
        Pane::Decisions => super::decisions::body(state),
    }
}
