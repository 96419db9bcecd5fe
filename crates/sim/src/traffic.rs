//! Traffic: the load of each node, and the resulting access times.

use thermocline_core::units::{Nanos, PAGE_SIZE};

use crate::kernel::Model;
use crate::machine::Bandwidth;
use crate::machine::bandwidth::PERIOD;
use crate::system::System;

/// Bytes of an access that misses the cache.
const LINE: f64 = 64.0;

/// Measures the nodes that have a bandwidth limit, once a millisecond.
#[derive(Debug)]
pub(crate) struct Traffic {
    loads: Vec<Option<Bandwidth>>,
    served: Vec<f64>,
    copied: Vec<u64>,
    last: Nanos,
    due: Nanos,
}

impl Traffic {
    /// `None` if no node has a limit.
    pub(crate) fn new(system: &System) -> Option<Traffic> {
        let loads: Vec<_> = system.machine.nodes.iter().map(|n| n.bandwidth.map(Bandwidth::new)).collect();
        loads.iter().any(Option::is_some).then(|| Traffic {
            loads,
            served: system.served.clone(),
            copied: system.copied.clone(),
            last: system.now,
            due: system.now.plus(PERIOD),
        })
    }
}

impl Model for Traffic {
    fn name(&self) -> &'static str {
        "traffic"
    }

    fn due(&self, _system: &System) -> Nanos {
        self.due
    }

    fn run(&mut self, system: &mut System) {
        let span = system.now.since(self.last);
        // Processes miss the cache differently; their mean is accurate enough for the load.
        let all: f64 =
            system.processes.iter().filter(|p| !p.threads.is_empty()).map(|p| p.miss_share * p.lines).sum();
        let running = system.processes.iter().filter(|p| !p.threads.is_empty()).count().max(1);
        let misses = all / running as f64;
        for (i, load) in self.loads.iter_mut().enumerate() {
            let lines = (system.served[i] - self.served[i]) * misses;
            let pages = (system.copied[i] - self.copied[i]) as f64;
            if let Some(load) = load {
                load.served(lines * LINE + pages * PAGE_SIZE as f64, span);
            }
        }
        self.served.clone_from(&system.served);
        self.copied.clone_from(&system.copied);
        self.last = system.now;
        self.due = system.now.plus(PERIOD);
        system.set_access_times(&self.loads);
    }
}
