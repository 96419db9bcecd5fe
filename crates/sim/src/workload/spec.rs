//! The content of a process's TOML.

use serde::{Deserialize, Serialize};
use thermocline_core::units::Nanos;

use super::PatternSpec;
use crate::machine::{Machine, NodeName, Role};
use crate::spec::{SpecError, require};
use crate::units::{Bytes, Span};

/// The node that memory comes from when it is first touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The node.
    pub node: NodeName,
    /// Maximum amount; by default as much as there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// A pause that a thread makes periodically.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Think {
    /// Accesses from one pause to the next.
    pub after: u64,
    /// How long it is.
    pub time: Span,
    /// The thread spins (its CPU time goes on, and with it the scanner's clock) instead of
    /// sleeping.
    #[serde(default)]
    pub busy: bool,
}

/// Periodic reclaim of a cgroup's memory by `memory.reclaim`: pages that are not accessed are
/// demoted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReclaimSpec {
    /// Time from one to the next.
    pub every: Span,
    /// How much is asked for.
    pub size: Bytes,
}

/// One process, or several alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// Its name in reports.
    pub name: String,
    /// The number of processes.
    #[serde(default = "one")]
    pub count: u32,
    /// Threads of each.
    pub threads: u32,
    /// The node whose CPUs they run on.
    pub node: NodeName,
    /// Memory of each.
    pub footprint: Bytes,
    /// Where its memory comes from: the first of these that has room takes the next page.
    pub place: Vec<Place>,
    /// Time to allocate and clear a page at the start, in one system call (MAP_POPULATE) before the
    /// threads begin; by default it takes no time.
    #[serde(default)]
    pub populate_page_ns: f64,
    /// It allocates its memory at the same time as the process before it.
    #[serde(default)]
    pub together: bool,
    /// What its threads access.
    pub pattern: PatternSpec,
    /// Time between two accesses in ns that does not depend on memory.
    #[serde(default)]
    pub compute_ns: f64,
    /// Cache lines that an access touches one after the other: an access is then a visit to a page.
    #[serde(default = "one_line")]
    pub lines_per_access: f64,
    /// Accesses of one operation, each to a page of its own, for the reported times of operations.
    /// The patterns `key-value` and `oltp` have operations of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses_per_operation: Option<f64>,
    /// Requests that clients keep in flight to each process: a new one as soon as one is answered.
    /// Those that no thread serves wait in turn. By default one for each thread, so that none
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Share of the accesses that the last-level cache serves, if the machine has one.
    #[serde(default)]
    pub cache_hit: f64,
    /// Share of the accesses that are stores.
    #[serde(default = "half")]
    pub store_share: f64,
    /// Pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Think>,
    /// Its memory is mapped by huge pages: marked, examined, faulted on, promoted by faults and
    /// demoted by reclaim 512 pages at a time.
    #[serde(default)]
    pub huge_pages: bool,
    /// Periodic reclaim of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimSpec>,
    /// The run is over when all others are: this one does not count.
    #[serde(default)]
    pub background: bool,
}

fn one() -> u32 {
    1
}

fn one_line() -> f64 {
    1.0
}

fn half() -> f64 {
    0.5
}

/// Maximum number of threads of a run.
pub const THREADS_MAX: u64 = 4096;
/// Maximum number of processes of a run.
pub const PROCESSES_MAX: u64 = 1024;
/// Maximum number of cells of a run, on machines of up to eight nodes.
const CELLS_MAX: u64 = 1 << 20;
/// Maximum number of pages of a run: 8 TiB.
pub const PAGES_MAX: u64 = 1 << 31;

/// Maximum number of cells of a run: each takes about 64 bytes, and 16 more for each node.
pub(crate) fn cells_max(nodes: usize) -> u64 {
    CELLS_MAX * 8 / (nodes as u64).max(8)
}

/// Least time from one reclaim of a process's memory to the next.
const RECLAIM_EVERY_MIN: Nanos = Nanos::from_ms(1);

impl ProcessSpec {
    /// Checks one process on its own; `place` is its dotted key.
    pub(crate) fn check(&self, machine: &Machine, place: &str) -> Result<(), SpecError> {
        let at = |key: &str| format!("{place}.{key}");
        let idle = matches!(self.pattern, PatternSpec::Idle(_));
        require(self.count > 0, &at("count"), "is zero", "give 1 or more")?;
        require(
            self.threads > 0 || idle,
            &at("threads"),
            "is zero, so that nothing accesses the memory",
            "give 1 or more, or pattern = { kind = \"idle\" }",
        )?;
        require(
            u64::from(self.threads) <= THREADS_MAX,
            &at("threads"),
            &format!("is above {THREADS_MAX}"),
            "simulate fewer",
        )?;
        require(
            u64::from(self.count) <= PROCESSES_MAX,
            &at("count"),
            &format!("is above {PROCESSES_MAX}"),
            "simulate fewer",
        )?;
        require(self.footprint.pages() <= PAGES_MAX, &at("footprint"), "is above 8 TiB", "simulate less")?;
        require(
            self.footprint.pages() > 0,
            &at("footprint"),
            "is less than a page",
            "give at least \"4KiB\"",
        )?;
        require(
            self.node.on(machine).is_some_and(|i| machine.nodes[usize::from(i)].has_cpus),
            &at("node"),
            "is no node with CPUs",
            "name a node that has some",
        )?;
        require(!self.place.is_empty(), &at("place"), "is empty", "name the nodes that memory comes from")?;
        for (i, p) in self.place.iter().enumerate() {
            let key = at(&format!("place[{i}].node"));
            let found = p.node.on(machine).is_some();
            if let NodeName::Role(Role::Low, _) = p.node {
                require(
                    found,
                    &key,
                    &format!("is in a slower tier, and the machine {} has one tier", machine.spec.name),
                    "the scenario needs two: give one of the nodes tier = 1, or name another machine",
                )?;
            }
            require(
                found,
                &key,
                &format!("{} is no node of the machine {}", p.node, machine.spec.name),
                "name one that is, or a machine that has such a node",
            )?;
        }
        let share = |v: f64| (0.0..=1.0).contains(&v);
        require(share(self.cache_hit), &at("cache_hit"), "is no share", "give 0 to 1")?;
        require(share(self.store_share), &at("store_share"), "is no share", "give 0 to 1")?;
        let lines = (0.0..=1e6).contains(&self.lines_per_access) && self.lines_per_access > 0.0;
        require(lines, &at("lines_per_access"), "is no number of lines", "give a number above 0")?;
        let own = matches!(self.pattern, PatternSpec::KeyValue(_) | PatternSpec::Oltp(_));
        let asked = self.accesses_per_operation;
        require(
            !own || asked.is_none(),
            &at("accesses_per_operation"),
            "is given, and the pattern has operations of its own",
            "remove it",
        )?;
        require(
            asked.is_none_or(|n| (1.0..=1e6).contains(&n)),
            &at("accesses_per_operation"),
            "is no number of accesses",
            "give 1 to 1e6",
        )?;
        require(
            self.in_flight.is_none_or(|n| n >= u64::from(self.threads)),
            &at("in_flight"),
            "leaves threads without a request",
            "give one for each thread, or more",
        )?;
        require(
            self.in_flight.is_none() || own || asked.is_some(),
            &at("in_flight"),
            "is given, and nothing says what an operation is",
            "give accesses_per_operation, or a pattern with operations: key-value, oltp",
        )?;
        let cost = |v: f64| (0.0..=1e9).contains(&v);
        require(cost(self.compute_ns), &at("compute_ns"), "is no time", "give 0 to 1e9 ns")?;
        require(cost(self.populate_page_ns), &at("populate_page_ns"), "is no time", "give 0 to 1e9 ns")?;
        require(
            self.reclaim.is_none_or(|r| r.every.0 >= RECLAIM_EVERY_MIN && r.size.pages() > 0),
            &at("reclaim"),
            "reclaims nothing, or all the time",
            "give every as a span from 1ms and size as pages, as in { every = \"10s\", size = \"64MiB\" }",
        )?;
        require(
            self.think.is_none_or(|t| t.after > 0),
            &at("think.after"),
            "is zero",
            "give the accesses between two pauses",
        )
    }
}
