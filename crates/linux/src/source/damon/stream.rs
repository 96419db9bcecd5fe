//! Turns the records of one kdamond's ring into snapshots.

use thermocline_core::access::{RegionSnapshot, RegionSpace};
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::units::Nanos;

use super::event::{Format, sample};
use super::snapshots::Collector;
use crate::source::hwsample::record::{Record, decode};

/// The stream of one kdamond.
#[derive(Debug)]
pub struct Stream {
    format: Format,
    collector: Collector,
    lost: u64,
    malformed: u64,
}

impl Stream {
    /// For a kdamond that watches `space`.
    pub fn new(format: Format, space: RegionSpace, keys: &Keys) -> Stream {
        Stream { format, collector: Collector::new(space, keys), lost: 0, malformed: 0 }
    }

    /// Takes a record, including its header, and delivers a snapshot when it is complete; `false`
    /// if regions of it were lost. Never panics, and keeps at most twice the maximum number of
    /// regions.
    pub fn take(&mut self, record: &[u8], tell: impl FnMut(&RegionSnapshot, bool)) {
        match sample(record) {
            Some((time, raw)) => match self.format.decode(raw) {
                Some(region) => self.collector.take(time, &region, tell),
                None => self.malformed += 1,
            },
            None => match decode(record) {
                Ok(Record::Lost(records)) => self.lost = self.lost.saturating_add(records),
                Ok(_) => {}
                Err(_) => self.malformed += 1,
            },
        }
    }

    /// The intervals of the kdamond are about to change: nothing is delivered.
    pub(super) fn pause(&mut self) {
        self.collector.pause();
    }

    /// The intervals are those of `keys` from now on.
    pub(super) fn go_on(&mut self, keys: &Keys) {
        self.collector.go_on(keys);
    }

    /// The waiting records were invalid and were discarded.
    pub fn give_up(&mut self) {
        self.malformed += 1;
    }

    /// Records that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that could not be decoded.
    pub fn malformed(&self) -> u64 {
        self.malformed + self.collector.malformed()
    }

    /// The aggregation interval as last measured.
    pub fn interval(&self) -> Nanos {
        self.collector.interval()
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::NodeId;

    use super::*;
    use crate::source::damon::event::Aggregated;
    use crate::source::damon::event::tests::{FORMAT, raw, record};

    #[test]
    fn a_ring_of_records_becomes_snapshots_and_counts() {
        let format = Format::parse(FORMAT).unwrap();
        let mut stream = Stream::new(format, RegionSpace::Physical(NodeId(2)), &Keys::default());
        let region = |n: u64| {
            let told = Aggregated {
                regions: 2,
                start: n << 20,
                end: (n + 1) << 20,
                accesses: 10,
                ..Aggregated::default()
            };
            let raw = raw(&told);
            record(9, 7, &raw, raw.len() as u32)
        };
        // PERF_RECORD_LOST: an id and a count.
        let lost = record(2, 1, &[99, 0, 0, 0, 0, 0, 0, 0], 0)[..20].to_vec();
        let lost: Vec<u8> = lost[..16].iter().copied().chain(99u64.to_ne_bytes()).collect();
        let records = [region(0), lost, region(1), record(9, 7, &[0; 8], 8), vec![9, 0, 0, 0]];
        let mut told = Vec::new();
        records.iter().for_each(|bytes| stream.take(bytes, |s, whole| told.push((s.regions.len(), whole))));
        assert_eq!(told, [(2, true)]);
        assert_eq!((stream.lost(), stream.malformed()), (99, 2));
    }
}
