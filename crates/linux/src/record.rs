//! Records everything that a thread reads from a machine: a copy of the machine, to examine
//! elsewhere.
//!
//! Every reading goes through [`crate::root`], so a recording holds exactly what was read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Something that was accessed and exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file: its bytes as far as they were read, empty if only its existence mattered.
    File(Vec<u8>),
    /// A folder.
    Folder,
    /// A symbolic link and its target.
    Link(PathBuf),
}

/// Everything accessed, by path.
pub type Recording = BTreeMap<PathBuf, Entry>;

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Runs `work`, and records what this thread reads meanwhile. Recordings do not nest: the inner one
/// gets everything.
pub fn record<T>(work: impl FnOnce() -> T) -> (T, Recording) {
    RECORDING.set(Some(Recording::new()));
    let done = work();
    (done, RECORDING.take().unwrap_or_default())
}

/// Records what was found at `path`. Bytes replace a mere record of existence.
pub(crate) fn note(path: &Path, found: impl FnOnce() -> Entry) {
    RECORDING.with_borrow_mut(|recording| {
        let Some(recording) = recording else { return };
        let found = found();
        match recording.get(path) {
            Some(Entry::File(bytes)) if !bytes.is_empty() => {}
            Some(Entry::Link(_)) => {}
            Some(Entry::Folder) if !matches!(found, Entry::Link(_)) => {}
            _ => {
                recording.insert(path.to_owned(), found);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{exists, link_target, list_optional, read_optional};

    #[test]
    fn what_is_read_is_kept_and_what_is_not_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("folder")).unwrap();
        for name in ["folder/listed", "read", "left", "there"] {
            std::fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink("../kmem", path("link")).unwrap();
        let (text, recording) = record(|| {
            assert!(exists(&path("there")) && exists(&path("read")));
            list_optional(&path("folder")).unwrap();
            link_target(&path("link"));
            read_optional(&path("absent")).unwrap();
            read_optional(&path("read")).unwrap()
        });
        assert_eq!(text.as_deref(), Some("read"));
        let file = |text: &str| Entry::File(text.into());
        let expect = [
            (path("folder"), Entry::Folder),
            (path("folder/listed"), file("")),
            (path("link"), Entry::Link("../kmem".into())),
            (path("read"), file("read")),
            (path("there"), file("")),
        ];
        assert_eq!(recording, Recording::from(expect));
        assert_eq!(record(|| ()).1, Recording::new());
    }
}
