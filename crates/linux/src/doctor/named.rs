//! Whether the cgroups that the configuration's scopes name exist.

use thermocline_core::config::Config;

use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Ground, Severity};
use crate::scope::{ScopeError, Scopes, cgroup, missing};

/// Errors in the scopes, and named cgroups that do not exist.
pub(super) fn named(look: &mut Look<'_>, config: &Config) -> Vec<Finding> {
    let scopes = match Scopes::new(&config.scope) {
        Ok(scopes) => scopes,
        Err(error) => return vec![Finding::new("scope.refused", Severity::Blocker, error.to_string())],
    };
    if !scopes.needs_cgroup() {
        return Vec::new();
    }
    let mount = cgroup::mount(look.root);
    if look.keep(mount).flatten().is_none() {
        let index = config.scope.iter().position(|scope| scope.cgroup.is_some()).unwrap_or(0);
        let cause = ScopeError::NoCgroups { index }.to_string();
        return vec![Finding::new("scope.refused", Severity::Blocker, cause)];
    }
    let missing = missing(look.root, &config.scope);
    let finding = |cause| {
        Finding::new("scope.no_cgroup", Severity::Problem, cause).fix(
            Ground::OURS,
            "name a cgroup of version 2, by its path below the hierarchy's root as /proc/PID/cgroup has it behind \"0::\"",
        )
    };
    look.keep(missing).into_iter().flatten().map(finding).collect()
}
