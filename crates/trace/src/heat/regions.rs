//! DAMON's regions as evidence: a share of the checks has found an access to a page of the region.
//!
//! Memory is divided into blocks of equal size, each with some checks at least: of a page that is
//! hardly ever checked nothing is known. A check looks at one page of its region, so a block has a
//! part of the region's checks, in proportion to its pages, and finds as many accesses as its pages
//! do on average.

use std::collections::BTreeMap;

use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::admission::VPN_LIMIT;
use thermocline_core::units::Nanos;

use super::collect::Collected;
use super::epochs::Epochs;
use super::evidence::{Count, Evidence, HeatSource, Unit};

/// Blocks that memory is divided into, at most about.
const BLOCKS: u64 = 1 << 15;
/// Checks of a block on average, at least: what is accessed at one check in thirty is then told
/// from what never is.
const CHECKS: u64 = 128;

/// Whether a region is one that memory can have: a recording may be damaged.
fn is_sound(region: &Region) -> bool {
    region.start < region.end && region.end <= VPN_LIMIT
}

/// What the regions of a snapshot say of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    pages: f64,
    /// Shares of checks that found an access, times pages.
    found: f64,
    checks: f64,
    check_s: f64,
}

/// The evidence of regions; `None` if no snapshot says over which time its checks were made, as the
/// first of each space does not.
pub fn evidence(from: &Collected, epochs: Epochs) -> Option<Evidence> {
    let shortest = shortest(from);
    let block = block(from, shortest);
    let mut checked = Checked::default();
    let mut blocks: BTreeMap<(RegionSpace, u64), (Vec<Count>, [Count; 2])> = BTreeMap::new();
    let mut longest = Nanos(0);
    for (half, snapshot) in from.snapshots.iter().enumerate() {
        // Regions ascend, so that those of a block follow each other.
        let mut seen: Vec<((RegionSpace, u64), Seen)> = Vec::new();
        for (region, checks) in checked.regions(snapshot).filter(|(region, _)| region.check <= shortest) {
            longest = longest.max(region.check);
            let found = f64::from(region.access_rate_bp.min(10_000)) / 10_000.0;
            for number in region.start / block..region.end.div_ceil(block) {
                let common = region.end.min((number + 1) * block) - region.start.max(number * block);
                let place = (region.space, number);
                if seen.last().is_none_or(|(last, _)| *last != place) {
                    seen.push((place, Seen::default()));
                }
                let Some((_, seen)) = seen.last_mut() else { continue };
                seen.pages += common as f64;
                seen.found += found * common as f64;
                seen.checks += checks as f64 * common as f64 / region.pages() as f64;
                seen.check_s = region.check.0 as f64 / 1e9;
            }
        }
        let epoch = epochs.at(snapshot.time);
        for (place, Seen { pages, found, checks, check_s }) in seen {
            let (counts, halves) = blocks
                .entry(place)
                .or_insert_with(|| (vec![Count::default(); epochs.number], [Count::default(); 2]));
            let found = found / pages;
            let count = Count { hits: found * checks, quiet_s: (1.0 - found) * checks * check_s };
            counts[epoch] = counts[epoch].plus(count);
            halves[half % 2] = halves[half % 2].plus(count);
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

/// Which regions of a snapshot were checked how often.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The last snapshot of each space, and the time between two checks then.
    before: BTreeMap<RegionSpace, (Nanos, Nanos)>,
}

impl Checked {
    /// The sound regions of the next snapshot, with how often each was checked since the last one
    /// of its space; without those of which that is not known, as after a change of the time
    /// between two checks.
    pub(super) fn regions<'a>(
        &mut self,
        snapshot: &'a RegionSnapshot,
    ) -> impl Iterator<Item = (&'a Region, u64)> {
        let last = snapshot.regions.iter().map(|region| (region.space, (snapshot.time, region.check)));
        let before = self.before.clone();
        self.before.extend(last);
        let checks = move |region: &Region| {
            let (time, check) = before.get(&region.space)?;
            let is_same = region.check.0 / 2 < check.0 && check.0 / 2 < region.check.0;
            is_same.then(|| snapshot.time.since(*time).0 / region.check.0).map(|checks| checks.max(1))
        };
        let sound = snapshot.regions.iter().filter(|region| is_sound(region));
        sound.filter_map(move |region| Some((region, checks(region)?)))
    }
}

/// The longest time that counts as the shortest one between two checks: a busy kernel is late.
/// Where checks have several lengths, the shortest of them tell how hot a block is, because most of
/// the checks are of these.
fn shortest(from: &Collected) -> Nanos {
    let all = from.snapshots.iter().flat_map(|snapshot| &snapshot.regions).map(|region| region.check.0);
    Nanos(all.filter(|check| *check > 0).min().unwrap_or(0).saturating_mul(2))
}

/// Pages of a block: a power of two.
fn block(from: &Collected, shortest: Nanos) -> u64 {
    let (mut checked, mut pages, mut all) = (Checked::default(), 0u64, 0u64);
    for snapshot in &from.snapshots {
        let sound = snapshot.regions.iter().filter(|region| is_sound(region));
        pages = pages.max(sound.fold(0, |sum, region| sum.saturating_add(region.pages())));
        let known = checked.regions(snapshot).filter(|(region, _)| region.check <= shortest);
        all = known.fold(all, |all, (_, checks)| all.saturating_add(checks));
    }
    let blocks = (all / CHECKS).clamp(1, BLOCKS);
    (pages / blocks).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::NodeId;

    use super::*;

    fn snapshots(regions: &[&[(u64, u64, u16)]]) -> Collected {
        let region = |(start, end, access_rate_bp): &(u64, u64, u16)| Region {
            space: RegionSpace::Physical(NodeId(0)),
            start: *start,
            end: *end,
            access_rate_bp: *access_rate_bp,
            age: Nanos(0),
            check: Nanos::from_ms(5),
        };
        let snapshot = |(n, regions): (u64, &&[(u64, u64, u16)])| RegionSnapshot {
            time: Nanos::from_ms(100 * n),
            regions: regions.iter().map(region).collect(),
        };
        Collected { snapshots: (1..).zip(regions).map(snapshot).collect(), ..Collected::default() }
    }

    fn of(collected: &Collected) -> Option<Evidence> {
        evidence(collected, Epochs { start: Nanos(0), end: Nanos::from_s(1), number: 1 })
    }

    fn is_close(count: Count, hits: f64, quiet_s: f64) {
        assert!((count.hits - hits).abs() < 1e-9 && (count.quiet_s - quiet_s).abs() < 1e-9, "{count:?}");
    }

    #[test]
    fn a_region_shares_its_checks_among_its_blocks() {
        // Twenty checks of 5 ms in 100 ms, and 26 regions that were checked: four blocks.
        let first: &[(u64, u64, u16)] = &[(0, 64, 10_000)];
        let many: Vec<(u64, u64, u16)> = (0..26).map(|n| (64 + n, 65 + n, 0)).collect();
        let regions = [&[(0, 48, 5000), (48, 64, 2500)][..], &many].concat();
        let found = of(&snapshots(&[first, &regions])).expect("there are two snapshots");
        assert_eq!(found.units.iter().map(|unit| unit.pages).collect::<Vec<_>>(), [32; 3]);
        // Of the checks of 48 pages two thirds were of the first 32; half of them found an access.
        is_close(found.of(0)[0], 20.0 / 3.0, 20.0 / 3.0 * 0.005);
        // The other third, and those of 16 pages with half as many accesses, weighed by pages.
        let checks = 20.0 / 3.0 + 20.0;
        is_close(found.of(1)[0], 0.375 * checks, 0.625 * checks * 0.005);
        assert_eq!((found.reach(), found.by_page), (Some(600.0), true));
        assert!(of(&Collected::default()).is_none());
    }

    #[test]
    fn a_block_is_checked_often_enough_to_tell_what_is_hot_and_no_small_region_stands_for_it() {
        // Half of 8192 pages, and one page more, are accessed at one check in twenty.
        let regions: &[(u64, u64, u16)] =
            &[(0, 4096, 500), (4096, 8000, 0), (8000, 8001, 500), (8001, 8192, 0)];
        let found = of(&snapshots(&[regions; 101])).expect("there are many snapshots");
        // Four regions, 100 times 20 checks: 62 blocks of 128 checks.
        assert_eq!(found.units[0].pages, 256);
        let rates: Vec<f64> =
            (0..found.units.len()).map(|unit| found.of(unit)[0].rate(0.005).expect("known")).collect();
        let hot = rates.iter().filter(|rate| **rate > 5.0).count();
        assert_eq!((hot, rates.len()), (16, 32), "{rates:?}");
        assert!(rates[31] < 0.1, "one page of 256: {rates:?}");
    }
}
