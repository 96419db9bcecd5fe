//! Filters of schemes: which pages of a region are moved.
//!
//! A page is compared with one filter after the other, and the first that matches decides (Linux
//! Documentation/mm/damon/design.rst, "Filters"). Those of kernels before 6.14 can only reject.

use std::path::Path;

use super::cgroups::{Cgroups, Found, NotCgroups, Numbers, Whose};
use super::setup::Fills;
use super::{Action, Scheme, has, kdamond_folder, nr_kdamonds, scheme_folder};
use crate::actuator::{Actuator, ActuatorError};
use crate::root::Root;

/// Cgroups that are filtered by, at most: each page of a region is compared with one after the
/// other.
pub(super) const CGROUPS_MAX: usize = 256;
/// The first kernel whose filters can let pages through, too (`allow`).
const ALLOW_SINCE: (u32, u32) = (6, 14);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter<'a> {
    kind: &'static str,
    /// Whether what is of the kind matches, or what is not.
    matching: bool,
    /// Whether what matches is let through, or rejected.
    allow: bool,
    cgroup: Option<&'a str>,
}

const fn reject(kind: &'static str, matching: bool) -> Filter<'static> {
    Filter { kind, matching, allow: false, cgroup: None }
}

/// A filter for each cgroup.
fn each(numbers: &Numbers, allow: bool) -> impl Iterator<Item = Filter<'_>> {
    numbers.keys().map(move |path| Filter { kind: "memcg", matching: true, allow, cgroup: Some(path) })
}

/// The filters of a scheme. Pages of cgroups that it leaves alone are not looked at for having been
/// accessed either, where the kernel's order of things allows: that look makes them seem not
/// accessed to who looks next.
fn filters(action: Action, young: bool, whose: &Whose) -> Vec<Filter<'_>> {
    // Promotion rejects what is not young, demotion what is.
    let young = young.then(|| reject("young", action == Action::MigrateCold));
    // A page is anonymous or it is not.
    let everything = [reject("anon", true), reject("anon", false)];
    match whose {
        Whose::All => young.into_iter().collect(),
        Whose::AllBut(numbers) => each(numbers, false).chain(young).collect(),
        Whose::Only(numbers) if numbers.is_empty() => everything.into(),
        // Every kernel can reject all but one.
        Whose::Only(numbers) if numbers.len() == 1 => {
            let others = each(numbers, false).map(|of| Filter { matching: false, ..of });
            others.chain(young).collect()
        }
        Whose::Only(numbers) => young.into_iter().chain(each(numbers, true)).chain(everything).collect(),
    }
}

/// Adds what makes the filters of the scheme in `folder`, in place of those that it has.
pub(super) fn fill(fills: &mut Fills, folder: &Path, action: Action, young: bool, whose: &Whose) {
    let filters = filters(action, young, whose);
    let folder = folder.join("filters");
    fills.add(&folder, &[("nr_filters", &filters.len())]);
    let letter = |yes| if yes { "Y" } else { "N" };
    for (number, filter) in filters.iter().enumerate() {
        let folder = folder.join(number.to_string());
        fills.add(&folder, &[("type", &filter.kind), ("matching", &letter(filter.matching))]);
        if let Some(path) = filter.cgroup {
            fills.add(&folder, &[("memcg_path", &path)]);
        }
        // Older kernels do not have the file.
        if filter.allow {
            fills.add(&folder, &[("allow", &"Y")]);
        }
    }
}

/// Whose pages may move, kept in step with the cgroups that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    cgroups: Cgroups,
    /// Filters of this kernel can only reject.
    one_alone: bool,
    young: bool,
    schemes: Vec<Scheme>,
    kdamonds: usize,
    /// What the filters say now.
    whose: Whose,
    /// What was told last of something that is not as it should be.
    trouble: Option<String>,
}

impl Follower {
    /// With filters for the cgroups that there are now. Schemes are given later.
    ///
    /// # Errors
    /// What is meant cannot be told to this kernel.
    pub(super) fn new(root: &Root, cgroups: Cgroups, young: bool) -> Result<Follower, NotCgroups> {
        let Found { whose, untold } = cgroups.look()?;
        let one_alone = root.kernel_version().is_some_and(|version| version < ALLOW_SINCE);
        check(&whose, untold, one_alone)?;
        Ok(Follower { cgroups, one_alone, young, schemes: Vec::new(), kdamonds: 0, whose, trouble: None })
    }

    pub(super) fn whose(&self) -> &Whose {
        &self.whose
    }

    /// The same, for schemes that were made.
    pub(super) fn of(&self, schemes: &[Scheme], kdamonds: usize) -> Follower {
        Follower { schemes: schemes.to_vec(), kdamonds, ..self.clone() }
    }

    /// Looks which cgroups there are, and has the kdamonds change their filters where they are
    /// others than before: at the end of an aggregation, for which this waits. Returns what there
    /// is to say, once.
    pub fn look(&mut self, root: &Root, actuator: &mut Actuator) -> Option<String> {
        // Kdamonds that others have made instead of ours are left alone.
        if !has(actuator, &nr_kdamonds(root), &self.kdamonds.to_string()) {
            return None;
        }
        let (whose, trouble) = match self.cgroups.look() {
            Ok(Found { whose, untold }) => {
                let trouble = check(&whose, untold, self.one_alone).err();
                (self.expressible(whose), trouble.map(|why| why.to_string()))
            }
            Err(why) => (None, Some(why.to_string())),
        };
        let (told, failed) = match whose.filter(|whose| *whose != self.whose) {
            None => (None, None),
            Some(whose) => match self.commit(root, actuator, &whose) {
                Ok(()) => {
                    self.whose = whose;
                    (Some(self.whose.to_string()), None)
                }
                // A cgroup that has ended meanwhile, or a kdamond: the next look will tell.
                Err(why) => (None, Some(format!("filters stay as they were: {why}"))),
            },
        };
        let trouble = failed.or(trouble);
        let new = trouble.clone().filter(|_| trouble != self.trouble);
        self.trouble = trouble;
        match (told, new) {
            (Some(told), Some(new)) => Some(format!("{told}; {new}")),
            (told, new) => told.or(new),
        }
    }

    /// What this kernel can be told of it, rather less than more: none where too many are left out.
    fn expressible(&self, whose: Whose) -> Option<Whose> {
        match whose {
            Whose::Only(mut numbers) if self.one_alone && numbers.len() > 1 => {
                let kept = match &self.whose {
                    Whose::Only(before) => {
                        before.iter().find(|&(path, number)| numbers.get(path) == Some(number))
                    }
                    Whose::All | Whose::AllBut(_) => None,
                };
                let kept = kept.map(|(path, _)| path.clone()).or_else(|| numbers.keys().next().cloned());
                numbers.retain(|path, _| kept.as_ref() == Some(path));
                Some(Whose::Only(numbers))
            }
            Whose::Only(numbers) => {
                let most = numbers.into_iter().take(CGROUPS_MAX).collect();
                Some(Whose::Only(most))
            }
            // To leave one out would be to move its pages: rather none move.
            Whose::AllBut(numbers) if numbers.len() > CGROUPS_MAX => Some(Whose::Only(Numbers::new())),
            whose => Some(whose),
        }
    }

    fn commit(&self, root: &Root, actuator: &mut Actuator, whose: &Whose) -> Result<(), ActuatorError> {
        let made_by = nr_kdamonds(root);
        let mut fills = Fills::default();
        for scheme in &self.schemes {
            let folder = scheme_folder(&kdamond_folder(root, scheme.kdamond), scheme.number);
            fill(&mut fills, &folder, scheme.action, self.young, whose);
        }
        for kdamond in 0..self.kdamonds {
            let folder = kdamond_folder(root, kdamond);
            // One that somebody has ended moves nothing.
            if has(actuator, &folder.join("state"), "on") {
                fills.add(&folder, &[("state", &"commit")]);
            }
        }
        fills.0.iter().try_for_each(|(path, value)| actuator.fill(&made_by, path, value))
    }
}

/// Whether all of it can be told to this kernel.
fn check(whose: &Whose, untold: Option<String>, one_alone: bool) -> Result<(), NotCgroups> {
    if let Some(path) = untold {
        return Err(NotCgroups::NotCharged(path));
    }
    match whose {
        Whose::Only(numbers) if one_alone && numbers.len() > 1 => {
            Err(NotCgroups::OneAlone(numbers.keys().cloned().collect()))
        }
        Whose::Only(numbers) | Whose::AllBut(numbers) if numbers.len() > CGROUPS_MAX => {
            Err(NotCgroups::TooMany(numbers.len()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(paths: &[&str]) -> Numbers {
        paths.iter().enumerate().map(|(n, path)| ((*path).to_owned(), n as u64)).collect()
    }

    /// What the kernel makes of a page (Linux 6.12 and 7.2, damos_pa_filter_out): `cgroup` it is
    /// charged to, whether it is `young` and anonymous.
    fn moves(filters: &[Filter<'_>], cgroup: &str, young: bool, anon: bool) -> bool {
        let decided = filters.iter().find(|filter| {
            let is = match filter.kind {
                "young" => young,
                "anon" => anon,
                "memcg" => filter.cgroup == Some(cgroup),
                other => panic!("{other}"),
            };
            is == filter.matching
        });
        decided.is_none_or(|filter| filter.allow)
    }

    #[test]
    fn pages_of_the_right_cgroups_move_and_no_others() {
        let cases = [
            (Whose::All, ["/a", "/b", "/c"].as_slice()),
            (Whose::Only(numbers(&[])), &[]),
            (Whose::Only(numbers(&["/b"])), &["/b"]),
            (Whose::Only(numbers(&["/a", "/b"])), &["/a", "/b"]),
            (Whose::AllBut(numbers(&[])), &["/a", "/b", "/c"]),
            (Whose::AllBut(numbers(&["/a", "/c"])), &["/b"]),
        ];
        for (whose, may) in cases {
            for (action, check_young) in
                [(Action::MigrateHot, true), (Action::MigrateCold, true), (Action::MigrateHot, false)]
            {
                let filters = filters(action, check_young, &whose);
                for cgroup in ["/a", "/b", "/c"] {
                    for (young, anon) in [(true, true), (true, false), (false, true), (false, false)] {
                        let right = young == (action == Action::MigrateHot) || !check_young;
                        let expected = may.contains(&cgroup) && right;
                        assert_eq!(moves(&filters, cgroup, young, anon), expected, "{whose:?} {cgroup}");
                    }
                }
                // Whatever the kernel does where nothing matches: only one filter may be last that
                // lets pages through, and none is.
                assert!(filters.last().is_none_or(|last| !last.allow));
            }
        }
    }

    #[test]
    fn older_kernels_are_asked_to_reject_alone() {
        for whose in [Whose::Only(numbers(&["/b"])), Whose::AllBut(numbers(&["/a", "/c"])), Whose::All] {
            assert!(filters(Action::MigrateHot, true, &whose).iter().all(|f| !f.allow), "{whose:?}");
            assert!(check(&whose, None, true).is_ok());
        }
        let two = Whose::Only(numbers(&["/a", "/b"]));
        let error = check(&two, None, true).unwrap_err().to_string();
        assert!(error.contains("stand for 2: /a, /b; name one") && error.contains("6.14"), "{error}");
        assert!(check(&two, None, false).is_ok());
    }

    #[test]
    fn what_is_excluded_is_not_even_looked_at() {
        for whose in [Whose::AllBut(numbers(&["/a"])), Whose::Only(numbers(&["/a"]))] {
            let kinds: Vec<&str> = filters(Action::MigrateHot, true, &whose).iter().map(|f| f.kind).collect();
            assert_eq!(kinds, ["memcg", "young"]);
        }
    }

    #[test]
    fn too_many_are_refused() {
        let many: Numbers = (0..=CGROUPS_MAX as u64).map(|n| (format!("/{n}"), n)).collect();
        for whose in [Whose::Only(many.clone()), Whose::AllBut(many)] {
            assert!(matches!(check(&whose, None, false), Err(NotCgroups::TooMany(257))));
        }
        assert!(check(&Whose::All, Some("/x".to_owned()), false).is_err());
    }
}
