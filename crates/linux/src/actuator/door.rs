//! The three forms of the one door: live, dry-run and recording.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::kdamond;
use crate::regular;

/// How kernel files are read and written. [`Actuator`](super::Actuator) is the only user.
pub trait Door: Send {
    /// The text of a file.
    ///
    /// # Errors
    /// As the file system answers.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Writes a value in one call. The file exists.
    ///
    /// # Errors
    /// As the kernel answers.
    fn write(&mut self, path: &Path, value: &str) -> io::Result<()>;

    /// Whether writes reach the kernel and must be recorded for restoring.
    fn reaches_kernel(&self) -> bool;
}

/// Tries for a file that is busy, and the pause between them. DAMON's files are busy while one of
/// its threads holds the lock of its sysfs (Linux 6.12 mm/damon/sysfs.c, mutex_trylock); what stays
/// busy is in use by others.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

fn unless_busy<T>(mut access: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match access() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
    access()
}

/// Reads and writes the files themselves.
#[derive(Debug, Default)]
pub struct Live;

impl Door for Live {
    fn read(&self, path: &Path) -> io::Result<String> {
        let bytes = unless_busy(|| regular::read(path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        if kdamond::is_state(path) { kdamond::write(path, value, write) } else { write(path, value) }
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    // A kernel file is never created and is never a symbolic link.
    let options = OpenOptions::new().write(true).truncate(true).clone();
    let mut file = regular::open_with(&options, libc::O_NOFOLLOW, path)?;
    unless_busy(|| file.write_all(format!("{value}\n").as_bytes()))
}

/// Reads the files and keeps writes in memory: later reads see them, the kernel does not.
#[derive(Debug, Default)]
pub struct DryRun {
    written: BTreeMap<PathBuf, String>,
}

impl Door for DryRun {
    fn read(&self, path: &Path) -> io::Result<String> {
        match self.written.get(path) {
            Some(value) => Ok(value.clone()),
            None => Live.read(path),
        }
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        self.written.insert(path.to_owned(), value.to_owned());
        Ok(())
    }

    fn reaches_kernel(&self) -> bool {
        false
    }
}

/// A kernel of values in memory, which records every write and fails as requested. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<PathBuf, String>,
    writes: Vec<(PathBuf, String)>,
    refused: BTreeMap<PathBuf, i32>,
    clamped: BTreeMap<PathBuf, String>,
    /// Values that other programs set right after a file was read.
    meanwhile: BTreeMap<PathBuf, Vec<String>>,
}

impl Recording {
    /// A kernel with `values`.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a Path, &'a str)>) -> Recording {
        let recording = Recording::default();
        for (path, value) in values {
            recording.put(path, value);
        }
        recording
    }

    /// Sets a value from outside, as another program would.
    pub fn put(&self, path: &Path, value: &str) {
        self.lock().values.insert(path.to_owned(), value.to_owned());
    }

    /// The value of a file.
    pub fn get(&self, path: &Path) -> Option<String> {
        self.lock().values.get(path).cloned()
    }

    /// Refuses writes to `path` with `errno`.
    pub fn refuse(&self, path: &Path, errno: i32) {
        self.lock().refused.insert(path.to_owned(), errno);
    }

    /// Accepts writes to `path` again.
    pub fn accept(&self, path: &Path) {
        self.lock().refused.remove(path);
    }

    /// Stores `value` at every write to `path`, regardless of the value written.
    pub fn clamp(&self, path: &Path, value: &str) {
        self.lock().clamped.insert(path.to_owned(), value.to_owned());
    }

    /// Has other programs set these values, the last one first: one after each of the next reads.
    pub fn put_after_reads(&self, path: &Path, values: &[&str]) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.lock().meanwhile.insert(path.to_owned(), values);
    }

    /// Every write so far, in order.
    pub fn writes(&self) -> Vec<(PathBuf, String)> {
        self.lock().writes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Door for Recording {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut state = self.lock();
        let found = state.values.get(path).cloned();
        if let Some(next) = state.meanwhile.get_mut(path).and_then(Vec::pop) {
            state.values.insert(path.to_owned(), next);
        }
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(&errno) = state.refused.get(path) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if !state.values.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let taken = state.clamped.get(path).cloned().unwrap_or_else(|| value.to_owned());
        state.values.insert(path.to_owned(), taken);
        state.writes.push((path.to_owned(), value.to_owned()));
        Ok(())
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_dry_run_sees_its_own_writes_and_the_file_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numa_balancing");
        fs::write(&path, "1\n").unwrap();
        let mut door = DryRun::default();
        door.write(&path, "2").unwrap();
        assert_eq!(door.read(&path).unwrap(), "2");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }

    #[test]
    fn what_is_busy_for_a_moment_is_waited_for_and_what_stays_so_is_told() {
        let mut left = 3;
        let mut busy_for = |limit: u32| {
            left -= 1;
            if left >= limit { Err(io::Error::from_raw_os_error(libc::EBUSY)) } else { Ok(left) }
        };
        assert_eq!(unless_busy(|| busy_for(1)).unwrap(), 0);
        let mut tries = 0;
        let error = unless_busy(|| -> io::Result<()> {
            tries += 1;
            Err(io::Error::from_raw_os_error(libc::EBUSY))
        });
        assert_eq!((error.unwrap_err().raw_os_error(), tries), (Some(libc::EBUSY), BUSY_TRIES));
    }

    #[test]
    fn the_live_door_creates_nothing_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        assert_eq!(Live.write(&absent, "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "longer than the value\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Live.write(&link, "1").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        Live.write(&file, "1").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }
}
