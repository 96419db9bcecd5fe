//! Rates from two readings.

use std::collections::BTreeMap;

use thermocline_linux::kernel_moves::{Moved, MovedBy};

use super::reading::{Key, Reading};

/// What has changed a second.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Of each counter; absent if it is not known.
    counters: BTreeMap<Key, f64>,
    /// Base pages promoted and demoted, by what moved them: thermocline, the kernel, DAMON.
    pub flows: Option<[[f64; 3]; 2]>,
    /// CPU time of the daemon, share of one CPU.
    pub cpu: Option<f64>,
    /// Change of free base pages by node, in the order of the later reading's nodes.
    pub free: Vec<Option<f64>>,
}

/// Whether `now` continues `before`: the same daemon under the same manager, later.
pub fn continues(before: &Reading, now: &Reading) -> bool {
    before.pid == now.pid && before.manager == now.manager && before.uptime_ns <= now.uptime_ns
}

/// The values of a direction, in the order of [`Rates::flows`].
pub fn by(moved: MovedBy) -> [u64; 3] {
    [moved.thermocline, moved.kernel, moved.damon]
}

/// Both directions, in the order of [`Rates::flows`].
pub fn flows(moved: Moved) -> [[u64; 3]; 2] {
    [by(moved.promoted), by(moved.demoted)]
}

impl Rates {
    /// The rates between two readings of one run; `None` if no time lies between them.
    pub fn between(before: &Reading, now: &Reading) -> Option<Rates> {
        if !continues(before, now) || before.uptime_ns == now.uptime_ns {
            return None;
        }
        let s = now.uptime_ns.since(before.uptime_ns).0 as f64 / 1e9;
        // A figure that became smaller was counted anew, and has no rate.
        let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / s);
        let counters = now
            .figures
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), rate(*before.figures.get(key)?, *value)?)));
        let (old, new) = (flows(before.moved), flows(now.moved));
        let flows = [0, 1].map(|way| [0, 1, 2].map(|who| rate(old[way][who], new[way][who]).unwrap_or(0.0)));
        let free = now.nodes.iter().map(|node| {
            let old = before.nodes.iter().find(|old| old.node == node.node)?;
            Some((node.free_pages as f64 - old.free_pages as f64) / s)
        });
        Some(Rates {
            counters: counters.collect(),
            flows: Some(flows),
            cpu: rate(before.cpu_time_ns.0, now.cpu_time_ns.0).map(|ns| ns / 1e9),
            free: free.collect(),
        })
    }

    /// The rate of a counter, if known.
    pub fn of(&self, key: &Key) -> Option<f64> {
        self.counters.get(key).copied()
    }
}
