//! One configuration tree for everything; each key has a unit, a default, a range and a source.

mod brake;
mod chmu_source;
mod choice;
mod damon_source;
mod demotion;
mod difference;
mod engine;
mod hwsample;
mod json_schema;
mod kernel;
mod manager;
mod names;
mod reverse;
pub mod rule;
pub mod schema;
mod scope;
mod source;
mod together;
mod tree;

pub use brake::Brake;
pub use chmu_source::{ChmuSource, HotListMode};
pub use choice::RuleChoice;
pub use damon_source::{DamonAddresses, DamonSource};
pub use demotion::{Demotion, DemotionMode, DemotionWay, Unreachable};
pub use difference::{Difference, at, differences, labels};
pub use engine::{Admission, Engine, Journal, MemoryPolicies, Queue, RecordLayout, SharedPages};
pub use hwsample::{Enabled, HwSample, PebsSamples, SamplerName};
pub use json_schema::json_schema;
pub use kernel::{Daemon, HintFault, Kernel, WhenChanged};
pub use manager::{Damon, Manager, ManagerName, Numab2};
pub use reverse::Reverse;
pub use rule::{Rule, RuleName};
pub use scope::{Scope, TierMap, TierMapError};
pub use source::{Source, SourceKeys, Sources, Taken};
pub use together::HINTFAULT_CGROUPS_MAX;
pub use tree::{Config, ConfigError};
