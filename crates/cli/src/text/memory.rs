//! Where memory is, how much of the top tier each scope holds, and which scopes are braked.

use std::fmt::Write;

use thermocline_core::admission::{Braking, Cause, Standing};
use thermocline_core::demotion::OVER_PAGES;
use thermocline_core::engine::ScopeLedger;
use thermocline_core::statistics::Declared;
use thermocline_linux::residency::Residency;

use super::mib;
use crate::escape;
use crate::snapshot::{ExplainedScope, Named};

/// One row per process: its name, its pid and its MiB on each node.
pub fn residency(found: &Result<Residency, String>) -> String {
    let found = match found {
        Ok(found) => found,
        Err(error) => return format!("memory of processes: {error}\n"),
    };
    let mut out = String::new();
    for process in &found.processes {
        let name = format!("{} ({})", escape::name(&process.comm), process.pid.0);
        let _ = write!(out, "memory of {name:<24}");
        for (node, kib) in &process.kib_by_node {
            let _ = write!(out, "  node {}: {:>9.1} MiB", node.0, *kib as f64 / 1024.0);
        }
        out.push('\n');
        if let Some(away) = &process.away {
            let _ = writeln!(out, "  {}: {}", away.what(), away.remedy());
        }
    }
    let (smaller, unreadable) = (found.not_looked_at, found.unreadable);
    if smaller + unreadable > 0 {
        let _ = writeln!(out, "and {smaller} smaller processes, {unreadable} that cannot be read");
    }
    out
}

/// Why a scope has what it has, and the figures behind it.
pub fn explained_scope(found: &ExplainedScope) -> String {
    let Named { name, standing: explained } = &found.explained;
    let mut out = format!("scope {name}: {}\n", explained.summary);
    if let Some(standing) = explained.standing {
        out.push_str(&scopes(&[Named { name: name.clone(), standing }]));
    }
    if let Some(standing) = explained.brake.filter(|braking| braking.by.is_some()) {
        out.push_str(&brakes(&[Named { name: name.clone(), standing }], false));
    }
    let ledger = Named { name: name.clone(), standing: explained.ledger.clone() };
    out + &ledger_row(&ledger) + "\n"
}

/// One row per scope of which something was moved or that was braked.
pub fn ledgers(found: &[Named<ScopeLedger>]) -> String {
    let unused = |ledger: &ScopeLedger| ledger.samples().iter().all(|sample| sample.value == 0);
    let used = found.iter().filter(|ledger| !unused(&ledger.standing));
    used.map(|ledger| ledger_row(ledger) + "\n").collect()
}

/// What was done with the memory of one scope.
fn ledger_row(ledger: &Named<ScopeLedger>) -> String {
    let Named { name, standing: of } = ledger;
    format!(
        "scope {name}: {:.1} MiB promoted, {:.1} MiB demoted, {:.1} MiB of that for others' shares, \
         {:.1} MiB came back, braked for {} s",
        mib(of.promoted),
        mib(of.demoted),
        mib(of.evicted),
        mib(of.came_back),
        of.braked_ns.ms() / 1000,
    )
}

/// One row per scope whose holding counts: what it holds of the top tier, and the consequences.
pub fn scopes(found: &[Named<Standing>]) -> String {
    found.iter().map(|scope| scope_row(scope) + "\n").collect()
}

/// The standing of one scope.
pub fn scope_row(scope: &Named<Standing>) -> String {
    let Named { name, standing } = scope;
    let mut out = format!("scope {name}: ");
    match (standing.top_tier_pages, standing.age_ms) {
        (Some(held), Some(age_ms)) => {
            let _ = write!(out, "{:.1} MiB of the top tier {age_ms} ms ago", mib(held));
        }
        _ => out.push_str("what it holds of the top tier is not known"),
    }
    for (pages, what) in [(standing.up_pages, "on the way up"), (standing.down_pages, "on the way down")] {
        if pages > 0 {
            let _ = write!(out, ", {:.1} MiB {what}", mib(pages));
        }
    }
    if standing.never_slow {
        out.push_str("; never slow: nothing is demoted from it");
    } else if standing.floor_pages > 0 {
        let kept = standing.spare_pages.is_some_and(|spare| spare <= OVER_PAGES);
        let held = if kept { ": nothing is demoted from it" } else { "" };
        let _ = write!(out, "; floor {:.0} MiB{held}", mib(standing.floor_pages));
    }
    if standing.share_pages > 0 {
        let _ = write!(out, "; share {:.0} MiB", mib(standing.share_pages));
        let above = standing.above_share();
        if standing.claimed_pages > 0 {
            let _ = write!(out, ", {:.1} MiB more of it wanted", mib(standing.claimed_pages));
        } else if above > 0 {
            let _ = write!(out, ", {:.1} MiB above it", mib(above));
        }
    }
    if let Some(cap) = standing.cap_pages {
        let held = if standing.room_pages == Some(0) { ": nothing is promoted into it" } else { "" };
        let _ = write!(out, "; cap {:.0} MiB{held}", mib(cap));
        let above = standing.top_tier_pages.map_or(0, |held| held.saturating_sub(cap));
        if above > 0 {
            let _ = write!(out, ", {:.1} MiB above it", mib(above));
        }
    }
    out
}

/// The share of its rate that a scope has.
pub fn rate(rate_bp: u64) -> String {
    match 10_000u64.checked_div(rate_bp) {
        None => "stopped".to_owned(),
        Some(1) => "free".to_owned(),
        Some(part) => format!("braked to 1/{part} of its rate"),
    }
}

/// One row per braked scope; with `free_too` also the others.
pub fn brakes(found: &[Named<Braking>], free_too: bool) -> String {
    let rows = found.iter().filter(|brake| free_too || brake.standing.by.is_some());
    rows.map(|brake| brake_row(brake) + "\n").collect()
}

/// The brake of one scope, and the figures behind it.
pub fn brake_row(brake: &Named<Braking>) -> String {
    let Named { name, standing } = brake;
    let percent = |bp: Option<u32>| bp.map(|bp| f64::from(bp) / 100.0);
    let mut out = format!("scope {name}: {}", rate(standing.rate_bp));
    out.push_str(match standing.by {
        Some(Cause::Pressure) => " by memory pressure",
        Some(Cause::PingPong) => " by ping-pong",
        None => " again",
    });
    if let Some(ms) = standing.for_ms {
        let _ = write!(out, ", since {} s ago", ms / 1000);
    }
    for (stall, baseline, who) in [
        (standing.some_bp, standing.some_baseline_bp, "some task"),
        (standing.full_bp, standing.full_baseline_bp, "all tasks"),
    ] {
        if let Some(stall) = percent(stall) {
            let _ = write!(out, "; {who} waited for memory {stall:.1} % of the time");
            if let Some(without) = percent(baseline) {
                let _ = write!(out, " ({without:.1} % without moves)");
            }
        }
    }
    if let Some(again) = percent(standing.again_bp) {
        let _ = write!(out, "; {again:.1} % of the moved pages had been moved before");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thermocline_core::units::{NodeId, Pid, ScopeId};
    use thermocline_linux::away::Away;
    use thermocline_linux::residency::Resident;

    use super::*;

    const STANDING: Standing = Standing {
        scope: ScopeId(1),
        floor_pages: 0,
        never_slow: false,
        cap_pages: None,
        share_pages: 0,
        claimed_pages: 0,
        top_tier_pages: None,
        age_ms: None,
        up_pages: 0,
        down_pages: 0,
        room_pages: None,
        spare_pages: None,
    };

    const BRAKING: Braking = Braking {
        scope: ScopeId(1),
        rate_bp: 10_000,
        by: None,
        for_ms: None,
        some_bp: None,
        some_baseline_bp: None,
        full_bp: None,
        full_baseline_bp: None,
        again_bp: None,
    };

    fn named<T>(name: &str, standing: T) -> Named<T> {
        Named { name: name.to_owned(), standing }
    }

    #[test]
    fn scopes_are_told_with_what_their_limits_do() {
        let db = Standing {
            floor_pages: 16_384,
            cap_pages: Some(32_768),
            top_tier_pages: Some(32_512),
            age_ms: Some(90),
            up_pages: 256,
            room_pages: Some(0),
            spare_pages: Some(16_128),
            ..STANDING
        };
        let never = named("a", Standing { never_slow: true, ..STANDING });
        assert!(scope_row(&never).ends_with("; never slow: nothing is demoted from it"));
        let batch = Standing { floor_pages: 256, spare_pages: Some(0), ..STANDING };
        let told = "scope db: 127.0 MiB of the top tier 90 ms ago, 1.0 MiB on the way up; floor 64 MiB; cap 128 MiB: nothing is \
                    promoted into it\nscope /batch: what it holds of the top tier is not known; floor 1 MiB: nothing is demoted \
                    from it\n";
        assert_eq!(scopes(&[named("db", db), named("/batch", batch)]), told);
        let shared = Standing { share_pages: 512, top_tier_pages: Some(256), age_ms: Some(9), ..STANDING };
        let row = |standing| scopes(&[named("db", standing)]);
        let wanting = Standing { claimed_pages: 64, ..shared };
        assert!(row(wanting).ends_with("; share 2 MiB, 0.2 MiB more of it wanted\n"), "{}", row(wanting));
        let above = Standing { top_tier_pages: Some(768), ..shared };
        assert!(row(above).ends_with("; share 2 MiB, 1.0 MiB above it\n"), "{}", row(above));
        assert_eq!(scopes(&[]), "");
    }

    #[test]
    fn brakes_are_told_with_cause_and_figures() {
        let pressed = Braking {
            rate_bp: 2500,
            by: Some(Cause::Pressure),
            for_ms: Some(12_345),
            some_bp: Some(3400),
            some_baseline_bp: Some(210),
            full_bp: Some(0),
            ..BRAKING
        };
        let pong = Braking {
            rate_bp: 0,
            by: Some(Cause::PingPong),
            for_ms: Some(2000),
            again_bp: Some(6120),
            ..BRAKING
        };
        let free = Braking { some_bp: Some(500), ..BRAKING };
        let all = [named("db", pressed), named("default", pong), named("/batch", free)];
        let braked = "scope db: braked to 1/4 of its rate by memory pressure, since 12 s ago; some task waited for memory 34.0 % of the \
                      time (2.1 % without moves); all tasks waited for memory 0.0 % of the time\nscope default: stopped by ping-pong, \
                      since 2 s ago; 61.2 % of the moved pages had been moved before\n";
        assert_eq!(brakes(&all, false), braked);
        let free = "scope /batch: free again; some task waited for memory 5.0 % of the time\n";
        assert_eq!(brakes(&all, true), format!("{braked}{free}"));
    }

    #[test]
    fn memory_is_told_by_process_and_node_in_order() {
        let mut redis = Resident {
            pid: Pid(812),
            comm: "redis-server".to_owned(),
            kib_by_node: BTreeMap::from([(NodeId(10), 1024), (NodeId(2), 1536)]),
            away: None,
        };
        let found = Residency { processes: vec![redis.clone()], not_looked_at: 3, ..Residency::default() };
        let text = residency(&Ok(found));
        let words: Vec<&str> = text.split_whitespace().collect();
        let row = "memory of redis-server (812) node 2: 1.5 MiB node 10: 1.0 MiB and 3 smaller processes, 0 that cannot be read";
        assert_eq!(words.join(" "), row);
        redis.away = Some(Away {
            pid: Pid(812),
            comm: redis.comm.clone(),
            memory_node: NodeId(2),
            kib: 1536,
            of_kib: 2560,
            threads: vec![812],
            thread_nodes: vec![NodeId(0)],
            of_threads: 1,
            cpus: "8-15".to_owned(),
        });
        let text = residency(&Ok(Residency { processes: vec![redis], ..Residency::default() }));
        let row = "\n  1.5 of 2.5 MiB are on node 2, and 1 of 1 threads ran on node 0 last: start it with numactl \
                   --cpunodebind=2, or give its cgroup cpuset.cpus = 8-15; for now: taskset -acp 8-15 812\n";
        assert!(text.ends_with(row), "{text}");
        assert_eq!(residency(&Err("gone".to_owned())), "memory of processes: gone\n");
    }
}
