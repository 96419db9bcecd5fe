//! Memory of another program, which takes DRAM from the program under test.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thermocline_core::units::{NodeId, PAGES_PER_MIB};

use super::counted::Counted;
use super::program::IN_OWN_CGROUP;
use crate::experiments::within::{ByNode, end, pages};

/// Share of its memory that may be outside DRAM before any manager starts: its program's own pages,
/// and those filled last.
const ASTRAY_MAX: f64 = 0.02;

/// The placement of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lay {
    /// When the manager started.
    pub(crate) before: ByNode,
    /// At the end of the window.
    pub(crate) after: ByNode,
}

/// How a hog accesses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Hog {
    /// All of it alike, at random.
    Uniform,
    /// Line by line from front to back, again and again.
    Sweep,
}

/// The other program.
pub(crate) enum Neighbour {
    /// Its memory is cold.
    Ballast(Ballast),
    /// It accesses all of its memory, all the time.
    Hog(Counted),
}

impl Neighbour {
    /// Starts a hog in its own cgroup, with `mib` MiB.
    pub(crate) fn hog(hog: Hog, mib: u64) -> anyhow::Result<Neighbour> {
        let order: &[&str] = match hog {
            Hog::Uniform => &["--hot-share", "0.5", "--access-share", "0.5"],
            Hog::Sweep => &["--order", "sweep"],
        };
        let mib = mib.to_string();
        let options = [&["--mib", &mib], order].concat();
        Counted::start("hotcold", &[IN_OWN_CGROUP], &options).map(Neighbour::Hog)
    }

    /// Its base pages by node.
    pub(crate) fn pages(&self) -> anyhow::Result<ByNode> {
        match self {
            Neighbour::Ballast(ballast) => ballast.pages(),
            Neighbour::Hog(hog) => pages(hog.child.id()),
        }
    }

    /// Accesses of a hog so far.
    pub(crate) fn accesses(&self) -> Option<u64> {
        match self {
            Neighbour::Ballast(_) => None,
            Neighbour::Hog(hog) => Some(hog.count.load(Ordering::Relaxed)),
        }
    }

    /// Ends it; it verifies all of its memory first.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        match self {
            Neighbour::Ballast(ballast) => ballast.end(),
            Neighbour::Hog(mut hog) => hog.end(),
        }
    }
}

/// A program that writes to its memory once and then sleeps.
pub(crate) struct Ballast {
    child: Child,
    /// Kept, because the program confirms at its end that its memory was intact.
    lines: BufReader<ChildStdout>,
}

impl Ballast {
    /// Starts a program in its own cgroup that writes to `mib` MiB once and then sleeps.
    pub(crate) fn start(mib: u64, slow: NodeId) -> anyhow::Result<Ballast> {
        ensure!(mib > 0, "DRAM has no room that ballast could take: let more of the program spill");
        let here = std::env::current_exe().context("cannot find this program")?;
        let program = here.with_file_name("hotcold");
        let mut child = Command::new(IN_OWN_CGROUP)
            .arg(&program)
            .args(["ballast", "--no-thp", "--mib", &mib.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot start {}: build it with make lab-programs", program.display())
            })?;
        let mut lines = BufReader::new(child.stdout.take().context("the ballast's output is not piped")?);
        ensure!(
            lines.read_line(&mut String::new()).context("cannot hear the ballast")? > 0,
            "the ballast has ended; its message is above"
        );
        let ballast = Ballast { child, lines };
        let by_node = ballast.pages()?;
        let astray = by_node.get(&slow).copied().unwrap_or(0) as f64;
        ensure!(
            astray <= ASTRAY_MAX * (mib * PAGES_PER_MIB) as f64,
            "ballast of {mib} MiB does not fit into DRAM: {by_node:?} pages by node"
        );
        Ok(ballast)
    }

    fn pages(&self) -> anyhow::Result<ByNode> {
        pages(self.child.id())
    }

    fn end(mut self) -> anyhow::Result<()> {
        end(&mut self.child, "the ballast")?;
        let mut line = String::new();
        self.lines.read_line(&mut line).context("cannot hear the ballast")?;
        ensure!(line.contains("verified"), "the ballast ended without a look at its memory: {line:?}");
        Ok(())
    }
}
