//! Whose memory may go down: what the kernel can be asked for is a node's memory of a cgroup, so scopes have to be cgroups.

use serde::Serialize;

use crate::config::{Config, DemotionMode, Scope};

/// Whose memory demotion may take. Paths are those of cgroup v2, each for its whole subtree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// Only these; where none is named, everything.
    pub only: Vec<String>,
    /// Never these.
    pub never: Vec<String>,
}

/// Why nothing is demoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The configuration says so.
    #[error("demotion.mode is \"off\"")]
    Off,
    /// The configuration lets nothing go to a slower tier.
    #[error("admission.demote is false")]
    Direction,
    /// The configuration keeps the kernel from demoting.
    #[error("kernel.demotion_enabled is false; unset it to have cold pages demoted")]
    KernelOff,
    /// A scope is none that the kernel knows.
    #[error(
        "scope[{0}] names processes, and the kernel's reclaim knows cgroups only; give the scope a cgroup alone \
         (systemd-run --scope starts a program in one of its own)"
    )]
    Processes(usize),
    /// A scope is to be left alone, which the kernel's own demotion does not know.
    #[error(
        "scope[{0}] is excluded, and the kernel may demote its memory too once demotion is enabled; set demotion.mode = \
         \"on\" to accept that"
    )]
    Excluded(usize),
}

impl Reach {
    /// Whether the memory of a cgroup may go down.
    pub fn covers(&self, cgroup: &str) -> bool {
        let within = |subtree: &String| {
            let subtree = subtree.trim_matches('/');
            let rest = cgroup.trim_start_matches('/').strip_prefix(subtree);
            subtree.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (self.only.is_empty() || self.only.iter().any(within)) && !self.never.iter().any(within)
    }
}

/// Whose memory a configuration lets go down.
///
/// # Errors
/// Why nobody's.
pub fn reach(config: &Config) -> Result<Reach, Unreachable> {
    if config.demotion.mode == DemotionMode::Off {
        return Err(Unreachable::Off);
    }
    if !config.admission.demote {
        return Err(Unreachable::Direction);
    }
    if config.kernel.demotion_enabled == Some(false) {
        return Err(Unreachable::KernelOff);
    }
    let mut reach = Reach::default();
    for (i, scope) in config.scope.iter().enumerate() {
        let path = cgroup_alone(scope).ok_or(Unreachable::Processes(i))?;
        match (scope.exclude, config.demotion.mode) {
            (true, DemotionMode::Auto) => return Err(Unreachable::Excluded(i)),
            (true, _) => reach.never.push(path),
            (false, _) => reach.only.push(path),
        }
    }
    Ok(reach)
}

/// The cgroup of a scope that has no other criterion.
fn cgroup_alone(scope: &Scope) -> Option<String> {
    scope.cgroup.clone().filter(|_| scope.pids.is_empty() && scope.command.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(scopes: Vec<Scope>, mode: DemotionMode) -> Config {
        let mut config = Config { scope: scopes, ..Config::default() };
        config.demotion.mode = mode;
        config
    }

    fn cgroup(path: &str, exclude: bool) -> Scope {
        Scope { cgroup: Some(path.to_owned()), exclude, ..Scope::default() }
    }

    #[test]
    fn cgroups_are_reached_with_their_subtrees() {
        let scopes = vec![cgroup("/a", false), cgroup("b/c/", false), cgroup("/a/x", true)];
        let reach = reach(&config(scopes, DemotionMode::On)).unwrap();
        let covered = |path: &&str| reach.covers(path);
        let paths = ["/", "/a", "/a/y", "/ab", "/a/x", "/a/x/z", "/a/xy", "/b", "/b/c", "/b/c/d"];
        let found: Vec<&str> = paths.into_iter().filter(covered).collect();
        assert_eq!(found, ["/a", "/a/y", "/a/xy", "/b/c", "/b/c/d"]);
        assert!(Reach::default().covers("/") && Reach::default().covers("/any"));
    }

    #[test]
    fn what_the_kernel_cannot_tell_apart_is_not_demoted() {
        let why = |scopes, mode| reach(&config(scopes, mode)).unwrap_err();
        let by_command = Scope { command: Some("redis".to_owned()), ..cgroup("/a", false) };
        assert_eq!(why(vec![by_command], DemotionMode::On), Unreachable::Processes(0));
        let pids = Scope { pids: vec![1], exclude: true, ..Scope::default() };
        assert_eq!(why(vec![cgroup("/a", false), pids], DemotionMode::On), Unreachable::Processes(1));
        assert_eq!(why(vec![cgroup("/a", true)], DemotionMode::Auto), Unreachable::Excluded(0));
        assert_eq!(why(Vec::new(), DemotionMode::Off), Unreachable::Off);
        let mut upwards = Config::default();
        upwards.admission.demote = false;
        assert_eq!(reach(&upwards).unwrap_err(), Unreachable::Direction);
        let mut forbidden = Config::default();
        forbidden.kernel.demotion_enabled = Some(false);
        assert_eq!(reach(&forbidden).unwrap_err(), Unreachable::KernelOff);
    }
}
