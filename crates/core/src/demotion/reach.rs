//! Whose memory may be demoted. The kernel demotes by node and cgroup, so scopes have to be
//! cgroups.

use serde::Serialize;

use crate::cgroup::{is_within, normal};
use crate::config::{Config, Unreachable};
use crate::units::ScopeId;

/// A cgroup, with all cgroups below it, that belongs to a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subtree {
    /// The cgroup's path.
    pub path: String,
    /// The scope.
    pub scope: ScopeId,
    /// Whether the scope keeps some memory in the top tier.
    pub floor: bool,
}

/// Whose memory demotion may take. Paths are those of cgroup v2, normal, each for its whole
/// subtree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// Only these; if empty, everything.
    pub only: Vec<Subtree>,
    /// Never these.
    pub never: Vec<String>,
}

impl Reach {
    /// Whether the memory of a cgroup may be demoted.
    pub fn covers(&self, cgroup: &str) -> bool {
        let cgroup = normal(cgroup);
        let never = self.never.iter().any(|subtree| is_within(&cgroup, subtree));
        !never && (self.only.is_empty() || self.subtree_of(&cgroup).is_some())
    }

    /// The scope that a cgroup's memory belongs to, by the first subtree that it is in.
    pub fn subtree_of(&self, cgroup: &str) -> Option<&Subtree> {
        let cgroup = normal(cgroup);
        self.only.iter().find(|subtree| is_within(&cgroup, &subtree.path))
    }
}

/// Whose memory may be demoted under a configuration.
///
/// # Errors
/// Why no memory can be.
pub fn reach(config: &Config) -> Result<Reach, Unreachable> {
    if let Some(why) = config.undemotable() {
        return Err(why);
    }
    let mut reach = Reach::default();
    for (i, scope) in config.scope.iter().enumerate() {
        let path = scope.cgroup_alone().ok_or(Unreachable::Processes(i))?;
        let floor = scope.keeps_some();
        if scope.exclude {
            reach.never.push(path);
        } else {
            reach.only.push(Subtree { path, scope: ScopeId::of_place(i), floor });
        }
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DemotionMode, Scope};

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
        let named = vec![cgroup("/sys/fs/cgroup/a", false)];
        assert!(super::reach(&config(named, DemotionMode::On)).unwrap().covers("/a/b"));
        assert!(Reach::default().covers("/") && Reach::default().covers("/any"));
    }

    #[test]
    fn a_floor_is_found_by_cgroup_and_asks_for_consent() {
        let floor = Scope { top_tier_floor_mib: 1, ..cgroup("/b/", false) };
        let scopes = vec![cgroup("/a", false), floor];
        let auto = reach(&config(scopes.clone(), DemotionMode::Auto));
        assert_eq!(auto.unwrap_err(), Unreachable::Floor(1));
        let reach = reach(&config(scopes, DemotionMode::On)).unwrap();
        let of = |path: &str| reach.subtree_of(path).map(|subtree| (subtree.scope.0, subtree.floor));
        let kept = Some((2, true));
        assert_eq!(
            [of("/a"), of("/b"), of("/b/c"), of("/bc"), of("/")],
            [Some((1, false)), kept, kept, None, None]
        );
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
