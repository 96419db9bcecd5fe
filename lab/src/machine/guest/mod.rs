//! The description of a guest, and the result of running it.

mod boot;
mod console;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::machine::initramfs::quote;
use crate::machine::terminal::RawTerminal;
use crate::{Cache, Error, Line, Machine, Result, ThpMode};

/// Where a guest mounts the disk that [`GuestBuilder::disk`] gives it.
pub const DISK: &str = "/run/lab/disk";

/// Where a command's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Only into the [`Outcome`].
    #[default]
    Capture,
    /// Also to our own standard output and error, as it arrives.
    Inherit,
}

/// The result of a command in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit status, 128 + N if signal N killed it.
    pub status: i32,
    /// Its standard output, at most the first 16 MiB.
    pub stdout: String,
    /// Its standard error, at most the first 16 MiB.
    pub stderr: String,
    /// Bytes of output that were not kept.
    pub dropped_bytes: u64,
    /// What the guest's kernel printed.
    pub console: String,
    /// The kernel's release.
    pub release: String,
    /// From QEMU's start to the command's start.
    pub boot: Duration,
    /// From QEMU's start to its end.
    pub total: Duration,
}

/// A machine to run commands in; see [`Guest::builder`].
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// Starts with the default machine, the 6.12 kernel and a time limit of 300 s.
    pub fn builder() -> GuestBuilder {
        GuestBuilder {
            cache: Cache::of_user(),
            line: Line::default(),
            machine: Machine::default(),
            thp: ThpMode::default(),
            append: Vec::new(),
            timeout: Some(Duration::from_secs(300)),
            root: PathBuf::from("/"),
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

/// The description of a guest. Every method replaces or adds one choice.
#[derive(Debug, Clone)]
pub struct GuestBuilder {
    cache: Cache,
    line: Line,
    machine: Machine,
    thp: ThpMode,
    append: Vec<String>,
    timeout: Option<Duration>,
    root: PathBuf,
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
    /// Sets where kernels and the guest lock are.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    /// Sets the line of kernels to boot.
    pub fn kernel(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Sets nodes, processors and tiers.
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// Sets the mode of transparent huge pages.
    pub fn thp(mut self, thp: ThpMode) -> Self {
        self.thp = thp;
        self
    }

    /// Adds to the kernel's command line.
    pub fn append(mut self, arguments: impl Into<String>) -> Self {
        self.append.push(arguments.into());
        self
    }

    /// Sets the time limit; `None` is no limit.
    pub fn timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeout = limit;
        self
    }

    /// Boots the system in this folder of the host, such as another release of Debian, instead of
    /// the host's own. The guest sees none of the host's files then, except in the shared folder;
    /// kernel modules are not to be had, and the command begins in `/`.
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = folder.into();
        self
    }

    /// Gives the guest write access to a host folder, at the same path in the guest. `$LAB_SHARE`
    /// names it there.
    pub fn share(mut self, folder: impl Into<PathBuf>) -> Self {
        self.share = Some(folder.into());
        self
    }

    /// Gives the guest a disk: the image of an ext4 file system, at [`DISK`](crate::DISK). What the
    /// guest writes to it is discarded.
    pub fn disk(mut self, image: impl Into<PathBuf>) -> Self {
        self.disk = Some(image.into());
        self
    }

    /// Makes systemd the guest's first process, as on a server. The command is one of its units,
    /// and no other unit starts by itself.
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

    /// Maps a file of `bytes` bytes, a power of two, into the guest as the memory of a PCI device
    /// (QEMU's ivshmem, 1af4:1110, resource 2).
    pub fn shared_memory(mut self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.shared_memory = Some((path.into(), bytes));
        self
    }

    /// Connects the guest's `/dev/virtio-ports/lab.plugin` to a listening Unix socket on the host,
    /// for a plugin to connect to.
    pub fn plugin_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_socket = Some(path.into());
        self
    }

    /// Sets where the command's output goes.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Prints the kernel's console, and the messages of QEMU and its plugins, to standard error as
    /// they arrive.
    pub fn echo_console(mut self, echo: bool) -> Self {
        self.echo_console = echo;
        self
    }

    /// Ends the guest soon after the flag is set.
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = flag;
        self
    }

    /// Boots, runs a shell script with the host's `/bin/sh`, and powers off.
    ///
    /// If the emulator makes the guest's kernel panic
    /// ([`End::EmulatorFault`](crate::End::EmulatorFault)), the guest is booted again up to seven
    /// times: always if the command had not started, otherwise only if its output is captured and
    /// not also printed.
    ///
    /// # Errors
    /// All errors except a failure of the script itself, which is its [`Outcome::status`].
    pub fn run(&self, script: &str) -> Result<Outcome> {
        self.exec(&["/bin/sh", "-c", script])
    }

    /// Boots, runs a program found on the guest's PATH in our working folder, and powers off.
    ///
    /// # Errors
    /// All errors except a failure of the program itself, which is its [`Outcome::status`].
    pub fn exec<S: AsRef<str>>(&self, words: &[S]) -> Result<Outcome> {
        self.boot(&self.command(words)?, None)
    }

    /// Boots an interactive shell on our terminal, until the shell ends.
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

    /// The script that changes to our working folder and executes the command.
    fn command<S: AsRef<str>>(&self, words: &[S]) -> Result<String> {
        let folder = if self.root == Path::new("/") {
            std::env::current_dir().map_err(Error::file("find", "the working folder"))?
        } else {
            // Another system has no such folder.
            PathBuf::from("/")
        };
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

    /// Whether a device driver adds the guest's slow nodes.
    pub(crate) fn has_devices(&self) -> bool {
        !self.line.reads_hmat() && !self.machine.device_words().is_empty()
    }

    /// The kernel's command line. Only we use the guest, so it has no mitigations, and a panic ends
    /// it at once.
    ///
    /// The kernel's image is at the same address in every boot, because its place determines how
    /// much room a small node has left. Programs are not at random addresses either. The emulator
    /// caches translations by virtual address, so with random addresses a page of a library that
    /// was loaded a hundred times has a hundred translations of all its code. Whoever uses that
    /// page next needs up to half a second to write to it. Addresses are random only under a
    /// plugin, because the plugin distinguishes programs by their addresses.
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
