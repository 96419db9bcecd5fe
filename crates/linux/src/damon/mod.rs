//! DAMON's kdamonds: created and put back.
//!
//! Manager `damon` (S3): a kdamond for every node with memory, which promotes accessed regions from
//! lower tiers (`migrate_hot`) and demotes unaccessed ones from upper tiers (`migrate_cold`), by
//! physical address.
//!
//! Source `damon` ([`crate::source::damon`]): a kdamond for every node with memory, or for every
//! process of some size, which only watches.
//!
//! Demotion by regions ([`crate::demoter`]): a kdamond for every node of the top tier, which
//! demotes on demand, as much as the demand asks for.
//!
//! All of it goes through DAMON's sysfs (Linux mm/damon/sysfs.c). The kernel creates and ends all
//! kdamonds there at once, when their number is written, and refuses that while one of them runs.
//! So kdamonds cannot be added to those of others without ending these: if there are any, nothing
//! is done ([`offer`]).

mod cgroups;
mod filters;
mod offer;
pub(crate) mod on_demand;
mod pool;
mod setup;
mod stats;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use thermocline_core::units::NodeId;

use crate::actuator::{Actuator, ActuatorError, Plan, kdamonds, same_value};
use crate::root::Root;

pub use cgroups::NotCgroups;
pub use filters::Follower;
pub(crate) use offer::MIGRATE_SINCE;
pub use offer::{NotDamon, Spaces, offer, offer_demotion, offer_source};
pub use pool::{Pool, PoolError};
pub(crate) use setup::{intervals, ranges};
pub use stats::{DamonStats, SchemeStats, Stats};

/// A limitation for cgroups that are created later.
const FOLLOWED_LATE: &str = "a cgroup that is made later is told to DAMON about a second after: until then its pages may move where only \
    others are excluded; manager thermocline moves nobody's before it has looked";
/// A limitation: page attributes that DAMON does not know.
const NO_POLICIES: &str = "DAMON does not know memory policies: what is bound or interleaved (numactl, mbind) moves as well; put such \
    programs into a cgroup and exclude it, or choose manager thermocline";

/// What a scheme does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Accessed regions move to a faster tier.
    MigrateHot,
    /// Unaccessed regions move to a slower tier.
    MigrateCold,
}

impl Action {
    /// The kernel's name for it.
    pub const fn text(self) -> &'static str {
        match self {
            Action::MigrateHot => "migrate_hot",
            Action::MigrateCold => "migrate_cold",
        }
    }
}

/// The place of a scheme and its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scheme {
    /// Number of its kdamond.
    kdamond: usize,
    /// Its number in the kdamond.
    number: usize,
    action: Action,
    /// The node that the kdamond watches.
    from: NodeId,
    /// The node that pages go to.
    to: NodeId,
}

/// Everything to be written, known before anything is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Settings of the kernel, in order; the last creates the kdamonds.
    pub plan: Plan,
    /// The kdamonds' configuration, which disappears with them.
    fills: Vec<(PathBuf, String)>,
    schemes: Vec<Scheme>,
    /// Kdamonds that are switched on at the start.
    kdamonds: usize,
    /// Keeps the filters in step, where they are by cgroup.
    follower: Option<Follower>,
}

impl Setup {
    /// The schemes, and whose pages they may move, in words, a line each.
    pub fn told(&self) -> Vec<String> {
        let line = |s: &Scheme| {
            format!("kdamond {}: {} from node {} to node {}", s.kdamond, s.action.text(), s.from.0, s.to.0)
        };
        let whose = self.follower.iter().map(|follower| follower.whose().to_string());
        self.schemes.iter().map(line).chain(whose).collect()
    }

    /// The limitations of the schemes, in words, a line each.
    pub fn caveats(&self) -> impl Iterator<Item = &'static str> {
        let late = self.follower.as_ref().map(|_| FOLLOWED_LATE);
        let policies = (!self.schemes.is_empty()).then_some(NO_POLICIES);
        late.into_iter().chain(policies)
    }

    /// The follower that updates filters as cgroups come and go, if scopes name any.
    pub fn follower(&self) -> Option<Follower> {
        self.follower.as_ref().map(|follower| follower.of(&self.schemes, self.kdamonds))
    }

    /// A kdamond with one scheme.
    #[cfg(test)]
    pub(crate) fn of_one(from: NodeId, to: NodeId) -> Setup {
        let scheme = Scheme { kdamond: 0, number: 0, action: Action::MigrateCold, from, to };
        Setup { plan: Plan::default(), fills: Vec::new(), schemes: vec![scheme], kdamonds: 1, follower: None }
    }

    /// The number of the kdamond that watches a node for its only scheme, and where that moves
    /// pages.
    pub(crate) fn kdamond_of(&self, node: NodeId) -> Option<(usize, NodeId)> {
        self.schemes.iter().find(|scheme| scheme.from == node).map(|scheme| (scheme.kdamond, scheme.to))
    }

    /// Creates the kdamonds and switches them on: all or nothing.
    ///
    /// # Errors
    /// The step that failed and the fate of those before it.
    pub fn start(&self, root: &Root, actuator: &mut Actuator) -> Result<(), ActuatorError> {
        let number = nr_kdamonds(root);
        actuator.keep(&self.plan);
        actuator.all_or_nothing(|actuator| {
            for change in &self.plan.changes {
                actuator.set(&change.path, &change.to)?;
            }
            for (path, value) in &self.fills {
                actuator.fill(&number, path, value)?;
            }
            for kdamond in 0..self.kdamonds {
                actuator.set(&kdamond_folder(root, kdamond).join("state"), "on")?;
            }
            Ok(())
        })
    }
}

/// Files of a kdamond, below its folder.
pub(crate) mod kdamond_file {
    /// Its state, and its commands.
    pub(crate) const STATE: &str = "state";
    /// The process that it watches.
    pub(crate) const PID: &str = "contexts/0/targets/0/pid_target";
}

fn nr_kdamonds(root: &Root) -> PathBuf {
    kdamonds(root).join("nr_kdamonds")
}

pub(crate) fn kdamond_folder(root: &Root, number: usize) -> PathBuf {
    kdamonds(root).join(number.to_string())
}

/// Whether a file of the kernel has this value now.
fn has(actuator: &Actuator, path: &Path, value: &str) -> bool {
    actuator.read(path).is_ok_and(|text| same_value(&text, value))
}

/// The folder of a scheme.
fn scheme_folder(kdamond: &Path, number: usize) -> PathBuf {
    kdamond.join("contexts/0/schemes").join(number.to_string())
}
