//! Whose pages DAMON may move: cgroups named by scopes.
//!
//! DAMON identifies the owner of a page only by the memory cgroup that it is charged to, and a
//! filter matches a single cgroup without those below it (Linux 6.12 mm/damon/paddr.c). So a
//! scope's subtree is expanded into its cgroups, repeatedly, since they come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use thermocline_core::config;

use crate::root::{KernelFileError, Root};
use crate::scope::cgroup;

/// Maximum number of cgroups reported by name; of the others only the number is reported.
const TOLD_MAX: usize = 8;

/// Scopes that DAMON cannot keep to.
#[derive(Debug, thiserror::Error)]
pub enum NotCgroups {
    /// A scope uses a criterion that DAMON does not know.
    #[error(
        "scope[{index}].{key} is more than DAMON knows: it tells whose a page is by its cgroup alone; give the scope a cgroup \
         and nothing but a name and exclude beside it, or choose manager thermocline"
    )]
    Scope {
        /// Its place in the configuration, from 0.
        index: usize,
        /// The key.
        key: &'static str,
    },
    /// cgroup v2 is not mounted.
    #[error("scopes by cgroup need cgroup v2, which is not mounted: mount -t cgroup2 none /sys/fs/cgroup")]
    NotMounted,
    /// No pages are charged to a cgroup that is named.
    #[error(
        "nothing is charged to cgroup {0}, so that DAMON cannot tell its pages: it has no memory controller \
         (echo +memory > cgroup.subtree_control of the cgroup above), or a name that DAMON cannot be told"
    )]
    NotCharged(String),
    /// This kernel's filters can select only one cgroup, and more are meant.
    #[error(
        "DAMON of kernels before 6.14 can be kept to one cgroup, or from any number of them, and the scopes stand for {}: {}; name one \
         that has no others below it, exclude the others instead (exclude = true), or boot a newer kernel", .0.len(), Names(.0)
    )]
    OneAlone(Vec<String>),
    /// Too many of them.
    #[error(
        "the scopes stand for {0} cgroups, and DAMON compares each page with one after the other: {max} are the most; \
         name fewer, or choose manager thermocline", max = super::filters::CGROUPS_MAX
    )]
    TooMany(usize),
    /// The hierarchy cannot be read.
    #[error(transparent)]
    File(#[from] KernelFileError),
}

/// Cgroups by path, with the kernel's number of each: a recreated cgroup with the same name is
/// another one.
pub(super) type Numbers = BTreeMap<String, u64>;

/// Whose pages may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Everybody's.
    All,
    /// Pages charged to these cgroups.
    Only(Numbers),
    /// Pages of all others.
    AllBut(Numbers),
}

/// The result of reading the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) whose: Whose,
    /// A cgroup that is named, or lies below one, and that DAMON's filters cannot include.
    pub(super) untold: Option<String>,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |numbers: &Numbers| numbers.keys().cloned().collect::<Vec<_>>();
        match self {
            Whose::All => write!(f, "all pages may move"),
            Whose::Only(of) if of.is_empty() => {
                write!(f, "no page may move: none of the scopes' cgroups is there yet")
            }
            Whose::Only(of) => write!(f, "only pages charged to {} may move", Names(&names(of))),
            Whose::AllBut(of) if of.is_empty() => {
                write!(f, "all pages may move: none of the excluded cgroups is there yet")
            }
            Whose::AllBut(of) => write!(f, "all pages but those charged to {} may move", Names(&names(of))),
        }
    }
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join(", "))?;
        match self.0.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more cgroups"),
        }
    }
}

/// The cgroups that scopes name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroups {
    mount: PathBuf,
    only: Vec<String>,
    not: Vec<String>,
}

impl Cgroups {
    /// The cgroups of scopes, if there are any.
    pub(super) fn new(root: &Root, scopes: &[config::Scope]) -> Result<Option<Cgroups>, NotCgroups> {
        let (mut only, mut not) = (Vec::new(), Vec::new());
        for (index, scope) in scopes.iter().enumerate() {
            if let Some(key) = scope.beyond_cgroup() {
                return Err(NotCgroups::Scope { index, key });
            }
            if let Some(path) = scope.cgroup_alone() {
                if scope.exclude { &mut not } else { &mut only }.push(path);
            }
        }
        if scopes.is_empty() {
            return Ok(None);
        }
        let mount = cgroup::mount(root)?.ok_or(NotCgroups::NotMounted)?;
        Ok(Some(Cgroups { mount, only, not }))
    }

    /// Reads the hierarchy. As everywhere, a scope includes all cgroups below its own, an exclusion
    /// wins, and with exclusions alone all other pages may move.
    pub(super) fn look(&self) -> Result<Found, NotCgroups> {
        let mut untold = None;
        let not = self.within(&self.not, &[], &mut untold)?;
        let whose = match self.only.is_empty() {
            true => Whose::AllBut(not),
            false => Whose::Only(self.within(&self.only, &self.not, &mut untold)?),
        };
        Ok(Found { whose, untold })
    }

    /// The cgroups with charged pages within these subtrees, except those in other subtrees.
    fn within(
        &self,
        subtrees: &[String],
        but: &[String],
        untold: &mut Option<String>,
    ) -> Result<Numbers, NotCgroups> {
        let mut found = Numbers::new();
        let mut left: Vec<(String, bool)> = subtrees.iter().map(|path| (path.clone(), true)).collect();
        while let Some((path, named)) = left.pop() {
            if found.contains_key(&path) || but.iter().any(|subtree| cgroup::is_within(&path, subtree)) {
                continue;
            }
            // One that ends meanwhile is skipped.
            let Some(number) = cgroup::id(&self.mount, &path)? else { continue };
            let folder = cgroup::folder(&self.mount, &path);
            let name_fits = !path.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER);
            if name_fits && is_charged(&folder) {
                left.extend(cgroup::below(&self.mount, &path)?.into_iter().map(|path| (path, false)));
                found.insert(path, number);
            } else if named || !name_fits {
                // Pages of a cgroup without its own charge are charged to its parent.
                *untold = Some(path);
            }
        }
        Ok(found)
    }
}

/// Whether the memory controller is on for a cgroup: pages are then charged to it.
fn is_charged(folder: &Path) -> bool {
    crate::root::exists(&folder.join("memory.stat"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Machine {
        dir: tempfile::TempDir,
    }

    impl Machine {
        /// Memory is charged to these cgroups.
        fn new(charged: &[&str]) -> Machine {
            let machine = Machine { dir: tempfile::tempdir().unwrap() };
            let root = machine.root();
            fs::create_dir_all(root.proc.join("self")).unwrap();
            fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
            charged.iter().for_each(|path| machine.make(path));
            machine
        }

        fn root(&self) -> Root {
            Root::at(self.dir.path())
        }

        fn folder(&self, path: &str) -> PathBuf {
            self.root().sys.join("fs/cgroup").join(path.trim_start_matches('/'))
        }

        fn make(&self, path: &str) {
            fs::create_dir_all(self.folder(path)).unwrap();
            fs::write(self.folder(path).join("memory.stat"), "").unwrap();
        }

        fn look(&self, scopes: &[config::Scope]) -> Found {
            Cgroups::new(&self.root(), scopes).unwrap().unwrap().look().unwrap()
        }
    }

    fn only(path: &str) -> config::Scope {
        config::Scope { cgroup: Some(path.to_owned()), ..config::Scope::default() }
    }

    fn not(path: &str) -> config::Scope {
        config::Scope { exclude: true, ..only(path) }
    }

    fn names(found: &Found) -> Vec<&str> {
        match &found.whose {
            Whose::All => panic!("{found:?}"),
            Whose::Only(of) | Whose::AllBut(of) => of.keys().map(String::as_str).collect(),
        }
    }

    #[test]
    fn a_scope_is_all_that_is_below_it_and_an_exclusion_wins() {
        let m = Machine::new(&["/", "/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/e"]);
        assert_eq!(names(&m.look(&[only("/a"), only("a/b")])), ["/a", "/a/b", "/a/b/c", "/a/d"]);
        let found = m.look(&[not("/a/b"), only("/a"), only("/none")]);
        assert_eq!(names(&found), ["/a", "/a/d"]);
        assert_eq!(found.whose.to_string(), "only pages charged to /a, /a/d may move");
        let found = m.look(&[not("/a/b"), not("/e")]);
        assert!(matches!(found.whose, Whose::AllBut(_)));
        assert_eq!(names(&found), ["/a/b", "/a/b/c", "/e"]);
        assert_eq!(names(&m.look(&[only("/")])).len(), 7);
    }

    #[test]
    fn what_comes_later_or_by_the_same_name_is_seen() {
        let m = Machine::new(&["/a"]);
        let nobody = m.look(&[only("/later")]);
        assert!(nobody.whose.to_string().starts_with("no page may move"), "{}", nobody.whose);
        let before = m.look(&[not("/a")]);
        m.make("/a/b");
        let after = m.look(&[not("/a")]);
        assert_eq!((names(&after), after == before), (vec!["/a", "/a/b"], false));
        // A folder of that name, and another one so that the number is not reused at once.
        m.make("/c");
        fs::rename(m.folder("/c"), m.folder("/a/c")).unwrap();
        fs::rename(m.folder("/a/b"), m.folder("/gone")).unwrap();
        fs::rename(m.folder("/a/c"), m.folder("/a/b")).unwrap();
        let anew = m.look(&[not("/a")]);
        assert_eq!((names(&anew), anew == after), (vec!["/a", "/a/b"], false));
    }

    #[test]
    fn cgroups_that_nothing_is_charged_to_are_told() {
        let m = Machine::new(&["/a"]);
        fs::create_dir(m.folder("/a/b")).unwrap();
        // Its memory is charged to its parent, which is in the scope.
        assert_eq!(m.look(&[only("/a")]).untold, None);
        assert_eq!(m.look(&[not("/a/b")]).untold.unwrap(), "/a/b");
        m.make("/a/odd\nname");
        assert_eq!(m.look(&[not("/a")]).untold.unwrap(), "/a/odd\nname");
    }

    #[test]
    fn scopes_that_are_more_than_cgroups_are_refused() {
        let m = Machine::new(&["/a"]);
        let refused =
            |scope: config::Scope| Cgroups::new(&m.root(), &[only("/a"), scope]).unwrap_err().to_string();
        let by_pid = config::Scope { pids: vec![1], ..only("/a") };
        assert!(refused(by_pid).starts_with("scope[1].pids is more than DAMON knows"));
        let by_command = config::Scope { command: Some("x".into()), ..config::Scope::default() };
        assert!(refused(by_command).starts_with("scope[1].command"));
        let capped = config::Scope { top_tier_cap_mib: Some(1), ..only("/a") };
        assert!(refused(capped).starts_with("scope[1].top_tier_cap_mib"));
        assert!(refused(config::Scope { rate_share_percent: 5, ..not("/a") }).contains("rate_share_percent"));
        assert_eq!(Cgroups::new(&m.root(), &[]).unwrap(), None);
        fs::write(m.root().proc.join("self/mounts"), "").unwrap();
        assert!(matches!(Cgroups::new(&m.root(), &[only("/a")]), Err(NotCgroups::NotMounted)));
    }

    #[test]
    fn many_are_told_by_number() {
        let numbers: Numbers = (0..20).map(|n| (format!("/{n:02}"), n)).collect();
        let told = Whose::AllBut(numbers).to_string();
        assert_eq!(
            told,
            "all pages but those charged to /00, /01, /02, /03, /04, /05, /06, /07 and 12 more cgroups may move"
        );
    }
}
