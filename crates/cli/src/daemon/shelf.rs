//! The folder of the recordings that the daemon makes by itself: that of this start, and the one
//! before.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thermocline_trace::part::{UNFINISHED, part_of, part_of_table};

use crate::snapshot::timestamp;

/// Recordings that are kept beside the next one.
const KEPT: usize = 1;

/// A name for the next recording, in a folder that is made where it does not exist. All recordings
/// but the newest ones are removed.
///
/// # Errors
/// The folder cannot be made or read, or others may write to it.
pub fn next(shelf: &Path) -> io::Result<PathBuf> {
    if let Some(above) = shelf.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(shelf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // What is removed below is removed with the daemon's rights.
    let found = fs::metadata(shelf)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let what = format!("others may write to {}; name a folder of the daemon's own", shelf.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let mut before = recordings(shelf)?;
    before.truncate(before.len().saturating_sub(KEPT));
    for old in before {
        remove(&old)?;
    }
    let name = timestamp(SystemTime::now());
    let names = std::iter::once(name.clone()).chain((2u32..).map(|n| format!("{name}-{n}")));
    let free = names.map(|name| shelf.join(name)).find(|path| !path.exists());
    free.ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))
}

/// The recordings in a folder, oldest first: folders that are named by a time.
fn recordings(shelf: &Path) -> io::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(shelf)? {
        let entry = entry?;
        let name = entry.file_name();
        let time = name.to_str().and_then(|name| name.get(..20));
        if entry.file_type()?.is_dir() && time.is_some_and(|time| humantime::parse_rfc3339(time).is_ok()) {
            out.push(entry.path());
        }
    }
    out.sort();
    Ok(out)
}

/// Removes the files of a recording, and then its folder, unless there is something else in it.
fn remove(recording: &Path) -> io::Result<()> {
    let is_ours = |name: &str| {
        let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
        part_of(name).is_some() || part_of_table(name).is_some()
    };
    let mut others = false;
    for entry in fs::read_dir(recording)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Some(name) if is_ours(name) => fs::remove_file(entry.path())?,
            _ => others = true,
        }
    }
    if others { Ok(()) } else { fs::remove_dir(recording) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(shelf: &Path) -> Vec<String> {
        let all = recordings(shelf).unwrap();
        all.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn recorded(shelf: &Path, name: &str) {
        let folder = shelf.join(name);
        fs::create_dir_all(&folder).unwrap();
        for file in ["part-000001.json", "events-000001.parquet", "steps-000002.parquet.unfinished"] {
            fs::write(folder.join(file), "x").unwrap();
        }
    }

    #[test]
    fn the_recording_before_is_kept_and_older_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = dir.path().join("var/recordings");
        let first = next(&shelf).unwrap();
        assert_eq!(fs::metadata(&shelf).unwrap().mode() & 0o777, 0o700);
        assert!(!first.exists(), "whoever records makes it");
        for name in ["2026-11-27T07:20:11Z", "2026-11-28T07:20:11Z", "2026-11-28T07:20:11Z-2"] {
            recorded(&shelf, name);
        }
        fs::write(shelf.join("2026-11-27T07:20:11Z/notes"), "mine").unwrap();
        fs::create_dir(shelf.join("mine")).unwrap();
        next(&shelf).unwrap();
        assert_eq!(names(&shelf), ["2026-11-27T07:20:11Z", "2026-11-28T07:20:11Z-2"]);
        let left: Vec<_> = fs::read_dir(shelf.join("2026-11-27T07:20:11Z")).unwrap().collect();
        assert_eq!(left.len(), 1, "what is not a recording's stays");
        assert!(shelf.join("mine").exists());
    }

    #[test]
    fn two_of_the_same_second_have_two_names() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = dir.path().join("recordings");
        let first = next(&shelf).unwrap();
        fs::create_dir(&first).unwrap();
        assert_ne!(next(&shelf).unwrap(), first);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let told = next(dir.path()).unwrap_err().to_string();
        assert!(told.contains("others may write to"), "{told}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_link_is_no_recording() {
        let dir = tempfile::tempdir().unwrap();
        let (shelf, elsewhere) = (dir.path().join("shelf"), dir.path().join("elsewhere"));
        next(&shelf).unwrap();
        recorded(dir.path(), "elsewhere");
        for day in 1..4 {
            std::os::unix::fs::symlink(&elsewhere, shelf.join(format!("2026-11-0{day}T07:20:11Z"))).unwrap();
        }
        next(&shelf).unwrap();
        assert!(elsewhere.join("part-000001.json").exists() && names(&shelf).is_empty());
    }
}
