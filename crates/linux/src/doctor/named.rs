//! Whether the configuration's scopes can be used.

use thermocline_core::config::Config;

use crate::finding::{Finding, Kind, Look};
use crate::scope::{ScopeError, Scopes, cgroup};

/// Errors in the scopes.
pub(super) fn named(look: &mut Look<'_>, config: &Config) -> Vec<Finding> {
    let scopes = match Scopes::new(&config.scope) {
        Ok(scopes) => scopes,
        Err(error) => return vec![Finding::new(Kind::ScopeRefused, error.to_string())],
    };
    if !scopes.needs_cgroup() {
        return Vec::new();
    }
    let mount = cgroup::mount(look.root);
    if look.keep(mount).flatten().is_none() {
        let index = config.scope.iter().position(|scope| scope.cgroup.is_some()).unwrap_or(0);
        let cause = ScopeError::NoCgroups { index }.to_string();
        return vec![Finding::new(Kind::ScopeRefused, cause)];
    }
    Vec::new()
}
