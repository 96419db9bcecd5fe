//! Reclaim that demotes: kswapd, and direct reclaim of tasks that allocate.
//!
//! 1. kswapd of a node is woken by an allocation that finds it below its low watermark, or a
//!    promotion that would leave it below the high one. It works until the node is above its promo
//!    watermark (in tiering mode; else the high one).
//! 2. The oldest inactive page is examined. If it was accessed since the last time, it stays the
//!    first time (and is marked referenced), and becomes active the second time. If not, it is
//!    demoted to the nearest node of the next tier that has room.
//! 3. While the number of active pages exceeds that of inactive ones times the square root of ten
//!    times the node's size in GiB, the oldest active pages become inactive, accessed or not, and
//!    lose their accessed bit.
//!
//! Source: Linux 6.12 `mm/vmscan.c` (`balance_pgdat`, `shrink_inactive_list`, `shrink_active_list`,
//! `folio_check_references`, `inactive_is_low`, `demote_folio_list`). Memory is anonymous here.
//! kswapd works at the speed that `cost` gives it; it runs on a CPU of its own.

use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use super::Model;
use crate::machine::{HUGE_SHARE, NodeIndex};
use crate::memory::{List, lru};
use crate::system::kswapd::{Kswapd, STEP};
use crate::system::{NEVER, System, Way};

/// kswapd sleeps this long after it has examined every page and found none to demote (the kernel
/// gives up after 16 rounds and waits to be woken; when woken it tries again at once).
const GIVE_UP: Nanos = Nanos::from_ms(100);
/// Pages that a task reclaims at a time (SWAP_CLUSTER_MAX).
const CLUSTER: u64 = 32;

/// The reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Kswapd,
    Direct,
}

/// kswapd of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Reclaim {
    /// Whether kswapd works up to the promo watermark: tiering mode.
    pub tiering: bool,
}

impl Model for Reclaim {
    fn name(&self) -> &'static str {
        "kswapd"
    }

    fn due(&self, system: &System) -> Nanos {
        system.kswapd.iter().map(|k| k.due).min().unwrap_or(NEVER)
    }

    fn run(&mut self, system: &mut System) {
        for node in 0..system.kswapd.len() {
            if system.kswapd[node].due <= system.now {
                self.step(system, node as NodeIndex);
            }
        }
    }
}

impl Reclaim {
    fn step(&self, system: &mut System, node: NodeIndex) {
        let i = usize::from(node);
        let marks = system.machine.nodes[i].watermarks;
        let goal = if self.tiering { marks.promo_pages } else { marks.high_pages };
        let mut budget = STEP.0 as f64 - system.kswapd[i].ahead_ns;
        while budget > 0.0 {
            let worked_ns = system.kswapd[i].worked_ns;
            if system.memory.free(node) > goal {
                system.kswapd[i] = Kswapd { worked_ns, ..Kswapd::default() };
                return;
            }
            let lists = system.memory.nodes[i].lists.as_ref();
            let listed = lists.map_or(0, |l| l.len(List::Active) + l.len(List::Inactive));
            if system.kswapd[i].fruitless > 4 * listed {
                system.kswapd[i] = Kswapd { due: system.now.plus(GIVE_UP), worked_ns, ..Kswapd::default() };
                return;
            }
            let ns = reclaim_page(system, node, By::Kswapd);
            system.kswapd[i].worked_ns += ns;
            system.aside_ns += ns;
            budget -= ns;
        }
        system.kswapd[i].ahead_ns = -budget;
        system.kswapd[i].due = system.now.plus(STEP);
    }
}

/// Reclaims for a task that allocates: a cluster of pages of this node. Returns the time in ns that
/// it takes the task.
pub fn direct(system: &mut System, node: NodeIndex) -> f64 {
    if !system.kernel.demotion_enabled {
        return 0.0;
    }
    let before = system.counters.pgdemote_direct;
    let mut ns = 0.0;
    for _ in 0..16 * CLUSTER {
        if system.counters.pgdemote_direct - before >= CLUSTER {
            break;
        }
        ns += reclaim_page(system, node, By::Direct);
    }
    ns
}

/// Examines one page, after deactivating active pages if there are too many; returns the CPU time
/// in ns.
fn reclaim_page(system: &mut System, node: NodeIndex, by: By) -> f64 {
    let i = usize::from(node);
    let costs = system.machine.spec.cost;
    let mut ns = 0.0;
    if inactive_is_low(system, node)
        && let Some(page) = system.memory.pop(node, List::Active)
    {
        system.memory.take_accessed(page);
        system.memory.push(page, List::Inactive);
        ns += costs.reclaim_look_ns;
    }
    let Some(page) = system.memory.pop(node, List::Inactive) else {
        system.kswapd[i].fruitless += 1;
        return ns + costs.reclaim_look_ns.max(1.0);
    };
    let referenced = system.memory.lru(page) & lru::REFERENCED != 0;
    if system.memory.take_accessed(page) {
        system.memory.set_lru(page, lru::REFERENCED, 0);
        system.memory.push(page, if referenced { List::Active } else { List::Inactive });
        system.kswapd[i].fruitless += 1;
        return ns + costs.reclaim_look_ns.max(1.0);
    }
    system.memory.set_lru(page, 0, lru::REFERENCED);
    let Some(target) = demotion_target(system, node) else {
        system.memory.push(page, List::Inactive);
        system.kswapd[i].fruitless += 1;
        return ns + costs.reclaim_look_ns.max(1.0);
    };
    system.kswapd[i].fruitless = 0;
    let block = system.memory.spaces[system.memory.space_of(page)].block(page);
    let mut moved = 0;
    for page in block {
        if system.memory.node(page) != Some(node) {
            continue;
        }
        moved += 1;
        if system.move_page(page, target) == Way::Down {
            match by {
                By::Kswapd => system.counters.pgdemote_kswapd += 1,
                By::Direct => system.counters.pgdemote_direct += 1,
            }
        }
    }
    ns + costs.demote_ns.max(1.0) * (1.0 + HUGE_SHARE * (f64::from(moved) - 1.0))
}

/// The nearest demotion target above its low watermark; the kernel allocates there without reclaim.
pub(super) fn demotion_target(system: &System, node: NodeIndex) -> Option<NodeIndex> {
    let targets = &system.machine.nodes[usize::from(node)].demotion_targets;
    targets
        .iter()
        .copied()
        .find(|t| system.memory.free(*t) > system.machine.nodes[usize::from(*t)].watermarks.low_pages)
}

/// Whether a node has too few inactive pages for its size.
fn inactive_is_low(system: &System, node: NodeIndex) -> bool {
    let Some(lists) = system.memory.nodes[usize::from(node)].lists.as_ref() else { return false };
    let (inactive, active) = (lists.len(List::Inactive), lists.len(List::Active));
    if inactive >= active {
        // The usual case, without a root: no ratio is below 1.
        return false;
    }
    let gib = (inactive + active) / (1024 * PAGES_PER_MIB);
    let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
    inactive * ratio < active
}
