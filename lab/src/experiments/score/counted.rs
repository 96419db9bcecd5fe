//! A program that runs continuously and reports how much it has done.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::experiments::within::end;

/// How long to wait for a program that reports nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(20);

/// The program.
pub(crate) struct Counted {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Its process.
    pub(crate) child: Child,
    /// Operations so far.
    pub(crate) count: Arc<AtomicU64>,
}

impl Counted {
    /// Starts hotcold through the program `starter` with its arguments, and with `options`; returns
    /// when its memory is filled. Its report goes to `report`.
    pub(crate) fn hotcold(starter: &[&str], options: &[&str], report: &Path) -> anyhow::Result<Counted> {
        let report = report.to_str().context("the report's path is not UTF-8")?;
        Counted::start("hotcold", starter, &[options, &["--report", report]].concat())
    }

    /// Starts `name`, a program of ours that reports accesses, through the program `starter` with
    /// its arguments, and with `options`; returns when its memory is filled.
    pub(crate) fn start(name: &'static str, starter: &[&str], options: &[&str]) -> anyhow::Result<Counted> {
        let here = std::env::current_exe().context("cannot find this program")?;
        let program = here.with_file_name(name);
        let (first, words) = starter.split_first().with_context(|| format!("nothing starts {name}"))?;
        let mut child = Command::new(first)
            .args(words)
            .arg(&program)
            .args(options)
            .args(["--no-thp", "--report-every", "0.1"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot start {}: build it with make lab-programs", program.display())
            })?;
        let out = child.stdout.take().with_context(|| format!("the output of {name} is not piped"))?;
        let count = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&count);
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                if line["event"] == "interval" {
                    sum.fetch_add(line["accesses"].as_u64().unwrap_or(0), Ordering::Relaxed);
                }
            }
        });
        let mut counted = Counted { name, child, count };
        // The first accesses follow the filling of the memory.
        counted.run(1)?;
        Ok(counted)
    }

    /// Ends it cleanly: it checks its data or results first.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        end(&mut self.child, self.name)
    }

    /// Waits until it has reported `ops` more operations; returns the number reported.
    pub(crate) fn run(&mut self, ops: u64) -> anyhow::Result<u64> {
        let name = self.name;
        let first = self.count.load(Ordering::Relaxed);
        let (mut last, mut since) = (first, Instant::now());
        loop {
            let now = self.count.load(Ordering::Relaxed);
            if now - first >= ops {
                return Ok(now - first);
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let ended = self.child.try_wait().with_context(|| format!("cannot wait for {name}"))?;
            ensure!(ended.is_none(), "{name} has ended; its message is above");
            ensure!(since.elapsed() < SILENCE_MAX, "{name} does nothing for {SILENCE_MAX:?}");
            thread::sleep(NAP);
        }
    }
}
