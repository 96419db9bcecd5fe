//! Another configuration for a running engine, applied as a whole or not at all.
//!
//! Waiting candidates, moves in flight, counters, journal, recent moves and brakes stay as they
//! are. A rule whose keys change starts learning from scratch; the records of pages are kept unless
//! the rule needs time in another form.

use crate::config::{Config, ConfigError, Difference, differences};
use crate::demotion::reach;
use crate::engine::{Engine, table};
use crate::record::RecordError;
use crate::rule;
use crate::units::Nanos;
use crate::weigh::Weights;

/// Why a configuration is not applied; the previous one stays.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be used at all.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Some of the keys that it changes are only read at the start.
    #[error(
        "these changes need a restart:\n{}\nrestart thermocline, or take them back to have the others applied",
        .0.iter().map(|d| format!("  {d}")).collect::<Vec<_>>().join("\n")
    )]
    Restart(Vec<Difference>),
    /// It changes whose memory may be demoted at all.
    #[error(
        "a floor where there was none, or none where there was one, changes whose memory may be demoted at all, which \
         needs a restart; restart thermocline, or leave scope.top_tier_floor_mib above 0, or at 0, where it is so"
    )]
    Reach,
    /// The records cannot be created.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Engine {
    /// The configuration in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Uses another configuration from now on; returns what differs. The caller must pass to the
    /// machine the changes that concern it.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has changed.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<Difference>, ReloadError> {
        let changes = reloadable(&self.config, config)?;
        let rule = rule::differs(&self.config, config).then(|| rule::build(config));
        let table = match &rule {
            Some(rule) if rule.window() != self.rule.window() => {
                Some(table(config, &self.topology, rule.window())?)
            }
            _ => None,
        };
        // Nothing can fail from here on.
        if let Some(rule) = rule {
            self.rule = rule;
        }
        if let Some(table) = table {
            self.table = table;
        }
        self.queue.set_weights(Weights::new(&config.source));
        self.admission.reload(config);
        self.demotion.reload(config);
        self.batch_pages = u64::from(config.admission.batch_pages);
        self.retries = config.queue.retries;
        self.retry_delay = Nanos::from_ms(config.queue.retry_delay_ms);
        self.life = Nanos::from_ms(config.queue.expire_ms);
        *self.config = config.clone();
        Ok(changes)
    }
}

/// What differs between two configurations, if a daemon that uses the first can change to the
/// second without a restart.
///
/// # Errors
/// It cannot change without a restart.
pub fn reloadable(before: &Config, after: &Config) -> Result<Vec<Difference>, ReloadError> {
    after.check()?;
    let changes = differences(before, after);
    let restart: Vec<Difference> = changes.iter().filter(|d| !d.reloads).cloned().collect();
    if !restart.is_empty() {
        return Err(ReloadError::Restart(restart));
    }
    if reach(before) != reach(after) {
        return Err(ReloadError::Reach);
    }
    Ok(changes)
}
