//! From QEMU's start to its end.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{GuestBuilder, Outcome, Output};
use crate::channel::{Kept, Port, Reader, Sink};
use crate::fetch::cached_or_fetched;
use crate::initramfs::{self, Settings};
use crate::qemu::{Qemu, Setup};
use crate::terminal::RawTerminal;
use crate::{End, Error, Result};

/// What is printed of a console that ended badly.
const CONSOLE_LINES_MAX: usize = 40;
/// How long a guest may take from its command's end to its power-off.
const POWER_OFF: Duration = Duration::from_secs(10);
/// How often signals and QEMU's end are looked for.
const TICK: Duration = Duration::from_millis(20);

/// The sockets that QEMU connects to.
struct Ports {
    console: Port,
    control: Port,
    stdout: Port,
    stderr: Port,
    terminal: Option<Port>,
}

/// The streams that came of them.
struct Streams {
    /// What QEMU itself says.
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

impl GuestBuilder {
    /// Boots, runs the shell script `command` and powers off.
    pub(super) fn boot(&self, command: &str, terminal: Option<&RawTerminal>) -> Result<Outcome> {
        self.machine.check()?;
        let kernel = cached_or_fetched(&self.cache, self.line)?;
        let _lock = self.cache.guest_lock()?;
        // Sockets need short paths, which a temporary folder of the user's choice may not have.
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
            terminal: terminal.map(|terminal| terminal.size.as_str()),
            net: !self.forwards.is_empty(),
        };
        let initrd = folder.path().join("initrd");
        fs::write(&initrd, initramfs::build(&kernel, &settings)?).map_err(Error::file("write", &initrd))?;
        let ports = Ports::listen(folder.path(), terminal.is_some())?;
        let setup = Setup {
            machine: &self.machine,
            image: kernel.image(),
            initrd,
            kernel_arguments: self.kernel_arguments(),
            console: ports.console.path(),
            ports: ports.named(),
            plugin_port: self.plugin_socket.as_deref(),
            terminal: ports.terminal.as_ref().map(Port::path),
            share: share.as_deref(),
            forwards: &self.forwards,
            plugins: &self.plugins,
        };

        let started = Instant::now();
        let mut qemu = setup.spawn()?;
        let streams = Streams::connect(self, &mut qemu, &ports, terminal)?;
        let watched = self.watch(&mut qemu, &streams.control, started);
        drop(qemu);
        finish(watched, streams, kernel.release(), started)
    }

    /// Waits for the command's status and the power-off. Gives the status and how long the boot took.
    fn watch(
        &self,
        qemu: &mut Qemu,
        control: &Receiver<String>,
        started: Instant,
    ) -> std::result::Result<(i32, Duration), End> {
        let mut heard = Heard::default();
        loop {
            match control.recv_timeout(TICK) {
                Ok(line) => heard.take(&line, started),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
            }
            let ended = qemu.child.try_wait().ok().flatten();
            if ended.is_some() {
                // The last line may have come between the two looks; the stream is at its end.
                control.iter().for_each(|line| heard.take(&line, started));
            }
            if let Some((status, at)) = heard.exit
                && (ended.is_some() || at.elapsed() > POWER_OFF)
            {
                return Ok((status, heard.boot.unwrap_or_else(|| started.elapsed())));
            }
            if let Some(status) = ended {
                return Err(End::Died(format!("QEMU ended with {status}")));
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(End::Interrupted);
            }
            if let Some(limit) = self.timeout.filter(|&limit| started.elapsed() > limit) {
                return Err(End::TimedOut(limit));
            }
        }
    }
}

/// What the guest said on its control port.
#[derive(Default)]
struct Heard {
    /// When it was ready for the command.
    boot: Option<Duration>,
    /// The command's status, and when it came.
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

/// Takes what the streams brought, QEMU having ended, and makes the outcome of it.
fn finish(
    watched: std::result::Result<(i32, Duration), End>,
    streams: Streams,
    release: &str,
    started: Instant,
) -> Result<Outcome> {
    let text = |kept: &Kept| String::from_utf8_lossy(&kept.bytes).into_owned();
    let (stdout, stderr) = (streams.stdout.finish(), streams.stderr.finish());
    let console = text(&streams.console.finish());
    let messages = streams.messages.map(Reader::finish).unwrap_or_default();
    if let Some(terminal) = streams.terminal {
        terminal.finish();
    }
    match watched {
        Ok((status, boot)) => Ok(Outcome {
            status,
            stdout: text(&stdout),
            stderr: text(&stderr),
            dropped_bytes: stdout.dropped + stderr.dropped,
            console,
            release: release.to_owned(),
            boot,
            total: started.elapsed(),
        }),
        Err(end) => {
            let panicked = matches!(end, End::Died(_)) && console.contains("Kernel panic");
            let end = if panicked { End::Panicked } else { end };
            Err(Error::Guest { end, console: last_lines(&console, &text(&messages)) })
        }
    }
}

/// Waits for QEMU to connect, or to end.
fn connect(qemu: &mut Qemu, port: &Port, messages: Option<&Reader>) -> Result<UnixStream> {
    loop {
        if let Some(stream) = port.try_accept()? {
            return Ok(stream);
        }
        if let Ok(Some(status)) = qemu.child.try_wait() {
            // Its last words may still be on their way.
            thread::sleep(TICK);
            let said = messages.map(Reader::text_so_far).unwrap_or_default();
            let end = End::Died(format!("QEMU ended with {status}"));
            return Err(Error::Guest { end, console: last_lines("", &said) });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The lines of a stream, read on a thread of their own.
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

/// The end of a console and of what QEMU said, for a person to read.
fn last_lines(console: &str, messages: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let mut text = String::new();
    if lines.is_empty() {
        text.push_str("its console is empty");
    } else {
        text.push_str("the last lines of its console:");
    }
    for line in &lines[lines.len().saturating_sub(CONSOLE_LINES_MAX)..] {
        text.push_str("\n  ");
        text.push_str(line.trim_end());
    }
    if !messages.trim().is_empty() {
        text.push_str("\nQEMU said: ");
        text.push_str(messages.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_end_shows_the_last_lines_and_what_qemu_said() {
        let console: String = (0..100).map(|n| format!("line {n}\r\n")).collect();
        let text = last_lines(&console, "no such device\n");
        assert!(
            text.contains("\n  line 99\n") && text.contains("\n  line 60\n") && !text.contains("line 59")
        );
        assert!(text.ends_with("QEMU said: no such device"), "{text}");
        assert_eq!(last_lines("", ""), "its console is empty");
    }
}
