//! A database server under the load of its own benchmark, in the guest.

mod load;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use thermocline_lab::programs::residency::{data_range, largest_mapping};
use thermocline_lab::{DISK, DataSet, Database};

use super::counted::Counted;
use super::plan::{Plan, Start};
use super::program::starter;
use crate::experiments::within::{self, PROC, widen};

/// Time limit for a server's first answer, and for its end.
const START_MAX: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(200);
/// Folder of sockets and scripts, in the guest's memory.
const FOLDER: &str = "/tmp";
/// The server's log.
const LOG: &str = "/tmp/server.log";

/// A server that has read its data, and its load.
pub(crate) struct Served {
    set: DataSet,
    server: Child,
    /// The process whose page table shows where the data is.
    pid: u32,
    /// The connection that read the data, kept open.
    session: Option<Child>,
    input: Option<ChildStdin>,
    seed: u64,
    zipf: f64,
    load: Option<Counted>,
}

impl Served {
    /// Starts the server and has it read all of its data.
    pub(crate) fn start(set: DataSet, plan: &Plan) -> anyhow::Result<Served> {
        let mut server = server(set, plan.start)?;
        let begin = Instant::now();
        while !answers(set)? {
            let log = || fs::read_to_string(LOG).unwrap_or_default();
            ensure!(server.try_wait()?.is_none(), "the server has ended: {}", log());
            ensure!(
                begin.elapsed() < START_MAX,
                "the server does not answer within {START_MAX:?}: {}",
                log()
            );
            thread::sleep(NAP);
        }
        let mut served = Served {
            set,
            pid: server.id(),
            server,
            session: None,
            input: None,
            seed: plan.seed,
            zipf: plan.zipf,
            load: None,
        };
        served.fill()?;
        if plan.start == Start::Slow {
            widen(served.pid)?;
        }
        Ok(served)
    }

    /// Reads all tables and indexes. The kernel's cache of their files is dropped repeatedly
    /// meanwhile, because it would take DRAM from the server's own memory.
    fn fill(&mut self) -> anyhow::Result<()> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // If it fails, only space is lost.
                    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
                    thread::sleep(NAP / 2);
                }
            });
            let filled = match self.set.database {
                Database::PostgreSql => self.fill_postgresql(),
                Database::MariaDb => fill_mariadb(),
            };
            over.store(true, Ordering::Relaxed);
            filled
        })
    }

    /// Reads through one connection, which then has all of the shared memory in its page table, and
    /// stays open.
    fn fill_postgresql(&mut self) -> anyhow::Result<()> {
        let mut session = program(self.set.database, "psql");
        session.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            FOLDER,
            "-U",
            "lab",
            "postgres",
        ]);
        let mut session =
            session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start psql")?;
        let mut input = session.stdin.take().context("psql's input is not piped")?;
        let output = session.stdout.take().context("psql's output is not piped")?;
        self.session = Some(session);
        input
            .write_all(
                b"SELECT pg_backend_pid();\n\
                  SELECT pg_prewarm(oid::regclass) FROM pg_class WHERE relname LIKE 'pgbench_%' AND relkind IN ('r', 'i') ORDER BY relkind DESC, relname;\n\
                  SELECT 'done';\n",
            )
            .and_then(|()| input.flush())
            .context("cannot speak to psql")?;
        self.input = Some(input);
        let mut blocks = 0;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot hear psql")?;
            match line.parse::<u64>() {
                Ok(pid) if blocks == 0 && self.pid == self.server.id() => {
                    self.pid = u32::try_from(pid).context("a process number")?;
                }
                Ok(more) => blocks += more,
                Err(_) if line == "done" => {
                    ensure!(blocks > 0, "PostgreSQL has read nothing");
                    return Ok(());
                }
                Err(_) => bail!("psql printed {line:?}"),
            }
        }
        bail!("psql has ended; its message is above")
    }

    /// The process whose page table shows where the data is: for PostgreSQL, one that maps all of
    /// it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Where the data is: PostgreSQL's shared memory, at the same addresses in all of its
    /// processes.
    pub(crate) fn range(&self) -> anyhow::Result<Range<u64>> {
        match self.set.database {
            Database::PostgreSql => largest_mapping(Path::new(PROC), self.pid),
            Database::MariaDb => data_range(Path::new(PROC), self.pid),
        }
    }

    /// The cgroup of all its processes, if there are several.
    pub(crate) fn cgroup(&self) -> anyhow::Result<Option<String>> {
        if self.set.database != Database::PostgreSql {
            return Ok(None);
        }
        within::cgroup(self.pid).map(Some)
    }

    /// Waits for this many more transactions; the load starts with the first call.
    pub(crate) fn run(&mut self, transactions: u64) -> anyhow::Result<u64> {
        if self.load.is_none() {
            self.load = Some(load::start(self.set, self.seed, self.zipf)?);
        }
        self.load.as_mut().context("no load")?.run(transactions)
    }

    /// Ends it. PostgreSQL is asked to end at once and without a checkpoint, because if killed it
    /// would leave processes that keep the processors busy for a while.
    pub(crate) fn end(&mut self) {
        self.input = None;
        let load = self.load.as_mut().map(|load| &mut load.child);
        // The guest ends with us: their exit status does not matter.
        for child in [load, self.session.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.set.database == Database::PostgreSql {
            let pid = rustix::process::Pid::from_child(&self.server);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
            let asked = Instant::now();
            while asked.elapsed() < START_MAX && matches!(self.server.try_wait(), Ok(None)) {
                thread::sleep(NAP);
            }
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A program on the disk.
fn program(database: Database, name: &str) -> Command {
    let disk = Path::new(DISK);
    let folders = database.programs().iter().map(|folder| disk.join(folder));
    let path = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| disk.join(name)));
    command.envs(database.environment(disk)).current_dir(FOLDER);
    command
}

fn server(set: DataSet, start: Start) -> anyhow::Result<Child> {
    let data = Path::new(DISK).join("data");
    let owner = fs::metadata(&data).with_context(|| format!("no database in {}", data.display()))?;
    let named = |command: &Command| command.get_program().to_string_lossy().into_owned();
    let data = data.display().to_string();
    let own: Vec<String> = match set.database {
        Database::PostgreSql => {
            let mut words = vec![named(&program(set.database, "postgres")), "-D".to_owned(), data];
            words.extend(postgresql_settings(set.scale).into_iter().flat_map(|s| ["-c".to_owned(), s]));
            words
        }
        Database::MariaDb => {
            let mut words = vec![named(&program(set.database, "mariadbd")), "--no-defaults".to_owned()];
            words.extend(mariadb_settings(set.scale, &data));
            words
        }
    };
    Command::new(starter(start))
        .args(["setpriv", &format!("--reuid={}", owner.uid()), &format!("--regid={}", owner.gid())])
        .args(["--clear-groups", "--"])
        .args(own)
        .envs(set.database.environment(Path::new(DISK)))
        .current_dir(FOLDER)
        .stdout(Stdio::null())
        .stderr(fs::File::create(LOG).with_context(|| format!("cannot write {LOG}"))?)
        .spawn()
        .context("cannot start the server")
}

/// All of the data fits into the shared buffers. The reserve of huge pages is not for it. Nothing
/// has to survive a crash, and PostgreSQL's background work would happen at different times under
/// each manager.
fn postgresql_settings(scale: u32) -> Vec<String> {
    let mut settings = vec![
        format!("shared_buffers={}MB", scale * 15 + 16 + scale),
        format!("unix_socket_directories={FOLDER}"),
    ];
    settings.extend(
        [
            "huge_pages=off",
            "listen_addresses=",
            "max_connections=20",
            "autovacuum=off",
            "jit=off",
            "fsync=off",
            "wal_level=minimal",
            "max_wal_senders=0",
            "max_wal_size=4GB",
            "checkpoint_timeout=1h",
        ]
        .map(str::to_owned),
    );
    settings
}

/// The same for MariaDB. It reads pages completely before writing them to disk, for their
/// checksums.
fn mariadb_settings(scale: u32, data: &str) -> Vec<String> {
    vec![
        format!("--basedir={DISK}/usr"),
        format!("--datadir={data}"),
        format!("--lc-messages-dir={DISK}/usr/share/mysql"),
        format!("--socket={}", mariadb_socket()),
        format!("--pid-file={FOLDER}/mariadb.pid"),
        format!("--innodb-buffer-pool-size={}M", scale * 16 + 32),
        "--innodb-buffer-pool-load-at-startup=0".to_owned(),
        "--innodb-flush-log-at-trx-commit=0".to_owned(),
        "--innodb-max-dirty-pages-pct=99".to_owned(),
        "--innodb-adaptive-flushing=0".to_owned(),
        "--skip-networking".to_owned(),
        "--skip-log-bin".to_owned(),
    ]
}

fn mariadb_socket() -> String {
    format!("{FOLDER}/mariadb.sock")
}

fn mariadb(statement: &str) -> Command {
    let mut client = program(Database::MariaDb, "mariadb");
    client.args(["--no-defaults", "-u", "root", "--socket", &mariadb_socket(), "-N", "-e", statement]);
    client
}

/// Whether the server accepts commands.
fn answers(set: DataSet) -> anyhow::Result<bool> {
    let mut client = match set.database {
        Database::PostgreSql => {
            let mut client = program(set.database, "psql");
            client.args(["-X", "-q", "-h", FOLDER, "-U", "lab", "-c", "SELECT 1", "postgres"]);
            client
        }
        Database::MariaDb => mariadb("SELECT 1"),
    };
    let status = client.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.context("cannot start the server's client")?.success())
}

fn fill_mariadb() -> anyhow::Result<()> {
    let read = "SELECT AVG(LENGTH(c)) FROM sbtest.sbtest1 FORCE INDEX (PRIMARY); \
                SELECT AVG(k) FROM sbtest.sbtest1 FORCE INDEX (k_1)";
    let status = mariadb(read).stdout(Stdio::null()).status().context("cannot start mariadb")?;
    ensure!(status.success(), "MariaDB could not read its table; its message is above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_of_huge_pages_is_left_alone() {
        let settings = postgresql_settings(26);
        assert!(
            settings.contains(&"huge_pages=off".to_owned())
                && settings.contains(&"shared_buffers=432MB".to_owned())
        );
    }
}
