//! Demotion in a kernel that is locked down, where generations cannot be asked.

use thermocline_core::demotion::OVER_PAGES;
use thermocline_lab::{Line, ThpMode};

use super::{Run, count, number, soak, where_time_is_no_matter, with_settings};

/// hotcold, of which a fifth is hot.
const FOOTPRINT_MIB: u64 = 200;
const FREE_MIB: u64 = 8;

/// What share of the hot pages got to DRAM; nothing where this machine cannot run guests. `when`
/// the kernel is locked down: "before", "meanwhile" or "never".
fn hot_in_dram(line: Line, when: &str, enough_percent: u64) -> Option<f64> {
    let run = Run::new(line, [512, 128, 1024], ThpMode::Never, 600)
        .append("lsm=lockdown,capability")
        .env("WHEN", when)
        .env("MIB", FOOTPRINT_MIB)
        .env("FREE_MIB", FREE_MIB)
        .env("MORE", "")
        .env("ENOUGH", enough_percent)
        .env("SECONDS_ON", if soak() { 90 } else { 120 });
    let outcome = run.run(&with_settings(include_str!("lockdown.sh")))?;
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    println!("{}\ndemoter {}\nkernel {}", run.text("daemon-errors"), last["demoter"], last["kernel_moves"]);
    println!("hot pages in DRAM {:.1} %, {:?}", judged.hot_in_dram * 100.0, judged.moved);
    // Settings of the scans are in debugfs, which cannot be written once the kernel is locked down.
    assert_eq!(number(&outcome, "daemon_status"), u64::from(when == "meanwhile"));
    assert!(number(&outcome, "free_before") <= FREE_MIB + 4, "node 0 is not full");
    let [asked, over] = ["asked", "over"].map(|what| count(&last, &format!("/counters/demotion_{what}")));
    // A run that ends early asks for little, and one command may take as much as that beyond it.
    assert!(over <= asked / 10 + OVER_PAGES, "{over} pages more than the {asked} that were asked for");
    let by_damon = count(&last, "/demoter/by_damon_pages");
    assert_eq!(by_damon > 0, when != "never");
    Some(judged.hot_in_dram)
}

#[test]
fn cold_memory_makes_room_after_the_kernel_was_locked_down_meanwhile() {
    where_time_is_no_matter(|| {
        let hot = hot_in_dram(Line::Stable, "meanwhile", 60);
        assert!(hot.is_none_or(|hot| hot >= 0.6), "{hot:?}");
    });
}

/// At least 85 % of what is reached without lockdown.
#[test]
fn lockdown_costs_little_on_both_kernels() {
    where_time_is_no_matter(|| {
        for line in [Line::Stable, Line::Newest] {
            let [without, with] = ["never", "before"].map(|when| hot_in_dram(line, when, 101));
            let (Some(without), Some(with)) = (without, with) else { return };
            assert!(with >= 0.85 * without, "{line:?}: {with} of {without}");
        }
    });
}
