//! Processes for which every move fails in the same way, for any page: a cpuset without the target,
//! or no permission. They are set aside for a while, longer each time, so that not every page is
//! tried and a change is still noticed.

use std::collections::BTreeMap;

use thermocline_core::units::{Nanos, NodeId, Pid};

use crate::sys::MovePagesError;

/// How long the first time.
const FIRST: Nanos = Nanos::from_s(1);
/// The longest time: the delay after which a wider cpuset is noticed.
const MOST: Nanos = Nanos::from_s(64);
/// Maximum number of processes and targets kept.
const ENTRIES_MAX: usize = 4096;

/// Processes set aside, by target.
#[derive(Debug, Default)]
pub(super) struct Barred {
    entries: BTreeMap<(Pid, NodeId), Entry>,
    news: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    until: Nanos,
    span: Nanos,
}

impl Barred {
    /// Whether moves of the process's pages are not tried.
    pub(super) fn holds(&self, pid: Pid, target: NodeId, now: Nanos) -> bool {
        self.entries.get(&(pid, target)).is_some_and(|entry| now < entry.until)
    }

    /// A call has failed as a whole.
    pub(super) fn failed(&mut self, pid: Pid, target: NodeId, error: MovePagesError, now: Nanos) {
        if !matches!(error, MovePagesError::NodeForbidden(..) | MovePagesError::NotPermitted(_)) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&(pid, target)) {
            entry.span = Nanos(entry.span.0 * 2).min(MOST);
            entry.until = now.plus(entry.span);
            return;
        }
        if self.entries.len() >= ENTRIES_MAX {
            // Entries that ended longest ago are dropped; they are reported again if they fail
            // again.
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.until).map(|(of, _)| *of);
            oldest.and_then(|of| self.entries.remove(&of));
        }
        self.entries.insert((pid, target), Entry { until: now.plus(FIRST), span: FIRST });
        self.news.push(format!("pages of pid {} are set aside: {error}", pid.0));
    }

    /// The process has ended, or its moves succeed.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.entries.retain(|(of, _), _| *of != pid);
    }

    /// The same for one target.
    pub(super) fn succeeded(&mut self, pid: Pid, target: NodeId) {
        self.entries.remove(&(pid, target));
    }

    /// Messages since the last call, one per process and target.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid(7);
    const NODE: NodeId = NodeId(0);

    #[test]
    fn a_process_is_set_aside_longer_each_time_and_told_once() {
        let (mut barred, mut now, mut tries) = (Barred::default(), Nanos(0), 0);
        let end = Nanos::from_s(600);
        while now < end {
            if !barred.holds(PID, NODE, now) {
                barred.failed(PID, NODE, MovePagesError::NodeForbidden(PID, NODE), now);
                tries += 1;
            }
            now = now.plus(Nanos::from_ms(100));
        }
        assert!((12..=18).contains(&tries), "{tries} in ten minutes");
        let news = barred.take_news();
        assert!(news.len() == 1 && news[0].contains("cpuset.mems"), "{news:?}");
        assert!(!barred.holds(PID, NodeId(1), Nanos(0)) && !barred.holds(Pid(8), NODE, Nanos(0)));
        barred.succeeded(PID, NODE);
        assert!(!barred.holds(PID, NODE, now));
    }

    #[test]
    fn a_full_node_sets_nobody_aside_and_many_processes_do_not_fill_memory() {
        let mut barred = Barred::default();
        barred.failed(PID, NODE, MovePagesError::NodeFull(NODE), Nanos(0));
        assert!(!barred.holds(PID, NODE, Nanos(0)) && barred.take_news().is_empty());
        for pid in 0..2 * ENTRIES_MAX as u32 {
            barred.failed(Pid(pid), NODE, MovePagesError::NotPermitted(Pid(pid)), Nanos(u64::from(pid)));
        }
        assert_eq!(barred.entries.len(), ENTRIES_MAX);
    }
}
