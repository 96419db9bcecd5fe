//! Latency that the guest feels: each modelled miss delays its vCPU, in the guest, by the tier that
//! served it.
//!
//! The emulator is slower than the modelled machine, so the delay is longer by a factor that is the
//! same for every tier, manager and program. A pointer chase on each node measures the total time
//! of a miss, from which the delay is computed.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use thermocline_core::units::NodeId;
use thermocline_lab::programs::chase::Chase;
use thermocline_lab::truth::Plugin;

use super::program::Program;

/// How far the ratio of the tiers may be from the one asked for, as a share of it.
const OFF_MAX: f64 = 0.05;
/// Rounds of chases on both tiers before giving up.
const ROUNDS_MAX: u32 = 12;
/// Chases on a tier in a round: the fastest counts, because a busy host makes a chase slower and
/// never faster.
const CHASES: u32 = 3;

/// The requested latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Time of a miss to CXL relative to one to DRAM.
    pub(crate) ratio: f64,
    /// Time of a miss to DRAM in ns; the emulator may take longer at least.
    pub(crate) dram_ns: f64,
}

/// The measured latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Felt {
    /// The request.
    pub(crate) asked: Asked,
    /// Time of a miss to DRAM at the last chase, ns.
    pub(crate) dram_ns: f64,
    /// Time of a miss to CXL, ns.
    pub(crate) cxl_ns: f64,
    /// Time per operation with all misses as fast as DRAM's and no page moves, s.
    pub(crate) reference_s_per_op: f64,
}

/// Latencies that have been calibrated.
#[derive(Debug)]
pub(crate) struct Latencies {
    asked: Asked,
    slow: NodeId,
    waits_ns: (f64, f64),
    took_ns: (f64, f64),
}

impl Latencies {
    /// Chases pointers on both tiers until their ratio is the one asked for. The plugin then
    /// counts, without delays.
    pub(crate) fn calibrate(plugin: &mut Plugin, asked: Asked, slow: NodeId) -> anyhow::Result<Latencies> {
        plugin.start()?;
        let mut latencies = Latencies { asked, slow, waits_ns: (0.0, 0.0), took_ns: (0.0, 0.0) };
        for round in 0..ROUNDS_MAX {
            latencies.apply(plugin)?;
            latencies.took_ns = (quickest_chase(NodeId(0))?, quickest_chase(slow)?);
            if round > 0 && latencies.off() <= OFF_MAX {
                plugin.latency(&[])?;
                return Ok(latencies);
            }
            latencies.adjust(round == 0);
        }
        let (dram_ns, cxl_ns) = latencies.took_ns;
        bail!(
            "a miss to CXL takes {cxl_ns:.0} ns and one to DRAM {dram_ns:.0} ns instead of {} times as long: the host is too busy to calibrate; try again",
            asked.ratio
        )
    }

    /// How far the ratio is from the one asked for, as a share of it.
    fn off(&self) -> f64 {
        (self.took_ns.1 / self.took_ns.0 / self.asked.ratio - 1.0).abs()
    }

    /// Adjusts the delays by the difference. A miss takes at least its time without any delay.
    fn adjust(&mut self, without_wait: bool) {
        if without_wait {
            self.asked.dram_ns = self.asked.dram_ns.max(self.took_ns.0);
        }
        let wanted = (self.asked.dram_ns, self.asked.dram_ns * self.asked.ratio);
        self.waits_ns.0 = (self.waits_ns.0 + wanted.0 - self.took_ns.0).max(0.0);
        self.waits_ns.1 = (self.waits_ns.1 + wanted.1 - self.took_ns.1).max(0.0);
    }

    /// From now on every miss is delayed by its tier.
    pub(crate) fn apply(&self, plugin: &mut Plugin) -> anyhow::Result<()> {
        self.wait(plugin, self.waits_ns.1)
    }

    fn wait(&self, plugin: &mut Plugin, slow_ns: f64) -> anyhow::Result<()> {
        let nodes = 0..=self.slow.0;
        let wait = |node| if node == self.slow.0 { slow_ns } else { self.waits_ns.0 };
        Ok(plugin.latency(&nodes.map(|node| wait(node) as u32).collect::<Vec<u32>>())?)
    }

    /// Runs the window's operations again with all misses as fast as DRAM's.
    pub(crate) fn reference(
        self,
        plugin: &mut Plugin,
        program: &mut Program,
        ops: u64,
    ) -> anyhow::Result<Felt> {
        self.wait(plugin, self.waits_ns.0)?;
        plugin.start()?;
        program.settle()?;
        let start = Instant::now();
        let ops = program.run(ops, 1)?;
        let reference_s_per_op = start.elapsed().as_secs_f64() / ops as f64;
        plugin.stop()?;
        plugin.latency(&[])?;
        Ok(Felt { asked: self.asked, dram_ns: self.took_ns.0, cxl_ns: self.took_ns.1, reference_s_per_op })
    }
}

/// Minimum time of a miss to a node, ns.
fn quickest_chase(node: NodeId) -> anyhow::Result<f64> {
    (0..CHASES).try_fold(f64::INFINITY, |least, _| Ok(least.min(chase(node)?)))
}

/// Time of a miss to a node, ns.
fn chase(node: NodeId) -> anyhow::Result<f64> {
    let hotcold = std::env::current_exe().context("cannot find this program")?.with_file_name("hotcold");
    let output = Command::new("on-node")
        .arg(node.0.to_string())
        .arg(&hotcold)
        .arg("chase")
        .output()
        .with_context(|| format!("cannot run {}", hotcold.display()))?;
    let chase: Chase = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the chase failed: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(chase.pages_by_node.keys().eq([&node]), "the chase on node {} ran elsewhere: {chase:?}", node.0);
    Ok(chase.ns_per_load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_what_is_lacking() {
        let asked = Asked { ratio: 2.5, dram_ns: 1000.0 };
        let mut latencies =
            Latencies { asked, slow: NodeId(1), waits_ns: (0.0, 0.0), took_ns: (300.0, 320.0) };
        assert!(latencies.off() > 0.5);
        latencies.adjust(true);
        assert_eq!(latencies.waits_ns, (700.0, 2180.0));
        latencies.took_ns = (1100.0, 2400.0);
        latencies.adjust(false);
        assert_eq!(latencies.waits_ns, (600.0, 2280.0));
        latencies.took_ns = (1000.0, 2510.0);
        assert!(latencies.off() < OFF_MAX);
        // The emulator alone may take longer than was asked for; the ratio stays.
        latencies = Latencies { waits_ns: (0.0, 0.0), took_ns: (2000.0, 2000.0), ..latencies };
        latencies.adjust(true);
        assert_eq!(latencies.waits_ns, (0.0, 3000.0));
    }
}
