//! Whatever is simulated: the books balance, and equal inputs give equal bits.

use proptest::prelude::*;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run, run_all};
use thermocline_sim::scenario::Setup;

/// A small scenario with these choices.
fn scenario(
    dram_mib: u64,
    threads: u32,
    chunk: bool,
    kernel: (u64, u64, u64),
    processes: usize,
    more: &str,
) -> Setup {
    let pattern = if chunk {
        "{ kind = \"chunk-random\", chunk = \"2MiB\", accesses_per_page = 20.0, visits = 30 }"
    } else {
        "{ kind = \"uniform\", accesses = 200000 }"
    };
    let (scan_mb, delay_ms, limit_mbps) = kernel;
    let process = format!(
        "[[process]]\nname = \"p\"\nthreads = {threads}\nnode = 0\nfootprint = \"48MiB\"\n\
         place = [{{ node = 0 }}, {{ node = 1 }}]\npattern = {pattern}\npopulate_page_ns = 500.0\n{more}\n"
    );
    let text = format!(
        "name = \"any\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"5s\"\n[kernel]\nscan_size_mb = {scan_mb}\n\
         scan_delay_ms = {delay_ms}\nhot_threshold_ms = {delay_ms}\npromote_rate_limit_mbps = {limit_mbps}\n{}",
        process.repeat(processes)
    );
    let changes = [
        format!("machine.node.0.memory=\"{dram_mib}MiB\""),
        "machine.node.1.memory=\"256MiB\"".to_owned(),
        "machine.min_free=\"256KiB\"".to_owned(),
        "machine.hz=1000".to_owned(),
        "config.kernel.numa_balancing_promote_rate_limit_mbps=1".to_owned(),
        "config.kernel.scan_period_min_ms=100".to_owned(),
    ];
    Setup::parse("any", &text, &changes).expect("a sound scenario")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every run checks its conservation laws itself, and the engine's; here they meet any kind of
    /// machine.
    #[test]
    fn the_books_balance(
        dram_mib in 8u64..160, threads in 1u32..5, chunk: bool, exact: bool, processes in 1usize..4,
        kernel in (1u64..64, 8u64..100, prop_oneof![Just(0u64), 1u64..100, Just(65_536)]),
        manager in 0usize..ManagerName::all().len(), seed: u64, huge: bool, reclaim: bool, together: bool,
    ) {
        let mut more = format!("huge_pages = {huge}\ntogether = {together}\n");
        if reclaim {
            more += "reclaim = { every = \"50ms\", size = \"1MiB\" }";
        }
        let setup = scenario(dram_mib, threads, chunk, kernel, processes, &more);
        let manager = ManagerName::all()[manager];
        let mode = if exact { ModeName::Exact } else { ModeName::Event };
        let report = run(&setup, Arm { manager, mode, seed });
        prop_assert!(report.is_ok(), "{}", report.err().map_or(String::new(), |e| e.to_string()));
    }
}

#[test]
fn equal_seeds_give_equal_bits_on_any_number_of_cores() {
    let setup = scenario(40, 3, true, (8, 20, 65_536), 2, "");
    let arms: Vec<Arm> = ["numab2", "thermocline:adaptive"]
        .iter()
        .flat_map(|name| [(name, ModeName::Exact), (name, ModeName::Event)])
        .flat_map(|(name, mode)| {
            let manager = ManagerName::parse(name).expect("a manager");
            (1..4).map(move |seed| Arm { manager, mode, seed })
        })
        .collect();
    let on = |cores: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(cores).build().expect("threads can be made");
        let reports = pool.install(|| run_all(&setup, &arms));
        let text =
            |r: &Result<_, _>| serde_json::to_string(r.as_ref().expect("it runs")).expect("it can be told");
        reports.iter().map(text).collect::<Vec<String>>()
    };
    let one = on(1);
    assert_eq!(one, on(1));
    assert_eq!(one, on(4));
    assert_ne!(one[0], one[1], "another seed is another run");
}
