//! Boots a guest, runs one command in it and takes its status.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{Kept, Port, Reader, Sink};
use crate::fetch::cached_or_fetched;
use crate::initramfs::{self, Settings, quote};
use crate::qemu::{Qemu, Setup};
use crate::terminal::RawTerminal;
use crate::{Cache, End, Error, Line, Machine, Result, ThpMode};

/// What is printed of a console that ended badly.
const CONSOLE_LINES_MAX: usize = 40;
/// How long a guest may take from its command's end to its power-off.
const POWER_OFF: Duration = Duration::from_secs(10);
/// How often signals and QEMU's end are looked for.
const TICK: Duration = Duration::from_millis(20);

/// Where a command's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Only into the [`Outcome`].
    #[default]
    Capture,
    /// Also to our own standard output and error, as it comes.
    Inherit,
}

/// What a command in a guest came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit status, 128 + N if signal N killed it.
    pub status: i32,
    /// Its standard output, at most 16 MiB of it.
    pub stdout: String,
    /// Its standard error, at most 16 MiB of it.
    pub stderr: String,
    /// Bytes of output that were not kept.
    pub dropped_bytes: u64,
    /// What the guest's kernel printed.
    pub console: String,
    /// The kernel's release.
    pub release: String,
    /// From QEMU's start until the command's start.
    pub boot: Duration,
    /// From QEMU's start until its end.
    pub total: Duration,
}

/// A machine to run commands in; see [`Guest::builder`].
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// Begins with the default machine, the 6.12 kernel and a time limit of 300 s.
    pub fn builder() -> GuestBuilder {
        GuestBuilder {
            cache: Cache::of_user(),
            line: Line::default(),
            machine: Machine::default(),
            thp: ThpMode::default(),
            append: Vec::new(),
            timeout: Some(Duration::from_secs(300)),
            share: None,
            environment: Vec::new(),
            forwards: Vec::new(),
            plugins: Vec::new(),
            plugin_socket: None,
            output: Output::default(),
            echo_console: false,
            interrupt: Arc::new(AtomicBool::new(false)),
        }
    }
}

/// How a guest is to be; every method replaces or adds one choice.
#[derive(Debug, Clone)]
pub struct GuestBuilder {
    cache: Cache,
    line: Line,
    machine: Machine,
    thp: ThpMode,
    append: Vec<String>,
    timeout: Option<Duration>,
    share: Option<PathBuf>,
    environment: Vec<(String, String)>,
    forwards: Vec<(u16, u16)>,
    plugins: Vec<String>,
    plugin_socket: Option<PathBuf>,
    output: Output,
    echo_console: bool,
    interrupt: Arc<AtomicBool>,
}

impl GuestBuilder {
    /// Where kernels and the guest lock are.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    /// Which line of kernels to boot.
    pub fn kernel(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Nodes, processors and tiers.
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// Transparent huge pages.
    pub fn thp(mut self, thp: ThpMode) -> Self {
        self.thp = thp;
        self
    }

    /// Adds to the kernel's command line.
    pub fn append(mut self, arguments: impl Into<String>) -> Self {
        self.append.push(arguments.into());
        self
    }

    /// Ends the guest after this long; `None` never does.
    pub fn timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeout = limit;
        self
    }

    /// A host folder that the guest may write, at the same path in the guest, named there by `$LAB_SHARE`.
    pub fn share(mut self, folder: impl Into<PathBuf>) -> Self {
        self.share = Some(folder.into());
        self
    }

    /// Sets a variable in the command's environment.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Passes a TCP port of the host's loopback to the guest.
    pub fn forward(mut self, host: u16, guest: u16) -> Self {
        self.forwards.push((host, guest));
        self
    }

    /// Loads a TCG plugin into QEMU: `PATH[,key=value]...`.
    pub fn plugin(mut self, plugin: impl Into<String>) -> Self {
        self.plugins.push(plugin.into());
        self
    }

    /// Offers the guest's `/dev/virtio-ports/lab.plugin` as a listening Unix socket of the host, for a plugin to connect to.
    pub fn plugin_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_socket = Some(path.into());
        self
    }

    /// Where the command's output goes.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Prints the kernel's console, and what QEMU and its plugins say, to standard error as it comes.
    pub fn echo_console(mut self, echo: bool) -> Self {
        self.echo_console = echo;
        self
    }

    /// Ends the guest soon after the flag becomes true.
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = flag;
        self
    }

    /// Boots, runs a shell script with the host's `/bin/sh`, and powers off.
    ///
    /// # Errors
    /// Everything but the script's own failure, which is its [`Outcome::status`].
    pub fn run(&self, script: &str) -> Result<Outcome> {
        self.exec(&["/bin/sh", "-c", script])
    }

    /// Boots, runs a program found on the guest's PATH in our working folder, and powers off.
    ///
    /// # Errors
    /// Everything but the program's own failure, which is its [`Outcome::status`].
    pub fn exec<S: AsRef<str>>(&self, words: &[S]) -> Result<Outcome> {
        self.boot(&self.command(words)?, None)
    }

    /// Boots and gives an interactive shell on our terminal until it ends.
    ///
    /// # Errors
    /// As [`GuestBuilder::exec`].
    pub fn shell(&self) -> Result<Outcome> {
        let shell = "if [ -x /bin/bash ]; then exec bash -i; fi; exec sh -i";
        let mut guest = self.clone();
        if let Ok(kind) = std::env::var("TERM") {
            guest = guest.env("TERM", kind);
        }
        let command = guest.command(&["/bin/sh", "-c", shell])?;
        let terminal = RawTerminal::enter()?;
        guest.boot(&command, Some(&terminal))
    }

    /// The script that enters our working folder and becomes the command.
    fn command<S: AsRef<str>>(&self, words: &[S]) -> Result<String> {
        let folder = std::env::current_dir().map_err(Error::file("find", "the working folder"))?;
        let mut script = format!("cd {} || exit 126\n", quote(&folder.to_string_lossy()));
        for (name, value) in &self.environment {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(Error::BadMachine(format!(
                    "`{name}` is not the name of an environment variable"
                )));
            }
            script.push_str(&format!("export {name}={}\n", quote(value)));
        }
        script.push_str("exec");
        for word in words {
            script.push(' ');
            script.push_str(&quote(word.as_ref()));
        }
        script.push('\n');
        Ok(script)
    }

    fn boot(&self, command: &str, terminal: Option<&RawTerminal>) -> Result<Outcome> {
        self.machine.check()?;
        let kernel = cached_or_fetched(&self.cache, self.line)?;
        let _lock = self.cache.guest_lock()?;
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

        let listen = |name| Port::listen(folder.path(), name);
        let console = listen("console")?;
        let control = listen("lab.control")?;
        let stdout = listen("lab.stdout")?;
        let stderr = listen("lab.stderr")?;
        let terminal_port = terminal.is_some().then(|| listen("terminal")).transpose()?;
        let ports = vec![
            ("lab.control", control.path()),
            ("lab.stdout", stdout.path()),
            ("lab.stderr", stderr.path()),
        ];
        let setup = Setup {
            machine: &self.machine,
            image: kernel.image(),
            initrd,
            kernel_arguments: self.kernel_arguments(),
            console: console.path(),
            ports,
            plugin_port: self.plugin_socket.as_deref(),
            terminal: terminal_port.as_ref().map(Port::path),
            share: share.as_deref(),
            forwards: &self.forwards,
            plugins: &self.plugins,
        };

        let started = Instant::now();
        let mut qemu = setup.spawn()?;
        let inherit = self.output == Output::Inherit;
        let sink = |wanted: bool, stream: fn() -> Sink| wanted.then(stream);
        let err: fn() -> Sink = || Box::new(io::stderr());
        let messages = qemu.child.stderr.take();
        let messages = messages.map(|stream| Reader::start(stream, sink(self.echo_console, err)));
        let connect = |qemu: &mut Qemu, port: &Port| connect(qemu, port, messages.as_ref());
        let console = Reader::start(connect(&mut qemu, &console)?, sink(self.echo_console, err));
        let control = lines_of(connect(&mut qemu, &control)?);
        let stdout = Reader::start(connect(&mut qemu, &stdout)?, sink(inherit, || Box::new(io::stdout())));
        let stderr = Reader::start(connect(&mut qemu, &stderr)?, sink(inherit, err));
        let terminal = match (terminal, &terminal_port) {
            (Some(terminal), Some(port)) => Some(terminal.join(connect(&mut qemu, port)?)?),
            _ => None,
        };

        let watched = self.watch(&mut qemu, &control, started);
        drop(qemu);
        let text = |kept: &Kept| String::from_utf8_lossy(&kept.bytes).into_owned();
        let (stdout, stderr, console) = (stdout.finish(), stderr.finish(), text(&console.finish()));
        let messages = messages.map(Reader::finish).unwrap_or_default();
        if let Some(terminal) = terminal {
            terminal.finish();
        }
        match watched {
            Ok((status, boot)) => Ok(Outcome {
                status,
                stdout: text(&stdout),
                stderr: text(&stderr),
                dropped_bytes: stdout.dropped + stderr.dropped,
                console,
                release: kernel.release().to_owned(),
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

    /// Waits for the command's status and the power-off.
    fn watch(
        &self,
        qemu: &mut Qemu,
        control: &Receiver<String>,
        started: Instant,
    ) -> std::result::Result<(i32, Duration), End> {
        let mut boot = None;
        let mut exited: Option<(i32, Instant)> = None;
        loop {
            match control.recv_timeout(TICK) {
                Ok(line) => match line.split_once(' ') {
                    None if line == "ready" => boot = Some(started.elapsed()),
                    Some(("exit", status)) => {
                        exited = status.parse().ok().map(|status| (status, Instant::now()))
                    }
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
            }
            let ended = qemu.child.try_wait().ok().flatten();
            if ended.is_some() {
                // The last line may have come between the two looks.
                while let Ok(line) = control.recv() {
                    if let Some(status) = line.strip_prefix("exit ").and_then(|status| status.parse().ok()) {
                        exited = Some((status, Instant::now()));
                    }
                }
            }
            if let Some((status, at)) = exited
                && (ended.is_some() || at.elapsed() > POWER_OFF)
            {
                return Ok((status, boot.unwrap_or_else(|| started.elapsed())));
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

    /// The kernel's command line. The guest is nobody's but ours: no mitigations, and a panic ends it at once.
    fn kernel_arguments(&self) -> String {
        let thp = self.thp.name();
        let mut line = format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off transparent_hugepage={thp}"
        );
        for more in &self.append {
            line.push(' ');
            line.push_str(more);
        }
        line
    }
}

/// Waits for QEMU to connect, or to end.
fn connect(qemu: &mut Qemu, port: &Port, messages: Option<&Reader>) -> Result<UnixStream> {
    loop {
        if let Some(stream) = port.try_accept()? {
            return Ok(stream);
        }
        if let Ok(Some(status)) = qemu.child.try_wait() {
            thread::sleep(TICK);
            let said = messages.map(Reader::text_so_far).unwrap_or_default();
            return Err(Error::Guest { end: End::Died(format!("QEMU ended with {status}")), console: said });
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
    let mut text = String::from("the last lines of its console:");
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
