//! Whether a running thermocline has its settings, and gets its work done.

use super::evidence;
use crate::finding::{Facts, Finding, Ground, Kind, NO_EVIDENCE, View};

/// Settings that have another value than thermocline gave them.
pub(super) fn settings(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let changed = view.changed(facts);
    if changed.is_empty() {
        return Vec::new();
    }
    let each = changed.iter().map(|c| format!("{} is {}, not {}", c.path.display(), c.found, c.ours));
    let cause = format!(
        "somebody else has changed kernel settings of the running thermocline: {}",
        each.collect::<Vec<_>>().join("; ")
    );
    vec![Finding::new(Kind::SettingsChanged, cause).fix(
        Ground::OURS,
        "find out who sets them (`sysctl --system` and tuned do so) and have it stopped; kernel.when_changed says whether they are set again",
    )]
}

/// A minute that came to nothing. If that is for a lack of evidence, and a silent source says so,
/// there is nothing to add.
pub(super) fn stuck(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let Some(stuck) = view.minute().and_then(|minute| minute.stuck.as_ref()) else { return Vec::new() };
    if stuck.reason == NO_EVIDENCE && !evidence::silent(view, facts).is_empty() {
        return Vec::new();
    }
    let cause = format!("for a minute nothing has moved: {}", stuck.sentence);
    let mut finding = Finding::new(Kind::MovesStuck, cause);
    finding.about.reason = Some(stuck.reason);
    vec![finding.fix(Ground::OURS, "`thermocline doctor` looks for what is behind it")]
}
