//! Sums: those of the page are those of the engine that was recorded.

use thermocline_core::counters::Counters;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::replay;

use super::*;

/// The counters of the recorded engine at its end, which `status` and `top` showed then.
fn counters(folder: &Path) -> Counters {
    let recording = Recording::open(folder).expect("it is a recording");
    let config = recording.config().expect("it has one");
    let mut journals = [Vec::new(), Vec::new()];
    let mut compare = |theirs: &[_], ours: &[_]| {
        journals[0].extend_from_slice(theirs);
        journals[1].extend_from_slice(ours);
    };
    let done = replay(&recording, &config, &Ok, &mut compare).expect("it can be replayed");
    assert!(journals[0] == journals[1], "the replayed engine is not the recorded one");
    done.driver.engine().counters().clone()
}

#[test]
fn what_the_page_counts_is_what_the_engine_counted() {
    let (dir, _) = folder("x");
    let runs = [
        ("adaptive", &["--rule=adaptive", "--mode=event"][..]),
        ("latency", &["--rule=latency", "--mode=event", "--set=config.admission.rate_limit_mbps=1"]),
        ("speculative", &["--rule=speculative", "--mode=event"]),
    ];
    for (name, more) in runs {
        let folder = dir.path().join(name);
        let simulated = record(&folder, more);
        let page = page_of(&folder, &[]);
        let counters = counters(&folder);
        let moved = |name: &str| number(&row(&page, "moved", name)[1]);
        assert!(counters.pgpromote_success > 1000, "{name}: {}", counters.pgpromote_success);
        assert_eq!(moved("promoted"), Some(counters.pgpromote_success), "{name}");
        assert_eq!(moved("demoted, page by page"), Some(counters.pgdemote), "{name}");
        let reclaimed = moved("demoted by the kernel's reclaim, on demand");
        assert_eq!(reclaimed, Some(counters.demotion_done), "{name}");
        assert_eq!(moved("came back: accessed below again soon after"), Some(counters.came_back), "{name}");
        assert_eq!(moved("promoted again soon after"), Some(counters.promoted_again), "{name}");
        // The simulator, which has not seen the recording, counts the pages that it moved itself.
        let theirs = simulated["counters"]["engine_promoted"].as_u64();
        assert_eq!(theirs, Some(counters.pgpromote_success), "{name}");
        // Every reason and outcome that has occurred has its row, and there is no other.
        let mut wanted: Vec<(String, String, u64)> = Vec::new();
        let by_reason =
            [("refused", &counters.refused), ("held", &counters.held), ("expired", &counters.expired)];
        for (what, by) in by_reason {
            wanted.extend(by.iter().map(|(reason, n)| (what.to_owned(), reason.name().to_owned(), n)));
        }
        wanted.extend(counters.failed.iter().map(|(o, n)| ("failed".to_owned(), o.name().to_owned(), n)));
        wanted.retain(|(_, _, n)| *n > 0);
        let mut found: Vec<(String, String, u64)> = rows(&page, "refusals-table")
            .iter()
            .map(|row| (row[0].clone(), row[1].clone(), number(&row[2]).expect("a number")))
            .collect();
        assert!(found.iter().map(|row| row.2).is_sorted_by(|a, b| a >= b), "{found:?}");
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted, "{name}");
        // Evidence by source.
        let faults = number(&row(&page, "sources-table", "hintfault")[1]);
        assert_eq!(faults, Some(counters.numa_hint_faults), "{name}");
        // Parts add up to the whole.
        let sum = |id: &str, column: usize, first: &str| -> u64 {
            let all = rows(&page, id);
            all.iter().filter(|row| row[0].starts_with(first)).filter_map(|row| number(&row[column])).sum()
        };
        assert_eq!(sum("why", 3, ""), counters.moved, "{name}");
        // The reason in the answer is the one of most candidates that were let go.
        let mut let_go: Vec<(u64, &str)> = RefusalReason::ALL
            .iter()
            .map(|r| (counters.refused.get(*r) + counters.expired.get(*r), r.name()))
            .collect();
        let_go.sort_unstable();
        let (most, reason) = let_go.pop().expect("a reason");
        let said = answer(&page);
        if most > 0 && let_go.last().is_some_and(|next| next.0 < most) {
            assert!(said.contains(&format!("; {reason} held back most, ")), "{name}: {said}, not {reason}");
        }
    }
}

#[test]
fn the_share_that_dram_served_is_said_where_samples_tell_it_and_is_true() {
    let (dir, _) = folder("x");
    let samples = [
        "--rule=inter-arrival",
        "--mode=exact",
        "--set=config.source.hwsample.enabled=true",
        "--set=config.source.hintfault.enabled=false",
    ];
    let balanced = dir.path().join("balanced");
    let simulated = record(&balanced, &[&samples[..], &["--set=config.rule.balance.enabled=true"]].concat());
    let page = page_of(&balanced, &[]);
    let said = answer(&page);
    let share = said.split_once("DRAM served ").unwrap_or_else(|| panic!("{said}")).1;
    let (share, rest) = share.split_once(" +- ").expect("its uncertainty");
    let share: f64 = share.parse().expect("a number");
    let error: f64 = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let truth = simulated["top_share"].as_f64().expect("it is known") * 100.0;
    assert!((share - truth).abs() < 2.0 * error + 1.0, "{share} +- {error} for {truth}");
    // Without a rule that balances, samples of DRAM are not recorded, and nothing is claimed.
    let unbalanced = dir.path().join("unbalanced");
    record(&unbalanced, &samples);
    let page = page_of(&unbalanced, &[]);
    assert!(
        answer(&page).contains("unknown, because samples of accesses to DRAM are not recorded"),
        "{}",
        answer(&page)
    );
    assert_eq!(row(&page, "cost-table", "accesses that DRAM served")[1], "unknown");
}

#[test]
fn what_is_not_whole_is_not_counted_by_a_replay() {
    let (dir, _) = folder("x");
    let rotated = dir.path().join("rotated");
    let to = format!("--record={}", plain(&rotated));
    let output = run(&["sim", "hotcold", "--rule=adaptive", "--max-size=4MiB", "--rotate", &to]);
    assert!(output.status.success(), "{}", errors(&output));
    let page = page_of(&rotated, &[]);
    assert!(page.contains("Not all of it is here:") && page.contains("events are missing in all"));
    assert_eq!(row(&page, "moved", "came back: accessed below again soon after")[1], "unknown");
    assert!(page.contains("Shown are recorded decisions"), "it says what the counts are");
    assert!(answer(&page).contains("recorded decisions to let a candidate go"), "{}", answer(&page));
}
