//! Why a scope has as much of the top tier as it has, with its name.

use serde::Serialize;
use thermocline_core::engine::{Engine, ScopeExplanation};

use super::fixed::{Fixed, Named, SCHEMA};

/// An explanation of a scope as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedScope {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// The engine's explanation, with the scope's name.
    #[serde(flatten)]
    pub explained: Named<ScopeExplanation>,
}

impl ExplainedScope {
    /// What the engine knows of the scope of this name.
    ///
    /// # Errors
    /// There is none, or its memory is left alone.
    pub fn new(name: &str, engine: &Engine, fixed: &Fixed) -> Result<ExplainedScope, String> {
        let scope = fixed.scope_of(name).ok_or_else(|| {
            let all = fixed.scope_names();
            let all =
                if all.is_empty() { "none is configured".to_owned() } else { format!("there are {all}") };
            format!("there is no scope {name:?}; {all}")
        })?;
        let explained = engine
            .explain_scope(scope)
            .ok_or_else(|| format!("scope {name:?} is excluded: its memory is left where it is"))?;
        Ok(ExplainedScope { schema: SCHEMA, explained: fixed.name(scope, explained) })
    }
}
