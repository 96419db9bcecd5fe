//! The cgroup that memory is charged to: for the kernel's reclaim, a cgroup without its own memory
//! controller is part of an ancestor.

use std::collections::BTreeSet;
use std::path::Path;

use crate::root::{Root, exists, read_optional};
use crate::scope::cgroup;

/// Cgroups that hold memory of one of `cgroups` and are not in any: the nearest ancestor of each
/// that has a memory controller. A missing cgroup or an unmounted hierarchy charges nothing.
pub(super) fn above(root: &Root, cgroups: &[String]) -> BTreeSet<String> {
    let Some(mount) = cgroup::mount(root).ok().flatten() else { return BTreeSet::new() };
    let counted = |path: &str| exists(&cgroup::folder(&mount, path).join("memory.current"));
    let charged = |path: &String| {
        if !exists(&cgroup::folder(&mount, path)) || counted(path) {
            return None;
        }
        let above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
        above.into_iter().find(|path| *path == "/" || counted(path)).map(str::to_owned)
    };
    cgroups.iter().filter_map(charged).collect()
}

/// Whether memory is counted in a hierarchy other than cgroup v2, so that reclaim uses other paths
/// than scopes; false if that cannot be determined.
pub(super) fn elsewhere(root: &Root) -> bool {
    let Some(mount) = cgroup::mount(root).ok().flatten() else { return false };
    let controllers = read_optional(&mount.join("cgroup.controllers")).ok().flatten();
    controllers.is_some_and(|text| !text.split_whitespace().any(|name| name == "memory"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn memory_is_charged_to_the_nearest_cgroup_that_counts_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let above = |paths: &[&str]| -> Vec<String> {
            let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
            super::above(&root, &paths).into_iter().collect()
        };
        assert!(above(&["/a"]).is_empty() && !elsewhere(&root), "nothing is mounted");
        write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n");
        assert!(!elsewhere(&root));
        for path in ["a", "a/b", "c/d"] {
            write(&format!("sys/fs/cgroup/{path}/memory.current"), "0\n");
        }
        for path in ["a/b/e/f", "c/g"] {
            write(&format!("sys/fs/cgroup/{path}/cgroup.procs"), "");
        }
        assert!(above(&["/a", "/a/b", "/c/d", "/none"]).is_empty());
        assert_eq!(above(&["/a/b/e", "/a/b/e/f"]), ["/a/b"]);
        assert_eq!(above(&["/c", "/c/g"]), ["/"]);
        write("sys/fs/cgroup/cgroup.controllers", "cpuset\n");
        assert!(elsewhere(&root));
        // A copy of a machine may have anything in place of a file.
        let controllers = dir.path().join("sys/fs/cgroup/cgroup.controllers");
        fs::remove_file(&controllers).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &controllers, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(!elsewhere(&root), "and whoever opened it would wait for good");
    }
}
