//! move_pages(2): where pages of a process are, and moving them to another node.

use std::ptr;

use rustix::io::Errno;
use thermocline_core::units::{NodeId, Pid};

// Addresses are handed to the kernel as an array of pointers.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

// Linux include/uapi/linux/mempolicy.h.
const MPOL_MF_MOVE: i32 = 1 << 1;
const MPOL_MF_MOVE_ALL: i32 = 1 << 2;

/// Whose pages a call may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveWhat {
    /// Pages that this process alone maps (MPOL_MF_MOVE).
    Own,
    /// Pages that other processes map, too (MPOL_MF_MOVE_ALL); needs CAP_SYS_NICE.
    Shared,
}

/// Why a call failed as a whole (Linux 6.12 mm/migrate.c, move_pages(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MovePagesError {
    /// ESRCH: no such process.
    #[error("move_pages: pid {} does not exist (ESRCH)", .0.0)]
    NoProcess(Pid),
    /// EINVAL: the process has no memory any more (it is exiting) or never had (a kernel thread).
    #[error("move_pages: pid {} has no memory of its own; it is exiting or a kernel thread (EINVAL)", .0.0)]
    NoMemoryMap(Pid),
    /// EPERM: no ptrace access to the process, or shared pages without CAP_SYS_NICE.
    #[error("move_pages: no permission for pid {}; give CAP_SYS_PTRACE, and CAP_SYS_NICE for shared pages (EPERM)", .0.0)]
    NotPermitted(Pid),
    /// EACCES: the process's cpuset does not contain the target node.
    #[error("move_pages: the cpuset of pid {pid} does not allow {node}; widen its cpuset.mems (EACCES)", pid = .0.0, node = .1)]
    NodeForbidden(Pid, NodeId),
    /// ENODEV: the target node has no memory, or is offline.
    #[error("move_pages: {0} has no memory (ENODEV)")]
    NodeAbsent(NodeId),
    /// ENOMEM: the target node had no free page, not even after direct reclaim.
    #[error("move_pages: out of memory on {0} (ENOMEM)")]
    NodeFull(NodeId),
    /// ENOSYS: this kernel was built without NUMA page migration.
    #[error("this kernel does not offer move_pages; it needs CONFIG_NUMA and CONFIG_MIGRATION (ENOSYS)")]
    NotOffered,
    /// Any other error.
    #[error("move_pages: pid {pid}: {errno}", pid = .0.0, errno = .1)]
    Other(Pid, Errno),
}

impl MovePagesError {
    fn new(errno: Errno, pid: Pid, node: NodeId) -> MovePagesError {
        match errno {
            Errno::SRCH => MovePagesError::NoProcess(pid),
            Errno::INVAL => MovePagesError::NoMemoryMap(pid),
            Errno::PERM => MovePagesError::NotPermitted(pid),
            Errno::ACCESS => MovePagesError::NodeForbidden(pid, node),
            Errno::NODEV => MovePagesError::NodeAbsent(node),
            Errno::NOMEM => MovePagesError::NodeFull(node),
            Errno::NOSYS => MovePagesError::NotOffered,
            other => MovePagesError::Other(pid, other),
        }
    }
}

/// Queries the node of the page at each address: `status[i]` becomes its number, or a negative
/// errno (ENOENT: not mapped; EFAULT: the zero page, or no mapping of the kind that migrates).
///
/// # Errors
/// The kernel's error for the process; EINVAL as [`MovePagesError::Other`] if the slices differ in
/// length.
pub fn query_pages(pid: Pid, addresses: &[u64], status: &mut [i32]) -> Result<(), MovePagesError> {
    call(pid, addresses, None, status, 0).map(|_| ()).map_err(|e| match e {
        CallError::Lengths => MovePagesError::Other(pid, Errno::INVAL),
        CallError::Errno(e) => MovePagesError::new(e, pid, NodeId(0)),
    })
}

/// Moves the pages at `addresses` to `target`, synchronously, and returns how many the kernel did
/// not move.
///
/// `status[i]` becomes the node of the page, or a negative errno, **only as far as the kernel
/// got**: on an error, and on a return other than 0, the entries of the sub-batch that failed and
/// of everything after it keep their former values.
///
/// # Errors
/// The kernel's error for the process or the target; pages before the failure may have moved.
/// EINVAL as [`MovePagesError::Other`] if the slices differ in length.
pub fn move_pages(
    pid: Pid,
    addresses: &[u64],
    target: NodeId,
    what: MoveWhat,
    status: &mut [i32],
) -> Result<u64, MovePagesError> {
    let nodes = vec![i32::from(target.0); addresses.len()];
    let flags = match what {
        MoveWhat::Own => MPOL_MF_MOVE,
        MoveWhat::Shared => MPOL_MF_MOVE_ALL,
    };
    call(pid, addresses, Some(&nodes), status, flags).map_err(|e| match e {
        CallError::Lengths => MovePagesError::Other(pid, Errno::INVAL),
        CallError::Errno(e) => MovePagesError::new(e, pid, target),
    })
}

enum CallError {
    Lengths,
    Errno(Errno),
}

fn call(
    pid: Pid,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    flags: i32,
) -> Result<u64, CallError> {
    let count = addresses.len();
    if status.len() != count || nodes.is_some_and(|n| n.len() != count) {
        return Err(CallError::Lengths);
    }
    // The kernel takes 0 as "myself", and a number beyond i32 would arrive as a negative one.
    let pid = match i32::try_from(pid.0) {
        Ok(pid) if pid > 0 => pid,
        _ => return Err(CallError::Errno(Errno::SRCH)),
    };
    let nodes = nodes.map_or(ptr::null(), <[i32]>::as_ptr);
    // SAFETY: `addresses`, `nodes` (unless null, which asks for a query) and `status` each hold
    // `count` elements of the size that the kernel reads or writes, and live until the call
    // returns. The addresses themselves belong to the other process and are never dereferenced
    // here; moving a page keeps its contents and its virtual address.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::c_long::from(pid),
            count,
            addresses.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            libc::c_long::from(flags),
        )
    };
    u64::try_from(result).map_err(|_| {
        let errno = std::io::Error::last_os_error();
        CallError::Errno(Errno::from_io_error(&errno).unwrap_or(Errno::IO))
    })
}

/// Makes move_pages fail in this thread from now on, as a container's filter does.
#[cfg(test)]
pub(crate) fn refuse_move_pages(errno: Errno) {
    let code = |code: u32| code as u16;
    let statement = |opcode, k| libc::sock_filter { code: code(opcode), jt: 0, jf: 0, k };
    let (ld, jeq, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut filter = [
        // The number of the call comes first (Linux include/uapi/linux/seccomp.h, seccomp_data).
        statement(ld, 0),
        libc::sock_filter { code: code(jeq), jt: 0, jf: 1, k: libc::SYS_move_pages as u32 },
        statement(ret, libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32),
        statement(ret, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies `program` and the instructions that it points to before the call
    // returns; both live until then.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn own_page() -> (Pid, Vec<u8>, u64) {
        let memory = vec![7u8; 3 * PAGE];
        let address = (memory.as_ptr() as u64).next_multiple_of(PAGE as u64);
        (Pid(std::process::id()), memory, address)
    }

    #[test]
    fn finds_its_own_page_and_the_hole_beside_address_zero() {
        let (pid, _memory, address) = own_page();
        let mut status = [i32::MIN; 2];
        query_pages(pid, &[address, 0], &mut status).unwrap();
        assert!((0..1024).contains(&status[0]), "node {}", status[0]);
        assert!(status[1] == -libc::EFAULT || status[1] == -libc::ENOENT, "{}", status[1]);
    }

    #[test]
    fn moving_to_the_node_where_it_is_succeeds_and_keeps_the_data() {
        let (pid, memory, address) = own_page();
        let mut node = [i32::MIN];
        query_pages(pid, &[address], &mut node).unwrap();
        let target = NodeId(u16::try_from(node[0]).unwrap());
        let mut status = [i32::MIN];
        assert_eq!(move_pages(pid, &[address], target, MoveWhat::Own, &mut status), Ok(0));
        assert_eq!(status, node);
        assert!(memory.iter().all(|&b| b == 7));
    }

    #[test]
    fn names_each_failure() {
        let (me, _memory, address) = own_page();
        let mut status = [0];
        for absent in [0, u32::MAX, i32::MAX as u32] {
            let answer = query_pages(Pid(absent), &[address], &mut status);
            assert_eq!(answer, Err(MovePagesError::NoProcess(Pid(absent))));
        }
        let answer = move_pages(me, &[address], NodeId(1023), MoveWhat::Own, &mut status);
        assert_eq!(answer, Err(MovePagesError::NodeAbsent(NodeId(1023))));
        // Process 2 is kthreadd: it has no memory of its own.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|c| c == "kthreadd\n") {
            assert_eq!(
                query_pages(Pid(2), &[address], &mut status),
                Err(MovePagesError::NoMemoryMap(Pid(2)))
            );
        } else {
            eprintln!("not checked: pid 2 is no kernel thread here (a container)");
        }
        assert_eq!(query_pages(me, &[], &mut status), Err(MovePagesError::Other(me, Errno::INVAL)));
    }

    #[test]
    fn no_pages_is_no_error() {
        assert_eq!(query_pages(Pid(std::process::id()), &[], &mut []), Ok(()));
    }
}
