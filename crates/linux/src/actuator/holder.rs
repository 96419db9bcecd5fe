//! The process that holds a lock file, according to the kernel.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process;
use crate::root::{Root, read_optional};
use thermocline_core::units::Pid;

/// Our program's name; a lock may be held by others too.
const PROGRAM: &str = "thermocline";

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its command name.
    pub name: String,
    /// Whether it runs our program.
    pub is_thermocline: bool,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lock.
    pub path: PathBuf,
    /// The holder; `None` if the kernel names no process that we can see.
    pub holder: Option<Holder>,
}

impl Held {
    /// What would release the lock, as far as that can be known.
    pub fn remedy(&self) -> String {
        match &self.holder {
            Some(Holder { pid, is_thermocline: true, .. }) => format!("stop it first, as with `kill {pid}`"),
            Some(Holder { .. }) => format!(
                "`rm {}` makes way for a lock of its own; look first at what that process is",
                self.path.display()
            ),
            None => "stop it where it was started: it may run in a container".to_owned(),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.holder {
            Some(Holder { pid, is_thermocline: true, .. }) => {
                write!(
                    f,
                    "another thermocline (pid {pid}) holds {path}; two would fight over the kernel's settings"
                )
            }
            Some(Holder { pid, name, .. }) => {
                write!(f, "process {pid} ({}) holds {path}, and is no thermocline", name.escape_debug())
            }
            None => write!(f, "somebody whom /proc/locks does not name holds {path}"),
        }
    }
}

/// The holder of the lock of the file at `path`.
pub(super) fn holder(root: &Root, path: &Path) -> Option<Holder> {
    let file = std::fs::metadata(path).ok()?;
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let locks = read_optional(&root.proc.join("locks")).ok()??;
    let pid = locks.lines().find_map(|line| pid_of(line, device, file.ino()))?;
    let name = process::stat(root, Pid(pid)).ok().flatten()?.comm;
    Some(Holder { pid, name, is_thermocline: runs_our_program(root, pid) })
}

/// The process of a line of /proc/locks, if the line is about that file (Linux
/// Documentation/filesystems/proc.rst).
fn pid_of(line: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // A waiter for a lock is marked by an arrow.
    if words.next()? != "FLOCK" {
        return None;
    }
    let (pid, place) = (words.nth(2)?, words.next()?);
    let mut place = place.split(':');
    let mut hexadecimal = || u32::from_str_radix(place.next()?, 16).ok();
    let found = (hexadecimal()?, hexadecimal()?);
    (found == device && place.next()?.parse() == Ok(inode)).then_some(pid.parse().ok()?)
}

/// A process chooses its own name; the kernel reports its executable.
fn runs_our_program(root: &Root, pid: u32) -> bool {
    let Ok(link) = std::fs::read_link(root.proc.join(pid.to_string()).join("exe")) else { return false };
    let ours = std::fs::read_link(root.proc.join("self/exe"));
    let name = link.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // If a program was replaced while it runs, the kernel adds that to its name.
    ours.is_ok_and(|ours| ours == link) || name.split(' ').next() == Some(PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_file_is_found_among_the_locks() {
        let at = (0xfe, 0);
        let line = "1: FLOCK  ADVISORY  WRITE 18626 fe:00:10199069 0 EOF";
        assert_eq!(pid_of(line, at, 10_199_069), Some(18626));
        assert_eq!(pid_of(line, at, 10_199_068), None);
        assert_eq!(pid_of(line, (0xfe, 1), 10_199_069), None);
        let others = [
            "1: -> FLOCK  ADVISORY  WRITE 18627 fe:00:10199069 0 EOF",
            "2: POSIX  ADVISORY  WRITE 5 fe:00:10199069 0 EOF",
            "3: FLOCK ADVISORY WRITE x fe:00:10199069",
            "",
        ];
        assert!(others.iter().all(|line| pid_of(line, at, 10_199_069).is_none()));
    }
}
