//! /proc/PID/pagemap: what is mapped at a virtual page of a process (Linux
//! Documentation/admin-guide/mm/pagemap.rst).

mod frames;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thermocline_core::units::{Pfn, Pid};

use crate::sys::pagemap_scan::{Region, present};

pub use frames::{FrameFlags, Frames};

/// What one virtual page maps.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry(pub u64);

/// Bits 0-54 hold the frame number of a present page.
const PFN_MASK: u64 = (1 << 55) - 1;
/// Bits 0-4 hold the swap type of a page that is not present.
const SWAP_TYPE_MASK: u64 = 0x1f;
/// Swap types from here on are special entries, not swap devices. With every option built in, the
/// kernel leaves 23 types for devices (Linux 6.12 include/linux/swap.h).
const SPECIAL_SWAP_TYPE_MIN: u8 = 23;

impl Entry {
    /// A page frame is mapped; pages that a NUMA scan has marked count as present.
    pub const fn present(self) -> bool {
        self.0 >> 63 & 1 != 0
    }

    /// The entry leads to swap, or is one of the kernel's special entries.
    pub const fn swapped(self) -> bool {
        self.0 >> 62 & 1 != 0
    }

    /// The page belongs to a file or to shared anonymous memory.
    pub const fn file_or_shared(self) -> bool {
        self.0 >> 61 & 1 != 0
    }

    /// No other process, and no other place of this one, maps the page.
    pub const fn exclusive(self) -> bool {
        self.0 >> 56 & 1 != 0
    }

    /// The frame, if one is mapped and the kernel shows it: without CAP_SYS_ADMIN every frame
    /// number reads 0.
    pub const fn pfn(self) -> Option<Pfn> {
        let pfn = self.0 & PFN_MASK;
        if self.present() && pfn != 0 { Some(Pfn(pfn)) } else { None }
    }

    /// The page is being migrated, or the entry is another special one (poison, device memory). The
    /// kernel does not report which.
    pub const fn in_transit(self) -> bool {
        !self.present() && self.swapped() && (self.0 & SWAP_TYPE_MASK) as u8 >= SPECIAL_SWAP_TYPE_MIN
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("present", &self.present())
            .field("swapped", &self.swapped())
            .field("exclusive", &self.exclusive())
            .field("pfn", &self.pfn())
            .finish_non_exhaustive()
    }
}

/// Why a pagemap cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PagemapError {
    /// The process does not exist, or has no memory any more.
    #[error("{}: the process is gone", .0.display())]
    Gone(PathBuf),
    /// The process may not be accessed.
    #[error("{}: no permission; reading other users' processes needs CAP_SYS_PTRACE", .0.display())]
    NotPermitted(PathBuf),
    /// Any other failure.
    #[error("{path}: {cause}", path = .0.display(), cause = .1)]
    Io(PathBuf, #[source] io::Error),
}

impl PagemapError {
    pub(crate) fn new(path: &Path, error: io::Error) -> PagemapError {
        let path = path.to_owned();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => PagemapError::Gone(path),
            Some(libc::EACCES | libc::EPERM) => PagemapError::NotPermitted(path),
            _ => PagemapError::Io(path, error),
        }
    }
}

/// The pagemap of one process, as it is now: after an exec it shows the old memory, so it is opened
/// again each time.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: PathBuf,
}

impl Pagemap {
    /// Opens `PROC/PID/pagemap`; `proc` is `/proc` except in tests.
    ///
    /// # Errors
    /// See [`PagemapError`].
    pub fn open(proc: &Path, pid: Pid) -> Result<Pagemap, PagemapError> {
        let path = proc.join(pid.0.to_string()).join("pagemap");
        match File::open(&path) {
            Ok(file) => Ok(Pagemap { file, path }),
            Err(e) => Err(PagemapError::new(&path, e)),
        }
    }

    /// Reads the entries from virtual page `vpn` on and returns how many there were. It is fewer
    /// than asked for at the end of the address space, and none when the process has ended.
    ///
    /// # Errors
    /// See [`PagemapError`].
    pub fn read(&self, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
        let count = read_u64s(&self.file, vpn, entries.len(), |i, value| entries[i] = Entry(value));
        count.map_err(|e| PagemapError::new(&self.path, e))
    }

    /// Where pages are present, from virtual page `from` on and before `to`: as [`present`].
    ///
    /// # Errors
    /// See [`PagemapError`].
    pub fn present(
        &self,
        from: u64,
        to: u64,
        pages_max: u64,
        regions: &mut [Region],
    ) -> Result<(usize, u64), PagemapError> {
        present(&self.file, from, to, pages_max, regions).map_err(|e| PagemapError::new(&self.path, e))
    }

    /// Reads one entry; `None` beyond the address space or after the process's end.
    ///
    /// # Errors
    /// See [`PagemapError`].
    pub fn entry(&self, vpn: u64) -> Result<Option<Entry>, PagemapError> {
        let mut entry = [Entry::default()];
        Ok((self.read(vpn, &mut entry)? == 1).then_some(entry[0]))
    }
}

/// Reads up to `count` 64-bit values from the `index`th on; stops quietly at the end of the file,
/// half values included.
fn read_u64s(file: &File, index: u64, count: usize, mut put: impl FnMut(usize, u64)) -> io::Result<usize> {
    let mut buffer = [0u8; 4096];
    let mut done = 0;
    while done < count {
        let Some(offset) = index.checked_add(done as u64).and_then(|i| i.checked_mul(8)) else { break };
        // The kernel takes offsets as signed numbers.
        if i64::try_from(offset).is_err() {
            break;
        }
        let want = ((count - done) * 8).min(buffer.len());
        let got = match file.read_at(&mut buffer[..want], offset) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let (values, _rest) = buffer[..got].as_chunks::<8>();
        for value in values {
            put(done, u64::from_ne_bytes(*value));
            done += 1;
        }
        if values.is_empty() {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_bits_that_the_kernel_documents() {
        let page = Entry(1 << 63 | 1 << 56 | 0x1234);
        assert!(page.present() && page.exclusive() && !page.swapped() && !page.file_or_shared());
        assert_eq!(page.pfn(), Some(Pfn(0x1234)));
        let swapped = Entry(1 << 62 | 0x1234 << 5 | 3);
        assert!(swapped.swapped() && !swapped.in_transit());
        assert_eq!(swapped.pfn(), None);
        assert!(Entry(1 << 62 | 0x1234 << 5 | 27).in_transit());
        assert_eq!(Entry(1 << 63).pfn(), None, "a hidden frame number is none");
    }

    #[test]
    fn survives_files_that_end_early() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        let mut bytes = Vec::new();
        (0..3u64).for_each(|i| bytes.extend((1 << 63 | (i + 1)).to_ne_bytes()));
        bytes.extend([1, 2, 3]);
        std::fs::write(root.path().join("7/pagemap"), &bytes).unwrap();
        let map = Pagemap::open(root.path(), Pid(7)).unwrap();
        let mut entries = [Entry::default(); 8];
        assert_eq!(map.read(1, &mut entries).unwrap(), 2);
        assert_eq!(entries[1].pfn(), Some(Pfn(3)));
        assert_eq!(map.read(100, &mut entries).unwrap(), 0);
        assert_eq!(map.read(u64::MAX, &mut entries).unwrap(), 0);
        assert_eq!(map.entry(u64::MAX / 8).unwrap(), None);
        assert!(matches!(Pagemap::open(root.path(), Pid(8)), Err(PagemapError::Gone(_))));
    }

    #[test]
    fn finds_a_page_of_this_process() {
        let memory = vec![1u8; 8192];
        let vpn = (memory.as_ptr() as u64 + 4095) >> 12;
        let map = Pagemap::open(Path::new("/proc"), Pid(std::process::id())).unwrap();
        let entry = map.entry(vpn).unwrap().unwrap();
        assert!(entry.present() && !entry.swapped());
        assert_eq!(map.entry(0).unwrap(), Some(Entry(0)));
        drop(memory);
    }
}
