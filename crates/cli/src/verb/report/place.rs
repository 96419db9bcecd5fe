//! Where the recording is: where the operator says, or where the running daemon does.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;
use thermocline_core::config::ManagerName;
use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;
use thermocline_trace::reader::Recording;

use crate::daemon::socket::{Request, ask};

/// A place of a recording.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    daemon: Option<Daemon>,
}

/// What the daemon says of the recording that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// The time when it was asked, CLOCK_MONOTONIC.
    pub asked: Nanos,
    /// Why the recording has ended, if it has.
    pub ended: Option<String>,
}

impl Place {
    /// The folder that was named.
    pub fn named(folder: &Path) -> Place {
        Place { folder: folder.to_owned(), daemon: None }
    }

    /// Where the daemon behind `socket` records to.
    ///
    /// # Errors
    /// No daemon answers, or it records nothing.
    pub fn of_daemon(socket: &Path) -> anyhow::Result<Place> {
        Place::told(&ask(socket, &Request::Status { as_text: false })?, now())
    }

    /// The place in an answer to a request for `status`.
    fn told(answer: &Value, asked: Nanos) -> anyhow::Result<Place> {
        if answer.is_null() {
            bail!("the daemon has just started, and says nothing yet; try again in a second");
        }
        let recording = &answer["recording"];
        let why = recording["why"].as_str().map(str::to_owned);
        let Some(folder) = recording["folder"].as_str().filter(|folder| !folder.is_empty()) else {
            bail!("{}", records_nothing(answer));
        };
        if recording["parts"] == 0
            && let Some(why) = why
        {
            bail!("the daemon has recorded nothing: {why}");
        }
        Ok(Place { folder: PathBuf::from(folder), daemon: Some(Daemon { asked, ended: why }) })
    }

    /// What the daemon says of it, if it was asked.
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Opens the recording.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn open(&self) -> anyhow::Result<Recording> {
        if self.daemon.is_none() {
            return Ok(Recording::open(&self.folder)?);
        }
        let folder = self.folder.display();
        fs::read_dir(&self.folder).map_err(|error| {
            let what = match error.kind() {
                ErrorKind::PermissionDenied => format!(
                    "the daemon records to {folder}, which only root and the daemon's own user may read, since it \
                     shows what other users' programs do: run this as one of them"
                ),
                ErrorKind::NotFound => format!(
                    "the daemon records to {folder}, which is not here: it runs in a container, or with a /tmp of its \
                     own; name the folder as it is called here"
                ),
                _ => format!("the daemon records to {folder}, which cannot be read"),
            };
            anyhow::Error::new(error).context(what)
        })?;
        Recording::open_growing(&self.folder).with_context(|| format!("the daemon records to {folder}"))
    }
}

/// Why the daemon records nothing, and how to make it.
fn records_nothing(answer: &Value) -> String {
    let manager = ManagerName::ALL.into_iter().find(|name| answer["manager"] == name.text());
    match manager.filter(|name| name.is_of_kernel()) {
        Some(name) => format!(
            "the daemon records nothing: manager {} is the kernel's, and what it decides cannot be recorded; \
             `thermocline record -o DIR` records what is accessed",
            name.text()
        ),
        None => "the daemon records nothing; set recording.enabled = true in its configuration and restart it, or start \
                 it with `thermocline run --record DIR`"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;
    use thermocline_trace::stats::RecordingStats;

    use super::*;
    use crate::snapshot::{Snapshot, Status};

    fn refused(answer: &Value) -> String {
        format!("{:#}", Place::told(answer, Nanos(0)).unwrap_err())
    }

    #[test]
    fn a_daemon_that_records_nothing_is_told_how_to() {
        let told = refused(&json!({ "manager": "thermocline" }));
        assert!(told.contains("recording.enabled = true") && told.contains("--record DIR"), "{told}");
        let told = refused(&json!({ "manager": "numab2" }));
        assert!(told.contains("manager numab2 is the kernel's"), "{told}");
        assert!(refused(&json!(null)).contains("has just started"));
        let failed = json!({ "recording": { "folder": "/r", "parts": 0, "why": "/r is not empty" } });
        assert!(refused(&failed).contains("recorded nothing: /r is not empty"));
    }

    #[test]
    fn a_recording_is_where_the_daemon_says() {
        let stats = RecordingStats { folder: "/r/1".to_owned(), parts: 1, ..RecordingStats::default() };
        let snapshot = Snapshot::for_tests().with_recording(Some(stats));
        let status = Status { snapshot: &snapshot, residency: Err("unknown".to_owned()), late: None };
        let place = Place::told(&status.json(), Nanos(7)).unwrap();
        assert_eq!(place.folder, Path::new("/r/1"));
        let status = Status { snapshot: &Snapshot::for_tests(), ..status };
        assert!(refused(&status.json()).contains("records nothing"));
        let ended = json!({ "recording": { "folder": "/r", "parts": 3, "why": "it is full" } });
        let place = Place::told(&ended, Nanos(7)).unwrap();
        assert_eq!(place.folder, Path::new("/r"));
        assert_eq!(place.daemon, Some(Daemon { asked: Nanos(7), ended: Some("it is full".to_owned()) }));
    }

    #[test]
    fn what_cannot_be_read_says_who_can() {
        let dir = tempfile::tempdir().unwrap();
        let at = |folder: PathBuf| {
            let daemon = Some(Daemon { asked: Nanos(0), ended: None });
            format!("{:#}", Place { folder, daemon }.open().unwrap_err())
        };
        let absent = at(dir.path().join("absent"));
        assert!(absent.contains("is not here") && absent.contains("container"), "{absent}");
        let empty = at(dir.path().to_owned());
        assert!(empty.contains("no part of it is whole yet") && empty.contains("try again"), "{empty}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o000)).unwrap();
        // Root may read all the same.
        if fs::read_dir(dir.path()).is_err() {
            let closed = at(dir.path().to_owned());
            assert!(closed.contains("only root and the daemon's own user may read"), "{closed}");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }
}
