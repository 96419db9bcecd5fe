//! What was counted, as text.

use std::fmt::Write;

use serde_json::Value;
use thermocline_core::statistics::Declared;

use super::Stats;
use crate::source::troubles;

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
pub(super) fn text(found: &Value) -> String {
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
    out.push_str(&troubles(found, &Stats::statistics(), &[]));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn regions_are_told_with_what_was_lost() {
        let found = json!({
            "started": 3, "running": 2, "regions": 900, "snapshots": 9, "incomplete": 0, "lost": 7, "malformed": 0, "looked_up": 4096,
            "pages": 4000, "cut_short": 1, "aggregation_ns": 120_000_000,
        });
        let told = "DAMON: 2 of 3 kdamonds run, 900 regions in 9 aggregations of 0.12 s; 4000 pages found of 4096 looked up\n  \
                    lost: 7\n  cut_short: 1\n";
        assert_eq!(text(&found), told);
        let found =
            json!({ "processes": { "watched": 2, "left_out": 3, "begun": 9, "failed": 0 }, "regions": 5 });
        let told = text(&found);
        assert!(
            told.starts_with(
                "DAMON: 2 processes watched and 3 not, for lack of kdamonds (processes_max), 5 regions"
            ),
            "{told}"
        );
        assert_eq!(text(&Value::Null), "");
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
}
