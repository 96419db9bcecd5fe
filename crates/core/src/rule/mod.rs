//! Rules: what makes a page worth moving. One file a rule, one trait.

mod adaptive;
mod balance;
mod fault_count;
mod frequency;
mod inter_arrival;
mod latency;
mod regions;
mod speculative;
#[cfg(test)]
mod testing;
mod thresholds;

pub use adaptive::Adaptive;
pub use balance::Balance;
pub use fault_count::FaultCount;
pub use frequency::Frequency;
pub use inter_arrival::InterArrival;
pub use latency::Latency;
pub use regions::Regions;
pub use speculative::Speculative;

use serde::Serialize;

use crate::access::{Access, Mappings, RegionPage, RegionSnapshot};
use crate::candidate::Candidates;
use crate::config::{Config, RuleName};
use crate::demand::Supply;
use crate::moves::{Move, Outcome};
use crate::record::{Record, RecordTable};
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId, Pid};

/// The interval of a record if it says how far accesses are apart. An interval of zero does not:
/// the evidence came late, after that of another source, or closer than the record's resolution.
fn told(gap: Option<Nanos>) -> Option<Nanos> {
    gap.filter(|gap| gap.0 > 0)
}

/// What a rule may know in addition to the access and its record.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// The highest frequency that the record layout can hold.
    pub frequency_max: u8,
    /// The mappings behind the accesses.
    pub mappings: &'a dyn Mappings,
}

/// A figure that a rule exports, such as its current threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Name with unit, as in `hot_threshold_ms`.
    pub name: &'static str,
    /// The node it belongs to, where it is kept per node.
    pub node: Option<NodeId>,
    /// Its value now.
    pub value: u64,
}

/// Decides which pages are worth moving. Every method has an empty default.
pub trait Rule: std::fmt::Debug + Send {
    /// The rule's name in the configuration.
    fn name(&self) -> &'static str;

    /// The longest access interval that the rule must distinguish from "long ago": the record
    /// layouts derive their resolution from it. S4's precise mode looks 5000 ms back.
    fn window(&self) -> Nanos {
        Nanos::from_ms(5000)
    }

    /// Whether the source must stamp a page again at each scan that finds it still marked (S0,
    /// patch 2); `None` leaves it to the source's configuration.
    fn restamp(&self) -> Option<bool> {
        None
    }

    /// One access to a page of any tier; `record` is stored back afterwards.
    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let _ = (access, record, ctx, out);
    }

    /// A batch of accesses, in order; each goes to [`Rule::on_access`] with its page's record.
    /// There is one call per batch through a `dyn Rule`, so that the inner loop is compiled for
    /// each rule.
    fn on_batch(
        &mut self,
        batch: &[Access],
        table: &mut RecordTable,
        ctx: &Context<'_>,
        out: &mut Candidates,
    ) {
        table.observe(batch, |access, record| self.on_access(access, record, ctx, out));
    }

    /// All regions of an aggregation interval.
    fn on_regions(&mut self, snapshot: &RegionSnapshot, ctx: &Context<'_>, out: &mut Candidates) {
        let _ = (snapshot, ctx, out);
    }

    /// Pages of lower tiers that lie in regions of such a snapshot.
    fn on_region_pages(&mut self, pages: &[RegionPage], ctx: &Context<'_>, out: &mut Candidates) {
        let _ = (pages, ctx, out);
    }

    /// Time passes: thresholds adapt, windows close.
    fn on_tick(&mut self, now: Nanos, nodes: &[NodeState], out: &mut Candidates) {
        let _ = (now, nodes, out);
    }

    /// A move that resulted from the rule's candidate has ended.
    fn on_outcome(&mut self, done: &Move, outcome: Outcome, out: &mut Candidates) {
        let _ = (done, outcome, out);
    }

    /// `pages` base pages of a top-tier node are free for worthwhile promotions. Not called if
    /// nothing is demoted, because a page that fills a node then stays there.
    fn on_spare(&mut self, node: NodeId, pages: u64) {
        let _ = (node, pages);
    }

    /// A demand for cold pages of the top tier has ended.
    fn on_supply(&mut self, supply: &Supply) {
        let _ = supply;
    }

    /// A process has exited, or is not managed any more.
    fn on_exit(&mut self, pid: Pid) {
        let _ = pid;
    }

    /// Figures to export.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// The rule that the configuration names, wrapped in [`Speculative`] and in [`Balance`] if these
/// are switched on.
pub fn build(config: &Config) -> Box<dyn Rule> {
    let life = Nanos::from_ms(config.queue.expire_ms);
    let limit_mbps = config.admission.rate_limit_mbps;
    let (keys, record) = (&config.rule, config.engine.record);
    let rule: Box<dyn Rule> = match keys.name {
        RuleName::Adaptive => Box::new(Adaptive::new(keys, record, life)),
        RuleName::Latency => Box::new(Latency::new(&keys.latency, limit_mbps, life)),
        RuleName::FaultCount => Box::new(FaultCount::new(&keys.fault_count, life)),
        RuleName::InterArrival => Box::new(InterArrival::new(&keys.inter_arrival, limit_mbps, life)),
        RuleName::Frequency => Box::new(Frequency::new(&keys.frequency, record, life)),
        RuleName::Regions => Box::new(Regions::new(&keys.regions, life)),
    };
    let rule: Box<dyn Rule> =
        if keys.speculative.enabled { Box::new(Speculative::new(rule, &keys.speculative)) } else { rule };
    if keys.balance.enabled { Box::new(Balance::new(rule, life)) } else { rule }
}

/// Whether [`build`] makes different rules from the two configurations.
pub fn differs(before: &Config, after: &Config) -> bool {
    let by_rate = matches!(after.rule.name, RuleName::Latency | RuleName::InterArrival);
    before.rule != after.rule
        || before.engine.record != after.engine.record
        || before.queue.expire_ms != after.queue.expire_ms
        || by_rate && before.admission.rate_limit_mbps != after.admission.rate_limit_mbps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_its_rule() {
        for (name, wrap) in RuleName::ALL.into_iter().flat_map(|n| [(n, false), (n, true)]) {
            let mut config = Config::default();
            config.rule.name = name;
            config.rule.speculative.enabled = wrap;
            config.rule.balance.enabled = wrap;
            for gauge in ["neighbours_proposed", "balance_proposed"] {
                assert_eq!(build(&config).gauges().iter().any(|g| g.name == gauge), wrap, "{gauge}");
            }
            assert_eq!(serde_json::to_value(name).unwrap(), build(&config).name());
            assert_eq!(name.text(), build(&config).name());
        }
    }
}
