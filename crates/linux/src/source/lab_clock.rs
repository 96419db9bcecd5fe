//! Modelled time of the lab's emulator, as the programs on its processors would have taken on the
//! modelled machine.
//!
//! The plugin writes it into the memory of the lab's device (`lab/plugin/modelled.h`),
//! little-endian; the sampler's head says where. No real machine has it, and it influences no
//! decision: it is used to measure programs in the lab.

use serde::{Deserialize, Serialize};

use super::lab_device::{self, NoLabDevice, PAGE, halves, has_page, places, word};
use crate::root::Root;
use crate::sys::DeviceMemory;

/// The first eight bytes of the clocks' page.
const MAGIC: [u8; 8] = *b"TLCTIME1";
/// Maximum numbers of processors and nodes accepted.
const VCPUS_MAX: u32 = 1024;
const NODES_MAX: u32 = 16;

/// Offsets of common figures.
const COUNT: usize = 8;
const VCPU_BYTES: usize = 16;
const EPOCH: usize = 24;
const ON: usize = 32;
const CPI_FS: usize = 40;
/// Offsets of each processor's figures.
const OWN_EPOCH: usize = 0;
const INSTRUCTIONS: usize = 8;
const WAITED_PS: usize = 16;
const REFERENCE_PS: usize = 24;
const LATENCY_PS: usize = 32;
const QUEUEING_PS: usize = LATENCY_PS + 8 * NODES_MAX as usize;
const OWN_BYTES: usize = QUEUEING_PS + 8 * NODES_MAX as usize;
/// How often a reading is restarted when the plugin resets its counts meanwhile.
const TRIES: u32 = 100;

/// Why modelled time cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NoTime {
    /// Time is not modelled.
    #[error("time is not modelled: tell the plugin how, as in `misses model 0.333 100:200 350:30`")]
    Off,
    /// The plugin was reset repeatedly.
    #[error("the plugin was reset again and again while its clocks were read; try again")]
    Restless,
}

/// A processor's waits for one node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For its latency, ns.
    pub latency_ns: u64,
    /// For its bandwidth, ns.
    pub queueing_ns: u64,
}

/// A processor's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuTime {
    /// Modelled time since the plugin's reset, ns: of its instructions and of its misses.
    pub ns: u64,
    /// The same if node 0 had served every miss, ns.
    pub reference_ns: u64,
    /// Of `ns`, the instructions'.
    pub instructions_ns: u64,
    /// Of `ns`, the waits for each node, by its number.
    pub nodes: Vec<Wait>,
}

/// The clocks of all processors.
#[derive(Debug)]
pub struct LabClock {
    memory: DeviceMemory,
    layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    at: usize,
    vcpus: usize,
    nodes: usize,
    vcpu_bytes: usize,
}

impl Layout {
    fn read(memory: &DeviceMemory) -> Result<Layout, &'static str> {
        let (_, at) = places(memory)?;
        if at == 0 {
            return Err("the lab's plugin shows no modelled time: it is of an older version");
        }
        if !has_page(memory, at) {
            return Err("its clocks do not lie in it");
        }
        if word(memory, at) != u64::from_le_bytes(MAGIC) {
            return Err("its clocks are of another version");
        }
        let (vcpus, nodes) = halves(word(memory, at + COUNT));
        let vcpu_bytes = halves(word(memory, at + VCPU_BYTES)).0 as usize;
        let fits =
            vcpu_bytes.checked_mul(vcpus as usize).is_some_and(|all| all <= memory.bytes() - at - PAGE);
        if !(1..=VCPUS_MAX).contains(&vcpus)
            || !(1..=NODES_MAX).contains(&nodes)
            || vcpu_bytes < OWN_BYTES
            || !vcpu_bytes.is_multiple_of(8)
            || !fits
        {
            return Err("its clocks cannot be of so many processors or nodes");
        }
        Ok(Layout { at, vcpus: vcpus as usize, nodes: nodes as usize, vcpu_bytes })
    }
}

impl LabClock {
    /// Maps the clocks.
    ///
    /// # Errors
    /// [`NoLabDevice`].
    pub fn open(root: &Root) -> Result<LabClock, NoLabDevice> {
        let (memory, layout) = lab_device::open(root, Layout::read)?;
        Ok(LabClock { memory, layout })
    }

    /// All present clocks, by the number of the processor. Numbers of one processor may be one miss
    /// apart.
    ///
    /// # Errors
    /// [`NoTime`].
    pub fn read(&self) -> Result<Vec<VcpuTime>, NoTime> {
        let head = |at| word(&self.memory, self.layout.at + at);
        for _ in 0..TRIES {
            let epoch = head(EPOCH);
            if head(ON) == 0 {
                return Err(NoTime::Off);
            }
            let cpi_fs = head(CPI_FS);
            let vcpus: Option<Vec<VcpuTime>> =
                (0..self.layout.vcpus).map(|vcpu| self.one(vcpu, epoch, cpi_fs)).collect();
            if let Some(vcpus) = vcpus.filter(|_| head(EPOCH) == epoch) {
                return Ok(vcpus);
            }
        }
        Err(NoTime::Restless)
    }

    /// One processor's clock; `None` if it was reset meanwhile.
    fn one(&self, vcpu: usize, epoch: u64, cpi_fs: u64) -> Option<VcpuTime> {
        let at = self.layout.at + PAGE + vcpu * self.layout.vcpu_bytes;
        let number = |offset| word(&self.memory, at + offset);
        let nodes = 0..self.layout.nodes;
        // It has not counted anything yet.
        if number(OWN_EPOCH) != epoch {
            let nodes = nodes.map(|_| Wait::default()).collect();
            return Some(VcpuTime { nodes, ..VcpuTime::default() });
        }
        let of_ps = |offset| number(offset) / 1000;
        let instructions = u128::from(number(INSTRUCTIONS)) * u128::from(cpi_fs) / 1_000_000;
        let instructions_ns = u64::try_from(instructions).unwrap_or(u64::MAX);
        let time = VcpuTime {
            ns: instructions_ns.saturating_add(of_ps(WAITED_PS)),
            reference_ns: instructions_ns.saturating_add(of_ps(REFERENCE_PS)),
            instructions_ns,
            nodes: nodes
                .map(|node| Wait {
                    latency_ns: of_ps(LATENCY_PS + 8 * node),
                    queueing_ns: of_ps(QUEUEING_PS + 8 * node),
                })
                .collect(),
        };
        (number(OWN_EPOCH) == epoch).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: usize = 8192;
    const OWN: usize = AT + PAGE;
    const BYTES: usize = OWN + 2 * 512;

    /// A machine of two processors and two nodes, as the plugin leaves its memory, and the plugin's
    /// view of that.
    fn machine() -> (tempfile::TempDir, Root, DeviceMemory) {
        let (folder, root, writer) = lab_device::fake(&[0; BYTES]);
        for (at, number) in [
            (0, u64::from_le_bytes(*b"TLCSAMP1")),
            (24, 4096 | (AT as u64) << 32),
            (AT, u64::from_le_bytes(MAGIC)),
            (AT + COUNT, 2 | 2 << 32),
            (AT + VCPU_BYTES, 512),
            (AT + EPOCH, 3),
            (AT + ON, 1),
            (AT + CPI_FS, 333_333),
        ] {
            writer.store(at, number.to_le());
        }
        (folder, root, writer)
    }

    #[test]
    fn numbers_are_what_the_plugin_wrote() {
        let (_folder, root, writer) = machine();
        let clock = LabClock::open(&root).unwrap();
        for (at, number) in [
            (OWN_EPOCH, 3),
            (INSTRUCTIONS, 3_000_000),
            (WAITED_PS, 800_500),
            (REFERENCE_PS, 300_000),
            (LATENCY_PS, 100_000),
            (LATENCY_PS + 8, 600_000),
            (QUEUEING_PS + 8, 100_500),
        ] {
            writer.store(OWN + at, number);
        }
        // The other processor has counted nothing since the last reset.
        writer.store(OWN + 512 + WAITED_PS, 99_000_000);
        writer.store(OWN + 512, 2);
        let read = clock.read().unwrap();
        assert_eq!(read.len(), 2);
        // 3,000,000 instructions of a third of a ns.
        let waits = [(100, 0), (600, 100)].map(|(latency_ns, queueing_ns)| Wait { latency_ns, queueing_ns });
        assert_eq!(
            read[0],
            VcpuTime {
                ns: 1_000_799,
                reference_ns: 1_000_299,
                instructions_ns: 999_999,
                nodes: waits.to_vec()
            }
        );
        assert_eq!(read[1], VcpuTime { nodes: vec![Wait::default(); 2], ..VcpuTime::default() });
        writer.store(AT + ON, 0);
        assert!(matches!(clock.read(), Err(NoTime::Off)));
    }

    #[test]
    fn what_are_no_clocks_is_refused() {
        for (at, number, reason) in [
            (0, 7, "not the memory"),
            (24, 4096, "older version"),
            (24, 4097 << 32, "do not lie in it"),
            (24, 1 << 62, "do not lie in it"),
            (AT, 7, "another version"),
            (AT + COUNT, 2, "cannot be of so many"),
            (AT + COUNT, 3 | 2 << 32, "cannot be of so many"),
            (AT + COUNT, 2 | 17 << 32, "cannot be of so many"),
            (AT + VCPU_BYTES, 280, "cannot be of so many"),
            (AT + VCPU_BYTES, 516, "cannot be of so many"),
        ] {
            let (_folder, root, writer) = machine();
            writer.store(at, number);
            let error = LabClock::open(&root).unwrap_err().to_string();
            assert!(error.contains(reason), "{at} {number}: {error}");
        }
    }

    proptest! {
        /// For any bytes, written before or after: an answer, and no panic.
        #[test]
        fn no_bytes_make_it_panic(
            writes in proptest::collection::vec((0..BYTES / 8, any::<u64>()), 0..20),
            marks in proptest::collection::vec((0..BYTES / 8, any::<u64>()), 0..20),
        ) {
            let (_folder, root, writer) = machine();
            writes.iter().for_each(|&(at, number)| writer.store(8 * at, number));
            let clock = LabClock::open(&root);
            marks.iter().for_each(|&(at, number)| writer.store(8 * at, number));
            if let Ok(clock) = clock {
                let vcpus = clock.read().unwrap_or_default();
                prop_assert!(vcpus.iter().all(|vcpu| vcpu.ns >= vcpu.instructions_ns && vcpu.nodes.len() <= 16));
            }
        }
    }
}
