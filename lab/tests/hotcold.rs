//! One guest in which everything about the workload is known beforehand: the program, its judge,
//! the plugin and the oracle must all say the same.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use thermocline_core::units::{NodeId, PAGE_SHIFT};
use thermocline_lab::programs::judge::{Moves, Verdict};
use thermocline_lab::programs::read_json;
use thermocline_lab::programs::report::Report;
use thermocline_lab::truth::{Counts, attach, best_static, by_page, read_dump, served_share};
use thermocline_lab::{Guest, Machine};

const MIB: u64 = 64;
const PAGES: u64 = MIB * 256;
const SLOW: NodeId = NodeId(2);

/// hotcold runs on the slow node, is counted there, is moved to node 0 as a whole by
/// migratepages(8), and is counted there.
const SCRIPT: &str = r#"
    set -e
    sysctl -q kernel.numa_balancing=0
    # The lab may boot again and begin anew.
    cd $LAB_SHARE && rm -f report
    on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 64 --report report >log 2>errors &
    until [ -e report ]; do sleep 0.2; done
    field() { sed "s/.*\"$1\":\([0-9]*\).*/\1/" report; }
    pid=$(field pid)
    group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
    until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
    $HOTCOLD judge --report report --save snapshot >judged-slow
    misses filter $(printf '%x %x' $(field base) $(($(field base) + (64 << 20)))) >/dev/null
    count() { misses reset; sleep 4; misses stop; misses counts >counts-$1; misses pages pages-$1; misses start; }
    misses start >/dev/null
    count slow >/dev/null
    migratepages $pid 2 0
    count fast >/dev/null
    $HOTCOLD judge --report report --before snapshot >judged-fast
    kill -TERM $pid
    wait $!
"#;

fn placed(verdict: &Verdict, node: NodeId) {
    assert_eq!(verdict.hot.by_node, BTreeMap::from([(node, PAGES / 5 + 1)]));
    assert_eq!(verdict.cold.by_node, BTreeMap::from([(node, PAGES - PAGES / 5 - 1)]));
    assert_eq!(verdict.cross_check.difference, 0.0, "{:?}", verdict.cross_check);
}

/// The counts are all on `node`, and the hot pages take their share of them.
fn counted(folder: &Path, place: &str, node: NodeId, report: &Report) {
    let counts: Counts = read_json(&folder.join(format!("counts-{place}"))).unwrap();
    assert!(counts.misses() > 100_000, "{counts:?}");
    assert_eq!(counts.share(&[node]), Some(1.0), "{counts:?}");
    let dump = read_dump(&folder.join(format!("pages-{place}"))).unwrap();
    let first = report.base >> PAGE_SHIFT;
    let pages = by_page(&dump, first, first + PAGES);
    assert_eq!(pages.values().sum::<u64>(), counts.misses());

    let hot = report.is_hot().unwrap();
    let hot_pages = hot.iter().filter(|&&hot| hot).count();
    let share = served_share(pages.iter().map(|(&page, &misses)| (page, misses)), |&page| {
        hot[(page - first) as usize]
    });
    let best = best_static(pages.values().copied(), hot_pages);
    println!("{place}: {} misses, hot share {share:?}, best static {best:?}", counts.misses());
    // 0.9 of the accesses, less what of the hot pages stays in the cache of 256 KiB (2 % of them).
    let (share, best) = (share.unwrap(), best.unwrap());
    assert!((0.885..0.905).contains(&share), "{share}");
    // With the counts at hand the oracle can only do better, and only by the luck of the draw.
    assert!((share..share + 0.01).contains(&best), "{share} {best}");
}

#[test]
fn program_judge_plugin_and_oracle_agree() {
    let machine = Machine::default();
    let share = tempfile::Builder::new().prefix("hotcold").tempdir_in("/tmp").unwrap();
    let folder = share.path();
    let guest = Guest::builder()
        .machine(machine.clone())
        .timeout(Some(Duration::from_secs(100)))
        .share(folder)
        .env("HOTCOLD", env!("CARGO_BIN_EXE_hotcold"));
    let guest = attach(guest, &machine, folder, &["cache-kib=256"]).unwrap();
    let outcome = match guest.run(SCRIPT) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    let log = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert_eq!(outcome.status, 0, "{}{}{}{}", outcome.stdout, outcome.stderr, log("log"), log("errors"));
    assert!(log("log").contains(r#""event":"summary""#), "{}", log("log"));

    let report: Report = read_json(&folder.join("report")).unwrap();
    let slow: Verdict = read_json(&folder.join("judged-slow")).unwrap();
    placed(&slow, SLOW);
    assert_eq!((slow.hot_in_dram, slow.moved), (0.0, None));
    counted(folder, "slow", SLOW, &report);

    let fast: Verdict = read_json(&folder.join("judged-fast")).unwrap();
    placed(&fast, NodeId(0));
    let all = Moves { pages: PAGES, hot: PAGES / 5 + 1 };
    let moved = fast.moved.unwrap();
    assert_eq!((fast.hot_in_dram, moved.all, moved.promoted), (1.0, all, all));
    assert_eq!(moved.routes, BTreeMap::from([("2>0".to_owned(), all)]));
    counted(folder, "fast", NodeId(0), &report);
}
