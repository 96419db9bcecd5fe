//! The interface between the machine and an open source.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use thermocline_core::access::{Access, RegionPage, RegionSnapshot};
use thermocline_core::config::Config;
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

/// An open source, or `None` if the machine is only examined.
pub type Opened = Result<Option<Box<dyn EvidenceSource>>, BoxedError>;

/// A source that is switched on and cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{cannot}: {why}")]
pub struct SourceError {
    /// The failed action.
    pub cannot: &'static str,
    /// The reason.
    pub why: BoxedError,
}

/// The arguments for opening a source.
#[derive(Debug)]
pub struct Opening<'a> {
    /// Where the kernel's files are.
    pub root: &'a Root,
    /// The configuration.
    pub config: &'a Config,
    /// The machine's nodes, and the kernel's view of their tiers.
    pub found: &'a Discovered,
    /// The node of each frame.
    pub frames: &'a PfnMap,
    /// Whose memory is managed, for a source that filters in the kernel.
    pub scope: &'a Scope,
    /// Carries out the source's plan; `None` if nothing may be set.
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

/// Whether a source's evidence names the process of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// It does, or the source finds the process itself.
    Named,
    /// Some evidence names only a frame. The machine looks up its owner, if it can.
    SomeAlone,
    /// All evidence names only frames. The machine looks up their owners, or cannot use the source.
    Alone,
    /// The source queries the [`Owners`] itself and is useless without them.
    Asked,
}

/// One reading of a source: its inputs and its outputs.
pub struct Turn<'a> {
    /// Approximate number of accesses to read at once.
    pub max: usize,
    /// The time.
    pub now: Nanos,
    /// The node of each frame.
    pub frames: &'a PfnMap,
    /// The machine's nodes.
    pub topology: &'a Topology,
    /// Whether a process's memory is managed.
    pub in_scope: &'a dyn Fn(Pid) -> bool,
    /// The owners of frames, if they are looked up.
    pub owners: Option<&'a mut dyn Owners>,
    /// Accesses are appended here.
    pub accesses: &'a mut Vec<Access>,
    /// Pages of regions are appended here.
    pub region_pages: &'a mut Vec<RegionPage>,
    /// Snapshots of regions go here, each before the pages that lie in its regions.
    pub regions: &'a mut dyn FnMut(&RegionSnapshot),
    /// Processes that ended are appended here; `None` if another source reports them sooner.
    pub ended: Option<&'a mut Vec<Ended>>,
}

impl Turn<'_> {
    /// Reads a source of accesses that filters by `in_scope`; returns how many records were read.
    pub fn collect(&mut self, source: &mut impl AccessSource, in_scope: impl Fn(Pid) -> bool) -> usize {
        let (accesses, ended) = (&mut *self.accesses, &mut self.ended);
        source.poll(self.max, self.now, in_scope, |event| match event {
            Event::Access(access) => accesses.push(access),
            Event::Exec(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exec(pid))),
            Event::Exit(pid) => ended.iter_mut().for_each(|list| list.push(Ended::Exit(pid))),
        })
    }
}

/// The unit of a cost figure.
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
    /// The unit.
    pub of: Costed,
    /// Their number, useful or not.
    pub events: u64,
    /// CPU time of the daemon for reading them.
    pub read: Nanos,
    /// CPU time other than the daemon's: of BPF programs or interrupts.
    pub beside: Nanos,
    /// Time of the kernel's scans that cause them.
    pub scans: Nanos,
}

/// A source's part of a line of `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What is counted, as in "useful samples".
    pub what: &'static str,
    /// Number since the start.
    pub count: u64,
    /// Number lost since the start.
    pub lost: u64,
}

/// An open source of evidence. It stays attached until it is dropped. No method blocks.
pub trait EvidenceSource: std::fmt::Debug {
    /// A description of the open source: what it reads, and from how many CPUs, nodes or processes.
    fn describe(&self) -> String;

    /// Its current counters.
    fn counted(&self) -> Counted;

    /// Reads waiting evidence; returns whether more may wait.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Takes over another configuration. It differs from the current one only in keys that can be
    /// reloaded.
    fn reload(&mut self, config: &Config) {
        let _ = config;
    }

    /// Itself, for access to what only this source has.
    fn as_any(&self) -> &dyn Any;

    /// Descriptors that become readable when there is enough for a poll.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Maximum time between polls, if it has no descriptors.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Whether its evidence names the process of a page.
    fn frames(&self, root: &Root) -> Frames {
        let _ = root;
        Frames::Named
    }

    /// Whether it needs all processes to be tracked, regardless of scopes.
    fn follows_all(&self) -> bool {
        false
    }

    /// Whether it reports processes that end.
    fn tells_ends(&self) -> bool {
        false
    }

    /// Memory came or went; nodes, tiers or CPUs have changed.
    ///
    /// # Errors
    /// A file of the kernel cannot be read; the source continues with its former state.
    fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) -> Result<(), KernelFileError> {
        let _ = (frames, topology);
        Ok(())
    }

    /// A move of ours has ended.
    fn ended(&mut self, done: &Move, outcome: Outcome) {
        let _ = (done, outcome);
    }

    /// Follows started and ended processes, once a tick. Returns messages to report.
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

    /// Checks whether it still works, about once a second. Returns a message to report.
    fn check(&mut self) -> Option<String> {
        None
    }

    /// Its cost so far, if measured.
    fn cost(&self) -> Option<Cost> {
        None
    }

    /// Its part of a line of `run`.
    fn rate(&self) -> Option<Rate> {
        None
    }
}
