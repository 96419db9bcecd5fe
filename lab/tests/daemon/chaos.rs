//! Half an hour of what may befall a daemon, at random and one upon the other.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_lab::{Line, ThpMode};

use super::hang::hang;
use super::{Run, number, seed, where_time_is_no_matter, with_settings};

/// How long it goes on, s; in the second half the daemon is killed, too.
const CHAOS_S: u64 = 1800;
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
/// And these only where its memory is no longer looked at.
const ENDS: [&str; 2] = ["killed", "terminated"];
/// Base pages that an excluded program may have fewer on its node, for what the kernel does by
/// itself.
const LOST_MAX: u64 = 16;
/// What the daemon may have grown by, KiB, from a fifth of its time on.
const GROWTH_MAX_KIB: u64 = 4096;

fn chaos(line: Line) {
    let mut random = Pcg32::seed_from_u64(seed("chaos"));
    let mut pick = |from: &[&'static str]| from[random.next_u32() as usize % from.len()];
    let half: Vec<&str> = (0..EVENTS).map(|_| pick(&KINDS)).collect();
    let all = [&KINDS[..], &ENDS[..]].concat();
    let rest: Vec<&str> = (0..EVENTS).map(|_| pick(&all)).collect();
    let run = Run::new(line, [640, 128, 512], ThpMode::Madvise, CHAOS_S + 900)
        .env("HALF_S", CHAOS_S / 2)
        .env("HANG", hang().display())
        .env("EVENTS", half.join(" "))
        .env("EVENTS_WITH_ENDS", rest.join(" "));
    let Some(outcome) = run.run(&with_settings(include_str!("chaos.sh"))) else { return };
    let number = |name| number(&outcome, name);
    println!("{}", run.json("last")["counters"]);
    assert!(number("events") > 100, "little happened");
    assert!(number("slowest_s") <= 5, "a verb took {} s", number("slowest_s"));
    assert!(number("slowest_switch_s") <= 15, "a switch took {} s", number("slowest_switch_s"));
    assert!(number("excluded_lost") <= LOST_MAX, "{} pages of an excluded program", number("excluded_lost"));
    assert!(number("promoted") > 1000, "it hardly worked");
    let (early, late) = (number("early_kib"), number("late_kib"));
    assert!(late <= early + GROWTH_MAX_KIB, "from {early} to {late} KiB");
}

#[test]
fn chaos_costs_nobody_anything_6_12() {
    where_time_is_no_matter(|| chaos(Line::Stable));
}

#[test]
fn chaos_costs_nobody_anything_7() {
    where_time_is_no_matter(|| chaos(Line::Newest));
}
