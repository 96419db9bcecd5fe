//! Scopes (whose memory may move, and how much of the top tier they keep and get) and the tier map.

use crate::cgroup::{is_within, normal};
use crate::config::schema::{Any, OrUnset, Violation};
use crate::section;

/// 64 TiB.
const MIB_MAX: u64 = 1 << 26;

section! {
    /// `[[scope]]`: processes that are managed together. Without any scope the whole machine is managed.
    Scope {
        /// Name in reports.
        name: String = String::new(), "", Any("text, unique"), "ours";
        /// Process numbers.
        pids: Vec<u32> = Vec::new(), "", Any("a list of pids"), "ours";
        /// Regular expression that the command name or line must match.
        command: Option<String> = None, "regex", Any("a regular expression, or unset"), "ours";
        /// cgroup v2 path; the whole subtree belongs to the scope.
        cgroup: Option<String> = None, "path", Any("a path below the cgroup root, or unset"), "ours";
        /// Leave these processes alone instead of managing them.
        exclude: bool = false, "", Any("true or false"), "ours";
        /// Share of the rate limit that the scope may use while others wait.
        rate_share_percent: u8 = 100, "%", 1..=100, "ours";
        /// Memory of the top tier that demotion leaves to the scope; 0: none. Needs a cgroup and no other criterion.
        top_tier_floor_mib: u64 = 0, "MiB", 0..=MIB_MAX, "ours";
        /// Memory of the top tier at which nothing is promoted into the scope any more. Needs a cgroup and no other criterion.
        top_tier_cap_mib: Option<u64> = None, "MiB", OrUnset(0..=MIB_MAX), "ours";
    }
}

section! {
    /// `[tiers]`: which nodes belong together, fastest first; empty: as the kernel says. It overrides placement, not what the kernel scans.
    TierMap {
        /// Lists of nodes, fastest tier first, as in `[[0, 1], [2]]`.
        nodes: Vec<Vec<u16>> = Vec::new(), "nodes", Any("a list of lists of node numbers"), "the kernel's memory tiers";
        /// Nodes that are left out: nothing is moved to them or from them, and their memory is not counted.
        exclude: Vec<u16> = Vec::new(), "nodes", Any("a list of node numbers"), "ours: none";
    }
}

impl Scope {
    /// Whether the scope has a floor or a cap.
    pub fn is_limited(&self) -> bool {
        self.top_tier_floor_mib > 0 || self.top_tier_cap_mib.is_some()
    }

    /// The cgroup of a scope that has no other criterion, as a normal path.
    pub fn cgroup_alone(&self) -> Option<String> {
        let path = self.cgroup.as_deref().filter(|_| self.pids.is_empty() && self.command.is_none());
        path.map(normal)
    }

    /// Whether a process of `subtree` could be in this scope.
    fn may_take_of(&self, subtree: &str) -> bool {
        self.cgroup
            .as_deref()
            .map(normal)
            .is_none_or(|own| is_within(&own, subtree) || is_within(subtree, &own))
    }
}

/// Appends floors and caps that contradict something.
pub(super) fn check_limits(scopes: &[Scope], out: &mut Vec<Violation>) {
    for (i, scope) in scopes.iter().enumerate().filter(|(_, s)| s.is_limited()) {
        let floor_mib = scope.top_tier_floor_mib;
        let name = if floor_mib > 0 { "top_tier_floor_mib" } else { "top_tier_cap_mib" };
        let mut violate = |name: &str, message: String| {
            out.push(Violation { key: format!("scope[{i}].{name}"), message });
        };
        if let Some(cap_mib) = scope.top_tier_cap_mib.filter(|cap_mib| floor_mib > *cap_mib) {
            violate(
                name,
                format!("{floor_mib} is not allowed; top_tier_cap_mib of the scope is {cap_mib} MiB"),
            );
        }
        if scope.exclude {
            violate(
                name,
                "an excluded scope is left alone, so that nothing keeps its floor or cap".to_owned(),
            );
        }
        let Some(path) = scope.cgroup_alone() else {
            let message =
                "the kernel counts memory by cgroup; give the scope a cgroup, and neither pids nor command";
            violate(name, message.to_owned());
            continue;
        };
        let earlier = scopes[..i].iter().position(|s| !s.exclude && s.may_take_of(&path));
        if let Some(earlier) = earlier {
            let message = format!(
                "scope[{earlier}] stands before this scope and may take processes of its cgroup, which would count here and \
                 not be held by the limit; put the scope with the limit first, and give limits to cgroups beside each other"
            );
            violate(name, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(cgroup: &str, floor_mib: u64, cap_mib: Option<u64>) -> Scope {
        Scope {
            cgroup: Some(cgroup.to_owned()),
            top_tier_floor_mib: floor_mib,
            top_tier_cap_mib: cap_mib,
            ..Scope::default()
        }
    }

    fn violations(scopes: &[Scope]) -> Vec<String> {
        let mut out = Vec::new();
        check_limits(scopes, &mut out);
        out.into_iter().map(|v| format!("{}: {}", v.key, v.message)).collect()
    }

    #[test]
    fn limits_of_cgroups_beside_each_other_are_fine() {
        let rest = Scope { cgroup: Some("/".to_owned()), ..Scope::default() };
        let not_these = Scope { command: Some("sshd".to_owned()), exclude: true, ..Scope::default() };
        let scopes = [
            not_these,
            scope("/a", 10, Some(10)),
            scope("/sys/fs/cgroup/ab", 0, Some(0)),
            scope("b", 5, None),
            rest,
        ];
        assert_eq!(violations(&scopes), [""; 0]);
    }

    #[test]
    fn contradictions_are_named() {
        let one = |scope: Scope| violations(&[scope]).concat();
        assert_eq!(
            one(scope("/a", 11, Some(10))),
            "scope[0].top_tier_floor_mib: 11 is not allowed; top_tier_cap_mib of the scope is 10 MiB"
        );
        assert!(
            one(Scope { exclude: true, ..scope("/a", 0, Some(1)) })
                .contains("top_tier_cap_mib: an excluded scope")
        );
        assert!(
            one(Scope { cgroup: None, pids: vec![1], ..scope("", 1, None) })
                .contains("counts memory by cgroup")
        );
        assert!(
            one(Scope { command: Some("x".to_owned()), ..scope("/a", 1, None) })
                .contains("neither pids nor command")
        );
        let by_command = Scope { command: Some("redis".to_owned()), ..Scope::default() };
        for earlier in [by_command, scope("/a/b", 0, None), scope("/", 0, None), scope("a/", 1, None)] {
            let found = violations(&[earlier, scope("/a", 1, None)]).concat();
            assert!(found.contains("scope[1].top_tier_floor_mib: scope[0] stands before"), "{found}");
        }
    }
}
