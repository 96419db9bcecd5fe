//! The newest snapshot, for whoever shows it from a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};

use super::Snapshot;

/// Holds the newest snapshot; clones hold the same.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<Mutex<Option<Arc<Snapshot>>>>);

impl Latest {
    /// Replaces it.
    pub fn publish(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }

    /// The newest one; none before the first.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
