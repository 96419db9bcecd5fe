//! Scopes (whose memory may move, and how much of the top tier they keep and get) and the tier map.

use std::collections::BTreeMap;

use crate::cgroup::{is_within, normal};
use crate::config::names::CgroupPath;
use crate::config::schema::{Any, Numbers, OrUnset, Text, Violation};
use crate::section;

/// 64 TiB.
const MIB_MAX: u64 = 1 << 26;

section! {
    /// `[[scope]]`: processes that are managed together. Without any scope the whole machine is
    /// managed.
    Scope {
        /// Name in reports.
        name: String = String::new(), "", Text("text, unique"), "ours";
        /// Process numbers.
        pids: Vec<u32> = Vec::new(), "", Numbers("a list of pids"), "ours";
        /// Regular expression that the command name or line must match.
        command: Option<String> = None, "regex", Text("a regular expression, or unset"), "ours";
        /// cgroup v2 path; the whole subtree belongs to the scope.
        cgroup: Option<String> = None, "path", CgroupPath, "ours";
        /// Leave these processes alone instead of managing them.
        exclude: bool = false, "", Any("true or false"), "ours";
        /// Share of the rate limit that the scope may use while others wait.
        rate_share_percent: u8 = 100, "%", 1..=100, "ours";
        /// Memory of the top tier that demotion leaves to the scope; 0: none. Needs a cgroup and no
        /// other criterion.
        top_tier_floor_mib: u64 = 0, "MiB", 0..=MIB_MAX, "ours";
        /// Memory of the top tier at which nothing is promoted into the scope any more, and above
        /// which its coldest memory is demoted. Needs a cgroup and no other criterion.
        top_tier_cap_mib: Option<u64> = None, "MiB", OrUnset(0..=MIB_MAX), "ours";
        /// Memory of the top tier that the scope gets back from scopes that hold more than their
        /// own share, as soon as its candidates want it; others may use what it does not want. 0:
        /// none. Needs a cgroup and no other criterion.
        top_tier_share_mib: u64 = 0, "MiB", 0..=MIB_MAX, "ours";
        /// Nothing of the scope that is in the top tier is demoted. Needs a cgroup and no other
        /// criterion. What is on slower tiers, and what the kernel demotes or allocates there by
        /// itself, only a cpuset without these tiers keeps from being slow.
        never_slow: bool = false, "", Any("true or false"), "ours";
    }
}

section! {
    /// `[tiers]`: which nodes belong together, fastest first; empty: as the kernel says. It
    /// overrides placement, not what the kernel scans.
    TierMap {
        /// Lists of nodes, fastest tier first, as in `[[0, 1], [2]]`.
        nodes: Vec<Vec<u16>> = Vec::new(), "nodes", Numbers("a list of lists of node numbers"), "the kernel's memory tiers", restart;
        /// Nodes that are left out: nothing is moved to them or from them, and their memory is not
        /// counted.
        exclude: Vec<u16> = Vec::new(), "nodes", Numbers("a list of node numbers"), "ours: none", restart;
    }
}

/// What of a tier map contradicts itself, whatever nodes there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierMapError {
    /// A node is named more than once.
    #[error("tiers.nodes names node {0} twice; a node belongs to one tier")]
    Twice(u16),
    /// A node is in a tier and left out.
    #[error("node {0} is in tiers.nodes and in tiers.exclude; remove it from one of them")]
    Both(u16),
    /// There are more tiers than can be numbered.
    #[error("tiers.nodes has {0} tiers; 256 is the most")]
    TooMany(usize),
}

impl TierMapError {
    /// The key that is to be changed.
    pub fn key(&self) -> &'static str {
        if matches!(self, TierMapError::Both(_)) { "exclude" } else { "nodes" }
    }
}

impl TierMap {
    /// Checks what can be told without a machine.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check_alone(&self) -> Result<(), TierMapError> {
        let tiers = self.nodes.iter().filter(|tier| !tier.is_empty()).count();
        if tiers > usize::from(u8::MAX) + 1 {
            return Err(TierMapError::TooMany(tiers));
        }
        let mut named: Vec<u16> = self.nodes.iter().flatten().copied().collect();
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TierMapError::Twice(pair[0]));
        }
        if let Some(&node) = self.exclude.iter().find(|node| named.binary_search(node).is_ok()) {
            return Err(TierMapError::Both(node));
        }
        Ok(())
    }
}

impl Scope {
    /// Whether the scope has a floor, a cap or a share.
    pub fn is_limited(&self) -> bool {
        self.keeps_some() || self.top_tier_cap_mib.is_some() || self.top_tier_share_mib > 0
    }

    /// Its limits in words.
    fn limits(&self) -> String {
        let floor = (self.top_tier_floor_mib > 0).then_some(self.top_tier_floor_mib);
        let share = (self.top_tier_share_mib > 0).then_some(self.top_tier_share_mib);
        let sizes = [
            ("top_tier_floor_mib", floor),
            ("top_tier_cap_mib", self.top_tier_cap_mib),
            ("top_tier_share_mib", share),
        ];
        let never = self.never_slow.then(|| "never_slow".to_owned());
        let sizes = sizes.into_iter().filter_map(|(key, mib)| Some(format!("{key} of {} MiB", mib?)));
        never.into_iter().chain(sizes).collect::<Vec<_>>().join(" and ")
    }

    /// Whether demotion leaves some of its memory in the top tier, or all.
    pub fn keeps_some(&self) -> bool {
        self.top_tier_floor_mib > 0 || self.never_slow
    }

    /// The key by which it keeps some.
    pub fn floor_key(&self) -> &'static str {
        if self.never_slow { "never_slow" } else { "top_tier_floor_mib" }
    }

    /// Whether it may be asked for memory that is not needed elsewhere.
    pub fn gives_way(&self) -> bool {
        self.top_tier_cap_mib.is_some()
    }

    /// What it is called: its name, or its cgroup, or its place among the scopes, from 0.
    pub fn told(&self, place: usize) -> String {
        match (self.name.as_str(), &self.cgroup) {
            ("", Some(cgroup)) => cgroup.clone(),
            ("", None) => format!("[{place}]"),
            (name, _) => name.to_owned(),
        }
    }

    /// The cgroup of a scope that has no other criterion, as a normal path.
    pub fn cgroup_alone(&self) -> Option<String> {
        let path = self.cgroup.as_deref().filter(|_| self.pids.is_empty() && self.command.is_none());
        path.map(normal)
    }

    /// Whether it may come to cgroups, which are all that the kernel's reclaim can be told of: it
    /// names nothing else, or processes alone, which may have cgroups to themselves.
    pub fn may_be_cgroup(&self) -> bool {
        self.command.is_none() && (self.cgroup.is_none() || self.pids.is_empty())
    }

    /// The key of what this scope asks beyond whose a page is by its cgroup, which is all that
    /// DAMON can be told.
    pub fn beyond_cgroup(&self) -> Option<&'static str> {
        let default = Scope::default();
        let keys = [
            (!self.pids.is_empty(), "pids"),
            (self.command.is_some(), "command"),
            (self.keeps_some(), self.floor_key()),
            (self.top_tier_cap_mib.is_some(), "top_tier_cap_mib"),
            (self.top_tier_share_mib > 0, "top_tier_share_mib"),
            (self.rate_share_percent != default.rate_share_percent, "rate_share_percent"),
            (self.cgroup.is_none(), "name"),
        ];
        keys.into_iter().find_map(|(asked, key)| asked.then_some(key))
    }
}

/// The scopes whose holding of the top tier counts, by their places: those with a limit, and, as
/// soon as one has a share, each that can be asked for memory above its own.
pub fn counted(scopes: &[Scope]) -> Vec<usize> {
    let shares = scopes.iter().any(|scope| scope.top_tier_share_mib > 0);
    let counts =
        |scope: &Scope| scope.is_limited() || (shares && !scope.exclude && scope.cgroup_alone().is_some());
    scopes.iter().enumerate().filter(|(_, scope)| counts(scope)).map(|(place, _)| place).collect()
}

/// Scopes that stand before another one, by whose processes they may take.
#[derive(Default)]
struct Earlier {
    /// The first that may take processes of any cgroup.
    of_any: Option<usize>,
    /// The first of each cgroup.
    by_path: BTreeMap<String, usize>,
}

impl Earlier {
    fn add(&mut self, place: usize, scope: &Scope) {
        if scope.exclude {
            return;
        }
        match &scope.cgroup {
            None => self.of_any = self.of_any.or(Some(place)),
            Some(path) => {
                self.by_path.entry(normal(path)).or_insert(place);
            }
        }
    }

    /// One that may take processes of `subtree`: it is of any cgroup, of one above, or of one
    /// within.
    fn may_take_of(&self, subtree: &str) -> Option<usize> {
        let ends = subtree.match_indices('/').map(|(at, _)| at.max(1)).chain([subtree.len()]);
        let above = ends.filter_map(|end| self.by_path.get(&subtree[..end]));
        let below = format!("{}/", subtree.trim_end_matches('/'));
        let within = self.by_path.range(below.clone()..).next();
        let within = within.filter(|(path, _)| path.starts_with(&below)).map(|(_, place)| place);
        self.of_any.iter().chain(above).chain(within).min().copied()
    }
}

/// Appends floors and caps that contradict something.
pub(super) fn check_limits(scopes: &[Scope], out: &mut Vec<Violation>) {
    let mut earlier = Earlier::default();
    for (i, scope) in scopes.iter().enumerate() {
        check_limit(i, scope, &earlier, out);
        check_order(i, scope, out);
        earlier.add(i, scope);
    }
    check_excluded_within(scopes, out);
}

/// An excluded cgroup within one with a cap or a share would count there and not be demoted for it:
/// the others would have to give what it holds.
fn check_excluded_within(scopes: &[Scope], out: &mut Vec<Violation>) {
    let of = |scope: &Scope| Some((scope.cgroup_alone()?, scope.exclude));
    let paths: Vec<Option<(String, bool)>> = scopes.iter().map(of).collect();
    let excluded: Vec<(usize, &str)> = paths
        .iter()
        .enumerate()
        .filter_map(|(i, of)| of.as_ref().filter(|(_, exclude)| *exclude).map(|(path, _)| (i, path.as_str())))
        .collect();
    let counts = |scope: &Scope| scope.gives_way() || scope.top_tier_share_mib > 0;
    for (i, scope) in scopes.iter().enumerate().filter(|(_, scope)| counts(scope) && !scope.exclude) {
        let Some((path, _)) = &paths[i] else { continue };
        if let Some((inner, within)) = excluded.iter().find(|(_, inner)| is_within(inner, path)) {
            let name = if scope.gives_way() { "top_tier_cap_mib" } else { "top_tier_share_mib" };
            let key = format!("scope[{i}].{name}");
            let message = format!(
                "scope[{inner}] is excluded and lies within this scope ({within} in {path}), where its memory would count \
                 towards its {} and never be demoted; give the limit to cgroups beside it",
                scope.limits()
            );
            out.push(Violation { key, message });
        }
    }
}

/// A share lies between the floor and the cap.
fn check_order(i: usize, scope: &Scope, out: &mut Vec<Violation>) {
    let (floor_mib, share_mib) = (scope.top_tier_floor_mib, scope.top_tier_share_mib);
    if share_mib == 0 {
        return;
    }
    let mut violate = |message: String| {
        out.push(Violation { key: format!("scope[{i}].top_tier_share_mib"), message });
    };
    if share_mib < floor_mib {
        violate(format!(
            "{share_mib} is not allowed; top_tier_floor_mib of the scope is {floor_mib} MiB, more than its share"
        ));
    }
    if let Some(cap_mib) = scope.top_tier_cap_mib.filter(|cap_mib| share_mib > *cap_mib) {
        violate(format!(
            "{share_mib} is not allowed; top_tier_cap_mib of the scope is {cap_mib} MiB, less than its share"
        ));
    }
}

fn check_limit(i: usize, scope: &Scope, earlier: &Earlier, out: &mut Vec<Violation>) {
    if !scope.is_limited() {
        return;
    }
    let floor_mib = scope.top_tier_floor_mib;
    let name = match scope.top_tier_cap_mib {
        _ if scope.keeps_some() => scope.floor_key(),
        Some(_) => "top_tier_cap_mib",
        None => "top_tier_share_mib",
    };
    let mut violate = |message: String| {
        out.push(Violation { key: format!("scope[{i}].{name}"), message });
    };
    if let Some(cap_mib) = scope.top_tier_cap_mib.filter(|cap_mib| floor_mib > *cap_mib) {
        violate(format!("{floor_mib} is not allowed; top_tier_cap_mib of the scope is {cap_mib} MiB"));
    }
    if let Some(cap_mib) = scope.top_tier_cap_mib.filter(|_| scope.never_slow) {
        violate(format!(
            "top_tier_cap_mib of the scope is {cap_mib} MiB, and what is above it would have to go down; unset one of them"
        ));
    }
    if scope.exclude {
        violate(format!("an excluded scope is left alone, so that nothing keeps its {}", scope.limits()));
    }
    let Some(path) = scope.cgroup_alone() else {
        return violate(format!(
            "the kernel counts memory by cgroup, and {} asks for that; give the scope a cgroup, and neither pids nor command",
            scope.limits()
        ));
    };
    if let Some(earlier) = earlier.may_take_of(&path) {
        violate(format!(
            "scope[{earlier}] stands before this scope and may take processes of its cgroup {path}, which would count here \
             and not be held by its {}; put the scope with the limit first, and give limits to cgroups beside each other",
            scope.limits()
        ));
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
        let never = |cap| Scope { never_slow: true, ..scope("/a", 0, cap) };
        assert_eq!(one(never(None)), "");
        assert!(one(never(Some(9))).contains("scope[0].never_slow: top_tier_cap_mib of the scope is 9 MiB"));
        assert!(one(Scope { pids: vec![1], ..never(None) }).contains("never_slow: the kernel counts"));
        assert!(one(Scope { exclude: true, ..never(None) }).contains("never_slow: an excluded scope"));
        for earlier in [by_command, scope("/a/b", 0, None), scope("/", 0, None), scope("a/", 1, None)] {
            let found = violations(&[earlier, scope("/a", 1, None)]).concat();
            assert!(found.contains("scope[1].top_tier_floor_mib: scope[0] stands before"), "{found}");
        }
    }

    #[test]
    fn nobody_answers_for_the_memory_of_an_excluded_scope() {
        let out = |path: &str| Scope { exclude: true, ..scope(path, 0, None) };
        let refused = |excluded: &str, cap| violations(&[out(excluded), scope("/a", 0, cap)]).len();
        assert_eq!([refused("/a/x", Some(1)), refused("a", Some(1)), refused("/b", Some(1))], [1, 1, 0]);
        assert_eq!(refused("/a/x", None), 0, "nothing is asked of it");
    }

    #[test]
    fn earlier_scopes_are_found_as_by_looking_at_each() {
        let paths = ["/", "/a", "/a/b", "/a/b/c", "/a.b", "/ab", "/b", "/a/c"];
        for first in paths {
            for second in paths {
                let is = violations(&[scope(first, 0, None), scope(second, 1, None)]).len();
                let within = |a: &str, b: &str| crate::cgroup::is_within(a, b);
                let expected = within(first, second) || within(second, first);
                assert_eq!(is, usize::from(expected), "{first} {second}");
            }
        }
    }

    #[test]
    fn many_limits_are_checked_in_little_time() {
        let scopes: Vec<Scope> = (0..100_000).map(|n| scope(&format!("/s/{n}"), 1, None)).collect();
        let start = std::time::Instant::now();
        assert_eq!(violations(&scopes), [""; 0]);
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    #[test]
    fn what_damon_cannot_be_told_is_named() {
        assert_eq!(scope("/a", 0, None).beyond_cgroup(), None);
        assert_eq!(scope("/a", 1, None).beyond_cgroup(), Some("top_tier_floor_mib"));
        assert_eq!(Scope { pids: vec![1], ..scope("/a", 0, None) }.beyond_cgroup(), Some("pids"));
        assert_eq!(Scope { cgroup: None, ..scope("", 0, None) }.beyond_cgroup(), Some("name"));
    }
}
