//! Kdamonds for processes' addresses: which process has one, and when it begins and ends.
//!
//! Who is chosen has its mappings read first, and the kdamond told of them, by a thread
//! ([`Mapped`]); then the kdamond is switched on. While that thread is at a kdamond no other is
//! switched on or off: the kernel has one lock for them all.

use thermocline_core::access::RegionSpace;
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::units::Nanos;

use super::OpenError;
use super::hearing::Heard;
use super::lookup::Lookup;
use super::mapped::{Mapped, NotTold};
use super::processes::{ENDED_EVERY, Processes, Watching, Who};
use crate::actuator::Actuator;
use crate::damon::{Pool, PoolError};
use crate::process;
use crate::reverse::ReverseError;
use crate::root::Root;
use crate::scope::Member;

/// How long a process is left alone that keeps whoever reads its mappings waiting.
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
    /// Of so many processes at most; nobody's yet.
    ///
    /// # Errors
    /// The kernel does not tell where processes have memory, or hides frames from us.
    pub(super) fn new(root: &Root, keys: &Keys, most: usize) -> Result<Addresses, ReverseError> {
        Ok(Addresses {
            lookup: Lookup::start(root, keys.pages_per_s)?,
            processes: Processes::new(most, keys.process_min_mib),
            pool: Pool::new(most),
            mapped: Mapped::new(root, keys.regions_max),
            looked: None,
        })
    }

    /// Watches processes that have come, and no more those that have gone. Returns what there is to
    /// say of it.
    pub(super) fn follow(
        &mut self,
        now: Nanos,
        heard: &mut Heard,
        members: impl Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let mut told = None;
        if let Some((number, who, done)) = self.mapped.take() {
            told = self.begin(now, heard, actuator, (number, who), done);
        }
        if self.mapped.is_busy() {
            return told;
        }
        if self.looked.is_none_or(|looked| now.since(looked) >= ENDED_EVERY) {
            self.looked = Some(now);
            told = self.look(now, heard, members, actuator).or(told);
        }
        self.mapped.step(now, || actuator.commands());
        told
    }

    /// Whether a process is about to be watched, so that this is to be gone on with soon.
    pub(super) fn is_preparing(&self) -> bool {
        self.mapped.is_preparing()
    }

    /// Looks who has come and gone, about once a second.
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
        // One that ended before its process was ended by somebody, and is not begun again.
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

    /// Switches a kdamond on that has been told what its process has mapped.
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
        // What does not run, or is somebody else's, is left as it is.
        let _ = self.pool.end(&root, actuator, number);
        match why {
            // It may come to have some: it is in the midst of an exec.
            Failed::Tell(NotTold::Nothing) => None,
            // That it hangs is told where it is noticed.
            Failed::Tell(NotTold::Hung) => {
                self.processes.put_off(who, now.plus(PUT_OFF));
                None
            }
            why => self.failed(&root, who, &why),
        }
    }

    /// A process is not watched. Returns what there is to say: nothing of one that has ended, as
    /// any may at any moment.
    fn failed(&mut self, root: &Root, who: Who, why: &Failed) -> Option<String> {
        self.processes.failed(who);
        let lives = process::is_same(root, who.0, who.1).unwrap_or(false);
        lives.then(|| format!("process {} is not watched: {why}", who.0.0))
    }

    /// A kdamond watches nobody any more. Returns whom it watched, or was to watch.
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
