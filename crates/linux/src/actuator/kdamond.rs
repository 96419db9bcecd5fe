//! The `state` files of kdamonds. A writer waits for the kdamond.
//!
//! A kdamond that watches a process's addresses takes that process's mmap lock, and waits while
//! another thread holds it (Linux mm/damon/vaddr.c). A process that switches it off meanwhile waits
//! for it in turn and cannot be killed, and no process can write any of these files until then
//! (mm/damon/sysfs.c, `damon_sysfs_lock`). So a kdamond that hangs is not written to, and a write
//! that hangs nevertheless is left to a thread.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::aside::within;
use crate::regular;

/// How long switching a kdamond on or off may take: it ends when it next wakes. Other commands wait
/// for the end of an aggregation.
const SWITCH_MAX: Duration = Duration::from_secs(2);
const TOLD_MAX: Duration = Duration::from_secs(10);
/// Number of checks of a kdamond, and the time between them: one that waits for a lock and has not
/// run in that time hangs.
const LOOKS: u32 = 10;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether a path is a kdamond's `state`.
pub(super) fn is_state(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "state")
        && path.ancestors().any(|folder| folder.file_name().is_some_and(|name| name == "kdamonds"))
}

/// Writes a kdamond's state by `write`, on a thread.
pub(super) fn write(
    path: &Path,
    value: &str,
    write: impl FnOnce(&Path, &str) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    if value.trim() != "on" && thread(path).is_some_and(|thread| hangs(Path::new("/proc"), thread)) {
        return Err(hung(path));
    }
    let bound = if matches!(value.trim(), "on" | "off") { SWITCH_MAX } else { TOLD_MAX };
    let (file, text) = (path.to_owned(), value.to_owned());
    within(bound, move || write(&file, &text)).unwrap_or_else(|| Err(hung(path)))
}

fn hung(path: &Path) -> io::Error {
    let kdamond = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!(
            "kdamond {kdamond} hangs, waiting for the memory of the process that it watches; it can be ended when that process has answered or ended"
        ),
    )
}

/// The thread of a kdamond; `None` if it does not run, or if that cannot be read now.
fn thread(state: &Path) -> Option<u32> {
    let text = regular::read(&state.with_file_name("pid")).ok()?;
    // The kernel reports -1 for one that is off.
    str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Whether a thread waits for a lock, and has not run for some time.
pub(crate) fn hangs(proc: &Path, thread: u32) -> bool {
    let Some(first) = waits(proc, thread) else { return false };
    (1..LOOKS).all(|_| {
        std::thread::sleep(LOOK_EVERY);
        waits(proc, thread) == Some(first)
    })
}

/// How often a thread has run that now waits uninterruptibly for a lock; `None` if it does not
/// wait.
pub(crate) fn waits(proc: &Path, thread: u32) -> Option<u64> {
    let status = regular::read(&proc.join(thread.to_string()).join("status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // One that sleeps between two samplings is idle, `I`.
    value("State:")?.starts_with('D').then_some(())?;
    value("voluntary_ctxt_switches:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_state_is_told_from_other_files() {
        for (path, is) in [
            ("/sys/kernel/mm/damon/admin/kdamonds/3/state", true),
            ("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", false),
            ("/sys/power/state", false),
        ] {
            assert_eq!(is_state(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn who_waits_for_a_lock_and_does_not_run_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let write = |thread: u32, state: &str, switches: u64| {
            let folder = dir.path().join(thread.to_string());
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Name:\tkdamond.0\nState:\t{state}\nvoluntary_ctxt_switches:\t{switches}\n");
            fs::write(folder.join("status"), text).unwrap();
        };
        write(7, "D (disk sleep)", 90);
        write(8, "I (idle)", 90);
        assert!(hangs(dir.path(), 7));
        assert!(!hangs(dir.path(), 8) && !hangs(dir.path(), 9));
        assert_eq!((waits(dir.path(), 7), waits(dir.path(), 8)), (Some(90), None));
    }

    #[test]
    fn a_write_that_does_not_return_is_left() {
        let path = Path::new("/nonexistent/kdamonds/3/state");
        let begin = std::time::Instant::now();
        let never = |_: &Path, _: &str| {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        };
        let error = write(path, "off", never).unwrap_err();
        assert!(error.to_string().contains("kdamond 3 hangs"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(20));
        assert!(write(path, "on", |_, _| Ok(())).is_ok());
    }
}
