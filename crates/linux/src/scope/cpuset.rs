//! Nodes that a cgroup's programs may have memory on.

use std::io;
use std::path::{Path, PathBuf};

use crate::lists::parse_list;
use crate::root::Root;
use crate::scope::cgroup;

/// The cpusets of the cgroup v2 hierarchy.
#[derive(Debug)]
pub struct Cpusets {
    mount: Option<PathBuf>,
}

impl Cpusets {
    /// For the mounted hierarchy; without one, no cgroup has a cpuset.
    pub fn new(root: &Root) -> Cpusets {
        // A mount table that cannot be read is treated like one without the hierarchy.
        Cpusets { mount: cgroup::mount(root).ok().flatten() }
    }

    /// The nodes of a cgroup, read by `read`: those of the nearest cgroup upwards that has the
    /// controller. `None` if there is none.
    ///
    /// # Errors
    /// A file exists and cannot be read, or is not a list.
    pub fn mems(
        &self,
        path: &str,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> io::Result<Option<Vec<u32>>> {
        let Some(mount) = &self.mount else { return Ok(None) };
        let mut path = path.trim_matches('/');
        loop {
            let file = cgroup::folder(mount, path).join("cpuset.mems.effective");
            match read(&file) {
                Ok(text) => {
                    let malformed = || {
                        io::Error::new(io::ErrorKind::InvalidData, format!("{} is no list", file.display()))
                    };
                    return parse_list(&text).map(Some).ok_or_else(malformed);
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV) => {}
                Err(e) => return Err(e),
            }
            if path.is_empty() {
                return Ok(None);
            }
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_cgroup_with_the_controller_has_the_say() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let read = |file: &Path| fs::read_to_string(file);
        assert_eq!(Cpusets::new(&root).mems("/a", read).unwrap(), None, "no hierarchy is mounted");
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        let mount = root.sys.join("fs/cgroup");
        fs::create_dir_all(mount.join("a/b/c")).unwrap();
        let cpusets = Cpusets::new(&root);
        assert_eq!(cpusets.mems("/a/b/c", read).unwrap(), None);
        fs::write(mount.join("cpuset.mems.effective"), "0-2\n").unwrap();
        fs::write(mount.join("a/cpuset.mems.effective"), "0,2\n").unwrap();
        assert_eq!(cpusets.mems("/a/b/c", read).unwrap(), Some(vec![0, 2]));
        assert_eq!(cpusets.mems("/", read).unwrap(), Some(vec![0, 1, 2]));
        assert_eq!(cpusets.mems("/other", read).unwrap(), Some(vec![0, 1, 2]));
        fs::write(mount.join("a/cpuset.mems.effective"), "x").unwrap();
        assert_eq!(cpusets.mems("/a", read).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
