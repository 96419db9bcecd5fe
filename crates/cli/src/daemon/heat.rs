//! Which memory is hot and where: hint-fault waits by process and node, for `observe`.
//!
//! The wait is the time from the scan that marked a page to its next access. Short waits mean hot
//! pages. For a page in a DAMON region, the region's access interval is used instead; for a page
//! that a device has counted, the interval that the device's count gives.

use std::collections::BTreeMap;

use serde::Serialize;
use thermocline_core::access::{Access, Detail, Evidence, RegionPage};
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::Batch;
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, Pid};

/// Upper ends of the wait classes, in ns. The last class is everything above the last end.
const CLASS_ENDS_NS: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
/// Names of the wait classes.
pub const CLASSES: [&str; 6] = ["<1ms", "<10ms", "<100ms", "<1s", "<10s", ">=10s"];
/// Maximum number of rows, one for each process and node. Later ones are counted together.
const ROWS_MAX: usize = 4096;

/// Accesses of one process to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Hint faults, samples, entries of a device's hot list, and pages looked up because they are
    /// in a region.
    pub faults: u64,
    /// Base pages that faulted, or were looked up, by wait class.
    pub pages_by_wait: [u64; 6],
    /// Base pages that faulted although no scan of them was seen.
    pub pages_unstamped: u64,
}

/// Waits by process and node.
#[derive(Debug, Default)]
pub struct Heat {
    rows: BTreeMap<(Pid, NodeId), Row>,
    /// Faults of processes that have no row because the table is full.
    overflow: u64,
}

impl Heat {
    /// Counts a batch of accesses.
    pub fn add(&mut self, batch: &[Access]) {
        for access in batch {
            let Some(page) = access.page else { continue };
            let wait = match access.detail {
                Detail::HintFault { latency: Some(latency) } => Some(latency.time),
                Detail::Count { gap, .. } => gap,
                _ => None,
            };
            self.note(page.pid, access.node, access.pages(), wait);
        }
    }

    /// Counts pages of regions.
    pub fn add_regions(&mut self, pages: &[RegionPage]) {
        for at in pages {
            self.note(at.page.pid, at.node, 1 << at.order, at.region.gap());
        }
    }

    fn note(&mut self, pid: Pid, node: NodeId, pages: u64, wait: Option<Nanos>) {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&(pid, node)) {
            self.overflow += 1;
            return;
        }
        let row = self.rows.entry((pid, node)).or_default();
        row.faults += 1;
        match wait {
            Some(wait) => {
                let class = CLASS_ENDS_NS.iter().position(|end| wait.0 < *end).unwrap_or(5);
                row.pages_by_wait[class] += pages;
            }
            None => row.pages_unstamped += pages,
        }
    }

    /// Rows by number of faults, largest first.
    pub fn rows(&self) -> Vec<(Pid, NodeId, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().map(|((pid, node), row)| (*pid, *node, row)).collect();
        rows.sort_by_key(|(pid, node, row)| (std::cmp::Reverse(row.faults), *pid, *node));
        rows
    }

    /// A table of the `limit` busiest rows; `name` gives a process's command.
    pub fn table(&self, limit: usize, name: impl Fn(Pid) -> String) -> String {
        let mut out = format!("{:<24} {:>6} {:>9}", "process", "node", "faults");
        for class in CLASSES {
            out.push_str(&format!(" {class:>7}"));
        }
        out.push_str("   (share of the faulted pages by wait since the scan)\n");
        for (pid, node, row) in self.rows().into_iter().take(limit) {
            let total = row.pages_by_wait.iter().sum::<u64>().max(1);
            out.push_str(&format!(
                "{:<24} {:>6} {:>9}",
                format!("{} {}", name(pid), pid.0),
                node.0,
                row.faults
            ));
            for pages in row.pages_by_wait {
                out.push_str(&format!(" {:>6.1}%", 100.0 * pages as f64 / total as f64));
            }
            out.push('\n');
        }
        let hidden = self.rows.len().saturating_sub(limit);
        if hidden > 0 || self.overflow > 0 {
            out.push_str(&format!(
                "{hidden} more rows; {} faults of processes beyond {ROWS_MAX} rows\n",
                self.overflow
            ));
        }
        out
    }
}

/// A machine that counts evidence on its way to the engine.
#[derive(Debug)]
pub struct Felt<'a, M> {
    /// The machine.
    pub machine: &'a mut M,
    /// Where the evidence is counted, if anywhere.
    pub heat: Option<&'a mut Heat>,
}

impl<M: Machine> Machine for Felt<'_, M> {
    type Error = M::Error;

    fn poll(&mut self, now: Nanos, due: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), M::Error> {
        let heat = &mut self.heat;
        self.machine.poll(now, due, &mut |evidence| {
            match (heat.as_mut(), &evidence) {
                (Some(heat), Evidence::Accesses { batch, .. }) => heat.add(batch),
                (Some(heat), Evidence::RegionPages(pages)) => heat.add_regions(pages),
                _ => {}
            }
            observe(evidence);
        })
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], M::Error> {
        self.machine.nodes(observe)
    }

    fn pacing(&self) -> Pacing {
        self.machine.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        self.machine.wish(wishes);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        self.machine.submit(batches);
    }

    fn demotes(&self) -> bool {
        self.machine.demotes()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.machine.demote(demands);
    }

    fn is_looking(&self) -> bool {
        self.machine.is_looking()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::access::{FaultLatency, Region, RegionSpace};
    use thermocline_core::units::VirtPage;

    fn fault(pid: u32, node: u16, wait: Option<u64>, order: u8) -> Access {
        Access {
            time: Nanos(0),
            pfn: None,
            page: Some(VirtPage { pid: Pid(pid), vpn: 1 }),
            order,
            node: NodeId(node),
            accessor: None,
            detail: Detail::HintFault { latency: wait.map(|w| FaultLatency { time: Nanos(w), faults: 0 }) },
        }
    }

    #[test]
    fn pages_of_regions_count_by_the_time_between_two_accesses() {
        let region = Region {
            space: RegionSpace::Physical(NodeId(2)),
            start: 0,
            end: 512,
            access_rate_bp: 6321,
            age: Nanos(0),
            check: Nanos::from_ms(5),
        };
        let page = VirtPage { pid: Pid(1), vpn: 0 };
        let mut heat = Heat::default();
        heat.add_regions(&[RegionPage {
            page,
            pfn: None,
            order: 9,
            node: NodeId(2),
            region,
            time: Nanos(0),
        }]);
        assert_eq!(heat.rows()[0].2.pages_by_wait, [0, 512, 0, 0, 0, 0]);
    }

    #[test]
    fn waits_are_classed_and_weighted_by_pages() {
        let mut heat = Heat::default();
        heat.add(&[
            fault(1, 2, Some(999_999), 0),
            fault(1, 2, Some(1_000_000), 9),
            fault(1, 2, Some(u64::MAX), 0),
            fault(1, 2, None, 0),
            fault(2, 0, Some(0), 0),
        ]);
        let rows = heat.rows();
        assert_eq!((rows[0].0, rows[0].1, rows[0].2.faults), (Pid(1), NodeId(2), 4));
        assert_eq!(rows[0].2.pages_by_wait, [1, 512, 0, 0, 0, 1]);
        assert_eq!(rows[0].2.pages_unstamped, 1);
        assert!(heat.table(1, |_| "redis".to_owned()).contains("1 more rows"));
    }

    #[test]
    fn the_table_of_processes_is_bounded() {
        let mut heat = Heat::default();
        for pid in 0..10_000 {
            heat.add(&[fault(pid, 2, None, 0)]);
        }
        assert_eq!(heat.rows.len(), ROWS_MAX);
        assert_eq!(heat.overflow, 10_000 - ROWS_MAX as u64);
    }
}
