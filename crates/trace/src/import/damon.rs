//! `damon:damon_aggregated` as `perf script` prints it and damo writes it: a line per region.
//!
//! ```text
//! kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=0 nr_regions=17 140731667070976-140731668037632: 0 3
//! ```
//!
//! The lines of a target follow each other until there are `nr_regions`: a snapshot. Whether a
//! target is a process or the machine's memory is not said, and neither are DAMON's intervals: out
//! of how many checks a count is, is known to who set it up.

use std::collections::BTreeMap;

use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::units::{Nanos, PAGE_SHIFT};

use super::lines::Lines;
use super::out::Out;
use super::quantity::seconds;
use super::{ImportError, Intervals};
use crate::piece::RegionCount;

/// Regions of a snapshot at most; DAMON has 1000 unless it is told otherwise.
pub const REGIONS_MAX: usize = 1 << 17;
/// Targets whose snapshots are open at the same time, and targets at all.
const OPEN_MAX: usize = 256;
const TARGETS_MAX: usize = 1 << 16;
/// Snapshots that lack regions: events that the tracer lost.
const INCOMPLETE: &str = "snapshots whose regions are not all there, of which the rest was kept";

/// A region as DAMON reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its addresses, in bytes.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Checks that found an access.
    pub accesses: u64,
    /// For how many aggregation intervals that has been about so.
    pub age: Option<u64>,
}

impl Report {
    /// Whether it has addresses.
    pub fn is_sound(&self) -> bool {
        self.start < self.end
    }

    /// Whether it begins in or before the last page of a region that comes before it.
    pub fn overlaps(&self, before: &Report) -> bool {
        self.pages().0 < before.pages().1
    }

    /// First page, and the page after the last.
    fn pages(&self) -> (u64, u64) {
        (self.start >> PAGE_SHIFT, ((self.end - 1) >> PAGE_SHIFT) + 1)
    }
}

/// Passes on a snapshot: as shares of checks where the intervals are known, else as counts.
pub fn snapshot(
    space: RegionSpace,
    time: Nanos,
    regions: &[Report],
    intervals: Option<Intervals>,
    out: &mut Out<'_>,
) -> Result<(), ImportError> {
    let checks =
        intervals.map(|i| (i, i.aggregation.0 / i.sample.0.max(1))).filter(|(_, checks)| *checks > 0);
    let aged = regions.iter().all(|region| region.age.is_some());
    if let Some((intervals, checks)) = checks.filter(|_| aged) {
        let region = |report: &Report| {
            let (start, end) = report.pages();
            let share = u128::from(report.accesses) * 10_000 / u128::from(checks);
            let age = report.age.unwrap_or_default().saturating_mul(intervals.aggregation.0);
            Region {
                space,
                start,
                end,
                access_rate_bp: share.min(10_000) as u16,
                age: Nanos(age),
                check: intervals.sample,
            }
        };
        return out.regions(RegionSnapshot { time, regions: regions.iter().map(region).collect() });
    }
    let count = |report: &Report| {
        let (start, end) = report.pages();
        RegionCount { space, start, end, accesses: report.accesses, writes: None, age: report.age }
    };
    out.counts(time, regions.iter().map(count).collect())
}

/// Numbers of targets, which their tool names in its own way.
#[derive(Debug, Default)]
pub struct Targets(BTreeMap<String, u32>);

impl Targets {
    /// The number of a target. The recording says which it is when it first appears.
    pub fn number(&mut self, name: &str, out: &mut Out<'_>) -> Result<Option<u32>, ImportError> {
        if let Some(number) = self.0.get(name) {
            return Ok(Some(*number));
        }
        if self.0.len() >= TARGETS_MAX {
            return Ok(None);
        }
        let number = self.0.len() as u32;
        self.0.insert(name.to_owned(), number);
        out.setting(&format!("target {number}"), name.to_owned())?;
        Ok(Some(number))
    }
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A region of a target's snapshot.
    Region { thread: &'a str, time: Nanos, target: &'a str, regions: u64, report: Option<Report> },
    /// Another event of DAMON.
    Other,
}

/// Reads a line; `None` if it is none of these.
fn line(text: &str) -> Option<Line<'_>> {
    let at = text.find("damon:").or_else(|| text.find("damon_aggregated:"))?;
    let (before, event) = text.split_at(at);
    let before = before.trim_end();
    let (thread, time) = before.rsplit_once(|c: char| c.is_ascii_whitespace())?;
    let time = seconds(time.strip_suffix(':')?)?;
    let mut words = event.split_ascii_whitespace();
    let name = words.next()?.strip_suffix(':')?;
    if !name.trim_start_matches("damon:").eq("damon_aggregated") {
        return name.starts_with("damon:").then_some(Line::Other);
    }
    // A kdamond wanders from processor to processor: its name and number say who it is.
    let thread = thread.split_once('[').map_or(thread, |(thread, _)| thread).trim();
    let target = words.next()?.strip_prefix("target_id=").filter(|target| !target.is_empty())?;
    let decimal = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    let regions = decimal(words.next()?.strip_prefix("nr_regions=")?)?;
    let (start, end) = words.next()?.strip_suffix(':')?.split_once('-')?;
    let (start, end) = (decimal(start)?, decimal(end)?);
    let (accesses, age) = (words.next()?, words.next());
    if words.next().is_some() || regions == 0 {
        return None;
    }
    // damo closes a recording of one snapshot with such a region, which is none.
    let fake = (start, end, accesses, age) == (0, 0, "-1", Some("-1"));
    let report = match fake {
        true => None,
        false => {
            let age = age.filter(|age| *age != "None").map(decimal);
            let age = if let Some(age) = age { Some(age?) } else { None };
            Some(Report { start, end, accesses: decimal(accesses)?, age })
                .filter(Report::is_sound)
                .map(Some)?
        }
    };
    Some(Line::Region { thread, time, target, regions, report })
}

/// A snapshot whose regions are not all read yet.
struct Open {
    time: Nanos,
    number: u32,
    wanted: u64,
    regions: Vec<Report>,
}

/// Reads events.
pub fn read(
    lines: &mut Lines<'_>,
    intervals: Option<Intervals>,
    out: &mut Out<'_>,
) -> Result<(), ImportError> {
    let (mut targets, mut open): (Targets, BTreeMap<String, Open>) = Default::default();
    while let Some(text) = lines.next_line()? {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, time, wanted, report) = match line(&text) {
            Some(Line::Other) => {
                out.leave_out("other events of DAMON", 1);
                continue;
            }
            Some(Line::Region { report: None, .. }) => continue,
            Some(Line::Region { thread, time, target, regions, report: Some(report) }) => {
                (format!("{thread} target {target}"), time, regions, report)
            }
            None => {
                return Err(lines.flaw(
                    "it is no damon:damon_aggregated event as perf script prints it and damo writes it",
                ));
            }
        };
        // Events were lost, if another snapshot of the target begins before the last one is whole.
        let begins =
            |o: &Open| o.wanted != wanted || o.regions.last().is_some_and(|last| report.overlaps(last));
        if open.get(&name).is_some_and(begins)
            && let Some(lost) = open.remove(&name)
        {
            out.leave_out(INCOMPLETE, 1);
            snapshot(RegionSpace::Target(lost.number), lost.time, &lost.regions, intervals, out)?;
        }
        if wanted > REGIONS_MAX as u64 || (open.len() >= OPEN_MAX && !open.contains_key(&name)) {
            return Err(lines.flaw(format!(
                "more than {REGIONS_MAX} regions in a snapshot, or {OPEN_MAX} snapshots at a time"
            )));
        }
        let Some(number) = targets.number(&name, out)? else {
            return Err(lines.flaw(format!("more than {TARGETS_MAX} targets")));
        };
        let one = open.entry(name.clone()).or_insert(Open { time, number, wanted, regions: Vec::new() });
        one.regions.push(report);
        if one.regions.len() as u64 >= wanted
            && let Some(whole) = open.remove(&name)
        {
            snapshot(RegionSpace::Target(number), whole.time, &whole.regions, intervals, out)?;
        }
    }
    match open.values().next() {
        None => Ok(()),
        Some(cut) => Err(lines.flaw(format!(
            "the text ends in the middle of a snapshot: {} of its {} regions are there",
            cut.regions.len(),
            cut.wanted
        ))),
    }
}
