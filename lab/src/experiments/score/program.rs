//! The program whose memory is placed, in the guest.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use thermocline_lab::programs::keys::{self, Clients, Reading, Server, Target};
use thermocline_lab::programs::residency::data_range;

use super::counted::Counted;
use super::database::Served;
use super::plan::{Plan, Start, Workload};
use crate::experiments::within::{ByNode, PROC, Started, address, pages, pages_within, widen};

/// The program that restricts a program's memory to the slow node.
const ON_SLOW_NODE: &str = "on-slow-node";
/// The program that starts a program in its own cgroup, like a service: demotion selects by cgroup.
pub(crate) const IN_OWN_CGROUP: &str = "in-own-cgroup";

/// Of the updates of gups, those to the tenth of its table that is hot.
const GUPS_ACCESS_SHARE: &str = "0.9";

/// The starter of the program, by its initial placement.
pub(crate) fn starter(start: Start) -> &'static str {
    match start {
        Start::FirstTouch => IN_OWN_CGROUP,
        Start::Slow | Start::SlowOnly => ON_SLOW_NODE,
    }
}

/// A program with all of its memory, under load or ready for it.
pub(crate) enum Program {
    /// A server and its clients.
    Server {
        /// The server.
        started: Started,
        /// The clients.
        clients: Clients,
        /// How it is read.
        reading: Reading,
    },
    /// One of ours, which runs continuously and checks its data or results at the end.
    Counted(Counted),
    /// A database, read and written by its own benchmark.
    Database(Served),
}

/// The memory that a manager should place, if it knows processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of a process.
    Process(u32),
    /// That of all processes of a cgroup.
    Cgroup(String),
    /// That of the whole machine, of which a cgroup has a share.
    Share {
        /// The cgroup.
        cgroup: String,
        /// Its share of DRAM, MiB.
        mib: u64,
    },
    /// That of the whole machine.
    Machine,
}

impl Program {
    /// Starts it and waits until its memory is filled.
    pub(crate) fn start(plan: &Plan, folder: &Path) -> anyhow::Result<Program> {
        match plan.workload {
            Workload::Redis => Program::server(plan, Server::Redis),
            Workload::Memcached => Program::server(plan, Server::Memcached),
            Workload::Hotcold | Workload::Gups | Workload::Bfs | Workload::Bc => {
                Program::counted(plan, &folder.join("report"))
            }
            Workload::PostgreSql | Workload::MariaDb => {
                let set = plan.data_set().context("this program has no data set")?;
                Ok(Program::Database(Served::start(set, plan)?))
            }
        }
    }

    fn server(plan: &Plan, server: Server) -> anyhow::Result<Program> {
        let started = Started::start(server, starter(plan.start))?;
        let (host, port) = address(server);
        let target = Target {
            server,
            address: (host.to_owned(), port),
            keys: plan.keys,
            value_bytes: plan.value_bytes,
            connections: 2,
            pipeline: 16,
        };
        keys::load(&target, never(), &mut std::io::sink())?.check().context("loading the server")?;
        if plan.start == Start::Slow {
            widen(started.pid())?;
        }
        let every = Duration::from_secs(3600);
        let reading = Reading {
            zipf: plan.zipf,
            distribution: plan.distribution,
            seconds: None,
            ops: None,
            every,
            seed: plan.seed,
            draws: plan.seed,
        };
        Ok(Program::Server { started, clients: Clients::new(&target), reading })
    }

    fn counted(plan: &Plan, report: &Path) -> anyhow::Result<Program> {
        let starter = [starter(plan.start)];
        let [mib, seed, rate, scale] =
            [u64::from(plan.mib), plan.seed, plan.rate, u64::from(plan.graph_scale)].map(|n| n.to_string());
        let gups = ["gups", "--mib", &mib, "--access-share", GUPS_ACCESS_SHARE, "--seed", &seed];
        let counted = match plan.workload {
            Workload::Gups => Counted::start("compute", &starter, &gups),
            Workload::Bfs | Workload::Bc => {
                let search = [plan.workload.name(), "--scale", &scale, "--seed", &seed];
                Counted::start("compute", &starter, &search)
            }
            _ => {
                let options = ["--mib", &mib, "--seed", &seed, "--rate", &rate];
                Counted::hotcold(&starter, &options, report)
            }
        };
        let program = Program::Counted(counted?);
        if plan.start == Start::Slow {
            widen(program.pid())?;
        }
        Ok(program)
    }

    /// Its process; for a database, one whose page table shows all of its data.
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Program::Server { started, .. } => started.pid(),
            Program::Counted(counted) => counted.child.id(),
            Program::Database(served) => served.pid(),
        }
    }

    /// All of its processes.
    pub(crate) fn whose(&self) -> anyhow::Result<Whose> {
        let group = match self {
            Program::Database(served) => served.cgroup()?,
            _ => None,
        };
        Ok(group.map_or(Whose::Process(self.pid()), Whose::Cgroup))
    }

    /// The address range of its data, whose misses are counted.
    pub(crate) fn range(&self) -> anyhow::Result<Range<u64>> {
        match self {
            Program::Database(served) => served.range(),
            _ => data_range(Path::new(PROC), self.pid()),
        }
    }

    /// Its base pages by node; if several processes share its data, only the data, so that each
    /// page counts once.
    pub(crate) fn pages(&self) -> anyhow::Result<ByNode> {
        match self.whose()? {
            Whose::Cgroup(_) => pages_within(self.pid(), &self.range()?),
            Whose::Process(_) | Whose::Share { .. } | Whose::Machine => pages(self.pid()),
        }
    }

    /// Runs at least this many operations; returns their number. Rounds draw differently.
    pub(crate) fn run(&mut self, ops: u64, round: u64) -> anyhow::Result<u64> {
        match self {
            Program::Server { clients, reading, .. } => {
                let draws = reading.seed ^ round << 48;
                let reading = Reading { ops: Some(ops), draws, ..reading.clone() };
                let summary = clients.run(&reading, never(), &mut std::io::sink())?;
                summary.check().context("the server under load")?;
                Ok(summary.ops)
            }
            Program::Counted(counted) => counted.run(ops),
            Program::Database(served) => served.run(ops),
        }
    }

    /// Waits until its count of operations is current: our programs report it ten times a second,
    /// the database benchmarks once.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        match self {
            Program::Server { .. } => Ok(()),
            Program::Counted(_) | Program::Database(_) => self.run(1, 0).map(|_| ()),
        }
    }

    /// Ends it. Our programs check their data or results first.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Program::Server { started, .. } => started.end(),
            Program::Database(served) => served.end(),
            Program::Counted(counted) => counted.end()?,
        }
        Ok(())
    }
}

fn never() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}
