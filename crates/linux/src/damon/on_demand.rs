//! Kdamonds that demote nothing until a demand says how much: one for every node of the top tier,
//! which gets its only scheme then.
//!
//! A quota counts from the beginning of its window, and kernels know it only then: some (6.12.117)
//! apply a scheme without any limit until its second window begins. So a scheme is *loaded* first,
//! which gives it its quota while nothing is as it wants it, and *fired* once that is known.

use std::path::PathBuf;

use thermocline_core::units::{NodeId, PAGE_SIZE};

use super::setup::{Fills, Watched, Watching, context};
use super::{Action, Scheme, kdamond_folder};
use crate::root::Root;

/// Time between two looks at a page of each region. Ours: 1,000 regions then take a few percent of
/// a CPU.
const SAMPLE_MS: u64 = 25;
/// Time in which accesses are counted; the unit of a region's age.
pub(crate) const AGGREGATION_MS: u64 = 250;
/// Memory of a node for each region that it may be divided into, where that are fewer than the
/// most.
const PAGES_A_REGION: u64 = 512;
const REGIONS_MIN: u64 = 50;
const REGIONS_MAX: u64 = 1_000;
/// Time for which a quota is given: a day, so that a scheme never gets a second one, however late
/// it is loaded again.
const WINDOW_MS: u64 = 86_400_000;
/// While it is loaded a new window begins whenever the kdamond looks at it.
const LOADING_WINDOW_MS: u64 = 1;
/// No region is so old, in aggregations.
const NEVER: u64 = u32::MAX as u64;

/// Files of a kdamond, below its folder.
pub(crate) mod file {
    /// Schemes that it has: one from the first demand on.
    pub(crate) const SCHEMES: &str = "contexts/0/schemes/nr_schemes";
    /// The only scheme.
    pub(super) const SCHEME: &str = "contexts/0/schemes/0";
    /// Bytes that it may move, as the kdamond knows them.
    pub(crate) const QUOTA: &str = "contexts/0/schemes/0/quotas/effective_bytes";
    /// Bytes that it has tried.
    pub(crate) const TRIED: &str = "contexts/0/schemes/0/stats/sz_tried";
    /// Bytes that it has moved.
    pub(crate) const MOVED: &str = "contexts/0/schemes/0/stats/sz_applied";
    pub(crate) use crate::damon::kdamond_file::STATE;
}

/// What is to be written for these nodes, in order, and the schemes that kdamonds get when
/// something is demanded.
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

/// What gives a kdamond's scheme a quota of so many bytes, while it moves nothing.
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

/// What then has it move that much of what has not been accessed for so many aggregations, those
/// that have been idle for longest first.
pub(crate) fn fired(age: u64) -> Vec<(String, String)> {
    of_scheme(&[("access_pattern/age/min", &age), ("quotas/reset_interval_ms", &WINDOW_MS)])
}

fn of_scheme(values: &[(&str, &dyn ToString)]) -> Vec<(String, String)> {
    values.iter().map(|(name, value)| (format!("{}/{name}", file::SCHEME), value.to_string())).collect()
}
