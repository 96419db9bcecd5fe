//! `thermocline status`: what the daemon reports of itself.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::daemon::snapshot::SCHEMA;
use crate::daemon::socket::{self, Request};
use crate::text::{brakes, by_damon, by_kernel, kswapd, overhead, residency, reverse, scopes, sources};

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
    match foreign(&answer) {
        Some(why) => anyhow::bail!(why),
        None => Ok(text(&answer)),
    }
}

/// Why the answer cannot be shown as text, where the daemon is of another version whose figures
/// have other places or meanings.
fn foreign(answer: &Value) -> Option<String> {
    let schema = answer["schema"].as_u64();
    (schema != Some(SCHEMA)).then(|| {
        format!(
            "the daemon is thermocline {}, whose status has schema {}; this command is {} and \
             shows schema {SCHEMA}: restart the daemon, or use --json, which shows the answer as it is",
            answer["version"].as_str().unwrap_or("of an unknown version"),
            schema.map_or("none".to_owned(), |schema| schema.to_string()),
            env!("CARGO_PKG_VERSION"),
        )
    })
}

/// Sentences, a line each.
fn lines(found: &Value) -> String {
    found.as_array().into_iter().flatten().filter_map(Value::as_str).map(|s| format!("{s}\n")).collect()
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
    out.push_str(&sources(s));
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
    fn a_daemon_of_another_schema_is_refused_with_what_helps() {
        assert_eq!(foreign(&json!({ "schema": SCHEMA, "version": "9.9.9" })), None);
        let newer = foreign(&json!({ "schema": SCHEMA + 1, "version": "9.9.9" })).unwrap();
        assert!(newer.contains("thermocline 9.9.9, whose status has schema 2"), "{newer}");
        let older = foreign(&json!({ "version": "0.1.0" })).unwrap();
        assert!(older.contains("schema none") && older.contains("--json"), "{older}");
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
}
