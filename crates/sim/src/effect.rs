//! Which settings decide anything under a manager.
//!
//! `config.*` is Thermocline's configuration, of which the kernel's DAMON takes its own section;
//! each of the kernel's settings belongs to some managers, and a manager may set one itself. A
//! change without effect looks like a result ("it makes no difference"), so it is refused.

use thermocline_core::config::{RuleChoice, RuleName};
use toml::Value;

use crate::manager::ManagerName;
use crate::scenario::Setup;
use crate::settings::KernelSettings;
use crate::spec::SpecError;

/// Sections that describe the daemon or what it has to find out, not what it decides.
const LIVE: [&str; 3] = ["daemon.", "metrics.", "reverse."];

/// Checks that each of these dotted keys, changed in `setup`, decides something under one of the
/// managers at least.
///
/// # Errors
/// The first that does not, with what to do instead; or the configuration does not suit the
/// machine.
pub fn check(setup: &Setup, managers: &[ManagerName], keys: &[&str]) -> Result<(), SpecError> {
    for key in keys {
        let mut remedies = Vec::new();
        for manager in managers {
            remedies.extend(ignored(setup, *manager, key)?);
        }
        if remedies.len() == managers.len()
            && let Some(remedy) = remedies.first()
        {
            let names: Vec<String> = managers.iter().map(|m| m.text()).collect();
            let message = format!("has no effect under {}", names.join(", "));
            return Err(SpecError::new(*key, message, remedy.clone()));
        }
    }
    Ok(())
}

/// What to do instead, if a change of this dotted key of the scenario decides nothing under the
/// manager; `None` if it does.
///
/// # Errors
/// The configuration does not suit the machine.
pub fn ignored(setup: &Setup, manager: ManagerName, key: &str) -> Result<Option<String>, SpecError> {
    if let Some(key) = key.strip_prefix("config.") {
        return Ok(config(setup, manager, key));
    }
    let Some(key) = key.strip_prefix("kernel.") else { return Ok(None) };
    if !reads(manager, key) {
        let all = ManagerName::all().into_iter().filter(|m| reads(*m, key)).map(|m| match m {
            ManagerName::Thermocline(_) => "thermocline".to_owned(),
            other => other.text(),
        });
        let mut readers: Vec<String> = all.collect();
        readers.dedup();
        return Ok((!readers.is_empty()).then(|| format!("it is for --manager {}", readers.join(", "))));
    }
    let asked = setup.scenario.kernel;
    let mut used = asked;
    manager.build(&setup.machine, &setup.scenario.config)?.configure(&mut used);
    let value = |settings: &KernelSettings| Value::try_from(settings).ok()?.get(key).cloned();
    let set = value(&used).filter(|used| Some(used) != value(&asked).as_ref());
    Ok(set.map(|set| {
        let instead = match manager {
            ManagerName::Thermocline(_) => format!("change config.{} instead", own(key)),
            _ => "remove the change".to_owned(),
        };
        format!("it sets {set} there itself: {instead}")
    }))
}

/// The same for a key of Thermocline's configuration.
fn config(setup: &Setup, manager: ManagerName, key: &str) -> Option<String> {
    if LIVE.iter().any(|section| key.starts_with(section)) {
        return Some("only the daemon on a real machine reads it: remove the change".to_owned());
    }
    let of_damon = key.starts_with("manager.damon.");
    let ManagerName::Thermocline(choice) = manager else {
        let damon = matches!(manager, ManagerName::Damon | ManagerName::DamonYoung);
        return match (of_damon, damon) {
            (true, true) => None,
            (true, false) => Some("it is for --manager damon, damon-young".to_owned()),
            (false, _) => {
                Some(format!("it is for --manager thermocline:{}", setup.scenario.config.rule.name.text()))
            }
        };
    };
    if key.starts_with("manager.") {
        return Some("it is for --manager damon, damon-young".to_owned());
    }
    if key.starts_with("payoff.") {
        let mut chosen = setup.scenario.config.clone();
        chosen.choose(choice);
        let weighed = chosen.rule.name == RuleName::Adaptive;
        return (!weighed).then(|| "it is for --manager thermocline:adaptive".to_owned());
    }
    let section = key.strip_prefix("rule.")?;
    let section = section.split('.').next().unwrap_or_default();
    let RuleChoice::Rule(rule) = choice else { return None };
    if section == "name" {
        let asked = setup.scenario.config.rule.name.text();
        return Some(format!("the manager's name has the rule: give --manager thermocline:{asked}"));
    }
    let of = RuleName::ALL.into_iter().find(|r| r.text().replace('-', "_") == section.replace('-', "_"))?;
    // It looks at accesses and regions as these two do.
    let parts = [RuleName::Frequency, RuleName::Regions];
    let used = of == rule || rule == RuleName::Adaptive && parts.contains(&of);
    (!used).then(|| format!("it is for --manager thermocline:{}", of.text()))
}

/// Whether a manager looks at this setting of the kernel.
fn reads(manager: ManagerName, key: &str) -> bool {
    use ManagerName::*;
    let scans = !matches!(manager, None | Ibs | Chmu | Damon | DamonYoung | Mtier);
    let by_time = matches!(manager, Numab2 | Restamp | Speculative | Ibs | Thermocline(_));
    let by_count = matches!(manager, FaultCount | FaultCountOnly);
    let records = matches!(manager, Pghot | PghotPrecise);
    match key {
        "fault_count_threshold" => by_count,
        "hot_threshold_ms" => by_time,
        "promote_rate_limit_mbps" => by_time || by_count || records,
        "pghot_target_nid" => manager == Pghot,
        "chmu_counters" | "chmu_list" => matches!(manager, Chmu | Thermocline(_)),
        _ if key.starts_with("pghot_") => records,
        _ if key.starts_with("chmu_") => manager == Chmu,
        "restamp" | "scan_all" => scans,
        // The longest scan is also the period of the threshold's adjustment.
        "scan_period_max_ms" => scans || by_time,
        _ if key.starts_with("scan_") => scans,
        _ => true,
    }
}

/// The key of Thermocline's configuration that decides this setting of the kernel.
fn own(key: &str) -> String {
    match key {
        "promote_rate_limit_mbps" => "kernel.numa_balancing_promote_rate_limit_mbps".to_owned(),
        "restamp" => "source.hintfault.restamp".to_owned(),
        key => format!("kernel.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of one change of a preset under a manager.
    fn error(change: &str, managers: &[&str]) -> Option<String> {
        let setup = Setup::preset("hotcold", &[change.to_owned()]).unwrap();
        let managers: Vec<ManagerName> = managers.iter().map(|m| ManagerName::parse(m).unwrap()).collect();
        let key = change.split('=').next().unwrap();
        check(&setup, &managers, &[key]).err().map(|e| e.to_string())
    }

    #[test]
    fn a_change_that_decides_nothing_is_refused_with_what_to_do_instead() {
        for (change, manager, said) in [
            ("config.rule.name=latency", "numab2", "under numab2; it is for --manager thermocline:latency"),
            ("config.rule.name=latency", "thermocline:adaptive", "give --manager thermocline:latency"),
            ("config.metrics.remote=true", "thermocline", "only the daemon"),
            ("config.admission.rate_limit_mbps=64", "damon", "--manager thermocline:adaptive"),
            (
                "config.rule.latency.hot_threshold_ms=500",
                "thermocline:adaptive",
                "--manager thermocline:latency",
            ),
            ("config.payoff.loan_s=0", "thermocline:latency", "--manager thermocline:adaptive"),
            ("config.manager.damon.regions_max=500", "numab2", "--manager damon"),
            ("config.manager.damon.regions_max=500", "thermocline", "--manager damon"),
            ("kernel.pghot_freq_threshold=3", "numab2", "--manager pghot, pghot-precise"),
            ("kernel.scan_size_mb=64", "damon", "it is for --manager numab2"),
            ("kernel.scan_size_mb=64", "thermocline", "change config.kernel.scan_size_mb instead"),
            ("kernel.promote_rate_limit_mbps=64", "thermocline", "it sets 0 there itself"),
            ("kernel.demotion_enabled=true", "damon", "it sets false there itself: remove the change"),
        ] {
            let error = error(change, &[manager]).unwrap_or_else(|| panic!("{change} under {manager}"));
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_change_that_one_of_the_managers_reads_is_made() {
        for (change, managers) in [
            ("config.rule.name=latency", &["numab2", "thermocline:speculative"][..]),
            ("config.admission.rate_limit_mbps=64", &["none", "thermocline"]),
            ("config.rule.frequency.freq_threshold=3", &["thermocline:adaptive"]),
            ("config.manager.damon.regions_max=500", &["damon"]),
            ("kernel.fault_count_threshold=9", &["fault-count"]),
            ("kernel.scan_size_mb=64", &["thermocline", "numab2"]),
            ("kernel.demotion_enabled=true", &["none"]),
            ("process.0.threads=2", &["none"]),
            ("machine.cost.migrate_ns=1.0", &["none"]),
        ] {
            assert_eq!(error(change, managers), None, "{change}");
        }
    }

    /// Every setting of the kernel is some manager's.
    #[test]
    fn no_setting_is_without_a_manager() {
        let settings = KernelSettings { pghot_freq_window_ms: Some(3000), ..KernelSettings::default() };
        let all = Value::try_from(settings).unwrap();
        for key in all.as_table().unwrap().keys() {
            assert!(ManagerName::all().into_iter().any(|m| reads(m, key)), "{key}");
        }
    }
}
