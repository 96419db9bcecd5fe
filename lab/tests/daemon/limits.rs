//! Floor and cap of a scope in the top tier: both are reached, and neither is passed.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, with_settings};

const CAP_MIB: u64 = 8;
/// Memory of the scope with a floor that is above it.
const SPARE_MIB: u64 = 12;
/// What the kernel has not counted by cgroup yet: 64 pages a CPU. And what a program needs for
/// itself.
const SLACK_KIB: u64 = 2048;

#[test]
fn floors_and_caps_are_kept_on_6_12() {
    let run = Run::new(Line::Stable, [512, 128, 768], ThpMode::Never, 280)
        .env("MIB", 120)
        .env("FREE_MIB", 16)
        .env("SPARE_MIB", SPARE_MIB)
        .env("CAP_MIB", CAP_MIB);
    let Some(outcome) = run.run(&with_settings(include_str!("limits.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let last = run.json("last");
    println!("scopes {}\ndemoter {}\ncounters {}", last["scopes"], last["demoter"], last["counters"]);
    println!("kernel {}", last["kernel_moves"]);

    assert_eq!(number("daemon_status"), 0);
    let (cap, most) = (CAP_MIB << 10, number("most_capped").max(number("capped_before")));
    assert!(most >= cap / 2, "{most} KiB: the cap was never near");
    // What the kernel promotes by itself while tasks renew their scan periods no cap can hold back.
    let by_kernel = last["kernel_moves"]["pgpromote_success"].as_u64().unwrap() * 4;
    assert!(most <= cap + SLACK_KIB + by_kernel, "{most} KiB of {cap}, {by_kernel} by the kernel");
    assert!(last["counters"]["refused"]["scope_cap"].as_u64().unwrap() > 0);

    // What the kernel demotes for its own reasons no floor can keep.
    let own = ["kswapd", "direct", "khugepaged", "proactive"]
        .map(|who| last["kernel_moves"][format!("pgdemote_{who}")].as_u64().unwrap());
    let (floor, least) = (number("floor_kib"), number("least_kept") + own.iter().sum::<u64>() * 4);
    assert!(
        number("least_kept") < number("kept_before") - (SPARE_MIB << 10) / 4,
        "hardly anything was demoted"
    );
    assert!(least + SLACK_KIB >= floor, "{least} KiB of {floor}");
    assert!(last["demoter"]["kept_by_floor"].as_u64().unwrap() > 0);

    let explained = run.text("explained");
    // Which pages were refused is chance; the state of their scope is shown for every page.
    assert!(explained.contains("scope capped: "), "{explained}");
    let status = run.text("status-text");
    assert!(status.contains("scope kept: ") && status.contains("scope capped: "), "{status}");
}
