//! A cap holds: a scope that has more than its cap comes down to it, and its neighbour stays.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, with_settings};

/// What a scope is left above its cap, what a batch of reclaim may take below it, and what the
/// kernel has not counted by cgroup yet.
const SLACK_KIB: u64 = (4 << 10) + 2048;
const GROW_MIB: u64 = 48;

#[test]
fn what_is_above_a_cap_is_demoted_on_6_12() {
    let run = Run::new(Line::Stable, [512, 128, 768], ThpMode::Never, 280)
        .env("FREE_MIB", 16)
        .env("SLACK_KIB", SLACK_KIB)
        .env("GROW_MIB", GROW_MIB);
    let Some(outcome) = run.run(&with_settings(include_str!("caps.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let last = run.json("last");
    println!("scopes {}\ndemoter {}\ncounters {}", last["scopes"], last["demoter"], last["counters"]);
    println!("kernel {}", last["kernel_moves"]);

    assert_eq!(number("daemon_status"), 0);
    let cap = number("cap_kib");
    assert!(number("hog_before") > cap + (64 << 10), "there is nothing to give");
    for after in ["hog_first", "hog_second"] {
        assert!(number(after) <= cap + SLACK_KIB, "{after}: {} KiB of {cap}", number(after));
    }
    assert!(number("hog_grown") > cap + SLACK_KIB, "it has not grown in the top tier");
    // What the kernel demotes for its own reasons is not ours to keep.
    let own: u64 = ["kswapd", "direct", "khugepaged", "proactive"]
        .map(|who| last["kernel_moves"][format!("pgdemote_{who}")].as_u64().unwrap() * 4)
        .iter()
        .sum();
    assert!(number("least_hog") + SLACK_KIB + own >= cap, "{} KiB of {cap}", number("least_hog"));
    let (before, after) = (number("beside_before"), number("beside_after"));
    assert!(after + 2048 + own >= before, "the neighbour had {before} KiB and has {after}");
    // At 64 MB/s, with the seconds until it is cold enough and the five in which it has to stay.
    let most = |kib: u64| kib / 1024 / 64 + 30 + 5;
    assert!(number("first_s") <= most(number("hog_before") - cap), "{} s", number("first_s"));
    assert!(number("second_s") <= most(GROW_MIB << 10), "{} s", number("second_s"));
    let status = run.text("status-text");
    assert!(status.contains("scope hog: ") && status.contains("; cap "), "{status}");
}
