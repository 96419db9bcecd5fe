//! Kdamonds that demote nothing before they are told how much: one for every node of the top tier, with one scheme, whose quota is closed.

use std::path::PathBuf;

use thermocline_core::units::PAGE_SIZE;

use super::setup::{Fills, Watched, Watching, context};
use super::{Action, Scheme, kdamond_folder, scheme_folder};
use crate::root::Root;

/// Time between two looks at a page of each region. Ours: 1,000 regions then take a few percent of a CPU.
const SAMPLE_MS: u64 = 25;
/// Time in which accesses are counted; the unit of a region's age.
pub(crate) const AGGREGATION_MS: u64 = 250;
/// Memory of a node for each region that it may be divided into, where that are fewer than the most.
const PAGES_A_REGION: u64 = 512;
const REGIONS_MIN: u64 = 50;
const REGIONS_MAX: u64 = 1_000;
/// Time for which a quota is given. It is given once, and closed before that is over.
pub(crate) const WINDOW_MS: u64 = 1_000;
/// A quota by which nothing goes, for it is less than a page. 0 would be none.
pub(crate) const CLOSED_BYTES: u64 = 1;

/// Files of a kdamond's only scheme, below its folder.
pub(crate) mod file {
    /// Bytes that may be tried in a window.
    pub(crate) const QUOTA: &str = "contexts/0/schemes/0/quotas/bytes";
    /// Aggregations for which a region has not been accessed, at least.
    pub(crate) const AGE: &str = "contexts/0/schemes/0/access_pattern/age/min";
    /// Bytes tried since the start.
    pub(crate) const TRIED: &str = "contexts/0/schemes/0/stats/sz_tried";
    /// Bytes moved since the start.
    pub(crate) const MOVED: &str = "contexts/0/schemes/0/stats/sz_applied";
    /// What is to be done.
    pub(crate) const STATE: &str = "state";
}

/// What is to be written for these nodes, in order, and the schemes that it makes.
pub(super) fn fills(root: &Root, watched: &[Watched]) -> (Vec<(PathBuf, String)>, Vec<Scheme>) {
    let (mut fills, mut schemes) = (Fills::default(), Vec::new());
    for (kdamond, node) in watched.iter().enumerate() {
        let Some(to) = node.down else { continue };
        let pages: u64 = node.ranges.iter().map(|range| range.end.0 - range.start.0).sum();
        let regions_max = (pages / PAGES_A_REGION).clamp(2 * REGIONS_MIN, REGIONS_MAX);
        let watching = Watching {
            sample_ms: SAMPLE_MS,
            aggregation_ms: AGGREGATION_MS,
            update_ms: 4 * AGGREGATION_MS,
            regions_min: REGIONS_MIN,
            regions_max,
            access_goal_bp: None,
        };
        let folder = kdamond_folder(root, kdamond);
        context(&mut fills, &folder, watching, Some(&node.ranges), 1);
        let scheme = scheme_folder(&folder, 0);
        fills.add(&scheme, &[("action", &Action::MigrateCold.text()), ("target_nid", &to.0)]);
        let pattern = scheme.join("access_pattern");
        for (name, min, max) in
            [("sz", PAGE_SIZE, u64::MAX), ("nr_accesses", 0, 0), ("age", 1, u32::MAX.into())]
        {
            fills.add(&pattern.join(name), &[("min", &min), ("max", &max)]);
        }
        let quotas = scheme.join("quotas");
        fills.add(&quotas, &[("ms", &0), ("bytes", &CLOSED_BYTES), ("reset_interval_ms", &WINDOW_MS)]);
        // Those that have been idle for longest go first.
        let weights: [(&str, &dyn ToString); 3] =
            [("sz_permil", &0), ("nr_accesses_permil", &0), ("age_permil", &1000)];
        fills.add(&quotas.join("weights"), &weights);
        schemes.push(Scheme {
            kdamond,
            number: 0,
            action: Action::MigrateCold,
            from: node.node,
            to,
        });
    }
    (fills.0, schemes)
}
