//! Puts recorded values back, and reports the fate of each.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::actuator::door::Door;
use crate::actuator::log::Entry;
use crate::actuator::{Actuator, ActuatorError, Lock, LockError, same_value, settings};
use crate::root::Root;

/// The fate of one recorded value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It was still ours; the old value is back.
    PutBack,
    /// The old value is there: it was never changed, or somebody else put it back.
    WasBack,
    /// Somebody changed it since: it is left alone.
    NotOurs {
        /// The value now.
        found: String,
    },
    /// It was changed in an earlier boot; this boot never had our value.
    OtherBoot,
    /// The file is gone: a module was unloaded or a file system unmounted.
    Absent,
    /// It is not a setting that we ever write; the record is not followed.
    NotASetting,
    /// The kernel refused; the record stays.
    Failed {
        /// The kernel's answer.
        cause: String,
    },
}

/// One recorded value and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The file.
    pub path: PathBuf,
    /// The value before us.
    pub old: String,
    /// Our value.
    pub ours: String,
    /// Its fate.
    pub fate: Fate,
}

/// The fate of everything that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// Each recorded value, in the order of putting back: the latest first.
    pub values: Vec<Restored>,
    /// Lines of the log that could not be trusted, by number from 1. What they recorded is unknown.
    pub damaged_lines: Vec<usize>,
    /// Where a log with such lines, or with records that are not followed, is kept.
    pub kept_aside: Option<PathBuf>,
    /// Why the log could not be cut down to the remaining records; the next start then checks these
    /// values again.
    pub log_failure: Option<String>,
}

impl RestoreReport {
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.damaged_lines.is_empty() && self.log_failure.is_none()
    }

    /// Whether every value that was ours is back.
    pub fn is_complete(&self) -> bool {
        let open = |r: &Restored| matches!(r.fate, Fate::Failed { .. } | Fate::NotASetting);
        self.damaged_lines.is_empty() && !self.values.iter().any(open)
    }
}

/// Maximum number of damaged lines that are listed.
const DAMAGED_TOLD_MAX: usize = 10;

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        for line in self.damaged_lines.iter().take(DAMAGED_TOLD_MAX) {
            lines.push(format!("line {line} of the restore log is damaged; what it recorded is unknown"));
        }
        let untold = self.damaged_lines.len().saturating_sub(DAMAGED_TOLD_MAX);
        if untold > 0 {
            lines.push(format!("and so are {untold} more lines"));
        }
        lines.extend(self.kept_aside.iter().map(|path| format!("that log is kept as {}", path.display())));
        lines.extend(self.log_failure.clone());
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Restored { path, old, ours, fate } = self;
        let path = path.display();
        match fate {
            Fate::PutBack => write!(f, "{path}: {ours} -> {old}, put back"),
            Fate::WasBack => write!(f, "{path}: has its old value {old}"),
            Fate::NotOurs { found } => write!(
                f,
                "{path}: left at {found}, which is not ours (we had set {ours}; before us it was {old}); to put it back: echo {old} > {path}"
            ),
            Fate::OtherBoot => write!(f, "{path}: was changed before the last boot, nothing to put back"),
            Fate::Absent => write!(f, "{path}: is gone; it was {old} before us"),
            Fate::NotASetting => write!(
                f,
                "{path}: recorded as changed, but no setting that thermocline ever writes; left alone"
            ),
            Fate::Failed { cause } => {
                write!(f, "{path}: cannot put {old} back: {cause}; to try again: thermocline restore")
            }
        }
    }
}

/// Puts back what a daemon that was killed left: `thermocline restore`.
///
/// # Errors
/// A daemon is running, or the log cannot be used.
pub fn restore(root: &Root, state_dir: &Path) -> Result<RestoreReport, RestoreError> {
    let lock = Lock::acquire(root, state_dir)?;
    let (_actuator, report) = Actuator::live(root, lock)?;
    Ok(report)
}

/// Why nothing could be put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The lock was not given: a running daemon puts its settings back itself when it ends.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The log cannot be used.
    #[error(transparent)]
    Actuator(#[from] ActuatorError),
}

/// Puts back `entries` (oldest first) and returns their fates, with the entries to try again.
pub(super) fn put_back(
    root: &Root,
    door: &mut dyn Door,
    boot_id: &str,
    entries: Vec<Entry>,
) -> (RestoreReport, Vec<Entry>) {
    let mut report = RestoreReport::default();
    let mut left = Vec::new();
    for entry in entries.into_iter().rev() {
        let fate = fate(root, door, boot_id, &entry);
        let Entry { path, old, ours, .. } = entry.clone();
        if matches!(fate, Fate::Failed { .. }) {
            left.push(entry);
        }
        report.values.push(Restored { path, old, ours, fate });
    }
    left.reverse();
    (report, left)
}

fn fate(root: &Root, door: &mut dyn Door, boot_id: &str, entry: &Entry) -> Fate {
    if entry.boot_id != boot_id {
        return Fate::OtherBoot;
    }
    if !settings::may_set(root, &entry.path) {
        return Fate::NotASetting;
    }
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => Fate::Absent,
        _ => Fate::Failed { cause: cause.to_string() },
    };
    let found = match door.read(&entry.path) {
        Ok(found) => found,
        Err(cause) => return failed(cause),
    };
    if same_value(&found, &entry.old) {
        return Fate::WasBack;
    }
    if !same_value(&found, &entry.ours) {
        return Fate::NotOurs { found: super::chosen(&found).to_owned() };
    }
    // The kernel creates and ends no kdamonds while one of them runs, and the record of a running
    // one may be lost.
    let ended = settings::kdamonds_made_by(root, &entry.path, &entry.ours).try_for_each(|state| {
        match door.read(&state) {
            Ok(text) if same_value(&text, "on") => door.write(&state, "off"),
            _ => Ok(()),
        }
    });
    match ended.and_then(|()| door.write(&entry.path, &entry.old)) {
        Ok(()) => Fate::PutBack,
        Err(cause) => failed(cause),
    }
}
