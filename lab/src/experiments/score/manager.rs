//! The manager that places pages.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use thermocline_core::config::RuleName;

/// A manager, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Manager {
    /// No manager: pages stay where they were allocated.
    None,
    /// The kernel: kernel.numa_balancing=2 and demotion, everything else at boot values.
    Numab2,
    /// DAMON with HMSDK's settings, migrate_hot upwards and migrate_cold downwards (S3), set up by
    /// our daemon.
    Damon {
        /// Configuration keys with their values, as TOML writes them.
        settings: Vec<(String, String)>,
    },
    /// Our daemon.
    Thermocline {
        /// Its rule; `None` for the default one.
        rule: Option<String>,
        /// Configuration keys with their values, as TOML writes them.
        settings: Vec<(String, String)>,
    },
}

impl Manager {
    /// The manager without its rule and settings.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Manager::None => "none",
            Manager::Numab2 => "numab2",
            Manager::Damon { .. } => "damon",
            Manager::Thermocline { .. } => "thermocline",
        }
    }

    /// Its source of evidence.
    pub(crate) fn source(&self) -> Option<String> {
        match self {
            Manager::None => None,
            Manager::Damon { .. } => Some("damon".to_owned()),
            Manager::Numab2 => Some("hintfault".to_owned()),
            Manager::Thermocline { .. } => {
                let faults = self.setting("source.hintfault.enabled") != Some("false");
                let samples = self.setting("source.hwsample.enabled").is_some_and(|value| value != "false");
                let all = [
                    ("hintfault", faults),
                    ("hwsample", samples),
                    ("damon", self.reads_regions()),
                    ("chmu", self.reads_hot_list()),
                ];
                let on: Vec<&str> = all.into_iter().filter_map(|(name, on)| on.then_some(name)).collect();
                Some(on.join("+"))
            }
        }
    }

    /// Whether it reads the samples that the plugin takes.
    pub(crate) fn reads_samples(&self) -> bool {
        self.setting("source.hwsample.sampler") == Some("\"lab-rings\"")
    }

    /// Whether it reads the hot list that the plugin keeps.
    pub(crate) fn reads_hot_list(&self) -> bool {
        self.setting("source.chmu.enabled") == Some("true")
    }

    /// Whether it has kdamonds, which are then the only ones.
    pub(crate) fn has_kdamonds(&self) -> bool {
        matches!(self, Manager::Damon { .. }) || self.reads_regions()
    }

    /// Whether it reads DAMON's regions.
    fn reads_regions(&self) -> bool {
        self.setting("source.damon.enabled") == Some("true")
    }

    /// The last value that is given to a key.
    fn setting(&self, key: &str) -> Option<&str> {
        let (Manager::Damon { settings } | Manager::Thermocline { settings, .. }) = self else { return None };
        settings.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The daemon's configuration; `None` for the default one.
    pub(crate) fn config(&self) -> Option<String> {
        let (mut text, settings) = match self {
            Manager::None | Manager::Numab2 => return None,
            // Nothing else needs DAMON in the lab.
            Manager::Damon { settings } => {
                ("manager.name = \"damon\"\nmanager.damon.stop_damon_stat = true\n".to_owned(), settings)
            }
            Manager::Thermocline { rule, settings } => {
                (rule.iter().map(|rule| format!("rule.name = \"{rule}\"\n")).collect(), settings)
            }
        };
        if matches!(self, Manager::Thermocline { .. }) && self.reads_regions() {
            text.push_str("source.damon.stop_damon_stat = true\n");
        }
        for (key, value) in settings {
            text.push_str(&format!("{key} = {value}\n"));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Checks on the host for errors that would appear in the guest only after the program has
    /// filled its memory.
    ///
    /// # Errors
    /// A manager that the lab cannot run, a daemon that is not built or refuses its configuration.
    pub(crate) fn check(&self, daemon: &Path) -> anyhow::Result<()> {
        match self {
            Manager::None | Manager::Numab2 => return Ok(()),
            Manager::Damon { .. } | Manager::Thermocline { .. } => {}
        }
        fs::metadata(daemon).with_context(|| format!("no {}: run `make lab-programs`", daemon.display()))?;
        let Some(config) = self.config() else { return Ok(()) };
        let file = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
        fs::write(file.path(), &config).context("cannot write a temporary file")?;
        let checked = Command::new(daemon)
            .args(["config", "check"])
            .arg(file.path())
            .output()
            .with_context(|| format!("cannot run {}", daemon.display()))?;
        let said = String::from_utf8_lossy(&checked.stderr);
        ensure!(checked.status.success(), "{self}: the daemon refuses this configuration:\n{}", said.trim());
        Ok(())
    }
}

impl FromStr for Manager {
    type Err = String;

    /// `none`, `numab2`, `damon[+KEY=VALUE]...` or `thermocline[:RULE][+KEY=VALUE]...`.
    fn from_str(text: &str) -> Result<Manager, String> {
        let mut parts = text.split('+');
        let first = parts.next().unwrap_or_default();
        let (name, rule) = match first.split_once(':') {
            Some((name, rule)) => (name, Some(rule)),
            None => (first, None),
        };
        let settings: Vec<(String, String)> = parts
            .map(|pair| {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                match pair.split_once('=') {
                    Some((key, value)) if key.chars().all(plain) && !value.is_empty() => {
                        Ok((key.to_owned(), value.to_owned()))
                    }
                    _ => Err(format!(
                        "`{pair}` is not of the form KEY=VALUE, as in kernel.demotion_enabled=true"
                    )),
                }
            })
            .collect::<Result<_, _>>()?;
        let plain = rule.is_none() && settings.is_empty();
        match name {
            "none" if plain => Ok(Manager::None),
            "numab2" if plain => Ok(Manager::Numab2),
            "damon" if rule.is_none() => Ok(Manager::Damon { settings }),
            "damon" => Err("`damon` takes no rule".to_owned()),
            "none" | "numab2" => Err(format!("`{name}` takes neither rule nor settings")),
            "thermocline" => {
                let names = RuleName::ALL.map(RuleName::text);
                match rule {
                    Some(rule) if !names.contains(&rule) => {
                        Err(format!("`{rule}` is no rule; rules are {}", names.join(", ")))
                    }
                    _ => Ok(Manager::Thermocline { rule: rule.map(str::to_owned), settings }),
                }
            }
            _ => Err(format!(
                "`{name}` is not none, numab2, damon[+KEY=VALUE]... or thermocline[:RULE][+KEY=VALUE]..."
            )),
        }
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Manager::Thermocline { rule: Some(rule), .. } = self {
            write!(f, ":{rule}")?;
        }
        if let Manager::Damon { settings } | Manager::Thermocline { settings, .. } = self {
            settings.iter().try_for_each(|(key, value)| write!(f, "+{key}={value}"))?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Manager {
    type Error = String;

    fn try_from(text: String) -> Result<Manager, String> {
        text.parse()
    }
}

impl From<Manager> for String {
    fn from(manager: Manager) -> String {
        manager.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_and_nonsense_is_refused() {
        for text in [
            "none",
            "numab2",
            "damon",
            "damon+manager.damon.sample_ms=20",
            "thermocline",
            "thermocline:latency",
            "thermocline+kernel.demotion_enabled=true",
            "thermocline:fault-count+kernel.scan_size_mb=64+admission.free_goal_mib=4",
        ] {
            assert_eq!(text.parse::<Manager>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "numa",
            "none:latency",
            "numab2+a=b",
            "damon:latency",
            "thermocline:",
            "thermocline:A B",
            "thermocline+x",
            "thermocline+a\nb=1",
        ] {
            assert!(bad.parse::<Manager>().is_err(), "{bad}");
        }
    }

    #[test]
    fn evidence_comes_from_where_the_settings_say() {
        let manager = |text: &str| text.parse::<Manager>().unwrap();
        let samples = "source.hwsample.enabled=true+source.hwsample.sampler=\"lab-rings\"";
        let alone = manager(&format!("thermocline+source.hintfault.enabled=false+{samples}"));
        assert_eq!((alone.source(), alone.reads_samples()), (Some("hwsample".to_owned()), true));
        let both = manager(&format!("thermocline:frequency+{samples}"));
        assert_eq!((both.source(), both.reads_samples()), (Some("hintfault+hwsample".to_owned()), true));
        let faults = manager("thermocline+source.hwsample.enabled=false");
        assert_eq!((faults.source(), faults.reads_samples()), (Some("hintfault".to_owned()), false));
        let regions = manager("thermocline+source.hintfault.enabled=false+source.damon.enabled=true");
        assert_eq!(regions.source().as_deref(), Some("damon"));
        assert!(regions.has_kdamonds() && !manager("thermocline").has_kdamonds());
        assert!(regions.config().unwrap().starts_with("source.damon.stop_damon_stat = true\n"));
        assert_eq!((manager("damon").source(), manager("none").source()), (Some("damon".to_owned()), None));
        let lists = manager("thermocline+source.chmu.enabled=true");
        assert_eq!((lists.source().as_deref(), lists.reads_hot_list()), (Some("hintfault+chmu"), true));
        assert!(!lists.reads_samples() && !both.reads_hot_list());
    }

    #[test]
    fn the_daemon_is_told_its_rule_and_settings_and_nothing_else() {
        let config = |text: &str| text.parse::<Manager>().unwrap().config();
        assert_eq!(config("thermocline"), None);
        assert_eq!(config("numab2"), None);
        assert_eq!(
            config("damon+manager.damon.sample_ms=20").as_deref(),
            Some(
                "manager.name = \"damon\"\nmanager.damon.stop_damon_stat = true\nmanager.damon.sample_ms = 20\n"
            )
        );
        assert_eq!(
            config("thermocline:latency+kernel.demotion_enabled=true").as_deref(),
            Some("rule.name = \"latency\"\nkernel.demotion_enabled = true\n")
        );
    }
}
