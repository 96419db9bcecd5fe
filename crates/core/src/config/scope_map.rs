//! Where the scopes of one configuration are in the next, so that what is known of them goes along.

use crate::config::Scope;
use crate::units::ScopeId;

/// Which scope of a configuration continues which of the one before. A scope continues the one with
/// its name; one without a name, the one without a name that names the same processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeMap {
    /// By scope number of the configuration before: its number in the next one.
    numbers: Vec<ScopeId>,
    is_same: bool,
    are_none: bool,
}

/// What decides whose a process is.
fn who(scope: &Scope) -> (&[u32], Option<&str>, Option<&str>, bool) {
    (&scope.pids, scope.command.as_deref(), scope.cgroup.as_deref(), scope.exclude)
}

impl ScopeMap {
    /// From the scopes of one configuration to those of another.
    pub fn new(before: &[Scope], after: &[Scope]) -> ScopeMap {
        let mut taken = vec![false; after.len()];
        let mut number = |scope: &Scope| {
            let continues = |other: &Scope| match scope.name.as_str() {
                "" => other.name.is_empty() && who(scope) == who(other),
                name => name == other.name,
            };
            let place = (0..after.len()).find(|&place| !taken[place] && continues(&after[place]));
            place.map_or(ScopeId::GONE, |place| {
                taken[place] = true;
                ScopeId::of_place(place)
            })
        };
        let default = match after.iter().all(|scope| scope.exclude) {
            true => ScopeId::DEFAULT,
            false => ScopeId::GONE,
        };
        let numbers = std::iter::once(default).chain(before.iter().map(&mut number)).collect();
        let same = |(before, after): (&Scope, &Scope)| before.name == after.name && who(before) == who(after);
        let is_same = before.len() == after.len() && before.iter().zip(after).all(same);
        ScopeMap { numbers, is_same, are_none: after.is_empty() }
    }

    /// Whether the same scopes are in the same places and name the same processes.
    pub fn is_same(&self) -> bool {
        self.is_same
    }

    /// Whether no scope is left: the whole machine is managed.
    pub fn are_none(&self) -> bool {
        self.are_none
    }

    /// The number that a scope has now; [`ScopeId::GONE`] if there is no such scope any more.
    pub fn of(&self, scope: ScopeId) -> ScopeId {
        self.numbers.get(usize::from(scope.0)).copied().unwrap_or(ScopeId::GONE)
    }

    /// This map and then another one.
    pub fn then(&self, next: &ScopeMap) -> ScopeMap {
        ScopeMap {
            numbers: self.numbers.iter().map(|scope| next.of(*scope)).collect(),
            is_same: self.is_same && next.is_same,
            are_none: next.are_none,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, pid: u32) -> Scope {
        Scope { name: name.to_owned(), pids: vec![pid], ..Scope::default() }
    }

    fn numbers(before: &[Scope], after: &[Scope]) -> Vec<u16> {
        let map = ScopeMap::new(before, after);
        (0..=before.len()).map(|n| map.of(ScopeId(n as u16)).0).collect()
    }

    #[test]
    fn a_scope_keeps_its_name_and_one_without_a_name_its_processes() {
        const GONE: u16 = ScopeId::GONE.0;
        let (a, b, x, y) = (named("a", 1), named("b", 2), named("", 3), named("", 4));
        let before = [a.clone(), x.clone(), b.clone(), y.clone()];
        assert_eq!(numbers(&before, &before), [GONE, 1, 2, 3, 4]);
        assert!(ScopeMap::new(&before, &before).is_same());
        let after = [b.clone(), y.clone(), named("a", 9)];
        assert_eq!(numbers(&before, &after), [GONE, 3, GONE, 1, 2]);
        assert_eq!(numbers(&[x.clone(), x.clone()], &[x]), [GONE, 1, GONE], "no two continue in one");
        assert!(!ScopeMap::new(std::slice::from_ref(&a), &[named("a", 9)]).is_same());
        let then = ScopeMap::new(&before, &after).then(&ScopeMap::new(&after, &[a, b]));
        assert_eq!((0..5).map(|n| then.of(ScopeId(n)).0).collect::<Vec<_>>(), [GONE, 1, GONE, 2, GONE]);
    }

    #[test]
    fn everybody_else_is_managed_while_scopes_only_exclude() {
        let out = Scope { exclude: true, ..named("out", 1) };
        let map = ScopeMap::new(&[], std::slice::from_ref(&out));
        assert_eq!((map.of(ScopeId::DEFAULT), map.are_none()), (ScopeId::DEFAULT, false));
        let map = ScopeMap::new(&[out], &[named("in", 2)]);
        assert_eq!(map.of(ScopeId::DEFAULT), ScopeId::GONE);
        assert!(ScopeMap::new(&[named("in", 2)], &[]).are_none());
    }
}
