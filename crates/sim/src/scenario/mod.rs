//! Scenarios: a machine, its programs, the kernel's settings, and the origin of each parameter.
//!
//! Presets are TOML files in `presets/`, embedded. [`Setup`] is a scenario with its machine and
//! Thermocline's configuration, after the changes of `--set`: the input of [`crate::run`].

mod fit;
mod set;

pub use fit::{FitSpec, Parameter, Target};

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thermocline_core::config::Config;

use crate::machine::{self, Machine, MachineSpec};
use crate::manager::ManagerName;
use crate::memory::Page;
use crate::settings::KernelSettings;
use crate::spec::{SpecError, parse, require};
use crate::units::Span;
use crate::workload::spec::{PAGES_MAX, PROCESSES_MAX, THREADS_MAX, cells_max};
use crate::workload::{PatternSpec, ProcessSpec, Recorded, RecordedHeat};

/// The content of a scenario's TOML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its description, in a sentence.
    pub summary: String,
    /// The machine: the name of a preset, or a file, beside the scenario's own: a machine's TOML or
    /// the doctor's JSON.
    pub machine: String,
    /// The manager, if the command line names none.
    #[serde(default = "numab2")]
    pub manager: String,
    /// Simulated time after which the run ends at the latest.
    #[serde(default = "half_an_hour")]
    pub limit: Span,
    /// Pages promoted and demoted are reported at this interval, from the start of the first
    /// process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course_every: Option<Span>,
    /// The kernel's settings.
    #[serde(default)]
    pub kernel: KernelSettings,
    /// Thermocline's configuration.
    #[serde(default)]
    pub config: Config,
    /// The programs.
    pub process: Vec<ProcessSpec>,
    /// The specification of a fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitSpec>,
    /// Where each parameter comes from: `published`, `kernel`, `fitted` or `assumed`, and a remark;
    /// by dotted key.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

fn numab2() -> String {
    "numab2".to_owned()
}

fn half_an_hour() -> Span {
    Span(thermocline_core::units::Nanos::from_s(1800))
}

/// The words with which an origin begins.
pub const ORIGINS: [&str; 4] = ["published", "kernel", "fitted", "assumed"];

/// The presets: name and TOML.
pub const PRESETS: [(&str, &str); 28] = [
    ("chunks-192g", include_str!("presets/chunks-192g.toml")),
    ("chunks-small", include_str!("presets/chunks-small.toml")),
    ("hotcold", include_str!("presets/hotcold.toml")),
    ("redis", include_str!("presets/redis.toml")),
    ("lab-redis", include_str!("presets/lab-redis.toml")),
    ("lab-hotcold", include_str!("presets/lab-hotcold.toml")),
    ("redis-ycsb-zipfian", include_str!("presets/redis-ycsb-zipfian.toml")),
    ("redis-ycsb-latest", include_str!("presets/redis-ycsb-latest.toml")),
    ("redis-memtier", include_str!("presets/redis-memtier.toml")),
    ("promote-8g", include_str!("presets/promote-8g.toml")),
    ("remote-8g", include_str!("presets/remote-8g.toml")),
    ("guest-ram", include_str!("presets/guest-ram.toml")),
    ("overcommit-160g", include_str!("presets/overcommit-160g.toml")),
    ("mysql-oltp", include_str!("presets/mysql-oltp.toml")),
    ("nas-mg", include_str!("presets/nas-mg.toml")),
    ("nas-cg", include_str!("presets/nas-cg.toml")),
    ("nas-bt", include_str!("presets/nas-bt.toml")),
    ("nas-ft", include_str!("presets/nas-ft.toml")),
    ("btree", include_str!("presets/btree.toml")),
    ("hashjoin", include_str!("presets/hashjoin.toml")),
    ("graph500", include_str!("presets/graph500.toml")),
    ("uniform-12g", include_str!("presets/uniform-12g.toml")),
    ("slow-beside-fast", include_str!("presets/slow-beside-fast.toml")),
    ("drifting-10g", include_str!("presets/drifting-10g.toml")),
    ("zipf-8g", include_str!("presets/zipf-8g.toml")),
    ("stream-beside-store", include_str!("presets/stream-beside-store.toml")),
    ("alternating-8g", include_str!("presets/alternating-8g.toml")),
    ("hotspot-05g", include_str!("presets/hotspot-05g.toml")),
];

/// A scenario that is ready to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scenario.
    pub scenario: Scenario,
    /// The machine.
    pub machine: Machine,
    /// The manager that the scenario names.
    pub manager: ManagerName,
}

impl Setup {
    /// The specification of each process, in order.
    pub(crate) fn each_process(&self) -> impl Iterator<Item = &ProcessSpec> {
        self.scenario.process.iter().flat_map(|p| std::iter::repeat_n(p, p.count as usize))
    }

    /// The preset of that name with changes: each `key=value`, a dotted key of the scenario (or
    /// `machine.` and a key of the machine) and a TOML value.
    ///
    /// # Errors
    /// There is no such preset, a change is invalid, or the result cannot be simulated.
    pub fn preset(name: &str, changes: &[String]) -> Result<Setup, SpecError> {
        let text = Setup::text(name)?;
        Setup::parse(&format!("scenario {name}"), text, changes)
    }

    /// The TOML of the preset of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn text(name: &str) -> Result<&'static str, SpecError> {
        PRESETS.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).ok_or_else(|| {
            let message = format!("there is no scenario \"{name}\"");
            let remedy =
                "`thermocline sim --list` names those that there are, or give a file ending in .toml";
            SpecError::new("scenario", message, remedy)
        })
    }

    /// A scenario from its text; errors call it `name`.
    ///
    /// # Errors
    /// As [`Setup::preset`].
    pub fn parse(name: &str, text: &str, changes: &[String]) -> Result<Setup, SpecError> {
        Setup::parse_on(name, text, &machine::preset, changes)
    }

    /// A scenario from its text, on what `machines` knows by the name of its machine.
    ///
    /// # Errors
    /// As [`Setup::preset`].
    pub fn parse_on(
        name: &str,
        text: &str,
        machines: &dyn Fn(&str) -> Result<MachineSpec, SpecError>,
        changes: &[String],
    ) -> Result<Setup, SpecError> {
        let none = |pattern: &Recorded| {
            let message = format!("the recording {} cannot be read here", pattern.trace);
            Err(SpecError::new("pattern.trace", message, "simulate the scenario with `sim` or `compare`"))
        };
        Setup::parse_with(name, text, machines, &none, changes)
    }

    /// The same, with the heat of recordings that patterns name.
    ///
    /// # Errors
    /// As [`Setup::preset`].
    pub fn parse_with(
        name: &str,
        text: &str,
        machines: &dyn Fn(&str) -> Result<MachineSpec, SpecError>,
        heat: &dyn Fn(&Recorded) -> Result<Arc<RecordedHeat>, SpecError>,
        changes: &[String],
    ) -> Result<Setup, SpecError> {
        let of_machine = |change: &&String| change.starts_with("machine.");
        let (machine_changes, changes): (Vec<&String>, Vec<&String>) = changes.iter().partition(of_machine);
        // Parsed without changes first, so that errors have line numbers.
        let scenario: Scenario = parse(name, text)?;
        let mut scenario = set::apply(scenario, &changes, "")?;
        for process in &mut scenario.process {
            if let PatternSpec::Recorded(pattern) = &mut process.pattern {
                pattern.heat = Some(heat(pattern)?);
            }
        }
        let spec = machines(&scenario.machine)?;
        let spec = set::apply(spec, &machine_changes, "machine.")?;
        Setup::new(scenario, &spec)
    }

    /// A scenario on a machine.
    ///
    /// # Errors
    /// It cannot be simulated.
    pub fn new(scenario: Scenario, machine: &MachineSpec) -> Result<Setup, SpecError> {
        let machine = Machine::new(machine)?;
        let manager = ManagerName::parse(&scenario.manager)?;
        scenario.kernel.check()?;
        scenario.config.check().map_err(|e| SpecError::new("config", e.to_string(), "correct the value"))?;
        scenario.fit.as_ref().map_or(Ok(()), FitSpec::check)?;
        require(!scenario.process.is_empty(), "process", "there is none", "add a [[process]]")?;
        require(scenario.limit.0.0 > 0, "limit", "is zero", "give a span, as in \"10min\"")?;
        // Marks store their time in 32 bits.
        let limit_max = 1u64 << (32 + crate::memory::MARK_SHIFT);
        let end = scenario.limit.0.plus(crate::system::START);
        require(end.0 < limit_max, "limit", "is above 77 hours", "simulate less")?;
        require(
            scenario.course_every.is_none_or(|every| every.0.0 >= scenario.limit.0.0 / 10_000),
            "course_every",
            "is below a ten-thousandth of the limit",
            "give a longer span",
        )?;
        let cells_max = cells_max(machine.nodes.len());
        let (mut pages, mut threads, mut processes, mut cells) = (0u64, 0u64, 0u64, 0u64);
        for (i, process) in scenario.process.iter().enumerate() {
            let place = format!("process[{i}]");
            process.check(&machine, &place)?;
            let all = process.footprint.pages().saturating_mul(u64::from(process.count));
            pages = pages.saturating_add(all);
            threads += u64::from(process.threads) * u64::from(process.count);
            processes += u64::from(process.count);
            // The code below allocates memory for each of them.
            require(threads <= THREADS_MAX, "process", "more than 4096 threads", "simulate fewer")?;
            require(processes <= PROCESSES_MAX, "process", "more than 1024 processes", "simulate fewer")?;
            let pattern = format!("{place}.pattern");
            let built =
                process.pattern.build(process.footprint.pages() as Page, process.threads, &pattern)?;
            cells = cells.saturating_add(u64::from(built.cells().len()) * u64::from(process.count));
            require(
                cells <= cells_max,
                &pattern,
                &format!("makes more than {cells_max} cells of memory"),
                "simulate fewer",
            )?;
        }
        let capacity: u64 = machine.nodes.iter().map(|n| n.pages).sum();
        require(
            pages <= capacity.min(PAGES_MAX),
            "process",
            &format!("the footprints are {} MiB, the machine has {} MiB", pages / 256, capacity / 256),
            "make them smaller, or the machine larger",
        )?;
        Ok(Setup { scenario, machine, manager })
    }

    /// Pages of all processes.
    pub fn pages(&self) -> u64 {
        self.scenario.process.iter().map(|p| p.footprint.pages() * u64::from(p.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(changes: &[&str]) -> String {
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        Setup::preset("chunks-small", &changes).unwrap_err().to_string()
    }

    #[test]
    fn every_preset_is_sound_and_says_where_its_parameters_come_from() {
        for (name, _) in PRESETS {
            let setup = Setup::preset(name, &[]).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(setup.scenario.name, name);
            let origins = [&setup.scenario.origin, &setup.machine.spec.origin];
            for (key, origin) in origins.into_iter().flatten() {
                let known = ORIGINS.iter().any(|o| origin.starts_with(o));
                assert!(known, "{name}: {key} comes from \"{origin}\"");
            }
        }
        let named = PRESETS.iter().chain(&crate::machine::PRESETS);
        let nowhere: Vec<String> = named.flat_map(|(name, text)| without_origin(name, text)).collect();
        assert!(nowhere.is_empty(), "where do these come from? {nowhere:#?}");
    }

    /// Parameters of a preset that no key of its origins covers; a key covers what stands below it.
    fn without_origin(name: &str, text: &str) -> Vec<String> {
        /// What only names things, or says how long a run may take.
        const OTHER: [&str; 8] =
            ["name", "summary", "machine", "manager", "limit", "fit", "process.name", "process.together"];
        let mut preset: toml::Table = toml::from_str(text).unwrap();
        let origin = preset.remove("origin").unwrap_or_else(|| panic!("{name} has no origins"));
        let covered = |key: &str| {
            let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
            ends.into_iter().any(|end| origin.get(&key[..end]).is_some() || OTHER.contains(&&key[..end]))
        };
        let mut keys = Vec::new();
        leaves(&toml::Value::Table(preset), "", &mut keys);
        keys.retain(|key| !covered(key) && key != "process.background");
        keys.into_iter().map(|key| format!("{name}: {key}")).collect()
    }

    /// The dotted keys of a value; those of a table in a list stand for all its tables.
    fn leaves(value: &toml::Value, at: &str, keys: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    leaves(value, &if at.is_empty() { key.clone() } else { format!("{at}.{key}") }, keys);
                }
            }
            toml::Value::Array(values) if values.first().is_some_and(toml::Value::is_table) => {
                values.iter().for_each(|value| leaves(value, at, keys));
            }
            _ => keys.push(at.to_owned()),
        }
    }

    #[test]
    fn changes_change() {
        let changes = ["process.0.threads=3", "machine.cost.migrate_ns=1.5", "kernel.scan_size_mb=64"];
        let setup = Setup::preset("chunks-small", &changes.map(str::to_owned)).unwrap();
        assert_eq!(setup.scenario.process[0].threads, 3);
        assert_eq!((setup.machine.spec.cost.migrate_ns, setup.scenario.kernel.scan_size_mb), (1.5, 64));
    }

    #[test]
    fn what_takes_room_is_bounded_in_sum() {
        let changes = ["process.0.footprint=\"64MiB\"", "process.0.pattern.chunk=\"4KiB\""];
        assert!(!error(&[&changes[..], &["process.0.threads=0"]].concat()).contains("cells"));
        let many = ["process.0.count=100", "machine.node.0.memory=\"1TiB\""];
        let error = error(&[&changes[..], &many].concat());
        assert!(error.starts_with("process[0].pattern: makes more than 1048576 cells"), "{error}");
    }

    #[test]
    fn bad_input_is_one_error_with_place_and_remedy() {
        for (change, place, said) in [
            ("process.0.threads=0", "process[0].threads", "is zero"),
            ("process.0.threads=4294967295", "process[0].threads", "above 4096"),
            ("process.0.count=4294967295", "process[0].count", "above 1024"),
            ("process.0.pattern.chunk=\"4KiB\"", "process[0].pattern.chunk", "more than 65536 chunks"),
            ("process.0.footprint=\"8PiB\"", "footprint", "number"),
            ("machine.llc={ size = \"1MiB\", hit_ns = -5.0 }", "llc.hit_ns", "is not a cost"),
            ("machine.llc={ size = \"1MiB\", hit_ns = nan }", "llc.hit_ns", "is not a cost"),
            ("process.0.footprint=\"-4GiB\"", "footprint", "negative"),
            ("process.0.footprint=\"4TiB\"", "process", "the machine has"),
            ("process.0.footprints=\"4GiB\"", "footprints", "unknown"),
            ("machine.hz=0", "hz", "out of range"),
            ("machine.node.0.cpus=4294967295", "node", "more than 65536 CPUs"),
            ("process.0.reclaim={ every = \"1ns\", size = \"4KiB\" }", "reclaim", "all the time"),
            ("machine.hertz=0", "hertz", "unknown"),
            ("manager=\"nobody\"", "manager", "no manager"),
            ("machine=\"none\"", "machine", "no machine"),
            ("kernel.scan_size_mb=0", "kernel.scan_size_mb", "out of range"),
            ("config.queue.capacity=1", "config", "capacity"),
            ("process.7.threads=1", "process.7", "there is no"),
            ("threads", "threads", "key=value"),
            ("process.0.pattern.kind=\"nonsense\"", "pattern", "unknown variant"),
        ] {
            let error = error(&[change]);
            assert!(error.contains(place) && error.contains(said), "{change}: {error}");
            assert!(error.contains("; "), "{change} has no remedy: {error}");
        }
        assert!(Setup::preset("nothing", &[]).unwrap_err().to_string().contains("sim --list"));
    }
}
