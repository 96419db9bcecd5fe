//! What does not change while a manager is at work.

use serde::{Deserialize, Serialize};
use thermocline_core::config::{Config, ManagerName, RuleName, Scope};
use thermocline_core::topology::Topology;
use thermocline_core::units::ScopeId;

/// Version of the layout and meaning of `status --json`. It changes whenever a reader of the
/// previous version could misread or miss a figure.
pub const SCHEMA: u64 = 1;

/// What does not change while running.
#[derive(Clone, Debug, Serialize)]
pub struct Fixed {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// Version of the program.
    pub version: &'static str,
    /// The daemon's process.
    pub pid: u32,
    /// The verb.
    pub mode: &'static str,
    /// Who decides which pages move.
    pub manager: ManagerName,
    /// The rule; `None` if the kernel decides.
    pub rule: Option<RuleName>,
    /// The machine.
    pub topology: Topology,
    /// The configured scopes.
    #[serde(skip)]
    scopes: Vec<Scope>,
}

/// A scope's standing or brake, with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named<T> {
    /// The scope's name, or its cgroup if it has none.
    pub name: String,
    /// The standing or the brake.
    #[serde(flatten)]
    pub standing: T,
}

impl Fixed {
    /// The state when a manager starts; `mode` is the verb.
    pub fn new(mode: &'static str, config: &Config, topology: &Topology) -> Fixed {
        Fixed {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            mode,
            manager: config.manager.name,
            rule: (!config.manager.name.is_of_kernel()).then_some(config.rule.name),
            topology: topology.clone(),
            scopes: config.scope.clone(),
        }
    }

    /// The scope of this name; by its cgroup only if it has no name. The default scope, which there
    /// is where none includes anybody, is called `default`.
    pub fn scope_of(&self, name: &str) -> Option<ScopeId> {
        let named = |(place, scope): (usize, &Scope)| scope.told(place) == name;
        let place = self.scopes.iter().enumerate().position(named);
        place.map(ScopeId::of_place).or_else(|| (name == "default").then_some(ScopeId::DEFAULT))
    }

    /// The names of all scopes.
    pub fn scope_names(&self) -> String {
        let names: Vec<String> = self.scopes.iter().enumerate().map(|(place, s)| s.told(place)).collect();
        names.join(", ")
    }

    /// Adds the name of `scope` to `standing`.
    pub fn name<T>(&self, scope: ScopeId, standing: T) -> Named<T> {
        let Some(place) = usize::from(scope.0).checked_sub(1) else {
            return Named { name: "default".to_owned(), standing };
        };
        let name = self.scopes.get(place).map_or_else(|| format!("[{place}]"), |scope| scope.told(place));
        Named { name, standing }
    }
}
