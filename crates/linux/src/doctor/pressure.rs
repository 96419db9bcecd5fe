//! Whether the brake can see memory pressure.

use thermocline_core::config::{Config, ManagerName};
use thermocline_core::units::Nanos;

use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Severity};
use crate::scope::Pressures;

/// A finding if the memory pressure of scopes whose pages we would move cannot be read.
pub(super) fn pressure(look: &mut Look<'_>, config: &Config) -> Vec<Finding> {
    if !config.brake.enabled || config.manager.name != ManagerName::Thermocline {
        return Vec::new();
    }
    let pressures = Pressures::new(look.root, &config.scope);
    let Some(pressures) = look.keep(pressures) else { return Vec::new() };
    let mut unknown: Vec<String> =
        pressures.read(Nanos(0)).filter_map(|read| Some(read.err()?.to_string())).collect();
    unknown.dedup();
    let finding = |why: String| {
        let cause =
            format!("moves are braked by ping-pong alone, because memory pressure is not known: {why}");
        Finding::new("brake.no_pressure", Severity::Note, cause)
    };
    unknown.into_iter().map(finding).collect()
}
