//! The allocation of memory before the threads begin: in one system call, so that no scan comes
//! between, or by several processes at the same time.

use std::ops::Range;

use thermocline_core::units::Nanos;

use crate::kernel::{Model, reclaim, reclaim::Reclaim};
use crate::machine::NodeIndex;
use crate::manager::Manager;
use crate::memory::Page;
use crate::spec::SpecError;
use crate::system::System;
use crate::workload::{Place, ProcessSpec};

/// What one process allocates.
struct Part<'a> {
    process: usize,
    places: Vec<(NodeIndex, u64)>,
    spec: &'a ProcessSpec,
    start: Page,
    page: Page,
    end: Page,
}

impl Part<'_> {
    /// The share of it that is done; `None` if all is.
    fn done(&self) -> Option<f64> {
        (self.page < self.end).then(|| f64::from(self.page - self.start) / f64::from(self.end - self.start))
    }
}

/// Time in ns that passes before the clock is set.
const CLOCK_NS: f64 = 1000.0;

/// Where a part's next pages come from.
#[derive(Clone, Copy, Debug)]
struct Choice {
    /// Which of its places.
    place: usize,
    /// Pages that the same choice holds for, if nothing else happens.
    most: u64,
}

/// Processes that allocate their memory at the same time, each at its own pace, so that all are
/// done together.
pub(crate) struct Populate<'a> {
    parts: Vec<Part<'a>>,
    /// Time that is not yet a whole nanosecond.
    spent_ns: f64,
}

impl<'a> Populate<'a> {
    pub(crate) fn new(system: &System, processes: Range<usize>, specs: &[&'a ProcessSpec]) -> Populate<'a> {
        let place = |p: &Place| {
            let node = p.node.on(&system.machine).unwrap_or(0);
            (node, p.size.map_or(u64::MAX, |size| size.pages()))
        };
        let part = |process: usize| {
            let (space, spec) = (&system.memory.spaces[process], specs[process]);
            let places = spec.place.iter().map(place).collect();
            Part { process, places, spec, start: space.start, page: space.start, end: space.end }
        };
        Populate { parts: processes.map(part).collect(), spent_ns: 0.0 }
    }

    pub(crate) fn run(
        &mut self,
        system: &mut System,
        mut reclaim: Reclaim,
        manager: &mut dyn Manager,
    ) -> Result<(), SpecError> {
        while let Some(i) = self.furthest_behind() {
            let choice = self.choose(i, system)?;
            let due = reclaim.due(system).min(manager.due());
            if self.allocate(i, choice, system, due) {
                while reclaim.due(system) <= system.now {
                    reclaim.run(system);
                }
                if manager.due() <= system.now {
                    manager.run(system);
                }
            }
        }
        for part in &self.parts {
            system.processes[part.process].rss = u64::from(part.end - part.start);
        }
        Ok(())
    }

    fn furthest_behind(&self) -> Option<usize> {
        if let [part] = &self.parts[..] {
            return part.done().map(|_| 0);
        }
        let parts = self.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.done()?)));
        parts.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
    }

    /// Allocates pages of a part where they come from, as many as the time until `due` is enough
    /// for, and lets that time pass. Returns whether it has passed.
    fn allocate(&mut self, part: usize, choice: Choice, system: &mut System, due: Nanos) -> bool {
        let part = &mut self.parts[part];
        let (node, left) = &mut part.places[choice.place];
        let most = choice.most.min(u64::from(part.end - part.page));
        let page_ns = part.spec.populate_page_ns;
        let (mut pages, mut reached) = (0, false);
        if self.spent_ns == 0.0 && page_ns >= CLOCK_NS && page_ns.fract() == 0.0 {
            // Every page takes so many whole nanoseconds.
            let each = page_ns as u64;
            pages = due.since(system.now).0.div_ceil(each).clamp(1, most);
            system.now = system.now.plus(Nanos(pages * each));
            reached = system.now >= due;
        } else if page_ns == 0.0 && self.spent_ns < CLOCK_NS {
            pages = most;
        }
        while pages < most && !reached {
            pages += 1;
            self.spent_ns += page_ns;
            if self.spent_ns >= CLOCK_NS {
                let whole = self.spent_ns.floor();
                system.now = system.now.plus(Nanos(whole as u64));
                self.spent_ns -= whole;
                reached = system.now >= due;
            }
        }
        *left -= pages;
        let end = part.page + pages as Page;
        system.memory.allocate(part.page..end, *node);
        part.page = end;
        reached
    }

    /// The node that a part's next page comes from: the first that has room above its low
    /// watermark; else above its min.
    fn choose(&mut self, part: usize, system: &mut System) -> Result<Choice, SpecError> {
        let alone = self.parts.len() == 1;
        let part = &self.parts[part];
        for attempt in 0..3 {
            for (place, (node, left)) in part.places.iter().enumerate() {
                let marks = system.machine.nodes[usize::from(*node)].watermarks;
                let floor = if attempt == 0 { marks.low_pages } else { marks.min_pages };
                if *left == 0 {
                    continue;
                }
                let free = system.memory.free(*node);
                if free > floor {
                    // What others allocate, and what a reclaim frees, changes the choice.
                    let most = if alone && attempt < 2 { (free - floor).min(*left) } else { 1 };
                    return Ok(Choice { place, most });
                }
                if attempt == 0 && part.spec.populate_page_ns > 0.0 {
                    system.wake_kswapd(*node);
                }
            }
            if attempt == 1 {
                let node = part.places.first().map_or(0, |p| p.0);
                self.spent_ns += reclaim::direct(system, node);
            }
        }
        let name = &part.spec.name;
        Err(SpecError::new(
            format!("process {name}"),
            format!("its footprint of {} finds no room on the nodes of its place", part.spec.footprint),
            "make it smaller, or name more nodes",
        ))
    }
}
