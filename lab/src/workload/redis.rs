//! Fills a Redis with values that can be verified, and reads them with zipfian popularity.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use redis::{Client, Connection, RedisResult};
use serde::Serialize;

use super::hot_set::shuffled;
use super::say;
use super::zipf::Zipf;

/// How long a command may take before it counts as an error. Emulation is slow, a stuck server is slower.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// What is in the Redis and how to reach it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host name or address, and port.
    pub address: (String, u16),
    /// Number of keys.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Connections, each with a thread.
    pub connections: u32,
    /// Commands sent together.
    pub pipeline: u32,
}

/// How to read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Exponent of the popularity; YCSB's is 0.99.
    pub zipf: f64,
    /// When to end; `None` for at a signal.
    pub seconds: Option<u64>,
    /// After how many commands to end, to within a pipeline of each connection; `None` for never.
    pub ops: Option<u64>,
    /// Time between two lines of output.
    pub every: Duration,
    /// Seed of the shuffle that scatters popular keys.
    pub seed: u64,
    /// Seed of the draws.
    pub draws: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Seconds that it took.
    pub seconds: f64,
    /// Commands that were answered as they should.
    pub ops: u64,
    /// Commands and connections that failed.
    pub errors: u64,
    /// Keys whose value was missing or not theirs.
    pub wrong: u64,
    /// The last failure.
    pub last_error: Option<String>,
}

impl Summary {
    /// # Errors
    /// When anything failed or any value was wrong.
    pub fn check(&self) -> anyhow::Result<()> {
        let error = self.last_error.as_deref().unwrap_or("none");
        ensure!(
            self.errors == 0 && self.wrong == 0,
            "{} errors (last: {error}), {} wrong values",
            self.errors,
            self.wrong
        );
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Interval { seconds: f64, ops: u64, ops_per_s: f64, errors: u64, wrong: u64 },
    Summary(&'a Summary),
}

/// Sets every key.
///
/// # Errors
/// When output fails; failures of Redis are in the [`Summary`].
pub fn load(target: &Target, stop: Arc<AtomicBool>, out: &mut impl Write) -> anyhow::Result<Summary> {
    let job = Job::start(target, stop, None, |shared, target, keys| {
        shared.each_batch(target, keys, |connection, keys| {
            let mut pipe = redis::pipe();
            let mut value = Vec::with_capacity(target.value_bytes);
            for key in keys.clone() {
                fill(&mut value, key, target.value_bytes);
                pipe.set(name(key), &value).ignore();
            }
            pipe.query::<()>(connection).map(|()| 0)
        });
    });
    job.watch(Duration::from_secs(1), out)
}

/// Reads every key once and compares its value.
///
/// # Errors
/// When output fails; failures of Redis are in the [`Summary`].
pub fn verify(target: &Target, stop: Arc<AtomicBool>, out: &mut impl Write) -> anyhow::Result<Summary> {
    let job = Job::start(target, stop, None, |shared, target, keys| {
        shared.each_batch(target, keys, |connection, keys| read(connection, target, keys.clone()));
    });
    job.watch(Duration::from_secs(1), out)
}

/// Reads with zipfian popularity, comparing each value.
///
/// # Errors
/// When the distribution is impossible or output fails; failures of Redis are in the [`Summary`].
pub fn run(
    target: &Target,
    reading: &Reading,
    stop: Arc<AtomicBool>,
    out: &mut impl Write,
) -> anyhow::Result<Summary> {
    let zipf = Zipf::new(target.keys, reading.zipf)?;
    ensure!(!reading.every.is_zero(), "--report-every must be more than 0");
    // Popular keys lie anywhere in Redis's memory, as they do in life.
    let key_of_rank: Arc<[u32]> = shuffled(target.keys, reading.seed).into();
    let (draws, ops) = (reading.draws, reading.ops.unwrap_or(u64::MAX));
    let job = Job::start(target, stop, reading.seconds, move |shared, target, keys| {
        let mut rng = Pcg64Mcg::seed_from_u64(draws ^ u64::from(keys.start + 1) << 32);
        let mut connection = None;
        while !shared.stopped() && shared.ops.load(Ordering::Relaxed) < ops {
            let batch: Vec<u32> =
                (0..target.pipeline).map(|_| key_of_rank[zipf.sample(&mut rng) as usize - 1]).collect();
            shared.attempt(target, &mut connection, batch.len(), |connection| {
                read(connection, target, batch.iter().copied())
            });
        }
    });
    job.watch(reading.every, out)
}

/// Work under way on threads of its own.
struct Job {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
    limit: Option<Duration>,
    started: Instant,
}

#[derive(Default)]
struct Shared {
    stop: Arc<AtomicBool>,
    over: AtomicBool,
    ops: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
    last_error: std::sync::Mutex<Option<String>>,
}

impl Job {
    /// Gives each of the target's connections a thread and a part of the keys.
    fn start(
        target: &Target,
        stop: Arc<AtomicBool>,
        seconds: Option<u64>,
        work: impl Fn(&Shared, &Target, Range<u32>) + Clone + Send + 'static,
    ) -> Job {
        let shared = Arc::new(Shared { stop, ..Shared::default() });
        let part = |n: u32| (u64::from(target.keys) * u64::from(n) / u64::from(target.connections)) as u32;
        let workers = (0..target.connections)
            .map(|n| {
                let (shared, target, work) = (shared.clone(), target.clone(), work.clone());
                let keys = part(n)..part(n + 1);
                thread::spawn(move || work(&shared, &target, keys))
            })
            .collect();
        Job { shared, workers, limit: seconds.map(Duration::from_secs), started: Instant::now() }
    }

    /// Prints a line every so often until all is done, the time is over or a signal came.
    fn watch(self, every: Duration, out: &mut impl Write) -> anyhow::Result<Summary> {
        let counts = || {
            [&self.shared.ops, &self.shared.errors, &self.shared.wrong]
                .map(|count| count.load(Ordering::Relaxed))
        };
        let (mut then, mut before) = (self.started, [0; 3]);
        let mut said = Ok(());
        while said.is_ok()
            && !self.workers.iter().all(|worker| worker.is_finished())
            && !self.shared.stopped()
        {
            thread::sleep(NAP);
            if then.elapsed() >= every {
                let (seconds, now) = (then.elapsed().as_secs_f64(), counts());
                let [ops, errors, wrong] = [0, 1, 2].map(|i| now[i] - before[i]);
                let ops_per_s = ops as f64 / seconds;
                said = say(out, &Line::Interval { seconds, ops, ops_per_s, errors, wrong });
                (then, before) = (Instant::now(), now);
            }
            if self.limit.is_some_and(|limit| self.started.elapsed() >= limit) {
                break;
            }
        }
        self.shared.over.store(true, Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs_f64();
        for worker in self.workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))?;
        }
        said?;
        let [ops, errors, wrong] = [&self.shared.ops, &self.shared.errors, &self.shared.wrong]
            .map(|count| count.load(Ordering::Relaxed));
        let last_error = self.shared.last_error.lock().ok().and_then(|mut last| last.take());
        let summary = Summary { seconds, ops, errors, wrong, last_error };
        say(out, &Line::Summary(&summary))?;
        Ok(summary)
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }

    /// Does `act` on each batch of `keys` in turn; on a failure the batch is tried again.
    fn each_batch(
        &self,
        target: &Target,
        keys: Range<u32>,
        act: impl Fn(&mut Connection, &Range<u32>) -> RedisResult<u64>,
    ) {
        let mut connection = None;
        let mut next = keys.start;
        while next < keys.end && !self.stopped() {
            let batch = next..keys.end.min(next.saturating_add(target.pipeline));
            if self.attempt(target, &mut connection, batch.len(), |connection| act(connection, &batch)) {
                next = batch.end;
            }
        }
    }

    /// Does one batch of `ops` commands, which answers how many values were wrong. After a failure the connection is made anew.
    fn attempt(
        &self,
        target: &Target,
        connection: &mut Option<Connection>,
        ops: usize,
        act: impl FnOnce(&mut Connection) -> RedisResult<u64>,
    ) -> bool {
        let open = connection.take().map_or_else(|| connect(target), Ok);
        let done = open.and_then(|mut open| {
            let wrong = act(&mut open)?;
            *connection = Some(open);
            Ok(wrong)
        });
        match done {
            Ok(wrong) => {
                self.ops.fetch_add(ops as u64 - wrong, Ordering::Relaxed);
                self.wrong.fetch_add(wrong, Ordering::Relaxed);
                true
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut last) = self.last_error.lock() {
                    *last = Some(error.to_string());
                }
                thread::sleep(RETRY);
                false
            }
        }
    }
}

fn connect(target: &Target) -> RedisResult<Connection> {
    let connection = Client::open(target.address.clone())?.get_connection_with_timeout(TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

/// Reads keys together; answers how many were missing or held another value.
fn read(
    connection: &mut Connection,
    target: &Target,
    keys: impl Iterator<Item = u32> + Clone,
) -> RedisResult<u64> {
    let mut pipe = redis::pipe();
    for key in keys.clone() {
        pipe.get(name(key));
    }
    let values: Vec<Option<Vec<u8>>> = pipe.query(connection)?;
    let mut expected = Vec::with_capacity(target.value_bytes);
    let mut wrong = 0;
    for (key, value) in keys.zip(values) {
        fill(&mut expected, key, target.value_bytes);
        wrong += u64::from(value.as_deref() != Some(&expected));
    }
    Ok(wrong)
}

fn name(key: u32) -> String {
    format!("key:{key:010}")
}

/// The value of a key: words that differ between keys and from place to place.
fn fill(value: &mut Vec<u8>, key: u32, bytes: usize) {
    value.clear();
    let mut word = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while value.len() < bytes {
        value.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0xd129_0d3a_5c1f_4d2b).wrapping_add(1);
    }
    value.truncate(bytes);
}

/// Parses `host:port`.
///
/// # Errors
/// When it is not of that form.
pub fn parse_address(text: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) =
        text.rsplit_once(':').with_context(|| format!("{text:?} is not of the form host:port"))?;
    let port = port.parse().with_context(|| format!("{port:?} in {text:?} is no port from 0 to 65535"))?;
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn values_are_of_the_asked_size_and_of_their_key_alone() {
        let mut seen = HashSet::new();
        let (mut value, mut longer) = (Vec::new(), Vec::new());
        for key in 0..10_000 {
            fill(&mut value, key, 13);
            fill(&mut longer, key, 700);
            assert_eq!((value.len(), longer.len()), (13, 700));
            assert!(longer.starts_with(&value));
            assert!(seen.insert(value.clone()), "{key}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_address("127.0.0.1:6379").unwrap(), ("127.0.0.1".to_owned(), 6379));
        assert!(parse_address("localhost").is_err());
        assert!(parse_address("localhost:99999").is_err());
    }

    /// A server on a port of its own, killed at the end; `None` where redis-server is not installed.
    struct Server(Child, u16);

    impl Server {
        fn start() -> Option<Server> {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = Command::new("redis-server")
                .args([
                    "--port",
                    &port.to_string(),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ])
                .stdout(Stdio::piped())
                .spawn();
            let mut server = match server {
                Ok(server) => server,
                Err(error) => {
                    println!("skipped: redis-server cannot be run: {error}");
                    return None;
                }
            };
            let lines = BufReader::new(server.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.contains("Ready to accept connections")));
            Some(Server(server, port))
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn loads_reads_verifies_and_notices_what_is_wrong() {
        let Some(server) = Server::start() else { return };
        let address = ("127.0.0.1".to_owned(), server.1);
        let target = Target { address, keys: 1000, value_bytes: 100, connections: 3, pipeline: 7 };
        let reading = Reading {
            zipf: 0.99,
            seconds: Some(1),
            ops: None,
            every: Duration::from_millis(200),
            seed: 5,
            draws: 5,
        };
        let go = || Arc::new(AtomicBool::new(false));
        let mut out = Vec::new();
        assert_eq!(load(&target, go(), &mut out).unwrap().ops, 1000);
        let read = run(&target, &reading, go(), &mut out).unwrap();
        read.check().unwrap();
        assert!(read.ops > 100, "{read:?}");
        assert!(
            String::from_utf8(out).unwrap().lines().any(|line| line.starts_with(r#"{"event":"interval""#))
        );
        let counted = Reading { seconds: None, ops: Some(500), ..reading };
        let counted = run(&target, &counted, go(), &mut Vec::new()).unwrap();
        assert!((500..500 + 3 * 7).contains(&counted.ops), "{counted:?}");
        let verified = verify(&target, go(), &mut Vec::new()).unwrap();
        assert_eq!((verified.ops, verified.check().is_ok()), (1000, true));

        let mut connection = connect(&target).unwrap();
        redis::cmd("SET").arg(name(17)).arg("other").query::<()>(&mut connection).unwrap();
        redis::cmd("DEL").arg(name(18)).query::<()>(&mut connection).unwrap();
        let verified = verify(&target, go(), &mut Vec::new()).unwrap();
        assert_eq!((verified.ops, verified.wrong, verified.errors), (998, 2, 0));
        assert!(verified.check().is_err());

        drop(server);
        let read = run(&target, &reading, go(), &mut Vec::new()).unwrap();
        assert!(read.errors > 0 && read.ops == 0 && read.check().is_err(), "{read:?}");
    }
}
