//! Where memory lies, who holds how much of the top tier, and who is braked.

use std::fmt::Write;

use serde_json::Value;
use thermocline_core::demotion::OVER_PAGES;

use crate::escape;

/// A row a process: its name, its number and its MiB on each node.
pub fn residency(found: &Value) -> String {
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

/// A row a scope with a floor or a cap: what it holds of the top tier, and what follows.
pub fn scopes(found: &Value) -> String {
    found.as_array().into_iter().flatten().map(|scope| scope_row(scope) + "\n").collect()
}

/// How one scope stands.
pub fn scope_row(scope: &Value) -> String {
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
pub fn rate(rate_bp: u64) -> String {
    match 10_000u64.checked_div(rate_bp) {
        None => "stopped".to_owned(),
        Some(1) => "free".to_owned(),
        Some(part) => format!("braked to 1/{part} of its rate"),
    }
}

/// A row a scope that is braked, and, where that is asked for, also those that are not.
pub fn brakes(found: &Value, free_too: bool) -> String {
    let rows = found.as_array().into_iter().flatten();
    rows.filter(|brake| free_too || !brake["by"].is_null()).map(|brake| brake_row(brake) + "\n").collect()
}

/// How one scope is braked, and by which figures.
pub fn brake_row(brake: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
