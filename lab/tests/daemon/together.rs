//! Three sources at once, one of which floods: their evidence about a page is weighed together, and
//! the flood harms only the source that floods.

use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, count, number, where_time_is_no_matter};

/// hotcold, of which a fifth is hot: 9830 pages with some 30 accesses a second each, where the host
/// is not too busy, and 39322 with one in seven seconds. It takes 38 s to bring the hot ones up.
const FOOTPRINT_MIB: u64 = 192;
const RATE: u64 = 300_000;
/// Hot pages that are asked about.
const ASKED: usize = 40;
const HOT_MIN: f64 = 0.8;
const COLD_MAX: f64 = 0.2;

fn sources_are_weighed_together(line: Line) {
    let sizes = [640, 128, 512];
    let mut run = Run::new(line, sizes, ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("RATE", RATE)
        .env("ASKED", ASKED);
    // Not in the folder that the script clears.
    let plugin = tempfile::Builder::new().prefix("together").tempdir_in("/tmp").unwrap();
    let machine = Machine::of_sizes(&sizes.map(|size| size * MIB));
    let (guest, rings) = offer_samples(run.guest, plugin.path());
    run.guest = attach(guest, &machine, plugin.path(), &["cache-kib=256", &rings]).unwrap();
    let Some(outcome) = run.run(include_str!("together.sh")) else { return };
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    println!("samples {}\nhot list {}\ncounters {}", last["hwsample"], last["hot_list"], last["counters"]);
    println!("hot {:.1} %, cold {:.1} % in DRAM", judged.hot_in_dram * 100.0, judged.cold_in_dram * 100.0);
    assert_eq!(number(&outcome, "daemon_status"), 0);
    assert!(judged.hot_in_dram >= HOT_MIN, "hot pages stay on the slow node");
    assert!(judged.cold_in_dram <= COLD_MAX, "cold pages come up");

    // All three have delivered evidence, and the samples came faster than they may be read.
    for source in ["hint-fault", "hw-sample", "device"] {
        assert!(count(&last, &format!("/counters/evidence/{source}")) > 1000, "{source} told of nothing");
    }
    assert!(count(&last, "/hwsample/lost") > 10_000, "that was no flood");
    // Of the others nothing was lost by it.
    assert_eq!((count(&last, "/source/dropped"), count(&last, "/counters/dropped")), (0, 0));

    // What moved a page is what several of them said of it.
    let explained = run.text("explained");
    let moved: Vec<&str> = explained.lines().filter(|line| line.contains("what issued")).collect();
    let sources = |line: &&str| line.split("sources ").nth(1)?.split(',').next().map(str::to_owned);
    let together = moved.iter().filter_map(sources).filter(|names| names.contains('+')).count();
    println!("of {ASKED} pages {} were moved, {together} by several sources", moved.len());
    assert!(moved.len() >= ASKED / 2 && together >= ASKED / 10, "{explained}");
}

#[test]
fn sources_are_weighed_together_on_6_12() {
    where_time_is_no_matter(|| sources_are_weighed_together(Line::Stable));
}

#[test]
fn sources_are_weighed_together_on_the_newest() {
    where_time_is_no_matter(|| sources_are_weighed_together(Line::Newest));
}
