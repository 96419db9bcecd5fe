//! The newest snapshot, shared with the threads that show it.

use std::sync::{Arc, Mutex, PoisonError};

use super::Snapshot;

/// Holds the newest snapshot. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<Mutex<Option<Arc<Snapshot>>>>);

impl Latest {
    /// Replaces the snapshot.
    pub fn publish(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }

    /// The newest snapshot; `None` before the first one.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
