//! Whether the brake can see memory pressure.

use thermocline_core::config::{Config, ManagerName};
use thermocline_core::units::Nanos;

use super::Look;
use crate::scope::Pressures;

/// Why the memory pressure of scopes whose pages we would move cannot be read.
pub(super) fn unknown(look: &mut Look<'_>, config: &Config) -> Vec<String> {
    if !config.brake.enabled || config.manager.name != ManagerName::Thermocline {
        return Vec::new();
    }
    let pressures = Pressures::new(look.root, &config.scope);
    let Some(pressures) = look.keep(pressures) else { return Vec::new() };
    let mut unknown: Vec<String> =
        pressures.read(Nanos(0)).filter_map(|read| Some(read.err()?.to_string())).collect();
    unknown.dedup();
    unknown
}
