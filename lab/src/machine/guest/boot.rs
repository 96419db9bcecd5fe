//! From QEMU's start to its end.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::console::{diagnose, last_lines, ran_stale_code};
use super::{GuestBuilder, Outcome, Output};
use crate::machine::channel::{Kept, Port, Reader, Sink};
use crate::machine::fetch::cached_or_fetched;
use crate::machine::initramfs::{self, Settings};
use crate::machine::qemu::{Qemu, Setup};
use crate::machine::terminal::RawTerminal;
use crate::{End, Error, Kernel, Result};

/// How long a guest may take from its command's end to its power-off.
const POWER_OFF: Duration = Duration::from_secs(10);
/// How often a guest is booted at most if the emulator makes it panic.
const ATTEMPTS_MAX: u32 = 8;
/// Time between two checks for signals and for QEMU's end.
const TICK: Duration = Duration::from_millis(20);
/// Time between two looks at the console for a kernel that does not get on.
const LOOK: Duration = Duration::from_secs(5);

/// The sockets that QEMU connects to.
struct Ports {
    console: Port,
    control: Port,
    stdout: Port,
    stderr: Port,
    terminal: Option<Port>,
}

/// The streams of these sockets.
struct Streams {
    /// QEMU's own messages.
    messages: Option<Reader>,
    console: Reader,
    control: Receiver<String>,
    stdout: Reader,
    stderr: Reader,
    terminal: Option<Reader>,
}

impl Ports {
    fn listen(folder: &Path, interactive: bool) -> Result<Ports> {
        let listen = |name| Port::listen(folder, name);
        Ok(Ports {
            console: listen("console")?,
            control: listen("lab.control")?,
            stdout: listen("lab.stdout")?,
            stderr: listen("lab.stderr")?,
            terminal: interactive.then(|| listen("terminal")).transpose()?,
        })
    }

    fn named(&self) -> Vec<(&'static str, &Path)> {
        vec![
            ("lab.control", self.control.path()),
            ("lab.stdout", self.stdout.path()),
            ("lab.stderr", self.stderr.path()),
        ]
    }
}

impl Streams {
    fn connect(
        guest: &GuestBuilder,
        qemu: &mut Qemu,
        ports: &Ports,
        terminal: Option<&RawTerminal>,
    ) -> Result<Streams> {
        let err = |wanted: bool| wanted.then(|| Box::new(io::stderr()) as Sink);
        let out = |wanted: bool| wanted.then(|| Box::new(io::stdout()) as Sink);
        let inherit = guest.output == Output::Inherit;
        let messages = qemu.child.stderr.take().map(|stream| Reader::start(stream, err(guest.echo_console)));
        let mut connect = |port| connect(qemu, port, messages.as_ref());
        let console = Reader::start(connect(&ports.console)?, err(guest.echo_console));
        let control = lines_of(connect(&ports.control)?);
        let stdout = Reader::start(connect(&ports.stdout)?, out(inherit));
        let stderr = Reader::start(connect(&ports.stderr)?, err(inherit));
        let terminal = match (terminal, &ports.terminal) {
            (Some(terminal), Some(port)) => Some(terminal.join(connect(port)?)?),
            _ => None,
        };
        Ok(Streams { messages, console, control, stdout, stderr, terminal })
    }
}

/// The complete content of the streams.
struct Texts {
    messages: String,
    console: String,
    stdout: String,
    stderr: String,
    dropped_bytes: u64,
}

impl Streams {
    /// Reads the streams to their ends, after QEMU has ended.
    fn finish(self) -> Texts {
        let text = |kept: &Kept| String::from_utf8_lossy(&kept.bytes).into_owned();
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        if let Some(terminal) = self.terminal {
            terminal.finish();
        }
        Texts {
            messages: self.messages.map(|reader| text(&reader.finish())).unwrap_or_default(),
            console: text(&self.console.finish()),
            stdout: text(&stdout),
            stderr: text(&stderr),
            dropped_bytes: stdout.dropped + stderr.dropped,
        }
    }
}

impl GuestBuilder {
    /// Boots, runs the shell script `command` and powers off.
    pub(super) fn boot(&self, command: &str, terminal: Option<&RawTerminal>) -> Result<Outcome> {
        self.machine.check()?;
        let kernel = cached_or_fetched(&self.cache, self.line)?;
        let _lock = self.cache.guest_lock()?;
        for _ in 1..ATTEMPTS_MAX {
            match self.attempt(&kernel, command, terminal) {
                Err(Error::Guest { end: End::EmulatorFault { command_started }, .. })
                    if terminal.is_none() && (!command_started || self.output == Output::Capture) =>
                {
                    // Tests that pass show it too: their harness keeps only what macros print.
                    let _ = writeln!(
                        io::stderr(),
                        "lab: the emulator made the guest's kernel fail; booting again"
                    );
                }
                result => return result,
            }
        }
        self.attempt(&kernel, command, terminal)
    }

    fn attempt(&self, kernel: &Kernel, command: &str, terminal: Option<&RawTerminal>) -> Result<Outcome> {
        // The path of a socket must be short, and that of the user's temporary folder may be too
        // long.
        let folder = tempfile::Builder::new()
            .prefix("lab-")
            .tempdir_in("/tmp")
            .map_err(Error::file("create a folder in", "/tmp"))?;
        let share = match &self.share {
            Some(share) => Some(share.canonicalize().map_err(Error::file("find the shared folder", share))?),
            None => None,
        };
        let settings = Settings {
            command,
            share: share.as_deref(),
            disk: self.disk.is_some(),
            terminal: terminal.map(|terminal| terminal.size.as_str()),
            net: !self.forwards.is_empty(),
            systemd: self.systemd,
            devices: self.has_devices(),
        };
        let initrd = folder.path().join("initrd");
        fs::write(&initrd, initramfs::build(kernel, &settings)?).map_err(Error::file("write", &initrd))?;
        let ports = Ports::listen(folder.path(), terminal.is_some())?;
        let setup = Setup {
            machine: &self.machine,
            devices: self.has_devices(),
            image: kernel.image(),
            initrd,
            kernel_arguments: self.kernel_arguments(),
            console: ports.console.path(),
            ports: ports.named(),
            plugin_port: self.plugin_socket.as_deref(),
            terminal: ports.terminal.as_ref().map(Port::path),
            root: &self.root,
            share: share.as_deref(),
            disk: self.disk.as_deref(),
            forwards: &self.forwards,
            plugins: &self.plugins,
            shared_memory: self.shared_memory.as_ref().map(|(path, bytes)| (path.as_path(), *bytes)),
        };

        let started = Instant::now();
        let mut qemu = setup.spawn()?;
        let streams = Streams::connect(self, &mut qemu, &ports, terminal)?;
        let mut heard = Heard::default();
        let watched = self.watch(&mut qemu, &streams, &mut heard, started);
        drop(qemu);
        let boot = heard.boot;
        match (watched, streams.finish()) {
            (Ok(status), texts) => Ok(Outcome {
                status,
                stdout: texts.stdout,
                stderr: texts.stderr,
                dropped_bytes: texts.dropped_bytes,
                console: texts.console,
                release: kernel.release().to_owned(),
                boot: boot.unwrap_or_else(|| started.elapsed()),
                total: started.elapsed(),
            }),
            (Err(end), texts) => Err(Error::Guest {
                end: diagnose(end, &texts.console, boot.is_some()),
                console: last_lines(&texts.console, &texts.messages),
            }),
        }
    }

    /// Waits for the command's status and the power-off.
    fn watch(
        &self,
        qemu: &mut Qemu,
        streams: &Streams,
        heard: &mut Heard,
        started: Instant,
    ) -> std::result::Result<i32, End> {
        let control = &streams.control;
        let mut looked = started;
        loop {
            match control.recv_timeout(TICK) {
                Ok(line) => heard.take(&line, started),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
            }
            let ended = qemu.child.try_wait().ok().flatten();
            if ended.is_some() {
                // The last line may have arrived between the two checks. The stream is at its end.
                control.iter().for_each(|line| heard.take(&line, started));
            }
            if let Some((status, at)) = heard.exit
                && (ended.is_some() || at.elapsed() > POWER_OFF)
            {
                return Ok(status);
            }
            if let Some(status) = ended {
                return Err(End::Died(format!("QEMU ended with {status}")));
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(End::Interrupted);
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                if ran_stale_code(&streams.console.text_so_far()) {
                    return Err(End::EmulatorFault { command_started: heard.boot.is_some() });
                }
            }
            if let Some(limit) = self.timeout.filter(|&limit| started.elapsed() > limit) {
                return Err(End::TimedOut(limit));
            }
        }
    }
}

/// What the guest reported on its control port.
#[derive(Default)]
struct Heard {
    /// When it was ready for the command.
    boot: Option<Duration>,
    /// The command's status, and when it arrived.
    exit: Option<(i32, Instant)>,
}

impl Heard {
    fn take(&mut self, line: &str, started: Instant) {
        if let Some(status) = line.strip_prefix("exit ") {
            self.exit = status.parse().ok().map(|status| (status, Instant::now()));
        } else if line == "ready" {
            self.boot = Some(started.elapsed());
        }
    }
}

/// Waits until QEMU connects, or ends.
fn connect(qemu: &mut Qemu, port: &Port, messages: Option<&Reader>) -> Result<UnixStream> {
    loop {
        if let Some(stream) = port.try_accept()? {
            return Ok(stream);
        }
        if let Ok(Some(status)) = qemu.child.try_wait() {
            // Its last messages may still be on their way.
            thread::sleep(TICK);
            let said = messages.map(Reader::text_so_far).unwrap_or_default();
            let end = End::Died(format!("QEMU ended with {status}"));
            return Err(Error::Guest { end, console: last_lines("", &said) });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The lines of a stream, read in a separate thread.
fn lines_of(stream: UnixStream) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(16);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
