//! Why a page did or did not move, with the names of scopes.

use serde::Serialize;
use thermocline_core::admission::{Braking, Standing};
use thermocline_core::engine::{Explanation, PageState, Remembered, Worth};
use thermocline_core::journal::Decision;
use thermocline_core::payoff::Judged;
use thermocline_core::units::{Pfn, VirtPage};

use super::fixed::{Fixed, Named, SCHEMA};

/// An explanation as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// The requested page.
    pub page: VirtPage,
    /// The page that maps the head of its folio. Decisions refer to this page.
    pub head: VirtPage,
    /// The head's frame, if known.
    pub pfn: Option<Pfn>,
    /// The record of the frame.
    pub record: Option<Remembered>,
    /// The page's current state.
    pub state: PageState,
    /// The standing of its process's scope, if that has a floor or a cap.
    pub scope: Option<Named<Standing>>,
    /// The brake of that scope.
    pub brake: Option<Named<Braking>>,
    /// What its promotion would gain, if it waits for that or was refused for it.
    pub gain: Option<Judged>,
    /// The latest decisions on the page, oldest first.
    pub decisions: Vec<Decision>,
    /// A summary in one sentence.
    pub summary: String,
}

/// Pages of a process that are worth asking about, as they are shown.
#[derive(Clone, Debug, Serialize)]
pub struct Askable {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// The process.
    pub pid: u32,
    /// The pages.
    #[serde(flatten)]
    pub pages: Worth,
}

impl Askable {
    /// The engine's pages.
    pub fn new(pid: u32, pages: Worth) -> Askable {
        Askable { schema: SCHEMA, pid, pages }
    }
}

impl Explained {
    /// The engine's explanation, with the scopes' names from `fixed`.
    pub fn new(explanation: Explanation, fixed: &Fixed) -> Explained {
        let Explanation { page, head, pfn, record, state, scope, brake, gain, decisions, summary } =
            explanation;
        let scope = scope.map(|standing| fixed.name(standing.scope, standing));
        let brake = brake.map(|braking| fixed.name(braking.scope, braking));
        Explained { schema: SCHEMA, page, head, pfn, record, state, scope, brake, gain, decisions, summary }
    }
}
