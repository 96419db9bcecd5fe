//! Files of other tools become evidence that is true to them.

mod damage;
mod damon;
mod folder;
mod lackey;
mod perf;

use std::path::{Path, PathBuf};

use thermocline_core::access::{Access, Region};
use thermocline_core::units::Nanos;
use thermocline_trace::import::{Format, ImportError, Options, Summary, detect, read};
use thermocline_trace::piece::{Piece, RegionCount};

/// A piece of evidence by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum One {
    /// An access.
    Access(Access),
    /// A region, and when it was reported.
    Region(Nanos, Region),
    /// The same of a region whose accesses were counted.
    Count(Nanos, RegionCount),
}

/// A fixture.
pub fn path(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/import")).join(name)
}

/// The bytes of a fixture.
pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).expect("the fixture is there")
}

/// What is read of some bytes.
pub struct Got {
    /// The evidence.
    pub evidence: Vec<One>,
    /// The settings, in order.
    pub settings: Vec<(String, String)>,
    /// What reading came to.
    pub result: Result<Summary, ImportError>,
}

impl Got {
    /// The accesses: time, page, and whether it was a store.
    pub fn accesses(&self) -> Vec<Access> {
        let accesses = self.evidence.iter().filter_map(|one| match one {
            One::Access(access) => Some(*access),
            _ => None,
        });
        accesses.collect()
    }
}

/// Reads bytes in the format that they are of.
pub fn got(bytes: &[u8], options: &Options) -> Got {
    let format = detect(&bytes[..bytes.len().min(1 << 16)]).expect("it is recognised");
    got_as(format, bytes, options)
}

/// Reads bytes in a format.
pub fn got_as(format: Format, mut bytes: &[u8], options: &Options) -> Got {
    let (mut evidence, mut settings, mut latest) = (Vec::new(), Vec::new(), Nanos(0));
    let result = read(format, &mut bytes, options, &mut |time, piece| {
        assert!(time >= latest, "steps go forwards");
        latest = time;
        match piece {
            Piece::Accesses(batch, _) => evidence.extend(batch.into_iter().map(One::Access)),
            Piece::Regions(snapshot) => {
                evidence
                    .extend(snapshot.regions.into_iter().map(|region| One::Region(snapshot.time, region)));
            }
            Piece::RegionCounts(at, regions) => {
                evidence.extend(regions.into_iter().map(|region| One::Count(at, region)));
            }
            Piece::Setting(key, value) => settings.push((key, value)),
            other => panic!("nothing else is imported: {other:?}"),
        }
        true
    });
    Got { evidence, settings, result }
}

/// Reading as far as it goes.
pub fn until_damage() -> Options {
    Options { until_damage: true, ..Options::default() }
}
