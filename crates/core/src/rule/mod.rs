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

use crate::access::{Access, Mappings, RegionPage, RegionSnapshot, Source};
use crate::config::{Config, RuleName};
use crate::demotion::Supply;
use crate::moves::{Direction, Move, Outcome};
use crate::record::RecordTable;
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

/// What is remembered of a page, decoded from whichever layout holds it.
///
/// A rule sees the record as it was before the access and leaves it as it shall be afterwards. The time of the
/// access and, where known, the accessing node are stored by the layout itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Accesses that counted; the layout saturates it at [`Context::frequency_max`].
    pub frequency: u8,
    /// Time since the last recorded access, as exactly as the layout can tell; `None` where there was none, or
    /// longer ago than the layout reaches. The published layouts alias: their gap is modulo their wrap.
    pub gap: Option<Nanos>,
    /// The node that accessed it last, where the layout keeps it.
    pub node: Option<NodeId>,
    /// The rule found the page hot and it has neither moved nor gone cold since.
    pub ready: bool,
}

/// Why a rule proposes a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The hint-fault latency is below the threshold.
    ShortLatency,
    /// Few hint faults between scan and access.
    FewFaults,
    /// Two samples of the page came soon after one another.
    ShortInterval,
    /// Accessed often enough within the window.
    Frequent,
    /// Its estimated access rate stands out from the rest of its tier.
    HighRate,
    /// Its target has room to spare: for all that lower tiers hold, or nothing stands out and it is among the more often accessed.
    FreeRoom,
    /// Nothing stands out, it is among the more often accessed, and its full target may hold what is colder by far.
    Exchange,
    /// The neighbour of a hot page in a stream.
    Neighbour,
    /// It lies in a hot region.
    HotRegion,
    /// It lies in a cold region.
    ColdRegion,
    /// Another node of its tier accesses it.
    RemoteAccess,
}

/// A page that a rule proposes to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The page to move; without it a candidate cannot be moved live (physical evidence awaits a reverse map).
    pub page: Option<VirtPage>,
    /// Its frame.
    pub pfn: Option<Pfn>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// Where it is.
    pub from: NodeId,
    /// Where the rule wants it; `None` leaves the choice to admission (nearest top-tier node to the accessor).
    pub target: Option<NodeId>,
    /// The node that accesses it, where known.
    pub accessor: Option<NodeId>,
    /// Which way.
    pub direction: Direction,
    /// Rank: the candidate with the highest score moves first. Rules that know a rate use [`score_of_rate`].
    pub score: u16,
    /// Why.
    pub reason: Reason,
    /// Where the evidence came from that made the rule propose it.
    pub source: Source,
    /// When it was proposed.
    pub time: Nanos,
    /// When the proposal is too old to act on.
    pub expires: Nanos,
}

impl Candidate {
    /// The proposal to promote the folio that was accessed. The target is left to admission; the candidate expires
    /// `life` after the access.
    #[inline]
    pub fn promotion(access: &Access, score: u16, reason: Reason, life: Nanos) -> Candidate {
        Candidate {
            page: access.page,
            pfn: access.pfn,
            order: access.order,
            from: access.node,
            target: None,
            accessor: access.accessor,
            direction: Direction::Promote,
            score,
            reason,
            source: access.detail.source(),
            time: access.time,
            expires: access.time.plus(life),
        }
    }
}

/// The score of a page whose accesses are about `gap` apart: 2000 minus 64 times log2 of the gap in µs, so that scores
/// of rules and sources that measure a rate can be compared. 1 µs gives 2000, 1 ms about 1362, 1 s about 724.
pub fn score_of_rate(gap: Nanos) -> u16 {
    let us = (gap.0 / 1000).max(1);
    let whole = us.ilog2();
    // Sixty-fourths of an octave, linear inside it: monotone, and integer on every machine.
    // Below 2^55 µs the product fits: no gap in ns is longer.
    let part = (((us - (1 << whole)) << 6) >> whole) as u32;
    2000u32.saturating_sub(whole * 64 + part) as u16
}

/// The gap of a record, where it tells how far accesses are apart: of none at all, evidence came late, after some of another source, or closer than the record can tell.
fn told(gap: Option<Nanos>) -> Option<Nanos> {
    gap.filter(|gap| gap.0 > 0)
}

/// The gap that has a score, near enough: the inverse of [`score_of_rate`]. The lowest scores stand for 36 minutes and more.
pub fn gap_of_score(score: u16) -> Nanos {
    let sixty_fourths = 2000u32.saturating_sub(score.into());
    let (whole, part) = (sixty_fourths / 64, u64::from(sixty_fourths % 64));
    // At most 31 octaves: it fits.
    Nanos(((1u64 << whole) * 1000 * (64 + part)) / 64)
}

/// Collects the candidates of a rule; bounded, so that a rule that goes wild cannot take the machine's memory.
#[derive(Debug)]
pub struct Candidates {
    items: Vec<Candidate>,
    limit: usize,
    dropped: u64,
}

impl Candidates {
    /// A collector of at most `limit` candidates.
    pub fn new(limit: usize) -> Candidates {
        Candidates { items: Vec::new(), limit, dropped: 0 }
    }

    /// Takes a candidate, or counts it as dropped where the collector is full.
    pub fn push(&mut self, candidate: Candidate) {
        if self.items.len() < self.limit {
            self.items.push(candidate);
        } else {
            self.dropped += 1;
        }
    }

    /// The candidates so far, oldest first.
    pub fn items(&self) -> &[Candidate] {
        &self.items
    }

    /// Removes and yields all candidates, keeping the memory for the next round.
    pub fn drain(&mut self) -> impl Iterator<Item = Candidate> + '_ {
        self.items.drain(..)
    }

    /// Candidates that did not fit since the collector was made.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// What a rule may know besides the access and its record.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// The highest frequency that the record layout can hold.
    pub frequency_max: u8,
    /// The mappings behind the accesses.
    pub mappings: &'a dyn Mappings,
}

/// A figure that a rule shows of itself, such as its current threshold.
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

    /// The longest time between two accesses of a page that the rule wants told from "long ago": the record layouts
    /// choose their resolution by it. S4's precise mode looks 5000 ms back.
    fn window(&self) -> Nanos {
        Nanos::from_ms(5000)
    }

    /// Whether the source must stamp a page again at each scan that finds it still marked (S0, patch 2); `None` where the
    /// rule leaves it to the source's configuration.
    fn restamp(&self) -> Option<bool> {
        None
    }

    /// The period in micro-operations that hardware should be sampled with now; `None` where the rule has no wish.
    fn sample_period_uops(&self) -> Option<u32> {
        None
    }

    /// One access to a page of any tier; `record` is stored back afterwards.
    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let _ = (access, record, ctx, out);
    }

    /// A batch of accesses, in order; each goes to [`Rule::on_access`] with its page's record. One call a batch through
    /// a `dyn Rule`, so that the loop within is compiled for each rule.
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

    /// A move that the rule's candidate led to has ended.
    fn on_outcome(&mut self, done: &Move, outcome: Outcome, out: &mut Candidates) {
        let _ = (done, outcome, out);
    }

    /// So many base pages of a top-tier node are free for whatever is worth it. Where nothing is demoted it is not told: what fills a node then stays.
    fn on_spare(&mut self, node: NodeId, pages: u64) {
        let _ = (node, pages);
    }

    /// Cold pages of the top tier were asked for.
    fn on_supply(&mut self, supply: &Supply) {
        let _ = supply;
    }

    /// A process is gone, or not managed any more.
    fn on_exit(&mut self, pid: Pid) {
        let _ = pid;
    }

    /// Figures worth showing.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// The rule that the configuration names, wrapped in [`Speculative`] and in [`Balance`] if these are switched on.
pub fn build(config: &Config) -> Box<dyn Rule> {
    let life = Nanos::from_ms(config.queue.expire_ms);
    let limit_mbps = config.admission.rate_limit_mbps;
    let keys = &config.rule;
    let rule: Box<dyn Rule> = match keys.name {
        RuleName::Adaptive => Box::new(Adaptive::new(keys, life)),
        RuleName::Latency => Box::new(Latency::new(&keys.latency, limit_mbps, life)),
        RuleName::FaultCount => Box::new(FaultCount::new(&keys.fault_count, life)),
        RuleName::InterArrival => Box::new(InterArrival::new(&keys.inter_arrival, limit_mbps, life)),
        RuleName::Frequency => Box::new(Frequency::new(&keys.frequency, life)),
        RuleName::Regions => Box::new(Regions::new(&keys.regions, life)),
    };
    let rule: Box<dyn Rule> =
        if keys.speculative.enabled { Box::new(Speculative::new(rule, &keys.speculative)) } else { rule };
    if keys.balance.enabled { Box::new(Balance::new(rule, life)) } else { rule }
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

    #[test]
    fn scores_fall_with_the_gap_and_span_the_useful_range() {
        assert_eq!(score_of_rate(Nanos(0)), 2000);
        assert_eq!(score_of_rate(Nanos::from_ms(1)), 2000 - (9 * 64 + 61));
        assert_eq!(score_of_rate(Nanos::from_s(1)), 2000 - (19 * 64 + 58));
        let mut last = u16::MAX;
        for us in 1..100_000u64 {
            let score = score_of_rate(Nanos(us * 1000));
            assert!(score <= last);
            last = score;
        }
        assert!(score_of_rate(Nanos(u64::MAX)) < 100);
    }

    #[test]
    fn a_score_tells_its_gap_again() {
        for us in [1u64, 7, 1000, 229_376, 1_000_000, 1_000_000_000] {
            let gap = gap_of_score(score_of_rate(Nanos(us * 1000))).0 as f64 / 1000.0;
            assert!((gap / us as f64 - 1.0).abs() < 1.0 / 64.0, "{us}: {gap}");
        }
        assert_eq!(gap_of_score(u16::MAX), Nanos(1000));
    }
}
