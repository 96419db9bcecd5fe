//! The program whose memory is placed, in the guest.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use thermocline_lab::workload::keys::{self, Reading, Server, Target};

use super::plan::{Plan, Start, Workload};
use crate::within::{Started, address, widen};

/// How long a program that says nothing is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(20);
/// The program that gives a program memory of the slow node alone.
const ON_SLOW_NODE: &str = "on-slow-node";
/// The program that gives a program a cgroup of its own, as a service has: what is demoted is chosen by cgroup.
const IN_OWN_CGROUP: &str = "in-own-cgroup";

/// What starts the program, by where its memory shall be at first.
fn starter(start: Start) -> &'static str {
    match start {
        Start::FirstTouch => IN_OWN_CGROUP,
        Start::Slow => ON_SLOW_NODE,
    }
}

/// A program with all of its memory, under load or ready for it.
pub(crate) enum Program {
    /// A server, and what reads from it.
    Server {
        /// The server.
        started: Started,
        /// What is in it.
        target: Target,
        /// How it is read.
        reading: Reading,
    },
    /// hotcold, which is always at work.
    Hotcold {
        /// The process.
        child: Child,
        /// Accesses so far.
        accesses: Arc<AtomicU64>,
    },
}

impl Program {
    /// Starts it and waits until its memory is filled.
    pub(crate) fn start(plan: &Plan, folder: &Path) -> anyhow::Result<Program> {
        match plan.workload {
            Workload::Redis => Program::server(plan, Server::Redis),
            Workload::Memcached => Program::server(plan, Server::Memcached),
            Workload::Hotcold => Program::hotcold(plan, &folder.join("report")),
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
        let reading =
            Reading { zipf: plan.zipf, seconds: None, ops: None, every, seed: plan.seed, draws: plan.seed };
        Ok(Program::Server { started, target, reading })
    }

    fn hotcold(plan: &Plan, report: &Path) -> anyhow::Result<Program> {
        let here = std::env::current_exe().context("cannot find this program")?;
        let program = here.with_file_name("hotcold");
        let mut child = Command::new(starter(plan.start))
            .arg(&program)
            .args(["--mib", &plan.mib.to_string(), "--seed", &plan.seed.to_string()])
            .args(["--rate", &plan.rate.to_string()])
            .args(["--no-thp", "--report-every", "0.1", "--report"])
            .arg(report)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot start {}: build it with make lab-programs", program.display())
            })?;
        let out = child.stdout.take().context("hotcold's output is not piped")?;
        let accesses = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&accesses);
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                if line["event"] == "interval" {
                    sum.fetch_add(line["accesses"].as_u64().unwrap_or(0), Ordering::Relaxed);
                }
            }
        });
        let mut program = Program::Hotcold { child, accesses };
        // The first accesses come when the memory is filled.
        program.run(1, 0)?;
        if plan.start == Start::Slow {
            widen(program.pid())?;
        }
        Ok(program)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Program::Server { started, .. } => started.pid(),
            Program::Hotcold { child, .. } => child.id(),
        }
    }

    /// Has it do at least so many operations; returns how many it did. Rounds draw differently.
    pub(crate) fn run(&mut self, ops: u64, round: u64) -> anyhow::Result<u64> {
        match self {
            Program::Server { target, reading, .. } => {
                let draws = reading.seed ^ round << 48;
                let reading = Reading { ops: Some(ops), draws, ..reading.clone() };
                let summary = keys::run(target, &reading, never(), &mut std::io::sink())?;
                summary.check().context("the server under load")?;
                Ok(summary.ops)
            }
            Program::Hotcold { child, accesses } => {
                let first = accesses.load(Ordering::Relaxed);
                let (mut last, mut since) = (first, Instant::now());
                loop {
                    let now = accesses.load(Ordering::Relaxed);
                    if now - first >= ops {
                        return Ok(now - first);
                    }
                    if now != last {
                        (last, since) = (now, Instant::now());
                    }
                    ensure!(
                        child.try_wait().context("cannot wait for hotcold")?.is_none(),
                        "hotcold has ended; its message is above"
                    );
                    ensure!(since.elapsed() < SILENCE_MAX, "hotcold does nothing for {SILENCE_MAX:?}");
                    thread::sleep(NAP);
                }
            }
        }
    }

    /// Waits until its count of operations is fresh: hotcold tells it ten times a second.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        match self {
            Program::Server { .. } => Ok(()),
            Program::Hotcold { .. } => self.run(1, 0).map(|_| ()),
        }
    }

    /// Ends it. hotcold looks at all of its data first.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Program::Server { started, .. } => started.end(),
            Program::Hotcold { child, .. } => {
                let pid = rustix::process::Pid::from_child(child);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                    .context("cannot end hotcold")?;
                let status = child.wait().context("cannot wait for hotcold")?;
                ensure!(status.success(), "hotcold ended with {status}: it has lost data");
            }
        }
        Ok(())
    }
}

fn never() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}
