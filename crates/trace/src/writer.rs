//! The thread that writes: takes events from a queue, and ends parts by time and size.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parquet::errors::ParquetError;
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use crate::part::{PartWriter, Written, message};
use crate::piece::{Phase, Piece};
use crate::private::Private;
use crate::schema::TableId;

/// Rows at which a part ends: what is lost at most if a file is damaged.
const PART_ROWS: u64 = 1 << 20;
/// Parts that a recording of limited size has at least, so that dropping the oldest one keeps most.
const PARTS_MIN: u64 = 16;

/// How much is recorded.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes on disk at most.
    pub max_bytes: Option<u64>,
    /// At that size the oldest part is dropped. Otherwise the recording ends.
    pub rotate: bool,
    /// Parts that are older are removed.
    pub keep: Option<Duration>,
    /// Time after which what was recorded is on disk, whole: what is lost at most by a kill.
    pub flush: Duration,
    /// Bytes of memory that wait for the disk at most; what comes beyond is lost and counted.
    /// `None`: nothing is lost, and steps wait instead. For machines that can.
    pub backlog_bytes: Option<usize>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_bytes: None,
            rotate: false,
            keep: None,
            flush: Duration::from_secs(10),
            backlog_bytes: Some(64 << 20),
        }
    }
}

/// What a recording says about itself in every part.
#[derive(Clone, Debug)]
pub struct About {
    /// What the machine, the program and its configuration are, by key.
    pub settings: Vec<(String, String)>,
    /// The nodes.
    pub topology: Topology,
}

/// An event on its way to the disk.
#[derive(Debug)]
pub struct Event {
    /// Its number.
    pub number: u64,
    /// Where in a step it happened.
    pub phase: Phase,
    /// The time of the step.
    pub time: Nanos,
    /// The event.
    pub piece: Piece,
}

/// What the thread and the recorder share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Bytes of memory that wait.
    pub waiting: AtomicUsize,
    /// Bytes on disk, of finished parts.
    pub on_disk: AtomicU64,
    /// Pieces of evidence in finished parts.
    pub pieces: AtomicU64,
    /// Finished parts, those dropped since included.
    pub parts: AtomicU64,
    /// Parts that were dropped for newer ones.
    pub dropped: AtomicU64,
    /// CPU time of the thread, ns.
    pub cpu_ns: AtomicU64,
    ended: Mutex<Option<End>>,
}

/// Why a recording has ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// In words.
    pub why: String,
    /// Something has failed; otherwise it has reached its size.
    pub failed: bool,
}

impl Shared {
    /// Why the recording has ended, if it has ended by itself.
    pub fn ended(&self) -> Option<End> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&self, failed: bool, why: String) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(End { why, failed });
    }
}

/// Writes what comes from the queue until it is closed.
pub struct Writer {
    /// Where to.
    pub folder: PathBuf,
    /// What every part says about the recording.
    pub about: About,
    /// How much.
    pub limits: Limits,
    /// What is not to be known.
    pub private: Option<Private>,
    /// Seen by the recorder too.
    pub shared: Arc<Shared>,
}

impl Writer {
    /// Runs until the queue is closed or the recording has ended by itself.
    pub fn run(mut self, queue: &Receiver<Vec<Event>>) {
        let mut parts = Parts { written: VecDeque::new(), current: PartWriter::new(&self.folder, 1) };
        let result = queue.iter().try_for_each(|events| {
            let bytes: usize = events.iter().map(|event| event.piece.bytes()).sum();
            let written = events.into_iter().try_for_each(|event| self.put(&mut parts, event));
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.cpu_ns.store(cpu_ns(), Ordering::Relaxed);
            written
        });
        let unfinished = match result {
            Ok(()) => match parts.current.finish() {
                Ok(written) => {
                    written.iter().for_each(|part| self.count(part));
                    return self.shared.cpu_ns.store(cpu_ns(), Ordering::Relaxed);
                }
                Err(error) => Ended::Failed(error),
            },
            Err(ended) => ended,
        };
        parts.current.discard();
        match unfinished {
            Ended::Full => {
                let max = self.limits.max_bytes.unwrap_or_default();
                self.shared.end(false, format!("it has reached its {max} bytes; what was recorded is whole"));
            }
            Ended::Failed(error) => {
                let why = format!(
                    "{} cannot be written: {}; what was recorded before is whole; \
                     make room, or record to another disk",
                    self.folder.display(),
                    message(&error)
                );
                self.shared.end(true, why);
            }
        }
    }

    fn put(&mut self, parts: &mut Parts, event: Event) -> Result<(), Ended> {
        let Event { number, phase, time, mut piece } = event;
        if matches!(piece, Piece::Step(_)) && self.is_over(&parts.current, time) {
            self.next_part(parts)?;
        }
        if parts.current.is_empty() {
            self.begin(&mut parts.current, number);
        }
        if let Piece::Setting(key, value) = &piece {
            self.about.settings.retain(|(known, _)| known != key);
            self.about.settings.push((key.clone(), value.clone()));
        }
        if let Some(private) = &mut self.private {
            private.hide(&mut piece);
        }
        if let Piece::Topology(topology) = &piece {
            self.about.topology.clone_from(topology);
        }
        Ok(parts.current.put(number, phase, time, &piece)?)
    }

    fn is_over(&self, part: &PartWriter, time: Nanos) -> bool {
        let flush = u64::try_from(self.limits.flush.as_nanos()).unwrap_or(u64::MAX);
        let large = self.limits.max_bytes.is_some_and(|max| part.bytes() >= max / PARTS_MIN);
        part.rows() >= PART_ROWS
            || large
            || part.began().is_some_and(|began| time < began || time.since(began).0 >= flush)
    }

    fn next_part(&self, parts: &mut Parts) -> Result<(), Ended> {
        let Some(written) = parts.current.finish()? else { return Ok(()) };
        let now = written.last_ns;
        parts.current = PartWriter::new(&self.folder, written.part + 1);
        self.count(&written);
        parts.written.push_back(written);
        if let Some(keep) = self.limits.keep {
            let keep = Nanos(u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX));
            let is_old = |parts: &Parts| parts.written.front().is_some_and(|p| now.since(p.last_ns) > keep);
            while is_old(parts) {
                self.remove_oldest(parts)?;
            }
        }
        let Some(max) = self.limits.max_bytes else { return Ok(()) };
        // Room for one more part, which is about as large as the largest so far.
        let next = parts.written.iter().map(|part| part.bytes).max().unwrap_or_default();
        while parts.bytes() + next > max {
            if !self.limits.rotate || parts.written.len() < 2 {
                return Err(Ended::Full);
            }
            self.remove_oldest(parts)?;
        }
        Ok(())
    }

    fn remove_oldest(&self, parts: &mut Parts) -> Result<(), Ended> {
        let Some(oldest) = parts.written.pop_front() else { return Ok(()) };
        // The manifest first: a part without it is known to be incomplete, one without a file is
        // damaged.
        for path in oldest.paths.iter().rev() {
            fs::remove_file(path).map_err(ParquetError::from)?;
        }
        self.shared.on_disk.fetch_sub(oldest.bytes, Ordering::Relaxed);
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn count(&self, written: &Written) {
        self.shared.on_disk.fetch_add(written.bytes, Ordering::Relaxed);
        self.shared.pieces.fetch_add(written.pieces, Ordering::Relaxed);
        self.shared.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts what the recording says about itself at the head of a part.
    fn begin(&self, part: &mut PartWriter, event: u64) {
        let settings = part.head().rows(TableId::Settings);
        for (key, value) in &self.about.settings {
            let value = match &self.private {
                Some(_) => Private::setting(key, value),
                None => value.clone(),
            };
            settings.add(event).text(key).text(&value);
        }
        part.head().topology(event, &self.about.topology);
    }
}

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Why writing ends.
enum Ended {
    /// It is as large as it may be.
    Full,
    /// The disk does not take more.
    Failed(ParquetError),
}

impl From<ParquetError> for Ended {
    fn from(error: ParquetError) -> Ended {
        Ended::Failed(error)
    }
}

/// The part that is being written and those before it.
struct Parts {
    written: VecDeque<Written>,
    current: PartWriter,
}

impl Parts {
    fn bytes(&self) -> u64 {
        self.written.iter().map(|part| part.bytes).sum()
    }
}
