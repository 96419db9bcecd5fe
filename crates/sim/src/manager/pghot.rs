//! pghot as manager: hint faults and hardware samples are records, kmigrated promotes, kswapd
//! demotes.

use thermocline_core::published::pghot::Mode;
use thermocline_core::units::Nanos;

use super::ibs::ACCESSES_PER_UOP;
use super::{Manager, Notes, Sampling};
use crate::kernel::pghot::{Pghot, default_target, window_ms};
use crate::machine::Machine;
use crate::memory::flags;
use crate::settings::{KernelSettings, PGHOT_HINT_FAULTS, PGHOT_HWHINTS};
use crate::spec::{SpecError, require};
use crate::system::{Fault, SampledAccess, System};

/// The memory profiler's period in micro-operations (S4, v7).
const PERIOD_UOPS: u32 = 10_000;

/// See the module's description.
#[derive(Debug)]
pub struct Pghots {
    name: &'static str,
    mode: Mode,
    pghot: Pghot,
    sources: u8,
    samples: u64,
}

impl Pghots {
    /// Creates the manager with records of this form.
    pub fn new(name: &'static str, mode: Mode, machine: &Machine) -> Pghots {
        Pghots { name, mode, pghot: Pghot::new(mode, machine), sources: 0, samples: 0 }
    }
}

impl Manager for Pghots {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn configure(&mut self, kernel: &mut KernelSettings) {
        self.sources = kernel.pghot_enabled_sources;
    }

    fn check(&self, kernel: &KernelSettings, machine: &Machine) -> Result<(), SpecError> {
        let most = self.mode.frequency_max();
        require(
            kernel.pghot_freq_threshold <= most,
            "kernel.pghot_freq_threshold",
            &format!("is {}, which a record of {} never reaches", kernel.pghot_freq_threshold, self.name),
            &format!("give 1 to {most}"),
        )?;
        let wrap_ms = self.mode.wrap_jiffies() * 1000 / u64::from(machine.spec.hz);
        require(
            window_ms(self.mode, kernel) < wrap_ms,
            "kernel.pghot_freq_window_ms",
            &format!("is not shorter than the {wrap_ms} ms after which a record's time is the same again"),
            "give less",
        )?;
        let lower = machine.kernel_top;
        require(
            self.mode == Mode::Precise || default_target(machine, kernel.pghot_target_nid, lower).is_some(),
            "kernel.pghot_target_nid",
            &format!("is {}, which is no node of the top tier", kernel.pghot_target_nid),
            "give a top-tier node's number, or -1 for the nearest one",
        )
    }

    fn scans(&self) -> bool {
        self.sources & PGHOT_HINT_FAULTS != 0
    }

    fn tiering(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        if system.machine.is_kernel_lower(fault.node) {
            self.pghot.record(system, fault.page, fault.node, fault.cpu_node);
            system.counters.left_to_kthread += 1;
        } else {
            system.counters.not_promotable += 1;
        }
        0.0
    }

    fn sampling(&self, _thread: u32) -> Option<Sampling> {
        let samples = self.sources & PGHOT_HWHINTS != 0;
        samples.then(|| Sampling { accesses: f64::from(PERIOD_UOPS) * ACCESSES_PER_UOP })
    }

    fn on_sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        self.samples += 1;
        let node = system.memory.flags(sample.page) & flags::NODE;
        if system.machine.is_kernel_lower(node) {
            self.pghot.record(system, sample.page, node, sample.cpu_node);
        }
        system.machine.spec.cost.sample_ns
    }

    fn due(&self) -> Nanos {
        self.pghot.due()
    }

    fn run(&mut self, system: &mut System) {
        self.pghot.run(system);
    }

    fn finish(&mut self, system: &System) -> Result<Notes, String> {
        let (recorded, taken) = (self.pghot.recorded, system.counters.kthread_taken);
        if taken > recorded {
            return Err(format!("{taken} ready records were taken of {recorded} that were updated"));
        }
        let figures = [("recorded", recorded), ("refused", self.pghot.refused), ("samples", self.samples)];
        Ok(Notes {
            figures: figures.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
            ..Notes::default()
        })
    }
}
