//! One daemon a machine: a lock in the state folder and one at a fixed place.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::holder::{Held, holder};
use crate::private::{Folder, NotOurs};
use crate::root::Root;

/// Name of the lock in the state folder.
pub(crate) const FILE_NAME: &str = "lock";
/// Name of a state folder that holds nothing else.
const FOLDER_NAME: &str = "thermocline";
/// Name of the machine's lock.
pub(crate) const MACHINE_NAME: &str = "thermocline.lock";
/// Attempts at a lock whose name is given to another file meanwhile.
const TRIES: u32 = 4;
/// Inode of the initial pid namespace (Linux include/uapi/linux/nsfs.h, PID_NS_INIT_INO).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The right to write to this machine's kernel. It ends with the process in any case.
#[derive(Debug)]
pub struct Lock {
    folder: Arc<Folder>,
    files: Vec<File>,
}

/// Why the lock was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{held}: {}", held.remedy())]
    Held {
        /// Which lock, and by which process.
        held: Held,
    },
    /// Others can access a file or folder, or it cannot be used.
    #[error("{0}; run as root, or choose another folder with daemon.state_dir")]
    NotOurs(#[from] NotOurs),
    /// The process numbers that we see differ from those that the kernel reports.
    #[error("{OTHER_PIDS}")]
    PidNamespace,
}

/// What stands in the way in a pid namespace of its own, and the remedy.
pub const OTHER_PIDS: &str = "this is a pid namespace of its own, and the kernel tells of processes by their \
    numbers in the initial one: start the container with --pid=host (hostPID: true in Kubernetes)";

impl Lock {
    /// Takes the lock of `state_dir`, which is created where absent, and the machine's, so that two
    /// daemons with different state folders refuse each other too. An ordinary user has no access
    /// to the second and works without it, since it cannot write to the kernel either.
    ///
    /// # Errors
    /// Another process holds one of them, others can access the files or they cannot be created, or
    /// process numbers here differ from the kernel's.
    pub fn acquire(root: &Root, state_dir: &Path) -> Result<Lock, LockError> {
        if has_own_pids(root) {
            return Err(LockError::PidNamespace);
        }
        let folder = Folder::make(state_dir)?;
        // Other processes may have to pass through a folder with another name, such as /run.
        if state_dir.file_name().is_some_and(|name| name == FOLDER_NAME) {
            folder.close()?;
        }
        let mut files = vec![take(root, &folder, FILE_NAME)?];
        if let Some((folder, name)) = machine_folder(root)? {
            match take(root, &folder, name) {
                Ok(file) => files.push(file),
                Err(LockError::NotOurs(error)) if error.is_out_of_reach() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Lock { folder: Arc::new(folder), files })
    }

    /// Releases the locks at once: a thread of ours that is blocked in a call keeps the files open
    /// after all others have ended.
    pub(super) fn give_up(&self) {
        for file in &self.files {
            // Closing the file would do the same, later.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }

    /// The folder of this lock.
    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// The present holder of the machine's lock or of that of `state_dir`, if any. Read-only.
    pub fn held(root: &Root, state_dir: &Path) -> Option<Held> {
        let machine = shared_run(root).unwrap_or_else(|| root.run.clone());
        [machine.join(MACHINE_NAME), state_dir.join(FILE_NAME)].into_iter().find_map(|path| {
            let holder = holder(root, &path)?;
            Some(Held { path, holder: Some(holder) })
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Whether our process numbers are not those of the initial pid namespace; false if that cannot be
/// determined.
pub fn has_own_pids(root: &Root) -> bool {
    let namespace = std::fs::metadata(root.proc.join("self/ns/pid"));
    namespace.is_ok_and(|namespace| namespace.ino() != INITIAL_PID_NAMESPACE)
}

/// The folder of the machine's lock; `None` if we have no access to it.
fn machine_folder(root: &Root) -> Result<Option<(Folder, &'static str)>, LockError> {
    let candidates = [shared_run(root), Some(root.run.clone())];
    for path in candidates.iter().flatten() {
        match Folder::shared(path) {
            Ok(folder) => return Ok(Some((folder, MACHINE_NAME))),
            Err(error) if error.is_out_of_reach() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The runtime folder of the machine's first process, which is the same from every mount namespace.
/// `None` if it is our own, or if we may not access it.
fn shared_run(root: &Root) -> Option<PathBuf> {
    let path = root.proc.join("1/root/run");
    let (theirs, ours) = (std::fs::metadata(&path).ok()?, std::fs::metadata(&root.run));
    let is_ours = ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()));
    (!is_ours).then_some(path)
}

fn take(root: &Root, folder: &Folder, name: &str) -> Result<File, LockError> {
    let path = folder.path().join(name);
    for _ in 0..TRIES {
        let file = folder.append(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // If it was removed meanwhile, another lock may have been created, and that one counts.
            Ok(()) if !folder.has(name, &file) => {}
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(root, &path);
                return Err(LockError::Held { held: Held { path, holder } });
            }
            Err(e) => return Err(NotOurs::Io { action: "lock", path, cause: e.into() }.into()),
        }
    }
    let cause = io::Error::other("it is replaced again and again");
    Err(NotOurs::Io { action: "lock", path, cause }.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Locks and processes are real.
    fn machine() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        for folder in [&root.run, &root.proc] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink("/proc/locks", root.proc.join("locks")).unwrap();
        symlink("/proc/self", root.proc.join("self")).unwrap();
        let me = std::process::id().to_string();
        symlink(Path::new("/proc").join(&me), root.proc.join(me)).unwrap();
        (dir, root)
    }

    #[test]
    fn a_second_daemon_is_refused_and_told_whom_to_stop() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        assert_eq!(Lock::held(&root, &state), None);
        let first = Lock::acquire(&root, &state).unwrap();
        let me = std::process::id();
        let error = Lock::acquire(&root, &state).unwrap_err().to_string();
        assert!(error.starts_with(&format!("another thermocline (pid {me}) holds ")), "{error}");
        assert!(error.ends_with(&format!("stop it first, as with `kill {me}`")), "{error}");
        assert_eq!(Lock::held(&root, &state).unwrap().holder.unwrap().pid, me);
        drop(first);
        assert_eq!(Lock::held(&root, &state), None);
        Lock::acquire(&root, &state).unwrap();
    }

    #[test]
    fn another_program_that_holds_a_lock_is_named_and_nobody_is_told_to_kill_it() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        drop(Lock::acquire(&root, &state).unwrap());
        let mut other = std::process::Command::new("flock");
        other.arg(state.join("lock")).args(["sh", "-c", "echo; read line"]);
        let pipe = std::process::Stdio::piped;
        let mut other = other.stdin(pipe()).stdout(pipe()).spawn().unwrap();
        let mut said = [0];
        io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut said).unwrap();
        let pid = other.id().to_string();
        symlink(Path::new("/proc").join(&pid), root.proc.join(&pid)).unwrap();
        let error = Lock::acquire(&root, &state).unwrap_err().to_string();
        assert!(error.starts_with(&format!("process {pid} (flock) holds ")), "{error}");
        assert!(error.contains("is no thermocline") && !error.contains("kill"), "{error}");
        // The advised remedy works.
        let lock = state.join("lock");
        assert!(error.contains(&format!("`rm {}`", lock.display())), "{error}");
        fs::remove_file(&lock).unwrap();
        Lock::acquire(&root, &state).unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    #[test]
    fn nobody_else_can_open_the_locks() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        fs::create_dir_all(&state).unwrap();
        for folder_and_file in [&state, &root.run] {
            fs::set_permissions(folder_and_file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let locks = [state.join("lock"), root.run.join("thermocline.lock")];
        for lock in &locks {
            fs::write(lock, "17\n").unwrap();
            fs::set_permissions(lock, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let _lock = Lock::acquire(&root, &state).unwrap();
        for lock in &locks {
            assert_eq!(fs::metadata(lock).unwrap().mode() & 0o777, 0o600, "{}", lock.display());
        }
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o067, 0);
        assert_eq!(fs::metadata(&root.run).unwrap().mode() & 0o777, 0o755, "the machine's own stays");
    }

    #[test]
    fn a_lock_that_is_another_file_too_is_refused_and_that_file_stays() {
        let (dir, root) = machine();
        let state = root.run.join("thermocline");
        drop(Lock::acquire(&root, &state).unwrap());
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for lock in [state.join("lock"), root.run.join("thermocline.lock")] {
            fs::remove_file(&lock).unwrap();
            fs::hard_link(&victim, &lock).unwrap();
            let error = Lock::acquire(&root, &state).unwrap_err().to_string();
            assert!(error.contains("hard link"), "{error}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            fs::remove_file(&lock).unwrap();
        }
        Lock::acquire(&root, &state).unwrap();
    }

    #[test]
    fn a_lock_is_given_back_although_its_file_stays_open() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        let lock = Lock::acquire(&root, &state).unwrap();
        // Like a thread in a call that does not return.
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
    fn another_mount_namespace_is_no_way_around() {
        let (dir, root) = machine();
        // As in a container with a /run of its own, and the machine's first process elsewhere.
        let host = dir.path().join("host");
        fs::create_dir_all(host.join("run")).unwrap();
        fs::create_dir_all(root.proc.join("1")).unwrap();
        symlink(&host, root.proc.join("1/root")).unwrap();
        let _first = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
        let other = Root { run: dir.path().join("other/run"), ..root.clone() };
        fs::create_dir_all(&other.run).unwrap();
        let error = Lock::acquire(&other, &other.run.join("thermocline")).unwrap_err();
        assert!(
            matches!(&error, LockError::Held { held } if held.path.starts_with(root.proc.join("1/root"))),
            "{error}"
        );
        assert!(Lock::held(&other, &other.run.join("thermocline")).is_some());
        let same = Root { run: host.join("run"), ..root };
        assert!(matches!(Lock::acquire(&same, &same.run.join("thermocline")), Err(LockError::Held { .. })));
    }

    #[test]
    fn a_pid_namespace_of_its_own_is_refused_with_the_remedy() {
        let (dir, mut root) = machine();
        root.proc = dir.path().join("contained");
        fs::create_dir_all(root.proc.join("self/ns")).unwrap();
        fs::write(root.proc.join("self/ns/pid"), "").unwrap();
        let error = Lock::acquire(&root, &root.run.join("thermocline")).unwrap_err().to_string();
        assert!(error.contains("--pid=host"), "{error}");
        assert!(!root.run.join("thermocline").exists());
        assert_eq!(has_own_pids(&Root::default()), {
            let link = fs::read_link("/proc/self/ns/pid").unwrap();
            link.to_string_lossy() != "pid:[4026531836]"
        });
    }

    #[test]
    fn a_lock_file_left_by_a_killed_daemon_is_no_obstacle() {
        let (_dir, root) = machine();
        let state = root.run.join("thermocline");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("lock"), "a very long text that is no number\n").unwrap();
        Lock::acquire(&root, &state).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let (dir, root) = machine();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Lock::acquire(&root, &dir.path().join("file/state")).unwrap_err().to_string();
        assert!(error.contains("file is a symbolic link or no folder"), "{error}");
        assert!(error.contains("daemon.state_dir"), "{error}");
    }
}
