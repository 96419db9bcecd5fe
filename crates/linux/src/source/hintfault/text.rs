//! What was counted, as text.

use serde_json::Value;

/// Faults and what became of them; nothing where they are not read.
pub(super) fn text(found: &Value) -> String {
    if found.is_null() {
        return String::new();
    }
    format!(
        "hint faults: {} seen, {} delivered, {} lost, {} out of scope\n",
        found["seen"], found["delivered"], found["dropped"], found["filtered"]
    )
}
