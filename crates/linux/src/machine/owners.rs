//! Owners of frames for evidence that names only frames: the reverse map, if a source needs it.

use thermocline_core::access::Access;
use thermocline_core::config::Config;
use thermocline_core::moves::{Move, Outcome};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn};

use super::MachineError;
use super::members::Managed;
use super::sources::Sources;
use crate::reverse::Resident;
use crate::reverse::{ReverseError, ReverseMap, Stats};
use crate::root::Root;
use crate::source::{self, EvidenceSource, Frames};
use crate::topology::{PfnMap, PfnRange};

/// The map, restricted to processes whose memory is managed.
pub(super) struct InScope<'a> {
    map: &'a mut ReverseMap,
    managed: &'a Managed,
}

impl source::Owners for InScope<'_> {
    fn owner(&mut self, pfn: Pfn) -> Option<Resident> {
        self.map.owner(pfn, |pid| self.managed.in_scope(pid))
    }
}

/// The map, if there is one.
#[derive(Debug, Default)]
pub(super) struct Owners {
    map: Option<ReverseMap>,
    /// Why there is none although some evidence needs one.
    lacking: Option<ReverseError>,
}

impl Owners {
    /// Starts a map if a source may report frames without a process; `managed` then follows all
    /// processes.
    ///
    /// # Errors
    /// There can be no map, and a source's evidence is useless without one.
    pub(super) fn open(
        root: &Root,
        config: &Config,
        sources: &Sources,
        topology: &Topology,
        frames: &PfnMap,
        managed: &mut Managed,
    ) -> Result<Owners, MachineError> {
        if sources.iter().any(EvidenceSource::follows_all) {
            managed.follow_all(root)?;
        }
        let wanted: Vec<Frames> = sources
            .iter()
            .map(|source| source.frames(root))
            .filter(|frames| *frames != Frames::Named)
            .collect();
        if wanted.is_empty() {
            return Ok(Owners::default());
        }
        let does_without = wanted.iter().all(|frames| *frames == Frames::SomeAlone);
        match ReverseMap::start(root, &config.reverse, frames, topology, config.rule.balance.enabled) {
            Ok(map) => {
                managed.follow_all(root)?;
                Ok(Owners { map: Some(map), lacking: None })
            }
            Err(why) if does_without => Ok(Owners { map: None, lacking: Some(why) }),
            Err(why) => Err(why.into()),
        }
    }

    /// Adds the thread's findings to the map.
    pub(super) fn take_in(&mut self) {
        if let Some(map) = &mut self.map {
            map.take_in();
        }
    }

    /// Fills in the pages of accesses that name only frames.
    pub(super) fn resolve(&mut self, accesses: &mut [Access], managed: &Managed) {
        if let Some(map) = &mut self.map {
            map.resolve(accesses, |pid| managed.in_scope(pid));
        }
    }

    /// The map for look-ups of frames, if there is one.
    pub(super) fn asked<'a>(&'a mut self, managed: &'a Managed) -> Option<InScope<'a>> {
        self.map.as_mut().map(|map| InScope { map, managed })
    }

    /// A move has ended.
    pub(super) fn ended(&mut self, done: &Move, outcome: Outcome) {
        if let Some(map) = &mut self.map {
            map.ended(done, outcome);
        }
    }

    /// Lets the map scan processes if necessary.
    pub(super) fn look(&mut self, now: Nanos, managed: &Managed) {
        if let Some(map) = &mut self.map {
            map.look(now, managed.processes());
        }
    }

    /// Memory has gone, or the topology has changed.
    pub(super) fn set_machine(&mut self, gone: &[PfnRange], frames: &PfnMap, topology: &Topology) {
        if let Some(map) = &mut self.map {
            gone.iter().for_each(|range| map.offline(range));
            map.set_machine(frames, topology);
        }
    }

    /// Why samples of KVM guests' accesses move nothing, if so.
    pub(super) fn told(&self) -> Option<String> {
        self.lacking.as_ref().map(|why| format!("no frames of KVM guests: {why}"))
    }

    /// The map's counters.
    pub(super) fn stats(&self) -> Option<Stats> {
        self.map.as_ref().map(ReverseMap::stats)
    }
}
