//! A trial: whether this process may move pages at all. A page of its own is moved to a lower node
//! and back, at negligible cost.

use std::path::Path;

use thermocline_core::topology::Topology;
use thermocline_core::units::{NodeId, PAGE_SIZE, Pid};

use crate::root::Root;
use crate::sys::{self, MovePagesError, MoveWhat};

/// Why nothing can be moved, with any capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotMove {
    /// A process needs no capability for its own pages, so something else refuses the call.
    #[error(
        "move_pages is refused for a page of our own ({0}): a seccomp filter keeps this process from it, as the default profile of containers \
         does; start the container with --cap-add SYS_NICE, or with a seccomp profile that allows move_pages and migrate_pages"
    )]
    Filtered(&'static str),
    /// The kernel was built without it.
    #[error(transparent)]
    Kernel(MovePagesError),
}

/// Moves a page of this process to a lower node and back. On a machine whose files were copied from
/// elsewhere there is nothing to try.
///
/// # Errors
/// Pages cannot be moved by this process. That a node is full or closed to it is no error here.
pub fn try_own_page(root: &Root, topology: &Topology) -> Result<(), CannotMove> {
    if root.proc != Path::new("/proc") {
        return Ok(());
    }
    let lower = topology.nodes.iter().find(|n| n.capacity_pages > 0 && topology.is_lower(n.id));
    lower.map_or(Ok(()), |lower| there_and_back(lower.id))
}

fn there_and_back(target: NodeId) -> Result<(), CannotMove> {
    let pid = Pid(std::process::id());
    // Two pages, so that one of them is complete at any alignment.
    let memory = vec![1u8; 2 * PAGE_SIZE as usize];
    let page = [(memory.as_ptr() as u64).next_multiple_of(PAGE_SIZE)];
    let mut home = [-1];
    judge(sys::query_pages(pid, &page, &mut home))?;
    let mut status = [-1];
    judge(sys::move_pages(pid, &page, target, MoveWhat::Own, &mut status).map(drop))?;
    match home.map(u16::try_from) {
        [Ok(home)] => judge(sys::move_pages(pid, &page, NodeId(home), MoveWhat::Own, &mut status).map(drop)),
        [Err(_)] => Ok(()),
    }
}

/// What the kernel's answer implies for all further calls.
fn judge(answer: Result<(), MovePagesError>) -> Result<(), CannotMove> {
    match answer {
        Err(MovePagesError::NotPermitted(_)) => Err(CannotMove::Filtered("EPERM")),
        Err(MovePagesError::NotOffered) if filtered() => Err(CannotMove::Filtered("ENOSYS")),
        Err(why @ MovePagesError::NotOffered) => Err(CannotMove::Kernel(why)),
        _ => Ok(()),
    }
}

/// Whether a seccomp filter is installed.
fn filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn an_own_page_goes_to_the_node_where_it_is() {
        assert_eq!(there_and_back(NodeId(0)), Ok(()));
        assert_eq!(there_and_back(NodeId(1023)), Ok(()), "an absent node says nothing of the call");
    }

    #[test]
    fn a_seccomp_filter_is_found_out_and_named() {
        for (errno, name) in [(Errno::PERM, "EPERM"), (Errno::NOSYS, "ENOSYS")] {
            let tried = std::thread::spawn(move || {
                sys::refuse_move_pages(errno);
                there_and_back(NodeId(0))
            });
            let why = tried.join().unwrap().unwrap_err();
            assert_eq!(why, CannotMove::Filtered(name));
            assert!(why.to_string().contains("--cap-add SYS_NICE"));
        }
    }
}
