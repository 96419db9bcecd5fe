//! Which processes are in which scope now, updated about once a second.
//!
//! An unexamined process is in no scope: one that has just started, one that has called exec if
//! scopes match by command, one whose files cannot be read.
//!
//! A scan can be interrupted at any moment and continued later, so that the caller need not wait
//! for 100,000 processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use thermocline_core::access::Membership;
use thermocline_core::config::ScopeMap;
use thermocline_core::units::{Pid, ScopeId};

use crate::aside::{Aside, Later};
use crate::process::{self, Listing};
use crate::root::{KernelFileError, Root};
use crate::scope::{Examined, Scopes, examine};

/// Known processes that a scan examines again, in turn: a move between cgroups or a new name is
/// noticed after at most (processes / 256) scans, and a scan costs at most some milliseconds.
const RECHECKS: usize = 256;

/// Maximum number of processes to examine out of turn; further ones wait for their turn.
const DUE_MAX: usize = 65_536;

/// Time limit for reading a command line.
const COMMAND_MAX: Duration = Duration::from_millis(500);

/// Command lines read at once, each by a thread. Handing one to a thread and waiting for it takes
/// longer than reading it, so one at a time would be slow.
const AT_ONCE: usize = 32;

/// How long a step waits for the first of them. If none arrives, the scan is interrupted for now.
const COMMAND_PATIENCE: Duration = Duration::from_millis(1);

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

/// A process whose known state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub pid: Pid,
    /// The former state of the process with this number; `None` if there was none.
    pub before: Option<Known>,
    /// The new state; `None` if it is gone, or cannot be read.
    pub now: Option<Known>,
}

impl Change {
    /// Whether another process has the number, or none.
    pub fn is_end(&self) -> bool {
        self.before.is_some_and(|before| self.now.is_none_or(|now| now.start_time != before.start_time))
    }
}

/// The command line of a process.
pub(super) type CommandLine = Result<Option<String>, KernelFileError>;

/// A scan of all processes.
#[derive(Debug)]
struct Round {
    /// `None` if all are listed.
    listing: Option<Listing>,
    listed: Vec<Pid>,
    /// Ended processes have been found, and the rechecks have been chosen.
    swept: bool,
    /// Processes to examine.
    turn: VecDeque<Pid>,
}

/// Keeps track of the members of all scopes.
#[derive(Debug)]
pub struct Members {
    root: Root,
    scopes: Scopes,
    command_lines: Later<CommandLine>,
    /// The reader of command lines.
    read: fn(&Root, Pid) -> CommandLine,
    own: Pid,
    /// Every process, whether in a scope or not.
    known: BTreeMap<Pid, Known>,
    /// Processes that the next scan examines first: they have called exec, or their number was
    /// reused.
    due: BTreeSet<Pid>,
    /// Those whose command line is being read, with their start times.
    asked: Vec<(Pid, u64)>,
    /// The scan in progress.
    round: Option<Round>,
    /// Where the next round of rechecks begins.
    next: Pid,
    /// The next round rechecks all.
    all: bool,
    /// Processes whose files could not be read, ever.
    unreadable: u64,
}

impl Members {
    /// Creates an empty set; the first [`look`](Members::look) finds all processes.
    pub fn new(root: &Root, scopes: Scopes) -> Members {
        Members {
            root: root.clone(),
            scopes,
            command_lines: Later::new(
                Aside::new(root, "its command line was read", COMMAND_MAX),
                Duration::ZERO,
            ),
            read: process::command_line,
            own: root.own_pid(),
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            asked: Vec::new(),
            round: None,
            next: Pid(0),
            all: false,
            unreadable: 0,
        }
    }

    /// Other scopes are configured. A process stays in a scope that remains until it has been
    /// examined by the new ones, which the next scan does; `map` leads to their numbers.
    pub fn set_scopes(&mut self, scopes: Scopes, map: &ScopeMap) {
        self.scopes = scopes;
        for known in self.known.values_mut() {
            known.membership = match known.membership.after(map) {
                Membership::Excluded => Membership::Unexamined,
                other => other,
            };
        }
        (self.all, self.round) = (true, None);
    }

    /// Whether a process's memory may move, as far as known.
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

    /// Readings of processes that failed for lack of permission or an unknown format, since the
    /// beginning. Such processes are in no scope.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// A process has called exec: if scopes match by command it is unexamined until the next scan,
    /// which begins with it.
    pub fn exec(&mut self, pid: Pid) -> Option<Change> {
        if !self.scopes.needs_command() {
            return None;
        }
        if self.due.len() < DUE_MAX {
            self.due.insert(pid);
        }
        self.asked.retain(|(asked, _)| *asked != pid);
        self.command_lines.forget(pid);
        let before = self.known.get(&pid).copied()?;
        let now = Known { membership: Membership::Unexamined, ..before };
        self.update(pid, Some(now))
    }

    /// A process has ended: a process that reuses the number is unexamined until the next scan,
    /// which begins with it.
    pub fn exit(&mut self, pid: Pid) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.membership = Membership::Unexamined;
            if self.due.len() < DUE_MAX {
                self.due.insert(pid);
            }
        }
    }

    /// Whether a scan is incomplete, or a process is to be examined out of turn.
    pub fn is_busy(&self) -> bool {
        self.has_next() || !self.asked.is_empty()
    }

    /// Whether there is more to do than to wait for command lines.
    fn has_next(&self) -> bool {
        self.round.is_some() || !self.due.is_empty()
    }

    /// Scans the machine's processes and returns the changes.
    ///
    /// # Errors
    /// procfs cannot be listed; the former state stays.
    pub fn look(&mut self) -> Result<Vec<Change>, KernelFileError> {
        self.look_while(true, || true)
    }

    /// Continues an incomplete scan, or begins one if `anew`; due processes come first. After each
    /// step, of which there is at least one, `go_on` decides whether to continue. It also returns
    /// if only command lines are awaited.
    ///
    /// # Errors
    /// procfs cannot be listed; the former state stays, and the next scan starts again.
    pub fn look_while(
        &mut self,
        anew: bool,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Vec<Change>, KernelFileError> {
        let mut changes = Vec::new();
        if anew && self.round.is_none() {
            self.round = Some(Round::begin(&self.root)?);
        }
        while self.step(&mut changes)? && go_on() {}
        Ok(changes)
    }

    /// A step of a scan; false if none can be made now.
    fn step(&mut self, changes: &mut Vec<Change>) -> Result<bool, KernelFileError> {
        if self.asked.len() >= AT_ONCE || !self.has_next() {
            return Ok(self.collect(changes));
        }
        if let Some(pid) = self.due.pop_first() {
            self.examine(pid, changes);
            return Ok(true);
        }
        let Some(mut round) = self.round.take() else { return Ok(false) };
        if self.step_of(&mut round, changes)? {
            self.round = Some(round);
        }
        Ok(true)
    }

    /// Examines processes whose command line has arrived, or will not; false if there are none even
    /// after a moment.
    fn collect(&mut self, changes: &mut Vec<Change>) -> bool {
        let is_ready = |members: &Members| {
            let Members { asked, command_lines, .. } = members;
            asked.iter().any(|&of| command_lines.is_ready(of))
        };
        if !self.asked.is_empty() && !is_ready(self) {
            std::thread::sleep(COMMAND_PATIENCE);
        }
        if !is_ready(self) {
            return false;
        }
        for of in std::mem::take(&mut self.asked) {
            if self.command_lines.is_ready(of) {
                self.examine(of.0, changes);
            } else {
                self.asked.push(of);
            }
        }
        true
    }

    /// A step of a round; false if it is over.
    fn step_of(&mut self, round: &mut Round, changes: &mut Vec<Change>) -> Result<bool, KernelFileError> {
        if let Some(pid) = round.turn.pop_front() {
            self.examine(pid, changes);
        } else if let Some(listing) = &mut round.listing {
            match listing.piece()? {
                Some(pids) => {
                    round.turn.extend(pids.iter().filter(|&pid| !self.known.contains_key(pid)));
                    round.listed.extend(pids);
                }
                None => round.listing = None,
            }
        } else if !round.swept {
            round.swept = true;
            round.listed.sort_unstable();
            let gone = |pid: &&Pid| round.listed.binary_search(pid).is_err();
            let gone: Vec<Pid> = self.known.keys().filter(gone).copied().collect();
            for pid in gone {
                changes.extend(self.update(pid, None));
            }
            round.turn.extend(self.rechecks());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The processes to recheck this time.
    fn rechecks(&mut self) -> Vec<Pid> {
        if std::mem::take(&mut self.all) {
            return self.known.keys().copied().collect();
        }
        let mut pids: Vec<Pid> = self.known.range(self.next..).map(|(&pid, _)| pid).take(RECHECKS).collect();
        if pids.len() < RECHECKS {
            let rest = RECHECKS - pids.len();
            pids.extend(self.known.range(..self.next).map(|(&pid, _)| pid).take(rest));
        }
        self.next = pids.last().map_or(Pid(0), |last| Pid(last.0.saturating_add(1)));
        pids
    }

    fn examine(&mut self, pid: Pid, changes: &mut Vec<Change>) {
        let Members { root, scopes, command_lines, read, own, .. } = self;
        let command_line = |start_time| {
            let (root, read) = (root.clone(), *read);
            command_lines.ask((pid, start_time), move || read(&root, pid))
        };
        let now = match examine(root, scopes, *own, pid, command_line) {
            Ok(Examined::Known(known)) => Some(known),
            Ok(Examined::Gone) => None,
            Ok(Examined::NotYet { start_time }) => {
                if !self.asked.contains(&(pid, start_time)) {
                    self.asked.push((pid, start_time));
                }
                // Until its command line arrives, it keeps its former state.
                let before = self.known.get(&pid).filter(|known| known.start_time == start_time);
                Some(before.copied().unwrap_or(Known { start_time, membership: Membership::Unexamined }))
            }
            Err(_) => {
                self.unreadable += 1;
                None
            }
        };
        changes.extend(self.update(pid, now));
    }

    fn update(&mut self, pid: Pid, now: Option<Known>) -> Option<Change> {
        let before = match now {
            Some(now) => self.known.insert(pid, now),
            None => self.known.remove(&pid),
        };
        (before != now).then_some(Change { pid, before, now })
    }
}

impl Round {
    fn begin(root: &Root) -> Result<Round, KernelFileError> {
        let listing = Some(Listing::begin(root)?);
        Ok(Round { listing, listed: Vec::new(), swept: false, turn: VecDeque::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// Processes that entered scopes.
    fn added(changes: &[Change]) -> Vec<u32> {
        let managed =
            |known: Option<Known>| known.is_some_and(|k| matches!(k.membership, Membership::Managed(_)));
        changes.iter().filter(|c| managed(c.now)).map(|c| c.pid.0).collect()
    }

    /// Processes that left them, or were replaced.
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
        m.process(m.root.own_pid().0, "thermocline", 9, "/");
        fs::create_dir(m.root.proc.join("irq")).unwrap();
        let mut members = m.members(&[]);
        assert_eq!(added(&members.look().unwrap()), [10]);
        assert_eq!(members.membership(Pid(10)), Membership::Managed(ScopeId::DEFAULT));
        assert_eq!(members.membership(Pid(2)), Membership::Excluded);
        assert_eq!(members.look().unwrap(), []);
    }

    /// A scan, including what a busy machine delays for a moment.
    fn look(members: &mut Members) -> Vec<Change> {
        let mut changes = members.look().unwrap();
        while members.is_busy() {
            changes.extend(members.look_while(false, || true).unwrap());
        }
        changes
    }

    /// Reads a command line as soon as nothing delays it.
    fn read_late(root: &Root, pid: Pid) -> CommandLine {
        while root.proc.join(pid.0.to_string()).join("kept").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        process::command_line(root, pid)
    }

    #[test]
    fn a_command_line_that_never_comes_keeps_nobody_waiting_and_one_that_is_late_is_taken() {
        let m = Machine::new();
        for pid in [10, 11, 12] {
            m.process(pid, "redis", 5, "/");
        }
        let kept = m.root.proc.join("11/kept");
        fs::write(&kept, "").unwrap();
        let mut members =
            m.members(&[config::Scope { command: Some("bin/redis".into()), ..config::Scope::default() }]);
        members.read = read_late;
        let begin = std::time::Instant::now();
        let mut found = added(&members.look().unwrap());
        let first = begin.elapsed();
        // It is asked for again until it counts as hung.
        while members.is_busy() && begin.elapsed() < Duration::from_secs(20) {
            found.extend(added(&members.look_while(false, || true).unwrap()));
        }
        found.sort_unstable();
        assert_eq!(found, [10, 12]);
        assert_eq!(members.membership(Pid(11)), Membership::Unexamined);
        assert!(first < COMMAND_MAX, "a look waits for a process: {first:?}");
        fs::remove_file(&kept).unwrap();
        while found.len() < 3 && begin.elapsed() < Duration::from_secs(20) {
            found.extend(added(&members.look().unwrap()));
        }
        assert_eq!(found, [10, 12, 11]);
    }

    #[test]
    fn many_command_lines_are_read_at_once_and_each_is_taken() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        fn read_slowly(root: &Root, pid: Pid) -> CommandLine {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
            NOW.fetch_sub(1, Ordering::SeqCst);
            process::command_line(root, pid)
        }
        let m = Machine::new();
        let count = 3 * AT_ONCE as u32;
        for pid in 10..10 + count {
            m.process(pid, "redis", 5, "/");
        }
        let mut members =
            m.members(&[config::Scope { command: Some("bin/redis".into()), ..config::Scope::default() }]);
        members.read = read_slowly;
        let mut found = added(&look(&mut members));
        found.sort_unstable();
        assert_eq!(found, (10..10 + count).collect::<Vec<_>>());
        let most = MOST.load(Ordering::SeqCst);
        assert!((2..=AT_ONCE).contains(&most), "{most} at once");
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
        assert_eq!(added(&look(&mut members)), [11]);
        m.process(10, "redis-server", 5, "/");
        m.process(11, "sleep", 6, "/elsewhere");
        let change = look(&mut members);
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
        look(&mut members);
        let last = Pid(10 + 3 * RECHECKS as u32 - 1);
        assert_eq!(members.membership(last), Membership::Managed(ScopeId::DEFAULT));
        m.process(last.0, "hotcold", 5, "/box");
        assert!(!members.exec(last).unwrap().is_end());
        assert_eq!(members.membership(last), Membership::Unexamined);
        look(&mut members);
        assert_eq!(members.membership(last), Membership::Excluded);
        // If no scope matches by command, nothing changes.
        let mut members = m.members(&[config::Scope { cgroup: Some("/box".into()), ..Default::default() }]);
        look(&mut members);
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
        look(&mut members);
        for pid in 1000..1000 + count {
            m.process(pid, "new", 5, "/");
        }
        let mut found = 0;
        for _ in 0..3 {
            found += added(&look(&mut members)).len();
        }
        assert_eq!(found, count as usize);
    }

    /// With THERMOCLINE_SOAK processes, a scan is interrupted after each step.
    #[test]
    fn a_look_goes_on_where_it_was_left_and_no_step_is_long() {
        let soak = std::env::var_os("THERMOCLINE_SOAK").is_some();
        let count: u32 = if soak { 100_000 } else { 2_000 };
        let m = Machine::new();
        for pid in 1000..1000 + count {
            m.process(pid, "a", 5, "/");
        }
        let mut members = m.members(&[]);
        let (mut changes, mut turns, mut longest) = (0, 0, Duration::ZERO);
        let mut step = |members: &mut Members, anew| {
            let begin = std::time::Instant::now();
            let found = members.look_while(anew, || false).unwrap();
            longest = longest.max(begin.elapsed());
            turns += 1;
            found
        };
        changes += step(&mut members, true).len();
        while members.is_busy() {
            changes += step(&mut members, false).len();
        }
        assert_eq!((changes, members.iter().count()), (count as usize, count as usize));
        assert!(step(&mut members, false).is_empty(), "nothing is begun that was not asked for");
        // One ends and one starts while the next scan is under way; a process that calls exec is
        // examined first.
        step(&mut members, true);
        m.end(1000);
        m.process(1000 + count, "late", 5, "/");
        let mut found = Vec::new();
        while members.is_busy() {
            found.extend(step(&mut members, false));
        }
        found.extend(members.look().unwrap());
        assert_eq!((removed(&found), added(&found)), (vec![1000], vec![1000 + count]));
        println!("{count} processes: the longest of {turns} steps took {longest:?}");
        assert!(turns > count as usize);
        assert!(!soak || longest < Duration::from_millis(200), "{longest:?}");
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
