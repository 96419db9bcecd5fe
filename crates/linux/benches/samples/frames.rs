//! Frames of this process, and the reverse map that finds out whose they are.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::access::{Access, Detail};
use thermocline_core::config;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid};
use thermocline_linux::pagemap::{Entry, Pagemap};
use thermocline_linux::reverse::ReverseMap;
use thermocline_linux::root::Root;
use thermocline_linux::topology::{PfnMap, PfnRange};

use crate::rings::{SEED, topology};

/// Memory whose frames are asked for: with its entries far apart, more than a core's caches hold.
const BYTES: usize = 512 << 20;
const PAGE: usize = 4096;
/// How long a round may take.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// A map that knows the frames of a block of memory, and accesses to random ones of them.
pub(crate) struct Frames {
    map: ReverseMap,
    accesses: Vec<Access>,
    _block: Vec<u8>,
}

impl Frames {
    /// Has a map find the block.
    ///
    /// # Errors
    /// Why this machine cannot have one.
    pub(crate) fn new() -> Result<Frames, String> {
        let block = vec![1u8; BYTES];
        let me = Pid(std::process::id());
        let first = (block.as_ptr() as usize).div_ceil(PAGE) as u64;
        let mut entries = vec![Entry::default(); BYTES / PAGE - 1];
        let pagemap = Pagemap::open(Path::new("/proc"), me).map_err(|e| e.to_string())?;
        pagemap.read(first, &mut entries).map_err(|e| e.to_string())?;
        let pfns: Vec<Pfn> = entries.into_iter().filter_map(Entry::pfn).collect();

        let config =
            config::Reverse { cpu_permille: 1000, pages_per_s: 1_000_000_000, ..config::Reverse::default() };
        let slow = PfnRange { start: Pfn(0), end: Pfn(1 << 40), node: NodeId(1) };
        let machine = PfnMap::new(vec![slow]);
        let map = ReverseMap::start(&Root::default(), &config, &machine, &topology(), false);
        let mut map = map.map_err(|e| e.to_string())?;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let access = |pfn| Access {
            time: Nanos(1),
            pfn: Some(pfn),
            page: None,
            order: 0,
            node: NodeId(1),
            accessor: None,
            detail: Detail::Sample { latency_cycles: 0, store: Some(false), period: 10_000 },
        };
        let accesses: Vec<Access> =
            (0..1 << 20).map(|_| access(pfns[random.next_u64() as usize % pfns.len()])).collect();
        map.resolve(&mut [accesses[0]], |_| true);
        map.look(Nanos(0), [me].into_iter());
        let end = Instant::now() + ROUND_MAX;
        while map.stats().frames < pfns.len() as u64 {
            map.take_in();
            if Instant::now() >= end {
                return Err(format!("the round has not found all frames: {:?}", map.stats()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Frames { map, accesses, _block: block })
    }

    /// Puts pages to the accesses, `batch` at a time; returns how many there were.
    pub(crate) fn resolve(&mut self, batch: usize, scope: &BTreeSet<Pid>) -> usize {
        let mut room = Vec::with_capacity(batch);
        for accesses in self.accesses.chunks(batch) {
            room.extend_from_slice(accesses);
            self.map.resolve(&mut room, |pid| pid.0 == std::process::id() || scope.contains(&pid));
            room.clear();
        }
        self.accesses.len()
    }
}
