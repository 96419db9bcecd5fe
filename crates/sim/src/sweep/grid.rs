//! The content of a grid's TOML.

use serde::Deserialize;
use toml::Value as Toml;

use super::plan::{Column, Kind, Value};
use super::{RUNS_MAX, SpecError};
use crate::manager::ManagerName;
use crate::mode::ModeName;
use crate::spec::{parse, require};

/// A grid.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Presets' names, or paths of TOML files.
    pub scenarios: Vec<String>,
    /// Managers by name; if empty, each scenario's own.
    #[serde(default)]
    managers: Vec<String>,
    /// Seeds of each configuration.
    pub(super) seeds: u64,
    /// The first of them.
    #[serde(default = "one")]
    pub(super) seed: u64,
    /// The mode; by default chosen by each configuration's size.
    #[serde(default)]
    mode: GridMode,
    /// Lists of values by dotted key, as for `--set`.
    #[serde(default)]
    parameters: toml::Table,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GridMode {
    #[default]
    Auto,
    Exact,
    Event,
}

fn one() -> u64 {
    1
}

impl Grid {
    /// Reads a grid; errors call it `name`.
    ///
    /// # Errors
    /// An unknown key, a list that is empty, a duplicate name, seeds out of range.
    pub fn parse(name: &str, text: &str) -> Result<Grid, SpecError> {
        let grid: Grid = parse(name, text)?;
        let at = |key: &str| format!("{name}: {key}");
        require(
            !grid.scenarios.is_empty(),
            &at("scenarios"),
            "there is none",
            "name one; `thermocline sim --list` names the presets",
        )?;
        unique(&at("scenarios"), &grid.scenarios)?;
        require(grid.seeds > 0, &at("seeds"), "is zero, so that nothing is run", "give 1 or more")?;
        // A column of the results stores it as a signed number.
        let last = grid.seed.checked_add(grid.seeds);
        let fits = last.is_some_and(|last| i64::try_from(last).is_ok());
        require(fits, &at("seed"), "is too large", "give a smaller one")?;
        Ok(grid)
    }

    pub(super) fn managers(&self, name: &str) -> Result<Vec<ManagerName>, SpecError> {
        let place = format!("{name}: managers");
        let managers: Vec<ManagerName> = self
            .managers
            .iter()
            .map(|m| ManagerName::parse(m).map_err(|e| SpecError { place: place.clone(), ..e }))
            .collect::<Result<_, _>>()?;
        unique(&place, &managers.iter().map(|m| m.text()).collect::<Vec<_>>())?;
        Ok(managers)
    }

    /// The values of the parameter `machine`: names and files.
    pub fn machines(&self) -> impl Iterator<Item = &str> {
        let values = self.parameters.get("machine").and_then(Toml::as_array);
        values.into_iter().flatten().filter_map(Toml::as_str)
    }

    pub(super) fn mode(&self, suits: ModeName) -> ModeName {
        match self.mode {
            GridMode::Auto => suits,
            GridMode::Exact => ModeName::Exact,
            GridMode::Event => ModeName::Event,
        }
    }

    pub(super) fn check_size(&self, name: &str, configurations: u64) -> Result<(), SpecError> {
        let runs = configurations.saturating_mul(self.seeds);
        let message = format!(
            "{configurations} configurations with {} seeds each are more than {RUNS_MAX} runs",
            self.seeds
        );
        require(runs <= RUNS_MAX, name, &message, "shorten a list, or split the grid in two")
    }

    pub(super) fn choices(&self, name: &str) -> Result<Choices, SpecError> {
        let mut parameters = Vec::new();
        flatten(&format!("{name}: parameters"), "", &self.parameters, &mut parameters)?;
        let lengths = parameters.iter().map(|p| p.values.len() as u64);
        let combinations = lengths.fold(1, u64::saturating_mul);
        Ok(Choices { parameters, combinations })
    }
}

/// The parameters with their values, by key.
#[derive(Debug)]
pub(super) struct Choices {
    parameters: Vec<Parameter>,
    /// The product of their numbers of values.
    pub combinations: u64,
}

#[derive(Debug)]
struct Parameter {
    key: String,
    kind: Kind,
    values: Vec<Toml>,
}

impl Choices {
    pub fn columns(&self) -> Vec<Column> {
        self.parameters.iter().map(|p| Column { name: p.key.clone(), kind: p.kind }).collect()
    }

    /// A combination's values; the last parameter changes first.
    fn combination(&self, mut number: u64) -> Vec<(&Parameter, &Toml)> {
        let mut picked = Vec::with_capacity(self.parameters.len());
        for parameter in self.parameters.iter().rev() {
            let len = parameter.values.len() as u64;
            picked.push((parameter, &parameter.values[(number % len) as usize]));
            number /= len;
        }
        picked.reverse();
        picked
    }

    /// As changes of a scenario.
    pub fn changes(&self, number: u64) -> Vec<String> {
        self.combination(number).into_iter().map(|(p, value)| format!("{}={value}", p.key)).collect()
    }

    /// As values of columns.
    pub fn values(&self, number: u64) -> Vec<Value> {
        self.combination(number).into_iter().map(|(p, value)| of_kind(value, p.kind)).collect()
    }
}

/// Tables are parts of a key, lists are values.
fn flatten(
    place: &str,
    prefix: &str,
    table: &toml::Table,
    into: &mut Vec<Parameter>,
) -> Result<(), SpecError> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        let at = format!("{place}.{key}");
        match value {
            Toml::Table(inner) => flatten(place, &format!("{key}."), inner, into)?,
            Toml::Array(values) => {
                require(!values.is_empty(), &at, "has no values", "give at least one, or remove the key")?;
                unique(&at, &values.iter().map(|v| v.to_string()).collect::<Vec<_>>())?;
                into.push(Parameter { key, kind: kind_of(values), values: values.clone() });
            }
            _ => {
                return Err(SpecError::new(
                    at,
                    "is no list of values",
                    format!("write it as {name} = [{value}]"),
                ));
            }
        }
    }
    Ok(())
}

/// The kind of column that holds all of the values.
fn kind_of(values: &[Toml]) -> Kind {
    let all = |of: fn(&Toml) -> bool| values.iter().all(of);
    if all(Toml::is_bool) {
        Kind::Flag
    } else if all(Toml::is_integer) {
        Kind::Whole
    } else if all(|v| v.is_integer() || v.is_float()) {
        Kind::Real
    } else {
        Kind::Text
    }
}

fn of_kind(value: &Toml, kind: Kind) -> Value {
    match (kind, value) {
        (Kind::Flag, Toml::Boolean(flag)) => Value::Flag(*flag),
        (Kind::Whole, Toml::Integer(whole)) => Value::Whole(*whole),
        (Kind::Real, Toml::Integer(whole)) => Value::Real(*whole as f64),
        (Kind::Real, Toml::Float(real)) => Value::Real(*real),
        (_, Toml::String(text)) => Value::Text(text.as_str().into()),
        (_, other) => Value::Text(other.to_string().into()),
    }
}

fn unique(place: &str, names: &[String]) -> Result<(), SpecError> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SpecError::new(place, format!("has {} twice", pair[0]), "remove one")),
        None => Ok(()),
    }
}
