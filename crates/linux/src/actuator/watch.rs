//! Settings that somebody else changes while we run: detected, reported once, and set again or
//! left, as configured.
//!
//! Setting a value again is limited: after a few times within a minute the value is left. The
//! other's value then replaces the value from before us, and is put back at the end.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use thermocline_core::config::WhenChanged;
use thermocline_core::units::Nanos;

use super::holder::{Held, Holder};
use super::log::{self, Entry};
use super::{Actuator, ActuatorError, Lock, Plan, chosen, same_value, settings};
use crate::root::{Root, read_optional};

/// Time between two checks.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Maximum number of times that a setting is set again within [`WINDOW`].
const SETS_MAX: usize = 3;
const WINDOW: Nanos = Nanos::from_s(60);

thermocline_core::statistics! {
    /// Settings that others have changed, counted since the start.
    #[derive(Copy)]
    SettingsStats "settings" {
        /// Times that a setting was found changed. A setting that is left counts once until it has
        /// our value again.
        changed_by_others: u64, "times", Counter trouble;
        /// Of these, times that it was set again.
        set_again: u64, "times", Counter;
        /// Settings that are left as somebody else has set them, now.
        left: u64, "settings", Gauge trouble;
    }
}

/// A setting that somebody else has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// Our value.
    pub ours: String,
    /// The value that was found.
    pub found: String,
}

/// Settings that the thermocline at work has recorded in `state_dir` and that have other values
/// now; none if none runs. Read-only.
pub fn changed(root: &Root, state_dir: &Path) -> Vec<Changed> {
    let held = Lock::held(root, state_dir);
    let ours = |held: &Held| matches!(held.holder, Some(Holder { is_thermocline: true, .. }));
    let (true, Ok(recorded)) = (held.as_ref().is_some_and(ours), log::read(state_dir)) else {
        return Vec::new();
    };
    let mut values: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for entry in recorded.entries.into_iter().filter(|entry| !settings::is_state(root, &entry.path)) {
        values.entry(entry.path).or_default().push(entry.ours);
    }
    let differs = |(path, ours): (PathBuf, Vec<String>)| {
        let text = read_optional(&path).ok()??;
        // While a value is being changed, the one before is recorded as well.
        if ours.iter().any(|value| same_value(&text, value)) {
            return None;
        }
        Some(Changed { path, ours: ours.last()?.clone(), found: chosen(&text).to_owned() })
    };
    values.into_iter().filter_map(differs).collect()
}

/// State of settings in addition to the values to put back.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Settings that had the wanted value before us.
    kept: BTreeMap<PathBuf, String>,
    courses: BTreeMap<PathBuf, Course>,
    looked: Option<Nanos>,
    stats: SettingsStats,
}

/// The history of a setting that somebody else has changed.
#[derive(Debug, Default)]
struct Course {
    left: bool,
    /// The value that was found last.
    found: String,
    /// When it was set again.
    sets: VecDeque<Nanos>,
}

impl Course {
    fn may_set_again(&mut self, now: Nanos) -> bool {
        while self.sets.front().is_some_and(|at| now.since(*at) >= WINDOW) {
            self.sets.pop_front();
        }
        self.sets.len() < SETS_MAX
    }
}

impl Actuator {
    /// Also watches the settings of a plan that have their values without us.
    pub fn keep(&mut self, plan: &Plan) {
        self.watch.kept.extend(plan.kept.iter().cloned());
    }

    /// Checks once a second whether settings still have our values. Changes are reported, and
    /// undone if `when` says so.
    pub fn look_after(&mut self, now: Nanos, when: WhenChanged) -> Vec<String> {
        let early = self.watch.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY);
        if early || !self.door.reaches_kernel() {
            return Vec::new();
        }
        self.watch.looked = Some(now);
        let watched = self.watched();
        watched.into_iter().filter_map(|(path, ours)| self.look_at(&path, &ours, now, when)).collect()
    }

    /// How often others have changed settings of ours.
    pub fn settings_stats(&self) -> SettingsStats {
        let left = self.watch.courses.values().filter(|course| course.left).count() as u64;
        SettingsStats { left, ..self.watch.stats }
    }

    /// Settings that others have changed: that are left so, or that had to be set again lately.
    pub fn changed(&self, now: Nanos) -> Vec<Changed> {
        let lately = |course: &Course| course.sets.back().is_some_and(|at| now.since(*at) < WINDOW);
        let mut open =
            self.watch.courses.iter().filter(|(_, course)| course.left || lately(course)).peekable();
        if open.peek().is_none() {
            return Vec::new();
        }
        let ours = self.watched();
        open.filter_map(|(path, course)| {
            Some(Changed { path: path.clone(), ours: ours.get(path)?.clone(), found: course.found.clone() })
        })
        .collect()
    }

    /// Each setting with the value that it should have now. The state of a kdamond is not among
    /// them, because it changes on its own.
    fn watched(&self) -> BTreeMap<PathBuf, String> {
        let mut watched = self.watch.kept.clone();
        let lasting = self.entries.iter().filter(|entry| !settings::is_state(&self.root, &entry.path));
        watched.extend(lasting.map(|entry| (entry.path.clone(), entry.ours.clone())));
        watched
    }

    fn look_at(&mut self, path: &Path, ours: &str, now: Nanos, when: WhenChanged) -> Option<String> {
        // A file that is gone with its module is reported at the end.
        let text = self.door.read(path).ok()?;
        if same_value(&text, ours) {
            if let Some(course) = self.watch.courses.get_mut(path) {
                course.left = false;
            }
            return None;
        }
        let course = self.watch.courses.entry(path.to_owned()).or_default();
        if course.left {
            return None;
        }
        self.watch.stats.changed_by_others += 1;
        let may = settings::may_set_again(&self.root, path) && course.may_set_again(now);
        course.left = true;
        let found = chosen(&text).to_owned();
        course.found.clone_from(&found);
        let what = match (when, may) {
            (WhenChanged::StandAside, _) => {
                "it is left so, also at the end; kernel.when_changed = \"set-again\" has such settings set again"
                    .to_owned()
            }
            (WhenChanged::SetAgain, false) => {
                "it is left so from here on, also at the end: two would fight over it".to_owned()
            }
            (WhenChanged::SetAgain, true) => match self.set_again(path, ours, &found, now) {
                Ok(()) => format!("set to {ours} again, and {found} is put back at the end"),
                Err(why) => format!("it is left so, because it cannot be set again: {why}"),
            },
        };
        Some(format!(
            "{} is {found}: somebody else has set it since it was {ours} (the kernel does not say who; `sysctl --system` and tuned do so); {what}",
            path.display()
        ))
    }

    fn set_again(&mut self, path: &Path, ours: &str, found: &str, now: Nanos) -> Result<(), ActuatorError> {
        let _changing = self.change()?;
        // The record is replaced before the value is written, and is right before and after.
        let before = self.entries.clone();
        let place = self.entries.iter().position(|entry| entry.path == path).unwrap_or(0);
        self.entries.retain(|entry| entry.path != path);
        self.entries.insert(
            place,
            Entry {
                boot_id: self.boot_id.clone(),
                path: path.to_owned(),
                old: found.to_owned(),
                ours: ours.to_owned(),
            },
        );
        if let Err(error) = self.begin_log() {
            self.entries = before;
            return Err(error.into());
        }
        self.door.write(path, ours).map_err(|cause| ActuatorError::Write {
            path: path.to_owned(),
            value: ours.to_owned(),
            cause,
        })?;
        self.watch.stats.set_again += 1;
        if let Some(course) = self.watch.courses.get_mut(path) {
            course.left = false;
            course.sets.push_back(now);
        }
        Ok(())
    }
}
