//! Kdamonds for processes: as many as were made at the start, each on while it watches one.
//!
//! A kdamond could watch several processes, and take others in while it runs (`commit`). But it
//! knows them by their place in its list, and what has closed up in the list inherits the regions
//! of who was there (Linux 6.12 mm/damon/core.c, damon_commit_targets); and one that has ended
//! cannot be left in it, since then the whole list is refused. One kdamond a process needs none of
//! that: it ends with its process, by itself, and begins anew with another.

use thermocline_core::units::Pid;

use super::{has, kdamond_file, kdamond_folder, nr_kdamonds};
use crate::actuator::{Actuator, ActuatorError, same_value};
use crate::root::{KernelFileError, Root};

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// What is there now is not what we made.
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
    /// Whom each was told to watch last.
    told: Vec<Option<Pid>>,
}

impl Pool {
    /// So many, all off.
    pub fn new(kdamonds: usize) -> Pool {
        Pool { told: vec![None; kdamonds] }
    }

    /// Has kdamond `number`, which is off, watch what it was told of a process's addresses.
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

    /// Switches kdamond `number` off, if it is on and watches whom we told it to.
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

    /// Refuses a kdamond that is none of those that we made, or is on. Whoever has made others
    /// since, has made another number of them, or has them on, or gave them other processes.
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

    /// The kernel says 0 for one that was told nothing.
    fn pid_told(&self, number: usize) -> u32 {
        self.told.get(number).copied().flatten().map_or(0, |pid| pid.0)
    }
}
