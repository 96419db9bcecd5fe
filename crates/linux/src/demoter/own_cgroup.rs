//! Scopes that name processes which are alone in their cgroups: for the kernel's reclaim they are
//! those cgroups.

use std::fs;
use std::path::Path;

use thermocline_core::config::Scope;
use thermocline_core::units::{Pid, ScopeId};

use crate::process;
use crate::root::{Root, read_optional};
use crate::scope::cgroup;

/// Maximum number of cgroups examined below one.
const CGROUPS_MAX: usize = 1024;

/// The scopes and their indices, with scopes that name only processes replaced by these processes'
/// cgroups, if no other process is in them now. Scopes for which that is not so, or cannot be seen,
/// stay unchanged.
pub(super) fn by_cgroup(root: &Root, scopes: &[Scope]) -> (Vec<Scope>, Vec<ScopeId>) {
    let mount = cgroup::mount(root).ok().flatten();
    let mut found = scopes.to_vec();
    let mut ids: Vec<ScopeId> = (0..scopes.len()).map(ScopeId::of_place).collect();
    for i in 0..scopes.len() {
        let scope = &scopes[i];
        if scope.pids.is_empty() || !scope.may_be_cgroup() {
            continue;
        }
        let Some(paths) = mount.as_deref().and_then(|mount| own(root, mount, &scope.pids)) else { continue };
        let mut named =
            paths.into_iter().map(|path| Scope { pids: Vec::new(), cgroup: Some(path), ..scope.clone() });
        if let Some(first) = named.next() {
            found[i] = first;
            found.extend(named);
            ids.resize(found.len(), ids[i]);
        }
    }
    (found, ids)
}

/// The cgroups of these processes, if no other process is in them.
fn own(root: &Root, mount: &Path, pids: &[u32]) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for &pid in pids {
        let path = cgroup::normal(&process::cgroup(root, Pid(pid)).ok()??);
        if path == "/" {
            return None;
        }
        paths.push(path);
    }
    paths.sort_unstable();
    paths.dedup();
    let all_ours = |path: &String| {
        members(&cgroup::folder(mount, path)).is_some_and(|all| all.iter().all(|p| pids.contains(p)))
    };
    paths.iter().all(all_ours).then_some(paths)
}

/// The processes of a cgroup and all below it; `None` if that cannot be seen.
fn members(folder: &Path) -> Option<Vec<u32>> {
    let mut folders = vec![folder.to_owned()];
    let mut pids = Vec::new();
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        if looked > CGROUPS_MAX {
            return None;
        }
        let text = read_optional(&folder.join("cgroup.procs")).ok()??;
        pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
        for entry in fs::read_dir(&folder).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Some(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_a_cgroup_of_their_own_are_that_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let scope = |pids: &[u32]| Scope { pids: pids.to_vec(), ..Scope::default() };
        let cgroups = |pids: &[u32]| {
            let (scopes, ids) = by_cgroup(&root, &[scope(pids), Scope::default()]);
            assert_eq!(ids.len(), scopes.len());
            assert!(
                ids.iter().enumerate().all(|(place, id)| id.0 == if place == 1 { 2 } else { 1 }),
                "{ids:?}"
            );
            scopes.into_iter().filter_map(|s| s.cgroup).collect::<Vec<_>>()
        };
        assert!(cgroups(&[7]).is_empty(), "no hierarchy is mounted");
        write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        for (pid, path) in [(7, "/a"), (8, "/a/b"), (9, "/c"), (1, "/")] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{path}\n"));
        }
        for (path, pids) in [("", "1\n"), ("a/", "7\n"), ("a/b/", "8\n"), ("c/", "9\n")] {
            write(&format!("sys/fs/cgroup/{path}cgroup.procs"), pids);
        }
        assert!(cgroups(&[7]).is_empty(), "process 8 is below");
        assert_eq!(cgroups(&[8]), ["/a/b"]);
        assert_eq!(cgroups(&[7, 8]), ["/a", "/a/b"]);
        assert_eq!(cgroups(&[9, 8]), ["/a/b", "/c"]);
        assert!(cgroups(&[1, 9]).is_empty(), "the root has everybody");
        assert!(cgroups(&[9, 10]).is_empty(), "process 10 is gone");
        write("sys/fs/cgroup/c/cgroup.procs", "9\n77\n");
        assert!(cgroups(&[9]).is_empty());
        let named = Scope { command: Some("redis".to_owned()), ..scope(&[8]) };
        assert_eq!(by_cgroup(&root, std::slice::from_ref(&named)).0, [named]);
    }
}
