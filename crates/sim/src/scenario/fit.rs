//! Which parameters of a scenario are fitted to which published figures; [`crate::fit`] does it.

use serde::{Deserialize, Serialize};

use crate::manager::ManagerName;
use crate::spec::{SpecError, require};

/// A parameter that may be fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its dotted key, as for `--set`.
    pub key: String,
    /// Where the search begins.
    pub start: f64,
    /// First step.
    pub step: f64,
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
    /// Whole numbers only.
    #[serde(default)]
    pub whole: bool,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its name: see `fit::figure`.
    pub figure: String,
    /// Its value.
    pub value: f64,
    /// The unit of differences.
    pub tolerance: f64,
}

/// The specification of a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitSpec {
    /// The manager to whose column the figures belong.
    pub manager: String,
    /// Number of seeds for each point.
    pub seeds: u64,
    /// The parameters.
    pub parameter: Vec<Parameter>,
    /// The figures.
    pub target: Vec<Target>,
}

impl FitSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        ManagerName::parse(&self.manager)?;
        require((1..=1000).contains(&self.seeds), "fit.seeds", "is out of range", "give 1 to 1000")?;
        for p in &self.parameter {
            let sound = p.low < p.high && (p.low..=p.high).contains(&p.start) && p.step > 0.0;
            require(
                sound,
                &format!("fit.parameter {}", p.key),
                "has no range",
                "give low <= start <= high, step > 0",
            )?;
        }
        for t in &self.target {
            let place = format!("fit.target {}", t.figure);
            require(t.tolerance > 0.0, &place, "has no tolerance", "give one above 0")?;
        }
        Ok(())
    }
}
