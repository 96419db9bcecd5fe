//! DAMON's regions as evidence: a share of the checks has found an access to a page of the region.
//!
//! Memory is divided into blocks of equal size. Each check looks at one page of its region, so a
//! block has a part of the region's checks, in proportion to its pages.

use std::collections::BTreeMap;

use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::admission::VPN_LIMIT;
use thermocline_core::units::Nanos;

use super::collect::Collected;
use super::epochs::Epochs;
use super::evidence::{Count, Evidence, HeatSource, Unit};

/// Blocks that memory is divided into, at most about.
const BLOCKS: u64 = 1 << 15;

/// Whether a region is one that memory can have: a recording may be damaged.
fn is_sound(region: &Region) -> bool {
    region.start < region.end && region.end <= VPN_LIMIT
}

/// The evidence of regions; `None` if no snapshot says over which time its checks were made, as the
/// first of each space does not.
pub fn evidence(from: &Collected, epochs: Epochs) -> Option<Evidence> {
    let of_all = |pages: u64| (pages / BLOCKS).next_power_of_two();
    let pages = |s: &RegionSnapshot| {
        s.regions.iter().filter(|r| is_sound(r)).fold(0, |sum: u64, r| sum.saturating_add(r.pages()))
    };
    let block = of_all(from.snapshots.iter().map(pages).max().unwrap_or(0));
    let mut before: BTreeMap<RegionSpace, Nanos> = BTreeMap::new();
    let mut blocks: BTreeMap<(RegionSpace, u64), (Vec<Count>, [Count; 2])> = BTreeMap::new();
    let mut longest = Nanos(0);
    for (half, snapshot) in from.snapshots.iter().enumerate() {
        let mut spaces: Vec<RegionSpace> = snapshot.regions.iter().map(|r| r.space).collect();
        spaces.dedup();
        for region in snapshot.regions.iter().filter(|region| is_sound(region)) {
            let Some(last) = before.get(&region.space) else { continue };
            let over = snapshot.time.since(*last);
            let Some(checks) = over.0.checked_div(region.check.0) else { continue };
            longest = longest.max(region.check);
            let found = f64::from(region.access_rate_bp.min(10_000)) / 10_000.0;
            let epoch = epochs.at(snapshot.time);
            for number in region.start / block..region.end.div_ceil(block) {
                let common = region.end.min((number + 1) * block) - region.start.max(number * block);
                let checks = checks.max(1) as f64 * common as f64 / region.pages() as f64;
                let (counts, halves) = blocks
                    .entry((region.space, number))
                    .or_insert_with(|| (vec![Count::default(); epochs.number], [Count::default(); 2]));
                let quiet_s = (1.0 - found) * checks * region.check.0 as f64 / 1e9;
                let count = Count { hits: found * checks, quiet_s };
                counts[epoch] = counts[epoch].plus(count);
                halves[half % 2] = halves[half % 2].plus(count);
            }
        }
        for space in spaces {
            before.insert(space, snapshot.time);
        }
    }
    if blocks.is_empty() {
        return None;
    }
    let (mut units, mut counts): (Vec<Unit>, Vec<Count>) = (Vec::new(), Vec::new());
    let mut spaces: Vec<RegionSpace> = Vec::new();
    let mut halves = Vec::new();
    for ((space, number), (found, in_halves)) in blocks {
        if spaces.last() != Some(&space) {
            spaces.push(space);
        }
        units.push(Unit { space: spaces.len() as u32 - 1, pages: block as u32, first: number * block });
        counts.extend(found);
        halves.push(in_halves);
    }
    Some(Evidence {
        source: HeatSource::Regions,
        check_s: longest.0 as f64 / 1e9,
        start: epochs.start,
        end: epochs.end,
        spaces,
        units,
        counts,
        halves,
        cost_s: 0.0,
        epochs: epochs.number,
        by_page: true,
        silent_pages: 0,
        silent: Count::default(),
        dark_pages: 0,
    })
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::NodeId;

    use super::*;

    #[test]
    fn a_region_shares_its_checks_among_its_blocks() {
        let region = |start, end, access_rate_bp| Region {
            space: RegionSpace::Physical(NodeId(0)),
            start,
            end,
            access_rate_bp,
            age: Nanos(0),
            check: Nanos::from_ms(5),
        };
        let snapshot = |ms, regions| RegionSnapshot { time: Nanos::from_ms(ms), regions };
        let snapshots = vec![
            snapshot(100, vec![region(0, 4, 10_000)]),
            snapshot(200, vec![region(0, 3, 5000), region(3, 4, 2500)]),
        ];
        let collected = Collected { snapshots, ..Collected::default() };
        let epochs = Epochs { start: Nanos(0), end: Nanos::from_ms(200), number: 1 };
        let found = evidence(&collected, epochs).expect("there are two snapshots");
        // Twenty checks of 5 ms in 100 ms: of those of three pages, half found an access.
        assert_eq!(found.units.len(), 4);
        let close = |count: Count, hits: f64, quiet_s: f64| {
            assert!((count.hits - hits).abs() < 1e-9 && (count.quiet_s - quiet_s).abs() < 1e-9, "{count:?}");
        };
        close(found.of(0)[0], 10.0 / 3.0, 10.0 / 3.0 * 0.005);
        close(found.of(3)[0], 5.0, 15.0 * 0.005);
        assert_eq!((found.reach(), found.by_page), (Some(600.0), true));
        assert!(evidence(&Collected { snapshots: Vec::new(), ..collected }, epochs).is_none());
    }
}
