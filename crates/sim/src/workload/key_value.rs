//! Pattern `key-value`: a store of records under the workloads A to F of YCSB (B. F. Cooper et al.,
//! SoCC 2010).
//!
//! An operation looks its key up in an index, where all entries are equally likely because keys are
//! hashed, and accesses the record. Records are scattered over the pages regardless of popularity,
//! except for D, where they lie in order of insertion. A scan (E) reads on from a popular record,
//! so a page is as popular as the records before it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Latest, Operation, Pattern, Phase, Shape, Visits, Zipf};
use crate::memory::CellMap;
use crate::memory::layout::{Layout, Shuffle};
use crate::random::Random;
use crate::spec::{SpecError, require};

/// YCSB's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// Half reads, half updates; zipf.
    A,
    /// 95 % reads, 5 % updates; zipf.
    B,
    /// Reads; zipf.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts; zipf.
    E,
    /// Half reads, half reads that write back; zipf.
    F,
}

/// Records of a scan, on average.
const SCAN: u32 = 50;

impl Workload {
    /// Share of the accesses to records that are stores. In an update every access is one; in a
    /// write back, every second.
    fn record_stores(self) -> f64 {
        match self {
            Workload::A => 0.5,
            Workload::B | Workload::D => 0.05,
            Workload::C => 0.0,
            Workload::E => 0.05 / (0.95 * f64::from(SCAN) + 0.05),
            Workload::F => 1.0 / 3.0,
        }
    }

    /// Records accessed per operation.
    fn records(self) -> f64 {
        match self {
            Workload::E => 0.95 * f64::from(SCAN) + 0.05,
            Workload::F => 1.5,
            _ => 1.0,
        }
    }
}

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyValue {
    /// YCSB's workload.
    pub workload: Workload,
    /// Popularity of the records: zipf with this exponent.
    #[serde(default = "super::zipf::exponent")]
    pub exponent: f64,
    /// Records on a page.
    pub records_per_page: u32,
    /// Number of zipf items that are hashed onto the records, if larger than their number: YCSB's
    /// scrambled zipfian has 10^10, so no record is as unpopular as its rank would make it.
    #[serde(default)]
    pub items: u64,
    /// Share of the memory that the index takes.
    pub index_share: f64,
    /// Share of the memory that is never accessed (such as page cache from loading the records);
    /// scattered between the records, except for workload D, where it precedes them.
    #[serde(default)]
    pub cold_share: f64,
    /// Accesses to the index in an operation.
    pub index_accesses: f64,
    /// Accesses to each record in an operation.
    pub record_accesses: f64,
    /// Operations of each thread.
    pub operations: u64,
}

impl KeyValue {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        let known = (0.0..1.0).contains(&self.index_share);
        require(known, &format!("{place}.index_share"), "is no share", "give 0 to below 1")?;
        for (key, accesses) in
            [("index_accesses", self.index_accesses), ("record_accesses", self.record_accesses)]
        {
            let known = (0.0..=1e6).contains(&accesses);
            require(known, &format!("{place}.{key}"), "is no number of accesses", "give 0 to 1e6")?;
        }
        let some = self.record_accesses > 0.0 && self.operations > 0;
        require(some, place, "makes no access", "give operations and record_accesses above 0")?;
        let known = (1..=4096).contains(&self.records_per_page);
        require(known, &format!("{place}.records_per_page"), "is out of range", "give 1 to 4096")?;
        let known = (0.0..1.0).contains(&self.cold_share);
        require(known, &format!("{place}.cold_share"), "is no share", "give 0 to below 1")?;
        let cold = (f64::from(pages) * self.cold_share).round() as u32;
        let index = (f64::from(pages) * self.index_share).round() as u32;
        require(
            index.saturating_add(cold) < pages,
            &format!("{place}.index_share"),
            "leaves no page for records",
            "give less",
        )?;
        let index = if self.index_accesses > 0.0 { index } else { 0 };
        let to_records = self.record_accesses * self.workload.records();
        let to_index = if index > 0 { self.index_accesses } else { 0.0 };
        let per_operation = to_records + to_index;
        let accesses = (self.operations as f64 * per_operation).round().clamp(1.0, 1e18) as u64;
        let records: Box<dyn Pattern> = match self.workload {
            Workload::D => Latest {
                exponent: self.exponent,
                items_per_page: self.records_per_page,
                accesses,
                insert_every: (20.0 * per_operation).round().max(1.0) as u64,
            }
            .build(pages - index - cold, threads, place)?,
            workload => {
                let records = pages - index - cold;
                let hashed = (self.items / u64::from(records)).min(u64::from(u32::MAX)) as u32;
                let items_per_page = self.records_per_page.max(hashed);
                let span = if workload == Workload::E { SCAN.div_ceil(self.records_per_page) } else { 1 };
                Zipf { exponent: self.exponent, items_per_page, accesses }
                    .spanning(span, records, threads, place)?
            }
        };
        let to = |records: f64, accesses: f64| (records, records, accesses * self.record_accesses);
        let kinds = match self.workload {
            Workload::E => {
                vec![(0.95, (1.0, f64::from(2 * SCAN - 1), self.record_accesses)), (0.05, to(1.0, 1.0))]
            }
            Workload::F => vec![(0.5, to(1.0, 1.0)), (0.5, to(1.0, 2.0))],
            _ => vec![(1.0, to(1.0, 1.0))],
        };
        let layout = match records.layout() {
            same @ (Layout::Identity | Layout::Listed(_)) => same,
            Layout::Shuffled(_) => Layout::Shuffled(Shuffle::new(pages, 3)),
        };
        Ok(Box::new(Running {
            layout,
            index,
            cold,
            index_weight: to_index / per_operation,
            store_share: self.workload.record_stores() * to_records / per_operation,
            to_index,
            kinds,
            records,
            mixed: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct Running {
    layout: Layout,
    /// Pages of the index: the first positions.
    index: u32,
    /// Pages that are never accessed: the positions after them.
    cold: u32,
    /// Share of the accesses that go to the index.
    index_weight: f64,
    store_share: f64,
    /// Accesses of an operation to the index.
    to_index: f64,
    /// Shares of the operations, with the least and the largest number of records and the accesses
    /// to each.
    kinds: Vec<(f64, (f64, f64, f64))>,
    records: Box<dyn Pattern>,
    /// Distributions over records, and the same with the index.
    mixed: Vec<(Arc<Distribution>, Arc<Distribution>)>,
}

impl Running {
    /// Positions before the records.
    fn before(&self) -> u32 {
        self.index + self.cold
    }

    /// Cells before the records.
    fn cells_before(&self) -> u32 {
        u32::from(self.index > 0) + u32::from(self.cold > 0)
    }
}

impl Pattern for Running {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn cells(&self) -> CellMap {
        let records = self.records.cells();
        let before = self.before();
        let starts = (0..records.len()).map(|c| before + records.range(c).start);
        let own = [(self.index, 0), (self.cold, self.index)];
        let starts: Vec<u32> =
            own.iter().filter(|(pages, _)| *pages > 0).map(|(_, start)| *start).chain(starts).collect();
        CellMap::of(&starts, before + records.range(records.len() - 1).end)
    }

    fn store_share(&self) -> Option<f64> {
        Some(self.store_share)
    }

    fn operation(&self) -> Option<Operation> {
        let records = self.cells_before()..self.cells().len();
        let kind = |(share, (least, largest, accesses)): &(f64, (f64, f64, f64))| {
            let index = Visits::single(0..1, self.to_index);
            (
                *share,
                vec![
                    index,
                    Visits { cells: records.clone(), number: (*least, *largest), accesses: *accesses },
                ],
            )
        };
        Some(Operation { kinds: self.kinds.iter().map(kind).collect(), popularity: None })
    }

    fn next_phase(&mut self, thread: u32, random: &mut Random) -> Option<Phase> {
        let phase = self.records.next_phase(thread, random)?;
        let (Shape::Random(records), true) = (&phase.shape, self.before() > 0) else { return Some(phase) };
        if let Some((_, mixed)) = self.mixed.iter().find(|(known, _)| Arc::ptr_eq(known, records)) {
            return Some(Phase { shape: Shape::Random(mixed.clone()), accesses: phase.accesses });
        }
        let weight = self.index_weight;
        let cells = self.cells_before();
        let shifted = records.weights().iter().map(|(cell, w)| (cell + cells, w * (1.0 - weight)));
        let mixed = Arc::new(Distribution::weighted([(0, weight)].into_iter().chain(shifted)));
        self.mixed.push((records.clone(), mixed.clone()));
        Some(Phase { shape: Shape::Random(mixed), accesses: phase.accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn store(workload: Workload) -> Box<dyn Pattern> {
        let spec = KeyValue {
            workload,
            exponent: 0.99,
            records_per_page: 3,
            items: 0,
            index_share: 0.1,
            cold_share: 0.2,
            index_accesses: 2.0,
            record_accesses: 6.0,
            operations: 1000,
        };
        spec.build(10_000, 1, "pattern").unwrap()
    }

    #[test]
    fn index_and_records_get_their_accesses() {
        let mut pattern = store(Workload::C);
        let map = pattern.cells();
        assert_eq!((map.range(0), map.range(map.len() - 1).end), (0..1000, 10_000));
        let phase = pattern.next_phase(0, &mut Random::new(1, Stream::Phases(0))).unwrap();
        let Shape::Random(d) = &phase.shape else { panic!("random") };
        assert_eq!(map.range(1), 1000..3000);
        assert!(d.weights().iter().all(|(cell, _)| *cell != 1), "nobody accesses the cold part");
        assert_eq!(phase.accesses, 8000);
        assert!((d.weights()[0].1 - 0.25).abs() < 1e-12 && d.weights()[0].0 == 0);
    }

    #[test]
    fn operations_make_all_the_accesses() {
        use Workload::{A, B, C, D, E, F};
        // Two to the index, six to each record: of a scan 0.95 x 50 + 0.05 records on average, and
        // half of F's operations access theirs twice.
        let expected = [(A, 8.0), (B, 8.0), (C, 8.0), (D, 8.0), (E, 2.0 + 6.0 * 47.55), (F, 2.0 + 6.0 * 1.5)];
        for (workload, accesses) in expected {
            let mut pattern = store(workload);
            let operation = pattern.operation().unwrap();
            assert!((operation.accesses() - accesses).abs() < 1e-9, "{workload:?}");
            let mut random = Random::new(1, Stream::Phases(0));
            let made: u64 =
                std::iter::from_fn(|| pattern.next_phase(0, &mut random)).map(|p| p.accesses).sum();
            assert!((made as f64 / 1000.0 - accesses).abs() < 1e-3, "{workload:?}: {made}");
        }
    }

    #[test]
    fn workloads_store_as_much_as_they_update() {
        let stores = |w| store(w).store_share().unwrap();
        assert!((stores(Workload::A) - 0.5 * 0.75).abs() < 1e-12);
        assert_eq!(stores(Workload::C), 0.0);
        assert!((stores(Workload::F) - 9.0 / 11.0 / 3.0).abs() < 1e-12);
        assert!(stores(Workload::E) < 0.01);
    }

    #[test]
    fn scans_even_out_and_inserts_move_on() {
        let top = |w| {
            let mut pattern = store(w);
            let mut random = Random::new(1, Stream::Phases(0));
            let phases: Vec<Phase> = std::iter::from_fn(|| pattern.next_phase(0, &mut random)).collect();
            let Shape::Random(d) = &phases[0].shape else { panic!("random") };
            let map = pattern.cells();
            let densest = d.weights().iter().map(|(c, w)| w / f64::from(map.size(*c))).fold(0.0, f64::max);
            (densest, phases.len())
        };
        assert!(top(Workload::E).0 < 0.2 * top(Workload::C).0);
        assert_eq!(top(Workload::C).1, 1);
        // 108 records a cell, one each 160 accesses: the first cell is not full after 8000.
        assert_eq!(top(Workload::D).1, 1);
    }
}
