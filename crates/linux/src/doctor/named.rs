//! Whether what the configuration's scopes name is there.

use thermocline_core::config::Config;

use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Ground, Severity};
use crate::root::exists;
use crate::scope::{ScopeError, Scopes, cgroup};

/// What is wrong with the scopes, and cgroups that are named and not there.
pub(super) fn named(look: &mut Look<'_>, config: &Config) -> Vec<Finding> {
    let scopes = match Scopes::new(&config.scope) {
        Ok(scopes) => scopes,
        Err(error) => return vec![Finding::new("scope.refused", Severity::Blocker, error.to_string())],
    };
    if !scopes.needs_cgroup() {
        return Vec::new();
    }
    let mount = cgroup::mount(look.root);
    let Some(mount) = look.keep(mount).flatten() else {
        let index = config.scope.iter().position(|scope| scope.cgroup.is_some()).unwrap_or(0);
        let cause = ScopeError::NoCgroups { index }.to_string();
        return vec![Finding::new("scope.refused", Severity::Blocker, cause)];
    };
    let mut findings = Vec::new();
    for (index, scope) in config.scope.iter().enumerate() {
        let Some(path) = scope.cgroup.as_deref().map(cgroup::normal) else { continue };
        if exists(&cgroup::folder(&mount, &path)) {
            continue;
        }
        let version_one =
            ["memory", "cpuset", "cpu", "cpu,cpuacct", "systemd", "pids"].into_iter().find(|controller| {
                exists(&cgroup::folder(&look.root.sys.join("fs/cgroup").join(controller), &path))
            });
        let consequence = match scope.exclude {
            true => "nothing is excluded by it",
            false => "no process is in scope by it",
        };
        let cause = match version_one {
            Some(controller) => format!(
                "scope[{index}].cgroup {path:?} is a cgroup of version 1 ({controller}), and scopes are of version 2: {consequence}"
            ),
            None => format!(
                "scope[{index}].cgroup {path:?} is not there now ({}): until it is, {consequence}",
                mount.display()
            ),
        };
        findings.push(Finding::new("scope.no_cgroup", Severity::Problem, cause).fix(
            Ground::OURS,
            "name a cgroup of version 2, by its path below the hierarchy's root as /proc/PID/cgroup has it behind \"0::\"",
        ));
    }
    findings
}
