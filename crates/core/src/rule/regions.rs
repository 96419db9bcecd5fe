//! Rule `regions`: memory that DAMON finds accessed, by its own hot score.
//!
//! For each page of a lower tier that lies in a region:
//! 1. A region's hot score, 0 to 99, is half how many of the checks found it accessed, half for how
//!    long it has been so (the bits of its age in seconds), by the weights
//!    `weight_accesses_permille` and `weight_age_permille` (100, 100).
//! 2. It is hot where `hot_percent` (5) of the checks found it accessed and this has been so for
//!    `age_min_ms` (0).
//! 3. Only hot regions are taken for which the top tier would have room if all hot memory moved
//!    there: the latest regions of every watched node or process, including those of the top tier,
//!    are added up from the highest score down until they reach fifteen sixteenths of its memory.
//! 4. Each of its pages is proposed, ranked by the access interval that follows from the share of
//!    the checks: the same scale as for other sources, so that demotion can find far colder pages.
//!
//! A region is a prior: its pages are alike as far as DAMON has split it. Pages in it that are not
//! accessed are promoted with it, and demoted again like any other.
//!
//! Source: S3, `DAMOS_PROMOTE`, now `migrate_hot`; score: Linux 6.12 mm/damon/ops-common.c;
//! threshold: HMSDK; weights: Linux 7.2 samples/damon/mtier.c. There a quota in bytes chooses the
//! lowest score, here the size of the top tier does: a region with a lower score would only push
//! out one with a higher score.

use std::collections::BTreeMap;

use crate::access::{Region, RegionPage, RegionSnapshot, RegionSpace, Source};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::moves::Direction;
use crate::published::damon::{SCORE_MAX, Weights, hot_score};
use crate::rule::{Context, Gauge, Rule};
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, Pid};

/// Maximum number of nodes and processes whose regions are kept; others are ignored.
const SPACES_MAX: usize = 4096;
/// How long regions count: three aggregations that are ten times as long as HMSDK's.
const SPACE_LIFE: Nanos = Nanos::from_s(60);

/// Hot pages by score.
type Histogram = [u64; SCORE_MAX as usize + 1];

/// The latest regions of one node or process.
#[derive(Clone, Debug)]
struct Space {
    snapshot: u64,
    time: Nanos,
    hot: Histogram,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Regions {
    hot_bp: u16,
    age_min: Nanos,
    weights: Weights,
    life: Nanos,
    spaces: BTreeMap<RegionSpace, Space>,
    /// Snapshots so far.
    snapshots: u64,
    /// Scores from this one up are taken.
    cut: u32,
}

impl Regions {
    /// The rule with its keys; candidates live for `life`.
    pub fn new(config: &config::rule::Regions, life: Nanos) -> Regions {
        Regions {
            hot_bp: u16::try_from(config.hot_percent * 100).unwrap_or(u16::MAX),
            age_min: Nanos::from_ms(config.age_min_ms),
            weights: Weights { accesses: config.weight_accesses_permille, age: config.weight_age_permille },
            life,
            spaces: BTreeMap::new(),
            snapshots: 0,
            cut: 0,
        }
    }

    /// The score of a region; `None` if it is not hot.
    fn score(&self, region: &Region) -> Option<u32> {
        let hot = region.access_rate_bp >= self.hot_bp && region.age >= self.age_min;
        hot.then(|| hot_score(region.access_rate_bp.into(), 10_000, region.age, self.weights))
    }

    fn note(&mut self, region: &Region, time: Nanos) {
        let room = self.spaces.len() < SPACES_MAX || self.spaces.contains_key(&region.space);
        let Some(score) = self.score(region).map(|score| score as usize).filter(|_| room) else { return };
        if let Some(space) = self.spaces.get_mut(&region.space)
            && let Some(sum) = space.hot.get_mut(score)
        {
            *sum = sum.saturating_add(region.pages());
            space.time = time;
        }
    }

    /// The lowest score for whose pages, with those of all higher scores, the top tier has room; at
    /// least the highest score present is taken.
    fn find_cut(&self, topology: &Topology) -> u32 {
        let top = topology.nodes.iter().filter(|n| topology.is_top(n.id));
        let capacity: u64 = top.map(|n| n.capacity_pages).sum();
        let room = capacity - capacity / 16;
        let (mut sum, mut cut) = (0u64, 0);
        for score in (0..=SCORE_MAX).rev() {
            let pages = self.spaces.values().fold(0u64, |all, s| all.saturating_add(s.hot[score as usize]));
            if pages > 0 {
                sum = sum.saturating_add(pages);
                if sum > room {
                    return if sum == pages { score } else { cut };
                }
            }
            cut = score;
        }
        0
    }
}

impl Rule for Regions {
    fn name(&self) -> &'static str {
        "regions"
    }

    fn on_regions(&mut self, snapshot: &RegionSnapshot, ctx: &Context<'_>, _out: &mut Candidates) {
        self.snapshots += 1;
        for region in &snapshot.regions {
            let known = self.spaces.get(&region.space).is_some_and(|s| s.snapshot == self.snapshots);
            if !known && (self.spaces.len() < SPACES_MAX || self.spaces.contains_key(&region.space)) {
                let hot = [0; SCORE_MAX as usize + 1];
                let fresh = Space { snapshot: self.snapshots, time: snapshot.time, hot };
                self.spaces.insert(region.space, fresh);
            }
            self.note(region, snapshot.time);
        }
        self.cut = self.find_cut(ctx.topology);
    }

    fn on_region_pages(&mut self, pages: &[RegionPage], ctx: &Context<'_>, out: &mut Candidates) {
        for at in pages.iter().filter(|at| ctx.topology.is_lower(at.node)) {
            let hot = self.score(&at.region).is_some_and(|score| score >= self.cut);
            let Some(gap) = at.region.gap().filter(|_| hot) else { continue };
            // As for waits, the access rate per page of DRAM matters.
            let gap = Nanos(gap.0.saturating_mul(1 << at.order));
            out.push(Candidate {
                page: Some(at.page),
                pfn: at.pfn,
                order: at.order,
                from: at.node,
                target: None,
                accessor: None,
                direction: Direction::Promote,
                score: score_of_rate(gap),
                reason: Reason::HotRegion,
                source: Source::Damon,
                time: at.time,
                expires: at.time.plus(self.life),
            });
        }
    }

    fn on_exit(&mut self, pid: Pid) {
        self.spaces.remove(&RegionSpace::Virtual(pid));
    }

    fn on_tick(&mut self, now: Nanos, _nodes: &[NodeState], _out: &mut Candidates) {
        self.spaces.retain(|_, space| now.since(space.time) < SPACE_LIFE);
    }

    fn gauges(&self) -> Vec<Gauge> {
        if self.spaces.is_empty() {
            return Vec::new();
        }
        let gauge = |name, value| Gauge { name, node: None, value };
        let all = self.spaces.values().flat_map(|s| s.hot);
        let hot: u64 = all.fold(0, u64::saturating_add);
        vec![gauge("region_cut_score", self.cut.into()), gauge("region_hot_pages", hot)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::NoMappings;
    use crate::rule::testing::topology;
    use crate::units::{NodeId, Pfn, VirtPage};

    /// Frames of one node of the tests' machine; the top tier has two of them.
    const NODE: u64 = 1 << 20;

    fn rule() -> Regions {
        Regions::new(&config::rule::Regions::default(), Nanos::from_s(10))
    }

    /// A region of `pages` of node `node`, found accessed in `percent` of the checks for `age_s`.
    fn region(node: u16, start: u64, pages: u64, percent: u16, age_s: u64) -> Region {
        Region {
            space: RegionSpace::Physical(NodeId(node)),
            start,
            end: start + pages,
            access_rate_bp: percent * 100,
            age: Nanos::from_s(age_s),
            check: Nanos::from_ms(5),
        }
    }

    fn tell(rule: &mut Regions, regions: &[Region]) {
        let snapshot = RegionSnapshot { time: Nanos::from_s(1), regions: regions.to_vec() };
        let topology = topology();
        let ctx = Context { topology: &topology, frequency_max: 1, mappings: &NoMappings };
        rule.on_regions(&snapshot, &ctx, &mut Candidates::new(0));
    }

    /// The candidates of one page in each region, which lies on node `node`.
    fn propose(rule: &mut Regions, node: u16, order: u8, regions: &[Region]) -> Vec<Candidate> {
        let page = |region: &Region| RegionPage {
            page: VirtPage { pid: Pid(1), vpn: region.start },
            pfn: Some(Pfn(region.start)),
            order,
            node: NodeId(node),
            region: *region,
            time: Nanos::from_s(1),
        };
        let pages: Vec<RegionPage> = regions.iter().map(page).collect();
        let topology = topology();
        let ctx = Context { topology: &topology, frequency_max: 1, mappings: &NoMappings };
        let mut out = Candidates::new(100);
        rule.on_region_pages(&pages, &ctx, &mut out);
        out.drain().collect()
    }

    #[test]
    fn pages_of_hot_regions_of_lower_tiers_are_proposed_the_hottest_first() {
        let mut rule = rule();
        let regions = [region(2, 0, 512, 100, 9), region(2, 512, 512, 30, 9), region(2, 1024, 512, 4, 9)];
        tell(&mut rule, &regions);
        let proposed = propose(&mut rule, 2, 0, &regions);
        let pages: Vec<u64> = proposed.iter().map(|c| c.page.unwrap().vpn).collect();
        assert_eq!(pages, [0, 512], "4 % of the checks are too few");
        assert!(proposed[0].score > proposed[1].score);
        let first = proposed[0];
        assert_eq!((first.reason, first.source), (Reason::HotRegion, Source::Damon));
        assert_eq!(
            (first.from, first.direction, first.expires),
            (NodeId(2), Direction::Promote, Nanos::from_s(11))
        );
        assert!(propose(&mut rule, 0, 0, &regions).is_empty(), "they are in the top tier already");
    }

    #[test]
    fn only_what_the_top_tier_has_room_for_goes_up() {
        let mut rule = rule();
        let (warm, hot) = (region(2, 0, NODE, 40, 9), region(2, NODE, NODE, 90, 9));
        let top = [region(0, 0, NODE, 60, 9), region(1, 0, 512, 0, 9)];
        tell(&mut rule, &top);
        tell(&mut rule, &[warm, hot]);
        // Two nodes compete for pages accessed in 90 %, then 60 %, then 40 % of the checks.
        let pages = |rule: &mut Regions| {
            let proposed = propose(rule, 2, 0, &[warm, hot]);
            proposed.iter().map(|c| c.page.unwrap().vpn).collect::<Vec<_>>()
        };
        assert_eq!(pages(&mut rule), [NODE]);
        // Formerly hot memory of the top tier is no longer hot.
        tell(&mut rule, &[region(0, 0, NODE / 2, 60, 9), region(0, NODE / 2, NODE / 2, 0, 9)]);
        assert_eq!(pages(&mut rule), [NODE], "still more than fifteen sixteenths");
        tell(&mut rule, &[region(0, 0, NODE, 0, 9)]);
        tell(&mut rule, &[region(2, 0, NODE / 2, 40, 9), hot]);
        assert_eq!(pages(&mut rule), [0, NODE]);
    }

    #[test]
    fn what_is_hottest_goes_up_even_if_it_is_too_much() {
        let mut rule = rule();
        let hot = region(2, 0, 8 * NODE, 90, 9);
        tell(&mut rule, &[hot, region(2, 8 * NODE, 1, 50, 9)]);
        assert_eq!(propose(&mut rule, 2, 0, &[hot]).len(), 1);
        assert!(propose(&mut rule, 2, 0, &[region(2, 8 * NODE, 1, 50, 9)]).is_empty());
    }

    #[test]
    fn a_process_that_is_gone_takes_no_room() {
        let mut rule = rule();
        let of = |pid: u32| Region { space: RegionSpace::Virtual(Pid(pid)), ..region(2, 0, 2 * NODE, 50, 9) };
        tell(&mut rule, &[Region { access_rate_bp: 9000, ..of(1) }]);
        tell(&mut rule, &[of(2)]);
        assert!(propose(&mut rule, 2, 0, &[of(2)]).is_empty(), "the hotter one fills the top tier");
        rule.on_exit(Pid(1));
        tell(&mut rule, &[of(2)]);
        assert_eq!(propose(&mut rule, 2, 0, &[of(2)]).len(), 1);
    }

    #[test]
    fn age_counts_and_a_huge_page_is_ranked_by_base_page() {
        let mut young = rule();
        young.age_min = Nanos::from_s(5);
        let regions = [region(2, 0, 512, 100, 4), region(2, 512, 512, 100, 5)];
        tell(&mut young, &regions);
        assert_eq!(propose(&mut young, 2, 0, &regions).len(), 1);
        let (base, huge) =
            (propose(&mut young, 2, 0, &regions[1..])[0], propose(&mut young, 2, 9, &regions[1..])[0]);
        assert_eq!(base.score - huge.score, 9 * 64, "512 times the time between accesses");
    }

    #[test]
    fn regions_that_are_told_no_more_are_forgotten() {
        let mut rule = rule();
        tell(&mut rule, &[region(0, 0, 4 * NODE, 100, 9)]);
        assert_eq!(rule.gauges().len(), 2);
        rule.on_tick(Nanos::from_s(61), &[], &mut Candidates::new(0));
        assert!(rule.gauges().is_empty());
    }
}
