//! Kdamonds for processes' addresses: which process has one, and when it begins and ends.
//!
//! For a chosen process, a thread ([`Mapped`]) first reads its mappings and sets them in the
//! kdamond; then the kdamond is switched on. While that thread works on a kdamond no other is
//! switched on or off: the kernel has one lock for all.

use thermocline_core::access::RegionSpace;
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::units::Nanos;

use super::OpenError;
use super::hearing::Heard;
use super::lookup::Lookup;
use super::mapped::{Mapped, NotTold, Taken};
use super::processes::{ENDED_EVERY, Processes, Watching, Who};
use crate::actuator::Actuator;
use crate::damon::{Pool, PoolError};
use crate::process;
use crate::reverse::ReverseError;
use crate::root::Root;
use crate::scope::Member;

/// How long a process that blocks readers of its mappings is left alone.
const PUT_OFF: Nanos = Nanos::from_s(60);

/// Whose addresses are watched, and how their pages are found.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) lookup: Lookup,
    processes: Processes,
    pool: Pool,
    mapped: Mapped,
    looked: Option<Nanos>,
}

impl Addresses {
    /// For at most `most` processes; none is watched yet.
    ///
    /// # Errors
    /// The kernel does not report where processes have memory, or hides frames from us.
    pub(super) fn new(root: &Root, keys: &Keys, most: usize) -> Result<Addresses, ReverseError> {
        Ok(Addresses {
            lookup: Lookup::start(root, keys.pages_per_s)?,
            processes: Processes::new(most, keys.process_min_mib),
            pool: Pool::new(most),
            mapped: Mapped::new(root, keys),
            looked: None,
        })
    }

    /// Starts watching new processes, and stops watching ended ones. Returns messages to report.
    pub(super) fn follow(
        &mut self,
        now: Nanos,
        heard: &mut Heard,
        members: impl Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let mut told = None;
        if let Some(Taken { kdamond, first, turned }) = self.mapped.take() {
            if let (Some(keys), Some(kdamond)) = (turned, heard.kdamonds.get_mut(&kdamond)) {
                kdamond.stream.go_on(&keys);
            }
            told = first.and_then(|(who, done)| self.begin(now, heard, actuator, (kdamond, who), done));
        }
        if self.mapped.is_busy() {
            return told;
        }
        if self.looked.is_none_or(|looked| now.since(looked) >= ENDED_EVERY) {
            self.looked = Some(now);
            told = self.look(now, heard, members, actuator).or(told);
        }
        let turning = self.mapped.step(now, || actuator.commands());
        if let Some(kdamond) = turning.and_then(|kdamond| heard.kdamonds.get_mut(&kdamond)) {
            kdamond.stream.pause();
        }
        told
    }

    /// Whether a process is about to be watched, so that the next call should come soon.
    pub(super) fn is_preparing(&self) -> bool {
        self.mapped.is_preparing()
    }

    /// Looks for started and ended processes, about once a second.
    fn look(
        &mut self,
        now: Nanos,
        heard: &mut Heard,
        members: impl Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let mut told = None;
        for number in heard.look() {
            told = self.processes.watched_by(number).map(|(pid, _)| {
                format!(
                    "process {} keeps kdamond {number} waiting for its memory: it is set aside, and no regions of it are told, until it answers or ends",
                    pid.0
                )
            });
        }
        self.processes.hung = heard.hung().collect();
        let root = heard.root.clone();
        let steps = self.processes.look(&root, now, members);
        for number in steps.end {
            self.leave(heard, number);
            told = self.pool.end(&root, actuator, number).err().map(|why| why.to_string()).or(told);
        }
        for (number, who) in steps.begin {
            match self.pool.expect_free(&root, actuator, number) {
                Ok(()) => {
                    self.processes.given(number, who);
                    self.mapped.add(number, who);
                }
                Err(why @ PoolError::NotOurs) => {
                    told = self.failed(&root, who, &Failed::Watch(why)).or(told);
                }
                // Its files are busy, and so are those of the others: they have one lock.
                Err(PoolError::Refused(why)) => {
                    self.processes.put_off(who, now.plus(PUT_OFF));
                    told = Some(format!("process {} is not watched for a minute: {why}", who.0.0));
                    break;
                }
            }
        }
        // One that ended before its process was ended from outside, and is not started again.
        for number in heard.ended() {
            let Some(who) = self.leave(heard, number) else { continue };
            let lives = process::stat(&root, who.0).ok().flatten();
            if lives.is_some_and(|stat| stat.start_time == who.1 && !matches!(stat.state, 'Z' | 'X')) {
                self.processes.failed(who);
                told = Some(format!(
                    "process {} is watched no more: somebody has ended kdamond {number}",
                    who.0.0
                ));
            }
        }
        told
    }

    /// Switches on a kdamond that has its process's mappings.
    fn begin(
        &mut self,
        now: Nanos,
        heard: &mut Heard,
        actuator: &mut Actuator,
        (number, who): (usize, Who),
        told: Result<(), NotTold>,
    ) -> Option<String> {
        let root = heard.root.clone();
        let begun = told.map_err(Failed::Tell).and_then(|()| {
            self.pool.watch(&root, actuator, number, who.0).map_err(Failed::Watch)?;
            heard.hear(number, RegionSpace::Virtual(who.0)).map_err(Failed::Hear)
        });
        let Err(why) = begun else {
            self.processes.begun();
            return None;
        };
        self.leave(heard, number);
        // A kdamond that does not run, or is somebody else's, is left alone.
        let _ = self.pool.end(&root, actuator, number);
        match why {
            // It may get some later: it is in the middle of an exec.
            Failed::Tell(NotTold::Nothing) => None,
            // A hang is reported where it is detected.
            Failed::Tell(NotTold::Hung) => {
                self.processes.put_off(who, now.plus(PUT_OFF));
                None
            }
            why => self.failed(&root, who, &why),
        }
    }

    /// A process cannot be watched. Returns a message, except for one that has ended, which is
    /// normal.
    fn failed(&mut self, root: &Root, who: Who, why: &Failed) -> Option<String> {
        self.processes.failed(who);
        let lives = process::is_same(root, who.0, who.1).unwrap_or(false);
        lives.then(|| format!("process {} is not watched: {why}", who.0.0))
    }

    /// A kdamond no longer watches a process. Returns the process that it watched, or was to watch.
    fn leave(&mut self, heard: &mut Heard, number: usize) -> Option<Who> {
        heard.leave(number);
        self.mapped.ended(number);
        let who = self.processes.ended(number)?;
        self.lookup.forget(who.0);
        Some(who)
    }

    /// The counters, as of now.
    pub(super) fn stats(&self) -> Watching {
        let (each, renewed) = self.mapped.watched();
        Watching { each, renewed, ..self.processes.stats.clone() }
    }
}

/// Why a process is not watched.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Tell(NotTold),
    #[error(transparent)]
    Watch(PoolError),
    #[error(transparent)]
    Hear(OpenError),
}
