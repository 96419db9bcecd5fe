//! Findings: what stands in the way of tiering on a machine, or came into it.
//!
//! The doctor and the daemon share the [kinds](Kind), the [facts](Facts) and the [judgement](judge)
//! of those that begin and end while thermocline runs. [`Follower`] tells when they do.

pub(crate) mod away;
mod blind;
mod cgroups;
pub(crate) mod cpusets;
mod facts;
mod follow;
mod judge;
mod kind;
mod look;
mod minute;
mod others;
mod pods;
mod pressure;
mod reader;
#[cfg(test)]
mod tests;

use serde::Serialize;
use thermocline_core::units::NodeId;

pub use blind::{BLIND_PROCESSES_MAX, Blind, BlindProcess, BlindScope, BlindSum};
pub use cgroups::Limited;
pub use cpusets::Confined;
pub use facts::{Demoting, Facts, Running, View};
pub use follow::{Change, Follower, Open, Told};
pub use judge::judge;
pub use kind::{Kind, SeenBy};
pub use minute::{LOWER_MIB_MIN, Minute, NO_EVIDENCE, SourceMinute, Stuck};
pub use others::{Kdamond, Module, Others, Program};
pub use pods::pods;
pub use reader::Reader;

pub(crate) use blind::{Programs, blind};
pub(crate) use facts::wanted_mode;
pub(crate) use look::Look;
pub(crate) use others::our_kdamonds;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// All is well.
    Ok,
    /// Worth knowing.
    Note,
    /// Thermocline works, less well or less safely than it could.
    Problem,
    /// Thermocline cannot work.
    Blocker,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "problem",
            Severity::Blocker => "blocker",
        }
    }
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind, as in `topology.one_tier`.
    pub id: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// The fact, and its consequence.
    pub cause: String,
    /// What would change it, the easiest first.
    pub remedies: Vec<Remedy>,
    /// What it is about, where several of a kind may be open: a node, a scope, a program.
    #[serde(skip)]
    pub about: About,
}

/// What a finding is about. The names also go to the journal, as fields of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// The name of the scope.
    pub scope: Option<String>,
    /// The label of a refusal or an outcome.
    pub reason: Option<&'static str>,
    /// Something else: a source, a program, a kernel module.
    pub thing: Option<String>,
}

/// What would change a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What to do.
    pub what: String,
    /// The command that does it, where one does.
    pub command: Option<String>,
}

/// The precondition of a remedy. Every remedy has one, and a remedy that cannot work on this
/// machine is not printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground(bool);

impl Ground {
    /// It depends only on us: our configuration, our command, or the place where we are started.
    pub(crate) const OURS: Ground = Ground(true);

    /// Its requirement on the machine was checked, with this result.
    pub(crate) const fn seen(so: bool) -> Ground {
        Ground(so)
    }
}

impl Finding {
    /// A finding of its kind's usual severity, without remedies yet.
    pub(crate) fn new(id: Kind, cause: impl Into<String>) -> Finding {
        let (cause, remedies) = (cause.into(), Vec::new());
        Finding { id, severity: id.severity(), cause, remedies, about: About::default() }
    }

    /// With another of its kind's severities.
    pub(crate) fn with_severity(mut self, severity: Severity) -> Finding {
        debug_assert!(self.id.severities().contains(&severity), "{:?} is never a {severity:?}", self.id);
        self.severity = severity;
        self
    }

    /// About these nodes.
    pub(crate) fn on(mut self, nodes: &[NodeId]) -> Finding {
        self.about.nodes = nodes.to_vec();
        self
    }

    /// About this scope.
    pub(crate) fn of_scope(mut self, scope: impl Into<String>) -> Finding {
        self.about.scope = Some(scope.into());
        self
    }

    /// About something else.
    pub(crate) fn about(mut self, thing: impl Into<String>) -> Finding {
        self.about.thing = Some(thing.into());
        self
    }

    /// Adds a remedy in words, where its ground holds.
    pub(crate) fn fix(mut self, ground: Ground, what: impl Into<String>) -> Finding {
        if ground.0 {
            self.remedies.push(Remedy { what: what.into(), command: None });
        }
        self
    }

    /// Adds a remedy that a command carries out, where its ground holds.
    pub(crate) fn run(
        mut self,
        ground: Ground,
        what: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        if ground.0 {
            self.remedies.push(Remedy { what: what.into(), command: Some(command.into()) });
        }
        self
    }
}

impl Remedy {
    /// Words and command in one line.
    pub fn line(&self) -> String {
        match &self.command {
            Some(command) => format!("{}: {command}", self.what),
            None => self.what.clone(),
        }
    }
}
