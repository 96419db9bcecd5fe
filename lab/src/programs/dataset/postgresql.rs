//! PostgreSQL with the tables of pgbench.

use super::DataSet;
use super::host::Host;
use crate::Result;

/// Accounts for each unit of pgbench's scale (PostgreSQL 15, pgbench: `naccounts`).
pub(super) const ROWS_PER_SCALE: u64 = 100_000;

pub(super) fn fill(host: &Host, set: DataSet) -> Result<()> {
    let (data, sockets) = (host.data.display().to_string(), host.sockets.display().to_string());
    let files = ["-D", &data, "--no-sync", "--no-locale", "-E", "UTF8"];
    host.run("initdb", &[&files[..], &["-U", "lab", "-A", "trust"]].concat())?;
    let mut server = host.command("postgres");
    server.args(["-D", &data]);
    for setting in [
        "listen_addresses=",
        &format!("unix_socket_directories={sockets}"),
        "fsync=off",
        "shared_buffers=256MB",
        // Little of the log stays behind in the image.
        "wal_level=minimal",
        "max_wal_senders=0",
        "max_wal_size=64MB",
    ] {
        server.args(["-c", setting]);
    }
    let at = ["-h", &sockets, "-U", "lab"];
    let sql = |command: &str| {
        host.run(
            "psql",
            &[&at[..], &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", command, "postgres"]].concat(),
        )
    };
    let scale = set.scale.to_string();
    host.serve(
        server,
        || sql("SELECT 1"),
        || {
            host.run("pgbench", &[&at[..], &["-i", "-q", "-s", &scale, "postgres"]].concat())?;
            // What reads the tables into memory in the guest.
            sql("CREATE EXTENSION pg_prewarm").map(drop)
        },
    )
}
