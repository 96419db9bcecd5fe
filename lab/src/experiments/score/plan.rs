//! The plan for the guest and its results.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thermocline_core::units::NodeId;
use thermocline_lab::programs::keys::Distribution;
use thermocline_lab::truth::{Counts, Model};
use thermocline_lab::{DataSet, Database};

use super::felt::{Asked, Felt};
use super::manager::Manager;
use super::neighbour::{Hog, Lay};
use crate::experiments::within::ByNode;

/// The name of the [`Recording`] in the shared folder.
pub(crate) const RECORDING: &str = "recording.json";
/// Overhead of Redis 7.0 per key in addition to its value, bytes: seen in the lab with 300,000 keys
/// of 1 KiB.
const REDIS_KEY_BYTES: u64 = 388;
/// The same for memcached 1.6, with as many keys. Its slab sizes are a quarter apart.
const MEMCACHED_KEY_BYTES: u64 = 173;
/// Memory of PostgreSQL 15 per unit of pgbench's scale, table and index, bytes: the sizes of their
/// files.
const POSTGRESQL_SCALE_BYTES: u64 = 15_680_000;
/// Further shared memory of PostgreSQL: seen at scale 26.
const POSTGRESQL_OTHER_BYTES: u64 = 8 << 20;
/// DRAM taken by its processes, their page tables and the programs' files.
const POSTGRESQL_BESIDE_BYTES: u64 = 34 << 20;
/// Memory of MariaDB 10.11 per unit of our scale.
const MARIADB_SCALE_BYTES: u64 = 15_680_000;
/// Further memory: seen with 26 units.
const MARIADB_OTHER_BYTES: u64 = 100 << 20;
/// Memory of a breadth-first search per vertex: seen at scale 20.
const BFS_VERTEX_BYTES: u64 = 130;
/// The same of betweenness centrality.
const BC_VERTEX_BYTES: u64 = 150;
/// The page dump of the window.
pub(crate) const DUMP: &str = "pages";

/// A program that is run under a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    /// A fifth of the pages takes nine tenths of the accesses.
    Hotcold,
    /// redis-server, read with zipfian popularity.
    Redis,
    /// memcached, read likewise.
    Memcached,
    /// PostgreSQL, read and written by pgbench.
    #[value(name = "postgresql")]
    PostgreSql,
    /// MariaDB, read and written by sysbench's OLTP.
    #[value(name = "mariadb")]
    MariaDb,
    /// Random updates, nine tenths of them of a tenth of a table.
    Gups,
    /// Breadth-first searches of a Kronecker graph.
    Bfs,
    /// Betweenness centrality in a Kronecker graph.
    Bc,
}

impl Workload {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Hotcold => "hotcold",
            Workload::Redis => "redis",
            Workload::Memcached => "memcached",
            Workload::PostgreSql => "postgresql",
            Workload::MariaDb => "mariadb",
            Workload::Gups => "gups",
            Workload::Bfs => "bfs",
            Workload::Bc => "bc",
        }
    }

    /// The unit of its operations.
    pub(crate) fn ops(self) -> &'static str {
        match self {
            Workload::Hotcold => "accesses",
            Workload::Redis | Workload::Memcached => "reads",
            Workload::PostgreSql | Workload::MariaDb => "transactions",
            Workload::Gups => "updates",
            Workload::Bfs | Workload::Bc => "edges",
        }
    }
}

/// The placement of the program's memory when the manager starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// Where the kernel puts it: DRAM until it is full, then CXL.
    FirstTouch,
    /// All of it on CXL, DRAM is free.
    Slow,
    /// All of it on CXL, and it may lie nowhere else.
    #[value(skip)]
    SlowOnly,
}

impl Start {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Start::FirstTouch => "first-touch",
            Start::Slow => "slow",
            Start::SlowOnly => "slow-only",
        }
    }
}

/// What takes DRAM from the program until it has no more than it shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Narrowing {
    /// A reserve of huge pages: memory that nothing can move, reclaim or demote, so that it is gone
    /// for every manager alike.
    Reserve,
    /// Cold memory of another program, which managers may demote. They have the whole machine then
    /// instead of the program.
    Ballast,
    /// Memory of another program that accesses all of it, all the time. Managers have the whole
    /// machine.
    Hog(Hog),
    /// Nothing: all of it fits.
    None,
}

/// What the guest is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The program.
    pub(crate) workload: Workload,
    /// The manager that places its pages.
    pub(crate) manager: Manager,
    /// Where they are at first.
    pub(crate) start: Start,
    /// The seed of all that is random in the load.
    pub(crate) seed: u64,
    /// Operations under the manager before anything is measured.
    pub(crate) warmup_ops: u64,
    /// Operations measured.
    pub(crate) ops: u64,
    /// DRAM that the program is to have, as a share (0 to 1) of its memory.
    pub(crate) fast_share: f64,
    /// What takes the rest of DRAM from it.
    pub(crate) narrowing: Narrowing,
    /// Its share of DRAM under our daemon, MiB; `None` if it has none.
    pub(crate) share_mib: Option<u64>,
    /// Size of the memory of hotcold and gups, MiB.
    pub(crate) mib: u32,
    /// Binary logarithm of a graph's vertices.
    pub(crate) graph_scale: u32,
    /// Accesses a second that hotcold makes at most; 0 for no limit.
    pub(crate) rate: u64,
    /// Keys in a server.
    pub(crate) keys: u32,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// Size of a database, about 15 MiB each.
    pub(crate) scale: u32,
    /// Exponent of the keys' popularity.
    pub(crate) zipf: f64,
    /// Which keys of a server are popular.
    pub(crate) distribution: Distribution,
    /// About every Nth access is tagged for the manager's sampler; `None` where it has none.
    pub(crate) sample_every: Option<u64>,
    /// Latency that the guest is to feel; `None` only counts misses.
    pub(crate) felt: Option<Asked>,
    /// The machine whose time is modelled in the window.
    pub(crate) model: Model,
}

/// About every Nth access is tagged for a manager that reads the lab's sampler, unless asked
/// otherwise.
const SAMPLE_EVERY: u64 = 200;

impl Plan {
    /// A plan without sizes, that starts with what the kernel does and reserves all DRAM.
    pub(crate) fn of(workload: Workload, manager: Manager, model: Model) -> Plan {
        Plan {
            workload,
            start: Start::FirstTouch,
            seed: 0,
            warmup_ops: 0,
            ops: 0,
            fast_share: 0.0,
            narrowing: Narrowing::Reserve,
            share_mib: None,
            mib: 0,
            graph_scale: 0,
            rate: 0,
            keys: 0,
            value_bytes: 0,
            scale: 0,
            zipf: 0.0,
            distribution: Distribution::Zipfian,
            sample_every: manager.reads_samples().then_some(SAMPLE_EVERY),
            felt: None,
            manager,
            model,
        }
    }

    /// Whether its manager reads what the plugin puts into memory that it shares with the guest.
    pub(crate) fn shares_memory(&self) -> bool {
        self.sample_every.is_some() || self.manager.reads_hot_list()
    }

    /// What a database is filled with.
    pub(crate) fn data_set(&self) -> Option<DataSet> {
        let database = match self.workload {
            Workload::PostgreSql => Database::PostgreSql,
            Workload::MariaDb => Database::MariaDb,
            _ => return None,
        };
        Some(DataSet { database, scale: self.scale })
    }

    /// The DRAM that the program takes beside the memory that is judged, before that is filled.
    pub(crate) fn beside_bytes(&self) -> u64 {
        match self.workload {
            Workload::PostgreSql => POSTGRESQL_BESIDE_BYTES,
            _ => 0,
        }
    }

    /// About how much memory the program will use.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        match self.workload {
            Workload::Redis => u64::from(self.keys) * (self.value_bytes as u64 + REDIS_KEY_BYTES),
            Workload::Memcached => u64::from(self.keys) * (self.value_bytes as u64 + MEMCACHED_KEY_BYTES),
            Workload::Hotcold | Workload::Gups => u64::from(self.mib) << 20,
            Workload::Bfs => BFS_VERTEX_BYTES << self.graph_scale,
            Workload::Bc => BC_VERTEX_BYTES << self.graph_scale,
            Workload::PostgreSql => u64::from(self.scale) * POSTGRESQL_SCALE_BYTES + POSTGRESQL_OTHER_BYTES,
            Workload::MariaDb => u64::from(self.scale) * MARIADB_SCALE_BYTES + MARIADB_OTHER_BYTES,
        }
    }
}

/// Pages moved, by what moved them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// The kernel.
    pub(crate) kernel: u64,
    /// Our daemon.
    pub(crate) thermocline: u64,
    /// DAMON.
    pub(crate) damon: u64,
}

impl Moved {
    /// By all of them.
    pub(crate) fn all(&self) -> u64 {
        self.kernel + self.thermocline + self.damon
    }
}

/// All that was seen in the guest. Moves and CPU times are from the manager's start to the end of
/// the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recording {
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The slow node; all others are DRAM.
    pub(crate) slow: NodeId,
    /// The addresses whose misses are counted: the program's data.
    pub(crate) range: (u64, u64),
    /// The kernel's settings under the manager.
    pub(crate) settings: BTreeMap<String, String>,
    /// By how much the kernel's counters grew from the manager's start to the end of the window.
    pub(crate) counters: BTreeMap<String, u64>,
    /// The program's pages when the manager started.
    pub(crate) pages_before: ByNode,
    /// The same at the end of the window.
    pub(crate) pages_after: ByNode,
    /// Where the pages of the program beside it were, if there was one.
    pub(crate) neighbour: Option<Lay>,
    /// Accesses of a hog in the window.
    pub(crate) hog_accesses: Option<u64>,
    /// DRAM that was free above the high watermark when the manager started, base pages.
    pub(crate) room_pages: u64,
    /// The plugin's counts of the window, with modelled time.
    pub(crate) counts: Counts,
    /// Operations of the window.
    pub(crate) ops: u64,
    /// From the manager's start to the window's, s.
    pub(crate) warmup_s: f64,
    /// Length of the window, s.
    pub(crate) window_s: f64,
    /// Base pages promoted.
    pub(crate) promoted: Moved,
    /// Base pages demoted.
    pub(crate) demoted: Moved,
    /// The program's pages that came back to the tier that they had left.
    pub(crate) ping_pong: u64,
    /// CPU time of our daemon, or of DAMON's threads, s.
    pub(crate) daemon_cpu_s: f64,
    /// CPU time of our BPF programs, which the program's threads pay, s.
    pub(crate) bpf_cpu_s: f64,
    /// CPU time of kswapd, s.
    pub(crate) kswapd_cpu_s: f64,
    /// The greatest difference between the plugin and a pattern of known misses on any node, in
    /// this boot: a share (0 to 1).
    pub(crate) pattern_error: f64,
    /// The latency that the guest felt.
    pub(crate) felt: Option<Felt>,
}
