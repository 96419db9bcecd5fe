//! The memory of the lab's sampler filled with anything: marks, samples and clocks before the
//! source opens it, and while it reads.
//!
//! Each ten bytes write a number of eight somewhere, those of the second half after the rings were
//! opened. Whatever they write: no panic, every poll ends and counts each sample once, every access
//! is of the slow node and not of the future, and no clock is behind its instructions.

use thermocline_core::config::HwSample;
use thermocline_core::units::Nanos;
use thermocline_linux::source::hwsample::lab_rings::LabRings;
use thermocline_linux::source::hwsample::useful::Judge;
use thermocline_linux::source::lab_clock::LabClock;
use thermocline_linux::source::{AccessSource, Event};

use crate::machine::{Device, SLOW, nodes};

const SLOTS: u32 = 128;
const RING_BYTES: u32 = 4096 + SLOTS * 32;
/// Where the clocks are.
const CLOCKS: usize = 4096 + 2 * RING_BYTES as usize;
const BYTES: usize = CLOCKS + 4096 + 2 * 512;
const NOW: Nanos = Nanos(1 << 40);
/// Samples asked for at once.
const MAX: usize = 50;

thread_local! {
    static MACHINE: (Device, Judge) = {
        let (frames, topology) = nodes(1 << 40);
        (Device::new(sound()), Judge::new(frames, &topology, false))
    };
}

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    MACHINE.with(|(device, judge)| {
        device.reset();
        let (before, after) = bytes.split_at(bytes.len() / 2);
        device.scribble(before);
        let clock = LabClock::open(&device.root);
        let config = HwSample { cpu_budget_permille: 1000, ..HwSample::default() };
        let rings = LabRings::open(&device.root, &config, judge.clone(), NOW);
        device.scribble(after);
        if let Ok(clock) = clock {
            let vcpus = clock.read().unwrap_or_default();
            assert!(vcpus.iter().all(|vcpu| vcpu.ns >= vcpu.instructions_ns && vcpu.nodes.len() <= 16));
        }
        let Ok(mut rings) = rings else { return };
        for _ in 0..4 {
            let taken = rings.stats().samples.taken;
            let mut useful = 0;
            let read = rings.poll(
                MAX,
                NOW,
                |_| true,
                |event| {
                    let Event::Access(access) = event else { panic!("{event:?}") };
                    assert!(access.node == SLOW && access.page.is_none() && access.time <= NOW);
                    useful += 1;
                },
            );
            let t = rings.stats().samples;
            assert!(read <= MAX && t.taken == taken + read as u64 && useful <= read);
            let others = t.not_user + t.no_access + t.cache_hit + t.no_physical + t.not_memory + t.top_tier;
            assert_eq!((t.taken, t.out_of_scope), (t.useful + others, 0));
        }
    });
}

/// Two empty rings, and clocks of two processors and two nodes.
fn sound() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..8].copy_from_slice(b"TLCSAMP1");
    for (at, number) in [(8, 2), (12, SLOTS), (16, 32), (20, RING_BYTES), (28, CLOCKS as u32)] {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let clocks = [
        (CLOCKS, u64::from_le_bytes(*b"TLCTIME1")),
        (CLOCKS + 8, 2 | 2 << 32),
        (CLOCKS + 16, 512),
        (CLOCKS + 24, 1),
        (CLOCKS + 32, 1),
        (CLOCKS + 40, 333_333),
    ];
    for (at, number) in clocks {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}
