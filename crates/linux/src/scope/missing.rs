//! Cgroups that scopes name and that do not exist, as reported by the doctor, `run` and `status`.

use thermocline_core::config::{NOBODY, Scope};

use super::cgroup;
use crate::root::{KernelFileError, Root, exists};

/// Controllers whose version 1 hierarchies are searched.
const VERSION_ONE: [&str; 6] = ["memory", "cpuset", "cpu", "cpu,cpuacct", "systemd", "pids"];

/// A sentence for each scope whose cgroup does not exist; empty if cgroup v2 is not mounted.
///
/// # Errors
/// The mount table cannot be read.
pub fn missing(root: &Root, scopes: &[Scope]) -> Result<Vec<String>, KernelFileError> {
    let Some(mount) = cgroup::mount(root)? else { return Ok(Vec::new()) };
    let sentence = |(index, scope): (usize, &Scope)| {
        let path = cgroup::normal(scope.cgroup.as_deref()?);
        if exists(&cgroup::folder(&mount, &path)) || path.rsplit('/').next() == Some(NOBODY) {
            return None;
        }
        let hierarchies = root.sys.join("fs/cgroup");
        let version_one = VERSION_ONE
            .into_iter()
            .find(|controller| exists(&cgroup::folder(&hierarchies.join(controller), &path)));
        let consequence = match scope.exclude {
            true => "nothing is excluded by it",
            false => "no process is in scope by it",
        };
        let place = mount.display();
        Some(match version_one {
            Some(controller) => format!(
                "scope[{index}].cgroup {path:?} is a cgroup of version 1 ({controller}), \
                 and scopes are of version 2: {consequence}"
            ),
            None => format!(
                "scope[{index}].cgroup {path:?} is not there now ({place}): until it is, {consequence}"
            ),
        })
    };
    Ok(scopes.iter().enumerate().filter_map(sentence).collect())
}

/// What is missing now.
#[derive(Debug)]
pub struct Missing {
    root: Root,
    scopes: Vec<Scope>,
    now: Vec<String>,
}

impl Missing {
    /// Creates an empty state; nothing is checked yet.
    pub fn new(root: &Root, scopes: &[Scope]) -> Missing {
        let named = scopes.iter().any(|scope| scope.cgroup.is_some());
        let scopes = if named { scopes.to_vec() } else { Vec::new() };
        Missing { root: root.clone(), scopes, now: Vec::new() }
    }

    /// Checks again. If it cannot be read for a moment, the state stays.
    pub fn look(&mut self) {
        if self.scopes.is_empty() {
            return;
        }
        if let Ok(now) = missing(&self.root, &self.scopes) {
            self.now = now;
        }
    }

    /// A sentence for each, as of the last check.
    pub fn now(&self) -> &[String] {
        &self.now
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_not_there_is_known_from_look_to_look() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let make = |path: &str| fs::create_dir_all(dir.path().join(path)).unwrap();
        make("proc/self");
        let table = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        fs::write(root.proc.join("self/mounts"), table).unwrap();
        make("sys/fs/cgroup/memory/old.slice");
        make("sys/fs/cgroup/unified/app.slice");
        let scope =
            |path: &str, exclude| Scope { cgroup: Some(path.to_owned()), exclude, ..Scope::default() };
        let scopes = [
            scope("/app.slice", false),
            scope("/no/such.slice", true),
            scope("/old.slice", false),
            Scope::default(),
            scope("/kubepods/thermocline.nobody", false),
        ];
        let mut missing = Missing::new(&root, &scopes);
        missing.look();
        let told = missing.now().to_vec();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("scope[1].cgroup \"/no/such.slice\" is not there now"));
        assert!(told[0].ends_with("nothing is excluded by it") && told[1].contains("version 1"));
        make("sys/fs/cgroup/unified/no/such.slice");
        missing.look();
        assert_eq!(missing.now(), &told[1..]);
        fs::remove_dir(dir.path().join("sys/fs/cgroup/unified/no/such.slice")).unwrap();
        missing.look();
        assert_eq!(missing.now(), told);
        let mut unnamed = Missing::new(&root, &scopes[3..4]);
        unnamed.look();
        assert!(unnamed.now().is_empty());
    }
}
