//! Derives outcomes from the kernel's answers.
//!
//! move_pages goes through its pages in order and collects those it can isolate into a sub-batch. A
//! page that cannot be isolated gets its status and ends the sub-batch, which is then migrated; so
//! does the end of the list. When some page of a sub-batch does not migrate, the call ends: the
//! sub-batch's statuses and all later ones stay unwritten, though many of its pages may have moved
//! (Linux 6.12 mm/migrate.c).

use thermocline_core::moves::Outcome;
use thermocline_core::units::NodeId;

use super::plan::Item;
use crate::sys::MovePagesError;

/// The value of a status that the kernel has not written; no node and no errno.
pub(super) const UNWRITTEN: i32 = i32::MIN;

/// How far the kernel got with one page of a call that returned a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has a status.
    Written(i32),
    /// It was in the sub-batch that ended the call: the kernel tried it.
    Tried,
    /// It came after that sub-batch.
    NotReached,
}

/// Reads the progress of each page from the statuses of such a call.
pub(super) fn progress(status: &[i32]) -> Vec<Progress> {
    let mut tried_over = false;
    let mut tried_begun = false;
    status
        .iter()
        .map(|&s| {
            if s != UNWRITTEN {
                tried_over |= tried_begun;
                Progress::Written(s)
            } else if tried_over {
                Progress::NotReached
            } else {
                tried_begun = true;
                Progress::Tried
            }
        })
        .collect()
}

/// What a status means for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It is on this node.
    On(NodeId),
    /// It could not be isolated; busy or pinned.
    Stuck,
    /// It has this outcome.
    End(Outcome),
    /// An errno that no outcome names.
    Unknown,
}

/// Reads a status that the kernel has written.
pub(super) fn status(value: i32) -> Status {
    if let Ok(node) = u16::try_from(value) {
        return Status::On(NodeId(node));
    }
    match value.checked_neg() {
        // Unmapped since; the page of zeroes; a mapping whose pages never migrate.
        Some(libc::ENOENT | libc::EFAULT) => Status::End(Outcome::Gone),
        Some(libc::EACCES) => Status::End(Outcome::Shared),
        Some(libc::EPERM) => Status::End(Outcome::NoPermission),
        Some(libc::ENOMEM) => Status::End(Outcome::NodeFull),
        Some(libc::EBUSY) => Status::Stuck,
        _ => Status::Unknown,
    }
}

/// What the failure of a whole call means for every page that it did not move; `None` for an errno
/// that no outcome names.
pub(super) fn failure(error: MovePagesError) -> Option<Outcome> {
    match error {
        MovePagesError::NoProcess(_) | MovePagesError::NoMemoryMap(_) => Some(Outcome::Gone),
        MovePagesError::NotPermitted(_) | MovePagesError::NodeForbidden(..) | MovePagesError::NotOffered => {
            Some(Outcome::NoPermission)
        }
        MovePagesError::NodeFull(_) | MovePagesError::NodeAbsent(_) => Some(Outcome::NodeFull),
        MovePagesError::Other(..) => None,
    }
}

/// Among the outcomes of the pages of one folio, the one with the greatest weight is reported for
/// the folio's move. Outcomes that may be retried or must be reported outweigh success, which
/// outweighs pages that are no longer part of the folio.
fn weight(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Gone | Outcome::OtherPage => 0,
        Outcome::OtherNode | Outcome::Shared => 1,
        Outcome::AlreadyThere => 2,
        Outcome::Moved => 3,
        Outcome::Busy => 4,
        Outcome::Pinned => 5,
        Outcome::NotTried | Outcome::DryRun => 6,
        Outcome::NoPermission => 7,
        Outcome::Mempolicy => 8,
        Outcome::NodeFull => 9,
        // It applies to the whole batch.
        Outcome::Excluded => 10,
    }
}

/// Where the pages of an item are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All that are mapped are on the target.
    Target,
    /// Some are not.
    Elsewhere,
    /// None is mapped.
    Unmapped,
}

impl Place {
    /// From the answers to a query of each page.
    pub(super) fn of(nodes: &[i32], target: NodeId) -> Place {
        let mut mapped = nodes.iter().filter(|&&node| node >= 0).peekable();
        if mapped.peek().is_none() {
            Place::Unmapped
        } else if mapped.all(|&node| node == i32::from(target.0)) {
            Place::Target
        } else {
            Place::Elsewhere
        }
    }
}

/// The outcomes of a batch, filled in step by step.
pub(super) struct Ends(Vec<Option<Outcome>>);

impl Ends {
    pub(super) fn new(moves: usize) -> Ends {
        Ends(vec![None; moves])
    }

    /// One page of a move has ended; the outcome with the greatest weight stands.
    pub(super) fn end(&mut self, of: usize, outcome: Outcome) {
        let end = &mut self.0[of];
        if end.is_none_or(|before| weight(before) < weight(outcome)) {
            *end = Some(outcome);
        }
    }

    /// All these items have the same outcome.
    pub(super) fn all(&mut self, items: &[Item], outcome: Outcome) {
        items.iter().for_each(|item| self.end(item.of, outcome));
    }

    /// Every move without an outcome gets this one.
    pub(super) fn rest(&mut self, outcome: Outcome) {
        for end in &mut self.0 {
            end.get_or_insert(outcome);
        }
    }

    /// A move without any page left is gone.
    pub(super) fn finish(self) -> Vec<Outcome> {
        self.0.into_iter().map(|end| end.unwrap_or(Outcome::Gone)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Progress::{NotReached, Tried, Written};

    #[test]
    fn tells_tried_pages_from_those_not_reached() {
        const U: i32 = UNWRITTEN;
        assert_eq!(progress(&[U, U, U]), [Tried; 3], "one sub-batch: every page was tried");
        assert_eq!(
            progress(&[0, U, U, -libc::EBUSY, U, U]),
            [Written(0), Tried, Tried, Written(-libc::EBUSY), NotReached, NotReached],
            "the page that cannot be isolated ends the sub-batch"
        );
        assert_eq!(progress(&[]), []);
    }

    #[test]
    fn a_folio_is_where_all_its_mapped_pages_are() {
        let target = NodeId(0);
        assert_eq!(Place::of(&[0, -libc::ENOENT, 0], target), Place::Target);
        assert_eq!(Place::of(&[0, 2], target), Place::Elsewhere);
        assert_eq!(Place::of(&[-libc::ENOENT, -libc::EFAULT], target), Place::Unmapped);
    }

    #[test]
    fn reads_statuses() {
        assert_eq!(status(2), Status::On(NodeId(2)));
        assert_eq!(status(-libc::ENOENT), Status::End(Outcome::Gone));
        assert_eq!(status(-libc::EACCES), Status::End(Outcome::Shared));
        assert_eq!(status(-libc::EBUSY), Status::Stuck);
        assert_eq!(status(-libc::EIO), Status::Unknown);
        assert_eq!(status(i32::MIN), Status::Unknown);
        assert_eq!(status(i32::MAX), Status::Unknown);
    }
}
