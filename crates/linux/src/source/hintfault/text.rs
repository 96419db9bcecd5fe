//! What was counted, as text.

use serde_json::Value;
use thermocline_core::statistics::Declared;

use super::Stats;
use crate::source::troubles;

/// Faults and what became of them; nothing where they are not read.
pub(super) fn text(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    let line = format!(
        "hint faults: {} seen, {} delivered, {} lost, {} out of scope\n",
        found["seen"], found["delivered"], found["dropped"], found["filtered"]
    );
    line + &troubles(found, &Stats::statistics(), &["dropped"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_went_wrong_has_a_line_of_its_own() {
        let mut found = json!(Stats { seen: 9, delivered: 7, dropped: 1, filtered: 1, ..Stats::default() });
        let line = "hint faults: 9 seen, 7 delivered, 1 lost, 1 out of scope\n";
        assert_eq!(text(&found), line);
        found["bpf_missed"] = 4.into();
        assert_eq!(text(&found), format!("{line}  bpf_missed: 4\n"));
        assert_eq!(text(&Value::Null), "");
    }
}
