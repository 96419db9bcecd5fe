//! The cgroup v2 hierarchy: where it is mounted, and the numbers of its folders.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use thermocline_core::cgroup::{is_within, normal};

use crate::root::{KernelFileError, Root, exists, read_optional};

/// The folder that cgroup v2 is mounted at; `None` if it is not mounted. Its place is read from the
/// mount table: machines with both versions have it below `/sys/fs/cgroup/unified`.
///
/// # Errors
/// The mount table cannot be read.
pub fn mount(root: &Root) -> Result<Option<PathBuf>, KernelFileError> {
    let table = read_optional(&root.proc.join("self/mounts"))?.unwrap_or_default();
    let place = table.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| place.to_owned())
    });
    // The table gives the path from the machine's root; a test's machine has its own root.
    Ok(place.map(|place| match place.strip_prefix("/sys/") {
        Some(below) => root.sys.join(below),
        None => root.rebase(Path::new(&place)),
    }))
}

/// The folder of a cgroup.
pub fn folder(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// The kernel's number of a cgroup: the inode of its folder (Linux kernel/cgroup, cgroup_id, on
/// 64-bit machines). `None` if there is no such cgroup now.
///
/// # Errors
/// The folder cannot be read.
pub fn id(mount: &Path, path: &str) -> Result<Option<u64>, KernelFileError> {
    let folder = folder(mount, path);
    match std::fs::metadata(&folder) {
        Ok(meta) => {
            exists(&folder);
            Ok(Some(meta.ino()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(KernelFileError::io("look at", &folder, e)),
    }
}

/// The cgroups right below one; none if it does not exist. A name that is not UTF-8 has a
/// replacement character in it.
///
/// # Errors
/// The folder cannot be listed.
pub fn below(mount: &Path, path: &str) -> Result<Vec<String>, KernelFileError> {
    let folder = folder(mount, path);
    let failed = |e| KernelFileError::io("list", &folder, e);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // A folder that has just disappeared is skipped.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name();
            found.push(format!("{}/{}", path.trim_end_matches('/'), name.to_string_lossy()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_mount_is_found_beside_version_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert_eq!(mount(&root).unwrap(), None);
        fs::create_dir_all(root.proc.join("self")).unwrap();
        let table =
            "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        fs::write(root.proc.join("self/mounts"), table).unwrap();
        let found = mount(&root).unwrap().unwrap();
        assert_eq!(found, root.sys.join("fs/cgroup/unified"));
        fs::create_dir_all(found.join("a/b")).unwrap();
        assert_eq!(id(&found, "/a/b").unwrap(), Some(fs::metadata(found.join("a/b")).unwrap().ino()));
        assert_eq!(id(&found, "/a/c").unwrap(), None);
    }
}
