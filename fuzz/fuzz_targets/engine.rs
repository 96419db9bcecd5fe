//! Sequences of evidence, ticks and outcomes, read from the fuzzer's bytes; the engine is held to
//! the same laws as in its property tests, whose steps, machine and laws these are.
//!
//! `cargo +nightly fuzz run engine -- -max_total_time=20 -len_control=0 -max_len=2048`: long
//! courses from the start, because little happens in a short one.

#![no_main]

// The tests hold a machine that fails to them too.
#[allow(dead_code)]
#[path = "../../crates/core/tests/it/laws.rs"]
mod laws;
// The tests use more of the machine and of the world than is used here.
#[allow(dead_code)]
#[path = "../../crates/core/tests/it/machine.rs"]
mod machine;
#[path = "../../crates/core/tests/it/step.rs"]
mod step;
#[path = "../../crates/core/tests/it/wild.rs"]
mod wild;
#[allow(dead_code)]
#[path = "../../crates/core/tests/it/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((setup, bytes)) = bytes.split_first() else { return };
    let mut world = world::World::new(world::Setup::of(*setup));
    for step in step::steps(bytes) {
        world.step(&step);
    }
});
