//! The hint-fault source against the kernel's own figures: how many faults there were, where, and
//! how long after the scan.

#![allow(clippy::unwrap_used)]

mod common;
mod soak;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use soak::where_time_is_no_matter;
use thermocline_lab::{Guest, Line, Machine};

/// Watches one program on the slow node, first with the kernel's stamps, then with five scopes at
/// once; then one with huge pages. The kernel's own promotion is off.
const SCRIPT: &str = r#"
    set -e
    # Ten scans a second instead of one: with the usual delays, faults pause for many seconds.
    cd /sys/kernel/debug/sched/numa_balancing
    for knob in scan_delay_ms scan_period_min_ms scan_period_max_ms; do echo 100 >$knob; done
    # The lab may boot again and begin anew.
    cd $LAB_SHARE && rm -rf ./*
    sysctl -q kernel.numa_balancing_promote_rate_limit_MBps=0
    sysctl -q kernel.numa_balancing=0
    # start NAME [ARGUMENT...]: a program whose memory is on the slow node, all of it equally hot
    start() {
        name=$1
        shift
        on-slow-node --widen-when "test -e $name" $HOTCOLD --mib 96 --threads 2 --hot-share 0.5 --access-share 0.5 \
            --report $name "$@" >$name.log 2>&1 &
        program=$!
        until [ -e $name ]; do sleep 0.2; done
        pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' $name)
    }

    start base-pages --no-thp
    group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
    $WATCHER --seconds 12 --kernel-stamp >stamps &
    watcher=$!
    # Scans begin once all pages are there: those mapped after scans of their range have wrong stamps until they fault.
    until grep -q attached stamps; do sleep 0.2; done
    sysctl -q kernel.numa_balancing=2
    wait $watcher

    $WATCHER --seconds 4 --only $pid >only &
    watchers=$!
    $WATCHER --seconds 4 --only 1 >other &
    watchers="$watchers $!"
    $WATCHER --seconds 4 --without $pid >without &
    watchers="$watchers $!"
    $WATCHER --seconds 4 --only-cgroup $group >group &
    watchers="$watchers $!"
    $WATCHER --seconds 4 --without-cgroup $group >outside &
    for watcher in $watchers $!; do wait $watcher; done

    kill -TERM $pid
    wait $program
    sysctl -q kernel.numa_balancing=0

    # Pages that are accessed once in 18 s, and hot ones beside them, which keep the program running:
    # most scans come to pages that are still marked. Two watchers tell of the same faults.
    on-slow-node --widen-when "test -e slow-pages" $HOTCOLD --mib 32 --hot-share 0.02 --access-share 0.99927 --rate 600000 \
        --no-thp --report slow-pages >slow.log 2>&1 &
    program=$!
    until [ -e slow-pages ]; do sleep 0.2; done
    pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' slow-pages)
    $WATCHER --seconds 9 --only $pid --kernel-stamp >first-stamps &
    watchers=$!
    $WATCHER --seconds 9 --only $pid --kernel-stamp --restamp >latest-stamps &
    watchers="$watchers $!"
    until grep -q attached first-stamps && grep -q attached latest-stamps; do sleep 0.2; done
    sysctl -q kernel.numa_balancing=2
    for watcher in $watchers; do wait $watcher; done
    kill -TERM $pid
    wait $program
    sysctl -q kernel.numa_balancing=0
    # Otherwise the kernel looks for huge pages on the CPU's own node only, which the cpuset forbids, and is content with base pages.
    echo always >/sys/kernel/mm/transparent_hugepage/defrag
    start huge-pages
    $WATCHER --seconds 6 --kernel-stamp >huge &
    watcher=$!
    until grep -q attached huge; do sleep 0.2; done
    sysctl -q kernel.numa_balancing=2
    wait $watcher
    kill -TERM $pid
"#;

/// The summary that the watcher ended with.
fn summary(folder: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let last = text.lines().last().unwrap_or_else(|| panic!("{name} is empty"));
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{name}: {e}: {text}"))
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path}: {value}"))
}

/// What reached user space and what was dropped add up to what the kernel counted.
fn complete(seen: &Value) {
    let counted = number(seen, "/vmstat_hint_faults");
    let (least, most) = (number(seen, "/seen_at_least"), number(seen, "/seen_at_most"));
    assert!(least * 0.999 <= counted && counted <= most * 1.001, "vmstat {counted}, seen {least} to {most}");
    let stat = |name: &str| number(seen, &format!("/stats/{name}"));
    let waiting = stat("ring_waiting_bytes") / 48.0;
    let accounted = stat("delivered") + stat("filtered") + stat("dropped");
    assert!((accounted + waiting - stat("seen")).abs() <= stat("seen") * 0.001 + waiting, "{seen}");
    assert_eq!((stat("malformed"), stat("bpf_missed")), (0.0, 0.0), "{seen}");
}

fn the_kernel_agrees(line: Line) {
    let share = tempfile::Builder::new().prefix("hintfault").tempdir_in("/tmp").unwrap();
    let folder = share.path();
    // Watchers and settings have the kernel patch its code a dozen times, which the emulator does
    // not always survive if another processor runs that code.
    let mut machine = Machine::of_sizes(&[1 << 30, 256 << 20, 1 << 30]);
    machine.set_cpus(&[1]);
    let guest = Guest::builder()
        .kernel(line)
        .machine(machine)
        .timeout(Some(Duration::from_secs(400)))
        .share(folder)
        .env("HOTCOLD", env!("CARGO_BIN_EXE_hotcold"))
        .env("WATCHER", common::example("hintfault").to_str().unwrap());
    let outcome = match guest.run(SCRIPT) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    println!("{} in {:.1} s", outcome.release, outcome.total.as_secs_f64());

    stamps_are_the_kernels(&summary(folder, "stamps"));
    scopes_are_kept(|name| summary(folder, name));
    a_scan_stamps_marked_pages_again_only_where_asked(|name| summary(folder, name));
    huge_pages_fault_whole(&summary(folder, "huge"));
}

fn stamps_are_the_kernels(seen: &Value) {
    complete(seen);
    let stamps = &seen["kernel_stamp"];
    println!("stamps {stamps}\nlatency {}", seen["latency_ms"]);
    assert!(number(stamps, "/compared") > 20_000.0, "{stamps}");
    // The kernel stamps by its ticks, which come every 4 ms, or several at once on a busy host.
    assert!(number(stamps, "/same") >= 0.9 && number(stamps, "/within_100ms") >= 0.98, "{stamps}");
    let faults = number(seen, "/stats/delivered");
    assert_eq!(number(seen, "/by_node/2"), faults, "all memory is on node 2: {}", seen["by_node"]);
    assert_eq!(number(seen, "/by_accessor/Some(0)"), faults, "all CPUs are on node 0");
    frames_are_pagemaps(&seen["frames"], 50.0);
}

/// Pagemap is asked a moment after the fault; the kernel may have moved the page meanwhile.
fn frames_are_pagemaps(frames: &Value, looked_at: f64) {
    let (right, wrong) = (number(frames, "/0"), number(frames, "/1"));
    assert!(right >= looked_at && wrong <= right * 0.02, "{frames}");
}

fn scopes_are_kept(summary: impl Fn(&str) -> Value) {
    for (name, kept) in
        [("only", true), ("other", false), ("without", false), ("group", true), ("outside", false)]
    {
        let seen = summary(name);
        complete(&seen);
        let (passed, filtered) = (number(&seen, "/passed"), number(&seen, "/filtered"));
        assert!(passed + filtered > 1000.0, "{name}: {seen}");
        let (more, less) = if kept { (passed, filtered) } else { (filtered, passed) };
        assert!(less <= more * 0.01, "{name}: {passed} passed, {filtered} filtered");
    }
}

/// The kernel does not stamp a page again that a scan finds marked, and neither do we. With
/// re-stamping a latency is at most the time between two scans, instead of up to the whole time
/// that the page waits. Of waits of 18 s that begin with the first scan and are watched for T
/// seconds, the median is near T / 2; with re-stamping it is half of the second or two between
/// scans.
fn a_scan_stamps_marked_pages_again_only_where_asked(summary: impl Fn(&str) -> Value) {
    let median = |name: &str| {
        let seen = summary(name);
        let (stamps, latency) = (&seen["kernel_stamp"], &seen["latency_ms"]);
        println!("{name}: {stamps}\nlatency {latency}");
        assert!(number(stamps, "/compared") > 1000.0, "{stamps}");
        if name == "first-stamps" {
            assert!(number(stamps, "/within_100ms") >= 0.95, "the kernel keeps the first stamp: {stamps}");
        } else {
            assert!(number(stamps, "/within_100ms") <= 0.7, "most pages were scanned again: {stamps}");
            assert!(number(stamps, "/difference_ms/p10") <= -1000.0, "younger by seconds: {stamps}");
        }
        number(latency, "/p50")
    };
    let (first, latest) = (median("first-stamps"), median("latest-stamps"));
    assert!(latest <= 0.7 * first, "{latest} ms with re-stamping, {first} ms without");
}

fn huge_pages_fault_whole(seen: &Value) {
    complete(seen);
    let stamps = &seen["kernel_stamp"];
    println!("huge pages: {} of {} faults, stamps {stamps}", seen["huge"], seen["stats"]["delivered"]);
    assert!(number(seen, "/huge") > 100.0, "{seen}");
    frames_are_pagemaps(&seen["frames"], 1.0);
    assert!(number(stamps, "/same") >= 0.7 && number(stamps, "/within_100ms") >= 0.98, "{stamps}");
}

#[test]
fn the_kernel_agrees_on_6_12() {
    the_kernel_agrees(Line::Stable);
}

#[test]
fn the_kernel_agrees_on_the_newest() {
    where_time_is_no_matter(|| the_kernel_agrees(Line::Newest));
}

#[test]
fn the_kernel_agrees_on_6_1() {
    where_time_is_no_matter(|| the_kernel_agrees(Line::Debian12));
}

#[test]
fn the_kernel_agrees_on_6_18() {
    where_time_is_no_matter(|| the_kernel_agrees(Line::Longterm));
}
