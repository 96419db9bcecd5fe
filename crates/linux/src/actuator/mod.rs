//! The one door for everything that is written to the kernel.
//!
//! Before a value is written, {boot id, path, old value, our value} is on the disk ([`log`]); at
//! the end, at the next start after a crash, or by `thermocline restore`, values are put back in
//! reverse order, only in the same boot and only where they are still ours. The holder of the
//! [`Lock`] may open the door.

mod command;
mod deputy;
pub mod door;
mod error;
mod holder;
pub(crate) mod kdamond;
mod lock;
pub mod log;
mod plan;
mod restore;
mod settings;
mod turn;
mod value;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::root::{KernelFileError, Root};

use door::{Door, DryRun, Live};
use log::{Entry, LogError, RestoreLog};
use turn::{Changing, Turn};
use watch::Watch;

pub use command::Commands;
pub(crate) use command::{damon_stat, kdamonds, lru_gen, node_reclaim};
pub use deputy::Deputy;
pub use error::ActuatorError;
pub use holder::{Held, Holder};
pub(crate) use lock::MACHINE_NAME as MACHINE_LOCK;
pub use lock::{Lock, LockError, OTHER_PIDS, has_own_pids};
pub use plan::{Change, Plan, Skipped, plan};
pub use restore::{Fate, RestoreError, RestoreReport, Restored, restore};
pub use value::{chosen, same_value};
pub use watch::{Changed, SettingsStats, changed};

/// Names of files in the state folder, for as long as it is in use.
pub(crate) const STATE_NAMES: [&str; 3] = [lock::FILE_NAME, log::FILE_NAME, log::NEXT_NAME];

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel already had this value, so there is nothing to put back.
    Already,
    /// The value was changed.
    Changed {
        /// The value before.
        from: String,
    },
}

/// Tries to set a value that somebody else changes at the same time.
const TRIES: u32 = 8;

/// Writes kernel settings, and puts them back.
pub struct Actuator {
    root: Root,
    door: Box<dyn Door>,
    boot_id: String,
    /// The values to put back, oldest first.
    entries: Vec<Entry>,
    log: Option<RestoreLog>,
    lock: Option<Arc<Lock>>,
    turn: Arc<Turn>,
    watch: Watch,
}

impl Actuator {
    /// The live form. Settings that a crashed daemon left in the log of the lock's folder are put
    /// back first and reported.
    ///
    /// # Errors
    /// The boot id or the log cannot be read. Values that cannot be put back are no error: they are
    /// in the report, stay in the log, and are tried again at the end.
    pub fn live(root: &Root, lock: Lock) -> Result<(Actuator, RestoreReport), ActuatorError> {
        Actuator::with_door(root, lock, Box::new(Live))
    }

    /// Like [`live`](Actuator::live), through another door.
    ///
    /// # Errors
    /// As [`live`](Actuator::live).
    pub fn with_door(
        root: &Root,
        lock: Lock,
        door: Box<dyn Door>,
    ) -> Result<(Actuator, RestoreReport), ActuatorError> {
        let left = log::read_in(lock.folder())?;
        let mut actuator = Actuator {
            root: root.clone(),
            door,
            boot_id: root.boot_id()?,
            entries: left.entries,
            log: None,
            lock: Some(Arc::new(lock)),
            turn: Arc::default(),
            watch: Watch::default(),
        };
        let not_followed = actuator.entries.iter().any(|entry| !settings::may_set(root, &entry.path));
        let aside = (not_followed || !left.damaged.is_empty()).then(|| actuator.keep_log_aside());
        let mut report = actuator.put_back(0);
        report.damaged_lines = left.damaged;
        match aside.transpose() {
            Ok(kept) => report.kept_aside = kept,
            Err(cause) => {
                // Records not put back yet stay in the log.
                actuator.entries.clear();
                return Err(ActuatorError::Damaged { cause, put_back: Box::new(report) });
            }
        }
        actuator.begin_log()?;
        Ok((actuator, report))
    }

    /// The dry form: reads the kernel, writes nothing, and answers as if it had written.
    pub fn dry_run(root: &Root) -> Actuator {
        Actuator {
            root: root.clone(),
            door: Box::new(DryRun::default()),
            boot_id: String::new(),
            entries: Vec::new(),
            log: None,
            lock: None,
            turn: Arc::default(),
            watch: Watch::default(),
        }
    }

    /// The door for commands, which change no setting; `None` if nothing may reach the kernel.
    pub fn commands(&self) -> Option<Commands> {
        self.door.reaches_kernel().then(|| Commands::live(&self.root))
    }

    /// The deputy that puts the settings back if the owner is blocked; `None` if nothing reaches
    /// the kernel.
    pub fn deputy(&self) -> Option<Deputy> {
        self.deputy_with(Box::new(Live))
    }

    /// The same, through another door.
    pub fn deputy_with(&self, door: Box<dyn Door>) -> Option<Deputy> {
        let lock = Arc::clone(self.lock.as_ref()?);
        let (root, boot_id) = (self.root.clone(), self.boot_id.clone());
        Some(Deputy { root, door, boot_id, lock, turn: Arc::clone(&self.turn) })
    }

    /// Begins a change, unless the deputy has begun.
    fn change(&self) -> Result<Changing, ActuatorError> {
        self.turn.change().ok_or(ActuatorError::TakenOver)
    }

    /// Writes one value, recorded first; reads it back.
    ///
    /// # Errors
    /// The value was not written, or the kernel did not accept it; in the second case the record
    /// stays, so that [`restore`](Actuator::restore) puts the old value back.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<Written, ActuatorError> {
        if !settings::may_set(&self.root, path) {
            return Err(ActuatorError::Outside(path.to_owned()));
        }
        let mut found = String::new();
        for _ in 0..TRIES {
            if let Some(written) = self.set_unless_changed(path, value)? {
                return Ok(written);
            }
            found = chosen(&self.read(path)?).to_owned();
        }
        Err(ActuatorError::Contended { path: path.to_owned(), found })
    }

    /// As [`set`](Actuator::set); `None`, and nothing is written, if somebody else has changed the
    /// value while it was being recorded, which takes as long as the disk does.
    fn set_unless_changed(&mut self, path: &Path, value: &str) -> Result<Option<Written>, ActuatorError> {
        let _changing = self.change()?;
        let old = self.read(path)?;
        if same_value(&old, value) {
            return Ok(Some(Written::Already));
        }
        let mut entry = Entry {
            boot_id: self.boot_id.clone(),
            path: path.to_owned(),
            old: chosen(&old).to_owned(),
            ours: value.to_owned(),
        };
        self.record(&entry)?;
        if !same_value(&self.read(path)?, &old) {
            self.begin_log()?;
            return Ok(None);
        }
        // From here on the value counts as changed, even if the kernel reports an error.
        self.entries.push(entry.clone());
        self.door.write(path, value).map_err(|cause| ActuatorError::Write {
            path: path.to_owned(),
            value: value.to_owned(),
            cause,
        })?;
        let found = self.read(path)?;
        if !same_value(&found, value) {
            // The kernel's own form of our value counts as ours.
            entry.ours = chosen(&found).to_owned();
            self.record(&entry)?;
            self.entries.push(entry);
            return Err(ActuatorError::NotTaken {
                path: path.to_owned(),
                wanted: value.to_owned(),
                found: chosen(&found).to_owned(),
            });
        }
        Ok(Some(Written::Changed { from: chosen(&old).to_owned() }))
    }

    /// Replaces a value of ours by another: the value to put back remains the original one. `None`
    /// if the value is not, or no longer, ours: the later writer's value stands.
    ///
    /// # Errors
    /// As [`set`](Actuator::set).
    pub fn adjust(&mut self, path: &Path, value: &str) -> Result<Option<Written>, ActuatorError> {
        let _changing = self.change()?;
        let Some(at) = self.entries.iter().rposition(|entry| entry.path == path) else { return Ok(None) };
        if !same_value(&self.read(path)?, &self.entries[at].ours) {
            return Ok(None);
        }
        let old = self.entries[at].old.clone();
        let before = self.entries.len();
        let Some(written) = self.set_unless_changed(path, value)? else { return Ok(None) };
        // Up to here both values were recorded as ours, so that a crash at no moment loses the
        // first.
        if self.entries.len() > before {
            self.entries[before].old = old;
            self.entries.remove(at);
            self.begin_log()?;
        }
        Ok(Some(written))
    }

    /// Writes a value into the folders that our value of `made_by` has created beside it, and that
    /// disappear when it is put back, so it needs no record. The value is not read back.
    ///
    /// # Errors
    /// `made_by` has no value of ours, the path is not below its folder, or the kernel refuses the
    /// value.
    pub fn fill(&mut self, made_by: &Path, path: &Path, value: &str) -> Result<(), ActuatorError> {
        let ours = self.has_set(made_by);
        let below = made_by.parent().is_some_and(|folder| path.starts_with(folder));
        if !ours || !below || !settings::may_fill(&self.root, path) {
            return Err(ActuatorError::Outside(path.to_owned()));
        }
        let _changing = self.change()?;
        self.door.write(path, value).map_err(|cause| ActuatorError::Write {
            path: path.to_owned(),
            value: value.to_owned(),
            cause,
        })
    }

    /// Records that a file in the folders created by our value of `made_by` will have `value` at
    /// times, through [`fill`](Actuator::fill): if it has it at the end, the present value is put
    /// back.
    ///
    /// # Errors
    /// The file cannot be read, or the value cannot be recorded.
    pub fn foresee(&mut self, path: &Path, value: &str) -> Result<(), ActuatorError> {
        if !settings::may_set(&self.root, path) {
            return Err(ActuatorError::Outside(path.to_owned()));
        }
        let _changing = self.change()?;
        let old = chosen(&self.read(path)?).to_owned();
        let entry =
            Entry { boot_id: self.boot_id.clone(), path: path.to_owned(), old, ours: value.to_owned() };
        self.record(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Whether a file has a value of ours that must be put back.
    pub fn has_set(&self, path: &Path) -> bool {
        self.entries.iter().any(|entry| entry.path == path)
    }

    /// Carries out a plan, all of it or nothing: when a step fails, the steps before are put back.
    ///
    /// # Errors
    /// The step that failed and the fate of the others.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), ActuatorError> {
        self.keep(plan);
        self.all_or_nothing(|actuator| {
            plan.changes.iter().try_for_each(|change| actuator.set(&change.path, &change.to).map(drop))
        })
    }

    /// Takes steps: when one fails, those before it are put back.
    ///
    /// # Errors
    /// The step that failed and the fate of the others.
    pub fn all_or_nothing(
        &mut self,
        steps: impl FnOnce(&mut Actuator) -> Result<(), ActuatorError>,
    ) -> Result<(), ActuatorError> {
        let before = self.entries.len();
        steps(self).map_err(|cause| {
            let put_back = self.restore_from(before);
            ActuatorError::Plan { cause: Box::new(cause), put_back }
        })
    }

    /// Sets a setting to another value, recorded first, and at once back to its present one.
    ///
    /// # Errors
    /// The other value was not written, or the setting did not get its own value back.
    pub fn switch_over(&mut self, path: &Path, value: &str) -> Result<(), ActuatorError> {
        self.all_or_nothing(|actuator| {
            let before = actuator.entries.len();
            actuator.set(path, value)?;
            let put_back = actuator.restore_from(before);
            if put_back.is_complete() {
                return Ok(());
            }
            let (wanted, found) = (value.to_owned(), actuator.read(path)?);
            Err(ActuatorError::NotTaken { path: path.to_owned(), wanted, found })
        })
    }

    /// Puts every value back finally. If all are back, the lock is released: a process that cannot
    /// end then no longer has a hold on the kernel's settings and cannot set any.
    pub fn end(&mut self) -> RestoreReport {
        let report = self.restore();
        if self.entries.is_empty() && report.log_failure.is_none() {
            self.give_up();
        }
        report
    }

    /// Ends all changes and releases the lock.
    fn give_up(&mut self) {
        // The deputy first: the log belongs to another daemon as soon as the lock is free.
        self.turn.end();
        if let Some(lock) = self.lock.take() {
            lock.give_up();
        }
        self.log = None;
    }

    /// Puts every value back that is still ours, the latest first. Values that could not be put
    /// back stay recorded.
    pub fn restore(&mut self) -> RestoreReport {
        self.restore_from(0)
    }

    /// Puts back what was changed after the first `kept` entries.
    fn restore_from(&mut self, kept: usize) -> RestoreReport {
        let Ok(_changing) = self.change() else {
            // Values that the deputy could not put back are in the log.
            self.entries.clear();
            return RestoreReport::default();
        };
        let mut report = self.put_back(kept);
        if !self.turn.is_owners() {
            // It took so long that the deputy has begun, which now owns the log.
            return report;
        }
        report.log_failure = self.begin_log().err().map(|error| error.to_string());
        report
    }

    fn put_back(&mut self, kept: usize) -> RestoreReport {
        let entries = self.entries.split_off(kept);
        let (report, left) = restore::put_back(&self.root, self.door.as_mut(), &self.boot_id, entries);
        self.entries.extend(left);
        report
    }

    fn keep_log_aside(&self) -> Result<PathBuf, LogError> {
        self.lock.as_ref().map_or(Err(LogError::NoFolder), |lock| log::keep_aside(lock.folder()))
    }

    /// Cuts the log down to the values still to be put back.
    fn begin_log(&mut self) -> Result<(), LogError> {
        self.log = None;
        if let Some(lock) = &self.lock {
            self.log = Some(RestoreLog::begin(lock.folder(), &self.entries)?);
        }
        Ok(())
    }

    /// The text of a kernel file, as the door sees it.
    ///
    /// # Errors
    /// The file is absent or cannot be read.
    pub fn read(&self, path: &Path) -> Result<String, KernelFileError> {
        self.door.read(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => KernelFileError::not_supported(
                "this setting",
                path,
                "leave it unset in the configuration, or boot a kernel that has it",
            ),
            _ => KernelFileError::io("read", path, cause),
        })
    }

    fn record(&mut self, entry: &Entry) -> Result<(), LogError> {
        if !self.door.reaches_kernel() {
            return Ok(());
        }
        if self.log.is_none() {
            self.begin_log()?;
        }
        match &mut self.log {
            Some(log) => log.append(entry),
            None => Err(LogError::NoFolder),
        }
    }

    /// Ends as SIGKILL would: nothing is put back, the log stays.
    #[cfg(test)]
    pub(crate) fn crash(mut self) {
        self.entries.clear();
    }
}

impl Drop for Actuator {
    /// A daemon that ends by an early return or a panic leaves the kernel as it found it. To get
    /// the result, call [`restore`](Actuator::restore) before.
    fn drop(&mut self) {
        if !self.entries.is_empty() {
            self.restore();
        }
        self.give_up();
    }
}

impl std::fmt::Debug for Actuator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actuator").field("entries", &self.entries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
