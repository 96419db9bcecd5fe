//! Whose the frames are of which evidence names nothing else: the reverse map, where a source needs it.

use thermocline_core::access::{Access, RegionPage};
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
use crate::source;
use crate::source::chmu::ChmuSource;
use crate::source::damon::DamonSource;
use crate::source::hwsample::Sampler;
use crate::topology::{PfnMap, PfnRange};

/// The map, for those whose memory is managed.
struct InScope<'a> {
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
    /// Why there is none where some of the evidence wants one.
    lacking: Option<ReverseError>,
}

impl Owners {
    /// Starts a map where a source may leave open whose pages it tells of; `managed` then follows all processes.
    ///
    /// # Errors
    /// There can be no map, and the source's evidence is of no use without.
    pub(super) fn open(
        root: &Root,
        config: &Config,
        sources: &Sources,
        topology: &Topology,
        frames: &PfnMap,
        managed: &mut Managed,
    ) -> Result<Owners, MachineError> {
        let sampler = sources.hwsample.as_ref().filter(|s| s.leaves_processes_open(root));
        let regions = sources.damon.as_ref();
        if regions.is_some_and(|damon| !damon.names_frames_alone()) {
            managed.follow_all(root)?;
        }
        let frames_alone = regions.is_some_and(DamonSource::names_frames_alone) || sources.chmu.is_some();
        if sampler.is_none() && !frames_alone {
            return Ok(Owners::default());
        }
        let does_without = !frames_alone && sampler.is_some_and(Sampler::names_processes);
        match ReverseMap::start(root, &config.reverse, frames, topology, config.rule.balance.enabled) {
            Ok(map) => {
                managed.follow_all(root)?;
                Ok(Owners { map: Some(map), lacking: None })
            }
            Err(why) if does_without => Ok(Owners { map: None, lacking: Some(why) }),
            Err(why) => Err(why.into()),
        }
    }

    /// Puts pages to the accesses that name frames alone.
    pub(super) fn resolve(&mut self, accesses: &mut [Access], managed: &Managed) {
        if let Some(map) = &mut self.map {
            map.take_in();
            map.resolve(accesses, |pid| managed.in_scope(pid));
        }
    }

    /// Looks pages of regions up, as far as the source's budget goes.
    pub(super) fn look_up(
        &mut self,
        source: &mut DamonSource,
        now: Nanos,
        managed: &Managed,
        pages: &mut Vec<RegionPage>,
    ) {
        if let Some(map) = &mut self.map {
            map.take_in();
            source.look_up(now, &mut InScope { map, managed }, pages);
        }
    }

    /// Appends accesses to pages that the device has listed, as far as the source's budget goes; returns how many frames were looked at.
    pub(super) fn read_counted(
        &mut self,
        source: &mut ChmuSource,
        max: usize,
        now: Nanos,
        known: (&PfnMap, &Topology),
        managed: &Managed,
        accesses: &mut Vec<Access>,
    ) -> usize {
        let Some(map) = &mut self.map else { return 0 };
        source.read(max, now, known, &mut InScope { map, managed }, accesses)
    }

    /// A move has ended.
    pub(super) fn ended(&mut self, done: &Move, outcome: Outcome) {
        if let Some(map) = &mut self.map {
            map.ended(done, outcome);
        }
    }

    /// Lets the map look at processes, where it has cause.
    pub(super) fn look(&mut self, now: Nanos, managed: &Managed) {
        if let Some(map) = &mut self.map {
            map.look(now, managed.processes());
        }
    }

    /// Memory has gone, or anything else has changed.
    pub(super) fn set_machine(&mut self, gone: &[PfnRange], frames: &PfnMap, topology: &Topology) {
        if let Some(map) = &mut self.map {
            gone.iter().for_each(|range| map.offline(range));
            map.set_machine(frames, topology);
        }
    }

    /// Why samples of KVM guests' accesses move nothing, where that is so.
    pub(super) fn told(&self) -> Option<String> {
        self.lacking.as_ref().map(|why| format!("no frames of KVM guests: {why}"))
    }

    /// What the map counted.
    pub(super) fn stats(&self) -> Option<Stats> {
        self.map.as_ref().map(ReverseMap::stats)
    }
}
