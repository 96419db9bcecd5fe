//! Reclaims a few pages of our own cgroup on a node, which brings kswapd back there.
//!
//! The pages are our own if we are alone in the cgroup, as a service is. If other processes are in
//! it, this is done only if no scope is named, so that no process is excluded. Some pages of ours
//! are moved to the node first, so that there is something to reclaim; demotion moves them back.

use std::io;
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_setaffinity};
use thermocline_core::topology::Topology;
use thermocline_core::units::{NodeId, PAGE_SIZE, Pid};

use crate::actuator::Commands;
use crate::process;
use crate::root::{Root, exists, read_optional};
use crate::scope::cgroup;
use crate::sys::{MoveWhat, move_pages};

/// Bytes that are moved to the node and reclaimed at once.
const BYTES: u64 = 128 << 10;
/// Maximum number of such reclaims for a node. Each examines a few hundred pages, and a page just
/// written counts as in use until it was examined once.
const TRIES_MAX: usize = 1000;
/// Anonymous pages first: they are demoted, while others might be dropped.
const SWAPPINESS: u32 = 200;

/// The reclaimer.
#[derive(Debug)]
pub(super) struct Reclaim {
    root: Root,
    /// No scope is named.
    anybody: bool,
    commands: Commands,
}

impl Reclaim {
    pub(super) fn new(root: &Root, anybody: bool, commands: Commands) -> Reclaim {
        Reclaim { root: root.clone(), anybody, commands }
    }

    /// Reclaims on the nodes that `given_up` returns, until it returns none.
    ///
    /// # Errors
    /// Why kswapd has not come back.
    pub(super) fn try_all(
        mut self,
        given_up: impl Fn() -> Vec<NodeId>,
        topology: &Topology,
    ) -> Result<(), String> {
        let file = self.file()?;
        for node in given_up() {
            let ours = vec![1u8; 2 * BYTES as usize];
            be_near(topology, node);
            for _ in 0..TRIES_MAX {
                put_on(&ours, node);
                let command = format!("{BYTES} swappiness={SWAPPINESS}");
                match self.commands.reclaim_cgroup(&file, &command) {
                    Ok(()) => {}
                    // Less was found, or a signal arrived.
                    Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
                    Err(e) => return Err(refused(&file, &e)),
                }
                if !given_up().contains(&node) {
                    break;
                }
            }
        }
        if given_up().is_empty() {
            return Ok(());
        }
        Err(format!(
            "{TRIES_MAX} times {} KiB of our own cgroup were reclaimed, and it has not come back; it does when a program that has \
             memory there ends, or the node has room again",
            BYTES >> 10
        ))
    }

    /// The file that triggers reclaim of our cgroup.
    fn file(&self) -> Result<PathBuf, String> {
        let mount = cgroup::mount(&self.root).map_err(|e| e.to_string())?;
        let mount = mount.ok_or("cgroup v2, by which it could be brought back, is not mounted")?;
        let pid = self.root.own_pid();
        let path = process::cgroup(&self.root, pid).map_err(|e| e.to_string())?;
        let path = cgroup::normal(&path.ok_or("we are in no cgroup by which it could be brought back")?);
        let folder = cgroup::folder(&mount, &path);
        let alone = || {
            let procs = read_optional(&folder.join("cgroup.procs")).ok()??;
            let below = cgroup::below(&mount, &path).ok()?;
            Some(below.is_empty() && procs.lines().eq([pid.0.to_string()]))
        };
        if !self.anybody && alone() != Some(true) {
            return Err(format!(
                "scopes are named, and others share our cgroup ({path}), which would be reclaimed from; run thermocline as a service of its own"
            ));
        }
        let file = folder.join("memory.reclaim");
        if !exists(&file) {
            return Err(format!(
                "{} is absent, by which it could be brought back; it takes Linux 5.19 and the memory controller of cgroup v2",
                file.display()
            ));
        }
        Ok(file)
    }
}

fn refused(file: &std::path::Path, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EINVAL) => "; it takes Linux 6.9 to say which pages",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            "; run as root, with a cgroup file system that may be written"
        }
        _ => "",
    };
    format!("{} refuses: {error}{remedy}", file.display())
}

/// Binds this thread to CPUs near a node: the kernel starts reclaim at the thread's node. If that
/// fails, it starts elsewhere.
fn be_near(topology: &Topology, node: NodeId) {
    let mut cpus = CpuSet::new();
    let near = topology.node(node).map(|node| node.cpus.as_slice()).unwrap_or_default();
    near.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| cpus.set(cpu));
    let _ = sched_setaffinity(None, &cpus);
}

/// Moves whole pages of `memory` to a node; if it is full, pages already there must suffice.
fn put_on(memory: &[u8], node: NodeId) {
    let begin = (memory.as_ptr() as u64).next_multiple_of(PAGE_SIZE);
    let pages: Vec<u64> = (0..BYTES / PAGE_SIZE).map(|page| begin + page * PAGE_SIZE).collect();
    let mut status = vec![0; pages.len()];
    let _ = move_pages(Pid(std::process::id()), &pages, node, MoveWhat::Own, &mut status);
}
