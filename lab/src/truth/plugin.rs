//! The plugin's control connection.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, QueueSelector, isatty, tcflush, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};
use thermocline_core::units::NodeId;

use super::Model;

/// How long an answer may take. `start` alone may wait ten seconds inside the plugin.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The longest answer accepted: sixteen nodes of counts take a quarter of it.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// What went wrong between us and the plugin.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The socket or serial port could not be opened.
    #[error(
        "cannot reach the plugin at {path}: {source}; is the guest running with -plugin misses.so,socket=...?"
    )]
    Unreachable {
        /// Socket or port.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke, or no answer came in time.
    #[error("the plugin gave no answer to `{command}`: {source}")]
    NoAnswer {
        /// The command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// An answer that is not what this command answers.
    #[error("the plugin's answer to `{command}` is not understood: {answer}")]
    Strange {
        /// The command.
        command: String,
        /// The answer.
        answer: String,
    },
    /// The plugin refused.
    #[error("the plugin refused `{command}`: {message}")]
    Refused {
        /// The command.
        command: String,
        /// Its reason.
        message: String,
    },
}

/// What the plugin is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Never started: the guest's code runs untouched.
    Off,
    /// The code is instrumented but nothing is counted.
    Stopped,
    /// Counting.
    Counting,
}

/// Accesses that one node served, and those of them that missed the modelled cache, since the last
/// reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Loads, hits included.
    pub loads: u64,
    /// Stores, hits included; a read-modify-write is one store.
    pub stores: u64,
    /// 64-byte lines that loads had to fetch.
    pub load_misses: u64,
    /// 64-byte lines that stores had to fetch.
    pub store_misses: u64,
    /// Modelled time that these misses waited for the node's latency, ns.
    #[serde(default)]
    pub latency_ns: u64,
    /// Modelled time that they queued for its bandwidth, ns.
    #[serde(default)]
    pub queueing_ns: u64,
}

/// Modelled time since the last reset. The program's figures cover the instructions of the named
/// program and the misses that pass the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modelled {
    /// The clocks of all processors added up, ns.
    pub ns: u64,
    /// The same if node 0 had served every miss, ns.
    pub reference_ns: u64,
    /// The program's time, ns.
    pub program_ns: u64,
    /// The same if node 0 had served every miss, ns.
    pub program_reference_ns: u64,
}

impl NodeCounts {
    /// Lines fetched by loads and stores.
    pub fn misses(&self) -> u64 {
        self.load_misses + self.store_misses
    }
}

/// The plugin's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// What the plugin is doing.
    pub state: State,
    /// Raised by each reset; counts of different epochs do not subtract.
    pub epoch: u32,
    /// The host's CLOCK_MONOTONIC in nanoseconds when this was read.
    pub host_ns: u64,
    /// By node number.
    pub nodes: Vec<NodeCounts>,
    /// Accesses to devices.
    pub io: u64,
    /// Accesses to memory of no node (firmware, video).
    pub outside: u64,
    /// Accesses whose address QEMU could not resolve.
    pub unresolved: u64,
    /// Pairs of virtual and physical page in the page tables.
    pub pages: u64,
    /// Misses that the full page tables could not record; they are still counted in `nodes`.
    pub pages_lost: u64,
    /// Instructions of user space, of any program.
    pub instructions: u64,
    /// Those of the program named by [`Plugin::program`].
    pub program_instructions: u64,
    /// Modelled time; `None` unless enabled by [`Plugin::model`].
    #[serde(default)]
    pub modelled: Option<Modelled>,
}

impl Counts {
    /// The counts since `earlier`; in a newer epoch, all of them.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut difference = self.clone();
        if self.epoch == earlier.epoch {
            for (now, then) in difference.nodes.iter_mut().zip(&earlier.nodes) {
                now.loads = now.loads.saturating_sub(then.loads);
                now.stores = now.stores.saturating_sub(then.stores);
                now.load_misses = now.load_misses.saturating_sub(then.load_misses);
                now.store_misses = now.store_misses.saturating_sub(then.store_misses);
                now.latency_ns = now.latency_ns.saturating_sub(then.latency_ns);
                now.queueing_ns = now.queueing_ns.saturating_sub(then.queueing_ns);
            }
            if let (Some(now), Some(then)) = (&mut difference.modelled, earlier.modelled) {
                now.ns = now.ns.saturating_sub(then.ns);
                now.reference_ns = now.reference_ns.saturating_sub(then.reference_ns);
                now.program_ns = now.program_ns.saturating_sub(then.program_ns);
                now.program_reference_ns = now.program_reference_ns.saturating_sub(then.program_reference_ns);
            }
            difference.instructions = self.instructions.saturating_sub(earlier.instructions);
            difference.program_instructions =
                self.program_instructions.saturating_sub(earlier.program_instructions);
        }
        difference
    }

    /// Misses of all nodes.
    pub fn misses(&self) -> u64 {
        self.nodes.iter().map(NodeCounts::misses).sum()
    }

    /// The share (0 to 1) of all misses that `nodes` served; `None` before the first miss.
    pub fn share(&self, nodes: &[NodeId]) -> Option<f64> {
        let all = self.misses();
        let served: u64 =
            nodes.iter().filter_map(|node| self.nodes.get(node.0 as usize)).map(NodeCounts::misses).sum();
        (all > 0).then(|| served as f64 / all as f64)
    }
}

/// A connection to the plugin.
pub struct Plugin {
    reader: BufReader<Patient>,
    writer: File,
}

impl Plugin {
    /// Connects to the plugin's Unix socket, or to the guest's port that leads there.
    ///
    /// # Errors
    /// [`PluginError::Unreachable`] when `path` cannot be opened.
    pub fn connect(path: &Path) -> Result<Plugin, PluginError> {
        open(path).map_err(|source| PluginError::Unreachable { path: path.to_owned(), source })
    }

    /// Starts counting; the first time this instruments the guest's code.
    ///
    /// # Errors
    /// [`PluginError`], as all commands.
    pub fn start(&mut self) -> Result<(), PluginError> {
        self.order("start")
    }

    /// Stops counting.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn stop(&mut self) -> Result<(), PluginError> {
        self.order("stop")
    }

    /// Zeroes all counters and empties the modelled cache.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn reset(&mut self) -> Result<(), PluginError> {
        self.order("reset")
    }

    /// Counts only accesses to virtual addresses from `start` up to, not including, `end`; `None`
    /// lifts the filter.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn filter(&mut self, range: Option<(u64, u64)>) -> Result<(), PluginError> {
        match range {
            Some((start, end)) => self.order(&format!("filter {start:x} {end:x}")),
            None => self.order("filter none"),
        }
    }

    /// Names the program whose instructions are counted separately, by the addresses of its memory
    /// (at most eight ranges); no ranges end that.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn program(&mut self, ranges: &[Range<u64>]) -> Result<(), PluginError> {
        let mut command = "program".to_owned();
        for range in ranges {
            command.push_str(&format!(" {:x} {:x}", range.start, range.end));
        }
        if ranges.is_empty() {
            command.push_str(" none");
        }
        self.order(&command)
    }

    /// Tags about every `every`th access from now on, or none, and passes those that miss to the
    /// guest as samples ([`offer_samples`](super::offer_samples)); only while counting.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn sample(&mut self, every: Option<u64>) -> Result<(), PluginError> {
        match every {
            Some(every) => self.order(&format!("sample {every}")),
            None => self.order("sample none"),
        }
    }

    /// Delays a vCPU for each miss by this many ns (at most a million) for the node that serves it,
    /// in node order, while misses are counted; empty for no delay.
    ///
    /// # Errors
    /// [`PluginError`], as when there is not one for each node.
    pub fn latency(&mut self, ns: &[u32]) -> Result<(), PluginError> {
        let words: Vec<String> = ns.iter().map(|ns| format!(" {ns}")).collect();
        self.order(&format!("latency{}", if ns.is_empty() { " none".to_owned() } else { words.concat() }))
    }

    /// Models time from now on, or not, and restarts the counters like [`reset`](Plugin::reset).
    ///
    /// # Errors
    /// [`PluginError`], as when the model has not as many nodes as the machine.
    pub fn model(&mut self, model: Option<&Model>) -> Result<(), PluginError> {
        self.order(&format!("model {}", model.map_or("none".to_owned(), Model::words)))
    }

    /// Makes the plugin write the page dump to `name` in its dump folder on the host; returns the
    /// number of records.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn dump_pages(&mut self, name: &str) -> Result<u64, PluginError> {
        #[derive(Deserialize)]
        struct Dumped {
            records: u64,
        }
        let dumped: Dumped = self.ask(&format!("pages {name}"))?;
        Ok(dumped.records)
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// [`PluginError`].
    pub fn counts(&mut self) -> Result<Counts, PluginError> {
        self.ask("counts")
    }

    fn order(&mut self, command: &str) -> Result<(), PluginError> {
        #[derive(Deserialize)]
        struct Done {
            ok: bool,
        }
        let done: Done = self.ask(command)?;
        if done.ok {
            return Ok(());
        }
        Err(PluginError::Strange { command: command.to_owned(), answer: "ok is false".to_owned() })
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, command: &str) -> Result<T, PluginError> {
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
        }
        let answer = self
            .exchange(command)
            .map_err(|source| PluginError::NoAnswer { command: command.to_owned(), source })?;
        if let Ok(refusal) = serde_json::from_str::<Refusal>(&answer) {
            return Err(PluginError::Refused { command: command.to_owned(), message: refusal.error });
        }
        serde_json::from_str(&answer).map_err(|_| PluginError::Strange {
            command: command.to_owned(),
            answer: answer.trim_end().to_owned(),
        })
    }

    fn exchange(&mut self, command: &str) -> io::Result<String> {
        self.writer.write_all(format!("{command}\n").as_bytes())?;
        self.writer.flush()?;
        let mut answer = String::new();
        self.reader.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
        if answer.ends_with('\n') { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Reads that wait at most [`ANSWER_MAX`], on any kind of file.
struct Patient(File);

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let limit = Timespec { tv_sec: ANSWER_MAX.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.0.read(bytes),
        }
    }
}

fn open(path: &Path) -> io::Result<Plugin> {
    let writer = if std::fs::metadata(path)?.file_type().is_socket() {
        File::from(OwnedFd::from(UnixStream::connect(path)?))
    } else {
        OpenOptions::new().read(true).write(true).open(path)?
    };
    if isatty(&writer) {
        make_raw(&writer)?;
    }
    Ok(Plugin { reader: BufReader::new(Patient(writer.try_clone()?)), writer })
}

/// Disables echo and line editing, and discards old input.
fn make_raw(port: &File) -> io::Result<()> {
    let mut settings = tcgetattr(port)?;
    settings.make_raw();
    tcsetattr(port, OptionalActions::Now, &settings)?;
    tcflush(port, QueueSelector::IOFlush)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const COUNTS: &str = concat!(
        r#"{"state":"counting","epoch":3,"host_ns":5,"nodes":["#,
        r#"{"loads":10,"stores":4,"load_misses":6,"store_misses":2},"#,
        r#"{"loads":0,"stores":0,"load_misses":0,"store_misses":0},"#,
        r#"{"loads":30,"stores":9,"load_misses":20,"store_misses":4}],"#,
        r#""io":1,"outside":0,"unresolved":0,"pages":12,"pages_lost":0,"instructions":900,"program_instructions":600}"#
    );

    /// Answers each line that comes with the next of `answers`, then returns the lines.
    fn serve(answers: &[&str]) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<Vec<String>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let answers: Vec<String> = answers.iter().map(|&a| a.to_owned()).collect();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut seen = Vec::new();
            for answer in answers {
                seen.push(lines.next().unwrap().unwrap());
                stream.write_all(answer.as_bytes()).unwrap();
            }
            seen
        });
        (folder, path, server)
    }

    #[test]
    fn commands_and_answers_match_the_plugins() {
        let counts = format!("{COUNTS}\n");
        let ok = "{\"ok\":true}\n";
        let (_folder, path, server) =
            serve(&[ok, ok, ok, ok, ok, ok, &counts, "{\"ok\":true,\"records\":7}\n"]);
        let mut plugin = Plugin::connect(&path).unwrap();
        plugin.filter(Some((0x1000, 0xf000))).unwrap();
        plugin.program(&[0x10..0x20, 0xa0..0xb0]).unwrap();
        plugin.program(&[]).unwrap();
        plugin.latency(&[0, 250]).unwrap();
        plugin.latency(&[]).unwrap();
        plugin.start().unwrap();
        let counts = plugin.counts().unwrap();
        assert_eq!(counts.state, State::Counting);
        assert_eq!(counts.nodes[2].misses(), 24);
        assert_eq!(plugin.dump_pages("a").unwrap(), 7);
        assert_eq!(
            server.join().unwrap(),
            [
                "filter 1000 f000",
                "program 10 20 a0 b0",
                "program none",
                "latency 0 250",
                "latency none",
                "start",
                "counts",
                "pages a"
            ]
        );
    }

    #[test]
    fn a_refusal_an_odd_answer_and_a_closed_connection_differ() {
        let (_folder, path, server) = serve(&["{\"error\":\"why not\"}\n", "{\"ok\":1}\n"]);
        let mut plugin = Plugin::connect(&path).unwrap();
        assert!(matches!(plugin.start(), Err(PluginError::Refused { message, .. }) if message == "why not"));
        assert!(matches!(plugin.start(), Err(PluginError::Strange { .. })));
        server.join().unwrap();
        assert!(matches!(plugin.start(), Err(PluginError::NoAnswer { .. })));
        assert!(matches!(Plugin::connect(Path::new("/nowhere")), Err(PluginError::Unreachable { .. })));
    }

    #[test]
    fn differences_and_shares() {
        let then: Counts = serde_json::from_str(COUNTS).unwrap();
        let mut now = then.clone();
        assert_eq!(then.misses(), 32);
        assert_eq!(then.share(&[NodeId(0), NodeId(1)]), Some(0.25));
        assert_eq!(now.since(&then).share(&[NodeId(0)]), None);
        now.nodes[0].load_misses += 5;
        assert_eq!(now.since(&then).misses(), 5);
        now.epoch += 1;
        assert_eq!(now.since(&then).misses(), 37);
    }
}
