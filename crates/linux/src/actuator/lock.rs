//! One daemon a machine: a lock in the state folder and one at a fixed place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::root::Root;

/// Tries for a lock, and the pause between them: [`Lock::holder`] looks by holding it for a moment.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to write to this machine's kernel. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Lock {
    state_dir: PathBuf,
    files: Vec<File>,
}

/// Why the lock was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody holds it.
    #[error("another thermocline ({}) holds {}; two would fight over the kernel's settings: stop it first{}",
        pid.map_or("pid unknown".to_owned(), |p| format!("pid {p}")), path.display(),
        pid.map_or(String::new(), |p| format!(", as with `kill {p}`")))]
    Held {
        /// The holder, where it wrote its number.
        pid: Option<u32>,
        /// The lock.
        path: PathBuf,
    },
    /// A file or folder cannot be used.
    #[error("cannot {action} {}: {cause}; run as root, or choose a folder of yours with daemon.state_dir", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The answer.
        cause: io::Error,
    },
}

impl Lock {
    /// Takes the lock of `state_dir`, which is created where absent, and the machine's, so that two daemons
    /// with different state folders refuse each other too. An ordinary user has no access to the second and
    /// goes without: it cannot write to the kernel either.
    ///
    /// # Errors
    /// Another process holds one of them, or the files cannot be made.
    pub fn acquire(root: &Root, state_dir: &Path) -> Result<Lock, LockError> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(state_dir).map_err(|cause| {
            LockError::Io { action: "create the folder", path: state_dir.to_owned(), cause }
        })?;
        let mut files = vec![take(&state_dir.join("lock"))?];
        match take(&root.run.join("thermocline.lock")) {
            Ok(file) => files.push(file),
            Err(LockError::Io { cause, .. })
                if matches!(cause.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(Lock { state_dir: state_dir.to_owned(), files })
    }

    /// The folder whose lock this is.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Who holds the machine's lock or that of `state_dir` now: the holder's pid where it is known.
    pub fn holder(root: &Root, state_dir: &Path) -> Option<Option<u32>> {
        [root.run.join("thermocline.lock"), state_dir.join("lock")].iter().find_map(|path| {
            let mut file = File::open(path).ok()?;
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                Err(rustix::io::Errno::WOULDBLOCK) => Some(pid_in(&mut file)),
                _ => None,
            }
        })
    }
}

impl Drop for Lock {
    /// Gives the locks back at once: a thread of ours that the kernel keeps in a call keeps the files open beyond the end of all others.
    fn drop(&mut self) {
        for file in &self.files {
            // Closing the file would do the same, later.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

fn take(path: &Path) -> Result<File, LockError> {
    let io = |action, cause| LockError::Io { action, path: path.to_owned(), cause };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|e| io("open", e))?;
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if tries > 0 => std::thread::sleep(PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Held { pid: pid_in(&mut file), path: path.to_owned() });
            }
            Err(e) => return Err(io("lock", e.into())),
        }
    }
    // The number is for the other's message; the lock itself is the kernel's.
    let written =
        file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    written.map_err(|e| io("write", e))?;
    Ok(file)
}

fn pid_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(&root.run).unwrap();
        (dir, root)
    }

    #[test]
    fn a_second_daemon_is_refused_and_told_whom_to_stop() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        assert_eq!(Lock::holder(&root, &state), None);
        let first = Lock::acquire(&root, &state).unwrap();
        let me = std::process::id();
        let error = Lock::acquire(&root, &state).unwrap_err().to_string();
        assert!(error.starts_with(&format!("another thermocline (pid {me}) holds ")), "{error}");
        assert!(error.ends_with(&format!("stop it first, as with `kill {me}`")), "{error}");
        assert_eq!(Lock::holder(&root, &state), Some(Some(me)));
        drop(first);
        assert_eq!(Lock::holder(&root, &state), None);
        Lock::acquire(&root, &state).unwrap();
    }

    #[test]
    fn a_lock_is_given_back_although_its_file_stays_open() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        let lock = Lock::acquire(&root, &state).unwrap();
        // As a thread in a call that does not return keeps it.
        let open: Vec<File> = lock.files.iter().map(|file| file.try_clone().unwrap()).collect();
        drop(lock);
        Lock::acquire(&root, &state).unwrap();
        drop(open);
    }

    #[test]
    fn another_state_folder_is_no_way_around() {
        let (dir, root) = machine();
        let _first = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
        let error = Lock::acquire(&root, &dir.path().join("elsewhere")).unwrap_err();
        assert!(matches!(error, LockError::Held { .. }), "{error}");
    }

    #[test]
    fn a_lock_file_left_by_a_killed_daemon_is_no_obstacle() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("lock"), "a very long text that is no number\n").unwrap();
        drop(Lock::acquire(&root, &state).unwrap());
        assert_eq!(fs::read_to_string(state.join("lock")).unwrap(), format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let (dir, root) = machine();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Lock::acquire(&root, &dir.path().join("file/state")).unwrap_err().to_string();
        assert!(error.contains("file/state") && error.contains("daemon.state_dir"), "{error}");
    }
}
