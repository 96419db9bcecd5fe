//! What was counted, as text.

use std::fmt::Write;

use serde_json::Value;
use thermocline_core::statistics::Declared;

use super::Stats;
use crate::source::troubles;

/// What devices listed as hot and what became of it; nothing where that is not read.
pub(super) fn text(found: &Value) -> String {
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
    out.push_str(&troubles(found, &Stats::statistics(), &["overflow", "taken_over"]));
    if found["refused"] == true {
        out.push_str("  the device refuses what [source.chmu] tells it to do, and lists nothing\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hot_list_is_told_with_what_it_could_not_hold() {
        let found = json!({
            "entries": 900, "waiting": 3, "overflow": 41, "counted": 123_456, "epochs": 7, "looked_up": 880, "pages": 870, "taken_over": 12,
            "counters": 64, "malformed": 0, "old": 5, "not_memory": 0, "top_tier": 0, "refused": false,
        });
        let told = "hot list: 900 entries read, 3 wait, 41 left out because it was full; 123456 accesses counted in 7 epochs; 870 pages found of 880 looked up\n  \
                    taken_over: 12 (the device has too few counters, 64: what is hot may be missing from its list)\n  old: 5\n";
        assert_eq!(text(&found), told);
        assert!(text(&json!({ "refused": true })).ends_with("lists nothing\n"));
        assert_eq!(text(&Value::Null), "");
    }
}
