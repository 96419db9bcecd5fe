//! The format of an input, from its beginning.

use super::{Format, lackey, memtierd};

/// How much of the beginning is looked at, in bytes.
pub const HEAD_BYTES: usize = 1 << 16;
/// Lines that are looked at.
const LINES: usize = 100;

/// The format, if it is one of them; or what it is instead, with what to do.
///
/// # Errors
/// It is none that is known.
pub fn detect(head: &[u8]) -> Result<Format, String> {
    if head.starts_with(b"PERFILE2") {
        return Err(format!(
            "it is perf's own file; give what is printed of it: {} -i FILE",
            super::fields::COMMAND
        ));
    }
    if head.starts_with(b"PAR1") {
        return Err("it is Parquet, as recordings are; a recording needs no import".to_owned());
    }
    if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(
            "it is compressed; decompress it into a pipe: zcat FILE | thermocline import -".to_owned()
        );
    }
    if let [first @ 0x78, second, ..] = head
        && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31)
    {
        return Ok(Format::DamoCompressed);
    }
    if head.trim_ascii_start().starts_with(b"[") {
        return Ok(Format::Damo);
    }
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.take(LINES).find_map(of_line).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        format!("it looks like none of {names}; if it is one of them, say so with --format")
    })
}

fn of_line(line: &str) -> Option<Format> {
    if line.contains("damon_aggregated:") {
        return Some(Format::Damon);
    }
    let prompted = line.trim_start_matches("memtierd> ");
    if memtierd::is_head(prompted) {
        return Some(Format::Memtierd);
    }
    match lackey::line(line) {
        Some(lackey::Line::Said(_)) if !line.contains("Lackey") => return None,
        Some(_) => return Some(Format::Lackey),
        None => {}
    }
    // One that is not printed as it should be is told so when it is read.
    let words = || line.split_ascii_whitespace();
    let timed =
        words().any(|word| word.strip_suffix(':').is_some_and(|w| super::quantity::seconds(w).is_some()));
    let named = words().any(|word| word.len() > 1 && word.ends_with(':') && !word.contains('.'));
    (timed && named).then_some(Format::Perf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised() {
        for (text, format) in [
            ("==1== Lackey, an example Valgrind tool\n==1== \nI  0401ab70,3\n", Format::Lackey),
            ("==1== Memcheck\n S 1fff000758,8\n", Format::Lackey),
            ("# cmdline : perf\n\n true 1/1 324.919384: 1 page-faults: 55d9\n", Format::Perf),
            (
                "kdamond.x xxxx xxxx 1.5: damon:damon_aggregated: target_id=0 nr_regions=1 0-4096: 0 3\n",
                Format::Damon,
            ),
            ("\n [\n {\n", Format::Damo),
            ("x\u{9c}", Format::DamoCompressed),
            ("memtierd> memtierd> \n   timestamp  pid  addr  pages  accs  writes\n", Format::Memtierd),
        ] {
            let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
            assert_eq!(detect(&bytes), Ok(format), "{text}");
        }
    }

    #[test]
    fn what_is_none_of_them_is_refused_with_a_remedy() {
        for (head, word) in [
            (&b"PERFILE2\0\0"[..], "perf script"),
            (b"PAR1", "needs no import"),
            (b"\x1f\x8b\x08", "zcat"),
            (b"", "--format"),
            (b"hello\n", "--format"),
            (b"{\"a\": 1}", "--format"),
            (b"\xff\xfe\x00", "--format"),
        ] {
            let error = detect(head).unwrap_err();
            assert!(error.contains(word), "{head:?}: {error}");
        }
    }
}
