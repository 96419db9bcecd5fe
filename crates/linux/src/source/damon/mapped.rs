//! Sets kdamonds to the mappings of their processes, and keeps them up to date.
//!
//! A process may block readers of its mappings; a kdamond is configured through some hundreds of
//! files, and a running one applies them at the end of an aggregation. So a thread does all of it,
//! one kdamond after the other. It switches none on: writing the files of one that is off changes
//! nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use serde::Serialize;
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::units::{Nanos, PAGE_SIZE, Pid};

use super::processes::Who;
use super::ranges::Ranges;
use crate::actuator::Commands;
use crate::aside::{Aside, Hung};
use crate::damon::{self, kdamond_file};
use crate::process;
use crate::regular;
use crate::root::Root;

/// Time limit for reading the mappings of a process: enough for a million of them.
const READ_MAX: Duration = Duration::from_secs(2);
/// Time between two readings of a process's mappings.
const LOOK_EVERY: Nanos = Nanos::from_s(5);
/// A turn, where the time between two checks takes turns: so many aggregations, the first of which
/// is counted by the intervals of two turns, and at least so long.
const TURN: u64 = 5;
const TURN_MIN: Nanos = Nanos::from_s(2);

/// How well a process is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Watched {
    /// The process.
    pub pid: Pid,
    /// Addresses that it has mapped and may access, bytes.
    pub mapped_bytes: u64,
    /// Addresses that are checked, bytes: including holes between mappings if there are more
    /// mappings than ranges.
    pub watched_bytes: u64,
    /// Its resident memory, bytes. Checks of the rest of `watched_bytes` find nothing.
    pub resident_bytes: u64,
    /// Ranges of addresses set in its kdamond.
    pub ranges: usize,
}

/// Why a process's mappings could not be set in a kdamond.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotTold {
    #[error("it has nothing mapped")]
    Nothing,
    #[error("it keeps whoever reads its mappings waiting")]
    Hung,
    #[error("/proc/PID/maps cannot be read: {0}; run as root")]
    Maps(#[source] io::Error),
    #[error("its kdamond cannot be told of its mappings: {0}")]
    Kdamond(#[source] io::Error),
}

/// A kdamond and its settings.
#[derive(Debug)]
struct Known {
    who: Who,
    /// Empty before the first setting.
    ranges: Ranges,
    resident_bytes: u64,
    looked: Option<Nanos>,
    /// Turns of its intervals that have begun.
    turn: u64,
}

#[derive(Debug)]
struct Job {
    kdamond: usize,
    who: Who,
    /// The former ranges.
    before: Ranges,
    /// Intervals to be set.
    turn: Option<Box<Keys>>,
}

/// What the thread has done with a kdamond.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) kdamond: usize,
    /// Its process, if mappings were set for the first time, or could not be.
    pub(super) first: Option<(Who, Result<(), NotTold>)>,
    /// Intervals that it has now, if it was to get others: those that it had if it did not.
    pub(super) turned: Option<Keys>,
}

/// The result of a job.
struct Did {
    /// New ranges, if they changed.
    ranges: Option<Ranges>,
    /// The memory of the process.
    resident_bytes: u64,
    /// The intervals were set.
    turned: bool,
}

type Done = (Job, Result<Did, NotTold>);

/// The thread's state.
struct Worker {
    root: Root,
    aside: Aside,
    read: Read,
    /// Maximum number of ranges of a process, before splitting into pieces.
    most: usize,
}

/// Reads the mappings of a process, in at most the given number of ranges.
type Read = Arc<dyn Fn(Pid, usize) -> io::Result<Ranges> + Send + Sync>;

type Thread = (SyncSender<Job>, Receiver<Done>);

/// Reads mappings and keeps kdamonds in step with them.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Taken when the thread starts.
    worker: Option<Worker>,
    thread: Option<Thread>,
    busy: bool,
    /// By kdamond.
    known: BTreeMap<usize, Known>,
    keys: Keys,
    renewed: u64,
}

impl Mapped {
    /// For kdamonds with these keys.
    pub(super) fn new(root: &Root, keys: &Keys) -> Mapped {
        let aside = Aside::new(root, "its mappings were read", READ_MAX);
        let proc = root.proc.clone();
        let read = move |pid: Pid, most| {
            let maps = regular::open(&proc.join(pid.0.to_string()).join("maps"))?;
            Ranges::read(io::BufReader::new(maps), most)
        };
        Mapped::with(root, aside, Arc::new(read), keys)
    }

    fn with(root: &Root, aside: Aside, read: Read, keys: &Keys) -> Mapped {
        let most = usize::try_from(keys.regions_max / 4).unwrap_or(usize::MAX);
        let worker = Some(Worker { root: root.clone(), aside, read, most });
        let keys = keys.clone();
        Mapped { worker, thread: None, busy: false, known: BTreeMap::new(), keys, renewed: 0 }
    }

    /// Requests that a process's mappings be set in a kdamond that is off.
    pub(super) fn add(&mut self, kdamond: usize, who: Who) {
        let known = Known { who, ranges: Ranges::default(), resident_bytes: 0, looked: None, turn: 0 };
        self.known.insert(kdamond, known);
    }

    /// A kdamond no longer watches a process.
    pub(super) fn ended(&mut self, kdamond: usize) {
        self.known.remove(&kdamond);
    }

    /// Whether the thread is working on a kdamond.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether a kdamond has no mappings set yet.
    pub(super) fn is_preparing(&self) -> bool {
        self.known.values().any(|known| known.ranges.is_empty())
    }

    /// Takes the thread's result. Never blocks.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let (_, done) = self.thread.as_ref().filter(|_| self.busy)?;
        let (job, done) = match done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return None,
            // It has panicked. Nothing is kept in step any more, and no process can begin to be
            // watched.
            Err(TryRecvError::Disconnected) => {
                self.busy = false;
                return None;
            }
        };
        self.busy = false;
        let first = job.before.is_empty();
        let same = |known: &&mut Known| known.who == job.who && known.ranges.is_empty() == first;
        let known = self.known.get_mut(&job.kdamond).filter(same)?;
        let told = done.map(|Did { ranges, resident_bytes, turned }| {
            known.resident_bytes = resident_bytes;
            known.turn += u64::from(turned);
            if let Some(ranges) = ranges {
                known.ranges = ranges;
                self.renewed += u64::from(!first);
            }
        });
        // A turn before the first is the last one of its predecessor.
        let turned = job.turn.is_some().then(|| self.keys.in_turn(known.turn.saturating_sub(1)));
        Some(Taken { kdamond: job.kdamond, first: first.then_some((job.who, told)), turned })
    }

    /// Gives the thread work if it is idle: kdamonds without mappings come first. Returns the
    /// kdamond whose intervals are about to change. Never blocks.
    pub(super) fn step(&mut self, now: Nanos, commands: impl FnOnce() -> Option<Commands>) -> Option<usize> {
        let keys = &self.keys;
        let every = |known: &Known| {
            let aggregation_ms = keys.in_turn(known.turn.saturating_sub(1)).aggregation_ms;
            if turns(keys) { TURN_MIN.max(Nanos::from_ms(TURN * aggregation_ms)) } else { LOOK_EVERY }
        };
        let due = |known: &Known| known.looked.is_none_or(|looked| now.since(looked) >= every(known));
        let oldest = self.known.iter_mut().filter(|(_, k)| due(k)).min_by_key(|(_, k)| k.looked);
        let (&kdamond, known) = oldest.filter(|_| !self.busy)?;
        if self.worker.is_some()
            && let Some(commands) = commands()
        {
            self.thread = self.worker.take().and_then(|worker| worker.start(commands));
        }
        let (jobs, _) = self.thread.as_ref()?;
        known.looked = Some(now);
        let turn = turns(keys).then(|| Box::new(keys.in_turn(known.turn)));
        let turns = turn.is_some();
        let job = Job { kdamond, who: known.who, before: known.ranges.clone(), turn };
        self.busy = jobs.try_send(job).is_ok();
        (self.busy && turns).then_some(kdamond)
    }

    /// How well each process is watched, and how often a kdamond's ranges were changed.
    pub(super) fn watched(&self) -> (Vec<Watched>, u64) {
        let watched = |known: &Known| Watched {
            pid: known.who.0,
            mapped_bytes: known.ranges.mapped(),
            watched_bytes: known.ranges.watched(),
            resident_bytes: known.resident_bytes.min(known.ranges.mapped()),
            ranges: known.ranges.len(),
        };
        (self.known.values().filter(|known| !known.ranges.is_empty()).map(watched).collect(), self.renewed)
    }
}

impl Worker {
    fn start(self, mut commands: Commands) -> Option<Thread> {
        let (jobs, asked) = sync_channel::<Job>(1);
        let (tell, done) = sync_channel(1);
        let work = move || {
            for job in asked {
                let done = self.work(&job, &mut commands);
                if tell.send((job, done)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("mapped".to_owned()).spawn(work).ok()?;
        Some((jobs, done))
    }

    fn work(&self, job: &Job, commands: &mut Commands) -> Result<Did, NotTold> {
        let (read, most, pid) = (Arc::clone(&self.read), self.most, job.who.0);
        let ranges = match self.aside.ask(pid, move || read(pid, most)) {
            Err(Hung(_)) => return Err(NotTold::Hung),
            // A process that has ended may still have the file.
            Ok(Err(e)) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
                return Err(NotTold::Nothing);
            }
            Ok(read) => read.map_err(NotTold::Maps)?,
        };
        if ranges.is_empty() {
            return Err(NotTold::Nothing);
        }
        let pages = process::stat(&self.root, pid).ok().flatten().map_or(0, |stat| stat.rss_pages);
        let resident_bytes = pages.saturating_mul(PAGE_SIZE);
        let ranges = ranges.differs(&job.before).then_some(ranges);
        let first = job.before.is_empty();
        let has_news = ranges.is_some() || job.turn.is_some();
        // If it was ended meanwhile, that is detected elsewhere.
        if !has_news || !first && !watches(commands, job) {
            return Ok(Did { ranges: None, resident_bytes, turned: false });
        }
        let told = self.tell(commands, job, ranges.as_ref()).and_then(|()| {
            if first { Ok(()) } else { commands.tell_kdamond(job.kdamond, kdamond_file::STATE, "commit") }
        });
        told.map_err(NotTold::Kdamond)?;
        Ok(Did { ranges, resident_bytes, turned: job.turn.is_some() })
    }

    fn tell(&self, commands: &mut Commands, job: &Job, ranges: Option<&Ranges>) -> io::Result<()> {
        let pieces = ranges.map(|ranges| ranges.pieces(&job.before, self.most));
        let ranges = pieces.iter().flat_map(|pieces| damon::ranges(pieces));
        for (file, value) in ranges.chain(job.turn.iter().flat_map(|keys| damon::intervals(keys))) {
            commands.tell_kdamond(job.kdamond, &file, &value)?;
        }
        Ok(())
    }
}

/// Whether the time between two checks takes turns.
fn turns(keys: &Keys) -> bool {
    keys.sample_lengths > 1
}

/// Whether a kdamond runs and watches its process.
fn watches(commands: &Commands, job: &Job) -> bool {
    let is = |file: &str, value: &str| {
        commands.read_kdamond(job.kdamond, file).is_ok_and(|text| text.trim() == value)
    };
    is(kdamond_file::STATE, "on") && is(kdamond_file::PID, &job.who.0.0.to_string())
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
