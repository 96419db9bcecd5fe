//! memtierd's raw dumps, `tracker -dump raw new`: a line per region and scan.
//!
//! ```text
//!           timestamp       pid             addr    pages     accs   writes
//!  1764295200000000000     4711     7f5a3c000000      512        1        0
//! ```
//!
//! What one of `accs` is depends on the tracker, which the dump does not name: of `idlepage` a page
//! that was not idle, of `softdirty` in `writes` a page that was written, both up to a number of
//! its configuration; of `damon` a check that found an access. So regions are counted, out of an
//! unknown number.

use thermocline_core::access::RegionSpace;
use thermocline_core::units::{Nanos, PAGE_SHIFT, PAGE_SIZE, Pid};

use super::ImportError;
use super::lines::Lines;
use super::out::Out;
use crate::piece::RegionCount;

/// Regions of a piece at most: a scan of a large machine has several.
const REGIONS_MAX: usize = 1 << 14;
/// The prompt, which a dump begins with if it was redirected from there.
const PROMPT: &str = "memtierd> ";

/// Whether a line is the head of a dump.
pub fn is_head(text: &str) -> bool {
    text.split_ascii_whitespace().eq(["timestamp", "pid", "addr", "pages", "accs", "writes"])
}

/// Whether a line is one of those that stand between dumps: their heads, commands at the prompt and
/// what they answer.
fn is_between(text: &str) -> bool {
    text.is_empty()
        || is_head(text)
        || text.starts_with("tracker ")
        || text.strip_prefix("raw access events recording ").is_some_and(|t| t == "started" || t == "stopped")
        || matches!(text, "q" | "quit.")
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a line of a region.
fn region(text: &str) -> Option<(Nanos, RegionCount)> {
    let fields: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    let [time, pid, address, pages, accesses, writes] = fields[..] else { return None };
    if ![time, pid, pages, accesses, writes].into_iter().all(is_decimal) || address.starts_with('+') {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok()?;
    let start = address >> PAGE_SHIFT;
    let end = start.checked_add(pages.parse().ok()?)?;
    let space = RegionSpace::Virtual(Pid(pid.parse().ok()?));
    let sound = address % PAGE_SIZE == 0 && end > start && end <= 1 << (64 - PAGE_SHIFT);
    let (accesses, writes) = (accesses.parse().ok()?, writes.parse().ok());
    let region = RegionCount { space, start, end, accesses, writes, age: None };
    Some((Nanos(time.parse().ok()?), region)).filter(|_| sound && writes.is_some())
}

/// Reads dumps.
pub fn read(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Result<(), ImportError> {
    let (mut time, mut regions) = (Nanos(0), Vec::new());
    let flush = |time, regions: &mut Vec<RegionCount>, out: &mut Out<'_>| match regions.is_empty() {
        true => Ok(()),
        false => out.counts(time, std::mem::take(regions)),
    };
    loop {
        let parsed = match lines.next_line() {
            Ok(None) => break,
            Ok(Some(text)) => {
                let text = text.trim_start_matches(PROMPT).trim_end();
                if is_between(text.trim_start()) {
                    continue;
                }
                region(text)
            }
            Err(error) => {
                flush(time, &mut regions, out)?;
                return Err(error);
            }
        };
        let Some((at, region)) = parsed else {
            flush(time, &mut regions, out)?;
            return Err(lines.flaw(
                "it is no line of a raw dump: timestamp, pid, addr, pages, accs and writes of a region",
            ));
        };
        if at != time || regions.len() >= REGIONS_MAX {
            flush(time, &mut regions, out)?;
            time = at;
        }
        regions.push(region);
    }
    flush(time, &mut regions, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_six_numbers_of_a_region() {
        let (time, found) =
            region(" 1764295200000000000     4711     7f5a3c000000      512        1        0").unwrap();
        let space = RegionSpace::Virtual(Pid(4711));
        let (start, end) = (0x7_f5a3_c000, 0x7_f5a3_c200);
        let wanted = RegionCount { space, start, end, accesses: 1, writes: Some(0), age: None };
        assert_eq!((time, found), (Nanos(1_764_295_200_000_000_000), wanted));
        for text in [
            "1 2 3000 4 5",
            "1 2 3000 4 5 6 7",
            "1 2 3001 4 5 6",
            "1 2 3000 0 5 6",
            "1 -2 3000 4 5 6",
            "1 2 +3000 4 5 6",
            "1 2 3000 4 5 +6",
            "1 2 fffffffffffff000 99999999999999999 5 6",
            "1 2 3000 4 5 99999999999999999999",
        ] {
            assert_eq!(region(text), None, "{text}");
        }
    }
}
