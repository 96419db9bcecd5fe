//! Commands: writes that trigger an action once. They change no setting, so nothing is recorded or
//! put back.

use std::io;
use std::path::{Path, PathBuf};

use thermocline_core::units::NodeId;

use crate::actuator::door::{Door, Live};
use crate::root::Root;

/// The one door for commands. Only the live [`Actuator`](super::Actuator) hands it out, to other
/// workers.
pub struct Commands {
    root: Root,
    lru_gen: PathBuf,
    kdamonds: PathBuf,
    door: Box<dyn Door>,
}

impl Commands {
    /// Commands to the kernel itself.
    pub(super) fn live(root: &Root) -> Commands {
        Commands::with_door(root, Box::new(Live))
    }

    /// Commands through another door.
    pub fn with_door(root: &Root, door: Box<dyn Door>) -> Commands {
        Commands { root: root.clone(), lru_gen: lru_gen(root), kdamonds: kdamonds(root), door }
    }

    /// Has generations of pages aged or evicted.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn lru_gen(&mut self, command: &str) -> io::Result<()> {
        self.door.write(&self.lru_gen, command)
    }

    /// Has memory of a node reclaimed, which on the top tier is demotion while the kernel may
    /// demote.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn reclaim_node(&mut self, node: NodeId, command: &str) -> io::Result<()> {
        self.door.write(&node_reclaim(&self.root, node), command)
    }

    /// Has a cgroup's memory reclaimed; `file` is its `memory.reclaim`.
    ///
    /// # Errors
    /// The kernel's error; any other file is refused.
    pub fn reclaim_cgroup(&mut self, file: &Path, command: &str) -> io::Result<()> {
        if !file.ends_with("memory.reclaim") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.door.write(file, command)
    }

    /// Has a kdamond update the files of its schemes' statistics; waits until it has.
    ///
    /// # Errors
    /// The kernel's error; a kdamond that is off cannot.
    pub fn update_schemes_stats(&mut self, kdamond: usize) -> io::Result<()> {
        let state = self.kdamonds.join(kdamond.to_string()).join("state");
        self.door.write(&state, "update_schemes_stats")
    }

    /// Has a kdamond update the files of its schemes' quotas; waits until it has.
    ///
    /// # Errors
    /// The kernel's error; a kdamond that is off cannot.
    pub fn update_schemes_quotas(&mut self, kdamond: usize) -> io::Result<()> {
        let state = self.kdamonds.join(kdamond.to_string()).join("state");
        self.door.write(&state, "update_schemes_effective_quotas")
    }

    /// Writes a file of a kdamond that disappears with it; `file` is below its folder.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn tell_kdamond(&mut self, kdamond: usize, file: &str, value: &str) -> io::Result<()> {
        self.door.write(&self.kdamonds.join(kdamond.to_string()).join(file), value)
    }

    /// Reads a kdamond's file.
    ///
    /// # Errors
    /// As the file system answers.
    pub fn read_kdamond(&self, kdamond: usize, file: &str) -> io::Result<String> {
        self.door.read(&self.kdamonds.join(kdamond.to_string()).join(file))
    }

    /// The text of a kernel file, as the door sees it.
    ///
    /// # Errors
    /// As the file system answers.
    pub fn read(&self, path: &Path) -> io::Result<String> {
        self.door.read(path)
    }
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

/// The file of generations (Linux mm/vmscan.c, lru_gen_seq_write).
pub(crate) fn lru_gen(root: &Root) -> PathBuf {
    root.debugfs().join("lru_gen")
}

/// The file that triggers reclaim of a node (Linux Documentation/ABI/stable/sysfs-devices-node).
pub(crate) fn node_reclaim(root: &Root, node: NodeId) -> PathBuf {
    root.sys.join(format!("devices/system/node/node{}/reclaim", node.0))
}

/// The switch of DAMON's module that monitors all memory (Linux mm/damon/stat.c).
pub(crate) fn damon_stat(root: &Root) -> PathBuf {
    root.sys.join("module/damon_stat/parameters/enabled")
}

/// The folder of DAMON's threads (Linux mm/damon/sysfs.c).
pub(crate) fn kdamonds(root: &Root) -> PathBuf {
    root.sys.join("kernel/mm/damon/admin/kdamonds")
}
