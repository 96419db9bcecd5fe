//! The plugin's counts are compared with programs whose misses and instructions are known exactly,
//! in a live guest.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thermocline_core::units::{NodeId, PAGE_SHIFT, Pfn};
use thermocline_lab::programs::chase::Chase;
use thermocline_lab::programs::pattern::Outcome;
use thermocline_lab::programs::stream::Streams;
use thermocline_lab::truth::{Counts, Layout, Modelled, attach, by_page, offer_samples, read_dump};
use thermocline_lab::{Guest, Line, Machine};
use thermocline_linux::source::lab_clock::{VcpuTime, Wait};

const PAGES: u64 = 4096;
const LOOPS: u64 = 20_000_000;
/// What a miss on node 2 waits: many times what the emulator needs for one.
const WAIT_NS: u32 = 20_000;

/// Bandwidth of node 2 in the model, GB/s: half of what two processors would ask for that wait 350
/// ns for each line.
const GBPS: f64 = 0.18;
/// The share of a node's bandwidth that the model's queue lets pass.
const FULL: f64 = 0.9;

/// The program whose instructions are known.
fn instructions() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/instructions.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-o"];
    let output = Command::new("cc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// On each node of a machine, and with a page dump from each.
fn pattern_on_every_node(line: Line, gib: &[u64]) {
    let sizes: Vec<u64> = gib.iter().map(|gib| gib << 30).collect();
    let machine = Machine::of_sizes(&sizes);
    let folder = tempfile::Builder::new().prefix("misses").tempdir_in("/tmp").unwrap();
    let guest =
        Guest::builder().kernel(line).machine(machine.clone()).timeout(Some(Duration::from_secs(120)));
    let guest = attach(guest, &machine, folder.path(), &["cache-kib=1024"]).unwrap();
    let hotcold = env!("CARGO_BIN_EXE_hotcold");
    let script = format!(
        "sysctl -q kernel.numa_balancing=0 && for node in 0 1 2; do \
         on-node $node {hotcold} pattern --plugin /dev/virtio-ports/lab.plugin --pages {PAGES} --dump node$node || exit 1; \
         done
         mkfifo /tmp/to /tmp/from
         {program} {LOOPS} </tmp/to >/tmp/from &
         exec 3>/tmp/to 4</tmp/from
         read ranges <&4
         for command in \"program $ranges\" start reset; do misses $command >/dev/null || exit 1; done
         (while :; do :; done) &
         echo >&3
         read done <&4
         misses counts
         echo >&3
         misses latency 0 0 {WAIT_NS} >/dev/null || exit 1
         for node in 0 2; do on-node $node {hotcold} chase || exit 1; done",
        program = instructions().display()
    );
    let outcome = match guest.run(&script) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);

    let layout = Layout::of_machine(&machine).unwrap();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (patterns, &[counts, quick, slow]) = lines.split_last_chunk().unwrap();
    let outcomes: Vec<Outcome> = patterns.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(outcomes.len(), 3);
    for (node, outcome) in outcomes.iter().enumerate() {
        let node = NodeId(node as u16);
        println!("{line}: {node:?}: off by {}", outcome.error);
        assert_eq!(outcome.pages_by_node, BTreeMap::from([(node, PAGES)]));
        assert!(outcome.error <= 0.01, "{outcome:?}");
        assert_eq!((outcome.counts.unresolved, outcome.counts.pages_lost), (0, 0));
        check_dump(&folder.path().join(format!("node{}", node.0)), outcome, node, &layout);
    }

    // Three instructions a loop, while another program keeps both processors busy.
    let counts: Counts = serde_json::from_str(counts).unwrap();
    let (own, all, known) = (counts.program_instructions, counts.instructions, 3 * LOOPS);
    println!("{line}: {own} instructions counted of {known}, {all} of all programs");
    assert!(own.abs_diff(known) * 100 <= known, "{own} instructions instead of {known}");
    assert!(all > known + known / 10, "the other program was not counted: {all}");

    // Every load of a chase through more than the cache waits for its node, and for no other.
    let [quick, slow]: [Chase; 2] = [quick, slow].map(|line| serde_json::from_str(line).unwrap());
    println!("{line}: {:.0} ns a load on node 0, {:.0} ns on node 2", quick.ns_per_load, slow.ns_per_load);
    assert!(slow.ns_per_load >= 0.95 * f64::from(WAIT_NS), "{slow:?}");
    assert!(quick.ns_per_load < 0.5 * f64::from(WAIT_NS), "{quick:?}");
}

/// The dump names exactly the pages that were touched, each with its misses.
fn check_dump(path: &Path, outcome: &Outcome, node: NodeId, layout: &Layout) {
    let dump = read_dump(path).unwrap();
    let first = outcome.base >> PAGE_SHIFT;
    let expected = outcome.loads_per_page + outcome.stores_per_page;
    let mut exact = 0;
    for page in &dump {
        let index = page.vpn.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        let pfn = index.and_then(|index| outcome.pfns.get(index));
        assert_eq!(pfn.map(|&pfn| Pfn(pfn)), Some(page.pfn), "a page that was not touched");
        assert_eq!(layout.node(page.pfn), Some(node));
        exact += u64::from(
            (page.load_misses, page.store_misses) == (outcome.loads_per_page, outcome.stores_per_page),
        );
    }
    assert_eq!(dump.len() as u64, PAGES);
    assert!(
        exact * 100 >= PAGES * 99,
        "{exact} of {PAGES} pages have exactly the misses that they must have"
    );
    let misses: u64 = by_page(&dump, first, first + PAGES).values().sum();
    assert!(misses.abs_diff(PAGES * expected) * 100 <= PAGES * expected);
}

#[test]
fn counts_a_known_pattern_on_the_stable_kernel() {
    pattern_on_every_node(Line::Stable, &[1, 1, 1]);
}

#[test]
fn counts_a_known_pattern_on_the_newest_kernel_across_the_hole() {
    // Node 0 is cut in two by the hole below 4 GiB.
    pattern_on_every_node(Line::Newest, &[3, 1, 1]);
}

/// Whether `value` is `expected` or up to 4 % more: the instructions of a loop around each miss
/// take a ns or two.
fn is_about(value: f64, expected: f64) -> bool {
    (expected..1.04 * expected).contains(&value)
}

/// Modelled time follows the settings, and the guest reads the same times as the host.
#[test]
fn modelled_time_is_what_the_model_says() {
    let machine = Machine::default();
    let folder = tempfile::Builder::new().prefix("modelled").tempdir_in("/tmp").unwrap();
    let (guest, ring) = offer_samples(Guest::builder(), folder.path());
    let guest = guest.machine(machine.clone()).timeout(Some(Duration::from_secs(150)));
    let guest = attach(guest, &machine, folder.path(), &["cache-kib=1024", &ring]).unwrap();
    let hotcold = env!("CARGO_BIN_EXE_hotcold");
    let script = format!(
        "sysctl -q kernel.numa_balancing=0
         told() {{ misses \"$@\" >/dev/null || exit 1; }}
         {hotcold} time 2>/dev/null && exit 1
         told model 0.333333 100:200 180:100 350:30
         told start
         for node in 0 2; do on-node $node {hotcold} chase || exit 1; done
         told model 0.333333 100:200 180:100 350:{GBPS}
         on-node 2 {hotcold} stream || exit 1
         on-node 0 {hotcold} stream || exit 1
         told stop
         {hotcold} time && misses counts && misses model none && misses counts"
    );
    let outcome = match guest.run(&script) {
        Err(error) if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() => {
            return println!("skipped: {error}");
        }
        outcome => outcome.unwrap(),
    };
    println!("{:.0} s\n{}", outcome.total.as_secs_f64(), outcome.stdout);
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [quick, slow, narrow, wide, time, counts, _, off] = lines[..] else { panic!("{lines:?}") };

    // A load that needs the one before it takes its node's latency, whatever the emulator takes.
    let [quick, slow]: [Chase; 2] = [quick, slow].map(|line| serde_json::from_str(line).unwrap());
    assert!(is_about(quick.modelled_ns_per_load.unwrap(), 100.0), "{quick:?}");
    assert!(is_about(slow.modelled_ns_per_load.unwrap(), 350.0), "{slow:?}");

    // Two processors get of the slow node what it has, each as much as the other; on the fast one
    // they wait for its latency alone.
    let [narrow, wide]: [Streams; 2] = [narrow, wide].map(|line| serde_json::from_str(line).unwrap());
    assert!((narrow.gbps / (FULL * GBPS) - 1.0).abs() < 0.04, "{narrow:?}");
    for stream in &narrow.streams {
        assert!(
            (stream.gbps / narrow.gbps - 0.5).abs() < 0.03 && stream.queueing_ns_per_line > 300.0,
            "{narrow:?}"
        );
    }
    for stream in &wide.streams {
        // Eight loads of each line take some thirty instructions.
        assert!(
            (100.0..125.0).contains(&stream.ns_per_line) && stream.queueing_ns_per_line < 1.0,
            "{wide:?}"
        );
    }

    // While nothing is counted, both see the same clocks, but for fractions of a ns.
    let vcpus: Vec<VcpuTime> = serde_json::from_str(time).unwrap();
    let counts: Counts = serde_json::from_str(counts).unwrap();
    let modelled: Modelled = counts.modelled.unwrap();
    let sum = |of: fn(&VcpuTime) -> u64| vcpus.iter().map(of).sum::<u64>();
    assert_eq!(vcpus.len(), 2);
    assert!(sum(|vcpu| vcpu.ns).abs_diff(modelled.ns) < 10, "{vcpus:?} {modelled:?}");
    assert!(sum(|vcpu| vcpu.reference_ns).abs_diff(modelled.reference_ns) < 10, "{vcpus:?} {modelled:?}");
    for (number, node) in counts.nodes.iter().enumerate() {
        let of = |of: fn(&Wait) -> u64| -> u64 { vcpus.iter().map(|vcpu| of(&vcpu.nodes[number])).sum() };
        assert!(of(|wait| wait.latency_ns).abs_diff(node.latency_ns) < 10, "{vcpus:?} {counts:?}");
        assert!(of(|wait| wait.queueing_ns).abs_diff(node.queueing_ns) < 10, "{vcpus:?} {counts:?}");
        // What is counted waited for the latency that was asked for.
        let [latency_ns, misses] = [node.latency_ns, node.misses()];
        assert_eq!(latency_ns, misses * [100, 180, 350][number], "node {number}: {counts:?}");
    }
    assert!(modelled.ns > modelled.reference_ns && modelled.reference_ns > 0, "{modelled:?}");
    let off: Counts = serde_json::from_str(off).unwrap();
    assert_eq!((off.modelled, off.misses()), (None, 0));
}
