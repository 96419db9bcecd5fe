//! Which processes are in which scope now, looked at about once a second.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::units::{Pid, ScopeId};

use crate::aside::Aside;
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Scopes, Traits, cgroup};

/// Processes known before that a look examines again, in turn: an exec, a move between cgroups or a reused
/// number shows after at most (processes / 256) looks, and a look costs some milliseconds at most.
const RECHECKS: usize = 256;

/// Processes not known before that a look examines; the rest waits for the next one.
const NEW_MAX: usize = 4096;

/// How long the reading of a command line may take. The machine's loop waits for it, once for each process that hangs.
const COMMAND_MAX: Duration = Duration::from_millis(500);

/// A process in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: Pid,
    /// When it started, in clock ticks since boot: with the number, its identity.
    pub start_time: u64,
    /// Its scope.
    pub scope: ScopeId,
}

/// What a look found to be different. A process that changed its scope is in both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembershipChange {
    /// Processes that left: gone, excluded, or another process by that number.
    pub removed: Vec<Member>,
    /// Processes that came.
    pub added: Vec<Member>,
}

/// Keeps track of the members of all scopes.
#[derive(Debug)]
pub struct Members {
    root: Root,
    scopes: Scopes,
    /// For command lines.
    aside: Aside,
    own: Pid,
    /// Every process, whether in a scope or not.
    known: BTreeMap<Pid, Known>,
    /// Where the next round of rechecks begins.
    next: Pid,
    /// Processes that were left for a later look, ever.
    deferred: u64,
    /// Processes whose files could not be read, ever.
    unreadable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    start_time: u64,
    scope: Option<ScopeId>,
}

impl Members {
    /// Nobody yet; the first [`look`](Members::look) finds everybody.
    pub fn new(root: &Root, scopes: Scopes) -> Members {
        Members {
            root: root.clone(),
            scopes,
            aside: Aside::new(root, "its command line was read", COMMAND_MAX),
            own: Pid(std::process::id()),
            known: BTreeMap::new(),
            next: Pid(0),
            deferred: 0,
            unreadable: 0,
        }
    }

    /// The scope of a process; None where it is in none, or not known yet.
    pub fn scope_of(&self, pid: Pid) -> Option<ScopeId> {
        self.known.get(&pid)?.scope
    }

    /// All members, ascending by number.
    pub fn iter(&self) -> impl Iterator<Item = Member> + '_ {
        self.known.iter().filter_map(|(&pid, known)| member(pid, *known))
    }

    /// Processes that were left for a later look because too many were new at once, since the beginning.
    pub fn deferred(&self) -> u64 {
        self.deferred
    }

    /// Readings of processes that failed for lack of permission or an unknown format, since the beginning. Such
    /// processes are in no scope.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Looks at the machine's processes and tells the difference.
    ///
    /// # Errors
    /// procfs cannot be listed; what was known stays.
    pub fn look(&mut self) -> Result<MembershipChange, KernelFileError> {
        let pids = process::list(&self.root)?;
        let mut change = MembershipChange::default();
        let gone: Vec<Pid> =
            self.known.keys().filter(|pid| pids.binary_search(pid).is_err()).copied().collect();
        for pid in gone {
            self.update(pid, None, &mut change);
        }
        let mut due: Vec<Pid> = self.known.range(self.next..).map(|(&pid, _)| pid).take(RECHECKS).collect();
        if due.len() < RECHECKS {
            due.extend(self.known.range(..self.next).map(|(&pid, _)| pid).take(RECHECKS - due.len()));
        }
        self.next = due.last().map_or(Pid(0), |last| Pid(last.0.saturating_add(1)));
        let new: Vec<Pid> = pids.iter().filter(|&pid| !self.known.contains_key(pid)).copied().collect();
        self.deferred += new.len().saturating_sub(NEW_MAX) as u64;
        for pid in due.into_iter().chain(new.into_iter().take(NEW_MAX)) {
            let now = self.examine(pid);
            self.update(pid, now, &mut change);
        }
        Ok(change)
    }

    fn examine(&mut self, pid: Pid) -> Option<Known> {
        match self.try_examine(pid) {
            Ok(known) => known,
            Err(_) => {
                self.unreadable += 1;
                None
            }
        }
    }

    fn try_examine(&self, pid: Pid) -> Result<Option<Known>, KernelFileError> {
        let Some(stat) = process::stat(&self.root, pid)? else { return Ok(None) };
        let mut known = Known { start_time: stat.start_time, scope: None };
        if pid == self.own || stat.kernel_thread || matches!(stat.state, 'Z' | 'X') {
            return Ok(Some(known));
        }
        let command_line = match self.scopes.needs_command() {
            true => self.command_line(pid)?,
            false => String::new(),
        };
        let cgroup = match self.scopes.needs_cgroup() {
            true => process::cgroup(&self.root, pid)?.map(|path| cgroup::normal(&path)),
            false => None,
        };
        known.scope = self.scopes.scope_of(Traits {
            pid,
            comm: &stat.comm,
            command_line: &command_line,
            cgroup: cgroup.as_deref(),
        });
        Ok(Some(known))
    }

    /// The kernel reads it from the process's own memory.
    fn command_line(&self, pid: Pid) -> Result<String, KernelFileError> {
        let root = self.root.clone();
        let read = self.aside.ask(pid, move || process::command_line(&root, pid));
        let read = read.map_err(|hung| KernelFileError::io("read", &self.root.proc, hung.into()))?;
        Ok(read?.unwrap_or_default())
    }

    fn update(&mut self, pid: Pid, now: Option<Known>, change: &mut MembershipChange) {
        let before = match now {
            Some(now) => self.known.insert(pid, now),
            None => self.known.remove(&pid),
        };
        if before == now {
            return;
        }
        change.removed.extend(before.and_then(|known| member(pid, known)));
        change.added.extend(now.and_then(|known| member(pid, known)));
    }
}

fn member(pid: Pid, known: Known) -> Option<Member> {
    known.scope.map(|scope| Member { pid, start_time: known.start_time, scope })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::config;

    use super::*;

    struct Machine {
        _dir: tempfile::TempDir,
        root: Root,
    }

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::at(dir.path());
            fs::create_dir_all(&root.proc).unwrap();
            Machine { _dir: dir, root }
        }

        fn process(&self, pid: u32, comm: &str, start: u64, cgroup: &str) {
            self.with_flags(pid, comm, start, cgroup, 0);
        }

        fn with_flags(&self, pid: u32, comm: &str, start: u64, cgroup: &str, flags: u64) {
            let folder = self.root.proc.join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let stat =
                format!("{pid} ({comm}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1000 10 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("cmdline"), format!("/usr/bin/{comm}\0--flag\0")).unwrap();
            fs::write(folder.join("cgroup"), format!("1:name=systemd:/\n0::{cgroup}\n")).unwrap();
        }

        fn end(&self, pid: u32) {
            fs::remove_dir_all(self.root.proc.join(pid.to_string())).unwrap();
        }

        fn members(&self, scopes: &[config::Scope]) -> Members {
            Members::new(&self.root, Scopes::new(scopes).unwrap())
        }
    }

    fn pids(members: &[Member]) -> Vec<u32> {
        members.iter().map(|m| m.pid.0).collect()
    }

    #[test]
    fn the_whole_machine_is_everybody_but_kernel_threads_and_ourselves() {
        let m = Machine::new();
        m.process(10, "redis-server", 5, "/");
        m.with_flags(2, "kthreadd", 1, "/", 0x0020_8040);
        m.process(std::process::id(), "thermocline", 9, "/");
        fs::create_dir(m.root.proc.join("irq")).unwrap();
        let mut members = m.members(&[]);
        let change = members.look().unwrap();
        assert_eq!(pids(&change.added), [10]);
        assert_eq!(members.scope_of(Pid(10)), Some(ScopeId::DEFAULT));
        assert_eq!(members.scope_of(Pid(2)), None);
        assert_eq!(members.look().unwrap(), MembershipChange::default());
    }

    #[test]
    fn a_process_whose_command_line_never_comes_keeps_nobody_waiting() {
        let m = Machine::new();
        for pid in [10, 11, 12] {
            m.process(pid, "redis", 5, "/");
        }
        // Whoever opens a pipe to read waits until somebody writes.
        let pipe = m.root.proc.join("11/cmdline");
        fs::remove_file(&pipe).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut members =
            m.members(&[config::Scope { command: Some("redis".into()), ..config::Scope::default() }]);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let found = [members.look().unwrap(), members.look().unwrap()].map(|look| pids(&look.added));
            let _ = tell.send(found);
        });
        let found = told.recv_timeout(Duration::from_secs(20)).expect("a look waits for a process");
        assert_eq!(found, [vec![10, 12], vec![]]);
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let m = Machine::new();
        m.process(10, "a", 5, "/");
        let mut members = m.members(&[]);
        members.look().unwrap();
        m.process(10, "b", 6, "/");
        let change = members.look().unwrap();
        assert_eq!((change.removed[0].start_time, change.added[0].start_time), (5, 6));
        m.end(10);
        let change = members.look().unwrap();
        assert_eq!((pids(&change.removed), pids(&change.added)), (vec![10], vec![]));
        assert_eq!(members.iter().count(), 0);
    }

    #[test]
    fn processes_are_followed_into_and_out_of_scopes() {
        let m = Machine::new();
        m.process(10, "sh", 5, "/");
        m.process(11, "sleep", 6, "/box/inner");
        let mut members = m.members(&[
            config::Scope { command: Some("bin/redis.* --flag$".into()), ..config::Scope::default() },
            config::Scope { cgroup: Some("/box".into()), ..config::Scope::default() },
        ]);
        assert_eq!(pids(&members.look().unwrap().added), [11]);
        m.process(10, "redis-server", 5, "/");
        m.process(11, "sleep", 6, "/elsewhere");
        let change = members.look().unwrap();
        assert_eq!((pids(&change.removed), pids(&change.added)), (vec![11], vec![10]));
        assert_eq!(members.scope_of(Pid(10)), Some(ScopeId(1)));
    }

    #[test]
    fn every_process_is_examined_again_within_its_turn() {
        let m = Machine::new();
        let count = 2 * RECHECKS as u32 + 10;
        for pid in 1000..1000 + count {
            m.process(pid, "old", 5, "/");
        }
        let mut members =
            m.members(&[config::Scope { command: Some("new".into()), ..config::Scope::default() }]);
        members.look().unwrap();
        for pid in 1000..1000 + count {
            m.process(pid, "new", 5, "/");
        }
        let mut found = 0;
        for _ in 0..3 {
            found += members.look().unwrap().added.len();
        }
        assert_eq!(found, count as usize);
    }

    #[test]
    fn a_flood_of_new_processes_is_taken_in_over_several_looks_and_counted() {
        let m = Machine::new();
        for pid in 1000..1000 + NEW_MAX as u32 + 5 {
            fs::create_dir(m.root.proc.join(pid.to_string())).unwrap();
        }
        m.process(1000 + NEW_MAX as u32 + 4, "late", 5, "/");
        let mut members = m.members(&[]);
        assert!(members.look().unwrap().added.is_empty());
        assert_eq!(members.deferred(), 5);
    }

    #[test]
    fn a_malformed_process_is_counted_and_in_no_scope() {
        let m = Machine::new();
        m.process(10, "a", 5, "/");
        fs::write(m.root.proc.join("10/stat"), "nonsense").unwrap();
        let mut members = m.members(&[]);
        assert!(members.look().unwrap().added.is_empty());
        assert_eq!(members.unreadable(), 1);
    }

    #[test]
    fn the_real_machine_is_looked_at_quickly() {
        let mut members = Members::new(&Root::default(), Scopes::new(&[]).unwrap());
        members.look().unwrap();
        let begin = std::time::Instant::now();
        members.look().unwrap();
        let took = begin.elapsed();
        println!("a look at {} members took {took:?}", members.iter().count());
        assert!(members.scope_of(Pid(std::process::id())).is_none());
    }
}
