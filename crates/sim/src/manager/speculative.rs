//! Speculative NUMA faults (S2): after a hint fault whose page was promoted, the following pages
//! are handled as if they had faulted too, within a window that grows with a stream of faults and
//! shrinks with others.
//!
//! Each page ahead has its own decision, by its own mark; the first page without a mark, or that
//! does not move, ends the series. A process is one mapping here. Source: S2, "mm: Add speculative
//! numa fault support" (2021-12); the window's arithmetic is core's `published::window`.

use thermocline_core::published::window::{Window, adjust};

use super::{Manager, Notes};
use crate::kernel::hint_fault::HintFaults;
use crate::memory::Page;
use crate::system::{Fault, System};

/// Base pages that one page table maps: a window ends there.
const BLOCK: Page = 512;

/// See the module's description.
#[derive(Debug)]
pub struct Speculative {
    faults: HintFaults,
    /// The window of each process, in pages of the run.
    windows: Vec<Option<Window>>,
}

impl Speculative {
    /// Creates the manager with this fault path.
    pub fn new(faults: HintFaults) -> Speculative {
        Speculative { faults, windows: Vec::new() }
    }
}

impl Manager for Speculative {
    fn name(&self) -> String {
        "speculative".to_owned()
    }

    fn scans(&self) -> bool {
        true
    }

    fn takes_marks_ahead(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        let space = &system.memory.spaces[fault.process];
        // A process begins with a block of its own.
        let in_space = fault.page - space.start;
        let end = (space.start + (in_space / BLOCK + 1) * BLOCK).min(space.end);
        self.windows.resize(system.processes.len(), None);
        let window = &mut self.windows[fault.process];
        let next = adjust(*window, u64::from(fault.page), u64::from(end - fault.page - 1));
        *window = Some(next);
        let mut cost = self.faults.fault(system, fault);
        if system.memory.node(fault.page) == Some(fault.node) {
            return cost;
        }
        for page in next.ahead().map(|page| page as Page).take_while(|page| *page < end) {
            let Some(node) = system.memory.node(page).filter(|_| system.memory.is_marked(page)) else {
                break;
            };
            let marked = system.memory.unmark(page);
            system.counters.handled_ahead += 1;
            cost += self.faults.fault(system, &Fault { page, node, marked, ..*fault });
            if system.memory.node(page) == Some(node) {
                break;
            }
        }
        cost
    }

    fn finish(&mut self, _system: &System) -> Result<Notes, String> {
        Ok(Notes { latencies: std::mem::take(&mut self.faults.latencies.samples), ..Notes::default() })
    }
}
