//! A real machine, as `thermocline doctor --json` describes it.
//!
//! Nodes, tiers, CPUs, memory, distances and HZ are read; so are latency and bandwidth where the
//! firmware reports them (HMAT). Otherwise an access takes 110 ns plus 4 ns for each unit of SLIT
//! distance above 10: about the measured values of two sockets (32) and CXL (50 to 60). The costs
//! of the kernel's work are assumed, as in the presets.

use std::collections::BTreeMap;

use serde::Deserialize;
use thermocline_core::units::PAGE_SIZE;

use super::{Costs, Llc, MachineSpec, NodeSpec};
use crate::spec::SpecError;
use crate::units::Bytes;

/// The part of the doctor's report that is used here.
#[derive(Clone, Debug, Deserialize)]
pub struct Doctor {
    kernel: Kernel,
    topology: Option<Discovered>,
    nodes: Vec<State>,
}

#[derive(Clone, Debug, Deserialize)]
struct Kernel {
    hz: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
struct Discovered {
    topology: Nodes,
}

#[derive(Clone, Debug, Deserialize)]
struct Nodes {
    /// Reports without this key are from machines with pages of 4 KiB.
    #[serde(default = "engines_page_bytes")]
    page_bytes: u64,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Deserialize)]
struct Node {
    id: u16,
    tier: u8,
    cpus: Vec<u32>,
    capacity_pages: u64,
    read_latency_ns: Option<u32>,
    read_bandwidth_mbps: Option<u32>,
    distances: Vec<u8>,
}

#[derive(Clone, Debug, Deserialize)]
struct State {
    watermarks: Watermarks,
}

#[derive(Clone, Debug, Deserialize)]
struct Watermarks {
    min_pages: u64,
}

fn engines_page_bytes() -> u64 {
    PAGE_SIZE
}

const LOCAL_NS: f64 = 110.0;
const NS_PER_DISTANCE: f64 = 4.0;

/// Latency of an access over a SLIT distance.
fn latency_ns(distance: u8) -> f64 {
    LOCAL_NS + NS_PER_DISTANCE * f64::from(distance.saturating_sub(10))
}

impl Doctor {
    /// The machine.
    ///
    /// # Errors
    /// The report has no nodes.
    pub fn machine(&self) -> Result<MachineSpec, SpecError> {
        let Some(found) = &self.topology else {
            let remedy = "run `thermocline doctor` for the reason, or name a preset";
            return Err(SpecError::new("doctor", "the report has no topology", remedy));
        };
        let Nodes { nodes, page_bytes } = &found.topology;
        let page_bytes = *page_bytes;
        let with_cpus: Vec<usize> = (0..nodes.len()).filter(|i| !nodes[*i].cpus.is_empty()).collect();
        let node = |node: &Node| {
            let from = |i: usize| node.distances.get(i).copied().unwrap_or(10);
            // The firmware's figures are for the nearest CPUs; farther ones are slower in
            // proportion to distance.
            let nearest = with_cpus.iter().map(|i| from(*i)).min().unwrap_or(10);
            let factor = node.read_latency_ns.map_or(1.0, |ns| f64::from(ns) / latency_ns(nearest));
            NodeSpec {
                id: node.id,
                tier: node.tier,
                cpus: node.cpus.len() as u32,
                memory: Bytes(node.capacity_pages.saturating_mul(page_bytes)),
                distances: node.distances.clone(),
                read_ns: (0..nodes.len()).map(|i| factor * latency_ns(from(i))).collect(),
                write_ns: None,
                bandwidth_mbps: node.read_bandwidth_mbps.map(f64::from),
            }
        };
        let min_pages: u64 = self.nodes.iter().map(|n| n.watermarks.min_pages).sum();
        let origin = [
            ("node", "published: this machine's kernel, by `thermocline doctor`"),
            (
                "node.read_ns",
                "published: the firmware (HMAT) where it tells; else assumed from SLIT distances",
            ),
            ("llc", "assumed: typical"),
            ("cost", "assumed: as bergamo-cxl"),
        ];
        Ok(MachineSpec {
            name: "from-doctor".to_owned(),
            hz: self.kernel.hz.unwrap_or(250),
            nr_cpus: 8192,
            min_free: Bytes(min_pages.saturating_mul(page_bytes)),
            watermark_scale_factor: 10,
            llc: Some(Llc { size: Bytes(32 << 20), hit_ns: 20.0 }),
            cost: Costs::default(),
            node: nodes.iter().map(node).collect(),
            origin: BTreeMap::from(origin.map(|(key, text)| (key.to_owned(), text.to_owned()))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    const REPORT: &str = r#"{ "schema": 1, "verdict": "usable", "kernel": { "release": "6.12", "hz": 1000 },
      "topology": { "origin": "kernel", "topology": { "nodes": [
        { "id": 0, "tier": 0, "cpus": [0, 1], "capacity_pages": 1000000, "read_latency_ns": null,
          "read_bandwidth_mbps": null, "distances": [10, 50] },
        { "id": 1, "tier": 1, "cpus": [], "capacity_pages": 2000000, "read_latency_ns": 300,
          "read_bandwidth_mbps": 20000, "distances": [50, 10] } ] } },
      "nodes": [ { "node": 0, "free_pages": 1, "watermarks": { "min_pages": 5000, "low_pages": 6000 } },
                 { "node": 1, "free_pages": 1, "watermarks": { "min_pages": 7000, "low_pages": 8000 } } ] }"#;

    #[test]
    fn what_the_doctor_tells_becomes_a_machine() {
        let doctor: Doctor = serde_json::from_str(REPORT).unwrap();
        let spec = doctor.machine().unwrap();
        let machine = Machine::new(&spec).unwrap();
        assert_eq!((spec.hz, machine.top, machine.nodes[1].pages), (1000, 1, 2_000_000));
        assert_eq!((machine.nodes[0].read_ns[0], machine.nodes[1].read_ns[0]), (110.0, 300.0));
        assert_eq!(machine.nodes[1].bandwidth, Some(20e9));
        assert_eq!(spec.min_free.pages(), 12_000);
    }

    #[test]
    fn memory_is_as_large_as_its_pages_say() {
        let large =
            REPORT.replace("\"topology\": { \"nodes\"", "\"topology\": { \"page_bytes\": 65536, \"nodes\"");
        assert_ne!(large, REPORT);
        let spec = serde_json::from_str::<Doctor>(&large).unwrap().machine().unwrap();
        assert_eq!((spec.node[0].memory, spec.min_free), (Bytes(1_000_000 << 16), Bytes(12_000 << 16)));
    }

    #[test]
    fn a_report_without_nodes_is_refused() {
        let doctor: Doctor =
            serde_json::from_str(r#"{ "kernel": { "hz": null }, "topology": null, "nodes": [] }"#).unwrap();
        assert!(doctor.machine().unwrap_err().to_string().contains("name a preset"));
    }
}
