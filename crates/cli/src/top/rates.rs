//! Rates from two readings.

use std::collections::BTreeMap;

use super::reading::{Key, Reading};

/// What has changed a second.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Of each counter; absent if it is not known.
    counters: BTreeMap<Key, f64>,
    /// Base pages promoted and demoted, by what moved them: thermocline, the kernel, DAMON.
    pub flows: [[Option<f64>; 3]; 2],
    /// CPU time of the daemon, share of one CPU.
    pub cpu: Option<f64>,
    /// Change of free base pages by node, in the order of the later reading's nodes.
    pub free: Vec<Option<f64>>,
}

/// Whether `now` continues `before`: the same daemon under the same manager, later.
pub fn continues(before: &Reading, now: &Reading) -> bool {
    before.pid == now.pid && before.manager == now.manager && before.uptime_ns <= now.uptime_ns
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
        let (old, new) = (before.moved, now.moved);
        let flow = |old: Option<u64>, new: Option<u64>| Some(rate(old?, new?).unwrap_or(0.0));
        let flows = [0, 1].map(|way| [0, 1, 2].map(|who| flow(old[way][who], new[way][who])));
        let free = now.nodes.iter().map(|node| {
            let old = before.nodes.iter().find(|old| old.node == node.node)?;
            Some((node.free_pages as f64 - old.free_pages as f64) / s)
        });
        let cpu = before.cpu_time_ns.zip(now.cpu_time_ns).and_then(|(old, new)| rate(old.0, new.0));
        Some(Rates { counters: counters.collect(), flows, cpu: cpu.map(|ns| ns / 1e9), free: free.collect() })
    }

    /// The rate of a counter, if known.
    pub fn of(&self, key: &Key) -> Option<f64> {
        self.counters.get(key).copied()
    }
}
