//! A program that is always at work and tells how much it has done.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// How long a program that says nothing is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(20);

/// The program.
pub(crate) struct Counted {
    /// For people.
    pub(crate) name: &'static str,
    /// Its process.
    pub(crate) child: Child,
    /// What it has done so far.
    pub(crate) count: Arc<AtomicU64>,
}

impl Counted {
    /// Waits until it has told of so many operations more; of how many it told.
    pub(crate) fn run(&mut self, ops: u64) -> anyhow::Result<u64> {
        let name = self.name;
        let first = self.count.load(Ordering::Relaxed);
        let (mut last, mut since) = (first, Instant::now());
        loop {
            let now = self.count.load(Ordering::Relaxed);
            if now - first >= ops {
                return Ok(now - first);
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let ended = self.child.try_wait().with_context(|| format!("cannot wait for {name}"))?;
            ensure!(ended.is_none(), "{name} has ended; its message is above");
            ensure!(since.elapsed() < SILENCE_MAX, "{name} does nothing for {SILENCE_MAX:?}");
            thread::sleep(NAP);
        }
    }
}
