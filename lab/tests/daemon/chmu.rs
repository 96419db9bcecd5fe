//! A memory device's own hot list as the only evidence: hot pages come up by it, cold ones stay,
//! and what a short list leaves out is counted and comes later.

use serde_json::Value;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, count, number, soak, where_time_is_no_matter};

/// hotcold, of which a fifth is hot: 3276 pages with some 110 accesses a second each, where the
/// host is not too busy, and 13108 with three. It fits into DRAM: the list alone
/// decides which pages come up.
const FOOTPRINT_MIB: u64 = 64;
const RATE: u64 = 400_000;
/// The device's list has room for a third of the hot pages.
const SLOTS: u64 = 1024;
const HOT_PAGES: u64 = FOOTPRINT_MIB * 256 / 5;
const HOT_MIN: f64 = 0.9;
const COLD_MAX: f64 = 0.05;

/// All moves follow from the hot list alone.
fn nothing_else_told(last: &Value) {
    let evidence = |source: &str| count(last, &format!("/counters/evidence/{source}"));
    assert_eq!((evidence("hint-fault"), evidence("hw-sample"), evidence("damon")), (0, 0, 0));
    assert_eq!(evidence("device"), count(last, "/hot_list/looked_up"));
    assert_eq!(count(last, "/reverse/resolved"), count(last, "/hot_list/pages"));
    let told: u64 = ["looked_up", "not_memory", "top_tier"]
        .map(|what| count(last, &format!("/hot_list/{what}")))
        .iter()
        .sum();
    // A unit is a page.
    assert_eq!(count(last, "/hot_list/entries") - count(last, "/hot_list/malformed"), told);
    assert_eq!((count(last, "/hot_list/malformed"), count(last, "/hot_list/not_memory")), (0, 0));
    assert_eq!(last["hot_list"]["refused"], false);
}

fn hot_pages_come_by_the_devices_list(line: Line) {
    let sizes = [640, 128, 512];
    let mut run = Run::new(line, sizes, ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("RATE", RATE)
        .env("SECONDS_AFTER", if soak() { 30 } else { 2 });
    // Not in the folder that the script clears.
    let plugin = tempfile::Builder::new().prefix("hotlist").tempdir_in("/tmp").unwrap();
    let machine = Machine::of_sizes(&sizes.map(|size| size * MIB));
    let (guest, rings) = offer_samples(run.guest, plugin.path());
    let more = ["cache-kib=256", &rings, &format!("hot-list={SLOTS}")];
    run.guest = attach(guest, &machine, plugin.path(), &more).unwrap();
    let Some(outcome) = run.run(include_str!("chmu.sh")) else { return };
    let number = |name| number(&outcome, name);
    assert_eq!((number("refused"), number("epoch_status"), number("always-on_status")), (1, 0, 0));
    assert_eq!((number("hint_faults"), number("kernel_promoted")), (0, 0));
    let doctor = run.json("doctor");
    let chmu = doctor["sources"].as_array().unwrap().iter().find(|s| s["name"] == "chmu").unwrap();
    assert_eq!(chmu["status"], "usable", "{chmu}");

    for mode in ["epoch", "always-on"] {
        let (judged, last) = (run.verdict(&format!("judged-{mode}")), run.json(&format!("last-{mode}")));
        println!(
            "{mode}: hot list {}\nreverse map {}\ncounters {}",
            last["hot_list"], last["reverse"], last["counters"]
        );
        println!(
            "hot pages in DRAM {:.1} %, cold {:.1} %",
            judged.hot_in_dram * 100.0,
            judged.cold_in_dram * 100.0
        );
        nothing_else_told(&last);
        assert!(judged.hot_in_dram >= HOT_MIN, "{mode}: hot pages stay on the slow node");
        assert!(judged.cold_in_dram <= COLD_MAX, "{mode}: cold pages come up");
        let promoted = judged.moved.unwrap().promoted.pages;
        assert!(promoted <= count(&last, "/counters/pgpromote_success"), "pages came up that nobody moved");
    }

    // All hot pages were on the first list but for those that it had no room for.
    let last = run.json("last-epoch");
    assert!(count(&last, "/hot_list/overflow") >= HOT_PAGES - SLOTS, "{}", last["hot_list"]);
    assert!(
        count(&last, "/hot_list/epochs") >= HOT_PAGES / SLOTS && count(&last, "/hot_list/counted") > 200_000
    );
    assert_eq!(count(&run.json("last-always-on"), "/hot_list/epochs"), 0);
    let status = run.text("status-text");
    assert!(status.contains("left out because it was full"), "{status}");
    assert!(run.text("explained").contains("sources device"), "{}", run.text("explained"));
}

#[test]
fn hot_pages_come_by_the_devices_list_on_6_12() {
    where_time_is_no_matter(|| hot_pages_come_by_the_devices_list(Line::Stable));
}

#[test]
fn hot_pages_come_by_the_devices_list_on_the_newest() {
    where_time_is_no_matter(|| hot_pages_come_by_the_devices_list(Line::Newest));
}
