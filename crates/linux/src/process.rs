//! Processes as procfs shows them.
//!
//! A process number is reused after its process ended; number and start time together are not.

use std::fs::ReadDir;
use std::path::PathBuf;

use thermocline_core::units::Pid;

use crate::root::{KernelFileError, Root, list_optional, read_optional};

/// Flag of kernel threads in `/proc/PID/stat` (Linux include/linux/sched.h, PF_KTHREAD).
const PF_KTHREAD: u64 = 0x0020_0000;

/// The content of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub pid: Pid,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Its state, `R`, `S`, `Z` and so on.
    pub state: char,
    /// Whether it is a kernel thread, without memory of its own.
    pub kernel_thread: bool,
    /// Its threads, including ended ones that were not waited for.
    pub threads: u64,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// Resident base pages.
    pub rss_pages: u64,
    /// The CPU that it, or this thread, ran on last.
    pub cpu: Option<u32>,
}

impl Stat {
    /// Whether it has ended. A process whose first thread has ended lives on, although `/proc/PID`
    /// shows that thread's state.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// The numbers of all processes, ascending.
///
/// # Errors
/// procfs cannot be listed.
pub fn list(root: &Root) -> Result<Vec<Pid>, KernelFileError> {
    let Some(names) = list_optional(&root.proc)? else {
        return Err(KernelFileError::not_supported("procfs", &root.proc, "mount -t proc proc /proc"));
    };
    let mut pids: Vec<Pid> = names.iter().filter_map(|n| n.parse().ok()).map(Pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The numbers of all processes, piece by piece: all at once take a tenth of a second with 100,000
/// processes. A process that starts meanwhile may be missing; an existing one is not.
#[derive(Debug)]
pub struct Listing {
    root: Root,
    entries: ReadDir,
}

/// Names per piece of a listing.
const PIECE: usize = 512;

impl Listing {
    /// Starts a listing.
    ///
    /// # Errors
    /// procfs cannot be listed.
    pub fn begin(root: &Root) -> Result<Listing, KernelFileError> {
        let entries = std::fs::read_dir(&root.proc);
        let entries = entries.map_err(|cause| KernelFileError::io("list", &root.proc, cause))?;
        Ok(Listing { root: root.clone(), entries })
    }

    /// The next numbers, in no order, possibly none; `None` if there are no more.
    ///
    /// # Errors
    /// As for [`begin`](Listing::begin).
    pub fn piece(&mut self) -> Result<Option<Vec<Pid>>, KernelFileError> {
        let mut looked = 0;
        let mut pids = Vec::new();
        for entry in self.entries.by_ref().take(PIECE) {
            let entry = entry.map_err(|cause| KernelFileError::io("list", &self.root.proc, cause))?;
            pids.extend(entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid));
            looked += 1;
        }
        Ok((looked > 0).then_some(pids))
    }
}

/// The state of a process; `None` if it is gone.
///
/// # Errors
/// The file cannot be read or understood.
pub fn stat(root: &Root, pid: Pid) -> Result<Option<Stat>, KernelFileError> {
    let path = folder(root, pid).join("stat");
    match read_optional(&path)? {
        None => Ok(None),
        Some(text) => match parse_stat(&text) {
            Some(stat) => Ok(Some(stat)),
            None => Err(KernelFileError::malformed(&path, "is not what proc(5) describes")),
        },
    }
}

/// Parses `/proc/PID/stat`. The name stands in parentheses and may itself hold spaces and
/// parentheses.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    // The first of these is field 3 of proc(5).
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        pid: Pid(pid.trim().parse().ok()?),
        comm: comm.to_owned(),
        state: fields.first()?.chars().next()?,
        kernel_thread: number(9)? & PF_KTHREAD != 0,
        threads: number(20)?,
        start_time: number(22)?,
        rss_pages: number(24)?,
        cpu: number(39).and_then(|cpu| u32::try_from(cpu).ok()),
    })
}

/// The command line with spaces between its words; `None` if the process is gone, empty for kernel
/// threads.
///
/// # Errors
/// The file cannot be read.
pub fn command_line(root: &Root, pid: Pid) -> Result<Option<String>, KernelFileError> {
    let text = read_optional(&folder(root, pid).join("cmdline"))?;
    Ok(text.map(|t| t.trim_end_matches('\0').replace('\0', " ")))
}

/// The path below the cgroup v2 root, `/` for the root itself; `None` if the process is gone or in
/// no cgroup v2.
///
/// # Errors
/// The file cannot be read.
pub fn cgroup(root: &Root, pid: Pid) -> Result<Option<String>, KernelFileError> {
    let text = read_optional(&folder(root, pid).join("cgroup"))?;
    Ok(text.and_then(|t| t.lines().find_map(|l| l.strip_prefix("0::")).map(str::to_owned)))
}

/// The program that a process runs; `None` if it is gone, a kernel thread, or another user's.
pub fn executable(root: &Root, pid: Pid) -> Option<PathBuf> {
    std::fs::read_link(folder(root, pid).join("exe")).ok()
}

/// Whether `pid` is still the process that started at `start_time`.
///
/// # Errors
/// The file cannot be read or understood.
pub fn is_same(root: &Root, pid: Pid, start_time: u64) -> Result<bool, KernelFileError> {
    Ok(stat(root, pid)?.is_some_and(|s| s.start_time == start_time))
}

fn folder(root: &Root, pid: Pid) -> PathBuf {
    root.proc.join(pid.0.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REDIS: &str = "812 (redis (a) b) S 1 812 812 0 -1 4194624 1000 0 2 0 10 20 0 0 20 0 5 0 \
        1234 70000000 15000 18446744073709551615 1 1 0 0 0 0 0 4097 17642 0 0 0 17 0 0 0 0 0 0\n";

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let stat = parse_stat(REDIS).unwrap();
        assert_eq!(
            stat,
            Stat {
                pid: Pid(812),
                comm: "redis (a) b".to_owned(),
                state: 'S',
                kernel_thread: false,
                threads: 5,
                start_time: 1234,
                rss_pages: 15000,
                cpu: Some(0),
            }
        );
        assert!(parse_stat(&REDIS.replace("4194624", "2129984")).unwrap().kernel_thread);
    }

    #[test]
    fn this_process_is_found_in_the_real_procfs() {
        let root = Root::default();
        let me = Pid(std::process::id());
        assert!(list(&root).unwrap().contains(&me));
        let stat = stat(&root, me).unwrap().unwrap();
        assert!(!stat.kernel_thread && stat.rss_pages > 0);
        assert!(is_same(&root, me, stat.start_time).unwrap());
        assert!(!is_same(&root, me, stat.start_time + 1).unwrap());
        assert_eq!(executable(&root, me), std::env::current_exe().ok());
        assert!(!command_line(&root, me).unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_process_that_is_gone_is_none() {
        let root = Root::at("/nonexistent");
        assert_eq!(stat(&root, Pid(1)).unwrap(), None);
        assert_eq!(cgroup(&root, Pid(1)).unwrap(), None);
        assert!(matches!(list(&root), Err(KernelFileError::NotSupported { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([0-9]{1,25} \\()?([ ()S]|[0-9]{1,25}|.){0,60}") {
            let _ = parse_stat(&text);
        }
    }
}
