//! The daemon under test: a process that prints a JSON object every second.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

/// How long the daemon may take to put everything back.
const END_MAX: Duration = Duration::from_secs(30);

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
    last: Arc<Mutex<Value>>,
    reader: JoinHandle<()>,
}

impl Daemon {
    /// Starts `command`, which is the daemon's program, for one process or for all, with a
    /// configuration file or with the default configuration. All its output is also written to
    /// `log`, if given.
    pub(crate) fn start(
        mut command: Command,
        pid: Option<u32>,
        config: Option<&Path>,
        log: Option<&Path>,
    ) -> anyhow::Result<Daemon> {
        command.args(["run", "--json"]);
        if let Some(pid) = pid {
            command.args(["--pid", &pid.to_string()]);
        }
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut log = log
            .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())))
            .transpose()?;
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| {
            format!("cannot start {command:?}: run `make lab-programs`, and install the packages of lab/packages.txt")
        })?;
        let out = child.stdout.take().context("the daemon's output is not piped")?;
        let last = Arc::new(Mutex::new(Value::Null));
        let shared = Arc::clone(&last);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // A full disk is no reason to stop reading.
                let _ = log.as_mut().map(|log| writeln!(log, "{line}"));
                if let Ok(snapshot) = serde_json::from_str(&line) {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
                }
            }
        });
        Ok(Daemon { child, last, reader })
    }

    /// Its last snapshot, `Null` before the first.
    pub(crate) fn snapshot(&self) -> Value {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it with SIGTERM; its summary.
    pub(crate) fn end(mut self) -> anyhow::Result<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("cannot end the daemon")?;
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the daemon")? {
                break status;
            }
            ensure!(asked.elapsed() < END_MAX, "the daemon does not end within {END_MAX:?} of SIGTERM");
            std::thread::sleep(Duration::from_millis(50));
        };
        ensure!(status.success(), "the daemon ended with {status}; its message is above");
        // A reader that panicked has kept what it read.
        let _ = self.reader.join();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(last.is_object(), "the daemon printed no snapshot");
        Ok(last)
    }
}

/// A counter of a snapshot; 0 if there is none yet.
pub(crate) fn counter(snapshot: &Value, name: &str) -> u64 {
    snapshot["counters"][name].as_u64().unwrap_or(0)
}

/// A counter that is split by a label.
pub(crate) fn family(snapshot: &Value, name: &str) -> BTreeMap<String, u64> {
    let Some(map) = snapshot["counters"][name].as_object() else { return BTreeMap::new() };
    map.iter().map(|(label, value)| (label.clone(), value.as_u64().unwrap_or(0))).collect()
}

/// A gauge of the engine.
pub(crate) fn gauge(snapshot: &Value, name: &str) -> u64 {
    let gauges = snapshot["gauges"].as_array().map(Vec::as_slice).unwrap_or_default();
    gauges.iter().filter(|gauge| gauge["name"] == name).filter_map(|gauge| gauge["value"].as_u64()).sum()
}
