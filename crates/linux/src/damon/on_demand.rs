//! Kdamonds that demote only on demand: one for every node of the top tier, which gets its only
//! scheme with the first demand.
//!
//! A quota takes effect at the beginning of its window: some kernels (6.12.117) apply a scheme
//! without any limit until its second window begins. So a scheme is first *loaded*: it gets its
//! quota, with a pattern that matches no region. It is *fired* once the quota is in effect.

use std::path::PathBuf;

use thermocline_core::units::{NodeId, PAGE_SIZE};

use super::setup::{Fills, Watched, Watching, context};
use super::{Action, Scheme, kdamond_folder};
use crate::root::Root;

/// Time between two checks of a page of each region. Ours: 1,000 regions then take a few percent of
/// a CPU.
const SAMPLE_MS: u64 = 25;
/// Time in which accesses are counted; the unit of a region's age.
pub(crate) const AGGREGATION_MS: u64 = 250;
/// Pages of a node per region, unless that exceeds the maximum number of regions.
const PAGES_A_REGION: u64 = 512;
const REGIONS_MIN: u64 = 50;
const REGIONS_MAX: u64 = 1_000;
/// The window of a quota: a day, so that a scheme never gets a second quota before it is loaded
/// again.
const WINDOW_MS: u64 = 86_400_000;
/// While loading, a new window begins whenever the kdamond checks the scheme.
const LOADING_WINDOW_MS: u64 = 1;
/// An age that no region reaches, in aggregations.
const NEVER: u64 = u32::MAX as u64;

/// Files of a kdamond, below its folder.
pub(crate) mod file {
    /// Number of its schemes: one from the first demand on.
    pub(crate) const SCHEMES: &str = "contexts/0/schemes/nr_schemes";
    /// The only scheme.
    pub(super) const SCHEME: &str = "contexts/0/schemes/0";
    /// Its quota in bytes, as known to the kdamond.
    pub(crate) const QUOTA: &str = "contexts/0/schemes/0/quotas/effective_bytes";
    /// Bytes that it has tried.
    pub(crate) const TRIED: &str = "contexts/0/schemes/0/stats/sz_tried";
    /// Bytes that it has moved.
    pub(crate) const MOVED: &str = "contexts/0/schemes/0/stats/sz_applied";
    pub(crate) use crate::damon::kdamond_file::STATE;
}

/// The writes for these nodes, in order, and the schemes that kdamonds get on demand.
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
        context(&mut fills, &kdamond_folder(root, kdamond), watching, Some(&node.ranges), 0);
        schemes.push(Scheme { kdamond, number: 0, action: Action::MigrateCold, from: node.node, to });
    }
    (fills.0, schemes)
}

/// The values that give a kdamond's scheme a quota of `bytes`, while it moves nothing.
pub(crate) fn loaded(to: NodeId, bytes: u64) -> Vec<(String, String)> {
    let values: [(&str, &dyn ToString); 14] = [
        ("action", &Action::MigrateCold.text()),
        ("target_nid", &to.0),
        ("access_pattern/sz/min", &PAGE_SIZE),
        ("access_pattern/sz/max", &u64::MAX),
        ("access_pattern/nr_accesses/min", &0),
        ("access_pattern/nr_accesses/max", &0),
        ("access_pattern/age/min", &NEVER),
        ("access_pattern/age/max", &NEVER),
        ("quotas/ms", &0),
        ("quotas/bytes", &bytes),
        ("quotas/reset_interval_ms", &LOADING_WINDOW_MS),
        ("quotas/weights/sz_permil", &0),
        ("quotas/weights/nr_accesses_permil", &0),
        ("quotas/weights/age_permil", &1000),
    ];
    of_scheme(&values)
}

/// The values that then make it move that much of the regions that have not been accessed for `age`
/// aggregations, longest idle first.
pub(crate) fn fired(age: u64) -> Vec<(String, String)> {
    of_scheme(&[("access_pattern/age/min", &age), ("quotas/reset_interval_ms", &WINDOW_MS)])
}

fn of_scheme(values: &[(&str, &dyn ToString)]) -> Vec<(String, String)> {
    values.iter().map(|(name, value)| (format!("{}/{name}", file::SCHEME), value.to_string())).collect()
}
