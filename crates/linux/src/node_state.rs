//! The state of the nodes, ten times a second: free pages each time, watermarks once a second.

use std::path::PathBuf;

use thermocline_core::topology::NodeState;

use crate::root::{KernelFileError, Root, read_optional};
use crate::zoneinfo::{self, Zone};

/// Reads between two full readings of zoneinfo. zoneinfo also lists every CPU's page sets, which
/// takes milliseconds on large machines; watermarks change only when an operator changes them, so
/// once a second at ten ticks a second suffices.
const READS_PER_ZONEINFO: u32 = 10;

/// Reads the nodes' state.
#[derive(Debug)]
pub struct NodeStateReader {
    zoneinfo: PathBuf,
    node_folder: PathBuf,
    states: Vec<NodeState>,
    zones: Vec<Zone>,
    reads_left: u32,
}

impl NodeStateReader {
    /// A reader of the machine at `root`.
    pub fn new(root: &Root) -> NodeStateReader {
        NodeStateReader {
            zoneinfo: root.proc.join("zoneinfo"),
            node_folder: root.sys.join("devices/system/node"),
            states: Vec::new(),
            zones: Vec::new(),
            reads_left: 0,
        }
    }

    /// The state of every node with memory, ascending by number. Free pages are current; watermarks
    /// are at most nine reads old.
    ///
    /// # Errors
    /// zoneinfo is absent or cannot be read.
    pub fn read(&mut self) -> Result<&[NodeState], KernelFileError> {
        if self.reads_left == 0 || !self.refresh_free()? {
            self.read_zoneinfo()?;
            self.reads_left = READS_PER_ZONEINFO;
        }
        self.reads_left -= 1;
        Ok(&self.states)
    }

    /// The zones as of the last full reading.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn read_zoneinfo(&mut self) -> Result<(), KernelFileError> {
        let Some(text) = read_optional(&self.zoneinfo)? else {
            return Err(KernelFileError::not_supported("zone statistics", &self.zoneinfo, "mount procfs"));
        };
        self.zones = zoneinfo::parse(&text);
        self.states = zoneinfo::node_states(&self.zones);
        if self.states.is_empty() {
            return Err(KernelFileError::malformed(&self.zoneinfo, "no zone with managed pages"));
        }
        Ok(())
    }

    /// Takes the free pages from each node's vmstat; false where a node has none (a kernel without
    /// NUMA, or a node that went away).
    fn refresh_free(&mut self) -> Result<bool, KernelFileError> {
        for state in &mut self.states {
            let path = self.node_folder.join(format!("node{}/vmstat", state.node.0));
            let Some(text) = read_optional(&path)? else { return Ok(false) };
            let free = text.lines().find_map(|line| line.strip_prefix("nr_free_pages "));
            match free.and_then(|n| n.trim().parse().ok()) {
                Some(free) => state.free_pages = free,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ZONEINFO: &str = "\
Node 0, zone   Normal
  pages free     1000
        min      10
        low      20
        high     30
        present  8000
        managed  7900
";

    fn machine() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(&root.proc).unwrap();
        fs::create_dir_all(root.sys.join("devices/system/node/node0")).unwrap();
        fs::write(root.proc.join("zoneinfo"), ZONEINFO).unwrap();
        (dir, root)
    }

    #[test]
    fn free_pages_are_fresh_at_every_read_and_watermarks_at_every_tenth() {
        let (_dir, root) = machine();
        let vmstat = root.sys.join("devices/system/node/node0/vmstat");
        let mut reader = NodeStateReader::new(&root);
        assert_eq!(reader.read().unwrap()[0].free_pages, 1000);
        fs::write(root.proc.join("zoneinfo"), ZONEINFO.replace("min      10", "min      11")).unwrap();
        fs::write(&vmstat, "nr_free_pages 700\nnr_zone_inactive_anon 1\n").unwrap();
        for _ in 0..9 {
            let state = reader.read().unwrap()[0];
            assert_eq!((state.free_pages, state.watermarks.min_pages), (700, 10));
        }
        let state = reader.read().unwrap()[0];
        assert_eq!((state.free_pages, state.watermarks.min_pages), (1000, 11));
    }

    #[test]
    fn without_a_node_folder_zoneinfo_is_read_each_time() {
        let (_dir, root) = machine();
        let mut reader = NodeStateReader::new(&root);
        reader.read().unwrap();
        fs::write(root.proc.join("zoneinfo"), ZONEINFO.replace("1000", "900")).unwrap();
        assert_eq!(reader.read().unwrap()[0].free_pages, 900);
    }

    #[test]
    fn says_what_is_wrong_with_the_file() {
        let (_dir, root) = machine();
        fs::write(root.proc.join("zoneinfo"), "nonsense").unwrap();
        let error = NodeStateReader::new(&root).read().unwrap_err();
        assert!(error.to_string().ends_with("zoneinfo: no zone with managed pages"), "{error}");
        fs::remove_file(root.proc.join("zoneinfo")).unwrap();
        let error = NodeStateReader::new(&root).read().unwrap_err();
        assert!(matches!(error, KernelFileError::NotSupported { .. }));
    }
}
