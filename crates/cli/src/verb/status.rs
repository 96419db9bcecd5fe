//! `thermocline status`: what the daemon tells of itself.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use thermocline_core::demotion::OVER_PAGES;

use crate::daemon::socket::{self, Request};
use crate::daemon::{by_damon, by_kernel};
use crate::escape;

/// Asks the daemon behind `socket` and renders its answer.
///
/// # Errors
/// When no daemon answers.
pub fn status(socket: &Path, json: bool) -> anyhow::Result<String> {
    let answer = socket::ask(socket, &Request::Status)?;
    if json {
        return Ok(format!("{answer:#}\n"));
    }
    if answer.is_null() {
        return Ok("the daemon has just started; ask again in a second\n".to_owned());
    }
    Ok(text(&answer))
}

/// A row a process: its name, its number and its MiB on each node.
fn residency(found: &Value) -> String {
    if let Some(error) = found["error"].as_str() {
        return format!("memory of processes: {error}\n");
    }
    let mut out = String::new();
    for process in found["processes"].as_array().into_iter().flatten() {
        let comm = escape::name(process["comm"].as_str().unwrap_or("?"));
        let name = format!("{comm} ({})", process["pid"]);
        let _ = write!(out, "memory of {name:<24}");
        let mut nodes: Vec<(u64, u64)> = process["kib_by_node"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(node, kib)| Some((node.parse().ok()?, kib.as_u64()?)))
            .collect();
        nodes.sort_unstable();
        for (node, kib) in nodes {
            let _ = write!(out, "  node {node}: {:>9.1} MiB", kib as f64 / 1024.0);
        }
        out.push('\n');
    }
    let count = |key: &str| found[key].as_u64().unwrap_or(0);
    let (smaller, unreadable) = (count("not_looked_at"), count("unreadable"));
    if smaller + unreadable > 0 {
        let _ = writeln!(out, "and {smaller} smaller processes, {unreadable} that cannot be read");
    }
    out
}

/// Where kswapd has given up, and how often it was brought back; nothing where all is well.
fn kswapd(found: &Value) -> String {
    let mut out = String::new();
    let nodes: Vec<String> =
        found["given_up"].as_array().into_iter().flatten().map(Value::to_string).collect();
    if !nodes.is_empty() {
        let why = found["why"].as_str().unwrap_or("it is tried to bring it back");
        let _ = writeln!(out, "kswapd has given up on node {}: {why}", nodes.join(", "));
    }
    match found["brought_back"].as_u64().unwrap_or(0) {
        0 => {}
        times => {
            let _ = writeln!(
                out,
                "kswapd had given up on a node of the top tier, and was brought back {times} times"
            );
        }
    }
    out
}

/// Sentences, a line each.
fn lines(found: &Value) -> String {
    found.as_array().into_iter().flatten().filter_map(Value::as_str).map(|s| format!("{s}\n")).collect()
}

/// A row a scope with a floor or a cap: what it holds of the top tier, and what follows.
pub(crate) fn scopes(found: &Value) -> String {
    found.as_array().into_iter().flatten().map(|scope| scope_row(scope) + "\n").collect()
}

/// How one scope stands.
pub(crate) fn scope_row(scope: &Value) -> String {
    let mib = |key: &str| scope[key].as_u64().map(|pages| pages as f64 / 256.0);
    let mut out = format!("scope {}: ", scope["name"].as_str().unwrap_or("?"));
    match (mib("top_tier_pages"), scope["age_ms"].as_u64()) {
        (Some(held), Some(age_ms)) => {
            let _ = write!(out, "{held:.1} MiB of the top tier {age_ms} ms ago");
        }
        _ => out.push_str("what it holds of the top tier is not known"),
    }
    for (key, what) in [("up_pages", "on the way up"), ("down_pages", "on the way down")] {
        if let Some(moving) = mib(key).filter(|moving| *moving > 0.0) {
            let _ = write!(out, ", {moving:.1} MiB {what}");
        }
    }
    if let Some(floor) = mib("floor_pages").filter(|floor| *floor > 0.0) {
        let kept = scope["spare_pages"].as_u64().is_some_and(|spare| spare <= OVER_PAGES);
        let held = if kept { ": nothing is demoted from it" } else { "" };
        let _ = write!(out, "; floor {floor:.0} MiB{held}");
    }
    if let Some(cap) = mib("cap_pages") {
        let held = if scope["room_pages"] == 0 { ": nothing is promoted into it" } else { "" };
        let _ = write!(out, "; cap {cap:.0} MiB{held}");
    }
    out
}

/// What a scope has of its rate.
pub(crate) fn rate(rate_bp: u64) -> String {
    match 10_000u64.checked_div(rate_bp) {
        None => "stopped".to_owned(),
        Some(1) => "free".to_owned(),
        Some(part) => format!("braked to 1/{part} of its rate"),
    }
}

/// A row a scope that is braked, and, where that is asked for, also those that are not.
pub(crate) fn brakes(found: &Value, free_too: bool) -> String {
    let rows = found.as_array().into_iter().flatten();
    rows.filter(|brake| free_too || !brake["by"].is_null()).map(|brake| brake_row(brake) + "\n").collect()
}

/// How one scope is braked, and by which figures.
pub(crate) fn brake_row(brake: &Value) -> String {
    let percent = |key: &str| brake[key].as_u64().map(|bp| bp as f64 / 100.0);
    let mut out = format!(
        "scope {}: {}",
        brake["name"].as_str().unwrap_or("?"),
        rate(brake["rate_bp"].as_u64().unwrap_or(0))
    );
    match brake["by"].as_str() {
        Some("pressure") => out.push_str(" by memory pressure"),
        Some(_) => out.push_str(" by ping-pong"),
        None => out.push_str(" again"),
    }
    if let Some(ms) = brake["for_ms"].as_u64() {
        let _ = write!(out, ", since {} s ago", ms / 1000);
    }
    for (key, baseline, who) in
        [("some_bp", "some_baseline_bp", "some task"), ("full_bp", "full_baseline_bp", "all tasks")]
    {
        if let Some(stall) = percent(key) {
            let _ = write!(out, "; {who} waited for memory {stall:.1} % of the time");
            if let Some(without) = percent(baseline) {
                let _ = write!(out, " ({without:.1} % without moves)");
            }
        }
    }
    if let Some(again) = percent("again_bp") {
        let _ = write!(out, "; {again:.1} % of the moved pages had been moved before");
    }
    out
}

/// What the sampler took, and what was of no use, by reason; nothing where there is none.
pub(crate) fn samples(found: &Value) -> String {
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
pub(crate) fn regions(found: &Value) -> String {
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
pub(crate) fn hot_list(found: &Value) -> String {
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
pub(crate) fn reverse(found: &Value) -> String {
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
pub(crate) fn overhead(found: &Value) -> String {
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

fn text(s: &Value) -> String {
    let seconds = s["uptime_ns"].as_u64().unwrap_or(0) as f64 / 1e9;
    let mut out = format!(
        "thermocline {} (pid {}), {} for {seconds:.0} s, manager {}{}\n",
        s["version"].as_str().unwrap_or("?"),
        s["pid"],
        s["mode"].as_str().unwrap_or("?"),
        s["manager"].as_str().unwrap_or("?"),
        s["rule"].as_str().map(|rule| format!(", rule {rule}")).unwrap_or_default(),
    );
    if let Some(late) = s["loop_late_ms"].as_u64() {
        let _ = writeln!(
            out,
            "its loop has not turned for {:.1} s, and all figures but those of memory are as old: something keeps it",
            late as f64 / 1e3
        );
    }
    if let Some(why) = s["trouble"].as_str() {
        let _ = writeln!(out, "it cannot do its job, for a minute nothing has moved: {why}");
    }
    for node in s["nodes"].as_array().into_iter().flatten() {
        let nodes = s["topology"]["nodes"].as_array();
        let tier = nodes
            .and_then(|all| all.iter().find(|n| n["id"] == node["node"]))
            .map_or(&Value::Null, |n| &n["tier"]);
        let mib = |key: &str| node[key].as_u64().unwrap_or(0) / 256;
        let _ = writeln!(
            out,
            "node {} (tier {tier}): {} of {} MiB free, high watermark {} MiB",
            node["node"],
            mib("free_pages"),
            mib("managed_pages"),
            node["watermarks"]["high_pages"].as_u64().unwrap_or(0) / 256,
        );
    }
    for node in s["free_space_promotion"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "free-space promotion active on node {node}: the kernel promotes at the first fault"
        );
    }
    let settings = &s["settings"];
    if settings["changed_by_others"].as_u64().is_some_and(|times| times > 0) {
        let _ = writeln!(
            out,
            "kernel settings changed by others: {} times, {} times set again, {} left so",
            settings["changed_by_others"], settings["set_again"], settings["left"]
        );
    }
    out.push_str(&kswapd(&s["kswapd"]));
    out.push_str(&lines(&s["no_cgroup"]));
    out.push_str(&residency(&s["residency"]));
    out.push_str(&scopes(&s["scopes"]));
    out.push_str(&brakes(&s["brakes"], false));
    let source = &s["source"];
    if !source.is_null() {
        let _ = writeln!(
            out,
            "hint faults: {} seen, {} delivered, {} lost, {} out of scope",
            source["seen"], source["delivered"], source["dropped"], source["filtered"]
        );
    }
    out.push_str(&samples(&s["hwsample"]));
    out.push_str(&regions(&s["regions"]));
    out.push_str(&hot_list(&s["hot_list"]));
    out.push_str(&reverse(&s["reverse"]));
    out.push_str(&overhead(&s["overhead"]));
    if let Ok(moves) = serde_json::from_value(s["kernel_moves"].clone()) {
        out.push_str(&by_kernel(&moves));
    }
    if let Ok(damon) = serde_json::from_value(s["damon"].clone()) {
        out.push_str(&by_damon(&damon));
    }
    for (name, value) in s["counters"].as_object().into_iter().flatten() {
        match value {
            Value::Object(labels) => {
                for (label, value) in labels.iter().filter(|(_, v)| v.as_u64() != Some(0)) {
                    let _ = writeln!(out, "{name:<24} {label:<20} {value:>12}");
                }
            }
            value if value.as_u64() != Some(0) => {
                let _ = writeln!(out, "{name:<24} {:<20} {value:>12}", "");
            }
            _ => {}
        }
    }
    for gauge in s["gauges"].as_array().into_iter().flatten() {
        let node = gauge["node"].as_u64().map_or(String::new(), |n| format!("node {n}"));
        let _ =
            writeln!(out, "{:<24} {node:<20} {:>12}", gauge["name"].as_str().unwrap_or("?"), gauge["value"]);
    }
    out
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
    fn it_is_told_where_kswapd_has_given_up() {
        assert_eq!(kswapd(&json!({ "given_up": [], "brought_back": 0, "why": null })), "");
        let found = json!({ "given_up": [0, 1], "brought_back": 2, "why": "demotion is off" });
        let told = "kswapd has given up on node 0, 1: demotion is off\nkswapd had given up on a node of the top tier, and was brought back 2 times\n";
        assert_eq!(kswapd(&found), told);
        let missing = json!(["scope[0].cgroup \"/a\" is not there now", "and another"]);
        assert_eq!(lines(&missing), "scope[0].cgroup \"/a\" is not there now\nand another\n");
        assert_eq!(lines(&Value::Null), "");
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

    #[test]
    fn a_manager_of_the_kernels_has_neither_rule_nor_source_of_ours() {
        let scheme = json!({
            "kdamond": 2, "action": "migrate_hot", "from": 2, "to": 0, "tried_pages": 512, "moved_pages": 256,
            "elsewhere_pages": 64, "quota_exceeded": 3,
        });
        let damon = json!({ "schemes": [scheme], "running": 3, "started": 3 });
        let text = text(&json!({
            "version": "1", "pid": 7, "mode": "run", "manager": "damon", "rule": null, "uptime_ns": 4_000_000_000u64,
            "damon": damon, "kernel_moves": {},
        }));
        assert!(text.starts_with("thermocline 1 (pid 7), run for 4 s, manager damon\n"), "{text}");
        let moved =
            "migrate_hot from node 2 to node 0: 1.0 MiB of 2.0 MiB tried, at most 0.2 MiB of it elsewhere";
        assert!(text.contains(moved) && !text.contains("hint faults"), "{text}");
    }

    #[test]
    fn scopes_are_told_with_what_their_limits_do() {
        let found = json!([
            { "name": "db", "scope": 1, "floor_pages": 16_384, "cap_pages": 32_768, "top_tier_pages": 32_512, "age_ms": 90,
              "up_pages": 256, "down_pages": 0, "room_pages": 0, "spare_pages": 16_128 },
            { "name": "/batch", "scope": 2, "floor_pages": 256, "cap_pages": null, "top_tier_pages": null, "age_ms": null,
              "up_pages": 0, "down_pages": 0, "room_pages": null, "spare_pages": 0 },
        ]);
        let told = "scope db: 127.0 MiB of the top tier 90 ms ago, 1.0 MiB on the way up; floor 64 MiB; cap 128 MiB: nothing is \
                    promoted into it\nscope /batch: what it holds of the top tier is not known; floor 1 MiB: nothing is demoted \
                    from it\n";
        assert_eq!(scopes(&found), told);
        assert_eq!(scopes(&Value::Null), "");
    }

    #[test]
    fn brakes_are_told_with_cause_and_figures() {
        let pressed = json!({ "name": "db", "rate_bp": 2500, "by": "pressure", "for_ms": 12_345, "some_bp": 3400, "some_baseline_bp": 210,
            "full_bp": 0, "full_baseline_bp": null, "again_bp": null });
        let pong = json!({ "name": "default", "rate_bp": 0, "by": "ping_pong", "for_ms": 2000, "some_bp": null, "again_bp": 6120 });
        let free = json!({ "name": "/batch", "rate_bp": 10_000, "by": null, "for_ms": null, "some_bp": 500, "again_bp": null });
        let all = json!([pressed, pong, free]);
        let braked = "scope db: braked to 1/4 of its rate by memory pressure, since 12 s ago; some task waited for memory 34.0 % of the \
                      time (2.1 % without moves); all tasks waited for memory 0.0 % of the time\nscope default: stopped by ping-pong, \
                      since 2 s ago; 61.2 % of the moved pages had been moved before\n";
        assert_eq!(brakes(&all, false), braked);
        let free = "scope /batch: free again; some task waited for memory 5.0 % of the time\n";
        assert_eq!(brakes(&all, true), format!("{braked}{free}"));
        assert_eq!(brakes(&Value::Null, true), "", "where the kernel decides");
    }

    #[test]
    fn memory_is_told_by_process_and_node_in_order() {
        let found = json!({
            "processes": [{ "pid": 812, "comm": "redis-server", "kib_by_node": { "10": 1024, "2": 1536 } }],
            "not_looked_at": 3, "unreadable": 0, "age_ms": 0,
        });
        let text = residency(&found);
        let words: Vec<&str> = text.split_whitespace().collect();
        let row = "memory of redis-server (812) node 2: 1.5 MiB node 10: 1.0 MiB and 3 smaller processes, 0 that cannot be read";
        assert_eq!(words.join(" "), row);
        assert_eq!(residency(&Value::Null), "", "where procfs cannot be listed");
    }
}
