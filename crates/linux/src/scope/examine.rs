//! Examines a process: by its files, is it in a scope?

use thermocline_core::access::Membership;
use thermocline_core::units::Pid;

use super::members::{CommandLine, Known};
use crate::aside::{Answer, Hung};
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Scopes, Traits, cgroup};

/// The result of examining a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Examined {
    /// It is there.
    Known(Known),
    /// It is gone.
    Gone,
    /// Ask for its command line again.
    NotYet {
        /// When it started, in clock ticks since boot.
        start_time: u64,
    },
}

/// Examines a process. `own` is this process, which is left alone. The command line, which the
/// kernel reads from the process's own memory, comes from `command_line`, called with the process's
/// start time.
///
/// # Errors
/// A file of the process cannot be read or understood, or it blocks its readers.
pub(crate) fn examine(
    root: &Root,
    scopes: &Scopes,
    own: Pid,
    pid: Pid,
    command_line: impl FnOnce(u64) -> Answer<CommandLine>,
) -> Result<Examined, KernelFileError> {
    let Some(stat) = process::stat(root, pid)? else { return Ok(Examined::Gone) };
    let start_time = stat.start_time;
    let known = |membership| Ok(Examined::Known(Known { start_time, membership }));
    if pid == own || stat.kernel_thread || stat.has_ended() {
        return known(Membership::Excluded);
    }
    // Its first thread has ended, so its command cannot be read any more: it is in no scope, rather
    // than judged by part of the criteria.
    let is_headless = matches!(stat.state, 'Z' | 'X');
    if is_headless && scopes.needs_command() {
        return known(Membership::Unexamined);
    }
    let command_line = match scopes.needs_command() {
        true => match command_line(start_time) {
            Answer::Here(read) => read?.unwrap_or_default(),
            Answer::NotYet => return Ok(Examined::NotYet { start_time }),
            Answer::Hung => return Err(KernelFileError::io("read", &root.proc, Hung(pid).into())),
        },
        false => String::new(),
    };
    let cgroup = match scopes.needs_cgroup() {
        true => process::cgroup(root, pid)?.map(|path| cgroup::normal(&path)),
        false => None,
    };
    known(scopes.membership(Traits {
        pid,
        comm: &stat.comm,
        command_line: &command_line,
        cgroup: cgroup.as_deref(),
    }))
}
