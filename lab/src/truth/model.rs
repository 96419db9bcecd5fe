//! The machine whose time the plugin models.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Machine;

/// Time of an instruction without waiting for memory, ns: one cycle at 3 GHz. Ours: the clock of a
/// server core; server code reaches between half a cycle and two.
pub const CPI_NS: f64 = 1.0 / 3.0;

/// The speed of the modelled machine. No miss overlaps another: for a processor with several
/// outstanding misses, the latency is the exposed part of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Time of an instruction, ns.
    pub cpi_ns: f64,
    /// The nodes, by their numbers.
    pub nodes: Vec<NodeModel>,
}

/// The speed of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeModel {
    /// Latency of a miss that need not queue, ns.
    pub latency_ns: f64,
    /// Bandwidth in GB/s (10^9 bytes); 0 for no limit.
    pub bandwidth_gbps: f64,
}

impl Model {
    /// With the figures of the machine's firmware, and instructions of [`CPI_NS`].
    pub fn of(machine: &Machine) -> Model {
        let node = |node: &crate::NodeSpec| NodeModel {
            latency_ns: f64::from(node.latency_ns),
            bandwidth_gbps: f64::from(node.bandwidth_gbps),
        };
        Model { cpi_ns: CPI_NS, nodes: machine.nodes.iter().map(node).collect() }
    }

    /// Its form in the plugin's commands.
    pub fn words(&self) -> String {
        let mut words = format!("{:.6}", self.cpi_ns);
        for node in &self.nodes {
            words.push_str(&format!(" {:.3}", node.latency_ns));
            if node.bandwidth_gbps > 0.0 {
                words.push_str(&format!(":{:.6}", node.bandwidth_gbps));
            }
        }
        words
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ns an instruction", self.cpi_ns)?;
        for (number, node) in self.nodes.iter().enumerate() {
            write!(f, ", {} ns a miss to node {number}", node.latency_ns)?;
            if node.bandwidth_gbps > 0.0 {
                write!(f, " with {} GB/s", node.bandwidth_gbps)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_fast_as_its_firmware_tells() {
        let mut model = Model::of(&Machine::of_sizes(&[1 << 30; 2]));
        assert_eq!(model.words(), "0.333333 100.000:200.000000 350.000:30.000000");
        model.nodes[1].bandwidth_gbps = 0.0;
        assert_eq!(model.words(), "0.333333 100.000:200.000000 350.000");
        assert_eq!(
            model.to_string(),
            "0.333 ns an instruction, 100 ns a miss to node 0 with 200 GB/s, 350 ns a miss to node 1"
        );
    }
}
