//! The content of a machine's TOML file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::NODES_MAX;
use crate::spec::{SpecError, parse, require};
use crate::units::Bytes;

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its number.
    pub id: u16,
    /// Its tier, 0 the fastest.
    pub tier: u8,
    /// Its CPUs.
    #[serde(default)]
    pub cpus: u32,
    /// Its memory.
    pub memory: Bytes,
    /// SLIT distances to the nodes, in their order.
    pub distances: Vec<u8>,
    /// Idle latency in ns of a load from the CPUs of each node, in their order; values for a node
    /// without CPUs are not used.
    pub read_ns: Vec<f64>,
    /// Cost of a store for its thread in ns, likewise; if absent, a store waits for its line as a
    /// load does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ns: Option<Vec<f64>>,
    /// Bandwidth in MB/s (10^6 bytes), if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<f64>,
}

/// The last-level cache: the part that one thread can use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llc {
    /// Size of the slice that a core can use.
    pub size: Bytes,
    /// Latency of a hit in ns.
    pub hit_ns: f64,
}

/// Costs of the kernel's work, in ns of the CPU that does it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// A NUMA hint fault without migration: charged to the thread.
    pub hint_fault_ns: f64,
    /// Migrating a base page within a hint fault, in addition: charged to the thread.
    pub migrate_ns: f64,
    /// Marking a page in a scan: charged to the thread that scans.
    pub scan_mark_ns: f64,
    /// Passing over a page in a scan whose descriptor says not to mark it, mostly because it is in
    /// the top tier.
    pub scan_skip_ns: f64,
    /// Passing over a page that is marked: its page table entry says so.
    pub scan_again_ns: f64,
    /// An access that sets an accessed bit which somebody has cleared: charged to the thread. The
    /// processor writes the page table entry. The walk that finds it would have come anyway: the
    /// kernel does not flush the TLB where it clears the bit.
    pub accessed_bit_ns: f64,
    /// A page that reclaim examines and keeps: charged to kswapd.
    pub reclaim_look_ns: f64,
    /// A page that reclaim demotes.
    pub demote_ns: f64,
    /// A page whose age the multi-generational LRU updates in a walk through page tables.
    pub age_ns: f64,
    /// A hint fault or sample that the daemon reads, records and judges.
    pub daemon_ns: f64,
    /// A useful hardware sample and its task work, without migration: charged to the thread. S1
    /// reports 7.35 us a hint with its share of migrations, 6.44 us a hint fault, and a fifth of
    /// the whole for switching the hardware on and off.
    pub sample_ns: f64,
    /// A page that a kernel thread migrates in batches (DAMON, kmigrated).
    pub kthread_page_ns: f64,
    /// A page that Thermocline's mover thread moves.
    pub mover_page_ns: f64,
    /// A batch of the mover, in addition: the system call and the drain of all CPUs' LRU caches.
    pub mover_batch_ns: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            hint_fault_ns: 1200.0,
            migrate_ns: 4000.0,
            scan_mark_ns: 92.0,
            scan_skip_ns: 25.0,
            scan_again_ns: 2.0,
            accessed_bit_ns: 100.0,
            reclaim_look_ns: 150.0,
            demote_ns: 5880.0,
            age_ns: 25.0,
            daemon_ns: 150.0,
            sample_ns: 2500.0,
            kthread_page_ns: 2000.0,
            mover_page_ns: 4000.0,
            mover_batch_ns: 100_000.0,
        }
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its name.
    pub name: String,
    /// Ticks a second (`CONFIG_HZ`).
    #[serde(default = "hz")]
    pub hz: u32,
    /// CPUs that the kernel was built for (`CONFIG_NR_CPUS`): it determines the range of the stamps
    /// of scanned pages.
    #[serde(default = "nr_cpus")]
    pub nr_cpus: u32,
    /// `vm.min_free_kbytes`, of the whole machine.
    #[serde(default = "min_free")]
    pub min_free: Bytes,
    /// `vm.watermark_scale_factor`.
    #[serde(default = "scale_factor")]
    pub watermark_scale_factor: u32,
    /// The last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<Llc>,
    /// Costs of the kernel's work.
    #[serde(default)]
    pub cost: Costs,
    /// The nodes, by ascending number.
    pub node: Vec<NodeSpec>,
    /// Where each value comes from: `published`, `kernel`, `fitted` or `assumed`, and a remark; by
    /// dotted key.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

fn hz() -> u32 {
    250
}

fn nr_cpus() -> u32 {
    8192
}

fn min_free() -> Bytes {
    Bytes(90_112 << 10)
}

fn scale_factor() -> u32 {
    10
}

/// Maximum number of CPUs: eight times what kernels are built for.
const CPUS_MAX: u64 = 1 << 16;

impl MachineSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let n = self.node.len();
        require(n > 0, "node", "the machine has no node", "add a [[node]]")?;
        require(
            n <= NODES_MAX,
            "node",
            &format!("the machine has {n} nodes"),
            &format!("use at most {NODES_MAX}: that is what a page's record can name"),
        )?;
        require((100..=10_000).contains(&self.hz), "hz", "out of range", "use 100, 250, 300 or 1000")?;
        require(self.nr_cpus > 0, "nr_cpus", "is zero", "use the kernel's CONFIG_NR_CPUS")?;
        require(
            (1..=3000).contains(&self.watermark_scale_factor),
            "watermark_scale_factor",
            "out of range",
            "use 1 to 3000",
        )?;
        require(
            self.node.iter().any(|n| n.cpus > 0),
            "node",
            "no node has CPUs",
            "give cpus to the nodes that run programs",
        )?;
        let cpus: u64 = self.node.iter().map(|n| u64::from(n.cpus)).sum();
        require(cpus <= CPUS_MAX, "node", &format!("more than {CPUS_MAX} CPUs"), "give the nodes fewer")?;
        for (i, node) in self.node.iter().enumerate() {
            let place = |key: &str| format!("node[{i}].{key}");
            for (key, values) in [("read_ns", Some(&node.read_ns)), ("write_ns", node.write_ns.as_ref())] {
                let Some(values) = values else { continue };
                require(
                    values.len() == n && values.iter().all(|v| v.is_finite() && *v >= 0.0),
                    &place(key),
                    "needs a latency of 0 ns or more for each node",
                    "list one number for the CPUs of each node",
                )?;
            }
            require(
                node.bandwidth_mbps.is_none_or(|b| b.is_finite() && b > 0.0),
                &place("bandwidth_mbps"),
                "is not above 0",
                "give MB/s, or leave it out",
            )?;
            require(
                node.memory.pages() <= 1 << 31,
                &place("memory"),
                "is above 8 TiB",
                "simulate a smaller machine",
            )?;
        }
        let costs = &self.cost;
        for (key, value) in [
            ("hint_fault_ns", costs.hint_fault_ns),
            ("migrate_ns", costs.migrate_ns),
            ("scan_mark_ns", costs.scan_mark_ns),
            ("scan_skip_ns", costs.scan_skip_ns),
            ("scan_again_ns", costs.scan_again_ns),
            ("accessed_bit_ns", costs.accessed_bit_ns),
            ("reclaim_look_ns", costs.reclaim_look_ns),
            ("demote_ns", costs.demote_ns),
            ("sample_ns", costs.sample_ns),
            ("kthread_page_ns", costs.kthread_page_ns),
            ("mover_page_ns", costs.mover_page_ns),
            ("mover_batch_ns", costs.mover_batch_ns),
        ] {
            require(
                value.is_finite() && (0.0..=1e9).contains(&value),
                &format!("cost.{key}"),
                "is not a cost",
                "give 0 to 1e9 ns",
            )?;
        }
        require(
            self.llc.is_none_or(|llc| (0.0..=1e9).contains(&llc.hit_ns)),
            "llc.hit_ns",
            "is not a cost",
            "give 0 to 1e9 ns",
        )?;
        Ok(())
    }
}

/// The presets: name and TOML.
pub const PRESETS: [(&str, &str); 8] = [
    ("bergamo-cxl", include_str!("presets/bergamo-cxl.toml")),
    ("zen4-cxl", include_str!("presets/zen4-cxl.toml")),
    ("zen5-cxl", include_str!("presets/zen5-cxl.toml")),
    ("hmsdk-512", include_str!("presets/hmsdk-512.toml")),
    ("aep-16", include_str!("presets/aep-16.toml")),
    ("cxl-2tier", include_str!("presets/cxl-2tier.toml")),
    ("lab", include_str!("presets/lab.toml")),
    ("3tier", include_str!("presets/3tier.toml")),
];

/// The preset of that name.
///
/// # Errors
/// There is none; the remedy lists the presets.
pub fn preset(name: &str) -> Result<MachineSpec, SpecError> {
    let Some((_, text)) = PRESETS.iter().find(|(n, _)| *n == name) else {
        let names: Vec<&str> = PRESETS.iter().map(|(n, _)| *n).collect();
        let remedy = format!("use one of {}, or give a file ending in .toml or .json", names.join(", "));
        return Err(SpecError::new("machine", format!("there is no machine \"{name}\""), remedy));
    };
    parse(&format!("machine {name}"), text)
}
