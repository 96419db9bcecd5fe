//! A machine with a node of DRAM and a slow one, and the lab's device in it.

use std::fs::{File, create_dir_all, write};
use std::os::unix::fs::FileExt;

use tempfile::TempDir;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{NodeId, Pfn, TierId};
use thermocline_linux::root::Root;
use thermocline_linux::topology::{PfnMap, PfnRange};

/// The node below DRAM.
pub(crate) const SLOW: NodeId = NodeId(1);
/// Frames of DRAM, the first ones.
const DRAM_FRAMES: u64 = 1 << 20;

/// The frames of both nodes, and the nodes; frames from `end` on are nobody's.
pub(crate) fn nodes(end: u64) -> (PfnMap, Topology) {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![id.into()],
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    let topology = Topology::new(vec![node(0), node(SLOW.0)]).expect("two nodes with distances");
    let range = |start, end, node| PfnRange { start: Pfn(start), end: Pfn(end), node };
    let frames = PfnMap::new(vec![range(0, DRAM_FRAMES, NodeId(0)), range(DRAM_FRAMES, end, SLOW)]);
    (frames, topology)
}

/// The lab's device, as sysfs shows it, and the memory that it shares.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) root: Root,
    memory: File,
    /// What the memory holds before anything is written into it.
    sound: Vec<u8>,
    _folder: TempDir,
}

impl Device {
    /// With this in its memory.
    pub(crate) fn new(sound: Vec<u8>) -> Device {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = Root::at(folder.path());
        let device = root.sys.join("bus/pci/devices/0000:00:04.0");
        create_dir_all(&device).expect("a folder can be made");
        let files: [(&str, &[u8]); 3] =
            [("vendor", b"0x1af4\n"), ("device", b"0x1110\n"), ("resource2", &sound)];
        for (name, content) in files {
            write(device.join(name), content).expect("a file can be written");
        }
        let memory = File::options().write(true).open(device.join("resource2")).expect("it was just made");
        Device { root, memory, sound, _folder: folder }
    }

    /// Makes the memory what it was at first.
    pub(crate) fn reset(&self) {
        self.memory.write_all_at(&self.sound, 0).expect("the file can be written");
    }

    /// Each ten bytes write a number of eight somewhere.
    pub(crate) fn scribble(&self, bytes: &[u8]) {
        for write in bytes.chunks_exact(10) {
            let at = usize::from(u16::from_le_bytes([write[0], write[1]])) % (self.sound.len() / 8) * 8;
            self.memory.write_all_at(&write[2..], at as u64).expect("the file can be written");
        }
    }
}
