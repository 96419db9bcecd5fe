//! Reads the facts for the daemon on a thread of its own, because the loop must not wait for files.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use thermocline_core::config::Config;

use super::{Facts, Look, Others, blind};
use crate::root::Root;
use crate::topology::Discovered;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(10);
/// Time between two looks at the names of all processes.
const PROGRAMS_EVERY: Duration = Duration::from_secs(60);
/// Time after which processes' mappings are looked at first, for which the kernel walks their page
/// tables.
const MAPPINGS_FIRST: Duration = Duration::from_secs(60);
/// Least time between two looks at them.
const MAPPINGS_EVERY: Duration = Duration::from_secs(600);
/// And at least this many times what the last look took.
const MAPPINGS_LOOKS: u32 = 200;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Reader {
    facts: Receiver<Box<Facts>>,
    _stop: SyncSender<()>,
}

impl Reader {
    /// Starts the thread for the machine at `root`, whose nodes are `found`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(root: &Root, config: &Config, found: &Discovered) -> std::io::Result<Reader> {
        let (put, facts) = sync_channel(1);
        let (stop, stopped) = sync_channel(0);
        let (root, config, found) = (root.clone(), config.clone(), found.clone());
        let work = move || read(&root, &config, &found, &put, &stopped);
        std::thread::Builder::new().name("findings".to_owned()).spawn(work)?;
        Ok(Reader { facts, _stop: stop })
    }

    /// The facts, if there are new ones.
    pub fn news(&self) -> Option<Box<Facts>> {
        self.facts.try_iter().last()
    }
}

fn read(
    root: &Root,
    config: &Config,
    found: &Discovered,
    put: &SyncSender<Box<Facts>>,
    stopped: &Receiver<()>,
) {
    let (mut programs, mut programs_due) = (Vec::new(), Instant::now());
    let (mut mappings, mut mappings_due) = (Default::default(), Instant::now() + MAPPINGS_FIRST);
    loop {
        let mut look = Look::new(root);
        let mut facts = Facts::read(&mut look, config);
        let now = Instant::now();
        if now >= programs_due {
            programs = Others::read_programs(&mut look);
            programs_due = now + PROGRAMS_EVERY;
        }
        if now >= mappings_due {
            mappings = blind(&mut look, config, Some(found));
            let ended = Instant::now();
            mappings_due = ended + MAPPINGS_EVERY.max((ended - now) * MAPPINGS_LOOKS);
        }
        facts.others.programs.clone_from(&programs);
        facts.take(mappings.clone());
        match put.try_send(Box::new(facts)) {
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return,
        }
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
