//! The ring of a kdamond's tracepoint filled with anything, and the kernel's description of the
//! event as it changes it.
//!
//! The first byte says how much of the input is written over the description, and whether a node is
//! watched or a process; the rest is the ring. Whatever they say: no panic, no more regions in a
//! snapshot than twice as many as there may be, ascending and disjoint.

use thermocline_core::access::RegionSpace;
use thermocline_core::config::DamonSource;
use thermocline_core::units::{NodeId, Pid};
use thermocline_linux::source::damon::event::Format;
use thermocline_linux::source::damon::stream::Stream;
use thermocline_linux::sys::perf::ring::{Scratch, Waiting};

const FORMAT: &str = "ID: 734\n\
    \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n";
const REGIONS_MAX: u64 = 16;

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some((&over, bytes)) = bytes.split_first() else { return };
    let (text, ring) = bytes.split_at(usize::from(over & 63).min(bytes.len()));
    let mut format = FORMAT.as_bytes().to_vec();
    for write in text.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([write[0], write[1]])) % format.len();
        format[at] = write[2];
    }
    let Ok(format) = Format::parse(&String::from_utf8_lossy(&format)) else { return };
    let keys = DamonSource { regions_min: 3, regions_max: REGIONS_MAX, ..DamonSource::default() };
    let space = if over & 64 == 0 { RegionSpace::Physical(NodeId(1)) } else { RegionSpace::Virtual(Pid(1)) };
    let mut stream = Stream::new(format, space, &keys);
    let (first, second) = ring.split_at(ring.len() / 3);
    let mut told = 0;
    let read = Waiting { first, second }.read(usize::MAX, &mut Scratch::default(), |record| {
        stream.take(record, |snapshot, _| {
            let regions = &snapshot.regions;
            assert!(!regions.is_empty() && regions.len() as u64 <= 2 * REGIONS_MAX);
            assert!(regions.iter().all(|r| r.start < r.end && r.access_rate_bp <= 10_000));
            assert!(regions.iter().all(|r| r.space == space));
            assert!(regions.windows(2).all(|w| w[0].end <= w[1].start));
            told += regions.len();
        });
    });
    assert!(told as u64 + stream.malformed() <= read.records as u64);
}
