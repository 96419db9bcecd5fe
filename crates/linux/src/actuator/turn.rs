//! Whose turn it is to change settings: the actuator's owner, or its [`Deputy`](super::Deputy),
//! which puts them back if the owner is blocked. Once the deputy has begun, the owner changes
//! nothing more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an owner that arrives late waits for the deputy, which ends the process meanwhile.
const OWNER_WAITS: Duration = Duration::from_secs(10);
/// How long the deputy waits for a change of the owner in progress. A change that takes longer
/// hangs.
const DEPUTY_WAITS: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Owner,
    Deputy,
    /// Everything is put back, or was given up by the owner.
    Over,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Nested changes of the owner in progress.
    changes: u32,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

/// A change of the owner is in progress until this is dropped.
#[derive(Debug)]
pub(super) struct Changing(Arc<Turn>);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.lock().changes -= 1;
        self.0.changed.notify_all();
    }
}

impl Turn {
    /// The owner begins a change. `None` if the deputy has begun; waits for it to end.
    pub(super) fn change(self: &Arc<Turn>) -> Option<Changing> {
        let mut state = self.lock();
        if state.phase == Phase::Deputy {
            let busy = |state: &mut State| state.phase == Phase::Deputy;
            let waited = self.changed.wait_timeout_while(state, OWNER_WAITS, busy);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return None;
        }
        if state.phase == Phase::Over {
            return None;
        }
        state.changes += 1;
        Some(Changing(Arc::clone(self)))
    }

    /// The deputy begins; false if it has begun before, or if nothing is left to do.
    pub(super) fn take(&self) -> bool {
        let mut state = self.lock();
        if state.phase != Phase::Owner {
            return false;
        }
        state.phase = Phase::Deputy;
        let waited = self.changed.wait_timeout_while(state, DEPUTY_WAITS, |state| state.changes > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// Whether the deputy has not begun.
    pub(super) fn is_owners(&self) -> bool {
        self.lock().phase == Phase::Owner
    }

    /// Ends all changes, by owner and deputy.
    pub(super) fn end(&self) {
        self.lock().phase = Phase::Over;
        self.changed.notify_all();
    }

    /// No value behind the lock is ever half written.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
