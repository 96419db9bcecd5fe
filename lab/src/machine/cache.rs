//! The cache of kernels and locks: a folder outside the source tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The folder for what the lab fetches once and keeps.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// This user's cache: `$THERMOCLINE_LAB_CACHE`, else `$XDG_CACHE_HOME/thermocline-lab`, else
    /// `~/.cache/thermocline-lab`.
    pub fn of_user() -> Cache {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = from("THERMOCLINE_LAB_CACHE")
            .or_else(|| from("XDG_CACHE_HOME").map(|base| base.join("thermocline-lab")))
            .or_else(|| from("HOME").map(|home| home.join(".cache/thermocline-lab")))
            .unwrap_or_else(|| PathBuf::from("/var/tmp/thermocline-lab"));
        Cache::at(root)
    }

    /// A cache in a folder of the caller's choice.
    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// The cache's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder with one subfolder per kernel release.
    pub(crate) fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// Creates a folder inside the cache and returns its path.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(path)
    }

    /// Waits for the lock that allows one fetch at a time. Dropping the file releases it.
    pub(crate) fn fetch_lock(&self) -> Result<File> {
        self.folder("")?;
        lock(&self.root.join("fetch.lock"), "fetch")
    }

    /// Waits for the lock that allows one guest at a time on the whole machine: the file that
    /// `$THERMOCLINE_LAB_LOCK` names, else `guest.lock` in the cache.
    pub(crate) fn guest_lock(&self) -> Result<File> {
        match std::env::var_os("THERMOCLINE_LAB_LOCK").filter(|value| !value.is_empty()) {
            Some(path) => lock(Path::new(&path), "guest"),
            None => {
                self.folder("")?;
                lock(&self.root.join("guest.lock"), "guest")
            }
        }
    }
}

fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::file("open the lock", path))?;
    if file.try_lock().is_err() {
        eprintln!("lab: waiting for another {what} to end ({})", path.display());
        file.lock().map_err(Error::file("lock", path))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_exclusive_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("new"));
        let held = cache.fetch_lock().unwrap();
        let other = File::open(folder.path().join("new/fetch.lock")).unwrap();
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}
