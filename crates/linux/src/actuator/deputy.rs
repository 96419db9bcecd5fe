//! Puts settings back in place of an actuator's owner that is blocked in a call that cannot be
//! ended.

use std::sync::Arc;

use super::door::Door;
use super::log::{self, RestoreLog};
use super::turn::Turn;
use super::{Lock, RestoreReport, restore};
use crate::root::Root;

/// Stands in for the owner of an [`Actuator`](super::Actuator). It needs no data of the owner: the
/// values to put back are in the log.
pub struct Deputy {
    pub(super) root: Root,
    pub(super) door: Box<dyn Door>,
    pub(super) boot_id: String,
    pub(super) lock: Arc<Lock>,
    pub(super) turn: Arc<Turn>,
}

impl Deputy {
    /// Puts every value back that is still ours, and releases the lock. Does nothing if the owner
    /// or an earlier call has done so. From then on the owner changes nothing; if it gets to it
    /// after all, it waits until this has ended.
    pub fn restore(&mut self) -> Option<RestoreReport> {
        if !self.turn.take() {
            return None;
        }
        let report = self.put_back();
        self.lock.give_up();
        self.turn.end();
        Some(report)
    }

    fn put_back(&mut self) -> RestoreReport {
        let folder = self.lock.folder();
        let left = match log::read_in(folder) {
            Ok(left) => left,
            Err(error) => {
                return RestoreReport { log_failure: Some(error.to_string()), ..RestoreReport::default() };
            }
        };
        let (mut report, open) =
            restore::put_back(&self.root, self.door.as_mut(), &self.boot_id, left.entries);
        report.log_failure = RestoreLog::begin(folder, &open).err().map(|error| error.to_string());
        report
    }
}

impl std::fmt::Debug for Deputy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deputy").finish_non_exhaustive()
    }
}
