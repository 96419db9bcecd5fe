//! Sections of the engine itself: records, queue, admission, journal.

use serde::{Deserialize, Serialize};

use crate::config::schema::{Any, OrUnset};
use crate::section;

/// How a page's record is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordLayout {
    /// 1 byte a page: frequency, coarse saturating time, readiness; the node once per 2 MiB.
    Byte,
    /// 4 bytes a page: the same, finer, with the accessing node.
    Word,
    /// The published 1-byte layout of pghot (S4), aliasing included.
    PghotByte,
    /// The published 4-byte layout of pghot (S4), aliasing included.
    PghotWord,
}

/// What to do with pages that several processes map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedPages {
    /// Move them with MPOL_MF_MOVE_ALL; needs CAP_SYS_NICE.
    Move,
    /// Leave them where they are, with the reason `shared`.
    Leave,
}

/// Which memory policies keep pages where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicies {
    /// Every one but the default and "local": what is bound, interleaved or preferred stays where
    /// its policy has put it.
    All,
    /// Those that bind to nodes which the target is not among (MPOL_BIND).
    Bind,
}

section! {
    /// `[engine]`: what is remembered of a page and how often decisions are made.
    Engine {
        /// Record layout: "byte", "word", "pghot-byte" or "pghot-word".
        record: RecordLayout = RecordLayout::Word, "", Any("\"byte\", \"word\", \"pghot-byte\", \"pghot-word\""), "ours", restart;
        /// Keep the accessing node beside the 1-byte record, once per 2 MiB block. Without it the
        /// 1-byte layouts are refused on machines with two far-apart top-tier nodes.
        record_node_per_block: bool = true, "", Any("true or false"), "ours; a 1-byte record without the node lost 27 % of Graph500 on two-node machines (S4, v7 cover letter)", restart;
        /// Node of the top tier near which pages go whose accessing node nobody names: DAMON's
        /// regions (but for source.damon.target_nid), devices' hot lists; and all pages, where the
        /// records are bytes without record_node_per_block. Unset: nearest to where the page is.
        target_nid: Option<u32> = None, "node", OrUnset(0..=1023), "S4: target_nid, 0, later -1 for the nearest", restart;
        /// SLIT distance from which two top-tier nodes count as far apart.
        far_distance: u8 = 20, "SLIT", 10..=254, "ACPI SLIT: 20 is twice the local latency", restart;
        /// Time between two ticks.
        tick_ms: u64 = 100, "ms", 10..=1000, "S4: kmigrated polls every 100 ms";
        /// Timer frequency that the published layouts count in.
        hz: u32 = 250, "Hz", 100..=1000, "Debian's kernels: CONFIG_HZ=250", restart;
    }
}

section! {
    /// `[queue]`: candidates that wait for admission.
    Queue {
        /// Candidates that may wait; the lowest score gives way.
        capacity: u32 = 65536, "candidates", 64..=16777216, "ours", restart;
        /// How long a candidate waits before its evidence is too old.
        expire_ms: u64 = 10000, "ms", 100..=600000, "ours";
        /// Tries for a page that was busy or whose target was full.
        retries: u8 = 3, "tries", 0..=16, "ours; migrate_pages itself tries ten times within a call";
        /// Wait before the first retry; doubles with each.
        retry_delay_ms: u64 = 500, "ms", 10..=60000, "ours";
    }
}

section! {
    /// `[admission]`: what may move now.
    Admission {
        /// Pages moved per second, at most, all scopes together.
        rate_limit_mbps: u64 = 256, "MB/s", 1..=65536, "ours; the kernel's default of 65536 switches its own feedback off (Linux 6.12 kernel/sched/fair.c)";
        /// Free memory to leave on a target above its high watermark, but no more than a hundredth
        /// of the node.
        free_goal_mib: u64 = 16, "MiB", 0..=1048576, "ours";
        /// Batches in flight at most; no more are issued until outcomes come back.
        batches_in_flight: u32 = 16, "batches", 1..=256, "ours: 16 batches of 2 MiB a tick of 100 ms carry the default rate limit", restart;
        /// How long to wait for a batch's outcome before it counts as lost.
        outcome_timeout_ms: u64 = 60000, "ms", 1000..=3600000, "ours";
        /// Base pages in a batch at most.
        batch_pages: u32 = 512, "pages", 1..=512, "S4: kmigrated_batch_nr";
        /// How long a page stays where we put it before it may be moved again.
        residency_ms: u64 = 10000, "ms", 0..=3600000, "ours";
        /// Moves of one page within the ping-pong window after which it is left alone.
        ping_pong_moves: u8 = 3, "moves", 2..=255, "ours";
        /// The ping-pong window, and how long a page that ping-pongs is left alone.
        ping_pong_window_ms: u64 = 60000, "ms", 1000..=3600000, "ours";
        /// Pages whose recent moves are remembered.
        moved_capacity: u32 = 262144, "pages", 1024..=16777216, "ours", restart;
        /// How long a page is left alone that the mover found pinned, shared or not ours to move.
        quarantine_ms: u64 = 60000, "ms", 0..=3600000, "ours";
        /// Let pages go to a faster tier.
        promote: bool = true, "", Any("true or false"), "ours";
        /// Let pages go to a slower tier.
        demote: bool = true, "", Any("true or false"), "ours", restart;
        /// Let pages go to another node of their tier.
        balance: bool = true, "", Any("true or false"), "ours";
        /// Pages that several processes map: "move" or "leave".
        shared_pages: SharedPages = SharedPages::Move, "", Any("\"move\" or \"leave\""), "ours", restart;
        /// Memory policies (numactl, set_mempolicy, mbind) that keep pages where they are, whatever
        /// the source of evidence: "all", or "bind" for those alone that forbid the target.
        memory_policies: MemoryPolicies = MemoryPolicies::All, "", Any("\"all\" or \"bind\""), "ours; the kernel's own promotion scans no memory under a policy that does not ask for it", restart;
    }
}

section! {
    /// `[journal]`: the decisions that `explain` can tell of.
    Journal {
        /// Decisions kept; the oldest gives way.
        capacity: u32 = 65536, "decisions", 1024..=16777216, "ours", restart;
    }
}
