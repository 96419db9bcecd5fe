//! Evidence that names frames and no process: it finds its pages, hot ones come up, pinned ones are
//! left alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, count, number, where_time_is_no_matter};

/// hotcold, of which a fifth is hot. It fits into DRAM: which pages come up is for the samples to
/// say.
const FOOTPRINT_MIB: u64 = 96;
/// Pages of the process whose every eighth page is pinned.
const GUEST_PAGES: u64 = 4096;
const PINNED_PAGES: u64 = GUEST_PAGES / 8;
/// About every 200th access is tagged: some two samples a second of a hot page, one in 15 s of a
/// cold one.
const EVERY: u64 = 200;

/// A program that holds pages in awkward states.
fn pages() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/pages.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages-of-a-guest");
    let output =
        Command::new("cc").args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Share of the samples since `before`, or since the start, that were useful, in percent; none
/// where there were hardly any.
fn useful_percent(before: Option<&Value>, now: &Value) -> Option<u64> {
    let grown = |what: &str| {
        let path = format!("/hwsample/samples/{what}");
        count(now, &path) - before.map_or(0, |before| count(before, &path))
    };
    (grown("taken") >= 500).then(|| 100 * grown("useful") / grown("taken"))
}

fn frames_without_a_process_find_their_pages(line: Line) {
    let mut run = Run::new(line, [640, 128, 512], ThpMode::Always, 420)
        .env("PAGES", pages().display())
        .env("GUEST_PAGES", GUEST_PAGES)
        .env("MIB", FOOTPRINT_MIB)
        .env("EVERY", EVERY);
    // Not in the folder that the script clears.
    let plugin = tempfile::Builder::new().prefix("frames").tempdir_in("/tmp").unwrap();
    let machine = Machine::of_sizes(&[640, 128, 512].map(|size| size * MIB));
    let (guest, rings) = offer_samples(run.guest, plugin.path());
    run.guest = attach(guest, &machine, plugin.path(), &["cache-kib=256", &rings]).unwrap();
    let Some(outcome) = run.run(include_str!("physical.sh")) else { return };
    let number = |name| number(&outcome, name);
    let (first, last) = (run.json("first"), run.json("last"));
    println!("samples {}\nreverse map {}", last["hwsample"], last["reverse"]);
    println!("overhead {}\nmover {}\ncounters {}", last["overhead"], last["mover"], last["counters"]);
    assert_eq!(run.json("doctor")["sources"][1]["status"], "usable");
    assert_eq!((number("daemon_status"), number("guest_says")), (0, 1), "nobody lost any data");

    // Nothing but frames led to it.
    assert_eq!((number("hint_faults"), number("kernel_promoted")), (0, 0));
    let useful = count(&last, "/hwsample/samples/useful");
    assert_eq!(count(&last, "/counters/evidence/hw-sample"), useful);
    assert_eq!(count(&last, "/counters/evidence/hint-fault"), 0);
    assert_eq!(count(&last, "/reverse/resolved") + count(&last, "/reverse/unknown"), useful);
    // The rest are files' pages and the kernel's, and those of programs that end within a round.
    assert!(count(&last, "/reverse/resolved") > 10_000, "hardly a frame is anybody's that is known");
    assert_eq!((count(&last, "/reverse/no_room"), count(&last, "/hwsample/malformed")), (0, 0));

    // Hot pages come up and cold ones stay.
    let judged = run.verdict("judged-base");
    println!("{:.0} % hot, {:.0} % cold in DRAM", judged.hot_in_dram * 100.0, judged.cold_in_dram * 100.0);
    assert!(judged.hot_in_dram >= 0.7);
    assert!(judged.hot_in_dram >= judged.cold_in_dram + 0.3, "hot pages are not told from cold ones");
    // So do huge ones, of a process that came later. A cold huge page is sampled as often as hot
    // base pages are, so that it comes up as well.
    let judged = run.verdict("judged-huge");
    println!("{} huge pages, {:.0} % hot in DRAM", number("huge"), judged.hot_in_dram * 100.0);
    assert!(number("huge") >= FOOTPRINT_MIB / 2 / 2, "there were no huge pages to show anything");
    assert!(judged.hot_in_dram >= 0.7);

    // Useful samples are those of the slow node: the more has come up, the fewer there are.
    let lines: Vec<Value> =
        run.text("daemon").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let until = lines.iter().position(|line| line["uptime_ns"] == first["uptime_ns"]).unwrap();
    let befores = std::iter::once(None).chain(lines.iter().map(Some));
    let shares: Vec<(u64, u64)> = befores
        .zip(&lines[..=until])
        .filter_map(|(before, now)| {
            Some((useful_percent(before, now)?, count(now, "/counters/pgpromote_success")))
        })
        .collect();
    println!("useful samples in % and pages promoted, second by second: {shares:?}");
    let (at_first, at_last) = (shares.first().unwrap().0, shares.last().unwrap().0);
    assert!(
        at_last + 20 <= at_first,
        "{at_first} % of the samples were useful at first, {at_last} % at last"
    );

    // Pinned pages were found out and left alone, though samples of them went on coming.
    assert!(number("guest_on_slow") >= PINNED_PAGES, "pinned pages cannot have moved");
    assert!(number("guest_in_dram") >= GUEST_PAGES / 2, "the others can");
    let (pinned, refused) =
        (count(&first, "/counters/failed/pinned"), count(&first, "/counters/refused/pinned"));
    println!("{pinned} times pinned of {PINNED_PAGES} pages, refused {refused} times since");
    assert!(pinned >= PINNED_PAGES / 8 && refused > 0, "{pinned} pinned, {refused} refused");
    // A page that is pinned is left alone for a minute.
    let minutes = count(&last, "/uptime_ns") / 60_000_000_000 + 1;
    let most = PINNED_PAGES * minutes;
    assert!(count(&last, "/counters/failed/pinned") <= most, "pinned pages are tried again and again");

    let status = run.text("status-text");
    assert!(status.contains("by lab rings on 2 CPUs") && status.contains("reverse map: "), "{status}");
    assert!(run.text("explained").contains("sources hw-sample"), "{}", run.text("explained"));
}

#[test]
fn frames_without_a_process_find_their_pages_on_6_12() {
    where_time_is_no_matter(|| frames_without_a_process_find_their_pages(Line::Stable));
}

#[test]
fn frames_without_a_process_find_their_pages_on_the_newest() {
    where_time_is_no_matter(|| frames_without_a_process_find_their_pages(Line::Newest));
}
