//! The root of the tree and its checks.

use serde::{Deserialize, Serialize};

use crate::config::rule::{
    Adaptive, Balance, FaultCount, Frequency, InterArrival, Latency, Regions, Speculative,
};
use crate::config::schema::{Field, Section, Violation};
use crate::config::scope::check_limits;
use crate::config::{
    Admission, Brake, ChmuSource, Daemon, Damon, DamonSource, Demotion, DemotionMode, Enabled, Engine,
    HintFault, HwSample, Journal, Kernel, Manager, Numab2, Queue, RecordLayout, Reverse, Rule, RuleName,
    Scope, TierMap,
};

/// `[source]`: where evidence comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Source {
    /// `[source.hintfault]`.
    pub hintfault: HintFault,
    /// `[source.hwsample]`.
    pub hwsample: HwSample,
    /// `[source.damon]`.
    pub damon: DamonSource,
    /// `[source.chmu]`.
    pub chmu: ChmuSource,
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[manager]`.
    pub manager: Manager,
    /// `[engine]`.
    pub engine: Engine,
    /// `[rule]`.
    pub rule: Rule,
    /// `[queue]`.
    pub queue: Queue,
    /// `[admission]`.
    pub admission: Admission,
    /// `[brake]`.
    pub brake: Brake,
    /// `[demotion]`.
    pub demotion: Demotion,
    /// `[journal]`.
    pub journal: Journal,
    /// `[tiers]`.
    pub tiers: TierMap,
    /// `[[scope]]`.
    pub scope: Vec<Scope>,
    /// `[source]`.
    pub source: Source,
    /// `[reverse]`.
    pub reverse: Reverse,
    /// `[kernel]`.
    pub kernel: Kernel,
    /// `[daemon]`.
    pub daemon: Daemon,
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|v| format!("{}: {}", v.key, v.message)).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError(pub Vec<Violation>);

impl Config {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// All violations, in order of the tree.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut out = Vec::new();
        self.manager.check("manager", &mut out);
        self.manager.damon.check_together("manager.damon", &mut out);
        self.engine.check("engine", &mut out);
        self.rule.check("rule", &mut out);
        self.queue.check("queue", &mut out);
        self.admission.check("admission", &mut out);
        self.brake.check("brake", &mut out);
        self.demotion.check("demotion", &mut out);
        self.journal.check("journal", &mut out);
        self.tiers.check("tiers", &mut out);
        for (i, scope) in self.scope.iter().enumerate() {
            scope.check(&format!("scope[{i}]"), &mut out);
        }
        check_limits(&self.scope, &mut out);
        self.check_floors(&mut out);
        self.check_balance(&mut out);
        self.source.hintfault.check("source.hintfault", &mut out);
        self.source.hwsample.check("source.hwsample", &mut out);
        self.source.damon.check("source.damon", &mut out);
        self.source.damon.check_together("source.damon", &mut out);
        self.check_regions(&mut out);
        self.source.chmu.check("source.chmu", &mut out);
        self.check_counts(&mut out);
        self.reverse.check("reverse", &mut out);
        self.kernel.check("kernel", &mut out);
        self.daemon.check("daemon", &mut out);
        self.check_together(&mut out);
        if out.is_empty() { Ok(()) } else { Err(ConfigError(out)) }
    }

    /// The kernel's own demotion knows no floors, so that somebody has to say that this is meant.
    fn check_floors(&self, out: &mut Vec<Violation>) {
        let floor = self.scope.iter().position(|s| s.top_tier_floor_mib > 0);
        if self.kernel.demotion_enabled == Some(true)
            && self.demotion.mode != DemotionMode::On
            && let Some(i) = floor
        {
            let message = format!(
                "with it the kernel may demote memory below scope[{i}].top_tier_floor_mib under memory pressure; unset it, or \
                 accept that by demotion.mode = \"on\""
            );
            out.push(Violation { key: "kernel.demotion_enabled".to_owned(), message });
        }
    }

    /// Who balances by samples must have some, and must know where each page was accessed from.
    fn check_balance(&self, out: &mut Vec<Violation>) {
        if !self.rule.balance.enabled {
            return;
        }
        let mut violation = |message: &str| {
            out.push(Violation { key: "rule.balance.enabled".to_owned(), message: message.to_owned() });
        };
        if self.source.hwsample.enabled == Enabled::No {
            violation(
                "pages of the top tier are seen by hardware samples alone; set source.hwsample.enabled",
            );
        }
        if self.engine.record != RecordLayout::Word {
            violation(
                "no other record keeps for pages of the top tier which node accessed each; set engine.record = \"word\"",
            );
        }
        if self.kernel.numa_balancing.is_some_and(|mode| mode & 1 != 0) {
            violation(
                "with kernel.numa_balancing = 1 or 3 the kernel balances the same pages; set it to 2 or 0",
            );
        }
    }

    /// Regions are of use to some rules only, and one rule has no use for anything else.
    fn check_regions(&self, out: &mut Vec<Violation>) {
        let (rule, damon) = (self.rule.name, self.source.damon.enabled);
        if damon && !rule.takes_regions() {
            let message = format!(
                "rule {} makes nothing of DAMON's regions; set rule.name = {}, or leave this source off",
                rule.text(),
                takers(RuleName::takes_regions)
            );
            out.push(Violation { key: "source.damon.enabled".to_owned(), message });
        }
        if rule == RuleName::Regions && !damon {
            let message = "looks at DAMON's regions alone; set source.damon.enabled = true".to_owned();
            out.push(Violation { key: "rule.name".to_owned(), message });
        }
    }

    /// Counts of devices are of use to some rules only.
    fn check_counts(&self, out: &mut Vec<Violation>) {
        if self.source.chmu.enabled && !self.rule.name.takes_counts() {
            let message = format!(
                "rule {} makes nothing of what devices count; set rule.name = {}, or leave this source off",
                self.rule.name.text(),
                takers(RuleName::takes_counts)
            );
            out.push(Violation { key: "source.chmu.enabled".to_owned(), message });
        }
    }

    /// Every section's dotted name and fields, for the book and for error messages.
    pub fn sections() -> Vec<(&'static str, Vec<Field>)> {
        vec![
            ("manager", Manager::fields()),
            ("manager.numab2", Numab2::fields()),
            ("manager.damon", Damon::fields()),
            ("engine", Engine::fields()),
            ("rule", Rule::fields()),
            ("rule.adaptive", Adaptive::fields()),
            ("rule.latency", Latency::fields()),
            ("rule.fault-count", FaultCount::fields()),
            ("rule.inter-arrival", InterArrival::fields()),
            ("rule.frequency", Frequency::fields()),
            ("rule.regions", Regions::fields()),
            ("rule.speculative", Speculative::fields()),
            ("rule.balance", Balance::fields()),
            ("queue", Queue::fields()),
            ("admission", Admission::fields()),
            ("brake", Brake::fields()),
            ("demotion", Demotion::fields()),
            ("journal", Journal::fields()),
            ("tiers", TierMap::fields()),
            ("scope", Scope::fields()),
            ("source.hintfault", HintFault::fields()),
            ("source.hwsample", HwSample::fields()),
            ("source.damon", DamonSource::fields()),
            ("source.chmu", ChmuSource::fields()),
            ("reverse", Reverse::fields()),
            ("kernel", Kernel::fields()),
            ("daemon", Daemon::fields()),
        ]
    }
}

/// The rules that take something, as they are written in a configuration.
fn takers(takes: fn(RuleName) -> bool) -> String {
    let all = RuleName::ALL.into_iter().filter(|rule| takes(*rule));
    all.map(|rule| format!("\"{}\"", rule.text())).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_range() {
        let mut config = Config::default();
        config.admission.batch_pages = 513;
        let error = config.check().unwrap_err();
        assert_eq!(error.0[0].key, "admission.batch_pages");
        assert_eq!(error.0[0].message, "513 is not allowed; batch_pages is 1 to 512 pages");
    }

    #[test]
    fn a_floor_and_the_kernels_own_demotion_need_consent() {
        let floor = Scope { cgroup: Some("/a".to_owned()), top_tier_floor_mib: 1, ..Scope::default() };
        let mut config = Config { scope: vec![floor], ..Config::default() };
        assert_eq!(config.check(), Ok(()));
        config.kernel.demotion_enabled = Some(true);
        assert_eq!(config.check().unwrap_err().0[0].key, "kernel.demotion_enabled");
        config.demotion.mode = DemotionMode::On;
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn balance_needs_samples_and_a_record_that_keeps_the_node() {
        let mut config = Config::default();
        config.rule.balance.enabled = true;
        config.engine.record = RecordLayout::Byte;
        config.kernel.numa_balancing = Some(3);
        let error = config.check().unwrap_err().to_string();
        for key in ["source.hwsample.enabled", "engine.record", "kernel.numa_balancing"] {
            assert!(error.contains(key), "{key}: {error}");
        }
        config.kernel.numa_balancing = Some(2);
        config.source.hwsample.enabled = Enabled::Auto;
        config.engine.record = RecordLayout::Word;
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn regions_go_to_rules_that_make_something_of_them() {
        let keys = |rule, damon| {
            let mut config = Config::default();
            (config.rule.name, config.source.damon.enabled) = (rule, damon);
            config.check().err().map_or_else(Vec::new, |e| e.0.into_iter().map(|v| v.key).collect())
        };
        for rule in RuleName::ALL {
            let (with, without) = (keys(rule, true), keys(rule, false));
            match rule {
                RuleName::Adaptive => assert!(with.is_empty() && without.is_empty()),
                RuleName::Regions => assert_eq!((with, without), (vec![], vec!["rule.name".to_owned()])),
                _ => assert_eq!((with, without), (vec!["source.damon.enabled".to_owned()], vec![])),
            }
        }
    }

    #[test]
    fn counts_of_devices_go_to_rules_that_make_something_of_them() {
        for rule in RuleName::ALL {
            let mut config = Config::default();
            config.rule.name = rule;
            config.source.damon.enabled = rule == RuleName::Regions;
            assert_eq!(config.check(), Ok(()));
            config.source.chmu.enabled = true;
            let error = config.check().err().map(|e| e.to_string()).unwrap_or_default();
            let takes = matches!(rule, RuleName::Adaptive | RuleName::Frequency);
            assert_eq!(error.is_empty(), takes, "{error}");
            assert!(takes || error.contains("rule.name = \"adaptive\" or \"frequency\""), "{error}");
        }
    }

    #[test]
    fn every_field_says_what_it_is() {
        for (section, fields) in Config::sections() {
            for field in fields {
                assert!(!field.doc.is_empty(), "{section}.{} has no description", field.name);
                assert!(!field.source.is_empty(), "{section}.{} has no source", field.name);
                assert!(!field.range.is_empty(), "{section}.{} has no range", field.name);
            }
        }
    }
}
