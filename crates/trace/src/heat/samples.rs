//! Hardware samples as evidence: one access in so many was sampled.

use std::collections::BTreeMap;

use super::collect::{Collected, Sample};
use super::epochs::Epochs;
use super::evidence::{Count, Evidence, HeatSource, Unit};
use super::waits::unseen;
use thermocline_core::access::RegionSpace;

/// The evidence of samples. A page that was accessed at the rate λ has λ · time / period samples,
/// so time over the period is the time in which it was watched. The period between two samples is
/// that of the later one.
pub fn evidence(from: &Collected, epochs: Epochs) -> Evidence {
    let mut samples = from.samples.clone();
    samples.sort_by_key(|sample| sample.time);
    let mut watched = vec![Count::default(); epochs.number];
    let mut before = epochs.start;
    for sample in &samples {
        let factor = 1.0 / f64::from(sample.period.max(1));
        epochs.spread(before, sample.time, factor, &mut watched);
        before = before.max(sample.time);
    }
    if let Some(last) = samples.last() {
        epochs.spread(before, epochs.end, 1.0 / f64::from(last.period.max(1)), &mut watched);
    }
    let quiet_s: f64 = watched.iter().map(|count| count.quiet_s).sum();
    let half = Count { hits: 0.0, quiet_s: quiet_s / 2.0 };
    let mut pages: BTreeMap<_, (u8, usize, [Count; 2], Vec<Count>)> = BTreeMap::new();
    for Sample { page, order, time, .. } in samples {
        let (smallest, number, halves, counts) =
            pages.entry(page).or_insert_with(|| (order, page.vpn as usize, [half; 2], watched.clone()));
        *smallest = order.min(*smallest);
        counts[epochs.at(time)].hits += 1.0;
        // Which half the first sample belongs to is as good as chance, so that neither has more.
        halves[*number % 2].hits += 1.0;
        *number += 1;
    }
    let (mut units, mut counts): (Vec<Unit>, Vec<Count>) = (Vec::new(), Vec::new());
    let mut halves = Vec::new();
    let mut spaces: Vec<RegionSpace> = Vec::new();
    for (page, (order, _, in_halves, found)) in pages {
        let space = RegionSpace::Virtual(page.pid);
        if spaces.last() != Some(&space) {
            spaces.push(space);
        }
        let space = spaces.len() as u32 - 1;
        if let Some(before) = units.last_mut().filter(|u: &&mut Unit| u.space == space) {
            before.pages = u64::from(before.pages).min(page.vpn - before.first) as u32;
        }
        units.push(Unit { space, pages: 1 << order.min(18), first: page.vpn });
        counts.extend(found);
        halves.push(in_halves);
    }
    let (silent_pages, dark_pages) = unseen(from, &units, &spaces);
    Evidence {
        source: HeatSource::Samples,
        check_s: 0.0,
        start: epochs.start,
        end: epochs.end,
        spaces,
        units,
        counts,
        halves,
        cost_s: 0.0,
        epochs: epochs.number,
        by_page: false,
        silent_pages,
        silent: Count { hits: 0.0, quiet_s },
        dark_pages,
    }
}

/// Whether the period of every sample is known.
pub fn periods_known(samples: &[Sample]) -> bool {
    samples.iter().all(|sample| sample.period > 0)
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::{Nanos, Pid, VirtPage};

    use super::*;

    #[test]
    fn a_sample_stands_for_a_period_of_accesses() {
        let sample = |vpn, s, period| Sample {
            page: VirtPage { pid: Pid(1), vpn },
            order: 0,
            time: Nanos::from_s(s),
            period,
        };
        // Four seconds with one sample in 100, six with one in 200.
        let samples = vec![sample(5, 2, 100), sample(9, 4, 100), sample(5, 8, 200)];
        let collected = Collected { samples, ..Collected::default() };
        let found = evidence(&collected, Epochs { start: Nanos(0), end: Nanos::from_s(10), number: 1 });
        let quiet_s = 4.0 / 100.0 + 6.0 / 200.0;
        assert_eq!(found.units.iter().map(|u| u.first).collect::<Vec<_>>(), [5, 9]);
        assert!((found.of(0)[0].quiet_s - quiet_s).abs() < 1e-12 && found.of(0)[0].hits == 2.0);
        assert!((found.of(1)[0].quiet_s - quiet_s).abs() < 1e-12 && found.of(1)[0].hits == 1.0);
        assert!(periods_known(&collected.samples) && found.reach().is_none());
    }
}
