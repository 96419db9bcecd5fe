//! The load of pgbench and sysbench on a database, and its progress.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, bail};
use thermocline_lab::{DISK, DataSet, Database};

use super::{FOLDER, mariadb_socket, program};
use crate::experiments::score::counted::Counted;

/// Connections of the load.
const CLIENTS: &str = "4";
/// Accounts that one reading transaction of pgbench looks up.
const ACCOUNTS: u32 = 10;
/// The smallest exponent for which pgbench draws without many retries (PostgreSQL 15 documentation,
/// pgbench: `random_zipfian` wants more than 1 and is slow near it).
const PGBENCH_ZIPF_MIN: f64 = 1.1;

/// Starts the benchmark, which runs until it is killed.
pub(super) fn start(set: DataSet, seed: u64, zipf: f64) -> anyhow::Result<Counted> {
    let mut command = match set.database {
        Database::PostgreSql => {
            let script = format!("{FOLDER}/read.sql");
            fs::write(&script, read_script(set.rows(), zipf))
                .with_context(|| format!("cannot write {script}"))?;
            let mut pgbench = program(set.database, "pgbench");
            pgbench.args(["-h", FOLDER, "-U", "lab", "-n", "-M", "prepared", "-c", CLIENTS, "-j", "1"]);
            pgbench.args(["-T", "1000000", "-P", "1", &format!("--random-seed={seed}")]);
            pgbench.args(["-f", &format!("{script}@9"), "-b", "tpcb-like@1", "postgres"]);
            pgbench.stdout(Stdio::null()).stderr(Stdio::piped());
            pgbench
        }
        Database::MariaDb => {
            let mut sysbench = program(set.database, "sysbench");
            sysbench.arg(format!("{DISK}/usr/share/sysbench/oltp_read_write.lua"));
            sysbench.args(["--mysql-user=root", &format!("--mysql-socket={}", mariadb_socket())]);
            sysbench.args([
                "--tables=1",
                &format!("--table-size={}", set.rows()),
                &format!("--threads={CLIENTS}"),
            ]);
            sysbench.args([
                "--time=0",
                "--events=0",
                "--report-interval=1",
                &format!("--rand-seed={seed}"),
                "run",
            ]);
            sysbench.stdout(Stdio::piped());
            sysbench
        }
    };
    let mut child = command.spawn().context("cannot start the load")?;
    let output: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
        (Some(output), _) => Box::new(output),
        (None, Some(output)) => Box::new(output),
        (None, None) => bail!("the load's output is not piped"),
    };
    let count = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&count);
    thread::spawn(move || {
        let mut tally = Tally::default();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match progress(&line) {
                Some(at) => sum.store(tally.add(at), Ordering::Relaxed),
                None if is_complaint(&line) => eprintln!("{line}"),
                None => {}
            }
        }
    });
    Ok(Counted { name: "the load", child, count })
}

/// A transaction that looks up accounts of zipfian popularity, scattered over the table.
fn read_script(rows: u64, zipf: f64) -> String {
    let zipf = zipf.max(PGBENCH_ZIPF_MIN);
    let mut script = String::new();
    for n in 0..ACCOUNTS {
        script.push_str(&format!("\\set a{n} 1 + permute(random_zipfian(1, {rows}, {zipf}) - 1, {rows})\n"));
    }
    let names: Vec<String> = (0..ACCOUNTS).map(|n| format!(":a{n}")).collect();
    script.push_str(&format!(
        "SELECT sum(abalance) FROM pgbench_accounts WHERE aid IN ({});\n",
        names.join(", ")
    ));
    script
}

/// Seconds since the load began and transactions a second since the last line, of a line of
/// pgbench's (`progress: 5.0 s, 612.3 tps, ...`) or of sysbench's (`[ 5s ] thds: 4 tps: 24.00
/// ...`).
fn progress(line: &str) -> Option<(f64, f64)> {
    let (seconds, tps) = match line.strip_prefix("progress: ") {
        Some(rest) => {
            let (seconds, rest) = rest.split_once(" s, ")?;
            (seconds, rest.split_once(" tps")?.0)
        }
        None => {
            let (seconds, rest) = line.strip_prefix("[ ")?.split_once("s ] ")?;
            (seconds, rest.split_once(" tps: ")?.1.split(' ').next()?)
        }
    };
    Some((seconds.parse().ok()?, tps.parse().ok()?))
}

/// Whether a line is for the user.
fn is_complaint(line: &str) -> bool {
    ["error", "FATAL", "ERROR"].iter().any(|word| line.contains(word))
}

/// Transactions, added up from rates.
#[derive(Debug, Default)]
struct Tally {
    seconds: f64,
    transactions: f64,
}

impl Tally {
    /// All until `seconds`, if `tps` were done each second since the last call.
    fn add(&mut self, (seconds, tps): (f64, f64)) -> u64 {
        self.transactions += tps * (seconds - self.seconds).max(0.0);
        self.seconds = seconds;
        self.transactions.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_from_what_the_benchmarks_print() {
        let line = "progress: 2.0 s, 14387.5 tps, lat 0.278 ms stddev 1.060, 0 failed";
        assert_eq!(progress(line), Some((2.0, 14387.5)));
        let line = "[ 3s ] thds: 4 tps: 24.50 qps: 490.02 (r/w/o: 343.01/98.00/49.00) lat (ms,95%): 200.47 err/s: 0.00";
        assert_eq!(progress(line), Some((3.0, 24.5)));
        for other in ["", "pgbench (15.20)", "progress: x", "[ 3s ] thds: 4", "Threads started!"] {
            assert_eq!(progress(other), None, "{other}");
        }
        let mut tally = Tally::default();
        assert_eq!([(1.0, 10.0), (3.0, 20.0), (3.5, 1.0)].map(|line| tally.add(line)), [10, 50, 51]);
        assert!(is_complaint("pgbench: error: connection refused") && !is_complaint("starting vacuum"));
    }

    #[test]
    fn a_reading_transaction_draws_each_account_anew() {
        let script = read_script(2_600_000, 0.99);
        assert!(
            script.starts_with("\\set a0 1 + permute(random_zipfian(1, 2600000, 1.1) - 1, 2600000)\n"),
            "{script}"
        );
        assert!(
            script.ends_with("WHERE aid IN (:a0, :a1, :a2, :a3, :a4, :a5, :a6, :a7, :a8, :a9);\n"),
            "{script}"
        );
        assert_eq!(script.lines().count(), 11);
        assert!(read_script(9, 1.5).contains("9, 1.5)"));
    }
}
