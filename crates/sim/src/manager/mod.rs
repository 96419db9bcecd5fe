//! Managers: the components that decide which pages move.
//!
//! A manager sets the kernel's settings, handles hint faults and samples, and runs when it is due.
//! Kernel models that only it needs come from [`Manager::models`]. To add one: a file here, a
//! variant of [`ManagerName`], an arm of [`ManagerName::build`].

mod chmu;
mod damon;
mod ibs;
mod kernel;
mod pghot;
mod speculative;
mod thermocline;

pub use chmu::Chmus;
pub use damon::Damons;
pub use ibs::Ibs;
pub use kernel::{Balancing, HintFaulting, Unmanaged};
pub use pghot::Pghots;
pub use speculative::Speculative;
pub use thermocline::{Observe, Step, Steps, Thermocline};

use serde::Serialize;
use thermocline_core::admission::preferred::top_node;
use thermocline_core::config::{Config, RuleChoice};
use thermocline_core::published::pghot::Mode;
use thermocline_core::units::Nanos;

use crate::kernel::Model;
use crate::kernel::damon::settings::{Recheck, Settings};
use crate::kernel::hint_fault::{HintFaults, Metric};
use crate::machine::Machine;
use crate::settings::KernelSettings;
use crate::spec::SpecError;
use crate::system::{Fault, NEVER, SampledAccess, System};

/// How a manager's hardware samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Accesses of a thread from one sample to the next; cache hits and misses alike.
    pub accesses: f64,
}

/// A manager's additional results at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Notes {
    /// Threshold of the fault path: time in ms since the start of the run, and value in ms from
    /// that time on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threshold_course: Vec<(u64, u64)>,
    /// Some latencies: time of the fault since the start of the run, latency, threshold, all in ms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<(u64, u64, u64)>,
    /// Figures by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<(String, u64)>,
}

/// See the module's description.
pub trait Manager: std::fmt::Debug {
    /// Its name, as in [`ManagerName`].
    fn name(&self) -> String;

    /// Takes and changes the kernel's settings, as it does before it starts.
    fn configure(&mut self, kernel: &mut KernelSettings) {
        let _ = kernel;
    }

    /// Whether it can work with these settings on this machine.
    ///
    /// # Errors
    /// The setting that it cannot work with.
    fn check(&self, kernel: &KernelSettings, machine: &Machine) -> Result<(), SpecError> {
        let _ = (kernel, machine);
        Ok(())
    }

    /// Whether the kernel scans.
    fn scans(&self) -> bool {
        false
    }

    /// Whether the kernel is in tiering mode, in which kswapd leaves more pages free.
    fn tiering(&self) -> bool {
        self.scans()
    }

    /// Kernel models that run for it, in addition to the scanner and kswapd.
    fn models(&mut self, system: &System) -> Vec<Box<dyn Model>> {
        let _ = system;
        Vec::new()
    }

    /// Handles a hint fault whose mark has been taken. Returns its cost for the thread beyond the
    /// fault itself, in ns.
    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        let _ = fault;
        system.counters.not_promotable += 1;
        0.0
    }

    /// Whether a fault may clear marks of other pages.
    fn takes_marks_ahead(&self) -> bool {
        false
    }

    /// How a thread is sampled, if it is.
    fn sampling(&self, thread: u32) -> Option<Sampling> {
        let _ = thread;
        None
    }

    /// Handles a sampled access. Returns its cost for the thread in ns.
    fn on_sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        let _ = (system, sample);
        0.0
    }

    /// When it wants to run; called after every fault.
    fn due(&self) -> Nanos {
        NEVER
    }

    /// Runs at `system.now`.
    fn run(&mut self, system: &mut System) {
        let _ = system;
    }

    /// The results at the end; also checks the manager's own sums.
    ///
    /// # Errors
    /// A sum that does not balance.
    fn finish(&mut self, system: &System) -> Result<Notes, String> {
        let _ = system;
        Ok(Notes::default())
    }
}

/// The managers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerName {
    /// No promotion: pages stay where they were allocated, except for demotion by kswapd.
    None,
    /// The kernel's `numa_balancing` = 2.
    Numab2,
    /// The same with S0's two patches.
    FaultCount,
    /// The same with S0's first patch alone, or the second alone: to show the effect of each.
    FaultCountOnly,
    /// Mainline's latency with S0's second patch.
    Restamp,
    /// The kernel's `numa_balancing` = 1: pages follow their threads, over all nodes.
    Numab1,
    /// S2: pages that follow a promoted page are handled with it.
    Speculative,
    /// S1: samples instead of scans.
    Ibs,
    /// Hot lists of the devices' own counters.
    Chmu,
    /// S3: DAMON promotes and demotes, with the second check of reclaim.
    Damon,
    /// The same with the young filter, which replaced that check.
    DamonYoung,
    /// DAMON with the settings of the kernel's own sample for tiers.
    Mtier,
    /// S4 with records of a byte.
    Pghot,
    /// S4 with records of four bytes.
    PghotPrecise,
    /// Thermocline with a rule.
    Thermocline(RuleChoice),
}

impl ManagerName {
    /// Every manager.
    pub fn all() -> Vec<ManagerName> {
        use ManagerName::*;
        let mut all = vec![
            None,
            Numab2,
            FaultCount,
            FaultCountOnly,
            Restamp,
            Numab1,
            Speculative,
            Ibs,
            Chmu,
            Damon,
            DamonYoung,
            Mtier,
            Pghot,
            PghotPrecise,
        ];
        all.extend(RuleChoice::all().map(Thermocline));
        all
    }

    /// The name on the command line.
    pub fn text(self) -> String {
        match self {
            ManagerName::None => "none".to_owned(),
            ManagerName::Numab2 => "numab2".to_owned(),
            ManagerName::FaultCount => "fault-count".to_owned(),
            ManagerName::FaultCountOnly => "fault-count-only".to_owned(),
            ManagerName::Restamp => "restamp".to_owned(),
            ManagerName::Numab1 => "numab1".to_owned(),
            ManagerName::Speculative => "speculative".to_owned(),
            ManagerName::Ibs => "ibs".to_owned(),
            ManagerName::Chmu => "chmu".to_owned(),
            ManagerName::Damon => "damon".to_owned(),
            ManagerName::DamonYoung => "damon-young".to_owned(),
            ManagerName::Mtier => "damon-mtier".to_owned(),
            ManagerName::Pghot => "pghot".to_owned(),
            ManagerName::PghotPrecise => "pghot-precise".to_owned(),
            ManagerName::Thermocline(rule) => format!("thermocline:{}", rule.text()),
        }
    }

    /// The manager of that name; `thermocline` alone is its default rule.
    ///
    /// # Errors
    /// There is none with this name.
    pub fn parse(text: &str) -> Result<ManagerName, SpecError> {
        if text == "thermocline" {
            return Ok(ManagerName::Thermocline(RuleChoice::Rule(Config::default().rule.name)));
        }
        ManagerName::all().into_iter().find(|m| m.text() == text).ok_or_else(|| {
            let names: Vec<String> = ManagerName::all().into_iter().map(ManagerName::text).collect();
            let remedy = format!("use one of {}", names.join(", "));
            SpecError::new("manager", format!("there is no manager \"{text}\""), remedy)
        })
    }

    /// Creates the manager.
    ///
    /// # Errors
    /// The configuration does not suit the machine, or asks for something that is not simulated.
    pub fn build(self, machine: &Machine, config: &Config) -> Result<Box<dyn Manager>, SpecError> {
        let faults = |metric| HintFaults::new(metric, machine.spec.nr_cpus);
        let damon = |name, recheck| -> Result<Box<dyn Manager>, SpecError> {
            let keys = &config.manager.damon;
            let key = "config.manager.damon.target_nid";
            let to = top_node(&machine.topology, key, keys.target_nid).map_err(|error| {
                let message = format!("is {}, which is no node of the top tier", error.nid);
                SpecError::new(key, message, format!("give one of {}, or leave it unset", error.top))
            })?;
            let to = to.and_then(|node| machine.index(node.0));
            Ok(Box::new(Damons::new(name, machine, &Settings::new(keys, recheck)?, to)))
        };
        Ok(match self {
            ManagerName::None => Box::new(Unmanaged),
            ManagerName::Numab2 => Box::new(HintFaulting::new("numab2", faults(Metric::Time), false)),
            ManagerName::FaultCount => {
                Box::new(HintFaulting::new("fault-count", faults(Metric::Faults), true))
            }
            ManagerName::FaultCountOnly => {
                Box::new(HintFaulting::new("fault-count-only", faults(Metric::Faults), false))
            }
            ManagerName::Restamp => Box::new(HintFaulting::new("restamp", faults(Metric::Time), true)),
            ManagerName::Numab1 => Box::new(Balancing::default()),
            ManagerName::Speculative => Box::new(Speculative::new(faults(Metric::Time))),
            ManagerName::Chmu => Box::new(Chmus::new()),
            ManagerName::Ibs => Box::new(Ibs::new(faults(Metric::Time))),
            ManagerName::Damon => damon("damon", Recheck::References)?,
            ManagerName::DamonYoung => damon("damon-young", Recheck::Young)?,
            ManagerName::Mtier => Box::new(Damons::new("damon-mtier", machine, &Settings::mtier(), None)),
            ManagerName::Pghot => Box::new(Pghots::new("pghot", Mode::Default, machine)),
            ManagerName::PghotPrecise => Box::new(Pghots::new("pghot-precise", Mode::Precise, machine)),
            ManagerName::Thermocline(choice) => Box::new(Thermocline::new(choice, config, machine)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;

    #[test]
    fn every_name_is_parsed_and_built() {
        let machine = Machine::new(&preset("cxl-2tier").unwrap()).unwrap();
        for name in ManagerName::all() {
            assert_eq!(ManagerName::parse(&name.text()), Ok(name));
            assert_eq!(name.build(&machine, &Config::default()).unwrap().name(), name.text());
        }
        assert!(ManagerName::parse("thermocline").is_ok());
        let error = ManagerName::parse("numab3").unwrap_err().to_string();
        assert!(error.contains("numab2") && error.contains("thermocline:adaptive"), "{error}");
    }
}
