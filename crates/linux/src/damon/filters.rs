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
    /// Whether the filter matches pages of the kind, or all others.
    matching: bool,
    /// Whether matching pages are allowed, or rejected.
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

/// The filters of a scheme. If the kernel's order of checks allows it, pages of other cgroups are
/// not checked for accesses either, because that check clears their accessed bit.
fn filters(action: Action, young: bool, whose: &Whose) -> Vec<Filter<'_>> {
    // Promotion rejects what is not young, demotion what is.
    let young = young.then(|| reject("young", action == Action::MigrateCold));
    // Every page is either anonymous or not.
    let everything = [reject("anon", true), reject("anon", false)];
    match whose {
        Whose::All => young.into_iter().collect(),
        Whose::AllBut(numbers) => each(numbers, false).chain(young).collect(),
        Whose::Only(numbers) if numbers.is_empty() => everything.into(),
        // Every kernel can reject all cgroups except one.
        Whose::Only(numbers) if numbers.len() == 1 => {
            let others = each(numbers, false).map(|of| Filter { matching: false, ..of });
            others.chain(young).collect()
        }
        Whose::Only(numbers) => young.into_iter().chain(each(numbers, true)).chain(everything).collect(),
    }
}

/// Adds the writes that create the filters of the scheme in `folder`, replacing its present ones.
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

/// Whose pages may move, kept in step with the existing cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    cgroups: Cgroups,
    /// Filters of this kernel can only reject.
    one_alone: bool,
    young: bool,
    schemes: Vec<Scheme>,
    kdamonds: usize,
    /// The present filters.
    whose: Whose,
    /// The last problem reported.
    trouble: Option<String>,
}

impl Follower {
    /// Creates filters for the present cgroups. Schemes are given later.
    ///
    /// # Errors
    /// This kernel's filters cannot express the scopes.
    pub(super) fn new(root: &Root, cgroups: Cgroups, young: bool) -> Result<Follower, NotCgroups> {
        let Found { whose, untold } = cgroups.look()?;
        let one_alone = root.kernel_version().is_some_and(|version| version < ALLOW_SINCE);
        check(&whose, untold, one_alone)?;
        Ok(Follower { cgroups, one_alone, young, schemes: Vec::new(), kdamonds: 0, whose, trouble: None })
    }

    pub(super) fn whose(&self) -> &Whose {
        &self.whose
    }

    /// The same, for schemes that were created.
    pub(super) fn of(&self, schemes: &[Scheme], kdamonds: usize) -> Follower {
        Follower { schemes: schemes.to_vec(), kdamonds, ..self.clone() }
    }

    /// Updates the kdamonds' filters if the list of cgroups has changed. The kernel applies them at
    /// the end of an aggregation, for which this waits. Returns a message, once per change.
    pub fn look(&mut self, root: &Root, actuator: &mut Actuator) -> Option<String> {
        // Kdamonds that others have created in place of ours are left alone.
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
                // A cgroup or a kdamond has ended meanwhile: the next call will show it.
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

    /// The part of it that this kernel can express, rather too little than too much; `None` if too
    /// many are left out.
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
            // Omitting one would allow its pages to move, so none move.
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
            // A kdamond that somebody has ended moves nothing.
            if has(actuator, &folder.join("state"), "on") {
                fills.add(&folder, &[("state", &"commit")]);
            }
        }
        fills.0.iter().try_for_each(|(path, value)| actuator.fill(&made_by, path, value))
    }
}

/// Checks that this kernel can express all of it.
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

    /// Whether the kernel moves a page (Linux 6.12 and 7.2, damos_pa_filter_out): `cgroup` it is
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
                // The result must not depend on the kernel's default for unmatched pages: no list
                // may end with an allowing filter.
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
