//! A share comes back from who accesses its own more often, and is not kept for who does not want
//! it. What is never slow gives nothing.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

const SERVER_MIB: u64 = 200;
const SHARE_MIB: u64 = 88;
/// Memory that is never slow and hardly accessed.
const TRADING_MIB: u64 = 24;
/// Percent of the server's hot pages that are to be in DRAM.
const HOT_MIN: u64 = 85;
/// What a scope is left above its share, what a batch of reclaim may take below it, and what the
/// kernel has not counted by cgroup yet.
const SLACK_KIB: u64 = (4 << 10) + 2048;

fn a_share_comes_back(line: Line) {
    let run = Run::new(line, [384, 128, 640], ThpMode::Never, 360)
        .env("SERVER_MIB", SERVER_MIB)
        .env("SERVER_RATE", 60_000)
        .env("SHARE_MIB", SHARE_MIB)
        .env("TRADING_MIB", TRADING_MIB)
        .env("FREE_MIB", 44)
        .env("WITHOUT_S", 15)
        .env("HOT_MIN", HOT_MIN)
        .env("BACK_SLACK_KIB", 16 << 10);
    let Some(outcome) = run.run(&with_settings(include_str!("shares.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let (shared, last) = (run.json("shared"), run.json("last"));
    println!("scopes {}\nledger {}", shared["scopes"], shared["ledgers"]);
    println!("demoter {}\ncounters {}\nkernel {}", last["demoter"], last["counters"], last["kernel_moves"]);
    assert_eq!(number("daemon_status"), 0);

    let without = number("hot_without");
    assert!(without < HOT_MIN - 20, "the hog leaves it what it wants: {without} % of its hot pages");
    assert!(number("back_s") < 120, "its share does not come");
    // A few go down again before the second look, under the kernel's own pressure.
    let hot = number("hot_with");
    assert!(hot + 10 >= HOT_MIN, "{hot} % of its hot pages in DRAM");
    let share = SHARE_MIB << 10;
    assert!(
        number("server_with") <= share + SLACK_KIB,
        "{} KiB for a share of {share}",
        number("server_with")
    );
    // Only what the server has got is missing of what the hog had.
    let got = number("server_with");
    assert!(
        number("hog_with") + got + (64 << 10) >= number("hog_kib"),
        "the hog is left {} KiB",
        number("hog_with")
    );
    // Linux 6.18 and later respect the cpuset when they demote; before, the kernel takes what it
    // takes.
    let by_kernel = if line == Line::Newest { 0 } else { demoted_by_the_kernel(&last) };
    assert!(
        number("trading_after") + 256 + by_kernel * 4 >= number("trading_kib"),
        "{} KiB of {} are left of what is never slow, and the kernel demoted {by_kernel} pages",
        number("trading_after"),
        number("trading_kib")
    );
    let explained = run.text("explained");
    // A little below it or above it, as the second may be.
    assert!(explained.contains("its share of 88 MiB"), "{explained}");
    let status = run.text("status-text");
    assert!(status.contains("; share 88 MiB"), "{status}");
    assert!(number("unused_s") < 120, "what nobody wants is not the hog's again");
}

/// Pages of all scopes.
fn demoted_by_the_kernel(last: &serde_json::Value) -> u64 {
    let by = |who| last["kernel_moves"][format!("pgdemote_{who}")].as_u64().unwrap();
    ["kswapd", "direct", "khugepaged", "proactive"].map(by).iter().sum()
}

#[test]
fn a_share_comes_back_on_6_12() {
    a_share_comes_back(Line::Stable);
}

#[test]
fn a_share_comes_back_on_the_newest() {
    where_time_is_no_matter(|| a_share_comes_back(Line::Newest));
}
