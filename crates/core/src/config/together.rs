//! What single ranges do not tell of keys from several sections: whether they fit together on any
//! machine.

use crate::config::schema::Violation;
use crate::config::{Config, DemotionMode, DemotionWay, ManagerName, Sources, Unreachable};

impl Config {
    /// Appends what no machine could be managed by.
    pub(super) fn check_together(&self, out: &mut Vec<Violation>) {
        let mut violate = |key: String, message: String| out.push(Violation { key, message });
        if let Err(error) = self.tiers.check_alone() {
            violate(format!("tiers.{}", error.key()), error.to_string());
        } else if self.tiers.nodes.iter().filter(|tier| !tier.is_empty()).count() == 1 {
            let message = "puts all nodes into one tier; give each kind of memory a list of its own, fastest first, as in \
                           [[0, 1], [2]]";
            violate("tiers.nodes".to_owned(), message.to_owned());
        }
        match self.manager.name {
            ManagerName::Numab2 if !self.scope.is_empty() => violate(
                "manager.name".to_owned(),
                "numab2 acts on the whole machine and knows no scopes; remove them, or choose another manager"
                    .to_owned(),
            ),
            ManagerName::Damon => {
                let keys = self.scope.iter().map(|scope| scope.beyond_cgroup());
                for (i, key) in keys.enumerate().filter_map(|(i, key)| Some((i, key?))) {
                    let message = "is more than manager damon knows: it tells whose a page is by its cgroup alone; \
                                   give the scope a cgroup and nothing but a name and exclude beside it";
                    violate(format!("scope[{i}].{key}"), message.to_owned());
                }
            }
            ManagerName::Thermocline | ManagerName::Observe => self.check_sources(&mut violate),
            ManagerName::Numab2 => {}
        }
        if self.manager.name == ManagerName::Thermocline && self.demotion.mode == DemotionMode::On {
            self.check_demotion(&mut violate);
        }
    }

    /// Without evidence nothing can be decided.
    fn check_sources(&self, violate: &mut impl FnMut(String, String)) {
        let source = &self.source;
        if !source.any_enabled() {
            let message = format!("no source is switched on; set {}", Sources::switches());
            violate("source.hintfault.enabled".to_owned(), message);
        }
        if source.hintfault.enabled && self.kernel.numa_balancing == Some(0) {
            let message = "0 keeps the kernel from scanning, so that there are no hint faults; unset it, or set \
                           source.hintfault.enabled = false and use another source";
            violate("kernel.numa_balancing".to_owned(), message.to_owned());
        }
    }

    /// Who insists on demotion must not forbid it.
    fn check_demotion(&self, violate: &mut impl FnMut(String, String)) {
        let mut contradicts = |key: &str, what: &str| {
            let message =
                format!("{what}, and demotion.mode = \"on\" insists on demotion; change one of them");
            violate(key.to_owned(), message);
        };
        if !self.admission.demote {
            contradicts("admission.demote", &Unreachable::Direction.to_string());
        }
        if self.kernel.demotion_enabled == Some(false) {
            contradicts("kernel.demotion_enabled", &Unreachable::KernelOff.to_string());
        }
        if let Some(i) = self.scope.iter().position(|scope| !scope.may_be_cgroup()) {
            contradicts(&format!("scope[{i}]"), &Unreachable::Processes(i).to_string());
        }
        let way = self.demotion.way;
        if way == DemotionWay::Regions && self.source.damon.enabled {
            contradicts("demotion.way", "source.damon has DAMON's threads to itself");
        }
        if matches!(way, DemotionWay::Regions | DemotionWay::Node) && !self.scope.is_empty() {
            contradicts(
                "demotion.way",
                "by regions or by the node any memory is demoted, whoever owns it, and there are scopes",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Enabled, Scope};

    fn violations(change: impl Fn(&mut Config)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config);
        config.check().err().map_or_else(Vec::new, |error| error.0.into_iter().map(|v| v.key).collect())
    }

    fn cgroup(path: &str, exclude: bool) -> Scope {
        Scope { cgroup: Some(path.to_owned()), exclude, ..Scope::default() }
    }

    #[test]
    fn maps_of_tiers_do_not_contradict_themselves() {
        assert!(violations(|c| c.tiers.nodes = vec![vec![0, 1], vec![], vec![2]]).is_empty());
        assert_eq!(violations(|c| c.tiers.nodes = vec![vec![0], vec![1, 0]]), ["tiers.nodes"]);
        assert_eq!(violations(|c| c.tiers.nodes = vec![vec![0, 1]]), ["tiers.nodes"]);
        assert_eq!(violations(|c| c.tiers.nodes = (0..300).map(|n| vec![n]).collect()), ["tiers.nodes"]);
        let both = |c: &mut Config| {
            c.tiers.nodes = vec![vec![0], vec![1]];
            c.tiers.exclude = vec![1];
        };
        assert_eq!(violations(both), ["tiers.exclude"]);
    }

    #[test]
    fn a_manager_that_looks_needs_something_to_look_by() {
        let blind = |c: &mut Config| c.source.hintfault.enabled = false;
        assert_eq!(violations(blind), ["source.hintfault.enabled"]);
        for name in [ManagerName::Numab2, ManagerName::Damon] {
            let by_kernel = |c: &mut Config| {
                blind(c);
                c.manager.name = name;
            };
            assert!(violations(by_kernel).is_empty());
        }
        assert!(violations(|c| (blind(c), c.source.hwsample.enabled = Enabled::Auto).1).is_empty());
        let unscanned = |c: &mut Config| c.kernel.numa_balancing = Some(0);
        assert_eq!(violations(unscanned), ["kernel.numa_balancing"]);
        let by_regions = |c: &mut Config| {
            unscanned(c);
            c.source.damon.enabled = true;
        };
        assert_eq!(violations(by_regions), ["kernel.numa_balancing"]);
        assert!(violations(|c| (by_regions(c), blind(c)).1).is_empty());
    }

    #[test]
    fn scopes_are_such_as_the_manager_knows() {
        let with = |name, scope: Scope| {
            violations(move |c: &mut Config| {
                c.manager.name = name;
                c.scope = vec![scope.clone()];
            })
        };
        assert_eq!(with(ManagerName::Numab2, cgroup("/a", true)), ["manager.name"]);
        assert!(with(ManagerName::Damon, cgroup("/a", true)).is_empty());
        let by_pid = Scope { pids: vec![1], ..Scope::default() };
        assert_eq!(with(ManagerName::Damon, by_pid.clone()), ["scope[0].pids"]);
        assert!(with(ManagerName::Thermocline, by_pid).is_empty());
    }

    #[test]
    fn who_insists_on_demotion_does_not_forbid_it() {
        let on = |change: fn(&mut Config)| {
            violations(move |c| {
                c.demotion.mode = DemotionMode::On;
                change(c);
            })
        };
        assert!(on(|_| {}).is_empty());
        assert_eq!(on(|c| c.admission.demote = false), ["admission.demote"]);
        assert_eq!(on(|c| c.kernel.demotion_enabled = Some(false)), ["kernel.demotion_enabled"]);
        let regions = |c: &mut Config| {
            c.demotion.way = DemotionWay::Regions;
            c.source.damon.enabled = true;
        };
        assert_eq!(on(regions), ["demotion.way"]);
        let command = |c: &mut Config| {
            let by_command = Scope { command: Some("db".to_owned()), ..Scope::default() };
            c.scope = vec![Scope { pids: vec![1], ..Scope::default() }, by_command];
        };
        assert_eq!(
            on(command),
            ["scope[1]"],
            "whether a process has its cgroup to itself, the machine tells"
        );
        let node = |c: &mut Config| {
            c.demotion.way = DemotionWay::Node;
            c.scope = vec![cgroup("/a", false)];
        };
        assert_eq!(on(node), ["demotion.way"]);
    }
}
