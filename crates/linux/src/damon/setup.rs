//! The configuration of kdamonds, file by file, in the kernel's units.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thermocline_core::config::{Damon, DamonSource};
use thermocline_core::units::{NodeId, PAGE_SHIFT, PAGE_SIZE};

use super::cgroups::Whose;
use super::{Action, Scheme, filters, kdamond_folder, scheme_folder};
use crate::root::Root;
use crate::topology::PfnRange;

/// Aggregations from one adjustment of the intervals to the next, and the bounds of the sampling
/// interval, us (Linux 7.2 samples/damon/mtier.c).
const TUNE_AGGREGATIONS: u64 = 3;
const TUNE_SAMPLE_US: (u64, u64) = (5_000, 10_000_000);
/// Time between two checks of the watermarks, us (Linux 6.12 mm/damon/reclaim.c).
const WATERMARKS_US: u64 = 5_000_000;

/// Where the intervals of a kdamond's only context are, below its folder.
const INTERVALS: &str = "contexts/0/monitoring_attrs/intervals";
/// Where the regions of a kdamond's only target are, below its folder.
const REGIONS: &str = "contexts/0/targets/0/regions";

/// A node with a kdamond.
pub(super) struct Watched {
    pub(super) node: NodeId,
    /// Its memory.
    pub(super) ranges: Vec<PfnRange>,
    /// Target of accessed regions; `None` for the top tier.
    pub(super) up: Option<NodeId>,
    /// Target of unaccessed regions; `None` for the lowest tier.
    pub(super) down: Option<NodeId>,
}

/// How a kdamond watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watching {
    pub(super) sample_ms: u64,
    pub(super) aggregation_ms: u64,
    pub(super) update_ms: u64,
    pub(super) regions_min: u64,
    pub(super) regions_max: u64,
    pub(super) access_goal_bp: Option<u32>,
}

impl From<&Damon> for Watching {
    fn from(keys: &Damon) -> Watching {
        Watching {
            sample_ms: keys.sample_ms,
            aggregation_ms: keys.aggregation_ms,
            update_ms: keys.update_ms,
            regions_min: keys.regions_min,
            regions_max: keys.regions_max,
            access_goal_bp: keys.access_goal_bp,
        }
    }
}

impl From<&DamonSource> for Watching {
    fn from(keys: &DamonSource) -> Watching {
        Watching {
            sample_ms: keys.sample_ms,
            aggregation_ms: keys.aggregation_ms,
            update_ms: keys.update_ms,
            regions_min: keys.regions_min,
            regions_max: keys.regions_max,
            access_goal_bp: keys.access_goal_bp,
        }
    }
}

/// Files and values, in order.
#[derive(Default)]
pub(super) struct Fills(pub(super) Vec<(PathBuf, String)>);

impl Fills {
    pub(super) fn add(&mut self, folder: &Path, pairs: &[(&str, &dyn ToString)]) {
        self.0.extend(pairs.iter().map(|(name, value)| (folder.join(name), value.to_string())));
    }
}

/// The writes for these nodes, in order, and the resulting schemes.
pub(super) fn fills(
    root: &Root,
    damon: &Damon,
    watched: &[Watched],
    whose: &Whose,
) -> (Vec<(PathBuf, String)>, Vec<Scheme>) {
    let (mut fills, mut all) = (Fills::default(), Vec::new());
    for (kdamond, node) in watched.iter().enumerate() {
        let folder = kdamond_folder(root, kdamond);
        let scheme = |action, to: Option<NodeId>| to.map(|to| (action, to));
        let moves = [scheme(Action::MigrateHot, node.up), scheme(Action::MigrateCold, node.down)]
            .into_iter()
            .flatten();
        let schemes: Vec<Scheme> = moves
            .enumerate()
            .map(|(number, (action, to))| Scheme { kdamond, number, action, from: node.node, to })
            .collect();
        context(&mut fills, &folder, damon.into(), Some(&node.ranges), schemes.len());
        for scheme in &schemes {
            fill_scheme(&mut fills, &scheme_folder(&folder, scheme.number), damon, scheme, whose);
        }
        all.extend(schemes);
    }
    (fills.0, all)
}

/// The writes with which nodes are only watched.
pub(super) fn watch_nodes(root: &Root, damon: &DamonSource, watched: &[Watched]) -> Vec<(PathBuf, String)> {
    let mut fills = Fills::default();
    for (kdamond, node) in watched.iter().enumerate() {
        context(&mut fills, &kdamond_folder(root, kdamond), damon.into(), Some(&node.ranges), 0);
    }
    fills.0
}

/// The same for processes, which are named later.
pub(super) fn watch_processes(root: &Root, damon: &DamonSource, kdamonds: usize) -> Vec<(PathBuf, String)> {
    let mut fills = Fills::default();
    for kdamond in 0..kdamonds {
        context(&mut fills, &kdamond_folder(root, kdamond), damon.into(), None, 0);
    }
    fills.0
}

/// A kdamond that watches `frames`, or the addresses of a process.
pub(super) fn context(
    fills: &mut Fills,
    kdamond: &Path,
    damon: Watching,
    frames: Option<&[PfnRange]>,
    schemes: usize,
) {
    fills.add(&kdamond.join("contexts"), &[("nr_contexts", &1)]);
    let context = kdamond.join("contexts/0");
    // For a process the mapped ranges are set when there is one: by default DAMON would include
    // most holes.
    fills.add(&context, &[("operations", &if frames.is_some() { "paddr" } else { "fvaddr" })]);
    let intervals = kdamond.join(INTERVALS);
    fills.add(
        &intervals,
        &[
            ("sample_us", &(damon.sample_ms * 1000)),
            ("aggr_us", &(damon.aggregation_ms * 1000)),
            ("update_us", &(damon.update_ms * 1000)),
        ],
    );
    if let Some(goal) = damon.access_goal_bp {
        let (min, max) = TUNE_SAMPLE_US;
        fills.add(
            &intervals.join("intervals_goal"),
            &[
                ("access_bp", &goal),
                ("aggrs", &TUNE_AGGREGATIONS),
                ("min_sample_us", &min),
                ("max_sample_us", &max),
            ],
        );
    }
    let regions = [("min", &damon.regions_min as &dyn ToString), ("max", &damon.regions_max)];
    fills.add(&context.join("monitoring_attrs/nr_regions"), &regions);
    fills.add(&context.join("targets"), &[("nr_targets", &1)]);
    let bytes = |range: &PfnRange| range.start.0 << PAGE_SHIFT..range.end.0 << PAGE_SHIFT;
    let frames: Vec<Range<u64>> = frames.unwrap_or_default().iter().map(bytes).collect();
    fills.0.extend(ranges(&frames).map(|(file, value)| (kdamond.join(file), value)));
    fills.add(&context.join("schemes"), &[("nr_schemes", &schemes)]);
}

/// The writes that change how often a kdamond checks and counts: files below its folder, and
/// values.
pub(crate) fn intervals(damon: &DamonSource) -> [(String, String); 2] {
    let file = |name: &str, ms: u64| (format!("{INTERVALS}/{name}"), (ms * 1000).to_string());
    [file("sample_us", damon.sample_ms), file("aggr_us", damon.aggregation_ms)]
}

/// The writes that make a kdamond watch these addresses: files below its folder, and values.
pub(crate) fn ranges(ranges: &[Range<u64>]) -> impl Iterator<Item = (String, String)> {
    let number = (format!("{REGIONS}/nr_regions"), ranges.len().to_string());
    let each = |(i, range): (usize, &Range<u64>)| {
        let file = move |name: &str| format!("{REGIONS}/{i}/{name}");
        [(file("start"), range.start.to_string()), (file("end"), range.end.to_string())]
    };
    std::iter::once(number).chain(ranges.iter().enumerate().flat_map(each))
}

fn fill_scheme(fills: &mut Fills, folder: &Path, damon: &Damon, scheme: &Scheme, whose: &Whose) {
    let hot = scheme.action == Action::MigrateHot;
    fills.add(folder, &[("action", &scheme.action.text()), ("target_nid", &scheme.to.0)]);
    let pattern = folder.join("access_pattern");
    let mut range =
        |name, min: u64, max: u64| fills.add(&pattern.join(name), &[("min", &min), ("max", &max)]);
    range("sz", PAGE_SIZE, u64::MAX);
    if hot {
        range("nr_accesses", (damon.samples() * damon.hot_percent).div_ceil(100).max(1), damon.samples());
        range("age", 0, u32::MAX.into());
    } else {
        range("nr_accesses", 0, 0);
        range("age", damon.cold_ms.div_ceil(damon.aggregation_ms.max(1)), u32::MAX.into());
    }

    let quotas = folder.join("quotas");
    let time_ms = if hot { damon.promote_time_ms } else { damon.demote_time_ms };
    let bytes = damon.quota_mib << 20;
    fills.add(&quotas, &[("ms", &time_ms), ("bytes", &bytes), ("reset_interval_ms", &damon.quota_ms)]);
    fills.add(
        &quotas.join("weights"),
        &[
            ("sz_permil", &damon.weight_size_permille),
            ("nr_accesses_permil", &damon.weight_accesses_permille),
            ("age_permil", &damon.weight_age_permille),
        ],
    );
    // Promotion fills its target node, demotion empties its source node.
    let goal = match scheme.action {
        Action::MigrateHot => damon.used_goal_bp.map(|bp| ("node_mem_used_bp", bp, scheme.to)),
        Action::MigrateCold => damon.free_goal_bp.map(|bp| ("node_mem_free_bp", bp, scheme.from)),
    };
    if let Some((metric, value, node)) = goal {
        let goals = quotas.join("goals");
        fills.add(&goals, &[("nr_goals", &1)]);
        fills
            .add(&goals.join("0"), &[("target_metric", &metric), ("target_value", &value), ("nid", &node.0)]);
    }

    let marks = (damon.watermark_high_permille, damon.watermark_mid_permille, damon.watermark_low_permille);
    if let (false, (Some(high), Some(mid), Some(low))) = (hot, marks) {
        let every = WATERMARKS_US;
        fills.add(
            &folder.join("watermarks"),
            &[
                ("metric", &"free_mem_rate"),
                ("interval_us", &every),
                ("high", &high),
                ("mid", &mid),
                ("low", &low),
            ],
        );
    }

    filters::fill(fills, folder, scheme.action, damon.young, whose);
}
