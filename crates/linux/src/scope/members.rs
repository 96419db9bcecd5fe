//! Which processes are in which scope now, looked at about once a second.
//!
//! What has not been looked at is nobody's: a process that has just come, one that has called exec where scopes go by the command, one whose
//! files cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thermocline_core::access::Membership;
use thermocline_core::units::{Pid, ScopeId};

use crate::aside::Aside;
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Scopes, Traits, cgroup};

/// Processes known before that a look examines again, in turn: a move between cgroups or another name
/// shows after at most (processes / 256) looks, and a look costs some milliseconds at most.
const RECHECKS: usize = 256;

/// Processes not known before that a look examines; the rest waits for the next one.
const NEW_MAX: usize = 4096;

/// Processes that are to be examined out of their turn at most; of more, each waits for its turn.
const DUE_MAX: usize = 65_536;

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

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// Whether its memory may move.
    pub membership: Membership,
}

/// A process of which something else is known than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub pid: Pid,
    /// What was known of the process with this number; nothing where there was none.
    pub before: Option<Known>,
    /// What is known; nothing where it is gone, or cannot be looked at.
    pub now: Option<Known>,
}

impl Change {
    /// Whether another process has the number, or none.
    pub fn is_end(&self) -> bool {
        self.before.is_some_and(|before| self.now.is_none_or(|now| now.start_time != before.start_time))
    }
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
    /// Those that the next look examines first: they have called exec.
    due: BTreeSet<Pid>,
    /// Where the next round of rechecks begins.
    next: Pid,
    /// Processes that were left for a later look, ever.
    deferred: u64,
    /// Processes whose files could not be read, ever.
    unreadable: u64,
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
            due: BTreeSet::new(),
            next: Pid(0),
            deferred: 0,
            unreadable: 0,
        }
    }

    /// Whether a process's memory may move, as far as is known.
    pub fn membership(&self, pid: Pid) -> Membership {
        self.known.get(&pid).map_or(Membership::Unexamined, |known| known.membership)
    }

    /// All members, ascending by number.
    pub fn iter(&self) -> impl Iterator<Item = Member> + '_ {
        self.known.iter().filter_map(|(&pid, known)| match known.membership {
            Membership::Managed(scope) => Some(Member { pid, start_time: known.start_time, scope }),
            Membership::Excluded | Membership::Unexamined => None,
        })
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

    /// A process has called exec: where scopes go by the command it is unexamined until the next look, which begins with it.
    pub fn exec(&mut self, pid: Pid) -> Option<Change> {
        if !self.scopes.needs_command() {
            return None;
        }
        if self.due.len() < DUE_MAX {
            self.due.insert(pid);
        }
        let before = self.known.get(&pid).copied()?;
        let now = Known { membership: Membership::Unexamined, ..before };
        self.update(pid, Some(now))
    }

    /// A process is gone: who has the number is unexamined until the next look, which begins with it.
    pub fn exit(&mut self, pid: Pid) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.membership = Membership::Unexamined;
            if self.due.len() < DUE_MAX {
                self.due.insert(pid);
            }
        }
    }

    /// Looks at the machine's processes and tells what is different.
    ///
    /// # Errors
    /// procfs cannot be listed; what was known stays.
    pub fn look(&mut self) -> Result<Vec<Change>, KernelFileError> {
        let pids = process::list(&self.root)?;
        let mut changes = Vec::new();
        let gone: Vec<Pid> =
            self.known.keys().filter(|pid| pids.binary_search(pid).is_err()).copied().collect();
        for pid in gone {
            changes.extend(self.update(pid, None));
        }
        let mut turn: Vec<Pid> = std::mem::take(&mut self.due).into_iter().collect();
        let mut rechecks: Vec<Pid> =
            self.known.range(self.next..).map(|(&pid, _)| pid).take(RECHECKS).collect();
        if rechecks.len() < RECHECKS {
            let rest = RECHECKS - rechecks.len();
            rechecks.extend(self.known.range(..self.next).map(|(&pid, _)| pid).take(rest));
        }
        self.next = rechecks.last().map_or(Pid(0), |last| Pid(last.0.saturating_add(1)));
        turn.extend(rechecks);
        let new: Vec<Pid> = pids.iter().filter(|&pid| !self.known.contains_key(pid)).copied().collect();
        self.deferred += new.len().saturating_sub(NEW_MAX) as u64;
        turn.extend(new.into_iter().take(NEW_MAX));
        for pid in turn {
            let now = self.examine(pid);
            changes.extend(self.update(pid, now));
        }
        Ok(changes)
    }

    fn examine(&mut self, pid: Pid) -> Option<Known> {
        match examine(&self.root, &self.scopes, self.own, pid, &self.aside) {
            Ok(known) => known,
            Err(_) => {
                self.unreadable += 1;
                None
            }
        }
    }

    fn update(&mut self, pid: Pid, now: Option<Known>) -> Option<Change> {
        let before = match now {
            Some(now) => self.known.insert(pid, now),
            None => self.known.remove(&pid),
        };
        (before != now).then_some(Change { pid, before, now })
    }
}

/// What is to be known of a process; nothing where it is gone. `own` is this process, which is left alone. Its command line,
/// which the kernel reads from the process's own memory, is read by `aside`.
///
/// # Errors
/// A file of the process cannot be read or understood.
pub(crate) fn examine(
    root: &Root,
    scopes: &Scopes,
    own: Pid,
    pid: Pid,
    aside: &Aside,
) -> Result<Option<Known>, KernelFileError> {
    let Some(stat) = process::stat(root, pid)? else { return Ok(None) };
    let known = |membership| Ok(Some(Known { start_time: stat.start_time, membership }));
    if pid == own || stat.kernel_thread || stat.has_ended() {
        return known(Membership::Excluded);
    }
    // Its first thread has ended, and what it runs can be seen no more: nobody's, rather than by half of what scopes go by.
    let is_headless = matches!(stat.state, 'Z' | 'X');
    if is_headless && scopes.needs_command() {
        return known(Membership::Unexamined);
    }
    let command_line = match scopes.needs_command() {
        true => {
            let read = aside.ask(pid, {
                let root = root.clone();
                move || process::command_line(&root, pid)
            });
            let read = read.map_err(|hung| KernelFileError::io("read", &root.proc, hung.into()))?;
            read?.unwrap_or_default()
        }
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

    /// Who came into scopes.
    fn added(changes: &[Change]) -> Vec<u32> {
        let managed =
            |known: Option<Known>| known.is_some_and(|k| matches!(k.membership, Membership::Managed(_)));
        changes.iter().filter(|c| managed(c.now)).map(|c| c.pid.0).collect()
    }

    /// Who left them, or is another.
    fn removed(changes: &[Change]) -> Vec<u32> {
        let managed =
            |known: Option<Known>| known.is_some_and(|k| matches!(k.membership, Membership::Managed(_)));
        changes.iter().filter(|c| managed(c.before)).map(|c| c.pid.0).collect()
    }

    #[test]
    fn the_whole_machine_is_everybody_but_kernel_threads_and_ourselves() {
        let m = Machine::new();
        m.process(10, "redis-server", 5, "/");
        m.with_flags(2, "kthreadd", 1, "/", 0x0020_8040);
        m.process(std::process::id(), "thermocline", 9, "/");
        fs::create_dir(m.root.proc.join("irq")).unwrap();
        let mut members = m.members(&[]);
        assert_eq!(added(&members.look().unwrap()), [10]);
        assert_eq!(members.membership(Pid(10)), Membership::Managed(ScopeId::DEFAULT));
        assert_eq!(members.membership(Pid(2)), Membership::Excluded);
        assert_eq!(members.look().unwrap(), []);
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
            let found = [members.look().unwrap(), members.look().unwrap()].map(|look| added(&look));
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
        let started = |known: Option<Known>| known.unwrap().start_time;
        assert_eq!((started(change[0].before), started(change[0].now)), (5, 6));
        assert!(change[0].is_end());
        m.end(10);
        let change = members.look().unwrap();
        assert_eq!((removed(&change), added(&change)), (vec![10], vec![]));
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
        assert_eq!(added(&members.look().unwrap()), [11]);
        m.process(10, "redis-server", 5, "/");
        m.process(11, "sleep", 6, "/elsewhere");
        let change = members.look().unwrap();
        assert_eq!((removed(&change), added(&change)), (vec![11], vec![10]));
        assert_eq!(members.membership(Pid(10)), Membership::Managed(ScopeId(1)));
        assert_eq!(members.membership(Pid(11)), Membership::Excluded);
    }

    #[test]
    fn who_calls_exec_is_nobodys_until_it_is_looked_at_and_its_turn_comes_first() {
        let m = Machine::new();
        for pid in 10..10 + 3 * RECHECKS as u32 {
            m.process(pid, "sh", 5, "/box");
        }
        let not_hotcold =
            config::Scope { command: Some("hotcold".into()), exclude: true, ..Default::default() };
        let mut members = m.members(std::slice::from_ref(&not_hotcold));
        members.look().unwrap();
        let last = Pid(10 + 3 * RECHECKS as u32 - 1);
        assert_eq!(members.membership(last), Membership::Managed(ScopeId::DEFAULT));
        m.process(last.0, "hotcold", 5, "/box");
        assert!(!members.exec(last).unwrap().is_end());
        assert_eq!(members.membership(last), Membership::Unexamined);
        members.look().unwrap();
        assert_eq!(members.membership(last), Membership::Excluded);
        // Where nothing goes by the command, nothing changes.
        let mut members = m.members(&[config::Scope { cgroup: Some("/box".into()), ..Default::default() }]);
        members.look().unwrap();
        assert_eq!(members.exec(last), None);
        assert_eq!(members.membership(last), Membership::Managed(ScopeId(1)));
    }

    #[test]
    fn a_process_outlives_its_first_thread() {
        let m = Machine::new();
        m.process(10, "server", 5, "/box");
        let mut members = m.members(&[config::Scope { cgroup: Some("/box".into()), ..Default::default() }]);
        members.look().unwrap();
        let stat = m.root.proc.join("10/stat");
        let text = fs::read_to_string(&stat).unwrap();
        fs::write(&stat, text.replace(") S ", ") Z ").replace(" 20 0 1 0 5 ", " 20 0 3 0 5 ")).unwrap();
        assert_eq!(members.look().unwrap(), []);
        assert_eq!(members.membership(Pid(10)), Membership::Managed(ScopeId(1)));
        fs::write(&stat, text.replace(") S ", ") Z ")).unwrap();
        members.look().unwrap();
        assert_eq!(members.membership(Pid(10)), Membership::Excluded);
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
            found += added(&members.look().unwrap()).len();
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
        assert!(added(&members.look().unwrap()).is_empty());
        assert_eq!(members.deferred(), 5);
    }

    #[test]
    fn a_malformed_process_is_counted_and_in_no_scope() {
        let m = Machine::new();
        m.process(10, "a", 5, "/");
        fs::write(m.root.proc.join("10/stat"), "nonsense").unwrap();
        let mut members = m.members(&[]);
        assert!(added(&members.look().unwrap()).is_empty());
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
        assert_eq!(members.membership(Pid(std::process::id())), Membership::Excluded);
    }
}
