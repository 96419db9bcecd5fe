//! The sources of evidence: a row each. All else that is listed by source derives from these rows.

use crate::config::schema::Violation;
use crate::config::{ChmuSource, DamonSource, Enabled, HintFault, HwSample, RuleName};
use crate::label::{Label, labels};
use crate::section;

/// What a source's evidence is, in words, and which rules make something of it.
pub type Taken = (&'static str, fn(RuleName) -> bool);

/// What each source's section of the configuration has.
pub trait SourceKeys {
    /// Whether the source is used.
    fn enabled(&self) -> Enabled;

    /// How much its word counts beside that of others, as
    /// [`Weights`](crate::weigh::Weights) explains it.
    fn weight(&self) -> u8;

    /// What `enabled` is to be set to where the source cannot be used, as TOML.
    fn instead(&self) -> &'static str {
        "false"
    }

    /// What its evidence is, in words, and which rules make something of it; nothing where all do.
    fn taken(&self) -> Option<Taken> {
        None
    }

    /// Appends the keys that do not fit together; `path` is the section's dotted name.
    fn check_together(&self, path: &str, out: &mut Vec<Violation>) {
        let _ = (path, out);
    }
}

/// Declares the sources, a row each: name, label in counters, key in `[source]`, section.
macro_rules! sources {
    ($( $(#[doc = $doc:literal])+ $name:ident = $label:literal, $key:literal $field:ident: $keys:ty; )*) => {
        /// Where a piece of evidence comes from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub enum Source {
            $( $(#[doc = $doc])+ #[serde(rename = $label)] $name, )*
        }

        labels!(Source { $( $name = $label, )* });

        impl Source {
            /// Its name in the configuration, and wherever a user reads of it.
            pub const fn key(self) -> &'static str {
                match self {
                    $( Source::$name => $key, )*
                }
            }
        }

        section! {
            /// `[source]`: where evidence comes from.
            Sources {}
            sections {
                $( $(#[doc = $doc])+ $key $field: $keys; )*
            }
        }

        impl Sources {
            /// What the configuration says of a source.
            pub fn keys(&self, source: Source) -> &dyn SourceKeys {
                match source {
                    $( Source::$name => &self.$field, )*
                }
            }
        }
    };
}

sources! {
    /// NUMA hint faults.
    HintFault = "hint-fault", "hintfault" hintfault: HintFault;
    /// Hardware samples (IBS, PEBS, SPE).
    HwSample = "hw-sample", "hwsample" hwsample: HwSample;
    /// Regions that DAMON reports.
    Damon = "damon", "damon" damon: DamonSource;
    /// Counters in the memory device (CXL 3.2 CHMU).
    Device = "device", "chmu" chmu: ChmuSource;
}

impl Source {
    /// Every source, in order of the rows.
    pub fn all() -> impl Iterator<Item = Source> {
        Source::ALL.iter().copied()
    }
}

impl Sources {
    /// Whether any source is used, or is to be used where the machine has it.
    pub fn any_enabled(&self) -> bool {
        Source::all().any(|source| self.keys(source).enabled() != Enabled::No)
    }

    /// Switches on what a rule cannot do without, and off what it makes nothing of. `balance`:
    /// pages of DRAM nodes are balanced, which samples alone show.
    pub fn suit(&mut self, rule: RuleName, balance: bool) {
        if (balance || rule.needs_samples()) && self.hwsample.enabled == Enabled::No {
            self.hwsample.enabled = Enabled::Yes;
        }
        self.damon.enabled = rule.needs_regions() || self.damon.enabled && rule.takes_regions();
        self.chmu.enabled &= rule.takes_counts();
    }

    /// The keys that switch each source on, in words.
    pub fn switches() -> String {
        let keys: Vec<String> = Source::all().map(|s| format!("source.{}.enabled", s.key())).collect();
        match keys.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => keys.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_leads_to_its_own_section() {
        let mut sources = Sources {
            hwsample: HwSample { enabled: Enabled::Yes, ..HwSample::default() },
            ..Sources::default()
        };
        let enabled = |sources: &Sources| {
            let on = Source::all().filter(|s| sources.keys(*s).enabled() != Enabled::No);
            on.map(Source::key).collect::<Vec<_>>()
        };
        assert_eq!(enabled(&sources), ["hintfault", "hwsample"]);
        (sources.hintfault.enabled, sources.chmu.enabled) = (false, true);
        assert_eq!(enabled(&sources), ["hwsample", "chmu"]);
        (sources.hwsample.enabled, sources.chmu.enabled) = (Enabled::No, false);
        assert!(!sources.any_enabled());
        let text =
            "source.hintfault.enabled, source.hwsample.enabled, source.damon.enabled or source.chmu.enabled";
        assert_eq!(Sources::switches(), text);
    }

    #[test]
    fn a_rule_gets_the_source_that_it_needs_and_no_other() {
        let on = |rule, balance| {
            let mut sources = Sources::default();
            sources.suit(rule, balance);
            (sources.hwsample.enabled != Enabled::No, sources.damon.enabled, sources.chmu.enabled)
        };
        for rule in RuleName::ALL {
            let needed = (rule.needs_samples(), rule.needs_regions(), false);
            assert_eq!(on(rule, false), needed, "{}", rule.text());
            assert!(on(rule, true).0, "balance goes by samples");
        }
        assert!(RuleName::ALL.into_iter().any(RuleName::needs_samples));
        assert!(RuleName::ALL.into_iter().any(RuleName::needs_regions));
    }
}
