//! The plugin's page dump: misses by virtual and physical page.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use thermocline_core::units::Pfn;

const MAGIC: &[u8; 8] = b"TLCMISS1";
const RECORD_BYTES: usize = 24;

/// The misses of one page while it was in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMisses {
    /// Virtual page number (address / 4096); 2^35 - 1 for any address of the kernel. The plugin
    /// does not know the process.
    pub vpn: u64,
    /// The frame of the page.
    pub pfn: Pfn,
    /// 64-byte lines that loads had to fetch.
    pub load_misses: u64,
    /// 64-byte lines that stores had to fetch.
    pub store_misses: u64,
}

impl PageMisses {
    /// Lines fetched by loads and stores.
    pub fn misses(&self) -> u64 {
        self.load_misses + self.store_misses
    }
}

/// Why a dump could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file could not be read.
    #[error("cannot read the page dump {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not a dump, or of another version of the plugin.
    #[error(
        "this is no page dump of this plugin: it does not begin with TLCMISS1; build the plugin anew and dump again"
    )]
    NotADump,
    /// The file ends inside a record.
    #[error("the page dump is cut short: {bytes} bytes are left after its last whole record; dump again")]
    CutShort {
        /// Bytes after the last whole record.
        bytes: usize,
    },
}

/// Reads the dump at `path`; see [`parse_dump`].
///
/// # Errors
/// [`DumpError`].
pub fn read_dump(path: &Path) -> Result<Vec<PageMisses>, DumpError> {
    let bytes = std::fs::read(path).map_err(|source| DumpError::Io { path: path.to_owned(), source })?;
    parse_dump(&bytes)
}

/// Reads a dump from memory: one entry per pair of virtual and physical page, in that order, the
/// vCPUs' records added up.
///
/// # Errors
/// [`DumpError::NotADump`] and [`DumpError::CutShort`].
pub fn parse_dump(bytes: &[u8]) -> Result<Vec<PageMisses>, DumpError> {
    let records = bytes.strip_prefix(MAGIC).ok_or(DumpError::NotADump)?;
    let (records, rest) = records.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(DumpError::CutShort { bytes: rest.len() });
    }
    let u64_at = |record: &[u8; RECORD_BYTES], at: usize| {
        record[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    };
    let mut pages: Vec<PageMisses> = records
        .iter()
        .map(|record| {
            let both = u64_at(record, 16);
            PageMisses {
                vpn: u64_at(record, 0),
                pfn: Pfn(u64_at(record, 8)),
                load_misses: both & u64::from(u32::MAX),
                store_misses: both >> 32,
            }
        })
        .collect();
    pages.sort_unstable_by_key(|page| (page.vpn, page.pfn));
    pages.dedup_by(|page, sum| {
        let same = (page.vpn, page.pfn) == (sum.vpn, sum.pfn);
        if same {
            sum.load_misses += page.load_misses;
            sum.store_misses += page.store_misses;
        }
        same
    });
    Ok(pages)
}

/// Misses by virtual page in `[first, end)`, wherever the page was when it missed.
pub fn by_page(dump: &[PageMisses], first: u64, end: u64) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for page in dump.iter().filter(|page| (first..end).contains(&page.vpn)) {
        *pages.entry(page.vpn).or_default() += page.misses();
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(records: &[(u64, u64, u32, u32)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for &(vpn, pfn, loads, stores) in records {
            bytes.extend(vpn.to_le_bytes());
            bytes.extend(pfn.to_le_bytes());
            bytes.extend(loads.to_le_bytes());
            bytes.extend(stores.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn records_of_both_vcpus_add_up() {
        let bytes = dump(&[(9, 5, 1, 2), (7, 0x101000, 3, 0), (9, 5, 10, u32::MAX), (9, 6, 1, 0)]);
        let pages = parse_dump(&bytes).unwrap();
        let wide = u64::from(u32::MAX);
        assert_eq!(
            pages,
            [
                PageMisses { vpn: 7, pfn: Pfn(0x101000), load_misses: 3, store_misses: 0 },
                PageMisses { vpn: 9, pfn: Pfn(5), load_misses: 11, store_misses: wide + 2 },
                PageMisses { vpn: 9, pfn: Pfn(6), load_misses: 1, store_misses: 0 },
            ]
        );
        let pages = by_page(&pages, 8, 10);
        assert_eq!(pages.into_iter().collect::<Vec<_>>(), [(9, 14 + wide)]);
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        assert!(matches!(parse_dump(b""), Err(DumpError::NotADump)));
        assert!(matches!(parse_dump(b"TLCMISS2"), Err(DumpError::NotADump)));
        assert_eq!(parse_dump(b"TLCMISS1").unwrap(), []);
        let mut bytes = dump(&[(1, 1, 1, 1)]);
        bytes.pop();
        assert!(matches!(parse_dump(&bytes), Err(DumpError::CutShort { bytes: 23 })));
        assert!(matches!(read_dump(Path::new("/nowhere")), Err(DumpError::Io { .. })));
    }
}
