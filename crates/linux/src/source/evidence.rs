//! An open source, as the machine drives it.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use thermocline_core::access::{Access, RegionPage, RegionSnapshot};
use thermocline_core::config::Config;
use thermocline_core::machine::Wishes;
use thermocline_core::moves::{Move, Outcome};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pid};

use super::hintfault::Scope;
use super::{AccessSource, Counted, Event, Owners};
use crate::actuator::Actuator;
use crate::root::{KernelFileError, Root};
use crate::scope::Member;
use crate::topology::{Discovered, PfnMap};

/// Why a source could not be opened.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// An open source, or none where the machine is only looked at.
pub type Opened = Result<Option<Box<dyn EvidenceSource>>, BoxedError>;

/// A source that is switched on and cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{cannot}: {why}")]
pub struct SourceError {
    /// What cannot be done.
    pub cannot: &'static str,
    /// Why.
    pub why: BoxedError,
}

/// What a source is opened with.
#[derive(Debug)]
pub struct Opening<'a> {
    /// Where the kernel's files are.
    pub root: &'a Root,
    /// What is configured.
    pub config: &'a Config,
    /// The machine's nodes, and what the kernel takes them for.
    pub found: &'a Discovered,
    /// The node of each frame.
    pub frames: &'a PfnMap,
    /// Whose memory is managed, for a source that filters in the kernel.
    pub scope: &'a Scope,
    /// Sets what the source's plan says; none where nothing may be set.
    pub actuator: Option<&'a mut Actuator>,
    /// The time.
    pub now: Nanos,
}

/// What a process has done to its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Replaced it.
    Exec(Pid),
    /// Left it.
    Exit(Pid),
}

/// Whether a source's evidence says whose page it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// It does, or the source finds out by itself.
    Named,
    /// Some names a frame alone. The machine looks up whose that is, if it can.
    SomeAlone,
    /// All names frames alone. The machine looks up whose they are, or cannot use the source.
    Alone,
    /// The source asks the [`Owners`] itself and is of no use without them.
    Asked,
}

/// One reading of a source: what it may look at, and where what it reads goes.
pub struct Turn<'a> {
    /// Accesses that are read at once, about.
    pub max: usize,
    /// The time.
    pub now: Nanos,
    /// The node of each frame.
    pub frames: &'a PfnMap,
    /// The machine's nodes.
    pub topology: &'a Topology,
    /// Whether a process's memory is managed.
    pub in_scope: &'a dyn Fn(Pid) -> bool,
    /// Whose the frames are, where that is looked up.
    pub owners: Option<&'a mut dyn Owners>,
    /// Accesses are appended here.
    pub accesses: &'a mut Vec<Access>,
    /// Pages of regions are appended here.
    pub region_pages: &'a mut Vec<RegionPage>,
    /// Snapshots of regions go here, each before the pages that lie in its regions.
    pub regions: &'a mut dyn FnMut(&RegionSnapshot),
    /// Processes that ended are appended here; none where another source tells sooner.
    pub ended: Option<&'a mut Vec<Ended>>,
}

impl Turn<'_> {
    /// Reads a source of accesses that leaves out who is not `in_scope`; returns how many records
    /// were read.
    pub fn collect(&mut self, source: &mut impl AccessSource, in_scope: impl Fn(Pid) -> bool) -> usize {
        let (accesses, ended) = (&mut *self.accesses, &mut self.ended);
        source.poll(self.max, self.now, in_scope, |event| match event {
            Event::Access(access) => accesses.push(access),
            Event::Exec(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exec(pid))),
            Event::Exit(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exit(pid))),
        })
    }
}

/// What is costed one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Costed {
    /// A hint fault.
    Fault,
    /// A sample.
    Sample,
}

/// What a source has cost so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What was read.
    pub of: Costed,
    /// How many of them, of use or not.
    pub events: u64,
    /// CPU time of the daemon for reading them.
    pub read: Nanos,
    /// CPU time beside the daemon's: of BPF programs or interrupts.
    pub beside: Nanos,
}

/// What a line of a run says of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What comes, as in "useful samples".
    pub what: &'static str,
    /// How many came since the start.
    pub count: u64,
    /// How many were lost since the start.
    pub lost: u64,
}

/// An open source of evidence. It stays attached until it is dropped. No method blocks.
pub trait EvidenceSource: std::fmt::Debug {
    /// It is open, in words: what it reads, and from how much.
    fn describe(&self) -> String;

    /// Its counters as of now.
    fn counted(&self) -> Counted;

    /// Reads what waits; whether more may wait.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Goes by another configuration from now on, of which nothing differs but what can be
    /// reloaded.
    fn reload(&mut self, config: &Config) {
        let _ = config;
    }

    /// Itself, for whoever needs what this source alone has.
    fn as_any(&self) -> &dyn Any;

    /// Descriptors that become readable when there is enough to be worth a poll.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// How long it may be left alone, where no descriptor tells.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Whether its evidence says whose page it is of.
    fn frames(&self, root: &Root) -> Frames {
        let _ = root;
        Frames::Named
    }

    /// Whether all processes have to be known, whatever the scopes.
    fn follows_all(&self) -> bool {
        false
    }

    /// Whether it tells of processes that end.
    fn tells_ends(&self) -> bool {
        false
    }

    /// Memory came or went; nodes, tiers or CPUs have changed.
    ///
    /// # Errors
    /// A file of the kernel cannot be read; the source goes on with what it knew.
    fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) -> Result<(), KernelFileError> {
        let _ = (frames, topology);
        Ok(())
    }

    /// A move of ours has ended.
    fn ended(&mut self, done: &Move, outcome: Outcome) {
        let _ = (done, outcome);
    }

    /// What the rule would like to see.
    fn wish(&mut self, wishes: &Wishes) {
        let _ = wishes;
    }

    /// Processes have come and gone: once a tick. Returns what there is to say of it.
    fn follow(
        &mut self,
        now: Nanos,
        members: &mut dyn Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let _ = (now, members, actuator);
        None
    }

    /// Whether [`follow`](EvidenceSource::follow) is to be called again soon.
    fn is_preparing(&self) -> bool {
        false
    }

    /// Whether it still works: once a second or so. Returns what there is to say of it.
    fn check(&mut self) -> Option<String> {
        None
    }

    /// What it has cost, where that is measured.
    fn cost(&self) -> Option<Cost> {
        None
    }

    /// What a line of a run says of it.
    fn rate(&self) -> Option<Rate> {
        None
    }
}
