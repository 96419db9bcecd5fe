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
}

#[derive(Debug)]
struct Job {
    kdamond: usize,
    who: Who,
    /// The former ranges.
    before: Ranges,
}

/// The result of a job: new ranges, if they changed, and the memory of the process.
type Done = (Job, Result<(Option<Ranges>, u64), NotTold>);

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
    renewed: u64,
}

impl Mapped {
    /// For kdamonds of at most `regions_max` regions.
    pub(super) fn new(root: &Root, regions_max: u64) -> Mapped {
        let aside = Aside::new(root, "its mappings were read", READ_MAX);
        let proc = root.proc.clone();
        let read = move |pid: Pid, most| {
            let maps = regular::open(&proc.join(pid.0.to_string()).join("maps"))?;
            Ranges::read(io::BufReader::new(maps), most)
        };
        Mapped::with(root, aside, Arc::new(read), regions_max)
    }

    fn with(root: &Root, aside: Aside, read: Read, regions_max: u64) -> Mapped {
        let most = usize::try_from(regions_max / 4).unwrap_or(usize::MAX);
        let worker = Some(Worker { root: root.clone(), aside, read, most });
        Mapped { worker, thread: None, busy: false, known: BTreeMap::new(), renewed: 0 }
    }

    /// Requests that a process's mappings be set in a kdamond that is off.
    pub(super) fn add(&mut self, kdamond: usize, who: Who) {
        let known = Known { who, ranges: Ranges::default(), resident_bytes: 0, looked: None };
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

    /// Takes the thread's result. Returns the kdamond whose mappings were set for the first time,
    /// or could not be, and its process. Never blocks.
    pub(super) fn take(&mut self) -> Option<(usize, Who, Result<(), NotTold>)> {
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
        let failed = match done {
            Ok((ranges, resident_bytes)) => {
                known.resident_bytes = resident_bytes;
                if let Some(ranges) = ranges {
                    known.ranges = ranges;
                    self.renewed += u64::from(!first);
                }
                None
            }
            Err(why) => Some(why),
        };
        first.then_some((job.kdamond, job.who, failed.map_or(Ok(()), Err)))
    }

    /// Gives the thread work if it is idle: kdamonds without mappings come first. Never blocks.
    pub(super) fn step(&mut self, now: Nanos, commands: impl FnOnce() -> Option<Commands>) {
        let due = |known: &Known| known.looked.is_none_or(|looked| now.since(looked) >= LOOK_EVERY);
        let oldest = self.known.iter_mut().filter(|(_, k)| due(k)).min_by_key(|(_, k)| k.looked);
        let Some((&kdamond, known)) = oldest.filter(|_| !self.busy) else { return };
        if self.worker.is_some()
            && let Some(commands) = commands()
        {
            self.thread = self.worker.take().and_then(|worker| worker.start(commands));
        }
        let Some((jobs, _)) = &self.thread else { return };
        known.looked = Some(now);
        self.busy = jobs.try_send(Job { kdamond, who: known.who, before: known.ranges.clone() }).is_ok();
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

    fn work(&self, job: &Job, commands: &mut Commands) -> Result<(Option<Ranges>, u64), NotTold> {
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
        if !ranges.differs(&job.before) {
            return Ok((None, resident_bytes));
        }
        let told = if job.before.is_empty() {
            self.tell(commands, job, &ranges)
        } else if watches(commands, job) {
            let told = self.tell(commands, job, &ranges);
            told.and_then(|()| commands.tell_kdamond(job.kdamond, kdamond_file::STATE, "commit"))
        } else {
            // If it was ended meanwhile, that is detected elsewhere.
            return Ok((None, resident_bytes));
        };
        told.map_err(NotTold::Kdamond)?;
        Ok((Some(ranges), resident_bytes))
    }

    fn tell(&self, commands: &mut Commands, job: &Job, ranges: &Ranges) -> io::Result<()> {
        for (file, value) in damon::ranges(&ranges.pieces(&job.before, self.most)) {
            commands.tell_kdamond(job.kdamond, &file, &value)?;
        }
        Ok(())
    }
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
