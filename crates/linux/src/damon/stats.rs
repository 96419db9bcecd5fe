//! Statistics of the schemes, by the kernel's own count.

use serde::{Deserialize, Serialize};
use thermocline_core::units::{NodeId, PAGE_SHIFT};

use super::{Action, Scheme, Setup, kdamond_folder, scheme_folder};
use crate::actuator::Commands;
use crate::root::{Root, read_optional};

/// Statistics of a scheme since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemeStats {
    /// Number of its kdamond.
    pub kdamond: usize,
    /// What it does.
    pub action: Action,
    /// The node that pages leave.
    pub from: NodeId,
    /// The node that they go to.
    pub to: NodeId,
    /// Base pages in the regions that it tried.
    pub tried_pages: u64,
    /// Base pages that it moved, by the kernel's count. If the target is full, Linux 6.12 copies
    /// pages to another node, even to the one they come from, and counts them too.
    pub moved_pages: u64,
    /// Base pages that were requested on that node and allocated elsewhere meanwhile
    /// (`numa_foreign`), by any process: at most this many of the pages moved are not on the
    /// target.
    pub elsewhere_pages: u64,
    /// Times that a quota held it up.
    pub quota_exceeded: u64,
}

/// Statistics of all schemes since their start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamonStats {
    /// By scheme.
    pub schemes: Vec<SchemeStats>,
    /// Kdamonds that run.
    pub running: usize,
    /// Kdamonds that were started.
    pub started: usize,
}

impl DamonStats {
    /// Lower bound of the base pages that all schemes of an action have moved to their target.
    pub fn moved(&self, action: Action) -> u64 {
        let schemes = self.schemes.iter().filter(|s| s.action == action);
        schemes.map(|s| s.moved_pages.saturating_sub(s.elsewhere_pages)).sum()
    }
}

/// Reads the schemes' statistics.
#[derive(Debug)]
pub struct Stats {
    root: Root,
    commands: Commands,
    kdamonds: usize,
    schemes: Vec<Scheme>,
    /// `numa_foreign` of each scheme's target at the start.
    foreign: Vec<u64>,
    last: DamonStats,
}

impl Stats {
    /// For the schemes of `setup`, which have been started.
    pub fn new(root: &Root, setup: &Setup, commands: Commands) -> Stats {
        let last = DamonStats {
            schemes: setup.schemes.iter().map(unmoved).collect(),
            running: setup.kdamonds,
            started: setup.kdamonds,
        };
        let foreign = setup.schemes.iter().map(|scheme| foreign(root, scheme.to)).collect();
        let (kdamonds, schemes) = (setup.kdamonds, setup.schemes.clone());
        Stats { root: root.clone(), commands, kdamonds, schemes, foreign, last }
    }

    /// The statistics up to now. Each kdamond is asked for its figures and answers when it next
    /// wakes, after at most `sample_ms`; those of an ended one stay at their last values.
    pub fn read(&mut self) -> &DamonStats {
        let mut fresh = Vec::with_capacity(self.kdamonds);
        self.last.running = 0;
        for number in 0..self.kdamonds {
            let updated = self.commands.update_schemes_stats(number);
            fresh.push(updated.is_ok());
            // One that is too busy to answer is still running.
            let runs = updated.err().is_none_or(|e| e.raw_os_error() == Some(libc::EBUSY));
            self.last.running += usize::from(runs);
        }
        let schemes = self.schemes.iter().zip(&self.foreign);
        for ((scheme, before), last) in schemes.zip(&mut self.last.schemes) {
            if fresh.get(scheme.kdamond) != Some(&true) {
                continue;
            }
            let folder =
                scheme_folder(&kdamond_folder(&self.root, scheme.kdamond), scheme.number).join("stats");
            let count = |name: &str| self.commands.read(&folder.join(name)).ok()?.trim().parse::<u64>().ok();
            let pages = |name: &str| count(name).map(|bytes| bytes >> PAGE_SHIFT);
            last.tried_pages = pages("sz_tried").unwrap_or(last.tried_pages);
            last.moved_pages = pages("sz_applied").unwrap_or(last.moved_pages);
            last.elsewhere_pages = foreign(&self.root, scheme.to).saturating_sub(*before);
            last.quota_exceeded = count("qt_exceeds").unwrap_or(last.quota_exceeded);
        }
        &self.last
    }
}

fn unmoved(scheme: &Scheme) -> SchemeStats {
    let Scheme { kdamond, action, from, to, .. } = *scheme;
    SchemeStats {
        kdamond,
        action,
        from,
        to,
        tried_pages: 0,
        moved_pages: 0,
        elsewhere_pages: 0,
        quota_exceeded: 0,
    }
}

/// Base pages that were wanted on a node and allocated on another since the boot; 0 if the kernel
/// does not count them.
fn foreign(root: &Root, node: NodeId) -> u64 {
    let path = root.sys.join(format!("devices/system/node/node{}/numastat", node.0));
    let text = read_optional(&path).ok().flatten().unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("numa_foreign ")?.trim().parse().ok()).unwrap_or(0)
}
