//! `thermocline explain`: why a page did or did not move.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::daemon::socket::{self, Request};
use crate::text;

/// Asks the daemon behind `socket` and renders its answer.
///
/// # Errors
/// When no daemon answers.
pub fn explain(socket: &Path, pid: u32, address: u64, json: bool) -> anyhow::Result<String> {
    let answer = socket::ask(socket, &Request::Explain { pid, address })?;
    Ok(if json { format!("{answer:#}\n") } else { text(&answer) })
}

fn text(e: &Value) -> String {
    let vpn = e["page"]["vpn"].as_u64().unwrap_or(0);
    let mut out = format!("pid {} address {:#x}", e["page"]["pid"], vpn << 12);
    if let Some(pfn) = e["pfn"].as_u64() {
        let _ = write!(out, ", frame {pfn:#x}");
    }
    let _ = writeln!(out, ": {}", e["summary"].as_str().unwrap_or("?"));
    if let Some(record) = e["record"].as_object() {
        let gap = record["gap_ms"].as_u64().map_or("long ago".to_owned(), |ms| format!("{ms} ms ago"));
        let _ = writeln!(out, "record: {} accesses that counted, the last {gap}", record["frequency"]);
    }
    for said in e["state"]["estimates"].as_array().into_iter().flatten() {
        let (source, us) = (plain(&said["source"]), said["gap_us"].as_u64().unwrap_or(0));
        let time = if us < 1000 { format!("{us} us") } else { format!("{:.1} ms", us as f64 / 1000.0) };
        let _ = writeln!(out, "{source}: accessed once in {time}");
    }
    if e["scope"].is_object() {
        let _ = writeln!(out, "{}", text::scope_row(&e["scope"]));
    }
    if !e["brake"]["by"].is_null() {
        let _ = writeln!(out, "{}", text::brake_row(&e["brake"]));
    }
    let decisions = e["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    let first = decisions.first().and_then(|d| d["time"].as_u64()).unwrap_or(0);
    for decision in decisions {
        let at = decision["time"].as_u64().unwrap_or(first).saturating_sub(first) as f64 / 1e9;
        let facts = decision
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| !matches!(key.as_str(), "time" | "page" | "pfn") && !value.is_null());
        let facts: Vec<String> = facts.map(|(key, value)| format!("{key} {}", plain(value))).collect();
        let _ = writeln!(out, "{at:>+9.3}s  {}", facts.join(", "));
    }
    out
}

/// A value without JSON's quotes, brackets and braces.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join("+"),
        Value::Object(map) => {
            map.iter().map(|(k, v)| format!("{k} {}", plain(v))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_reads_as_text() {
        let answer = serde_json::json!({
            "page": { "pid": 7, "vpn": 16 }, "pfn": 255, "summary": "moved; nothing since",
            "record": { "frequency": 3, "gap_ms": 20, "node": 0, "ready": true },
            "scope": { "name": "db", "top_tier_pages": 512, "age_ms": 5, "floor_pages": 0, "cap_pages": 512, "room_pages": 0 },
            "brake": { "name": "db", "rate_bp": 5000, "by": "ping_pong", "for_ms": 4000, "again_bp": 5100 },
            "state": { "state": "waiting", "estimates": [{ "source": "hint-fault", "gap_us": 12_340, "expires": 5 }] },
            "decisions": [
                { "time": 1_000_000_000u64, "what": "proposed", "score": 900, "sources": ["hint-fault", "damon"] },
                { "time": 1_500_000_000u64, "what": { "what": "moved", "batch": 4 } },
            ],
        });
        let text = text(&answer);
        assert!(text.starts_with("pid 7 address 0x10000, frame 0xff: moved; nothing since\n"), "{text}");
        assert!(text.contains("record: 3 accesses that counted, the last 20 ms ago"), "{text}");
        assert!(
            text.contains("scope db: 2.0 MiB of the top tier 5 ms ago; cap 2 MiB: nothing is promoted"),
            "{text}"
        );
        assert!(text.contains("scope db: braked to 1/2 of its rate by ping-pong, since 4 s ago"), "{text}");
        assert!(text.contains("hint-fault: accessed once in 12.3 ms\n"), "{text}");
        assert!(text.contains("sources hint-fault+damon"), "{text}");
        assert!(text.contains("+0.500s  what batch 4 what moved"), "{text}");
    }
}
