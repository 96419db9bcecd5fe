//! The steps of the live machine: evidence in, batches and demands out.
//!
//! `submit` and `demote` hand over to threads; what those are done with is told by the next poll.

use thermocline_core::access::Evidence;
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;

use super::mappings::View;
use super::sources::Ended;
use super::{BATCH_ACCESSES, LiveMachine, MachineError, now};
use crate::demoter::Demoter;
use crate::mover::{Mover, Refused};
use crate::source::damon::DamonSource;

/// Longest time that one poll goes on reading, so that the rest is not kept waiting when faults come as fast as they are read.
const POLL_MAX: Nanos = Nanos::from_ms(50);
/// Time between two looks at processes and at the extent of the nodes' memory.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Time for a look at processes, of which another one goes on with the rest after a pause.
const LOOK_MAX: Nanos = Nanos::from_ms(20);
pub(super) const LOOK_PAUSE: Nanos = Nanos::from_ms(30);
/// Time between two readings of tiers, CPUs and distances, which hardly ever change and are in some dozen files a node.
const TOPOLOGY_EVERY: Nanos = Nanos::from_s(30);

impl Machine for LiveMachine {
    type Error = MachineError;

    fn poll(
        &mut self,
        at: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), MachineError> {
        self.read_accesses(at, observe);
        self.tell_regions(at, observe);
        self.tell_ends(observe);
        self.look(due, observe)?;
        if due {
            if self.scanning.is_paced() {
                observe(Evidence::Scans(self.look_at_scans()));
            }
            let news = self.pressure_reader.report(now(), observe);
            self.news.extend(news.map(|why| {
                format!("moves are braked by ping-pong alone where memory pressure is not known: {why}")
            }));
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], MachineError> {
        // Where the kernel takes long to add up what scopes hold, it is told later.
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
        if let Some(sampler) = &mut self.sources.hwsample {
            sampler.set_wish(wishes.sample_period_uops);
        }
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
        self.managed.is_busy() || self.sources.damon.as_ref().is_some_and(DamonSource::is_preparing)
    }
}

impl LiveMachine {
    /// Reads what the sources have, for as long as it may take from `start` on.
    fn read_accesses(&mut self, start: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
        let mut ended = Vec::new();
        loop {
            let (sources, managed) = (&mut self.sources, &self.managed);
            let mut more = sources.read_hintfault(BATCH_ACCESSES, start, &mut self.accesses, &mut ended);
            more |= sources.read_hwsample(BATCH_ACCESSES, start, managed, &mut self.accesses, &mut ended);
            self.owners.resolve(&mut self.accesses, &self.managed);
            if let Some(chmu) = &mut self.sources.chmu {
                let known = (self.watcher.pfns(), &self.watcher.discovered().topology);
                let (owners, accesses) = (&mut self.owners, &mut self.accesses);
                let looked = owners.read_counted(chmu, BATCH_ACCESSES, start, known, &self.managed, accesses);
                more |= looked >= BATCH_ACCESSES;
            }
            if !self.accesses.is_empty() {
                let view = View { source: self.sources.hintfault.as_ref(), maps: &self.maps };
                observe(Evidence::Accesses { batch: &self.accesses, mappings: &view });
                self.accesses.clear();
            }
            for ended in ended.drain(..) {
                match ended {
                    Ended::Exec(pid) => self.managed.exec(pid, &mut *observe),
                    Ended::Exit(pid) => self.managed.exit(pid, &mut *observe),
                }
            }
            if !more || now().since(start) >= POLL_MAX {
                break;
            }
        }
    }

    /// Tells how batches and demands ended.
    fn tell_ends(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) {
        for outcome in self.returned.drain(..) {
            observe(Evidence::Outcome(&outcome));
            self.stock.outdate();
        }
        for outcome in self.mover.iter_mut().flat_map(Mover::outcomes) {
            let moves = self.moving.remove(&outcome.id).unwrap_or_default();
            for (done, &ended) in moves.iter().zip(&outcome.outcomes) {
                if let Some(source) = self.sources.hintfault.as_mut().filter(|_| ended == Outcome::Moved) {
                    source.page_moved(done.page);
                }
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

    fn tell_regions(&mut self, start: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) {
        let Some(damon) = &mut self.sources.damon else { return };
        let topology = &self.watcher.discovered().topology;
        damon.read(topology, |snapshot| observe(Evidence::Regions(snapshot)));
        if damon.names_frames_alone() {
            self.owners.look_up(damon, start, &self.managed, &mut self.region_pages);
        } else {
            damon.take_pages(start, self.watcher.pfns(), topology, &mut self.region_pages);
        }
        if !self.region_pages.is_empty() {
            observe(Evidence::RegionPages(&self.region_pages));
            self.region_pages.clear();
        }
    }

    /// Looks for processes that entered or left a scope and for memory that came or went, once a second before a tick, and for other
    /// changes of the topology, twice a minute. Where there are many processes, a look goes on with the next poll.
    fn look(&mut self, due: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), MachineError> {
        let at = now();
        let anew = due && self.looked.is_none_or(|looked| at.since(looked) >= LOOK_EVERY);
        if anew || self.managed.is_busy() && at.since(self.left_looking) >= LOOK_PAUSE {
            let go_on = || now().since(at) < LOOK_MAX;
            self.managed.look(anew, go_on, self.sources.hintfault.as_ref(), &mut *observe)?;
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
            self.sources.set_machine(frames, topology)?;
        }
        if change.topology {
            observe(Evidence::Topology(&self.watcher.discovered().topology));
            self.news.push("the machine's nodes or tiers have changed".to_owned());
        }
        Ok(())
    }
}
