//! The command line's choices of a machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Guest, GuestBuilder, Line, Machine, ThpMode, parse_size};

/// How the guest is to be.
#[derive(Debug, Args)]
pub(crate) struct MachineOptions {
    /// Kernel line: 6.1, 6.12, 6.18 or newest.
    #[arg(long, value_name = "LINE", default_value = "6.12")]
    kernel: Line,
    /// Memory of each node; the last is CXL if there are several, the others are DRAM.
    #[arg(long, value_name = "SIZE,...", default_value = "1G,1G,1G", value_delimiter = ',', value_parser = parse_size)]
    memory: Vec<u64>,
    /// Processors of each node.
    #[arg(long, value_name = "N,...", default_value = "2", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Latency of each node in ns from its nearest processor, as the firmware reports it.
    #[arg(long, value_name = "NS,...", value_delimiter = ',')]
    latency: Option<Vec<u32>>,
    /// Bandwidth of each node in GB/s from its nearest processor, as the firmware reports it.
    #[arg(long, value_name = "GBPS,...", value_delimiter = ',')]
    bandwidth: Option<Vec<u32>>,
    /// Boot with systemd as first process; the command is a unit of it.
    #[arg(long)]
    systemd: bool,
    /// Leave the HMAT out: the kernel takes all nodes for one tier.
    #[arg(long)]
    no_tiers: bool,
    /// One node with all the memory.
    #[arg(long)]
    single_node: bool,
    /// Transparent huge pages: always, madvise or never.
    #[arg(long, value_name = "MODE", default_value = "always")]
    thp: ThpMode,
    /// More words for the kernel's command line.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Vec<String>,
    /// End the guest after this many seconds; 0 never does (default: 300 for run, 0 for shell).
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Boot the system in this folder instead of this machine's own.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// A folder that the guest may write, at the same path; $LAB_SHARE names it in the guest.
    #[arg(long, value_name = "FOLDER")]
    share: Option<PathBuf>,
    /// Set an environment variable in the guest, or pass on ours.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Pass a TCP port of the host's loopback to the guest.
    #[arg(long, value_name = "HOST:GUEST")]
    forward: Vec<String>,
    /// Count cache misses by node and page; the guest's program `misses` controls it. Page dumps go
    /// to the shared folder if there is one.
    #[arg(long, value_name = "KEY=VALUE,...", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    misses: Option<String>,
    /// Also have the guest see the plugin's samples: rings in the memory of a PCI device.
    #[arg(long, requires = "misses")]
    samples: bool,
    /// Load a TCG plugin into QEMU.
    #[arg(long, value_name = "PATH[,KEY=VALUE]")]
    plugin: Vec<String>,
    /// Offer the guest's /dev/virtio-ports/lab.plugin at this socket, for a plugin to connect to.
    #[arg(long, value_name = "SOCKET")]
    plugin_socket: Option<PathBuf>,
    /// Print the kernel's console, and what QEMU and its plugins say, to standard error.
    #[arg(long)]
    console: bool,
    /// Say which kernel ran and how long it took.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

impl MachineOptions {
    /// The guest that these options ask for. A plugin keeps its socket in `scratch` unless a folder
    /// is shared.
    pub(crate) fn builder(&self, scratch: &Path) -> anyhow::Result<GuestBuilder> {
        let machine = self.machine()?;
        let mut guest = Guest::builder()
            .kernel(self.kernel)
            .machine(machine.clone())
            .thp(self.thp)
            .echo_console(self.console)
            .timeout(self.limit(300));
        for words in &self.append {
            guest = guest.append(words);
        }
        if self.systemd {
            guest = guest.systemd();
        }
        for plugin in &self.plugin {
            guest = guest.plugin(plugin);
        }
        for pair in &self.forward {
            let ports =
                pair.split_once(':').and_then(|(host, to)| Some((host.parse().ok()?, to.parse().ok()?)));
            let (host, to) =
                ports.with_context(|| format!("--forward {pair}: give two ports, such as 6400:6379"))?;
            guest = guest.forward(host, to);
        }
        for word in &self.env {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (
                    word.as_str(),
                    std::env::var(word).with_context(|| format!("--env {word}: it is not set here"))?,
                ),
            };
            guest = guest.env(name, value);
        }
        if let Some(folder) = &self.root {
            guest = guest.root(folder);
        }
        if let Some(folder) = &self.share {
            guest = guest.share(folder);
        }
        if let Some(socket) = &self.plugin_socket {
            guest = guest.plugin_socket(socket);
        }
        if let Some(more) = &self.misses {
            let mut more: Vec<&str> = more.split(',').filter(|argument| !argument.is_empty()).collect();
            let rings;
            if self.samples {
                (guest, rings) = offer_samples(guest, scratch);
                more.push(&rings);
            }
            guest = attach(guest, &machine, self.share.as_deref().unwrap_or(scratch), &more)?;
        }
        Ok(guest)
    }

    /// The time limit, where `default_s` holds if none was given.
    pub(crate) fn limit(&self, default_s: u64) -> Option<Duration> {
        Some(self.timeout.unwrap_or(default_s)).filter(|&seconds| seconds > 0).map(Duration::from_secs)
    }

    fn machine(&self) -> anyhow::Result<Machine> {
        let mut machine = match self.single_node {
            true => Machine::of_sizes(&[self.memory.iter().sum()]),
            false => Machine::of_sizes(&self.memory),
        };
        machine.set_cpus(&self.cpus);
        machine.tiers = !self.no_tiers;
        let nodes = machine.nodes.len();
        for (option, values) in [("--latency", &self.latency), ("--bandwidth", &self.bandwidth)] {
            if let Some(values) = values.as_ref().filter(|values| values.len() != nodes) {
                bail!("{option} has {} values for {nodes} nodes: give one for each", values.len());
            }
        }
        for (index, node) in machine.nodes.iter_mut().enumerate() {
            if let Some(values) = &self.latency {
                node.latency_ns = values[index];
            }
            if let Some(values) = &self.bandwidth {
                node.bandwidth_gbps = values[index];
            }
        }
        Ok(machine)
    }
}
