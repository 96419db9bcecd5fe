//! Whose memory is managed: the whole machine, or the processes that configured scopes name.
//!
//! Kernel threads, ended processes and this one are in no scope.

pub mod cgroup;
pub(crate) mod cpuset;
mod examine;
mod holdings;
mod members;
mod missing;
mod pressure;

use std::collections::HashSet;
use std::path::PathBuf;

use regex::{Regex, RegexBuilder};
use thermocline_core::access::Membership;
use thermocline_core::config;
use thermocline_core::units::{Pid, ScopeId};

use crate::root::{KernelFileError, Root};

pub(crate) use examine::{Examined, examine};
pub use holdings::Holdings;
pub use members::{Change, Known, Member, Members};
pub use missing::{Missing, missing};
pub use pressure::Pressures;

/// Cgroups that the kernel's filter of hint faults takes in, and as many that it leaves out
/// (TC_CGROUPS_MAX in crates/bpf/src/bpf/intf.h).
pub const FILTER_CGROUPS_MAX: usize = 16;
/// Maximum number of regular expressions.
const COMMANDS_MAX: usize = 1024;
/// Memory that each of them may take once it is compiled, in bytes.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// A scope that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// The scope names no process.
    #[error("scope[{index}] names no process; give it pids, command or cgroup")]
    Empty {
        /// Its place in the configuration, from 0.
        index: usize,
    },
    /// The regular expression is invalid.
    #[error("scope[{index}].command: {cause}")]
    Command {
        /// Its place in the configuration, from 0.
        index: usize,
        /// What is wrong with it.
        cause: Box<regex::Error>,
    },
    /// A cgroup is named and the machine has no cgroup v2.
    #[error(
        "scope[{index}].cgroup needs cgroup v2, which is not mounted: mount -t cgroup2 none /sys/fs/cgroup"
    )]
    NoCgroups {
        /// Its place in the configuration, from 0.
        index: usize,
    },
    /// Two scopes have the same name.
    #[error("scope[{index}].name: {name:?} is the name of an earlier scope; names are unique")]
    NameTwice {
        /// Its place in the configuration, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// Too many regular expressions.
    #[error(
        "scope[{index}].command is the regular expression after the first {COMMANDS_MAX}; join some of them by |"
    )]
    TooManyCommands {
        /// Its place in the configuration, from 0.
        index: usize,
    },
    /// More scopes than can be numbered.
    #[error("{0} scopes are configured; 65534 is the most")]
    TooMany(usize),
    /// A file could not be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
}

/// The properties of a process by which scopes match.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits<'a> {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub comm: &'a str,
    /// Its command line, words separated by spaces.
    pub command_line: &'a str,
    /// Its cgroup v2 path, where it has one.
    pub cgroup: Option<&'a str>,
}

/// The configured scopes, compiled.
#[derive(Clone, Debug, Default)]
pub struct Scopes {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    exclude: bool,
    pids: Vec<Pid>,
    command: Option<Regex>,
    cgroup: Option<String>,
}

/// A cgroup whose whole subtree a scope includes or excludes: a filter inside the kernel compares
/// with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupScope {
    /// Its folder in the file system.
    pub folder: PathBuf,
    /// The kernel's number of the present cgroup; `None` if there is none. A recreated cgroup has
    /// another number.
    pub id: Option<u64>,
    /// Whether the scope excludes it.
    pub excluded: bool,
}

impl ScopeError {
    /// The dotted key of the configuration to change.
    pub fn key(&self) -> Option<String> {
        let (index, key) = match self {
            ScopeError::Empty { index } => return Some(format!("scope[{index}]")),
            ScopeError::Command { index, .. } | ScopeError::TooManyCommands { index } => (index, "command"),
            ScopeError::NoCgroups { index } => (index, "cgroup"),
            ScopeError::NameTwice { index, .. } => (index, "name"),
            ScopeError::TooMany(_) => return Some("scope".to_owned()),
            ScopeError::File(_) => return None,
        };
        Some(format!("scope[{index}].{key}"))
    }
}

impl Scopes {
    /// Prepares the configured scopes. The scope at position `i` in the configuration has number `i
    /// + 1`; 0 is the default scope of the whole machine.
    ///
    /// # Errors
    /// A scope that names nothing, or an invalid regular expression.
    pub fn new(scopes: &[config::Scope]) -> Result<Scopes, ScopeError> {
        let (mut rules, mut names, mut commands) = (Vec::new(), HashSet::new(), 0);
        for (index, scope) in scopes.iter().enumerate() {
            if index + 1 >= usize::from(ScopeId::GONE.0) {
                return Err(ScopeError::TooMany(scopes.len()));
            }
            if scope.pids.is_empty() && scope.command.is_none() && scope.cgroup.is_none() {
                return Err(ScopeError::Empty { index });
            }
            if !scope.name.is_empty() && !names.insert(scope.name.as_str()) {
                return Err(ScopeError::NameTwice { index, name: scope.name.clone() });
            }
            commands += usize::from(scope.command.is_some());
            if commands > COMMANDS_MAX {
                return Err(ScopeError::TooManyCommands { index });
            }
            let compile = |text| RegexBuilder::new(text).size_limit(COMMAND_BYTES_MAX).build();
            let command = scope.command.as_deref().map(compile).transpose();
            rules.push(Rule {
                exclude: scope.exclude,
                pids: scope.pids.iter().map(|&p| Pid(p)).collect(),
                command: command.map_err(|cause| ScopeError::Command { index, cause: Box::new(cause) })?,
                cgroup: scope.cgroup.as_deref().map(cgroup::normal),
            });
        }
        Ok(Scopes { rules })
    }

    /// Whether a process's memory may move. A scope with several criteria matches processes that
    /// meet all of them; of its pids, any.
    pub fn membership(&self, process: Traits<'_>) -> Membership {
        Membership::among(&self.rules, |rule| rule.exclude, |rule| rule.names(process))
    }

    /// Whether any scope is configured.
    pub fn are_any(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether all of them are exclusions, so the rest of the machine is managed.
    pub fn only_exclude(&self) -> bool {
        self.rules.iter().all(|r| r.exclude)
    }

    /// Whether any scope matches by command.
    pub fn needs_command(&self) -> bool {
        self.rules.iter().any(|r| r.command.is_some())
    }

    /// Whether any scope matches by cgroup.
    pub fn needs_cgroup(&self) -> bool {
        self.rules.iter().any(|r| r.cgroup.is_some())
    }

    /// The cgroups that scopes name by path alone, including those that do not exist; of those that
    /// are included and of those that are excluded, the first [`FILTER_CGROUPS_MAX`]. The others,
    /// and scopes with further criteria, are decided per process.
    ///
    /// # Errors
    /// The hierarchy cannot be read.
    pub fn cgroups(&self, root: &Root) -> Result<Vec<CgroupScope>, ScopeError> {
        if !self.needs_cgroup() {
            return Ok(Vec::new());
        }
        let Some(mount) = cgroup::mount(root)? else {
            let index = self.rules.iter().position(|r| r.cgroup.is_some()).unwrap_or(0);
            return Err(ScopeError::NoCgroups { index });
        };
        let alone = self.rules.iter().filter(|r| r.pids.is_empty() && r.command.is_none());
        let paths = alone.filter_map(|rule| Some((rule.exclude, rule.cgroup.as_ref()?)));
        let mut named = [0; 2];
        let first = paths.filter(|(excluded, _)| {
            let named = &mut named[usize::from(*excluded)];
            *named += 1;
            *named <= FILTER_CGROUPS_MAX
        });
        let found = first.map(|(excluded, path)| {
            let id = cgroup::id(&mount, path)?;
            Ok(CgroupScope { folder: cgroup::folder(&mount, path), id, excluded })
        });
        found.collect()
    }
}

impl Rule {
    fn names(&self, process: Traits<'_>) -> bool {
        let pid = self.pids.is_empty() || self.pids.contains(&process.pid);
        let command = self
            .command
            .as_ref()
            .is_none_or(|regex| regex.is_match(process.comm) || regex.is_match(process.command_line));
        let within = |subtree: &String| process.cgroup.is_some_and(|path| cgroup::is_within(path, subtree));
        pid && command && self.cgroup.as_ref().is_none_or(within)
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::ScopeId;

    use super::*;

    fn scope(name: &str) -> config::Scope {
        config::Scope { name: name.to_owned(), ..config::Scope::default() }
    }

    fn process(pid: u32, comm: &'static str, cgroup: &'static str) -> Traits<'static> {
        Traits { pid: Pid(pid), comm, command_line: comm, cgroup: Some(cgroup) }
    }

    fn managed(scope: u16) -> Membership {
        Membership::Managed(ScopeId(scope))
    }

    #[test]
    fn without_scopes_the_whole_machine_is_managed() {
        let scopes = Scopes::new(&[]).unwrap();
        assert_eq!(scopes.membership(process(1, "init", "/")), Membership::Managed(ScopeId::DEFAULT));
        assert!(!scopes.needs_command() && !scopes.needs_cgroup());
    }

    #[test]
    fn the_first_scope_wins_exclusions_win_over_all_and_the_rest_is_unmanaged() {
        let scopes = Scopes::new(&[
            config::Scope { command: Some("^redis".into()), ..scope("redis") },
            config::Scope { cgroup: Some("/system.slice".into()), ..scope("system") },
            config::Scope { pids: vec![7, 8], exclude: true, ..scope("not these") },
        ])
        .unwrap();
        let of = |p| scopes.membership(p);
        assert_eq!(of(process(1, "redis-server", "/system.slice/redis.service")), managed(1));
        assert_eq!(of(process(2, "sshd", "/system.slice/ssh.service")), managed(2));
        assert_eq!(of(process(3, "bash", "/user.slice")), Membership::Excluded);
        assert_eq!(of(process(7, "redis-server", "/")), Membership::Excluded);
    }

    #[test]
    fn exclusions_alone_leave_the_rest_of_the_machine() {
        let scopes =
            Scopes::new(&[config::Scope { command: Some("sshd".into()), exclude: true, ..scope("") }])
                .unwrap();
        assert_eq!(scopes.membership(process(1, "sshd", "/")), Membership::Excluded);
        assert_eq!(scopes.membership(process(2, "redis", "/")), Membership::Managed(ScopeId::DEFAULT));
    }

    #[test]
    fn a_scope_with_two_criteria_wants_both() {
        let scopes = Scopes::new(&[config::Scope {
            command: Some("redis".into()),
            cgroup: Some("a/b".into()),
            ..scope("")
        }])
        .unwrap();
        assert_eq!(scopes.membership(process(1, "redis", "/a/b/c")), managed(1));
        assert_eq!(scopes.membership(process(1, "redis", "/a")), Membership::Excluded);
        assert_eq!(scopes.membership(process(1, "other", "/a/b")), Membership::Excluded);
    }

    #[test]
    fn defects_are_named_by_their_place() {
        let error = |scopes: &[config::Scope]| Scopes::new(scopes).unwrap_err().to_string();
        assert_eq!(error(&[scope("a")]), "scope[0] names no process; give it pids, command or cgroup");
        let bad = config::Scope { command: Some("(".into()), ..scope("") };
        assert!(error(&[bad]).starts_with("scope[0].command: regex parse error"));
        let large = config::Scope { command: Some("(x{1000}){1000}".into()), ..scope("") };
        assert!(error(&[large]).contains("exceeds size limit"));
        let many = vec![config::Scope { command: Some("x".into()), ..scope("") }; COMMANDS_MAX + 1];
        assert!(error(&many).starts_with("scope[1024].command is the regular expression after"));
        let a = config::Scope { pids: vec![1], ..scope("a") };
        assert!(error(&[a.clone(), a]).starts_with("scope[1].name: \"a\" is the name of an earlier scope"));
    }

    #[test]
    fn cgroups_for_the_kernels_filter_have_the_number_of_now() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let scopes = Scopes::new(&[
            config::Scope { cgroup: Some("/a/b".into()), ..scope("") },
            config::Scope { cgroup: Some("/later".into()), ..scope("") },
            config::Scope { cgroup: Some("/a/x".into()), exclude: true, ..scope("") },
            config::Scope { cgroup: Some("/a".into()), command: Some("x".into()), ..scope("") },
        ])
        .unwrap();
        assert!(matches!(scopes.cgroups(&root), Err(ScopeError::NoCgroups { index: 0 })));
        std::fs::create_dir_all(root.proc.join("self")).unwrap();
        std::fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        for path in ["a/b", "a/x"] {
            std::fs::create_dir_all(root.sys.join("fs/cgroup").join(path)).unwrap();
        }
        let found = scopes.cgroups(&root).unwrap();
        let shape: Vec<_> = found.iter().map(|c| (c.id.is_some(), c.excluded)).collect();
        assert_eq!(shape, [(true, false), (false, false), (true, true)]);
        assert_ne!(found[0].id, found[2].id);
        std::fs::create_dir(root.sys.join("fs/cgroup/later")).unwrap();
        assert!(scopes.cgroups(&root).unwrap()[1].id.is_some());
    }

    #[test]
    fn the_kernels_filter_is_told_the_first_cgroups_of_each_kind() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir_all(root.proc.join("self")).unwrap();
        std::fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        let named = |n: usize| config::Scope {
            cgroup: Some(format!("/{n}")),
            exclude: n.is_multiple_of(2),
            ..config::Scope::default()
        };
        let scopes = Scopes::new(&(0..100).map(named).collect::<Vec<_>>()).unwrap();
        let found = scopes.cgroups(&root).unwrap();
        let of = |excluded| found.iter().filter(|c| c.excluded == excluded).count();
        assert_eq!([of(false), of(true)], [FILTER_CGROUPS_MAX; 2]);
        assert!(found.last().unwrap().folder.ends_with(format!("{}", 2 * FILTER_CGROUPS_MAX - 1)));
        let beyond = Traits { pid: Pid(7), cgroup: Some("/97/c"), ..Traits::default() };
        assert_eq!(scopes.membership(beyond), Membership::Managed(ScopeId::of_place(97)));
    }
}
