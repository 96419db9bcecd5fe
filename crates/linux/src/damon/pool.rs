//! Kdamonds for processes: a fixed number created at the start, each on while it watches a process.
//!
//! A kdamond could watch several processes, and change them while it runs (`commit`). But it
//! identifies them by their place in its list: when an entry is removed, later ones move up and
//! inherit the regions of their predecessors (Linux 6.12 mm/damon/core.c, damon_commit_targets).
//! And an ended process cannot stay in the list, because the kernel then refuses the whole list.
//! One kdamond per process avoids that: it ends with its process, and starts again with another.

use thermocline_core::units::Pid;

use super::{has, kdamond_file, kdamond_folder, nr_kdamonds};
use crate::actuator::{Actuator, ActuatorError, same_value};
use crate::root::{KernelFileError, Root};

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The present kdamonds are not ours.
    #[error(
        "somebody else has set up DAMON meanwhile; its kdamonds are left alone, end them and restart the daemon to have regions of processes again"
    )]
    NotOurs,
    /// The kernel refuses; the process may have ended.
    #[error(transparent)]
    Refused(#[from] ActuatorError),
}

impl From<KernelFileError> for PoolError {
    fn from(error: KernelFileError) -> PoolError {
        PoolError::Refused(error.into())
    }
}

/// The kdamonds, by number.
#[derive(Debug)]
pub struct Pool {
    /// The process that each was last set to watch.
    told: Vec<Option<Pid>>,
}

impl Pool {
    /// A pool of `kdamonds`, all off.
    pub fn new(kdamonds: usize) -> Pool {
        Pool { told: vec![None; kdamonds] }
    }

    /// Starts kdamond `number`, which is off, on the given addresses of a process.
    ///
    /// # Errors
    /// [`PoolError`]; the kdamond is off then.
    pub fn watch(
        &mut self,
        root: &Root,
        actuator: &mut Actuator,
        number: usize,
        pid: Pid,
    ) -> Result<(), PoolError> {
        let folder = kdamond_folder(root, number);
        let (state, target) = (folder.join(kdamond_file::STATE), folder.join(kdamond_file::PID));
        self.expect_free(root, actuator, number)?;
        let Some(told) = self.told.get_mut(number) else { return Err(PoolError::NotOurs) };
        let made_by = nr_kdamonds(root);
        if told.is_none() {
            actuator.foresee(&state, "on")?;
        }
        *told = Some(pid);
        actuator.fill(&made_by, &target, &pid.0.to_string())?;
        Ok(actuator.fill(&made_by, &state, "on")?)
    }

    /// Switches kdamond `number` off, if it is on and watches the process that we set.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn end(&mut self, root: &Root, actuator: &mut Actuator, number: usize) -> Result<(), PoolError> {
        let folder = kdamond_folder(root, number);
        let (state, target) = (folder.join(kdamond_file::STATE), folder.join(kdamond_file::PID));
        if has(actuator, &state, "on") && has(actuator, &target, &self.pid_told(number).to_string()) {
            actuator.fill(&nr_kdamonds(root), &state, "off")?;
        }
        Ok(())
    }

    /// Refuses a kdamond that is not ours, or that is on. If others have created kdamonds since,
    /// their number differs, or they are on, or they have other processes.
    ///
    /// # Errors
    /// [`PoolError`]; its files may be busy, too.
    pub fn expect_free(&self, root: &Root, actuator: &Actuator, number: usize) -> Result<(), PoolError> {
        let folder = kdamond_folder(root, number);
        for (path, value) in [
            (nr_kdamonds(root), self.told.len().to_string()),
            (folder.join(kdamond_file::STATE), "off".to_owned()),
            (folder.join(kdamond_file::PID), self.pid_told(number).to_string()),
        ] {
            if !same_value(&actuator.read(&path)?, &value) {
                return Err(PoolError::NotOurs);
            }
        }
        Ok(())
    }

    /// The kernel reports 0 for one without a process.
    fn pid_told(&self, number: usize) -> u32 {
        self.told.get(number).copied().flatten().map_or(0, |pid| pid.0)
    }
}
