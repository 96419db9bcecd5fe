//! Cut and changed files: nothing panics, what is refused is refused with its line, and what comes
//! before the damage is read.

use thermocline_trace::import::{Fields, Format, ImportError, Options};

use super::{One, fixture, got_as, until_damage};
use crate::faulty::mix;

/// Every fixture, with its format and the fields that it has.
const FILES: [(&str, Format, &str); 8] = [
    ("lackey-3.19.0.txt", Format::Lackey, ""),
    ("perf-6.1.187-faults.txt", Format::Perf, ""),
    ("perf-6.1.187-fields.txt", Format::Perf, "pid,tid,time,event,addr,data_src,ip,sym,dso,phys_addr"),
    ("perf-6.1.187-chains.txt", Format::Perf, "pid,tid,time,event,addr,ip,sym,dso"),
    ("damo-3.4.3.json", Format::Damo, ""),
    ("damo-3.4.3.json_compressed", Format::DamoCompressed, ""),
    ("damo-3.4.3.perf_script", Format::Damon, ""),
    ("memtierd-raw.txt", Format::Memtierd, ""),
];

fn options(fields: &str, until_damage: bool) -> Options {
    let fields = (!fields.is_empty()).then(|| fields.parse::<Fields>().expect("fields"));
    Options { until_damage, fields, intervals: None }
}

fn evidence(format: Format, bytes: &[u8], fields: &str) -> Vec<One> {
    let got = got_as(format, bytes, &options(fields, true));
    match got.result {
        Ok(_) => got.evidence,
        // Damage of a compressed file shows when it is read.
        Err(error) => panic!("it is read up to the damage: {error}"),
    }
}

/// Whatever is cut off, the rest is a beginning; and it is refused, unless it ends where a line
/// does that may be the last.
#[test]
fn a_cut_file_has_the_evidence_before_the_cut() {
    for (name, format, fields) in FILES {
        let bytes = fixture(name);
        let all = evidence(format, &bytes, fields);
        assert!(all.len() >= 5, "{name}");
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            let some = evidence(format, cut, fields);
            assert!(all.starts_with(&some), "{name} cut at {end}");
            let got = got_as(format, cut, &options(fields, false));
            let at_end_of_line = end == 0 || cut.ends_with(b"\n");
            // JSON is whole at its last bracket.
            let blank = format == Format::Damo && bytes[end..].iter().all(u8::is_ascii_whitespace);
            match got.result {
                Ok(_) => assert!(at_end_of_line || blank, "{name} cut at {end} is not refused"),
                Err(ImportError::Flaw(flaw)) => {
                    let lines = cut.split(|byte| *byte == b'\n').count() as u64;
                    let behind = format == Format::DamoCompressed || flaw.line <= lines;
                    assert!(behind, "{name} cut at {end}: {flaw}");
                }
                Err(error) => panic!("{name} cut at {end}: {error}"),
            }
        }
    }
}

/// A byte is changed, removed, doubled, or others are put between. What comes before its line
/// stays.
#[test]
fn a_changed_file_has_the_evidence_before_the_change() {
    let mut refused = 0;
    for seed in 0..4000u64 {
        let random = |n: u64| mix(seed << 8 | n);
        let (name, format, fields) = FILES[random(1) as usize % FILES.len()];
        let mut bytes = fixture(name);
        let at = random(2) as usize % bytes.len();
        let some = random(3).to_le_bytes();
        match random(4) % 4 {
            0 => bytes[at] ^= 1 << (random(5) % 8),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, bytes[at]),
            _ => drop(bytes.splice(at..at, some[..1 + random(5) as usize % 8].iter().copied())),
        }
        // The beginning of the line is where what is sure ends.
        let sure = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let changed = evidence(format, &bytes, fields);
        let before = evidence(format, &bytes[..sure], fields);
        assert!(changed.starts_with(&before), "seed {seed}: {name} changed at {at}");
        let result = got_as(format, &bytes, &options(fields, false)).result;
        refused += u32::from(result.is_err());
        if let Err(error) = result {
            assert!(matches!(error, ImportError::Flaw(_)), "seed {seed}: {name}: {error}");
        }
    }
    assert!(refused > 1000, "{refused} of 4000 were refused");
}

/// Two files in one are refused where the second begins.
#[test]
fn a_mixed_file_is_refused_where_the_second_begins() {
    for (name, format, fields) in FILES {
        for (other, other_format, _) in FILES {
            let damon = |format| matches!(format, Format::Damo | Format::DamoCompressed);
            if format == other_format || damon(format) && damon(other_format) {
                continue;
            }
            let first = fixture(name);
            let mixed = [&first[..], &fixture(other)].concat();
            let got = got_as(format, &mixed, &options(fields, false));
            // Valgrind's own words may stand anywhere in its trace, and DAMON's comments.
            let Err(ImportError::Flaw(flaw)) = got.result else {
                panic!("{name} and {other}: {:?}", got.result);
            };
            let lines = first.iter().filter(|byte| **byte == b'\n').count() as u64;
            let json = damon(format);
            assert!(json || flaw.line > lines, "{name} and {other}: {flaw}");
            let until = got_as(format, &mixed, &options(fields, true));
            assert_eq!(until.evidence.len(), evidence(format, &first, fields).len(), "{name} and {other}");
        }
    }
    assert!(got_as(Format::Lackey, b"", &until_damage()).evidence.is_empty());
}
