//! Records what passes between a machine and the engine, without holding up a step.
//!
//! Everything is passed to the machine or the engine first and then copied to a queue, from which a
//! thread writes ([`crate::writer`]). If the queue is full, what comes is lost, and the recording
//! says so at the place. If the disk is full or fails, the recording ends and the run goes on.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thermocline_core::access::{Evidence, Mappings, Marked};
use thermocline_core::demand::Demand;
use thermocline_core::journal::Journal;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::Batch;
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, VirtPage};

use crate::part::prepare;
use crate::piece::{Answer, Phase, Piece, Step};
use crate::private::Private;
use crate::stats::RecordingStats;
use crate::writer::{About, End, Event, Limits, Shared, Writer};

/// Messages that wait at most; their memory is limited by [`Limits::backlog_bytes`].
const QUEUE: usize = 1024;
/// The same where steps wait.
const QUEUE_PATIENT: usize = 16;
/// Events after which they are passed on, and the time after which they are if there are fewer.
const BATCH_EVENTS: usize = 4096;
const BATCH_EVERY: Nanos = Nanos::from_ms(100);

/// What a recording came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events that happened, recorded or not.
    pub events: u64,
    /// Why it ended before the run, if it did.
    pub ended: Option<End>,
    /// Its figures.
    pub stats: RecordingStats,
}

/// Records a run; see the module's description.
#[derive(Debug)]
pub struct Recorder {
    queue: Option<SyncSender<Vec<Event>>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    folder: PathBuf,
    backlog: Option<usize>,
    /// Events that are not passed on yet.
    pending: Vec<Event>,
    pending_since: Nanos,
    next: u64,
    time: Nanos,
    /// The place of the current step among the pending events.
    step: Option<usize>,
    last: bool,
    /// Decisions of the journal that are recorded.
    decided: u64,
    lost: u64,
    /// Time that the caller's thread spent on recording.
    copying: Duration,
    end_reported: bool,
}

impl Recorder {
    /// Begins a recording in a folder, which is made where it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made, or is not empty.
    pub fn start(folder: &Path, about: About, limits: Limits, private: bool) -> io::Result<Recorder> {
        prepare(folder)?;
        let shared = Arc::new(Shared::default());
        let backlog = limits.backlog_bytes;
        let (queue, events) = sync_channel(if backlog.is_some() { QUEUE } else { QUEUE_PATIENT });
        let private = private.then(Private::default);
        let writer =
            Writer { folder: folder.to_owned(), about, limits, private, shared: Arc::clone(&shared) };
        let thread =
            std::thread::Builder::new().name("recording".to_owned()).spawn(move || writer.run(&events))?;
        Ok(Recorder {
            queue: Some(queue),
            thread: Some(thread),
            shared,
            folder: folder.to_owned(),
            backlog,
            pending: Vec::new(),
            pending_since: Nanos(0),
            next: 0,
            time: Nanos(0),
            step: None,
            last: false,
            decided: 0,
            lost: 0,
            copying: Duration::ZERO,
            end_reported: false,
        })
    }

    /// The machine for a step, recorded.
    pub fn over<'a, M: Machine + ?Sized>(&'a mut self, machine: &'a mut M) -> Recorded<'a, M> {
        Recorded { recorder: self, machine }
    }

    /// Says that the next step only polls because the run is about to end.
    pub fn ending(&mut self) {
        self.last = true;
    }

    /// Records the decisions since the last call; called after each step.
    pub fn decisions(&mut self, journal: &Journal) {
        let start = Instant::now();
        let (decisions, written) = journal.since(self.decided);
        let decisions: Vec<_> = decisions.copied().collect();
        let overwritten = (written - self.decided).saturating_sub(decisions.len() as u64);
        self.decided = written;
        if overwritten > 0 {
            self.add(Phase::Tick, Piece::Loss { events: 0, pieces: 0 });
        }
        if !decisions.is_empty() {
            self.add(Phase::Tick, Piece::Decisions(decisions));
        }
        self.copying += start.elapsed();
    }

    /// Shows evidence to the engine between two steps, and records it.
    pub fn between(&mut self, evidence: Evidence<'_>, observe: &mut dyn FnMut(Evidence<'_>)) {
        self.show(Phase::Between, evidence, observe);
    }

    /// Records that the machine, the program or its configuration is something else from now on.
    pub fn setting(&mut self, key: &str, value: String) {
        self.add(Phase::Between, Piece::Setting(key.to_owned(), value));
    }

    /// Records a piece that no machine has reported, in a step of its own, and waits for the disk.
    /// `time` is that of the step; a step is never earlier than the one before. Returns whether the
    /// recording goes on.
    pub fn put(&mut self, time: Nanos, piece: Piece) -> bool {
        self.begin(time.max(self.time), false, Pacing::Nothing, false);
        self.add(Phase::Poll, piece);
        self.pass_on();
        self.queue.is_some()
    }

    /// Why the recording has ended by itself; the first call after that returns it.
    pub fn report_end(&mut self) -> Option<String> {
        let ended = self.shared.ended().filter(|_| !std::mem::replace(&mut self.end_reported, true));
        ended.map(|end| format!("the recording has ended, the run goes on: {}", end.why))
    }

    /// Its figures now.
    pub fn stats(&self) -> RecordingStats {
        let ended = self.shared.ended();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecordingStats {
            pieces: of(&self.shared.pieces),
            lost: self.lost,
            bytes: self.bytes(),
            parts: of(&self.shared.parts),
            parts_removed: of(&self.shared.dropped),
            waiting_bytes: self.shared.waiting.load(Ordering::Relaxed) as u64,
            writing_ns: of(&self.shared.cpu_ns),
            copying_ns: u64::try_from(self.copying.as_nanos()).unwrap_or(u64::MAX),
            ended: ended.is_some(),
            folder: self.folder.display().to_string(),
            why: ended.map(|end| end.why),
        }
    }

    /// Bytes on disk, of finished parts.
    pub fn bytes(&self) -> u64 {
        self.shared.on_disk.load(Ordering::Relaxed)
    }

    /// Ends the recording, once everything that waits is on disk.
    pub fn finish(mut self) -> Summary {
        let defect =
            || End { why: "the thread that writes has failed; please report this".to_owned(), failed: true };
        let wrote = self.close();
        Summary {
            events: self.next,
            ended: self.shared.ended().or_else(|| (!wrote).then(defect)),
            stats: self.stats(),
        }
    }

    /// Waits for the thread. Returns whether it has done its work.
    fn close(&mut self) -> bool {
        self.pass_on();
        self.queue = None;
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }

    fn show(&mut self, phase: Phase, evidence: Evidence<'_>, observe: &mut dyn FnMut(Evidence<'_>)) {
        if self.queue.is_none() {
            return observe(evidence);
        }
        if let Evidence::Accesses { batch, mappings } = evidence {
            let asked = Asked { mappings, answers: RefCell::default() };
            observe(Evidence::Accesses { batch, mappings: &asked });
            let start = Instant::now();
            self.add(phase, Piece::Accesses(batch.to_vec(), asked.answers.into_inner()));
            self.copying += start.elapsed();
        } else {
            observe(evidence);
            let start = Instant::now();
            self.add(phase, Piece::of(evidence));
            self.copying += start.elapsed();
        }
    }

    fn add(&mut self, phase: Phase, piece: Piece) {
        if self.queue.is_some() {
            self.pending.push(Event { number: self.next, phase, time: self.time, piece });
            self.next += 1;
        }
    }

    fn begin(&mut self, time: Nanos, due: bool, pacing: Pacing, demotes: bool) {
        let enough = self.pending.len() >= BATCH_EVENTS
            || time < self.pending_since
            || time.since(self.pending_since) >= BATCH_EVERY;
        if enough {
            let start = Instant::now();
            self.pass_on();
            // Without a limit it may have waited for the disk, which costs nothing.
            if self.backlog.is_some() {
                self.copying += start.elapsed();
            }
            self.pending_since = time;
        }
        self.time = time;
        self.step = Some(self.pending.len());
        let last = std::mem::take(&mut self.last);
        self.add(
            Phase::Poll,
            Piece::Step(Step { time, due, last, looking: false, demotes, pacing, wish: None }),
        );
    }

    fn step(&mut self) -> Option<&mut Step> {
        match self.pending.get_mut(self.step?)? {
            Event { piece: Piece::Step(step), .. } => Some(step),
            _ => None,
        }
    }

    /// Passes the pending events to the thread, or counts them as lost if too much waits there.
    fn pass_on(&mut self) {
        self.step = None;
        let Some(queue) = &self.queue else { return };
        let events = std::mem::take(&mut self.pending);
        if events.is_empty() {
            return;
        }
        let bytes: usize = events.iter().map(|event| event.piece.bytes()).sum();
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        // If nothing waits, it may be larger than what may wait.
        if waiting > 0 && self.backlog.is_some_and(|backlog| waiting.saturating_add(bytes) > backlog) {
            return self.lose(&events);
        }
        self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let sent = match self.backlog {
            Some(_) => queue.try_send(events),
            None => queue.send(events).map_err(|unsent| TrySendError::Disconnected(unsent.0)),
        };
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(events)) => {
                self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
                self.lose(&events);
            }
            Err(TrySendError::Disconnected(_)) => self.queue = None,
        }
    }

    fn lose(&mut self, events: &[Event]) {
        let (mut number, mut pieces) = (0, 0);
        for event in events {
            match event.piece {
                Piece::Loss { events, pieces: before } => {
                    number += events;
                    pieces += before;
                }
                ref piece => {
                    number += 1;
                    pieces += piece.pieces();
                    self.lost += piece.pieces();
                }
            }
        }
        self.add(Phase::Between, Piece::Loss { events: number, pieces });
    }
}

impl Drop for Recorder {
    /// A run that ends with an error leaves what was recorded until then.
    fn drop(&mut self) {
        self.close();
    }
}

/// Keeps what the rule asks about mappings.
#[derive(Debug)]
struct Asked<'a> {
    mappings: &'a dyn Mappings,
    answers: RefCell<Vec<Answer>>,
}

impl Mappings for Asked<'_> {
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>> {
        let bounds = self.mappings.bounds(page);
        self.answers.borrow_mut().push(Answer::Bounds(page, bounds.clone()));
        bounds
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        let marked = self.mappings.marked(page);
        self.answers.borrow_mut().push(Answer::Marked(page, marked));
        marked
    }
}

/// A machine that is recorded during a step.
#[derive(Debug)]
pub struct Recorded<'a, M: ?Sized> {
    recorder: &'a mut Recorder,
    machine: &'a mut M,
}

impl<M: Machine + ?Sized> Machine for Recorded<'_, M> {
    type Error = M::Error;

    fn poll(&mut self, now: Nanos, due: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), M::Error> {
        let Recorded { recorder, machine } = self;
        recorder.begin(now, due, machine.pacing(), machine.demotes());
        let polled =
            machine.poll(now, due, &mut |evidence| recorder.show(Phase::Poll, evidence, &mut *observe));
        let looking = machine.is_looking();
        if let Some(step) = recorder.step() {
            step.looking = looking;
        }
        polled
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], M::Error> {
        let Recorded { recorder, machine } = self;
        recorder.add(Phase::Nodes, Piece::Read);
        let states = machine.nodes(&mut |evidence| recorder.show(Phase::Nodes, evidence, &mut *observe))?;
        recorder.add(Phase::Nodes, Piece::Nodes(states.to_vec()));
        Ok(states)
    }

    fn pacing(&self) -> Pacing {
        self.machine.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        let pacing = self.machine.pacing();
        if let Some(step) = self.recorder.step() {
            (step.pacing, step.wish) = (pacing, wishes.scans);
        }
        self.machine.wish(wishes);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        for batch in batches.iter().filter(|batch| !batch.moves.is_empty()) {
            self.recorder.add(Phase::Tick, Piece::Batch(batch.clone()));
        }
        self.machine.submit(batches);
        let demotes = self.machine.demotes();
        if let Some(step) = self.recorder.step() {
            step.demotes = demotes;
        }
    }

    fn demotes(&self) -> bool {
        self.machine.demotes()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        for demand in &demands {
            self.recorder.add(Phase::Tick, Piece::Demand(demand.clone()));
        }
        self.machine.demote(demands);
    }

    fn is_looking(&self) -> bool {
        self.machine.is_looking()
    }
}
