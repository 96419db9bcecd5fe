//! pghot as manager: hint faults are records, kmigrated promotes, kswapd demotes.

use thermocline_core::published::pghot::Mode;
use thermocline_core::units::Nanos;

use super::{Manager, Notes};
use crate::kernel::pghot::Pghot;
use crate::system::{Fault, System};

/// See the module's description.
#[derive(Debug)]
pub struct Pghots {
    name: &'static str,
    pghot: Pghot,
}

impl Pghots {
    /// Creates the manager with records of this form.
    pub fn new(name: &'static str, mode: Mode) -> Pghots {
        Pghots { name, pghot: Pghot::new(mode) }
    }
}

impl Manager for Pghots {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn scans(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        if system.machine.is_kernel_lower(fault.node) {
            self.pghot.record(system, fault);
            system.counters.left_to_kthread += 1;
        } else {
            system.counters.not_promotable += 1;
        }
        0.0
    }

    fn due(&self) -> Nanos {
        self.pghot.due
    }

    fn run(&mut self, system: &mut System) {
        self.pghot.run(system);
    }

    fn finish(&mut self, _system: &System) -> Result<Notes, String> {
        let o = self.pghot.outcomes;
        if o.taken < o.stale + o.limited + o.no_room + o.promoted {
            return Err(format!("more came of ready records than there were: {o:?}"));
        }
        let figures = [
            ("recorded", o.recorded),
            ("taken", o.taken),
            ("stale", o.stale),
            ("limited", o.limited),
            ("no_room", o.no_room),
            ("promoted", o.promoted),
        ];
        Ok(Notes {
            figures: figures.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
            ..Notes::default()
        })
    }
}
