//! The tracepoint `damon:damon_aggregated`: its location and the content of its records.
//!
//! The fields are found by the kernel's own description of them (Linux
//! Documentation/trace/events.rst, "Event Format"), so that neither offsets nor sizes are assumed.

use std::path::PathBuf;

use thermocline_core::units::Nanos;

use crate::root::{KernelFileError, Root, read_optional};
use crate::sys::perf::ring::HEADER_BYTES;

/// PERF_RECORD_SAMPLE.
const KIND_SAMPLE: u32 = 9;

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The event's number is not there.
    #[error("the description of the event has no number (ID)")]
    NoId,
    /// A field is missing, or is not a number of up to 8 bytes.
    #[error("the description of the event has no field {0} of 1, 2, 4 or 8 bytes")]
    NoField(&'static str),
}

/// Where a field is in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    fn find(text: &str, name: &'static str) -> Result<Field, FormatError> {
        let number = |line: &str, key: &str| -> Option<usize> {
            line.split(';').find_map(|part| part.trim().strip_prefix(key)?.strip_prefix(':')?.parse().ok())
        };
        let is_named = |line: &&str| {
            let declared = line.split(';').next().and_then(|part| part.trim().strip_prefix("field:"));
            declared.and_then(|d| d.split_whitespace().last()) == Some(name)
        };
        let field = text.lines().find(is_named).and_then(|line| {
            let (offset, size) = (number(line, "offset")?, number(line, "size")?);
            (offset < 1 << 16 && matches!(size, 1 | 2 | 4 | 8)).then_some(Field { offset, size })
        });
        field.ok_or(FormatError::NoField(name))
    }

    fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        Some(match self.size {
            1 => bytes[0].into(),
            2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
            4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

/// The kernel's layout of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    id: u64,
    target: Field,
    regions: Field,
    start: Field,
    end: Field,
    accesses: Field,
    age: Field,
}

/// One region of one aggregation, as reported by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregated {
    /// Number of the kdamond's target.
    pub target: u64,
    /// Regions of that target, all of which are reported in a row.
    pub regions: u64,
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Samples that found it accessed.
    pub accesses: u64,
    /// Aggregations for which its access count has been about the same.
    pub age: u64,
}

impl Format {
    /// Reads the text of the event's `format` file.
    ///
    /// # Errors
    /// [`FormatError`] says what is missing.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok());
        let field = |name| Field::find(text, name);
        Ok(Format {
            id: id.ok_or(FormatError::NoId)?,
            target: field("target_id")?,
            regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// The event's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Decodes a record; `None` if it is too short. Never panics.
    pub fn decode(&self, record: &[u8]) -> Option<Aggregated> {
        Some(Aggregated {
            target: self.target.of(record)?,
            regions: self.regions.of(record)?,
            start: self.start.of(record)?,
            end: self.end.of(record)?,
            accesses: self.accesses.of(record)?,
            age: self.age.of(record)?,
        })
    }
}

/// The description of the event, and where it was found.
///
/// # Errors
/// tracefs is not mounted, or this kernel has no DAMON.
pub fn format(root: &Root) -> Result<(PathBuf, String), KernelFileError> {
    let first = root.sys.join("kernel/tracing/events/damon/damon_aggregated/format");
    for path in [first.clone(), root.debugfs().join("tracing/events/damon/damon_aggregated/format")] {
        if let Some(text) = read_optional(&path)? {
            return Ok((path, text));
        }
    }
    let remedy = "mount -t tracefs none /sys/kernel/tracing, or boot a kernel with CONFIG_DAMON";
    Err(KernelFileError::not_supported("DAMON's tracepoint", &first, remedy))
}

/// The time and the event of a perf record of TIME and RAW; `None` for records of another kind, and
/// if the lengths do not match.
pub fn sample(record: &[u8]) -> Option<(Nanos, &[u8])> {
    let kind = u32::from_ne_bytes(*record.first_chunk()?);
    if kind != KIND_SAMPLE {
        return None;
    }
    let content = record.get(HEADER_BYTES..)?;
    let (time, content) = content.split_first_chunk::<8>()?;
    let (size, content) = content.split_first_chunk::<4>()?;
    let raw = content.get(..usize::try_from(u32::from_ne_bytes(*size)).ok()?)?;
    Some((Nanos(u64::from_ne_bytes(*time)), raw))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of Linux 6.12 and 7.2.
    pub(in crate::source::damon) const FORMAT: &str = "\
name: damon_aggregated
ID: 734
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;

print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id, REC->nr_regions, REC->start, REC->end, REC->nr_accesses, REC->age
";

    /// A region as that kernel would write it.
    pub(in crate::source::damon) fn raw(region: &Aggregated) -> Vec<u8> {
        let mut out = vec![0xee; 48];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &region.target.to_ne_bytes());
        put(16, &(region.regions as u32).to_ne_bytes());
        put(24, &region.start.to_ne_bytes());
        put(32, &region.end.to_ne_bytes());
        put(40, &(region.accesses as u32).to_ne_bytes());
        put(44, &(region.age as u32).to_ne_bytes());
        out
    }

    pub(in crate::source::damon) fn record(kind: u32, time: u64, raw: &[u8], size: u32) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend([0, 0, 0, 0]);
        out.extend(time.to_ne_bytes());
        out.extend(size.to_ne_bytes());
        out.extend(raw);
        out
    }

    #[test]
    fn fields_are_where_the_kernel_says() {
        let format = Format::parse(FORMAT).unwrap();
        assert_eq!(format.id(), 734);
        let region =
            Aggregated { target: 3, regions: 12, start: 1 << 30, end: 5 << 30, accesses: 7, age: 99 };
        assert_eq!(format.decode(&raw(&region)), Some(region));
        assert_eq!(format.decode(&raw(&region)[..47]), None);
        // A kernel with another layout.
        let other = FORMAT.replace("offset:40;\tsize:4", "offset:48;\tsize:8");
        let mut bytes = raw(&region);
        bytes.extend(1234u64.to_ne_bytes());
        let decoded = Format::parse(&other).unwrap().decode(&bytes);
        assert_eq!(decoded, Some(Aggregated { accesses: 1234, ..region }));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Format::parse(&FORMAT.replace("ID:", "Id:")), Err(FormatError::NoId));
        for name in ["target_id", "nr_regions", "start", "end", "nr_accesses", "age"] {
            let without = FORMAT.replace(&format!(" {name};"), " other;");
            assert_eq!(Format::parse(&without), Err(FormatError::NoField(name)));
        }
        let odd = FORMAT.replace("offset:44;\tsize:4", "offset:44;\tsize:3");
        assert_eq!(Format::parse(&odd), Err(FormatError::NoField("age")));
        let far = FORMAT.replace("offset:44", "offset:18446744073709551615");
        assert_eq!(Format::parse(&far), Err(FormatError::NoField("age")));
    }

    #[test]
    fn a_record_holds_its_time_and_its_event() {
        let bytes = record(9, 5, b"abcd", 4);
        assert_eq!(sample(&bytes), Some((Nanos(5), &b"abcd"[..])));
        assert_eq!(
            sample(&record(9, 5, b"abcd", 3)),
            Some((Nanos(5), &b"abc"[..])),
            "what follows is padding"
        );
        assert_eq!(sample(&record(9, 5, b"abcd", 5)), None);
        assert_eq!(sample(&record(2, 5, b"abcd", 4)), None);
        assert_eq!(sample(&bytes[..18]), None);
    }

    #[test]
    fn the_description_is_found_where_tracefs_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert!(format(&root).unwrap_err().to_string().contains("mount -t tracefs"));
        let path = root.debugfs().join("tracing/events/damon/damon_aggregated");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("format"), FORMAT).unwrap();
        assert_eq!(format(&root).unwrap().0, path.join("format"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            text in "(.{0,20}[ \t;:]?(field:|offset:|size:|ID:|age|start|target_id)?){0,40}",
            record in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let _ = Format::parse(&text);
            let format = Format::parse(FORMAT).expect("it is one");
            let _ = format.decode(&record);
            let _ = sample(&record).map(|(_, raw)| format.decode(raw));
        }
    }
}
