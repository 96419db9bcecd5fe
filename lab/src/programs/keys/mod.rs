//! Fills a server of keys with values that can be verified, and reads them with zipfian popularity.

mod distribution;
mod job;
mod memcached;
mod redis;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::zipf::Zipf;
pub use distribution::Distribution;
use distribution::part;
use job::Job;

/// How long a command may take before it counts as an error. Emulation is slow, so it must be long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The server and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// Redis, by RESP.
    Redis,
    /// memcached, by its text protocol.
    Memcached,
}

/// A connection to a server. After a failed command it cannot be used any more.
trait Session: Send {
    /// Sets keys together.
    fn set(&mut self, pairs: &[(String, Vec<u8>)]) -> anyhow::Result<()>;
    /// Gets keys together: a value for each, in their order.
    fn get(&mut self, names: &[String]) -> anyhow::Result<Vec<Option<Vec<u8>>>>;
}

/// The server's content and address.
#[derive(Clone, Debug)]
pub struct Target {
    /// What it is.
    pub server: Server,
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

/// Parameters of reading.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Exponent of the popularity; YCSB's is 0.99.
    pub zipf: f64,
    /// Which keys are popular.
    pub distribution: Distribution,
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

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Duration in seconds.
    pub seconds: f64,
    /// Commands answered correctly.
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

/// Sets every key.
///
/// # Errors
/// When output fails; failures of the server are in the [`Summary`].
pub fn load(target: &Target, stop: Arc<AtomicBool>, out: &mut impl Write) -> anyhow::Result<Summary> {
    let job = Job::start(target, stop, None, |shared, target, number| {
        shared.each_batch(target, number, |session, keys| {
            let pairs: Vec<_> = keys.clone().map(|key| (name(key), value(key, target.value_bytes))).collect();
            session.set(&pairs).map(|()| 0)
        });
    });
    job.watch(Duration::from_secs(1), out)
}

/// Reads every key once and compares its value.
///
/// # Errors
/// When output fails; failures of the server are in the [`Summary`].
pub fn verify(target: &Target, stop: Arc<AtomicBool>, out: &mut impl Write) -> anyhow::Result<Summary> {
    let job = Job::start(target, stop, None, |shared, target, number| {
        shared.each_batch(target, number, |session, keys| read(session, target, keys.clone()));
    });
    job.watch(Duration::from_secs(1), out)
}

/// Reads with zipfian popularity, comparing each value.
///
/// # Errors
/// When the distribution is impossible or output fails; failures of the server are in the
/// [`Summary`].
pub fn run(
    target: &Target,
    reading: &Reading,
    stop: Arc<AtomicBool>,
    out: &mut impl Write,
) -> anyhow::Result<Summary> {
    Clients::new(target).run(reading, stop, out)
}

/// A connection, while it is open.
type Slot = Mutex<Option<Box<dyn Session>>>;

/// Clients whose connections stay open from one reading to the next: a server's buffers for a
/// connection are among its hottest memory.
pub struct Clients {
    target: Target,
    sessions: Arc<[Slot]>,
}

impl Clients {
    /// Creates clients without open connections.
    pub fn new(target: &Target) -> Clients {
        let sessions = (0..target.connections).map(|_| Mutex::default()).collect();
        Clients { target: target.clone(), sessions }
    }

    /// Reads like [`run`].
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(
        &mut self,
        reading: &Reading,
        stop: Arc<AtomicBool>,
        out: &mut impl Write,
    ) -> anyhow::Result<Summary> {
        let zipf = Zipf::new(self.target.keys, reading.zipf)?;
        ensure!(!reading.every.is_zero(), "--report-every must be more than 0");
        let key_of_rank: Arc<[u32]> = reading.distribution.ranked(&self.target, reading.seed).into();
        let (draws, ops) = (reading.draws, reading.ops.unwrap_or(u64::MAX));
        let sessions = self.sessions.clone();
        let job = Job::start(&self.target, stop, reading.seconds, move |shared, target, number| {
            let first_key = part(target, number).start;
            let mut rng = Pcg64Mcg::seed_from_u64(draws ^ u64::from(first_key + 1) << 32);
            let mut session = sessions[number as usize].lock().unwrap_or_else(PoisonError::into_inner);
            while !shared.stopped() && shared.ops.load(Ordering::Relaxed) < ops {
                let batch: Vec<u32> =
                    (0..target.pipeline).map(|_| key_of_rank[zipf.sample(&mut rng) as usize - 1]).collect();
                shared.attempt(target, &mut session, batch.len(), |session| {
                    read(session, target, batch.iter().copied())
                });
            }
        });
        job.watch(reading.every, out)
    }
}

fn connect(target: &Target) -> anyhow::Result<Box<dyn Session>> {
    Ok(match target.server {
        Server::Redis => Box::new(redis::Redis::connect(&target.address)?),
        Server::Memcached => Box::new(memcached::Memcached::connect(&target.address)?),
    })
}

/// Reads keys together; returns how many were missing or had another value.
fn read(
    session: &mut dyn Session,
    target: &Target,
    keys: impl Iterator<Item = u32> + Clone,
) -> anyhow::Result<u64> {
    let names: Vec<String> = keys.clone().map(name).collect();
    let values = session.get(&names)?;
    let right = |(key, found): (u32, Option<Vec<u8>>)| found == Some(value(key, target.value_bytes));
    Ok(keys.zip(values).filter(|pair| !right(pair.clone())).count() as u64)
}

fn name(key: u32) -> String {
    format!("key:{key:010}")
}

/// The value of a key: words that differ between keys and from place to place.
fn value(key: u32, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 8);
    let mut word = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while value.len() < bytes {
        value.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0xd129_0d3a_5c1f_4d2b).wrapping_add(1);
    }
    value.truncate(bytes);
    value
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
