//! How a guest is asked for, and what comes of it.

mod boot;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::machine::initramfs::quote;
use crate::machine::terminal::RawTerminal;
use crate::{Cache, Error, Line, Machine, Result, ThpMode};

/// Where a guest has the disk that [`GuestBuilder::disk`] gives it.
pub const DISK: &str = "/run/lab/disk";

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
            disk: None,
            systemd: false,
            environment: Vec::new(),
            forwards: Vec::new(),
            plugins: Vec::new(),
            plugin_socket: None,
            shared_memory: None,
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
    disk: Option<PathBuf>,
    systemd: bool,
    environment: Vec<(String, String)>,
    forwards: Vec<(u16, u16)>,
    plugins: Vec<String>,
    plugin_socket: Option<PathBuf>,
    shared_memory: Option<(PathBuf, u64)>,
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

    /// A host folder that the guest may write, at the same path in the guest, named there by
    /// `$LAB_SHARE`.
    pub fn share(mut self, folder: impl Into<PathBuf>) -> Self {
        self.share = Some(folder.into());
        self
    }

    /// The image of an ext4 file system that the guest has at [`DISK`](crate::DISK); what it writes
    /// there is forgotten.
    pub fn disk(mut self, image: impl Into<PathBuf>) -> Self {
        self.disk = Some(image.into());
        self
    }

    /// Has systemd be the guest's first process, as on a server. The command is a unit of it, and
    /// no other unit starts by itself.
    pub fn systemd(mut self) -> Self {
        self.systemd = true;
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

    /// Shows the guest a file of so many bytes, a power of two, as the memory of a PCI device
    /// (QEMU's ivshmem, 1af4:1110, resource 2).
    pub fn shared_memory(mut self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.shared_memory = Some((path.into(), bytes));
        self
    }

    /// Offers the guest's `/dev/virtio-ports/lab.plugin` as a listening Unix socket of the host,
    /// for a plugin to connect to.
    pub fn plugin_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_socket = Some(path.into());
        self
    }

    /// Where the command's output goes.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Prints the kernel's console, and what QEMU and its plugins say, to standard error as it
    /// comes.
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
    /// If the emulator makes the guest's kernel panic
    /// ([`End::EmulatorFault`](crate::End::EmulatorFault)), everything is begun anew up to four
    /// times: always before the command started, and afterwards if its output is only captured.
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

    /// Whether the guest's slow nodes are brought by a driver of devices.
    pub(crate) fn has_devices(&self) -> bool {
        !self.line.reads_hmat() && !self.machine.device_words().is_empty()
    }

    /// The kernel's command line. The guest is nobody's but ours: no mitigations, and a panic ends
    /// it at once.
    ///
    /// The kernel's image is in the same place in every boot: where it is decides how much a small
    /// node has left. Programs lie at addresses that are not random either, because the emulator
    /// keeps what it has translated by virtual address: with random ones, a page of a library that
    /// was loaded a hundred times has a hundred translations of everything, and whoever gets the
    /// page later writes to it for up to half a second. Only under a plugin they are random, since
    /// it is by their addresses that it tells programs apart.
    fn kernel_arguments(&self) -> String {
        let thp = self.thp.name();
        let mut line = format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off nokaslr transparent_hugepage={thp}"
        );
        if self.plugins.is_empty() {
            line.push_str(" norandmaps");
        }
        let devices = self.has_devices().then(|| self.machine.device_words());
        for more in devices.iter().chain(&self.append) {
            line.push(' ');
            line.push_str(more);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_here_with_its_words_and_environment_whole() {
        let guest = Guest::builder().env("WHO", "it's me");
        let script =
            guest.command(&["sh", "-c", "pwd; printf '%s\\n' \"$WHO\" \"$1\"", "sh", "a  b"]).unwrap();
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\nit's me\na  b\n", here.display()));
    }

    #[test]
    fn names_that_no_shell_takes_are_refused() {
        for name in ["", "1A", "A-B", "A;reboot"] {
            assert!(Guest::builder().env(name, "x").command(&["true"]).is_err(), "{name}");
        }
    }

    #[test]
    fn the_kernel_is_told_of_huge_pages_and_whatever_else_is_asked() {
        let line = Guest::builder().thp(ThpMode::Never).append("numa_balancing=disable").kernel_arguments();
        assert!(line.contains("panic=-1") && line.contains("transparent_hugepage=never"), "{line}");
        assert!(line.ends_with(" numa_balancing=disable") && line.contains("norandmaps"), "{line}");
        assert!(!Guest::builder().plugin("misses.so").kernel_arguments().contains("norandmaps"));
    }
}
