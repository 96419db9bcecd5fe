//! The steps of the live machine: evidence in, batches and demands out.
//!
//! `submit` and `demote` hand over to threads; the next poll reports what they have finished.

use thermocline_core::access::Evidence;
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;

use super::mappings::View;
use super::{BATCH_ACCESSES, LiveMachine, MachineError, now};
use crate::demoter::Demoter;
use crate::mover::{Mover, Refused};
use crate::source::{self, Ended, EvidenceSource, Frames, Turn};

/// Time limit of one poll's reading, so that the rest of the loop runs even when faults come as
/// fast as they are read.
const POLL_MAX: Nanos = Nanos::from_ms(50);
/// Time between two scans of the processes and of the extent of the nodes' memory.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Time limit of a scan of the processes; the next one continues after a pause.
const LOOK_MAX: Nanos = Nanos::from_ms(20);
pub(super) const LOOK_PAUSE: Nanos = Nanos::from_ms(30);
/// Time between two readings of tiers, CPUs and distances, which hardly ever change and are in
/// dozens of files per node.
const TOPOLOGY_EVERY: Nanos = Nanos::from_s(30);

impl Machine for LiveMachine {
    type Error = MachineError;

    fn poll(
        &mut self,
        at: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), MachineError> {
        self.read_sources(at, observe);
        self.tell_ends(observe);
        self.look(due, observe)?;
        if due {
            if self.scanning.is_due(at) {
                observe(Evidence::Scans(self.look_at_scans(at)));
            }
            let news = self.programs_reader.report(at, observe);
            self.news.extend(news.map(|why| {
                format!("what is spent on evidence and trials is not limited, because /proc/stat cannot be used: {why}")
            }));
            let news = self.pressure_reader.report(now(), observe);
            self.news.extend(news.map(|why| {
                format!("moves are braked by ping-pong alone where memory pressure is not known: {why}")
            }));
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], MachineError> {
        // If the kernel takes long to sum up holdings, they are reported later.
        let news = self.stock.tell(&self.watcher.discovered().topology, observe);
        self.news.extend(news.map(|why| {
            format!("nothing moves by the floor or cap of a scope that cannot be looked at: {why}")
        }));
        Ok(self.node_states()?)
    }

    fn pacing(&self) -> Pacing {
        self.scanning.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        self.scanning.wish(wishes.scans);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        for batch in batches {
            let refused = match &mut self.mover {
                None => Some((batch, Outcome::DryRun)),
                Some(mover) => {
                    let (id, moves) = (batch.id, batch.moves.clone());
                    match mover.submit(batch) {
                        Ok(()) => {
                            self.moving.insert(id, moves);
                            None
                        }
                        Err(Refused::Full(batch) | Refused::Dead(batch)) => Some((batch, Outcome::NotTried)),
                    }
                }
            };
            if let Some((batch, outcome)) = refused {
                let outcomes = vec![outcome; batch.moves.len()];
                self.returned.push(BatchOutcome { id: batch.id, time: now(), outcomes });
            }
        }
    }

    fn demotes(&self) -> bool {
        self.demoter.is_some()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        for demand in demands {
            let undone = match &mut self.demoter {
                Some(demoter) => demoter.submit(demand),
                None => Some(demand.done(0, Nanos(0))),
            };
            self.undone.extend(undone);
        }
    }

    fn is_looking(&self) -> bool {
        self.managed.is_busy() || self.sources.iter().any(EvidenceSource::is_preparing)
    }
}

impl LiveMachine {
    /// Reads the sources, for at most [`POLL_MAX`] from `start` on.
    fn read_sources(&mut self, start: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
        loop {
            self.owners.take_in();
            let (mut more, mut place, mut ends_told) = (false, 0, false);
            while let Some((waits, tells_ends)) = self.read_source(place, !ends_told, start, observe) {
                more |= waits;
                ends_told |= tells_ends;
                place += 1;
            }
            if !more || now().since(start) >= POLL_MAX {
                break;
            }
        }
    }

    /// Reads the source at this place, and ended processes if it reports them; returns whether more
    /// may wait, and whether it reports ends. `None` if there is no source.
    fn read_source(
        &mut self,
        place: usize,
        ends: bool,
        start: Nanos,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Option<(bool, bool)> {
        let mut ended = Vec::new();
        let managed = &self.managed;
        let source = self.sources.at(place)?;
        let mut owners = self.owners.asked(managed);
        let mut turn = Turn {
            max: BATCH_ACCESSES,
            now: start,
            frames: self.watcher.pfns(),
            topology: &self.watcher.discovered().topology,
            in_scope: &|pid| managed.in_scope(pid),
            owners: owners.as_mut().map(|owners| owners as &mut dyn source::Owners),
            accesses: &mut self.accesses,
            region_pages: &mut self.region_pages,
            regions: &mut |snapshot| observe(Evidence::Regions(snapshot)),
            ended: ends.then_some(&mut ended),
        };
        let more = source.poll(&mut turn);
        let (tells_ends, asks) = (source.tells_ends(), source.frames(&self.root) == Frames::Asked);
        if !asks {
            self.owners.resolve(&mut self.accesses, managed);
        }
        if !self.accesses.is_empty() {
            let source = self.sources.hintfault().map(|faults| &faults.source);
            let view = View { source, maps: &self.maps };
            observe(Evidence::Accesses { batch: &self.accesses, mappings: &view });
            self.accesses.clear();
        }
        if !self.region_pages.is_empty() {
            observe(Evidence::RegionPages(&self.region_pages));
            self.region_pages.clear();
        }
        for ended in ended {
            match ended {
                Ended::Exec(pid) => self.managed.exec(pid, &mut *observe),
                Ended::Exit(pid) => self.managed.exit(pid, &mut *observe),
            }
        }
        Some((more, tells_ends))
    }

    /// Reports how batches and demands ended.
    fn tell_ends(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) {
        for outcome in self.returned.drain(..) {
            observe(Evidence::Outcome(&outcome));
            self.stock.outdate();
        }
        for outcome in self.mover.iter_mut().flat_map(Mover::outcomes) {
            let moves = self.moving.remove(&outcome.id).unwrap_or_default();
            for (done, &ended) in moves.iter().zip(&outcome.outcomes) {
                self.sources.iter_mut().for_each(|source| source.ended(done, ended));
                self.owners.ended(done, ended);
            }
            observe(Evidence::Outcome(&outcome));
            self.stock.outdate();
        }
        for done in self.undone.drain(..).chain(self.demoter.iter_mut().flat_map(Demoter::outcomes)) {
            observe(Evidence::Demoted(&done));
            self.stock.outdate();
        }
    }

    /// Looks for processes that entered or left a scope and for memory that came or went, once a
    /// second before a tick, and for other changes of the topology, twice a minute. With many
    /// processes, the scan continues at the next poll.
    fn look(&mut self, due: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), MachineError> {
        let at = now();
        let anew = due && self.looked.is_none_or(|looked| at.since(looked) >= LOOK_EVERY);
        if anew || self.managed.is_busy() && at.since(self.left_looking) >= LOOK_PAUSE {
            let go_on = || now().since(at) < LOOK_MAX;
            let filter = self.sources.hintfault().map(|faults| &faults.source);
            self.managed.look(anew, go_on, filter, &mut *observe)?;
            self.left_looking = now();
        }
        if !anew {
            return Ok(());
        }
        self.looked = Some(at);
        self.owners.look(at, &self.managed);
        let zones = self.nodes.zones();
        if at.since(self.topology_read) < TOPOLOGY_EVERY && !self.watcher.extents_differ(zones) {
            return Ok(());
        }
        self.topology_read = at;
        let change = self.watcher.look(zones)?;
        for range in &change.offline {
            observe(Evidence::MemoryOffline { start: range.start, end: range.end });
        }
        for range in &change.online {
            observe(Evidence::MemoryOnline { node: range.node, start: range.start, end: range.end });
        }
        if !change.is_empty() {
            let (frames, topology) = (self.watcher.pfns(), &self.watcher.discovered().topology);
            self.owners.set_machine(&change.offline, frames, topology);
            for source in self.sources.iter_mut() {
                source.set_machine(frames, topology)?;
            }
        }
        if change.topology {
            observe(Evidence::Topology(&self.watcher.discovered().topology));
            self.news.push("the machine's nodes or tiers have changed".to_owned());
        }
        Ok(())
    }
}
