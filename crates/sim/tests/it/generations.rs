//! Generations against what the kernel does: two agings tell which pages were not accessed between
//! them, whatever was accessed before.

use thermocline_core::units::Nanos;
use thermocline_sim::kernel::generations::{Everybody, Generations};
use thermocline_sim::machine::NodeIndex;
use thermocline_sim::manager::{Manager, ManagerName};
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run_with};
use thermocline_sim::scenario::Setup;
use thermocline_sim::system::{START, System};

/// DRAM.
const NODE: NodeIndex = 0;
/// Half of the program's memory is accessed until a third of the run is over, the other half all
/// the time.
const HALVES: &str = r#"
name = "halves"
summary = "two halves of 32 MiB"
machine = "cxl-2tier"
limit = "1min"

[[process]]
name = "p"
threads = 1
node = "cpu"
footprint = "32MiB"
place = [{ node = "top" }]
pattern = { kind = "phases", repeat = 1, step = [
    { how = "random", accesses = 20000000, region = [{ from = 0.0, to = 1.0, weight = 1.0 }] },
    { how = "random", accesses = 40000000, region = [{ from = 0.0, to = 0.5, weight = 1.0 }] },
] }
"#;

/// Ages in the middle of the run and `apart` later; then evicts whatever has been idle for `idle`.
#[derive(Debug)]
struct Twice {
    apart: Nanos,
    idle: Nanos,
    generations: Option<Generations>,
    next: Nanos,
    agings: u32,
}

impl Manager for Twice {
    fn name(&self) -> String {
        "twice".to_owned()
    }

    fn due(&self) -> Nanos {
        self.next
    }

    fn run(&mut self, system: &mut System) {
        let generations = self.generations.get_or_insert_with(|| Generations::new(system));
        generations.age(system, NODE);
        self.agings += 1;
        self.next = system.now.plus(self.apart);
        if self.agings == 2 {
            generations.evict(system, NODE, u64::MAX, self.idle, &mut Everybody);
            self.next = Nanos(u64::MAX);
        }
    }
}

fn demoted(apart_ms: u64, idle_ms: u64) -> u64 {
    let setup = Setup::parse("halves", HALVES, &[]).expect("a sound scenario");
    let manager = Twice {
        apart: Nanos::from_ms(apart_ms),
        idle: Nanos::from_ms(idle_ms),
        generations: None,
        next: START.plus(Nanos::from_s(4)),
        agings: 0,
    };
    let arm = Arm { manager: ManagerName::None, mode: ModeName::Event, seed: 7 };
    run_with(&setup, arm, Box::new(manager)).expect("it runs").counters.pgdemote_other
}

#[test]
fn pages_not_accessed_between_two_agings_are_demoted() {
    let half = 32 * 256 / 2;
    assert_eq!(demoted(200, 200), half, "what was accessed before the first one does not matter");
    assert_eq!(demoted(200, 300), 0, "they are not known to have been idle for so long");
}
