//! What a sweep consists of: configurations, seeds, and the columns of its results.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::manager::ManagerName;
use crate::mode::ModeName;
use crate::scenario::Setup;
use crate::spec::{SpecError, require};

/// A sweep without its scenarios: enough to list its runs, and to merge their results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The parameters; each is a column, named as its key.
    pub parameters: Vec<Column>,
    /// The figures that a run has; rows of a scenario without such a node or process have no value.
    pub figures: Vec<Column>,
    /// The configurations.
    pub configurations: Vec<Configuration>,
    /// The first seed.
    pub seed: u64,
    /// Seeds of each configuration.
    pub seeds: u64,
}

/// A configuration, to be run with each seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The hash of everything that the result depends on, except the seed and the program.
    pub hash: String,
    /// The scenario's name in the grid.
    pub scenario: String,
    /// The manager.
    pub manager: String,
    /// The mode.
    pub mode: ModeName,
    /// The parameters' values.
    pub values: Vec<Value>,
}

/// A column of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The kind of its values.
    pub kind: Kind,
}

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// True or false.
    Flag,
    /// A whole number.
    Whole,
    /// A number.
    Real,
    /// Text.
    Text,
}

/// A value in a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Real(f64),
    /// Text.
    Text(Box<str>),
}

impl Value {
    /// The kind of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Flag(_) => Kind::Flag,
            Value::Whole(_) => Kind::Whole,
            Value::Real(_) => Kind::Real,
            Value::Text(_) => Kind::Text,
        }
    }
}

/// The columns that identify the run of a row; parameters and figures follow.
pub const KEYS: [&str; 5] = ["config_hash", "scenario", "manager", "mode", "seed"];

impl Plan {
    /// Runs in all.
    pub fn runs(&self) -> u64 {
        self.configurations.len() as u64 * self.seeds
    }

    /// The configuration's index and the seed of a run.
    pub fn run(&self, number: u64) -> (usize, u64) {
        ((number / self.seeds) as usize, self.seed + number % self.seeds)
    }

    /// The configurations' indices by their hashes.
    pub fn by_hash(&self) -> HashMap<&str, usize> {
        self.configurations.iter().enumerate().map(|(i, c)| (c.hash.as_str(), i)).collect()
    }

    /// The number of the run of a configuration with a seed, if there is one.
    pub fn number(&self, configuration: usize, seed: u64) -> Option<u64> {
        let nth = seed.checked_sub(self.seed).filter(|nth| *nth < self.seeds)?;
        Some(configuration as u64 * self.seeds + nth)
    }

    /// A run in words; parameters with a single value are left out.
    pub fn words(&self, number: u64) -> String {
        let (configuration, seed) = self.run(number);
        let of = &self.configurations[configuration];
        let mut words = format!("{} under {}", of.scenario, of.manager);
        for (i, (column, value)) in self.parameters.iter().zip(&of.values).enumerate() {
            if self.configurations.iter().all(|c| c.values[i] == *value) {
                continue;
            }
            let value = match value {
                Value::Flag(v) => v.to_string(),
                Value::Whole(v) => v.to_string(),
                Value::Real(v) => v.to_string(),
                Value::Text(v) => v.to_string(),
            };
            words += &format!(", {} = {value}", column.name);
        }
        format!("{words}, seed {seed}")
    }

    /// Checks that no column and no configuration is duplicated.
    pub(super) fn check(&self, name: &str) -> Result<(), SpecError> {
        let columns = self.parameters.iter().chain(&self.figures).map(|c| c.name.as_str());
        let mut seen = std::collections::HashSet::new();
        for column in KEYS.into_iter().chain(columns) {
            require(
                seen.insert(column),
                &format!("{name}: parameters"),
                &format!("the results would have two columns named {column}"),
                "managers and seeds have keys of their own; give processes and parameters other names",
            )?;
        }
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for (i, configuration) in self.configurations.iter().enumerate() {
            let run = i as u64 * self.seeds;
            if let Some(first) = seen.insert(&configuration.hash, run) {
                let message = format!("{} is the same as {}", self.words(run), self.words(first));
                return Err(SpecError::new(name, message, "remove one"));
            }
        }
        Ok(())
    }
}

/// A shard: the K-th of N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    number: u64,
    of: u64,
}

/// Maximum number of shards; more would make nearly empty parts.
const SHARDS_MAX: u64 = 100_000;

impl Shard {
    /// The only one.
    pub const ALL: Shard = Shard { number: 1, of: 1 };

    /// The numbers of its runs.
    pub fn runs(self, plan: &Plan) -> impl Iterator<Item = u64> + use<> {
        (self.number - 1..plan.runs()).step_by(self.of as usize)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((number, of)) if (1..=SHARDS_MAX).contains(&of) && (1..=of).contains(&number) => {
                Ok(Shard { number, of })
            }
            _ => Err(format!("write it K/N, with K from 1 to N and N up to {SHARDS_MAX}, as in 3/64")),
        }
    }
}

/// The hash of everything that a run depends on, except the seed and the program. Descriptive text
/// is left out.
pub(super) fn config_hash(setup: &Setup, manager: ManagerName, mode: ModeName) -> String {
    let mut scenario = setup.scenario.clone();
    let mut machine = setup.machine.spec.clone();
    scenario.manager = manager.text();
    scenario.summary.clear();
    scenario.origin.clear();
    scenario.fit = None;
    machine.origin.clear();
    let scenario = toml::to_string(&scenario).expect("what was read can be written");
    let machine = toml::to_string(&machine).expect("what was read can be written");
    hash(format!("{mode:?}\n{scenario}\n{machine}").as_bytes())
}

/// FNV-1a with 128 bits (G. Fowler, L. Noll, P. Vo), in hexadecimal: among a million, two are equal
/// with a probability of 10^-27.
pub fn hash(bytes: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}
