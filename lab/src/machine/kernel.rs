//! The kernels that the lab boots, and their form in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::machine::release;
use crate::{Cache, Error, Result};

/// A line of kernels that the lab can boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Line {
    /// The kernel that Debian 12 comes with.
    #[serde(rename = "6.1")]
    Debian12,
    /// The newest 6.12 kernel built for Debian 12.
    #[default]
    #[serde(rename = "6.12")]
    Stable,
    /// The newest 6.18 kernel built for Debian 13, as long as the archive has one.
    #[serde(rename = "6.18")]
    Longterm,
    /// The newest kernel in Debian unstable.
    #[serde(rename = "newest")]
    Newest,
}

/// Debian's two archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Archive {
    /// The main one.
    Main,
    /// Security updates.
    Security,
}

impl Line {
    /// Every line, the oldest first.
    pub const ALL: [Line; 4] = [Line::Debian12, Line::Stable, Line::Longterm, Line::Newest];

    /// The lines that everyday tests boot.
    pub const EVERYDAY: [Line; 3] = [Line::Debian12, Line::Stable, Line::Newest];

    /// The line's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Line::Debian12 => "6.1",
            Line::Stable => "6.12",
            Line::Longterm => "6.18",
            Line::Newest => "newest",
        }
    }

    /// The suites that contain its kernels.
    pub(crate) fn suites(self) -> &'static [(Archive, &'static str)] {
        match self {
            Line::Debian12 => &[(Archive::Security, "bookworm-security"), (Archive::Main, "bookworm")],
            Line::Stable => {
                &[(Archive::Security, "bookworm-security"), (Archive::Main, "bookworm-backports")]
            }
            Line::Longterm => &[(Archive::Main, "trixie-backports")],
            Line::Newest => &[(Archive::Main, "unstable")],
        }
    }

    /// Whether a release belongs to this line.
    pub(crate) fn has(self, release: &str) -> bool {
        match self {
            Line::Newest => true,
            line => release.strip_prefix(line.name()).is_some_and(|rest| rest.starts_with('.')),
        }
    }

    /// Whether its kernels form tiers from the HMAT. Linux before 6.7 does not: there memory is in
    /// a lower tier only if a device driver, such as the CXL driver, has added it.
    pub(crate) fn reads_hmat(self) -> bool {
        self != Line::Debian12
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Line, String> {
        Line::ALL
            .into_iter()
            .find(|line| line.name() == text)
            .ok_or_else(|| format!("no kernel line `{text}`: choose 6.1, 6.12, 6.18 or newest"))
    }
}

/// What is recorded beside a cached kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The line it was fetched for.
    pub(crate) line: Line,
    /// Its release, as `uname -r` prints it.
    pub(crate) release: String,
    /// The Debian packages it came from, as `name=version`.
    pub(crate) packages: Vec<String>,
}

/// The name of the record in a kernel's folder.
pub(crate) const RECORD: &str = "kernel.json";

/// A kernel in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    folder: PathBuf,
    record: Record,
}

impl Kernel {
    /// The newest cached kernel of a line.
    ///
    /// # Errors
    /// A record in the cache that cannot be read.
    pub fn cached(cache: &Cache, line: Line) -> Result<Option<Kernel>> {
        let Ok(entries) = fs::read_dir(cache.kernels()) else { return Ok(None) };
        let mut newest: Option<Kernel> = None;
        for entry in entries.flatten() {
            let Some(kernel) = Kernel::at(&entry.path())? else { continue };
            let newer =
                newest.as_ref().is_none_or(|old| release::compare(kernel.release(), old.release()).is_gt());
            if kernel.record.line == line && newer {
                newest = Some(kernel);
            }
        }
        Ok(newest)
    }

    /// The kernel in a folder of the cache, if there is one.
    pub(crate) fn at(folder: &Path) -> Result<Option<Kernel>> {
        let path = folder.join(RECORD);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        let record = serde_json::from_str(&text).map_err(|source| Error::Record { path, source })?;
        Ok(Some(Kernel { folder: folder.to_owned(), record }))
    }

    /// The release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        &self.record.release
    }

    /// The Debian packages it came from, as `name=version`.
    pub fn packages(&self) -> &[String] {
        &self.record.packages
    }

    /// The compressed image that a boot loader takes.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The configuration that it was built with; some packages do not contain it.
    pub fn config(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// The folder that is `/lib/modules/RELEASE` in the guest.
    pub fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(self.release())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, line: Line, release: &str) {
        let folder = cache.kernels().join(release);
        fs::create_dir_all(&folder).unwrap();
        let record = Record { line, release: release.to_owned(), packages: vec![] };
        fs::write(folder.join(RECORD), serde_json::to_string(&record).unwrap()).unwrap();
    }

    #[test]
    fn the_newest_cached_kernel_of_its_line_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        assert_eq!(Kernel::cached(&cache, Line::Stable).unwrap(), None);
        put(&cache, Line::Stable, "6.12.95+deb12-amd64");
        put(&cache, Line::Stable, "6.12.117+deb12-amd64");
        put(&cache, Line::Newest, "7.2.13+deb14-amd64");
        fs::create_dir(cache.kernels().join("unfinished")).unwrap();
        let found = |line| Kernel::cached(&cache, line).unwrap().unwrap().release().to_owned();
        assert_eq!(found(Line::Stable), "6.12.117+deb12-amd64");
        assert_eq!(found(Line::Newest), "7.2.13+deb14-amd64");
    }

    #[test]
    fn a_line_has_its_releases_and_no_other() {
        let releases =
            ["6.1.0-56-amd64", "6.12.117+deb12-amd64", "6.18.15+deb13-amd64", "7.2.13+deb14-amd64"];
        for (line, own) in Line::ALL.into_iter().zip(releases) {
            let found: Vec<_> = releases.into_iter().filter(|release| line.has(release)).collect();
            assert_eq!(found, if line == Line::Newest { releases.to_vec() } else { vec![own] });
            assert_eq!(line.name().parse(), Ok(line));
        }
    }

    #[test]
    fn a_broken_record_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        put(&cache, Line::Stable, "6.12.95+deb12-amd64");
        fs::write(cache.kernels().join("6.12.95+deb12-amd64").join(RECORD), "{").unwrap();
        let error = Kernel::cached(&cache, Line::Stable).unwrap_err().to_string();
        assert!(error.contains("6.12.95+deb12-amd64/kernel.json") && error.contains("lab fetch"), "{error}");
    }
}
