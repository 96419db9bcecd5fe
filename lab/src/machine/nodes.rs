//! The machine that the guest sees: nodes, processors, and the HMAT tables from which the kernel
//! forms tiers.

use std::str::FromStr;

use crate::{Error, Result};

/// One NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSpec {
    /// Memory, in bytes.
    pub bytes: u64,
    /// Processors.
    pub cpus: u32,
    /// Read and write latency from the nearest processor, in nanoseconds.
    pub latency_ns: u32,
    /// Read and write bandwidth from the nearest processor, in GB/s.
    pub bandwidth_gbps: u32,
}

/// Latency of DRAM from its own socket, in nanoseconds.
const DRAM_LATENCY_NS: u32 = 100;
/// Latency of DRAM from another socket, in nanoseconds.
const FAR_DRAM_LATENCY_NS: u32 = 180;
/// Latency of CXL memory, in nanoseconds.
const CXL_LATENCY_NS: u32 = 350;
/// Bandwidth of DRAM from its own socket, in GB/s.
const DRAM_BANDWIDTH_GBPS: u32 = 200;
/// Bandwidth of DRAM from another socket, in GB/s.
const FAR_DRAM_BANDWIDTH_GBPS: u32 = 100;
/// Bandwidth of CXL memory, in GB/s.
const CXL_BANDWIDTH_GBPS: u32 = 30;

/// The unit in which the kernel manages memory (Linux arch/x86/include/asm/sparsemem.h,
/// SECTION_SIZE_BITS 27). Each section is reported as belonging to one node, even if two nodes
/// share it.
const SECTION_BYTES: u64 = 128 << 20;

/// How much memory a q35 machine has at most below 4 GiB, if it has more in all (QEMU
/// hw/i386/pc_q35.c).
const LOW_BYTES_MAX: u64 = 2 << 30;
/// Where the rest of its memory begins.
const HIGH_START: u64 = 4 << 30;
/// Types of memory in the firmware's map (Linux arch/x86/include/asm/e820/types.h).
const E820_RAM: u32 = 1;
const E820_SOFT_RESERVED: u32 = 0xefff_ffff;

impl NodeSpec {
    /// A DRAM node.
    pub fn dram(bytes: u64, cpus: u32) -> NodeSpec {
        NodeSpec { bytes, cpus, latency_ns: DRAM_LATENCY_NS, bandwidth_gbps: DRAM_BANDWIDTH_GBPS }
    }

    /// A CXL node, without processors.
    pub fn cxl(bytes: u64) -> NodeSpec {
        NodeSpec { bytes, cpus: 0, latency_ns: CXL_LATENCY_NS, bandwidth_gbps: CXL_BANDWIDTH_GBPS }
    }
}

/// The guest's nodes, and whether the firmware describes their speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The nodes, from node 0.
    pub nodes: Vec<NodeSpec>,
    /// Whether the HMAT describes how fast each node is. Without it the kernel puts all nodes in
    /// one tier.
    pub tiers: bool,
}

impl Default for Machine {
    /// Two processors on node 0, DRAM on nodes 0 and 1, CXL on node 2, 1 GiB each.
    fn default() -> Machine {
        Machine::of_sizes(&[1 << 30; 3])
    }
}

impl Machine {
    /// Nodes of the given sizes in bytes. If there are several, the last is CXL; the others are
    /// DRAM. Node 0 has two processors.
    pub fn of_sizes(bytes: &[u64]) -> Machine {
        let mut nodes: Vec<NodeSpec> = bytes.iter().map(|&bytes| NodeSpec::dram(bytes, 0)).collect();
        if let Some(first) = nodes.first_mut() {
            first.cpus = 2;
        }
        if let [_, .., last] = nodes.as_mut_slice() {
            *last = NodeSpec::cxl(last.bytes);
        }
        Machine { nodes, tiers: true }
    }

    /// Sets the processors of each node, from node 0. The remaining nodes get none.
    pub fn set_cpus(&mut self, cpus: &[u32]) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.cpus = cpus.get(index).copied().unwrap_or(0);
        }
    }

    /// Total memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.bytes).sum()
    }

    /// Total number of processors.
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus).sum()
    }

    /// Checks the machine.
    ///
    /// # Errors
    /// [`Error::BadMachine`], which says what is wrong and what is allowed.
    pub fn check(&self) -> Result<()> {
        let bad = |why: String| Err(Error::BadMachine(why));
        if self.nodes.is_empty() || self.nodes.len() > 8 {
            return bad(format!("a machine has 1 to 8 nodes, not {}", self.nodes.len()));
        }
        if self.nodes[0].cpus == 0 || self.cpus() > 64 {
            return bad("node 0 needs a processor, and the lab gives at most 64 in all".to_owned());
        }
        if self.nodes[0].bytes < 256 << 20 {
            return bad("node 0 needs at least 256 MiB to boot".to_owned());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.bytes == 0 || !node.bytes.is_multiple_of(SECTION_BYTES) {
                return bad(format!(
                    "node {index}: its size must be a multiple of {} MiB, not {} bytes ({:.1} MiB)",
                    SECTION_BYTES >> 20,
                    node.bytes,
                    node.bytes as f64 / (1 << 20) as f64
                ));
            }
            if node.latency_ns == 0 || node.latency_ns > 2000 || node.bandwidth_gbps == 0 {
                return bad(format!("node {index}: latency must be 1 to 2000 ns, bandwidth at least 1 GB/s"));
            }
        }
        Ok(())
    }

    /// The last nodes, as far as they are slower than node 0 and have no processors. A kernel that
    /// does not form tiers from the HMAT must get them as devices to put them in a lower tier.
    fn devices(&self) -> impl Iterator<Item = &NodeSpec> {
        let slower = |node: &NodeSpec| node.cpus == 0 && node.latency_ns > self.nodes[0].latency_ns;
        let fast = self.nodes.iter().rposition(|node| !slower(node)).map_or(0, |last| last + 1);
        self.nodes[fast..].iter().filter(|_| self.tiers)
    }

    /// Where the memory of devices begins in QEMU's RAM address space.
    fn devices_offset(&self) -> u64 {
        self.bytes() - self.devices().map(|node| node.bytes).sum::<u64>()
    }

    /// QEMU's arguments that place the memory of devices at 4 GiB or above, separate from the
    /// memory that the firmware uses.
    pub(crate) fn device_arguments(&self) -> Vec<String> {
        let below = self.devices_offset().min(LOW_BYTES_MAX);
        vec!["-machine".to_owned(), format!("max-ram-below-4g={}M", below >> 20)]
    }

    /// The kernel parameters that keep the kernel from using the memory of devices: they mark it
    /// soft-reserved, as the firmware marks memory intended for a driver. Empty if there is no such
    /// memory.
    pub(crate) fn device_words(&self) -> String {
        let mut start = HIGH_START + self.devices_offset().saturating_sub(LOW_BYTES_MAX);
        let mut words = Vec::new();
        for node in self.devices() {
            words.push(format!("memmap={:#x}%{start:#x}-{E820_RAM}+{E820_SOFT_RESERVED:#x}", node.bytes));
            start += node.bytes;
        }
        words.join(" ")
    }

    /// QEMU's arguments for this machine. The backends are named `m0`, `m1`, ... and created in the
    /// order of nodes, which is the order of their offsets in QEMU's RAM address space.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let hmat = self.tiers && self.nodes.len() > 1;
        let mut arguments = Vec::new();
        let mut push = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        push("-machine", format!("q35,hmat={}", if hmat { "on" } else { "off" }));
        push("-m", format!("{}M", self.bytes() >> 20));
        push("-smp", self.smp());
        let mut first = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            push("-object", format!("memory-backend-ram,id=m{index},size={}M", node.bytes >> 20));
            let cpus = match node.cpus {
                0 if hmat => format!(",initiator={}", self.initiator(index)),
                0 => String::new(),
                count => format!(",cpus={first}-{}", first + count - 1),
            };
            first += node.cpus;
            push("-numa", format!("node,nodeid={index},memdev=m{index}{cpus}"));
        }
        for from in 0..self.nodes.len() {
            for to in (0..self.nodes.len()).filter(|&to| to != from) {
                push("-numa", format!("dist,src={from},dst={to},val={}", self.distance(from, to)));
            }
        }
        for from in (0..self.nodes.len()).filter(|&from| hmat && self.nodes[from].cpus > 0) {
            for to in 0..self.nodes.len() {
                let (latency_ns, bandwidth_gbps) = self.speed(from, to);
                let pair = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
                push("-numa", format!("{pair},data-type=access-latency,latency={latency_ns}"));
                push("-numa", format!("{pair},data-type=access-bandwidth,bandwidth={bandwidth_gbps}000M"));
            }
        }
        arguments
    }

    /// Latency in ns and bandwidth in GB/s of node `to` seen from the processors of node `from`.
    fn speed(&self, from: usize, to: usize) -> (u32, u32) {
        let node = self.nodes[to];
        if from == to || node.cpus == 0 {
            (node.latency_ns, node.bandwidth_gbps)
        } else {
            (node.latency_ns.max(FAR_DRAM_LATENCY_NS), node.bandwidth_gbps.min(FAR_DRAM_BANDWIDTH_GBPS))
        }
    }

    /// The SLIT distance: 10 is local by ACPI's definition; others are proportional to the latency.
    fn distance(&self, from: usize, to: usize) -> u32 {
        let seen = |from: usize, to: usize| (self.nodes[from].cpus > 0).then(|| self.speed(from, to).0);
        let latency_ns = seen(from, to).max(seen(to, from)).unwrap_or_else(|| {
            // No processor accesses memory by this path.
            self.nodes[from].latency_ns.max(self.nodes[to].latency_ns)
        });
        (latency_ns * 10 / self.nodes[0].latency_ns).clamp(12, 254)
    }

    /// For a node without processors, the node from which it is accessed: the nearest one with
    /// processors below it.
    fn initiator(&self, index: usize) -> usize {
        (0..index).rev().find(|&node| self.nodes[node].cpus > 0).unwrap_or(0)
    }

    fn smp(&self) -> String {
        let sockets = self.nodes.iter().filter(|node| node.cpus > 0).count() as u32;
        let even = self.nodes.iter().all(|node| node.cpus == 0 || node.cpus * sockets == self.cpus());
        let sockets = if even { sockets } else { self.cpus() };
        format!("{},sockets={sockets},cores={},threads=1", self.cpus(), self.cpus() / sockets)
    }
}

/// Transparent huge pages in the guest, as in the kernel's parameter `transparent_hugepage=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThpMode {
    /// Wherever possible, as Debian's kernels are configured.
    #[default]
    Always,
    /// Where a program requests them.
    Madvise,
    /// Nowhere.
    Never,
}

impl ThpMode {
    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            ThpMode::Always => "always",
            ThpMode::Madvise => "madvise",
            ThpMode::Never => "never",
        }
    }
}

impl FromStr for ThpMode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<ThpMode, String> {
        [ThpMode::Always, ThpMode::Madvise, ThpMode::Never]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is not always, madvise or never"))
    }
}

/// Parses a size such as `1G`, `1536M` or `512MiB`; a plain number is in MiB.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size such as 1G or 512M"))?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "g" | "gib" => 30,
        "m" | "mib" | "" => 20,
        unit => return Err(format!("unknown unit `{unit}` in `{text}`: use M or G")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(machine: &Machine) -> Vec<String> {
        machine.arguments().chunks(2).map(|pair| pair.join(" ")).collect()
    }

    #[test]
    fn the_default_machine_has_three_nodes_and_hmat_for_each() {
        let lines = lines(&Machine::default());
        for wanted in [
            "-machine q35,hmat=on",
            "-m 3072M",
            "-smp 2,sockets=1,cores=2,threads=1",
            "-numa node,nodeid=0,memdev=m0,cpus=0-1",
            "-numa node,nodeid=2,memdev=m2,initiator=0",
            "-numa dist,src=0,dst=2,val=35",
            "-numa hmat-lb,initiator=0,target=2,hierarchy=memory,data-type=access-latency,latency=350",
            "-numa hmat-lb,initiator=0,target=2,hierarchy=memory,data-type=access-bandwidth,bandwidth=30000M",
        ] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted} is not in {lines:#?}");
        }
    }

    #[test]
    fn two_sockets_see_each_other_as_far() {
        let mut machine = Machine::default();
        machine.set_cpus(&[1, 1]);
        let lines = lines(&machine);
        assert!(lines.contains(&"-smp 2,sockets=2,cores=1,threads=1".to_owned()));
        assert!(lines.contains(&"-numa dist,src=0,dst=1,val=18".to_owned()));
        assert_eq!(machine.speed(0, 1), (180, 100));
        assert_eq!(machine.speed(1, 1), (100, 200));
        assert_eq!(machine.speed(1, 2), (350, 30));
    }

    #[test]
    fn without_tiers_there_is_no_hmat() {
        let machine = Machine { tiers: false, ..Machine::default() };
        assert!(lines(&machine).iter().all(|line| !line.contains("hmat-lb") && !line.contains("initiator")));
        assert!(lines(&machine).contains(&"-machine q35,hmat=off".to_owned()));
    }

    #[test]
    fn slow_nodes_at_the_end_can_be_devices_above_four_gibibytes() {
        let small = Machine::of_sizes(&[640 << 20, 128 << 20, 512 << 20]);
        assert_eq!(small.device_arguments()[1], "max-ram-below-4g=768M");
        assert_eq!(small.device_words(), "memmap=0x20000000%0x100000000-1+0xefffffff");
        let large = Machine::of_sizes(&[3 << 30, 1 << 30]);
        assert_eq!(large.device_arguments()[1], "max-ram-below-4g=2048M");
        assert_eq!(
            large.device_words(),
            "memmap=0x40000000%0x140000000-1+0xefffffff",
            "behind 1 GiB of DRAM"
        );
        let mut three = Machine::default();
        three.nodes.push(NodeSpec::cxl(256 << 20));
        let words = three.device_words();
        assert!(words.ends_with(" memmap=0x10000000%0x140000000-1+0xefffffff"), "{words}");
        let one_tier = Machine { tiers: false, ..Machine::default() };
        assert_eq!(one_tier.device_words(), "");
        assert_eq!(Machine::of_sizes(&[1 << 30]).device_words(), "");
    }

    #[test]
    fn impossible_machines_are_refused_with_a_reason() {
        let refused = |change: &dyn Fn(&mut Machine)| {
            let mut machine = Machine::default();
            change(&mut machine);
            machine.check().unwrap_err().to_string()
        };
        assert!(refused(&|machine| machine.nodes.clear()).contains("1 to 8"));
        assert!(refused(&|machine| machine.set_cpus(&[0, 2])).contains("node 0 needs a processor"));
        assert!(refused(&|machine| machine.nodes[2].bytes = 1).contains("node 2"));
        let odd = refused(&|machine| machine.nodes[1].bytes = 200 << 20);
        assert!(odd.contains("node 1") && odd.contains("128 MiB") && odd.contains("(200.0 MiB)"), "{odd}");
        assert!(refused(&|machine| machine.nodes[0].bytes = 2 << 20).contains("256 MiB"));
        assert!(Machine::default().check().is_ok());
    }

    #[test]
    fn sizes_take_units() {
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("64"), Ok(64 << 20));
        for bad in ["", "G", "1T", "1.5G", "-1G", "99999999999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
