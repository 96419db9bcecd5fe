//! One page of our own, moved to see whether the kernel lets us: a filter of system calls may refuse what every capability allows.

use thermocline_core::units::{NodeId, Pid};

use crate::sys::{MovePagesError, MoveWhat, move_pages};

/// The largest base page that Linux has.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Moves a page of this process to the first of `targets` that takes it. Nodes that are full or closed to us say nothing of the right to move.
///
/// # Errors
/// What the kernel refuses it with.
pub(crate) fn trial(targets: &[NodeId]) -> Result<(), MovePagesError> {
    let memory = vec![1u8; 2 * PAGE_BYTES_MAX];
    let address = (memory.as_ptr() as u64).next_multiple_of(PAGE_BYTES_MAX as u64);
    let own = Pid(std::process::id());
    for target in targets {
        match move_pages(own, &[address], *target, MoveWhat::Own, &mut [0]) {
            Ok(_) => break,
            Err(
                MovePagesError::NodeFull(_)
                | MovePagesError::NodeForbidden(..)
                | MovePagesError::NodeAbsent(_),
            ) => {}
            Err(why) => return Err(why),
        }
    }
    // The page is in use until here.
    drop(memory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_its_own_may_be_moved_and_a_node_that_is_not_there_is_no_refusal() {
        assert_eq!(trial(&[NodeId(1023), NodeId(0)]), Ok(()));
    }
}
