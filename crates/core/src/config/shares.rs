//! What shares of the top tier contradict: a configuration that demotes for nobody, and DRAM.

use crate::config::schema::Violation;
use crate::config::{Config, DemotionMode, DemotionWay, ManagerName, Scope, Unreachable};

/// The shares come to more than the top tier has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "scope.top_tier_share_mib: the shares{and_floors} come to {sum_mib} MiB ({terms}), and the top tier has {top_mib} \
     MiB; lower them: what is not there cannot be guaranteed"
)]
pub struct SharesExceed {
    and_floors: &'static str,
    sum_mib: u64,
    terms: String,
    top_mib: u64,
}

/// Shares named in the sum at most.
const TERMS_MAX: usize = 8;

impl Config {
    /// Whether a top tier of so much memory has what all shares come to. What scopes without a
    /// share keep as their floors, no share can have.
    ///
    /// # Errors
    /// It has less; the sum with its terms.
    pub fn check_shares_fit(&self, top_mib: u64) -> Result<(), SharesExceed> {
        if shares(self).next().is_none() {
            return Ok(());
        }
        let kept = |scope: &Scope| scope.top_tier_share_mib.max(scope.top_tier_floor_mib);
        let all = || self.scope.iter().enumerate().filter(|(_, scope)| kept(scope) > 0);
        let sum_mib = all().fold(0u64, |sum, (_, scope)| sum.saturating_add(kept(scope)));
        if sum_mib <= top_mib {
            return Ok(());
        }
        let is_floor = |scope: &Scope| scope.top_tier_share_mib < scope.top_tier_floor_mib;
        let term = |(i, scope): (usize, &Scope)| {
            let of = if is_floor(scope) { "'s floor" } else { "" };
            format!("{}{of} {}", scope.told(i), kept(scope))
        };
        let mut terms = all().take(TERMS_MAX).map(term).collect::<Vec<_>>().join(" + ");
        if let Some(more) = all().count().checked_sub(TERMS_MAX).filter(|more| *more > 0) {
            terms.push_str(&format!(" + {more} more"));
        }
        let and_floors = if all().any(|(_, scope)| is_floor(scope)) { " and floors" } else { "" };
        Err(SharesExceed { and_floors, sum_mib, terms, top_mib })
    }

    /// Why no memory can be demoted, whatever the machine; `None` if some can be.
    pub fn undemotable(&self) -> Option<Unreachable> {
        if self.demotion.mode == DemotionMode::Off {
            return Some(Unreachable::Off);
        }
        if !self.admission.demote {
            return Some(Unreachable::Direction);
        }
        if self.kernel.demotion_enabled == Some(false) {
            return Some(Unreachable::KernelOff);
        }
        let auto = self.demotion.mode == DemotionMode::Auto;
        self.scope.iter().enumerate().find_map(|(i, scope)| match scope.cgroup_alone() {
            None => Some(Unreachable::Processes(i)),
            Some(_) if auto && scope.keeps_some() => Some(Unreachable::Floor(i)),
            Some(_) if auto && scope.exclude => Some(Unreachable::Excluded(i)),
            Some(_) => None,
        })
    }

    /// Appends what keeps shares from being given back.
    pub(super) fn check_shares(&self, out: &mut Vec<Violation>) {
        let Some((i, scope)) = shares(self).next().filter(|_| self.manager.name == ManagerName::Thermocline)
        else {
            return;
        };
        let mut violate = |key: &str, what: &str| {
            let message = format!(
                "{what}, and scope[{i}].top_tier_share_mib ({} MiB) can only be given back by demoting what others hold; \
                 change one of them",
                scope.top_tier_share_mib
            );
            out.push(Violation { key: key.to_owned(), message });
        };
        match self.undemotable() {
            None => {}
            // Whether processes have cgroups to themselves only the machine knows.
            Some(Unreachable::Processes(at)) if self.scope[at].may_be_cgroup() => {}
            Some(why) => violate(key_of(&why), &why.to_string()),
        }
        if self.demotion.scope_rate_mbps == 0 {
            violate("demotion.scope_rate_mbps", "0 lets no scope be asked for what it holds");
        }
        if matches!(self.demotion.way, DemotionWay::Regions | DemotionWay::Node) {
            violate("demotion.way", "by regions or by the node any memory is demoted, whoever owns it");
        }
    }
}

fn shares(config: &Config) -> impl Iterator<Item = (usize, &Scope)> {
    config.scope.iter().enumerate().filter(|(_, scope)| scope.top_tier_share_mib > 0)
}

/// The key that is to be changed.
fn key_of(why: &Unreachable) -> &'static str {
    match why {
        Unreachable::Direction => "admission.demote",
        Unreachable::KernelOff => "kernel.demotion_enabled",
        Unreachable::Processes(_) => "scope",
        Unreachable::Off | Unreachable::Excluded(_) | Unreachable::Floor(_) => "demotion.mode",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(cgroup: &str, share_mib: u64) -> Scope {
        Scope {
            name: cgroup.trim_matches('/').to_owned(),
            cgroup: Some(cgroup.to_owned()),
            top_tier_share_mib: share_mib,
            ..Scope::default()
        }
    }

    fn config(scopes: &[Scope]) -> Config {
        Config { scope: scopes.to_vec(), ..Config::default() }
    }

    fn refused(change: impl Fn(&mut Config)) -> String {
        let mut config = config(&[scope("/a", 64), scope("/", 0)]);
        change(&mut config);
        config.check().err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        assert_eq!(refused(|_| ()), "");
        let by = |change: fn(&mut Config), begin: &str, what: &str| {
            let found = refused(change);
            let line = found.lines().find(|line| line.starts_with(begin));
            assert!(line.is_some_and(|line| line.contains(what)), "{begin} {what}: {found}");
        };
        let share = "scope[0].top_tier_share_mib: ";
        by(|c| c.scope[0].top_tier_floor_mib = 65, share, "top_tier_floor_mib of the scope is 65 MiB, more");
        by(
            |c| c.scope[0].top_tier_cap_mib = Some(63),
            share,
            "top_tier_cap_mib of the scope is 63 MiB, less",
        );
        by(
            |c| c.scope[0].exclude = true,
            share,
            "an excluded scope is left alone, so that nothing keeps its top_tier_share_mib of 64",
        );
        by(|c| c.scope[0].pids = vec![1], share, "counts memory by cgroup");
        by(|c| c.scope[0].command = Some("db".to_owned()), share, "counts memory by cgroup");
        by(|c| c.scope[0].cgroup = None, share, "counts memory by cgroup");
        by(|c| c.scope.swap(0, 1), "scope[1].top_tier_share_mib: ", "scope[0] stands before this scope");
        by(
            |c| c.scope.push(Scope { exclude: true, ..scope("/a/b", 0) }),
            share,
            "scope[2] is excluded and lies",
        );
        by(
            |c| c.demotion.mode = DemotionMode::Off,
            "demotion.mode: ",
            "scope[0].top_tier_share_mib (64 MiB) can only",
        );
        by(|c| c.admission.demote = false, "admission.demote: ", "admission.demote is false");
        by(|c| c.kernel.demotion_enabled = Some(false), "kernel.demotion_enabled: ", "is false");
        by(|c| c.scope[0].top_tier_floor_mib = 1, "demotion.mode: ", "scope[0] has a top_tier_floor_mib");
        let out = |c: &mut Config| c.scope.insert(1, Scope { exclude: true, ..scope("/x", 0) });
        by(out, "demotion.mode: ", "scope[1] is excluded");
        let command = Scope { command: Some("x".to_owned()), ..Scope::default() };
        let refusal = refused(|c| c.scope.push(command.clone()));
        assert!(refusal.starts_with("scope: scope[2] names processes"), "{refusal}");
        by(|c| c.demotion.scope_rate_mbps = 0, "demotion.scope_rate_mbps: ", "0 lets no scope be asked");
        by(|c| c.demotion.way = DemotionWay::Node, "demotion.way: ", "whoever owns it");
        by(|c| c.demotion.way = DemotionWay::Regions, "demotion.way: ", "whoever owns it");
        by(|c| c.manager.name = ManagerName::Damon, share, "more than manager damon knows");
        by(|c| c.manager.name = ManagerName::Numab2, "manager.name: ", "knows no scopes");
    }

    #[test]
    fn a_floor_below_the_share_is_accepted_where_demotion_is_asked_for() {
        let accepted = |c: &mut Config| {
            c.demotion.mode = DemotionMode::On;
            (c.scope[0].top_tier_floor_mib, c.scope[0].top_tier_cap_mib) = (64, Some(64));
        };
        assert_eq!(refused(accepted), "");
    }

    #[test]
    fn shares_beyond_the_top_tier_are_summed_up() {
        let config = config(&[scope("/a", 600), scope("/b", 425), scope("/", 0)]);
        assert_eq!(config.check_shares_fit(1025), Ok(()));
        let error = config.check_shares_fit(1024).unwrap_err().to_string();
        let sum = "the shares come to 1025 MiB (a 600 + b 425), and the top tier has 1024 MiB";
        assert!(error.contains(sum), "{error}");
    }

    #[test]
    fn what_others_keep_as_floors_no_share_can_have() {
        let floor = Scope { top_tier_floor_mib: 425, ..scope("/b", 0) };
        let both = config(&[Scope { top_tier_floor_mib: 500, ..scope("/a", 600) }, floor.clone()]);
        assert_eq!(both.check_shares_fit(1025), Ok(()), "a floor within a share is part of it");
        let error = both.check_shares_fit(1024).unwrap_err().to_string();
        assert!(error.contains("the shares and floors come to 1025 MiB (a 600 + b's floor 425)"), "{error}");
        assert_eq!(config(&[floor]).check_shares_fit(64), Ok(()), "there is no share");
    }
}
