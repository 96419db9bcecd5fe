//! MariaDB with the table of sysbench's OLTP.

use super::DataSet;
use super::host::Host;
use crate::Result;

/// Rows for each 15 MiB or so of table and index.
pub(super) const ROWS_PER_SCALE: u64 = 65_000;

pub(super) fn fill(host: &Host, set: DataSet) -> Result<()> {
    let root = host.data.parent().unwrap_or(&host.data).join("usr").display().to_string();
    let (data, socket) = (format!("--datadir={}", host.data.display()), host.sockets.join("socket"));
    let socket = socket.display().to_string();
    let (base, share) = (format!("--basedir={root}"), format!("--lc-messages-dir={root}/share/mysql"));
    let auth = "--auth-root-authentication-method=normal";
    host.run(
        "mariadb-install-db",
        &["--no-defaults", &base, &data, auth, "--skip-test-db", "--skip-name-resolve"],
    )?;
    let mut server = host.command("mariadbd");
    server.args(["--no-defaults", &base, &data, &share, "--skip-networking", "--skip-log-bin"]);
    server.args([
        &format!("--socket={socket}"),
        "--innodb-buffer-pool-size=512M",
        "--innodb-flush-log-at-trx-commit=0",
    ]);
    server.args([&format!("--pid-file={socket}.pid")]);
    let sql = |command: &str| {
        host.run("mariadb", &["--no-defaults", "--socket", &socket, "-u", "root", "-e", command])
    };
    let at = [format!("--mysql-socket={socket}"), format!("--table-size={}", set.rows())];
    host.serve(
        server,
        || sql("SELECT 1"),
        || {
            sql("CREATE DATABASE sbtest")?;
            let load = root.clone() + "/share/sysbench/oltp_read_write.lua";
            let words = [load.as_str(), "--mysql-user=root", "--tables=1", &at[0], &at[1], "prepare"];
            host.run("sysbench", &words).map(drop)
        },
    )
}
