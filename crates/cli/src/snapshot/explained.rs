//! Why a page did or did not move, with the names of scopes.

use serde::Serialize;
use thermocline_core::admission::{Braking, Standing};
use thermocline_core::engine::{Explanation, PageState, Remembered};
use thermocline_core::journal::Decision;
use thermocline_core::units::{Pfn, VirtPage};

use super::fixed::{Fixed, Named, SCHEMA};

/// An explanation as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// The page that was asked for.
    pub page: VirtPage,
    /// The page that maps the head of its folio: the one that the decisions are about.
    pub head: VirtPage,
    /// The head's frame, as far as it is known.
    pub pfn: Option<Pfn>,
    /// What is remembered of the frame.
    pub record: Option<Remembered>,
    /// How it stands with the page now.
    pub state: PageState,
    /// How its process's scope stands, where that has a floor or a cap.
    pub scope: Option<Named<Standing>>,
    /// How that scope is braked.
    pub brake: Option<Named<Braking>>,
    /// The latest decisions on it, oldest first.
    pub decisions: Vec<Decision>,
    /// All of it in a sentence.
    pub summary: String,
}

impl Explained {
    /// The engine's explanation, with what `fixed` calls the scopes.
    pub fn new(explanation: Explanation, fixed: &Fixed) -> Explained {
        let Explanation { page, head, pfn, record, state, scope, brake, decisions, summary } = explanation;
        let scope = scope.map(|standing| fixed.name(standing.scope, standing));
        let brake = brake.map(|braking| fixed.name(braking.scope, braking));
        Explained { schema: SCHEMA, page, head, pfn, record, state, scope, brake, decisions, summary }
    }
}
