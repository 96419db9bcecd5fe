//! Simulations of one scenario under one manager.

use thermocline_sim::effect;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, mode_for};
use thermocline_sim::scenario::Setup;
use thermocline_sim::spec::SpecError;

use crate::load::{keys, overridden, setup};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Asked {
    /// A preset's name, a TOML file, or a recording's folder.
    pub scenario: String,
    /// The machine in the place of the scenario's.
    pub machine: Option<String>,
    /// The manager in the place of the scenario's.
    pub manager: Option<String>,
    /// Values of the scenario: `key=value`.
    pub changes: Vec<String>,
    /// Runs, each with a seed.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// The mode; if none is given, that which suits the size.
    pub mode: Option<ModeName>,
}

impl Asked {
    /// The scenario, and the runs that are asked for.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn ready(&self) -> Result<(Setup, Vec<Arm>), SpecError> {
        let setup = setup(&self.scenario, self.machine.as_deref(), &self.changes)?;
        let manager = self.manager.as_deref().map_or(Ok(setup.manager), ManagerName::parse)?;
        if self.manager.is_some() {
            overridden(&self.changes, "manager", "--manager")?;
        }
        effect::check(&setup, &[manager], &keys(&self.changes)).map_err(|e| match self.manager {
            Some(_) => e,
            None => SpecError { message: format!("{}, the scenario's default manager", e.message), ..e },
        })?;
        let mode = self.mode.unwrap_or_else(|| mode_for(&setup));
        let seeds = (self.seed..).take(usize::try_from(self.seeds).unwrap_or(usize::MAX));
        let arms = seeds.map(|seed| Arm { manager, mode, seed }).collect();
        Ok((setup, arms))
    }
}

/// The manager that has this rule of ours.
pub fn of_rule(rule: &str) -> String {
    format!("thermocline:{rule}")
}
