//! Whether the kernel's reclaim leaves room for promotions.

use thermocline_core::config::ManagerName;
use thermocline_core::limit::Reserve;
use thermocline_core::topology::NodeState;

use crate::finding::{Demoting, Facts, Finding, Ground, Kind, View};
use crate::zoneinfo;

/// The pages of a huge page, which promotions should have room for.
const HUGE_PAGES: u64 = 512;
/// Candidates refused in a minute for want of room from which a full node counts.
const REFUSED_MIN: u64 = 64;
/// The largest vm.watermark_scale_factor (Linux 6.12 kernel/sysctl.c).
const FACTOR_MAX: u64 = 3000;

/// Full nodes of the top tier where kswapd stops before there is room. Marks are evenly spaced, by
/// managed pages * vm.watermark_scale_factor / 10000 or a quarter of the lowest (Linux 6.12
/// mm/page_alloc.c, __setup_per_zone_wmarks).
pub(super) fn watermarks(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    // Thermocline's demotion makes room whatever the watermarks are, and without any demotion they
    // do not matter.
    let kernel_alone = match view.demoting {
        Demoting::ByKernel => true,
        Demoting::Ours(_) => false,
        Demoting::NotWanted | Demoting::No(_) => facts.demotion_enabled == Some(true),
    };
    let promotes = matches!(view.config.manager.name, ManagerName::Thermocline | ManagerName::Numab2);
    let refused = view.minute().is_none_or(|minute| minute.no_room >= REFUSED_MIN);
    let Some(found) = view.found.filter(|_| kernel_alone && promotes && refused) else { return Vec::new() };
    let tiering = view.mode().or(facts.numa_balancing).unwrap_or(0) & 2 != 0;
    let states = zoneinfo::node_states(&facts.zones);
    let top = states.iter().filter(|state| found.topology.is_top(state.node));
    top.filter_map(|state| starved(view, state, tiering)).collect()
}

fn starved(view: &View<'_>, state: &NodeState, tiering: bool) -> Option<Finding> {
    let marks = &state.watermarks;
    let floor = match view.config.manager.name {
        // The kernel promotes where that leaves the high watermark (mm/migrate.c,
        // migrate_balanced_pgdat).
        ManagerName::Numab2 => marks.high_pages,
        _ => Reserve::new(&view.config.admission).floor(state),
    };
    let needed = floor.saturating_add(HUGE_PAGES);
    let stops = if tiering { marks.promo_pages } else { marks.high_pages };
    if state.free_pages >= needed || stops >= needed || state.managed_pages == 0 {
        return None;
    }
    let gap = needed - marks.high_pages;
    let factor = (gap.saturating_mul(10_000) / state.managed_pages + 1).min(FACTOR_MAX);
    let kib = |pages: u64| pages * 4;
    let cause = format!(
        "promotion to {} starves: it has {} KiB free, a promotion needs {} KiB, and kswapd stops at {} KiB by its watermarks, so that it \
         never makes that room",
        state.node,
        kib(state.free_pages),
        kib(needed),
        kib(stops)
    );
    Some(Finding::new(Kind::PromotionWatermarks, cause).on(&[state.node]).run(
        Ground::seen(true),
        "space the watermarks wider",
        format!("sysctl vm.watermark_scale_factor={factor}"),
    ))
}
