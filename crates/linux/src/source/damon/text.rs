//! The counters as text.

use std::fmt::Write;

use super::{Stats, Watched, Watching};
use crate::source::troubles;

/// Maximum number of processes listed, the worst watched first.
const WATCHED_MAX: usize = 8;
/// Below this share of checked addresses that hold memory, the reason is given.
const BADLY_PERCENT: f64 = 50.0;

/// The share of checks of each process that find memory; empty if none is watched.
fn watched_well(each: &[Watched]) -> String {
    let mut lines = Vec::new();
    for process in each {
        let (mapped, watched) = (process.mapped_bytes as f64, (process.watched_bytes as f64).max(1.0));
        let percent = 100.0 * process.resident_bytes as f64 / watched;
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
            process.pid.0,
            watched / f64::from(1 << 20),
            process.ranges,
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

/// DAMON's reports and the pages found.
pub(super) fn text(stats: &Stats) -> String {
    let watched = match &stats.processes {
        None => format!("{} of {} kdamonds run", stats.running, stats.started),
        Some(Watching { watched, left_out, .. }) => {
            let also = match left_out {
                0 => String::new(),
                more => format!(" and {more} not, for lack of kdamonds (processes_max)"),
            };
            format!("{watched} process{} watched{also}", if *watched == 1 { "" } else { "es" })
        }
    };
    let mut out = format!(
        "DAMON: {watched}, {} regions in {} aggregations of {:.2} s; {} pages found of {} looked up\n",
        stats.regions,
        stats.snapshots,
        stats.aggregation_ns.0 as f64 / 1e9,
        stats.pages,
        stats.looked_up,
    );
    if let Some(watching) = &stats.processes {
        out.push_str(&watched_well(&watching.each));
    }
    out.push_str(&troubles(stats, &[]));
    out
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::{Nanos, Pid};

    use super::*;

    #[test]
    fn regions_are_told_with_what_was_lost() {
        let found = Stats {
            started: 3,
            running: 2,
            regions: 900,
            snapshots: 9,
            lost: 7,
            looked_up: 4096,
            pages: 4000,
            cut_short: 1,
            aggregation_ns: Nanos::from_ms(120),
            ..Stats::default()
        };
        let told = "DAMON: 2 of 3 kdamonds run, 900 regions in 9 aggregations of 0.12 s; 4000 pages found of 4096 looked up\n  \
                    lost: 7\n  cut_short: 1\n";
        assert_eq!(text(&found), told);
        let watching = Watching { watched: 2, left_out: 3, begun: 9, ..Watching::default() };
        let told = text(&Stats { regions: 5, processes: Some(watching), ..Stats::default() });
        assert!(
            told.starts_with(
                "DAMON: 2 processes watched and 3 not, for lack of kdamonds (processes_max), 5 regions"
            ),
            "{told}"
        );
    }

    #[test]
    fn it_is_told_how_well_each_process_is_watched_and_what_helps_where_it_is_not() {
        let process = |pid: u32, resident_mib: u64, mapped_mib: u64, watched_mib: u64| Watched {
            pid: Pid(pid),
            resident_bytes: resident_mib << 20,
            mapped_bytes: mapped_mib << 20,
            watched_bytes: watched_mib << 20,
            ranges: 9,
        };
        let each = [process(7, 90, 100, 100), process(8, 10, 20, 100), process(9, 30, 90, 100)];
        let told = watched_well(&each);
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[0].starts_with("  process 8: 10.0 % of ") && lines[0].contains("regions_max"),
            "{told}"
        );
        assert!(lines[1].starts_with("  process 9: 30.0 % of ") && lines[1].contains("physical"), "{told}");
        let well =
            "  process 7: 90.0 % of the addresses that are looked at hold memory (100.0 MiB in 9 ranges)";
        assert_eq!(lines[2], well);
        assert_eq!(watched_well(&[]), "");
        let many: Vec<Watched> = (0..20).map(|pid| process(pid, 90, 100, 100)).collect();
        let told = watched_well(&many);
        assert!(told.lines().count() == 9 && told.contains("12 more processes"), "{told}");
    }
}
