//! The kdamonds whose events are read, each through its own ring.

use std::collections::BTreeMap;
use std::io;

use thermocline_core::access::RegionSpace;
use thermocline_core::config::DamonSource as Keys;

use super::OpenError;
use super::event::{self, Format};
use super::stream::Stream;
use crate::actuator::door::{Door, Live};
use crate::actuator::kdamond;
use crate::damon::kdamond_folder;
use crate::root::{KernelFileError, Root, read_optional};
use crate::source::hwsample::attr;
use crate::sys::perf::Whose;
use crate::sys::perf::{Event, Ring};

/// Maximum number of bytes of a record in a ring: header, time, length, 52 bytes of the event,
/// rounded up.
const RECORD_BYTES: u64 = 96;
/// Sizes of a ring in bytes.
const RING_BYTES: (u64, u64) = (64 << 10, 32 << 20);

/// The kdamonds whose events are read.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) root: Root,
    hearing: Hearing,
    /// By number.
    pub(super) kdamonds: BTreeMap<usize, Kdamond>,
    /// Records that were lost, and malformed ones, in rings that are closed.
    pub(super) closed: (u64, u64),
}

impl Heard {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The kernel does not describe the event, or its description is not understood.
    pub(super) fn nobody(root: &Root, keys: &Keys) -> Result<Heard, OpenError> {
        let hearing = Hearing::new(root, keys)?;
        Ok(Heard { root: root.clone(), hearing, kdamonds: BTreeMap::new(), closed: (0, 0) })
    }

    /// Starts reading kdamond `number`, which runs and watches `space`.
    ///
    /// # Errors
    /// It does not run, or the kernel does not allow reading its events.
    pub(super) fn hear(&mut self, number: usize, space: RegionSpace) -> Result<(), OpenError> {
        let kdamond = self.hearing.hear(&self.root, number, space)?;
        self.kdamonds.insert(number, kdamond);
        Ok(())
    }

    /// Stops reading a kdamond.
    pub(super) fn leave(&mut self, number: usize) {
        if let Some(Kdamond { stream, .. }) = self.kdamonds.remove(&number) {
            self.closed.0 += stream.lost();
            self.closed.1 += stream.malformed();
        }
    }

    /// Those that have ended.
    pub(super) fn ended(&self) -> Vec<usize> {
        let ended = self.kdamonds.iter().filter(|(_, kdamond)| !kdamond.runs(&self.root));
        ended.map(|(number, _)| *number).collect()
    }

    /// Checks which of them wait for a lock. Returns those that have begun to hang.
    pub(super) fn look(&mut self) -> Vec<usize> {
        let root = &self.root;
        self.kdamonds
            .iter_mut()
            .filter_map(|(number, kdamond)| kdamond.look(root).then_some(*number))
            .collect()
    }

    /// Those that wait for a lock, and have not run for a while.
    pub(super) fn hung(&self) -> impl Iterator<Item = usize> {
        self.kdamonds.iter().filter(|(_, kdamond)| kdamond.hangs).map(|(number, _)| *number)
    }
}

/// One kdamond.
#[derive(Debug)]
pub(super) struct Kdamond {
    thread: u32,
    /// How often it had run when it was last seen to wait for a lock.
    waits: Option<u64>,
    /// It was seen to wait twice, and had not run in between.
    hangs: bool,
    pub(super) event: Event,
    pub(super) ring: Ring,
    pub(super) stream: Stream,
}

/// Parameters for reading kdamonds.
#[derive(Clone, Debug)]
struct Hearing {
    keys: Keys,
    format: Format,
    /// Size of a ring.
    bytes: u32,
}

impl Hearing {
    fn new(root: &Root, keys: &Keys) -> Result<Hearing, OpenError> {
        let (path, text) = event::format(root)?;
        let format = Format::parse(&text).map_err(|cause| OpenError::Format(path, cause))?;
        let wanted = (2 * keys.regions_max * RECORD_BYTES).clamp(RING_BYTES.0, RING_BYTES.1);
        // At most 32 MiB: it fits.
        let bytes = wanted.next_power_of_two() as u32;
        // Each kdamond begins with the first turn.
        Ok(Hearing { keys: keys.in_turn(0), format, bytes })
    }

    /// Opens the events of kdamond `number`, which watches `space`.
    fn hear(&self, root: &Root, number: usize, space: RegionSpace) -> Result<Kdamond, OpenError> {
        let tid = thread(root, number)?.ok_or(OpenError::Ended(number))?;
        let whose = Whose::Thread(tid);
        let attr = attr::tracepoint(self.format.id(), self.bytes / 2).of(whose).bytes();
        let failed = |action| move |cause| OpenError::Perf { action, kdamond: number, cause };
        let event = Event::open(&attr, whose, 0, None).map_err(failed("hear damon_aggregated"))?;
        let ring = Ring::map(&event, self.bytes).map_err(failed("map a ring"))?;
        event.enable().map_err(failed("hear damon_aggregated"))?;
        let stream = Stream::new(self.format, space, &self.keys);
        Ok(Kdamond { thread: tid, waits: None, hangs: false, event, ring, stream })
    }
}

impl Kdamond {
    /// Whether it runs. Its file in DAMON's sysfs may be busy while another kdamond hangs.
    pub(super) fn runs(&self, root: &Root) -> bool {
        let comm = read_optional(&root.proc.join(self.thread.to_string()).join("comm"));
        comm.is_ok_and(|comm| comm.is_some_and(|comm| comm.starts_with("kdamond")))
    }

    /// Checks whether it has waited for a lock since the last check. Returns whether that is new.
    fn look(&mut self, root: &Root) -> bool {
        let waits = kdamond::waits(&root.proc, self.thread);
        let hangs = waits.is_some() && waits == self.waits;
        let began = hangs && !self.hangs;
        (self.waits, self.hangs) = (waits, hangs);
        began
    }
}

/// The thread of a kdamond; `None` if it does not run, or not any more.
fn thread(root: &Root, kdamond: usize) -> Result<Option<u32>, KernelFileError> {
    let path = kdamond_folder(root, kdamond).join("pid");
    // The door waits while a kdamond holds the lock of these files.
    match Live.read(&path) {
        // The kernel reports -1 for one that is off.
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(KernelFileError::io("read", &path, e)),
    }
}
