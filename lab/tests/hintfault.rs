//! The hint-fault source against the kernel's own figures: how many faults there were, where, and how long after the scan.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use thermocline_lab::{Guest, Line, Machine};

/// The watcher, an example of the crate that it is about, built as this test was.
static WATCHER: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile_folder = Path::new(env!("CARGO_BIN_EXE_lab")).parent().unwrap();
    let profile = match profile_folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "thermocline-linux", "--features", "bpf", "--example", "hintfault"])
        .args(["--profile", profile, "--target-dir"])
        .arg(profile_folder.parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    profile_folder.join("examples/hintfault")
});

/// Watches one program on the slow node, in turn: with the kernel's stamps, for long, with a ring that is too small and read too seldom,
/// and with five scopes at once; then one with huge pages. The kernel's own promotion is off.
const SCRIPT: &str = r#"
    set -e
    # Ten scans a second instead of one: with the usual delays, faults pause for many seconds.
    cd /sys/kernel/debug/sched/numa_balancing
    for knob in scan_delay_ms scan_period_min_ms scan_period_max_ms; do echo 100 >$knob; done
    cd $LAB_SHARE
    sysctl -q kernel.numa_balancing_promote_rate_limit_MBps=0
    sysctl -q kernel.numa_balancing=0
    # start NAME [ARGUMENT...]: a program whose memory is on the slow node, all of it equally hot
    start() {
        name=$1
        shift
        on-slow-node --widen-when "test -e $name" $HOTCOLD --mib 96 --threads 2 --hot-share 0.5 --access-share 0.5 --report $name "$@" \
            >$name.log 2>&1 &
        until [ -e $name ]; do sleep 0.2; done
        pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' $name)
    }

    start base-pages --no-thp
    group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
    $WATCHER --seconds $STAMPS_S --kernel-stamp >stamps &
    watcher=$!
    # Scans begin once all pages are there: those mapped after scans of their range have wrong stamps until they fault.
    until grep -q attached stamps; do sleep 0.2; done
    sysctl -q kernel.numa_balancing=2
    wait $watcher

    $WATCHER --seconds $RATE_S >rate

    $WATCHER --seconds 8 --ring-kib 64 --poll-ms 700 >overload &
    watcher=$!
    until grep -q attached overload; do sleep 0.2; done
    for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done
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
    sysctl -q kernel.numa_balancing=0
    start huge-pages
    $WATCHER --seconds 8 --kernel-stamp >huge &
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
    let guest = Guest::builder()
        .kernel(line)
        .machine(Machine::of_sizes(&[1 << 30, 256 << 20, 1 << 30]))
        .timeout(Some(Duration::from_secs(200)))
        .share(folder)
        .env("HOTCOLD", env!("CARGO_BIN_EXE_hotcold"))
        .env("WATCHER", WATCHER.to_str().unwrap())
        .env("STAMPS_S", "18")
        .env("RATE_S", &std::env::var("THERMOCLINE_HINTFAULT_SECONDS").unwrap_or("15".to_owned()));
    let outcome = match guest.run(SCRIPT) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    println!("{} in {:.1} s", outcome.release, outcome.total.as_secs_f64());

    stamps_are_the_kernels(&summary(folder, "stamps"));
    every_fault_is_seen(&summary(folder, "rate"));
    overload_is_counted(&summary(folder, "overload"));
    scopes_are_kept(|name| summary(folder, name));
    huge_pages_fault_whole(&summary(folder, "huge"));
}

fn stamps_are_the_kernels(seen: &Value) {
    complete(seen);
    let stamps = &seen["kernel_stamp"];
    println!("stamps {stamps}\nlatency {}", seen["latency_ms"]);
    assert!(number(stamps, "/compared") > 20_000.0, "{stamps}");
    // A tick of the kernel's clock, by which it stamps, at 250 Hz.
    assert!(number(stamps, "/within_4ms") >= 0.99, "{stamps}");
    let faults = number(seen, "/stats/delivered");
    assert_eq!(number(seen, "/by_node/2"), faults, "all memory is on node 2: {}", seen["by_node"]);
    assert_eq!(number(seen, "/by_accessor/Some(0)"), faults, "all CPUs are on node 0");
    assert!(number(seen, "/frames/0") > 50.0 && number(seen, "/frames/1") == 0.0, "{}", seen["frames"]);
}

fn every_fault_is_seen(seen: &Value) {
    complete(seen);
    let faults = number(seen, "/stats/seen");
    println!(
        "{:.0} faults/s; BPF {:.0} ns and daemon {:.0} ns a fault",
        faults / number(seen, "/seconds"),
        number(seen, "/stats/bpf_run_time_ns") / faults,
        number(seen, "/daemon_ns_per_fault"),
    );
    assert!(faults > 10_000.0, "{seen}");
    assert!(number(seen, "/stats/dropped") < faults * 0.001, "{seen}");
    assert_eq!(number(seen, "/stats/scans_dropped"), 0.0, "{seen}");
}

fn overload_is_counted(seen: &Value) {
    complete(seen);
    println!("64 KiB: {} of {} dropped", seen["stats"]["dropped"], seen["stats"]["seen"]);
    assert!(number(seen, "/stats/dropped") > 0.0, "the ring was never full: {seen}");
}

fn scopes_are_kept(summary: impl Fn(&str) -> Value) {
    for (name, kept) in
        [("only", true), ("other", false), ("without", false), ("group", true), ("outside", false)]
    {
        let seen = summary(name);
        complete(&seen);
        let (delivered, filtered) = (number(&seen, "/stats/delivered"), number(&seen, "/filtered"));
        assert!(delivered + filtered > 1000.0, "{name}: {seen}");
        let (more, less) = if kept { (delivered, filtered) } else { (filtered, delivered) };
        assert!(less <= more * 0.01, "{name}: {delivered} delivered, {filtered} filtered");
    }
}

fn huge_pages_fault_whole(seen: &Value) {
    complete(seen);
    assert!(number(seen, "/huge") > 0.0, "{seen}");
    assert_eq!(number(seen, "/frames/1"), 0.0, "{}", seen["frames"]);
    assert!(number(seen, "/kernel_stamp/within_4ms") >= 0.99, "{}", seen["kernel_stamp"]);
}

#[test]
fn the_kernel_agrees_on_6_12() {
    the_kernel_agrees(Line::Stable);
}

#[test]
fn the_kernel_agrees_on_the_newest() {
    the_kernel_agrees(Line::Newest);
}
