//! Another configuration for a running engine, applied as a whole or not at all.
//!
//! Waiting candidates, moves in flight, counters, journal, recent moves and brakes stay as they
//! are. Where scopes change, only candidates of processes that are in no scope any more leave the
//! queue, as if their process had left its scope. A rule whose keys change starts learning from
//! scratch; the records of pages are kept unless the rule needs time in another form.

use crate::admission::Admitted;
use crate::config::{Config, ConfigError, Difference, ScopeMap, SharesExceed, differences};
use crate::engine::{Engine, is_weighed, table};
use crate::journal::What;
use crate::moves::BatchId;
use crate::payoff::Payoff;
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
    /// The shares come to more than the machine has.
    #[error(transparent)]
    Shares(#[from] SharesExceed),
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
        config.check_shares_fit(self.topology.top_mib())?;
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
            self.payoff = is_weighed(config).then(|| Payoff::new(&config.payoff, &self.topology));
        }
        if let Some(table) = table {
            self.table = table;
        }
        self.queue.set_weights(Weights::new(&config.source));
        let map = ScopeMap::new(&self.config.scope, &config.scope);
        self.admission.reload(&self.config.scope, config, &map);
        self.demotion.reload(config);
        if !map.is_same() {
            self.rescope(&map);
        }
        self.fence = Some(Fence { batch: BatchId(self.next_batch), demand: self.demotion.next_id() });
        if let Some(pace) = &mut self.pace {
            pace.reload(config);
        }
        self.batch_pages = u64::from(config.admission.batch_pages);
        self.retries = config.queue.retries;
        self.retry_delay = Nanos::from_ms(config.queue.retry_delay_ms);
        self.life = Nanos::from_ms(config.queue.expire_ms);
        *self.config = config.clone();
        Ok(changes)
    }

    /// Scopes have other numbers, and waiting candidates may be in another one or in none.
    fn rescope(&mut self, map: &ScopeMap) {
        self.demotion.renumber(map);
        self.ledgers.renumber(map);
        for (admitted, not_before) in self.queue.drain() {
            match self.admission.scope_of(admitted.page.pid) {
                // There is room: its place has just become free.
                Some(scope) => drop(self.queue.offer(&Admitted { scope, ..admitted }, not_before)),
                None => {
                    self.counters.exited += 1;
                    self.note(&admitted, What::Exited);
                }
            }
        }
    }

    /// Believes what scopes hold as soon as all that was on its way at the last reload has ended.
    pub(super) fn look_at_fence(&mut self) {
        let Some(fence) = &self.fence else { return };
        let batches = self.admission.oldest_batch().is_none_or(|oldest| oldest >= fence.batch);
        if batches && self.demotion.oldest().is_none_or(|oldest| oldest >= fence.demand) {
            self.admission.unfence();
            self.fence = None;
        }
    }
}

/// The first batch and the first demand after a reload.
#[derive(Debug)]
pub(super) struct Fence {
    batch: BatchId,
    demand: u64,
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
    Ok(changes)
}
