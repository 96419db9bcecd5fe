//! What the sources of evidence counted, and what they cost.

use std::fmt::Write;

use serde_json::Value;

/// What the sampler took, and what was of no use, by reason; nothing where there is none.
pub fn samples(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let samples = &found["samples"];
    let mut out = format!(
        "samples: {} taken, {} useful, {} lost by {} on {} CPUs",
        samples["taken"],
        samples["useful"],
        found["lost"],
        found["sampler"].as_str().unwrap_or("?"),
        found["cpus"],
    );
    if let Some(period) = found["period"].as_u64() {
        let _ = write!(out, ", one in {period}");
    }
    if found["budgeted"] == true {
        out.push_str(" for the sake of cpu_budget_permille");
    }
    out.push('\n');
    for (reason, value) in samples.as_object().into_iter().flatten() {
        if !matches!(reason.as_str(), "taken" | "useful") && value.as_u64() != Some(0) {
            let _ = writeln!(out, "  of no use {reason}: {value}");
        }
    }
    for trouble in ["throttled", "truncated", "malformed", "period_refused", "cpus_failed"] {
        if count(trouble) > 0 {
            let _ = writeln!(out, "  {trouble}: {}", count(trouble));
        }
    }
    out
}

/// Processes that are told of one by one, those that are watched worst.
const WATCHED_MAX: usize = 8;
/// Where less than this share of the addresses that are looked at holds memory, it is said why.
const BADLY_PERCENT: f64 = 50.0;

/// What share of the looks at each process finds memory; nothing where none is watched.
fn watched_well(processes: &Value) -> String {
    let mut lines = Vec::new();
    for process in processes["each"].as_array().into_iter().flatten() {
        let bytes = |key: &str| process[key].as_u64().unwrap_or(0) as f64;
        let (mapped, watched) = (bytes("mapped_bytes"), bytes("watched_bytes").max(1.0));
        let percent = 100.0 * bytes("resident_bytes") / watched;
        let why = match percent < BADLY_PERCENT {
            false => "",
            true if mapped < watched / 2.0 => {
                "; most are holes between its mappings: a larger source.damon.regions_max leaves more of them out"
            }
            true => {
                "; most of what it has mapped holds none: source.damon.addresses = \"physical\" watches memory alone"
            }
        };
        let line = format!(
            "  process {}: {percent:.1} % of the addresses that are looked at hold memory ({:.1} MiB in {} ranges){why}\n",
            process["pid"],
            watched / f64::from(1 << 20),
            process["ranges"],
        );
        lines.push((percent, line));
    }
    lines.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let more = lines.len().saturating_sub(WATCHED_MAX);
    let mut out: String = lines.into_iter().take(WATCHED_MAX).map(|(_, line)| line).collect();
    if more > 0 {
        let _ = writeln!(out, "  {more} more processes are watched better (status --json)");
    }
    out
}

/// What DAMON told of and what became of it; nothing where it is not read.
pub fn regions(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let processes = &found["processes"];
    let watched = match processes.is_null() {
        true => format!("{} of {} kdamonds run", count("running"), count("started")),
        false => {
            let also = match processes["left_out"].as_u64().unwrap_or(0) {
                0 => String::new(),
                more => format!(" and {more} not, for lack of kdamonds (processes_max)"),
            };
            let watched = processes["watched"].as_u64().unwrap_or(0);
            format!("{watched} process{} watched{also}", if watched == 1 { "" } else { "es" })
        }
    };
    let mut out = format!(
        "DAMON: {watched}, {} regions in {} aggregations of {:.2} s; {} pages found of {} looked up\n",
        count("regions"),
        count("snapshots"),
        count("aggregation_ns") as f64 / 1e9,
        count("pages"),
        count("looked_up"),
    );
    out.push_str(&watched_well(processes));
    for trouble in ["incomplete", "lost", "malformed", "cut_short"] {
        if count(trouble) > 0 {
            let _ = writeln!(out, "  {trouble}: {}", count(trouble));
        }
    }
    out
}

/// What devices listed as hot and what became of it; nothing where that is not read.
pub fn hot_list(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let mut out = format!(
        "hot list: {} entries read, {} wait, {} left out because it was full; {} accesses counted in {} epochs; {} pages found of {} looked up\n",
        count("entries"),
        count("waiting"),
        count("overflow"),
        count("counted"),
        count("epochs"),
        count("pages"),
        count("looked_up"),
    );
    if count("taken_over") > 0 {
        let _ = writeln!(
            out,
            "  taken_over: {} (the device has too few counters, {}: what is hot may be missing from its list)",
            count("taken_over"),
            count("counters")
        );
    }
    for trouble in ["malformed", "old", "not_memory", "top_tier"] {
        if count(trouble) > 0 {
            let _ = writeln!(out, "  {trouble}: {}", count(trouble));
        }
    }
    if found["refused"] == true {
        out.push_str("  the device refuses what [source.chmu] tells it to do, and lists nothing\n");
    }
    out
}

/// How many accesses that named a frame alone were put to a page, and what the map of frames is like; nothing where there is none.
pub fn reverse(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let mut out = format!(
        "reverse map: {} accesses put to their page, {} to frames of nobody known, {} entries out of date; {} frames known in {:.1} MiB, \
         {} rounds, the last took {:.1} s\n",
        count("resolved"),
        count("unknown"),
        count("stale"),
        count("frames"),
        count("bytes") as f64 / f64::from(1 << 20),
        count("rounds"),
        count("round_ns") as f64 / 1e9,
    );
    for trouble in ["no_room", "hidden", "unreadable"] {
        if count(trouble) > 0 {
            let _ = writeln!(out, "  {trouble}: {}", count(trouble));
        }
    }
    if found["failed"] == true {
        out.push_str("  its thread has failed: no more frames are looked up; please report this\n");
    }
    out
}

/// What a fault, a sample and a moved page cost, as far as there were any.
pub fn overhead(found: &Value) -> String {
    let cost = |key: &str, what: &str| {
        let us = found[key].as_u64()? as f64 / 1e3;
        Some(format!("{us:.2} us {what}"))
    };
    let costs = [
        cost("fault_ns", "a hint fault"),
        cost("sample_ns", "a sample"),
        cost("moved_page_ns", "a moved page in all"),
    ];
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    if costs.is_empty() { String::new() } else { format!("overhead: {}\n", costs.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_are_told_with_what_was_of_no_use_and_what_went_wrong() {
        let found = json!({
            "sampler": "AMD IBS", "cpus": 64, "cpus_failed": 0, "period": 20000, "budgeted": true, "lost": 7,
            "samples": { "taken": 100, "useful": 60, "cache_hit": 0, "top_tier": 40 }, "throttled": 2,
        });
        let words = samples(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = "samples: 100 taken, 60 useful, 7 lost by AMD IBS on 64 CPUs, one in 20000 for the sake of \
                    cpu_budget_permille of no use top_tier: 40 throttled: 2";
        assert_eq!(words, told);
        assert_eq!(samples(&Value::Null), "");
    }

    #[test]
    fn a_sampler_whose_period_is_not_ours_names_none() {
        let found = json!({ "sampler": "lab rings", "cpus": 2, "period": null, "lost": 0, "samples": { "taken": 9, "useful": 8 } });
        assert_eq!(samples(&found), "samples: 9 taken, 8 useful, 0 lost by lab rings on 2 CPUs\n");
    }

    #[test]
    fn regions_are_told_with_what_was_lost() {
        let found = json!({
            "started": 3, "running": 2, "regions": 900, "snapshots": 9, "incomplete": 0, "lost": 7, "malformed": 0, "looked_up": 4096,
            "pages": 4000, "cut_short": 1, "aggregation_ns": 120_000_000,
        });
        let told = "DAMON: 2 of 3 kdamonds run, 900 regions in 9 aggregations of 0.12 s; 4000 pages found of 4096 looked up\n  \
                    lost: 7\n  cut_short: 1\n";
        assert_eq!(regions(&found), told);
        let found =
            json!({ "processes": { "watched": 2, "left_out": 3, "begun": 9, "failed": 0 }, "regions": 5 });
        let told = regions(&found);
        assert!(
            told.starts_with(
                "DAMON: 2 processes watched and 3 not, for lack of kdamonds (processes_max), 5 regions"
            ),
            "{told}"
        );
        assert_eq!(regions(&Value::Null), "");
    }

    #[test]
    fn it_is_told_how_well_each_process_is_watched_and_what_helps_where_it_is_not() {
        let process = |pid: u32, resident_mib: u64, mapped_mib: u64, watched_mib: u64| {
            json!({
                "pid": pid, "resident_bytes": resident_mib << 20, "mapped_bytes": mapped_mib << 20,
                "watched_bytes": watched_mib << 20, "ranges": 9,
            })
        };
        let each = [process(7, 90, 100, 100), process(8, 10, 20, 100), process(9, 30, 90, 100)];
        let told = watched_well(&json!({ "each": each }));
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[0].starts_with("  process 8: 10.0 % of ") && lines[0].contains("regions_max"),
            "{told}"
        );
        assert!(lines[1].starts_with("  process 9: 30.0 % of ") && lines[1].contains("physical"), "{told}");
        let well =
            "  process 7: 90.0 % of the addresses that are looked at hold memory (100.0 MiB in 9 ranges)";
        assert_eq!(lines[2], well);
        assert_eq!(watched_well(&json!({ "watched": 0 })), "");
        let many: Vec<Value> = (0..20).map(|pid| process(pid, 90, 100, 100)).collect();
        let told = watched_well(&json!({ "each": many }));
        assert!(told.lines().count() == 9 && told.contains("12 more processes"), "{told}");
    }

    #[test]
    fn a_hot_list_is_told_with_what_it_could_not_hold() {
        let found = json!({
            "entries": 900, "waiting": 3, "overflow": 41, "counted": 123_456, "epochs": 7, "looked_up": 880, "pages": 870, "taken_over": 12,
            "counters": 64, "malformed": 0, "old": 5, "not_memory": 0, "top_tier": 0, "refused": false,
        });
        let told = "hot list: 900 entries read, 3 wait, 41 left out because it was full; 123456 accesses counted in 7 epochs; 870 pages found of 880 looked up\n  \
                    taken_over: 12 (the device has too few counters, 64: what is hot may be missing from its list)\n  old: 5\n";
        assert_eq!(hot_list(&found), told);
        assert!(hot_list(&json!({ "refused": true })).ends_with("lists nothing\n"));
        assert_eq!(hot_list(&Value::Null), "");
    }

    #[test]
    fn the_reverse_map_is_told_with_what_it_could_not_do() {
        let found = json!({
            "resolved": 90, "unknown": 10, "stale": 1, "frames": 512, "bytes": 1 << 18, "no_room": 7, "rounds": 2,
            "looked_up": 5000, "hidden": 0, "unreadable": 0, "round_ns": 1_500_000_000u64, "cpu_ns": 9,
        });
        let told = "reverse map: 90 accesses put to their page, 10 to frames of nobody known, 1 entries out of date; 512 frames known in \
                    0.2 MiB, 2 rounds, the last took 1.5 s\n  no_room: 7\n";
        assert_eq!(reverse(&found), told);
        assert_eq!(reverse(&Value::Null), "");
    }

    #[test]
    fn overhead_is_told_as_far_as_there_is_any() {
        let found = json!({ "fault_ns": 640, "sample_ns": null, "moved_page_ns": 32_400 });
        assert_eq!(overhead(&found), "overhead: 0.64 us a hint fault, 32.40 us a moved page in all\n");
        assert_eq!(overhead(&Value::Null), "");
    }
}
