//! Programs of an image, run on the host.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Database;
use crate::machine::apt::text_of;
use crate::{Error, Result};

/// nobody and nogroup of Debian: database servers refuse to run as root.
const NOBODY: u32 = 65534;
/// How long a server may take to answer or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where programs run.
pub(super) struct Host<'a> {
    database: Database,
    root: &'a Path,
    /// Where sockets are.
    pub(super) sockets: PathBuf,
    /// Where the database's files are to be.
    pub(super) data: PathBuf,
    as_nobody: bool,
}

impl<'a> Host<'a> {
    /// Creates the folders; `scratch` is for temporary files.
    pub(super) fn new(database: Database, root: &'a Path, scratch: &Path) -> Result<Host<'a>> {
        let as_nobody = rustix::process::geteuid().is_root();
        let (sockets, data) = (scratch.join("run"), root.join("data"));
        for folder in [&sockets, &data] {
            fs::create_dir(folder).map_err(Error::file("create", folder))?;
            if as_nobody {
                chown(folder, Some(NOBODY), Some(NOBODY)).map_err(Error::file("give away", folder))?;
            }
        }
        Ok(Host { database, root, sockets, data, as_nobody })
    }

    /// A program of the image, not as root.
    pub(super) fn command(&self, program: &str) -> Command {
        let folders = self.database.programs().iter().map(|folder| self.root.join(folder));
        let path = folders.map(|folder| folder.join(program)).find(|path| path.exists());
        let path = path.unwrap_or_else(|| PathBuf::from(program));
        let mut command = match self.as_nobody {
            true => {
                let mut command = Command::new("setpriv");
                let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
                command.args([&user, &group, "--clear-groups", "--"]).arg(path);
                command
            }
            false => Command::new(path),
        };
        command.envs(self.database.environment(self.root)).env("HOME", &self.data).current_dir(&self.sockets);
        command
    }

    /// Runs a program to its end; what it printed.
    pub(super) fn run(&self, program: &'static str, arguments: &[&str]) -> Result<String> {
        text_of(self.command(program).args(arguments), program, self.database.packages()[0])
    }

    /// Starts a server, has `fill` use it as soon as `ready` succeeds, and ends it.
    pub(super) fn serve(
        &self,
        mut server: Command,
        ready: impl Fn() -> Result<String>,
        fill: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let log = self.sockets.join("log");
        let file = fs::File::create(&log).map_err(Error::file("create", &log))?;
        let copy = file.try_clone().map_err(Error::file("write", &log))?;
        let failed = |status: String| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let stderr = lines[lines.len().saturating_sub(6)..].join("; ");
            Error::Program { program: "the server".to_owned(), status, stderr }
        };
        server.stdin(Stdio::null()).stdout(file).stderr(copy);
        let mut server = Killed(server.spawn().map_err(Error::file("run", self.root))?);
        let begin = Instant::now();
        while let Err(error) = ready() {
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(failed(status.to_string()));
            }
            if begin.elapsed() > PATIENCE {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(200));
        }
        fill()?;
        let pid = rustix::process::Pid::from_child(&server.0);
        // Both servers shut down cleanly at this signal once their clients are gone.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            match server.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(failed(status.to_string())),
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
        Err(failed(format!("it does not end within {PATIENCE:?}")))
    }
}

/// A child that does not outlive us.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
