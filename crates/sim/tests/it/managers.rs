//! Managers and kernel models against arithmetic.

use thermocline_core::published::window::adjust;
use thermocline_sim::mode::ModeName;

use crate::truths::{MARKED_ONCE, MODES, PAGES, SMALL, setup, simulate};

/// Faults that a stream from page `first` takes, round and round through memory that is all marked:
/// the others are handled with them.
fn faults_of_a_stream(first: u64) -> u64 {
    let pages = PAGES as u64;
    let (mut window, mut faults, mut handled) = (None, 0, vec![false; pages as usize]);
    for page in (first..pages).chain(0..first) {
        if std::mem::replace(&mut handled[page as usize], true) {
            continue;
        }
        faults += 1;
        let end = (page / 512 + 1) * 512;
        let next = adjust(window, page, end - page - 1);
        for ahead in next.ahead().filter(|ahead| *ahead < end) {
            if std::mem::replace(&mut handled[ahead as usize], true) {
                break;
            }
        }
        window = Some(next);
    }
    faults
}

#[test]
fn speculation_takes_the_faults_that_its_windows_leave() {
    let process = "threads = 1\nfootprint = \"16MiB\"\nplace = [{ node = 1 }]\n\
                   pattern = { kind = \"stream\", passes = 3.0 }";
    let setup = setup(process, MARKED_ONCE, &[]);
    // The scan comes when the stream is somewhere near page 2500: 64 accesses a page, 250 ns each,
    // 40 ms.
    let expected: Vec<u64> = (2300..2900).map(faults_of_a_stream).collect();
    for mode in MODES {
        let found = simulate(&setup, "speculative", mode, 1).counters;
        assert_eq!(found.numa_hint_faults + found.handled_ahead, PAGES as u64, "{mode:?}");
        assert_eq!(found.pgpromote_success, PAGES as u64, "DRAM has room for all");
        assert!(expected.contains(&found.numa_hint_faults), "{mode:?}: {}", found.numa_hint_faults);
        assert!(simulate(&setup, "numab2", mode, 1).counters.numa_hint_faults == PAGES as u64);
    }
}

#[test]
fn device_counters_list_what_was_sampled() {
    let process = "threads = 1\nfootprint = \"16MiB\"\nplace = [{ node = 1 }]\n\
                   pattern = { kind = \"uniform\", accesses = 420000 }";
    let kernel = "chmu_epoch_ms = 100\nchmu_downsampling = 64\nchmu_threshold = 1";
    let setup = setup(process, kernel, &[]);
    // 100 ms are 400,000 accesses, of which one in 64 is counted; what is left after the first
    // epoch is too short for a second.
    let counted = 400_000.0 / 64.0 / PAGES;
    let expected = PAGES * (1.0 - (-counted).exp());
    for mode in MODES {
        let promoted = |seed| simulate(&setup, "chmu", mode, seed).counters.other_promoted as f64;
        let mean = (1..=16).map(promoted).sum::<f64>() / 16.0;
        assert!(
            (mean - expected).abs() < 4.0 * (expected / 16.0).sqrt() + 2.0,
            "{mode:?}: {mean}, not {expected}"
        );
    }
}

#[test]
fn memory_reclaim_demotes_what_it_finds_unused_at_its_second_look() {
    let idle = "[[process]]\nname = \"idle\"\nthreads = 0\nnode = 0\nfootprint = \"4000KiB\"\nplace = [{ node = 0 }]\n\
                background = true\npattern = { kind = \"idle\" }\nreclaim = { every = \"1s\", size = \"1MiB\" }\n";
    // Each page is taken for accessed at first, by its allocation; then 256 go a second, until none
    // of the 1000 is left.
    for (seconds, demoted) in [(1.5, 0), (2.5, 256), (4.5, 768), (6.5, 1000)] {
        let accesses = (seconds * 1e9 / 100.0) as u64;
        let process = format!(
            "threads = 1\nfootprint = \"1MiB\"\nplace = [{{ node = 0 }}]\n\
             pattern = {{ kind = \"uniform\", accesses = {accesses} }}\n{idle}"
        );
        let report = simulate(&setup(&process, "", &[]), "none", ModeName::Event, 1);
        assert_eq!(report.counters.pgdemote_other, demoted, "after {seconds} s");
    }
}

#[test]
fn the_engine_leaves_an_excluded_scope_alone() {
    let process = |name: &str| {
        format!(
            "[[process]]\nname = \"{name}\"\nthreads = 1\nnode = 0\nfootprint = \"32MiB\"\nplace = [{{ node = 1 }}]\n\
             pattern = {{ kind = \"uniform\", accesses = 40000000 }}\n"
        )
    };
    let first =
        process("left").replacen("[[process]]\nname = \"left\"\n", "", 1).replacen("node = 0\n", "", 1);
    let both = first + &process("other");
    // The kernel's own limit is 0, so that only the engine promotes.
    let mut changes = SMALL[1..3].to_vec();
    changes.push("machine.node.0.memory=\"512MiB\"");
    changes.push("config.kernel.scan_period_min_ms=100");
    changes.push("config.scope=[{name=\"mine\", command=\"p\", exclude=true}]");
    for (changes, excluded) in [(&changes[..], true), (&changes[..changes.len() - 1], false)] {
        let setup = setup(&both, "scan_delay_ms = 20\nscan_size_mb = 8", changes);
        let report = simulate(&setup, "thermocline:latency", ModeName::Event, 1);
        let promoted: Vec<u64> = report.processes.iter().map(|p| p.pages[0]).collect();
        assert!(promoted[1] > 0, "{promoted:?}");
        assert_eq!(promoted[0] == 0, excluded, "{promoted:?}");
    }
}

#[test]
fn a_huge_page_has_one_mark_one_fault_and_one_decision() {
    let process = "threads = 1\nfootprint = \"16MiB\"\nplace = [{ node = 1 }]\nhuge_pages = true\n\
                   pattern = { kind = \"uniform\", accesses = 400000 }";
    // One scan has all of it.
    let setup = setup(process, MARKED_ONCE, &["config.kernel.scan_size_mb=16"]);
    for mode in MODES {
        for manager in ["numab2", "fault-count", "thermocline:latency"] {
            let found = simulate(&setup, manager, mode, 1).counters;
            // 16 MiB are eight of them; DRAM has plenty of room.
            let counts = [
                found.numa_pte_updates,
                found.numa_hint_faults,
                found.handled_ahead,
                found.pgpromote_success,
            ];
            assert_eq!(counts, [4096, 8, 4088, 4096], "{manager} {mode:?}");
        }
    }
}

#[test]
fn a_huge_page_stays_for_a_few_pages_that_are_in_use_and_goes_as_a_whole() {
    // Eight pages of 8192 are accessed, all within the first two MiB; the rest is reclaimed.
    let process = |huge: bool| {
        format!(
            "threads = 1\nfootprint = \"32MiB\"\nplace = [{{ node = 0 }}]\nhuge_pages = {huge}\n\
             reclaim = {{ every = \"1s\", size = \"32MiB\" }}\n\
             pattern = {{ kind = \"phases\", repeat = 1, step = [{{ how = \"random\", accesses = 35000000, \
             region = [{{ from = 0.0, to = 0.001, weight = 1.0 }}] }}] }}\n"
        )
    };
    for mode in MODES {
        for (huge, stay) in [(false, 8), (true, 512)] {
            let report = simulate(&setup(&process(huge), "", &[]), "none", mode, 1);
            assert_eq!(report.processes[0].pages[0], stay, "{mode:?}, huge: {huge}");
            assert_eq!(report.counters.pgdemote_other, 8192 - stay);
        }
    }
}

#[test]
fn damon_makes_room_and_fills_it_with_what_is_in_use() {
    // 48 MiB in use on CXL, and 96 MiB of ballast on the 128 MiB of DRAM: without demotion 32 MiB
    // would fit.
    let process = "threads = 1\nfootprint = \"48MiB\"\nplace = [{ node = 1 }]\nthink = { after = 1, time = \"10us\" }\n\
                   pattern = { kind = \"uniform\", accesses = 24000000 }\n\
                   [[process]]\nname = \"ballast\"\nthreads = 0\nnode = 0\nfootprint = \"96MiB\"\nbackground = true\n\
                   place = [{ node = 0 }]\npattern = { kind = \"idle\" }\n";
    let changes =
        ["machine.node.0.memory=\"128MiB\"", "machine.node.1.memory=\"256MiB\"", "machine.min_free=\"1MiB\""];
    let setup = setup(process, "", &changes);
    for mode in MODES {
        for manager in ["damon", "damon-young", "damon-mtier"] {
            let report = simulate(&setup, manager, mode, 1);
            // All of it is in use; a few pages beside many free frames make a region that seems
            // idle.
            let up = report.processes[0].pages[0];
            assert!(up > 11_600, "{manager} {mode:?}: {up} of 12288");
            let demoted = report.counters.pgdemote_other;
            assert!(demoted > 3500, "{manager} {mode:?}: {demoted}");
            // Nobody has to come back: what is in use is not demoted.
            assert!(report.counters.promoted_again < 100, "{}", report.counters.promoted_again);
        }
    }
}
