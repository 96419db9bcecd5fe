//! Limits the number of clients that are served at once. The daemon's own user and root have places
//! that nobody else can take.

use std::sync::{Arc, Mutex, PoisonError};

/// Places for everybody; owners have additional ones.
const FOR_ALL: usize = 8;
const FOR_OWNERS: usize = 8;

/// The places that are taken.
#[derive(Debug, Default)]
pub struct Handlers {
    taken: Arc<Mutex<usize>>,
}

/// A client's place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    taken: Arc<Mutex<usize>>,
}

impl Handlers {
    /// Takes a place for another client, if there is one for it.
    pub fn take(&self, owner: bool) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let places = if owner { FOR_ALL + FOR_OWNERS } else { FOR_ALL };
        if *taken >= places {
            return None;
        }
        *taken += 1;
        Some(Place { taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_leave_owners_their_places() {
        let handlers = Handlers::default();
        let mut others: Vec<Place> = std::iter::from_fn(|| handlers.take(false)).collect();
        assert_eq!(others.len(), FOR_ALL);
        let owners: Vec<Place> = std::iter::from_fn(|| handlers.take(true)).collect();
        assert_eq!(owners.len(), FOR_OWNERS);
        others.clear();
        drop(owners);
        assert!(handlers.take(false).is_some());
    }
}
