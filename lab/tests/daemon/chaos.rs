//! Half an hour of what may happen to a daemon, at random and one upon the other: for a quarter
//! without an end of it, so that its memory can be followed, then with ends.
//!
//! Each start of a daemon changes code of the kernel, for which the emulator now and then lets a
//! guest panic. So the second quarter has several guests, each with few starts.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_lab::{Line, ThpMode};

use super::hang::hang;
use super::{Run, number, seed, where_time_is_no_matter, with_settings};

/// How long it goes on without ending the daemon, s.
const ENDLESS_S: u64 = 900;
/// How long it goes on when the daemon is ended now and then, s, in each of `GUESTS` guests.
const WITH_ENDS_S: u64 = 300;
const GUESTS: u32 = 3;
/// More than there is time for.
const EVENTS: usize = 4000;
/// What may happen, as functions of the script.
const KINDS: [&str; 12] = [
    "exec",
    "restart",
    "comes_and_goes",
    "setting",
    "asked",
    "garbage",
    "idle_client",
    "disk_full",
    "stopped",
    "frozen",
    "hung",
    "switched",
];
/// And what ends the daemon.
const ENDS: [&str; 2] = ["killed", "terminated"];
/// Base pages that an excluded program may have fewer on its node, for what the kernel does by
/// itself.
const LOST_MAX: u64 = 16;
/// What a daemon may have grown by beyond its tables, KiB, from a fifth of its time on.
const GROWTH_MAX_KIB: u64 = 4096;

fn chaos(line: Line, seconds: u64, kinds: &[&'static str], random: &mut Pcg32) -> Option<()> {
    let events: Vec<&str> = (0..EVENTS).map(|_| kinds[random.next_u32() as usize % kinds.len()]).collect();
    let run = Run::new(line, [640, 128, 512], ThpMode::Madvise, seconds + 450)
        .env("SECONDS_LONG", seconds)
        .env("HANG", hang().display())
        .env("EVENTS", events.join(" "));
    let outcome = run.run(&with_settings(include_str!("chaos.sh")))?;
    let number = |name| number(&outcome, name);
    println!("{}", run.json("last")["counters"]);
    assert!(number("events") > seconds / 15, "little happened");
    assert!(number("slowest_s") <= 5, "a verb took {} s", number("slowest_s"));
    assert!(number("slowest_switch_s") <= 15, "a switch took {} s", number("slowest_switch_s"));
    assert!(number("excluded_lost") <= LOST_MAX, "{} pages of an excluded program", number("excluded_lost"));
    assert!(number("promoted") > 1000, "it hardly worked");
    if kinds.iter().all(|kind| !ENDS.contains(kind)) {
        let (early, late) = (number("early_kib"), number("late_kib"));
        assert!(late <= early + GROWTH_MAX_KIB, "from {early} to {late} KiB");
    }
    Some(())
}

fn without_an_end(line: Line) {
    chaos(line, ENDLESS_S, &KINDS, &mut Pcg32::seed_from_u64(seed("chaos::without_an_end")));
}

fn with_ends(line: Line) {
    let mut random = Pcg32::seed_from_u64(seed("chaos::with_ends"));
    for _ in 0..GUESTS {
        chaos(line, WITH_ENDS_S, &[&KINDS[..], &ENDS[..]].concat(), &mut random);
    }
}

#[test]
fn without_an_end_costs_nobody_anything_6_12() {
    where_time_is_no_matter(|| without_an_end(Line::Stable));
}

#[test]
fn without_an_end_costs_nobody_anything_7() {
    where_time_is_no_matter(|| without_an_end(Line::Newest));
}

#[test]
fn with_ends_costs_nobody_anything_6_12() {
    where_time_is_no_matter(|| with_ends(Line::Stable));
}

#[test]
fn with_ends_costs_nobody_anything_7() {
    where_time_is_no_matter(|| with_ends(Line::Newest));
}
