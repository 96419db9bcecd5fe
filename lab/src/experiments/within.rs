//! What a program of the lab's own sees of the guest that it runs in.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use thermocline_core::units::NodeId;
use thermocline_lab::programs::keys::Server;
use thermocline_lab::programs::residency::mappings;

/// Base pages by node.
pub(crate) type ByNode = BTreeMap<NodeId, u64>;

/// Where processes are shown.
pub(crate) const PROC: &str = "/proc";
/// How long a server may take to answer first.
const START_MAX: Duration = Duration::from_secs(30);

/// A server of keys of its own.
pub(crate) struct Started(Child);

impl Started {
    /// Starts a server through the program `starter`: `on-slow-node` makes its memory come from the
    /// slow node.
    pub(crate) fn start(server: Server, starter: &str) -> anyhow::Result<Started> {
        let words: &[&str] = match server {
            Server::Redis => &["redis-server", "--save", "", "--appendonly", "no", "--dir", "/tmp"],
            // More memory than any machine of the lab has, so that it throws nothing away.
            Server::Memcached => &["memcached", "-u", "root", "-l", "127.0.0.1", "-U", "0", "-m", "65536"],
        };
        let child = Command::new(starter)
            .args(words)
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", words[0]))?;
        let started = Started(child);
        let begin = Instant::now();
        while std::net::TcpStream::connect(address(server)).is_err() {
            ensure!(begin.elapsed() < START_MAX, "{} does not answer: is it installed?", words[0]);
            thread::sleep(Duration::from_millis(100));
        }
        Ok(started)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        // The guest ends with us: nothing depends on how it did.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends a program by SIGTERM, which it takes to look at all of its data first.
pub(crate) fn end(child: &mut Child, name: &str) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .with_context(|| format!("cannot end {name}"))?;
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    ensure!(status.success(), "{name} ended with {status}: it has lost data");
    Ok(())
}

/// Where a server listens.
pub(crate) fn address(server: Server) -> (&'static str, u16) {
    match server {
        Server::Redis => ("127.0.0.1", 6379),
        Server::Memcached => ("127.0.0.1", 11211),
    }
}

/// Lets a program that was started on one node allocate on all.
pub(crate) fn widen(pid: u32) -> anyhow::Result<()> {
    let widened = Command::new("widen").arg(pid.to_string()).status().context("cannot run widen")?;
    ensure!(widened.success(), "widen failed: the program would stay on the slow node");
    Ok(())
}

/// The last node with memory.
pub(crate) fn slow_node() -> anyhow::Result<NodeId> {
    let text = fs::read_to_string("/sys/devices/system/node/has_memory").context("cannot read the nodes")?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    Ok(NodeId(last.parse().with_context(|| format!("{text:?} does not end in a node"))?))
}

/// The cgroup of a process.
pub(crate) fn cgroup(pid: u32) -> anyhow::Result<String> {
    let path = format!("{PROC}/{pid}/cgroup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    Ok(group.with_context(|| format!("{path} names no cgroup"))?.to_owned())
}

/// All base pages of a process by node.
pub(crate) fn pages(pid: u32) -> anyhow::Result<ByNode> {
    pages_within(pid, &(0..u64::MAX))
}

/// The same of the mappings that overlap a range of addresses.
pub(crate) fn pages_within(pid: u32, range: &Range<u64>) -> anyhow::Result<ByNode> {
    let mut pages = ByNode::new();
    for mapping in mappings(Path::new(PROC), pid, range)? {
        for (node, count) in mapping.by_node {
            *pages.entry(node).or_default() += count;
        }
    }
    Ok(pages)
}

/// Free base pages of each node above the slow one.
pub(crate) fn free_dram(slow: NodeId) -> anyhow::Result<ByNode> {
    (0..slow.0)
        .map(|node| {
            let path = format!("/sys/devices/system/node/node{node}/vmstat");
            Ok((NodeId(node), named(&path, "nr_free_pages")?))
        })
        .collect()
}

/// A counter of the kernel's.
pub(crate) fn vmstat(name: &str) -> anyhow::Result<u64> {
    named("/proc/vmstat", name)
}

/// The value of a line `NAME VALUE`.
pub(crate) fn named(path: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .with_context(|| format!("{path} has no {name}"))?
        .trim()
        .parse()
        .with_context(|| format!("{path}: {name}"))
}
