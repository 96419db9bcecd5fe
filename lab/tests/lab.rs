//! Tests that boot guests. One guest runs at a time on the machine, so each test asks as much of
//! its guest as it can.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thermocline_lab::{End, Error, Guest, GuestBuilder, Line, Machine, NodeSpec, Outcome, ThpMode};

/// A guest that no test keeps for long.
fn guest() -> GuestBuilder {
    Guest::builder().timeout(Some(Duration::from_secs(100)))
}

/// Boots and runs; where this machine cannot run guests at all, says why and gives nothing.
fn boot(guest: &GuestBuilder, script: &str) -> Option<Result<Outcome, Error>> {
    match guest.run(script) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            eprintln!("skipped: {error}");
            None
        }
        result => Some(result),
    }
}

/// The values of a script's `name=value` lines.
fn values(outcome: &Outcome) -> BTreeMap<&str, &str> {
    outcome.stdout.lines().filter_map(|line| line.split_once('=')).collect()
}

const TIERS: &str = "
    cd /sys/devices/virtual/memory_tiering
    echo tiers=$(cat */nodelist | sort | tr '\\n' ' ')
";

/// A program of 100 MiB (Perl keeps two copies) that touches a byte of each page for ever.
const TOUCHES: &str = r#"perl -e '$x = "x" x (100 << 20); print STDERR "loaded\n"; close STDERR;
    for (;;) { for ($i = 0; $i < length $x; $i += 4096) { $s += ord substr $x, $i, 1 } }'"#;

fn a_kernel_boots_with_tiers_and_takes_hint_faults(line: Line, release_prefix: &str) {
    let folder = tempfile::tempdir().unwrap();
    let guest = guest().kernel(line).share(folder.path()).env("GREETING", "it's here");
    let script = format!(
        r#"
        {TIERS}
        echo release=$(uname -r)
        echo cpus=$(cat /sys/devices/system/node/node0/cpulist)
        echo thp=$(grep -o '\[.*\]' /sys/kernel/mm/transparent_hugepage/enabled)
        echo distances=$(cat /sys/devices/system/node/node0/distance)
        echo greeting=$GREETING
        echo mounts=$(awk '{{print $3}}' /proc/mounts | sort -u | tr '\n' ' ')
        echo controllers=$(cat /sys/fs/cgroup/cgroup.subtree_control)
        echo loopback=$(cat /sys/class/net/lo/flags)
        echo module=$(modinfo -F name overlay)
        echo written >/etc/only-in-the-guest && echo overlay=$(cat /etc/only-in-the-guest)
        uname -r >$LAB_SHARE/from-the-guest
        echo reopened >/dev/stderr

        sysctl -qw kernel.numa_balancing=2 kernel.numa_balancing_promote_rate_limit_MBps=0
        mkfifo /tmp/ready
        on-slow-node --widen-when 'test -e /tmp/widen' {TOUCHES} 2>/tmp/ready &
        pid=$!
        read -r _ </tmp/ready
        group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
        echo mems_before=$(cat $group/cpuset.mems.effective)
        touch /tmp/widen
        until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
        maps() {{ grep -o ' default anon=[0-9]*.*' /proc/$pid/numa_maps | tr ' ' '\n' | awk -F= -v n=$1 '$1 == n {{ s += $2 }} END {{ print s + 0 }}'; }}
        echo policies=$(awk '{{print $2}}' /proc/$pid/numa_maps | sort -u)
        echo slow_pages=$(maps N2)
        count() {{ awk -v n=$1 '$1 == n {{ print $2 }}' /proc/vmstat; }}
        before=$(count numa_hint_faults)
        for second in 1 2 3 4 5 6 7 8 9 10; do
            sleep 1
            [ $(($(count numa_hint_faults) - before)) -gt 10000 ] && break
        done
        echo hint_faults=$(($(count numa_hint_faults) - before))
        echo promoted=$(count pgpromote_success)
        echo slow_pages_after=$(maps N2)
        exit 7
        "#
    );
    let Some(outcome) = boot(&guest, &script) else { return };
    let outcome = outcome.unwrap();
    eprintln!(
        "{}\n{}\nbooted in {:?}, {:?} in all",
        outcome.stdout, outcome.stderr, outcome.boot, outcome.total
    );

    assert_eq!(outcome.status, 7);
    assert!(outcome.stderr.contains("reopened\n"), "{}", outcome.stderr);
    assert!(outcome.boot < Duration::from_secs(20), "the boot took {:?}", outcome.boot);
    let is = values(&outcome);
    assert_eq!(is["tiers"], "0-1 2");
    assert_eq!(is["release"], outcome.release);
    assert!(outcome.release.starts_with(release_prefix));
    assert_eq!(is["cpus"], "0-1");
    assert_eq!(is["thp"], "[always]");
    assert_eq!(is["distances"], "10 12 35");
    assert_eq!(is["greeting"], "it's here");
    assert_eq!(is["module"], "overlay");
    assert_eq!(is["overlay"], "written");
    assert_eq!(is["loopback"], "0x9");
    for mount in ["bpf", "cgroup2", "debugfs", "devpts", "devtmpfs", "proc", "sysfs", "tmpfs", "tracefs"] {
        assert!(
            is["mounts"].split(' ').any(|word| word == mount),
            "{mount} is not mounted: {}",
            is["mounts"]
        );
    }
    for controller in ["cpuset", "memory"] {
        assert!(is["controllers"].contains(controller), "{}", is["controllers"]);
    }
    assert!(!std::path::Path::new("/etc/only-in-the-guest").exists());
    let shared = std::fs::read_to_string(folder.path().join("from-the-guest")).unwrap();
    assert_eq!(shared.trim(), outcome.release);

    let number = |name: &str| is[name].parse::<u64>().unwrap();
    assert_eq!(is["mems_before"], "2");
    assert_eq!(is["policies"], "default");
    assert!(number("slow_pages") >= 100 << 8, "100 MiB are on the slow node");
    assert!(number("hint_faults") > 10_000);
    assert_eq!(
        number("promoted"),
        0,
        "the rate limit of 0 and a node 0 of 1 GiB leave the kernel no promotion"
    );
    assert!(number("slow_pages_after") >= number("slow_pages"));
}

#[test]
fn kernel_6_12_boots_with_tiers_and_takes_hint_faults() {
    a_kernel_boots_with_tiers_and_takes_hint_faults(Line::Stable, "6.12.");
}

#[test]
fn the_newest_kernel_boots_with_tiers_and_takes_hint_faults() {
    a_kernel_boots_with_tiers_and_takes_hint_faults(Line::Newest, "");
}

#[test]
fn a_large_node_0_opens_the_free_space_path() {
    let machine = Machine::of_sizes(&[3 << 30, 1 << 30, 1 << 30]);
    let script = format!(
        "sysctl -qw kernel.numa_balancing=2 kernel.numa_balancing_promote_rate_limit_MBps=0
        on-slow-node --widen-after 8 {TOUCHES} &
        for second in $(seq 60); do
            sleep 1
            promoted=$(awk '/^pgpromote_success/ {{ print $2 }}' /proc/vmstat)
            [ $promoted -gt 1000 ] && break
        done
        echo promoted=$promoted"
    );
    let Some(outcome) = boot(&guest().kernel(Line::Newest).machine(machine), &script) else { return };
    let outcome = outcome.unwrap();
    let promoted: u64 = values(&outcome)["promoted"].parse().unwrap();
    assert!(promoted > 1000, "the kernel promoted {promoted} pages at their first fault");
}

#[test]
fn without_hmat_all_nodes_are_one_tier() {
    let machine = Machine { tiers: false, ..Machine::default() };
    let Some(outcome) = boot(
        &guest().machine(machine).thp(ThpMode::Never),
        &format!("{TIERS}\necho thp=$(grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/enabled)"),
    ) else {
        return;
    };
    let outcome = outcome.unwrap();
    assert_eq!(values(&outcome)["tiers"], "0-2");
    assert_eq!(values(&outcome)["thp"], "[never]");
}

#[test]
fn sizes_sockets_and_speeds_are_parameters() {
    let middle = NodeSpec { latency_ns: 180, bandwidth_gbps: 100, ..NodeSpec::dram(512 << 20, 0) };
    let nodes =
        vec![NodeSpec::dram(1 << 30, 1), NodeSpec::dram(512 << 20, 1), middle, NodeSpec::cxl(2 << 30)];
    let script = format!(
        "{TIERS}
        cd /sys/devices/system/node
        echo cpus=$(cat node*/cpulist | tr '\\n' ' ')
        echo distances=$(cat node1/distance)
        echo latency=$(cat node3/access0/initiators/read_latency)
        echo bandwidth=$(cat node3/access0/initiators/read_bandwidth)
        awk '/^Node/ {{ node = $2 + 0 }} $1 == \"present\" {{ pages[node] += $2 }}
            END {{ for (node in pages) print \"mib\" node \"=\" int(pages[node] / 256) }}' /proc/zoneinfo"
    );
    let Some(outcome) = boot(&guest().machine(Machine { nodes, tiers: true }), &script) else {
        return;
    };
    let outcome = outcome.unwrap();
    let is = values(&outcome);
    eprintln!("{is:?}");
    assert_eq!(is["tiers"], "0-1 2 3");
    assert_eq!(is["cpus"].trim(), "0 1");
    assert_eq!(is["distances"], "18 10 18 35");
    assert_eq!((is["latency"], is["bandwidth"]), ("350", "30000"));
    // What is present, not MemTotal: a kernel puts its own image, up to 100 MiB, at a random place
    // in any node.
    for (name, mib) in [("mib0", 1024_u64), ("mib1", 512), ("mib2", 512), ("mib3", 2048)] {
        let seen: u64 = is[name].parse().unwrap();
        assert!(seen <= mib && seen + 4 >= mib, "{name}: {seen} of {mib}");
    }
}

#[test]
fn output_is_whole_and_what_a_command_leaves_running_is_ended() {
    let script = "sleep 1000 & perl -e 'print join(qq(\\n), 1 .. 500_000), qq(\\n)'; echo to stderr >&2; kill -TERM $$";
    let started = Instant::now();
    let Some(outcome) = boot(&guest(), script) else { return };
    let outcome = outcome.unwrap();
    assert_eq!(outcome.status, 128 + 15);
    assert_eq!(outcome.stderr, "to stderr\n");
    assert_eq!(outcome.dropped_bytes, 0);
    let expected: String = (1..=500_000).map(|n| format!("{n}\n")).collect();
    assert!(outcome.stdout == expected, "{} bytes came, {} were sent", outcome.stdout.len(), expected.len());
    assert!(started.elapsed() < Duration::from_secs(200));
}

#[test]
fn a_hung_guest_is_ended_and_a_panic_is_told_apart() {
    let limit = Duration::from_secs(20);
    let started = Instant::now();
    let limited = guest().timeout(Some(limit));
    let Some(hung) = boot(&limited, "echo 'about to hang' >/dev/kmsg; sleep 1000") else { return };
    match hung.unwrap_err() {
        Error::Guest { end, console } => {
            assert_eq!(end, End::TimedOut(limit));
            assert!(console.contains("about to hang"), "{console}");
        }
        other => panic!("{other}"),
    }
    assert!(started.elapsed() >= limit);

    let Some(panicked) = boot(&guest(), "echo c >/proc/sysrq-trigger") else { return };
    match panicked.unwrap_err() {
        Error::Guest { end, console } => {
            assert_eq!(end, End::Panicked);
            assert!(console.contains("Kernel panic"), "{console}");
        }
        other => panic!("{other}"),
    }
}

/// The processes whose command line has a word, by the host's own view.
fn processes_with(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains("qemu-system") && line.contains(word) {
            found.push(line);
        }
    }
    found
}

#[test]
fn no_emulator_outlives_the_command() {
    for (signal, status) in [("TERM", Some(130)), ("KILL", None)] {
        // The word on the kernel's command line is what the emulator is known by.
        let word = format!("lab.test={signal}-{}", std::process::id());
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"))
            .args(["run", "--append", &word, "--", "sh", "-c", "echo up; sleep 1000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(lab.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let output = lab.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("not installed") || said.contains("no kernel"), "{said}");
            eprintln!("skipped: {said}");
            return;
        }
        assert_eq!(line, "up\n");
        assert_eq!(processes_with(&word).len(), 1);
        Command::new("kill").args([&format!("-{signal}"), &lab.id().to_string()]).status().unwrap();
        assert_eq!(lab.wait().unwrap().code(), status);
        let gone = Instant::now() + Duration::from_secs(5);
        while !processes_with(&word).is_empty() {
            assert!(Instant::now() < gone, "still there: {:?}", processes_with(&word));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
