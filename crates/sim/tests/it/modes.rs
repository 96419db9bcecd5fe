//! Event mode against exact mode, on a machine that is small enough for both.

use thermocline_sim::scenario::Setup;

use crate::paired::compare;

/// A small machine with 128 MiB of DRAM, scanned fast, and these processes (TOML).
///
/// The scan period has no room to adapt: whether a pass just ends before a promotion or just after
/// it doubles the period or does not, so that a pair of runs that differs by microseconds could
/// part for good. One pair in sixteen did.
pub fn small(processes: &str) -> Setup {
    let text = format!(
        "name = \"pair\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"2min\"\n\
         [kernel]\nscan_delay_ms = 40\nscan_size_mb = 16\nscan_period_max_ms = 1000\nhot_threshold_ms = 40\n{processes}"
    );
    let changes = [
        "machine.node.0.memory=\"128MiB\"",
        "machine.node.1.memory=\"512MiB\"",
        "machine.min_free=\"1MiB\"",
        "machine.hz=1000",
    ];
    Setup::parse("test", &text, &changes.map(str::to_owned)).expect("a sound scenario")
}

/// A process of 256 MiB with this pattern.
pub fn process(threads: u32, pattern: &str, more: &str) -> String {
    format!(
        "[[process]]\nname = \"p\"\nthreads = {threads}\nnode = 0\nfootprint = \"256MiB\"\n\
         place = [{{ node = 0 }}, {{ node = 1 }}]\npattern = {pattern}\n{more}\n"
    )
}

#[test]
fn chunk_random() {
    // With eight threads it is chance which chunks a scan meets while they are visited: many short
    // visits even that out.
    for (threads, chunk, visits) in [(1, "8MiB", 200), (8, "1MiB", 500)] {
        let pattern = format!(
            "{{ kind = \"chunk-random\", chunk = \"{chunk}\", accesses_per_page = 60.0, visits = {visits} }}"
        );
        let setup = small(&process(threads, &pattern, ""));
        compare(&format!("chunk-random, {threads} threads"), &setup, "numab2");
    }
}

#[test]
fn chunk_random_by_fault_count_and_by_the_engine() {
    let pattern = "{ kind = \"chunk-random\", chunk = \"8MiB\", accesses_per_page = 60.0, visits = 25 }";
    let mut setup = small(&process(8, pattern, ""));
    setup.scenario.kernel.fault_count_threshold = 200_000;
    compare("chunk-random, fault count", &setup, "fault-count");
    // The kernel may promote a page a second or so: its failures keep kswapd making room for the
    // engine.
    setup.scenario.config.kernel.numa_balancing_promote_rate_limit_mbps = Some(1);
    setup.scenario.config.kernel.scan_period_min_ms = Some(1000);
    compare("chunk-random, thermocline", &setup, "thermocline:latency");
}

#[test]
fn uniform() {
    for (threads, accesses) in [(1, 20_000_000), (8, 2_500_000)] {
        let pattern = format!("{{ kind = \"uniform\", accesses = {accesses} }}");
        let setup = small(&process(threads, &pattern, ""));
        compare(&format!("uniform, {threads} threads"), &setup, "numab2");
    }
}

#[test]
fn pauses() {
    for busy in [false, true] {
        let think = format!("think = {{ after = 1000, time = \"100us\", busy = {busy} }}");
        let setup = small(&process(4, "{ kind = \"uniform\", accesses = 6000000 }", &think));
        compare(&format!("uniform with pauses, busy: {busy}"), &setup, "numab2");
    }
}

#[test]
fn two_processes() {
    let chunks = "{ kind = \"chunk-random\", chunk = \"8MiB\", accesses_per_page = 60.0, visits = 40 }";
    for threads in [1, 8] {
        let all = process(threads, chunks, "")
            + &process(
                threads,
                &format!("{{ kind = \"uniform\", accesses = {} }}", 10_000_000 / threads),
                "",
            );
        // Each gets half of the footprint.
        let setup = small(&all.replace("256MiB", "128MiB"));
        compare(&format!("two processes, {threads} threads each"), &setup, "numab2");
    }
}

#[test]
fn huge_pages() {
    let setup = small(&process(4, "{ kind = \"uniform\", accesses = 3000000 }", "huge_pages = true"));
    compare("huge pages", &setup, "numab2");
}
