//! The root of the tree and its checks.

use crate::config::schema::{Field, Section, Violation};
use crate::config::scope::check_limits;
use crate::config::source::Source;
use crate::config::{
    Admission, Brake, Daemon, Demotion, DemotionMode, Enabled, Engine, Journal, Kernel, Manager, Metrics,
    Payoff, Pods, Queue, RecordLayout, Recording, Reverse, Rule, RuleName, Scope, Sources, TierMap,
};
use crate::section;

section! {
    /// The whole configuration.
    Config {}
    sections {
        /// `[manager]`.
        "manager" manager: Manager;
        /// `[engine]`.
        "engine" engine: Engine;
        /// `[rule]`.
        "rule" rule: Rule;
        /// `[queue]`.
        "queue" queue: Queue;
        /// `[admission]`.
        "admission" admission: Admission;
        /// `[payoff]`.
        "payoff" payoff: Payoff;
        /// `[brake]`.
        "brake" brake: Brake;
        /// `[demotion]`.
        "demotion" demotion: Demotion;
        /// `[journal]`.
        "journal" journal: Journal;
        /// `[tiers]`.
        "tiers" tiers: TierMap;
        /// `[[scope]]`.
        "scope" scope: Vec<Scope>;
        /// `[pods]`.
        "pods" pods: Pods;
        /// `[source]`.
        "source" source: Sources;
        /// `[reverse]`.
        "reverse" reverse: Reverse;
        /// `[kernel]`.
        "kernel" kernel: Kernel;
        /// `[daemon]`.
        "daemon" daemon: Daemon;
        /// `[metrics]`.
        "metrics" metrics: Metrics;
        /// `[recording]`.
        "recording" recording: Recording;
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|v| format!("{}: {}", v.key, v.message)).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError(pub Vec<Violation>);

impl Config {
    /// Checks every value against its range, and whether the values fit together.
    ///
    /// # Errors
    /// All violations: ranges first, in order of the tree.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut out = Vec::new();
        Section::check(self, "", &mut out);
        self.manager.damon.check_together("manager.damon", &mut out);
        self.metrics.check_together("metrics", &mut out);
        check_limits(&self.scope, &mut out);
        self.check_floors(&mut out);
        self.check_shares(&mut out);
        self.check_balance(&mut out);
        for source in Source::all() {
            self.source.keys(source).check_together(&format!("source.{}", source.key()), &mut out);
        }
        self.check_taken(&mut out);
        self.check_together(&mut out);
        if out.is_empty() { Ok(()) } else { Err(ConfigError(out)) }
    }

    /// The kernel's own demotion knows no floors, so that somebody has to say that this is meant.
    fn check_floors(&self, out: &mut Vec<Violation>) {
        let floor = self.scope.iter().enumerate().find(|(_, s)| s.keeps_some());
        if self.kernel.demotion_enabled == Some(true)
            && self.demotion.mode != DemotionMode::On
            && let Some((i, scope)) = floor
        {
            let size = match scope.never_slow {
                true => String::new(),
                false => format!(" ({} MiB)", scope.top_tier_floor_mib),
            };
            let message = format!(
                "with it the kernel may demote under memory pressure what scope[{i}].{}{size} is to keep; unset it, or accept \
                 that by demotion.mode = \"on\"",
                scope.floor_key()
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

    /// Some evidence is of use to some rules only, and one rule has no use for anything but
    /// regions.
    fn check_taken(&self, out: &mut Vec<Violation>) {
        let rule = self.rule.name;
        for source in Source::all() {
            let keys = self.source.keys(source);
            let Some((what, takes)) = keys.taken().filter(|(_, takes)| !takes(rule)) else { continue };
            if keys.enabled() == Enabled::No {
                continue;
            }
            let message = format!(
                "rule {} makes nothing of {what}; set rule.name = {}, or leave this source off",
                rule.text(),
                takers(takes)
            );
            out.push(Violation { key: format!("source.{}.enabled", source.key()), message });
        }
        if rule == RuleName::Regions && !self.source.damon.enabled {
            let message = "looks at DAMON's regions alone; set source.damon.enabled = true".to_owned();
            out.push(Violation { key: "rule.name".to_owned(), message });
        }
    }

    /// Every section's dotted name and fields, for the book and for error messages.
    pub fn sections() -> Vec<(String, Vec<Field>)> {
        let mut out = Vec::new();
        <Config as Section>::sections("", &mut out);
        out
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
