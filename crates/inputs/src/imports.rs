//! Files of other tools from anywhere.
//!
//! The first byte chooses the format and what the reader is told, the second where the input is
//! cut. Whatever it says: no panic, steps whose times do not go back, no evidence that names a node
//! or is longer than a batch, a flaw with a line of the input, and from a cut input the beginning
//! of what the whole one gives.

use thermocline_core::access::{Access, Detail, Region, RegionSpace};
use thermocline_core::units::{Nanos, NodeId};
use thermocline_trace::import::{Format, ImportError, Intervals, Options, Summary, detect, read};
use thermocline_trace::piece::{Piece, RegionCount};

/// Evidence of a piece at most.
const PIECES_MAX: u64 = 1 << 17;
/// Fields that perf may have been asked for.
const FIELDS: [&str; 4] = [
    "pid,tid,time,event,addr",
    "pid,tid,time,event,addr,data_src,weight,phys_addr",
    "pid,tid,time,event,addr,ip,sym,dso,phys_addr",
    "pid,tid,time,event,addr,data_src,weight,ip,sym,dso,phys_addr",
];

/// A piece of evidence by itself.
#[derive(Debug, PartialEq)]
enum One {
    Access(Access),
    Region(Nanos, Region),
    Count(Nanos, RegionCount),
}

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some(([how, cut], bytes)) = bytes.split_first_chunk() else { return };
    let _ = detect(bytes);
    let format = Format::ALL[usize::from(*how) % Format::ALL.len()];
    let sample = Nanos::from_ms(5);
    let mut options = Options {
        until_damage: how & 64 == 0,
        fields: (how & 128 != 0).then(|| FIELDS[usize::from(how / 6 % 4)].parse().expect("perf's fields")),
        intervals: (how & 32 == 0).then_some(Intervals { sample, aggregation: Nanos::from_ms(100) }),
    };
    let (all, result) = evidence(format, bytes, &options);
    match result {
        Ok(summary) => assert_eq!(summary.pieces, all.len() as u64),
        Err(ImportError::Flaw(flaw)) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            assert!(!options.until_damage && (format == Format::DamoCompressed || flaw.line <= lines));
        }
        Err(error) => panic!("{error}"),
    }
    options.until_damage = true;
    let end = bytes.len() * usize::from(*cut) / 256;
    let (whole, _) = evidence(format, bytes, &options);
    let (beginning, _) = evidence(format, &bytes[..end], &options);
    assert!(whole.starts_with(&beginning));
}

fn evidence(format: Format, mut bytes: &[u8], options: &Options) -> (Vec<One>, Result<Summary, ImportError>) {
    let (mut all, mut latest) = (Vec::new(), Nanos(0));
    let result = read(format, &mut bytes, options, &mut |time, piece| {
        assert!(time >= latest && piece.pieces() <= PIECES_MAX);
        latest = time;
        match piece {
            Piece::Accesses(batch, answers) => {
                for access in &batch {
                    assert!(access.node == NodeId::UNKNOWN && access.time <= time);
                    assert!(access.page.is_some() || access.pfn.is_some());
                    assert!(matches!(access.detail, Detail::Sample { .. }));
                }
                assert!(!batch.is_empty() && answers.is_empty());
                all.extend(batch.into_iter().map(One::Access));
            }
            Piece::Regions(snapshot) => {
                for region in &snapshot.regions {
                    assert!(region.start < region.end && region.access_rate_bp <= 10_000);
                    assert!(matches!(region.space, RegionSpace::Target(_)));
                }
                assert!(snapshot.regions.windows(2).all(|two| two[0].end <= two[1].start));
                all.extend(snapshot.regions.into_iter().map(|region| One::Region(snapshot.time, region)));
            }
            Piece::RegionCounts(at, regions) => {
                assert!(regions.iter().all(|region| region.start < region.end));
                all.extend(regions.into_iter().map(|region| One::Count(at, region)));
            }
            Piece::Setting(..) => {}
            other => panic!("{other:?} is not imported"),
        }
        true
    });
    (all, result)
}
