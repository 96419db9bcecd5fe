//! What damo writes as `json`: a list of records, one per monitored target, with snapshots.
//!
//! Snapshots are passed on as they are read, so that a recording of any length fits into memory.

use std::cell::RefCell;
use std::fmt;
use std::io::{BufRead, ErrorKind};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use thermocline_core::access::RegionSpace;

use super::bounded::Bounded;
use super::damon::{REGIONS_MAX, Report, Targets, snapshot};
use super::out::Out;
use super::quantity::Quantity;
use super::{ImportError, Intervals};

/// Reads a recording.
pub fn read(input: &mut dyn BufRead, given: Option<Intervals>, out: &mut Out<'_>) -> Result<(), ImportError> {
    let context = RefCell::new(Context { out, targets: Targets::default(), given, stopped: false });
    let mut json = serde_json::Deserializer::from_reader(Bounded::new(input));
    let read = Records(&context).deserialize(&mut json).and_then(|()| json.end());
    let stopped = context.borrow().stopped;
    match read {
        Ok(()) => Ok(()),
        Err(_) if stopped => Err(ImportError::Stopped),
        Err(error) => Err(wrong(error)),
    }
}

/// What serde_json says, without the place, which is told apart.
fn wrong(error: serde_json::Error) -> ImportError {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    match error.classify() {
        serde_json::error::Category::Eof => {
            ImportError::flaw(error.line() as u64, "the recording ends in the middle of this line")
        }
        // A compressed text that is cut or damaged fails to be decompressed.
        serde_json::error::Category::Io => {
            let damaged = |kind| matches!(kind, ErrorKind::InvalidData | ErrorKind::UnexpectedEof);
            if !error.io_error_kind().is_some_and(damaged) {
                return ImportError::Read(error.into());
            }
            ImportError::flaw(error.line() as u64, format!("behind this line it cannot be read: {what}"))
        }
        _ => ImportError::flaw(error.line() as u64, format!("it is no recording of damo's: {what}")),
    }
}

struct Context<'a, 'o> {
    out: &'a mut Out<'o>,
    targets: Targets,
    given: Option<Intervals>,
    stopped: bool,
}

type Shared<'a, 'o> = RefCell<Context<'a, 'o>>;

/// The list of records.
struct Records<'c, 'a, 'o>(&'c Shared<'a, 'o>);

impl<'de> DeserializeSeed<'de> for Records<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Records<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records of monitored targets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut records: A) -> Result<(), A::Error> {
        let mut place = 0;
        while records.next_element_seed(Record { context: self.0, place })?.is_some() {
            place += 1;
        }
        Ok(())
    }
}

/// Intervals as damo writes them, in µs where they have no unit.
#[derive(Deserialize)]
struct WrittenIntervals {
    sample_us: Quantity,
    aggr_us: Quantity,
}

/// One record, the place of which in the list is known.
struct Record<'c, 'a, 'o> {
    context: &'c Shared<'a, 'o>,
    place: usize,
}

impl<'de> DeserializeSeed<'de> for Record<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Record<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record of a monitored target")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut record: A) -> Result<(), A::Error> {
        let (mut intervals, mut target, mut kdamond, mut context) = (None, None, None, None);
        let mut number = None;
        while let Some(key) = record.next_key::<String>()? {
            // What follows the snapshots comes too late for them.
            let late =
                |what: &str| A::Error::custom(format!("{what} stands behind the snapshots that it is of"));
            match key.as_str() {
                "intervals" | "target_id" | "kdamond_idx" | "context_idx" if number.is_some() => {
                    return Err(late(&key));
                }
                "intervals" => intervals = record.next_value::<Option<WrittenIntervals>>()?,
                "target_id" => target = record.next_value::<Option<Quantity>>()?,
                "kdamond_idx" => kdamond = record.next_value::<Option<u64>>()?,
                "context_idx" => context = record.next_value::<Option<u64>>()?,
                "snapshots" => {
                    let intervals = match intervals.take() {
                        None => self.context.borrow().given,
                        Some(written) => Some(Intervals::of(&written).map_err(A::Error::custom)?),
                    };
                    let name = name(self.place, kdamond, context, target.take());
                    let named = {
                        let Context { out, targets, stopped, .. } = &mut *self.context.borrow_mut();
                        let named = targets.number(&name, out);
                        *stopped |= named.is_err();
                        named
                    };
                    let of = named.map_err(A::Error::custom)?;
                    let of = of.ok_or_else(|| A::Error::custom("there are too many targets"))?;
                    number = Some(of);
                    record.next_value_seed(Snapshots { context: self.context, target: of, intervals })?;
                }
                _ => {
                    record.next_value::<IgnoredAny>()?;
                }
            }
        }
        number.map(drop).ok_or_else(|| A::Error::missing_field("snapshots"))
    }
}

impl Intervals {
    fn of(written: &WrittenIntervals) -> Result<Intervals, &'static str> {
        let time = |quantity: &Quantity| quantity.time(1_000);
        let both = time(&written.sample_us).zip(time(&written.aggr_us));
        let (sample, aggregation) = both.ok_or("its intervals are no times")?;
        Ok(Intervals { sample, aggregation })
    }
}

/// What a target is called.
fn name(place: usize, kdamond: Option<u64>, context: Option<u64>, target: Option<Quantity>) -> String {
    let target = match target {
        Some(Quantity::Number(number)) => number.to_string(),
        Some(Quantity::Text(text)) => text,
        Some(Quantity::Negative) | None => "unknown".to_owned(),
    };
    let of = |index: Option<u64>| index.map_or("unknown".to_owned(), |index| index.to_string());
    format!("record {place}, kdamond {}, context {}, target {target}", of(kdamond), of(context))
}

/// The snapshots of a record.
struct Snapshots<'c, 'a, 'o> {
    context: &'c Shared<'a, 'o>,
    target: u32,
    intervals: Option<Intervals>,
}

impl<'de> DeserializeSeed<'de> for Snapshots<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

#[derive(Deserialize)]
struct WrittenSnapshot {
    end_time: Quantity,
    regions: Regions,
    #[serde(default)]
    sample_interval_us: Option<Quantity>,
}

impl<'de> Visitor<'de> for Snapshots<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of snapshots")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut snapshots: A) -> Result<(), A::Error> {
        while let Some(written) = snapshots.next_element::<WrittenSnapshot>()? {
            let Some(time) = written.end_time.time(1) else {
                return Err(A::Error::custom("the end_time of a snapshot is no time"));
            };
            // DAMON tunes its intervals: what was configured is then not how it was monitored.
            let tuned = written.sample_interval_us.map(|sample| sample.time(1_000));
            let intervals = self.intervals.filter(|i| tuned.is_none_or(|tuned| tuned == Some(i.sample)));
            let Context { out, stopped, .. } = &mut *self.context.borrow_mut();
            let taken = snapshot(RegionSpace::Target(self.target), time, &written.regions.0, intervals, out);
            *stopped |= taken.is_err();
            taken.map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The regions of a snapshot, not more than memory allows.
struct Regions(Vec<Report>);

#[derive(Deserialize)]
struct WrittenRegion {
    start: Quantity,
    end: Quantity,
    nr_accesses: WrittenAccesses,
    age: WrittenAge,
}

#[derive(Deserialize)]
struct WrittenAccesses {
    samples: Option<Quantity>,
}

#[derive(Deserialize)]
struct WrittenAge {
    aggr_intervals: Option<Quantity>,
}

impl<'de> Deserialize<'de> for Regions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Regions, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Regions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of regions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Regions, A::Error> {
                let mut regions = Vec::new();
                while let Some(written) = list.next_element::<WrittenRegion>()? {
                    if regions.len() >= REGIONS_MAX {
                        return Err(A::Error::custom(format!(
                            "a snapshot has more than {REGIONS_MAX} regions"
                        )));
                    }
                    regions.push(report(&written).map_err(A::Error::custom)?);
                }
                // What damo has put together of several snapshots is not in order.
                regions.sort_by_key(|region| region.start);
                match regions.windows(2).any(|two| two[1].overlaps(&two[0])) {
                    true => Err(A::Error::custom("regions of a snapshot overlap")),
                    false => Ok(Regions(regions)),
                }
            }
        }
        de::Deserializer::deserialize_seq(from, Visit)
    }
}

fn report(written: &WrittenRegion) -> Result<Report, &'static str> {
    let start_end = written.start.number().zip(written.end.number());
    let (start, end) = start_end.ok_or("a region's start and end are no addresses")?;
    let accesses = written.nr_accesses.samples.as_ref().and_then(Quantity::number);
    let accesses = accesses.ok_or("a region's nr_accesses has no number of samples")?;
    let age = match &written.age.aggr_intervals {
        None => None,
        Some(age) => Some(age.number().ok_or("a region's age is no number of intervals")?),
    };
    let report = Report { start, end, accesses, age };
    report.is_sound().then_some(report).ok_or("a region ends before it begins")
}
