//! Every table, in the order of [`TableId`](super::TableId).

use super::Kind::{Flag, Near, NearSigned, Number, Text, Wide, WideSigned};
use super::{Column, Table};

const fn column(name: &'static str, kind: super::Kind, unit: &'static str, meaning: &'static str) -> Column {
    Column::new(name, kind, unit, meaning)
}

const EVENT: Column = column("event", Near, "", "The event that the row belongs to.");
const TIME: Column = column("time", Near, "ns", "When, CLOCK_MONOTONIC.");
const PID: Column = column("pid", Number, "", "The process.");
const NODE: Column = column("node", Number, "", "The node.");
const SCOPE: Column = column("scope", Number, "", "The scope: 0 the default one, else its place from 1.");
const VPN: Column = column("vpn", Near, "4 KiB", "The virtual page; of a folio, the one that maps its head.");
const PFN: Column = column(
    "pfn_offset",
    NearSigned,
    "pages",
    "The frame (of a folio, its head) less `vpn`, which is 0 where that is null.",
)
.or_null();
const SPACE: Column = column(
    "space",
    Text,
    "",
    "`virtual` pages of a process, `physical` frames of a node, or those of a `target` of which \
     neither is known.",
);
const OF: Column = column("of", Number, "", "The process, the node, or the target's number.");
const ORDER: Column = column("order", Number, "log2 pages", "The size of the folio.");

/// Every table.
pub const TABLES: [Table; 22] = [
    Table {
        name: "events",
        meaning: "What happened, in order. Events are numbered from 0 without gaps, unless some \
            were lost.",
        columns: &[
            EVENT,
            column("phase", Text, "", "Where in a step: `poll`, `nodes`, `tick`, or `between` two steps."),
            column("kind", Text, "", "What it is; a kind's rows are in the table that the kind names."),
            column("time", Near, "ns", "The time of the step, CLOCK_MONOTONIC."),
            column("rows", Number, "rows", "How many rows the event has in its table."),
            column("number", Wide, "", "Of a batch or its outcome: the batch. Of a demand: the demand.")
                .or_null(),
            column("at", Near, "ns", "The time that the evidence itself names.").or_null(),
        ],
    },
    Table {
        name: "steps",
        meaning: "One row per step of the engine's driver. A recording that was imported has one before each \
            piece of evidence, which says nothing but its time.",
        columns: &[
            EVENT,
            TIME,
            column("due", Flag, "", "Whether a tick was due."),
            column("last", Flag, "", "Whether it only polled because the run was about to end."),
            column("looking", Flag, "", "Whether the machine had more to look for than it had time for."),
            column("demotes", Flag, "", "Whether the machine takes demands to demote."),
            column(
                "pacing",
                Text,
                "",
                "How far the kernel's scans can be paced: `nothing`, `steps`, `renewals`.",
            ),
            column("step_mb", Number, "MB", "Scan size that the engine wished for.").or_null(),
            column("period_min_ms", Number, "ms", "Shortest scan period that it wished for.").or_null(),
            column("period_max_ms", Number, "ms", "Longest scan period that it wished for.").or_null(),
            column("renewing", Flag, "", "Whether it wished for a renewal of scan intervals.").or_null(),
        ],
    },
    Table {
        name: "accesses",
        meaning: "Observed accesses to folios: hint faults, samples, counts of devices.",
        columns: &[
            EVENT,
            column("time", Near, "ns", "When it was accessed, CLOCK_MONOTONIC."),
            column(
                "pid",
                Number,
                "",
                "The process that accessed it; null beside a `vpn`: one that is not named.",
            )
            .or_null(),
            VPN.or_null(),
            PFN,
            ORDER,
            column("node", Number, "", "The node that held the page.").or_null(),
            column("accessor", Number, "", "The node of the CPU that accessed it.").or_null(),
            column(
                "source",
                Number,
                "",
                "0 a hint fault; 1 a sample: of hardware, or what was imported; 2 a device's count.",
            ),
            column("scanned", Wide, "ns", "Hint fault: when the scan marked the page, CLOCK_MONOTONIC.")
                .or_null(),
            column(
                "scan_rank",
                WideSigned,
                "faults",
                "Hint fault: the faults of its process in this part before it, less those since the scan.",
            )
            .or_null(),
            column("latency_cycles", Number, "cycles", "Sample: load latency, 0 where unknown.").or_null(),
            column("store", Flag, "", "Sample: whether it was a store.").or_null(),
            column("period", Number, "accesses", "Sample: accesses for each sample, 0 where unknown.")
                .or_null(),
            column("count", Number, "accesses", "Count: accesses to the page.").or_null(),
            column("gap", Wide, "ns", "Count: mean time between two of them.").or_null(),
        ],
    },
    Table {
        name: "answers",
        meaning: "What the machine answered when the rule asked it about the mapping around a \
            page. They belong to the event `accesses` of that number.",
        columns: &[
            EVENT,
            column("asked", Text, "", "`bounds` of the mapping, or whether the page is `marked` by a scan."),
            PID,
            VPN,
            column("known", Flag, "", "Bounds: whether they are known. Marked: whether it is."),
            column("start", Near, "4 KiB", "Bounds: the first virtual page.").or_null(),
            column("end", Near, "4 KiB", "Bounds: the virtual page after the last.").or_null(),
            column("node", Number, "", "Marked: the node that holds the page.").or_null(),
            PFN,
        ],
    },
    Table {
        name: "regions",
        meaning: "Regions of DAMON, a snapshot per event.",
        columns: &[
            EVENT,
            SPACE,
            OF,
            column("start", Near, "pages", "First page: virtual page or frame."),
            column("end", Near, "pages", "Page after the last."),
            column(
                "access_rate_bp",
                Number,
                "1/10000",
                "Share of the checks that found the region accessed.",
            ),
            column("age", Wide, "ns", "For how long the rate has been about the same."),
            column("check", Wide, "ns", "How far each check looks back."),
        ],
    },
    Table {
        name: "region_counts",
        meaning: "Regions whose accesses another program has counted, imported. Out of how many \
            they are is not known, nor what the program counts as one.",
        columns: &[
            EVENT,
            SPACE,
            OF,
            column("start", Near, "pages", "First page: virtual page or frame."),
            column("end", Near, "pages", "Page after the last."),
            column("accesses", Wide, "", "Accesses as the program counted them."),
            column("writes", Wide, "", "Writes as it counted them.").or_null(),
            column(
                "age",
                Wide,
                "intervals",
                "For how many aggregation intervals the count has been about the same.",
            )
            .or_null(),
        ],
    },
    Table {
        name: "region_pages",
        meaning: "Pages of lower tiers that lie in regions.",
        columns: &[
            EVENT,
            TIME,
            PID,
            VPN,
            PFN,
            ORDER,
            NODE,
            column("space", Text, "", "The region's space: `virtual` or `physical`."),
            column("of", Number, "", "The region's process or node."),
            column("start", Near, "pages", "The region's first page."),
            column("end", Near, "pages", "The page after its last."),
            column(
                "access_rate_bp",
                Number,
                "1/10000",
                "Share of the checks that found the region accessed.",
            ),
            column("age", Wide, "ns", "For how long the rate has been about the same."),
            column("check", Wide, "ns", "How far each check looks back."),
        ],
    },
    Table {
        name: "memory",
        meaning: "Memory that appeared or disappeared.",
        columns: &[
            EVENT,
            column("node", Number, "", "The node, of memory that appeared.").or_null(),
            column("start", Near, "pages", "First frame."),
            column("end", Near, "pages", "Frame after the last."),
        ],
    },
    Table {
        name: "topology",
        meaning: "The nodes of the machine; at the beginning, and after each change.",
        columns: &[
            EVENT,
            NODE,
            column("tier", Number, "", "Its tier, 0 the fastest."),
            column("cpus", Text, "", "Its CPUs, separated by spaces."),
            column("capacity", Wide, "pages", "Its memory."),
            column("page_bytes", Number, "bytes", "The size of a page of the machine."),
            column("read_latency_ns", Number, "ns", "Idle read latency, as the firmware reports it.")
                .or_null(),
            column("read_bandwidth_mbps", Number, "MB/s", "Read bandwidth, likewise.").or_null(),
            column(
                "distances",
                Text,
                "",
                "Distances to the nodes of the event, in their order; 10 is local.",
            ),
        ],
    },
    Table {
        name: "processes",
        meaning: "What became of processes.",
        columns: &[
            EVENT,
            PID,
            column("what", Text, "", "`managed`, `excluded`, `unexamined`, `exec` or `exit`."),
            SCOPE.or_null(),
        ],
    },
    Table {
        name: "outcomes",
        meaning: "How the moves of a batch ended, in the order of its moves. `events.number` is \
            the batch, `events.at` when the last move ended.",
        columns: &[EVENT, column("outcome", Text, "", "How the move ended.")],
    },
    Table {
        name: "demoted",
        meaning: "The result of a demand: the first row is the total, further ones are its scopes.",
        columns: &[
            EVENT,
            NODE,
            SCOPE.or_null(),
            column("pages", Wide, "pages", "Pages demoted."),
            column("cpu", Wide, "ns", "CPU time that it took; of the total only.").or_null(),
        ],
    },
    Table {
        name: "holdings",
        meaning: "How much of the top tier a scope with a floor or a cap holds.",
        columns: &[EVENT, SCOPE, TIME, column("pages", Wide, "pages", "Pages of the top tier.")],
    },
    Table {
        name: "pressures",
        meaning: "How long tasks of a scope have waited for memory.",
        columns: &[
            EVENT,
            SCOPE,
            TIME,
            column("some", Near, "µs", "Time in which some task waited, since its cgroup was made."),
            column("full", Near, "µs", "Time in which all waited, likewise."),
        ],
    },
    Table {
        name: "scans",
        meaning: "How the kernel scans the process of which it scans most; null while that is not \
            known.",
        columns: &[
            EVENT,
            PID.or_null(),
            column("interval", Wide, "ns", "Time between two steps of a scan.").or_null(),
            column("mib", Wide, "MiB", "The memory of the process.").or_null(),
            column("passes", Number, "passes", "Passes over it that have ended.").or_null(),
        ],
    },
    Table {
        name: "programs",
        meaning: "How much the machine's programs work.",
        columns: &[EVENT, TIME, column("cpu", Near, "ns", "CPU time that they have used since some moment.")],
    },
    Table {
        name: "nodes",
        meaning: "The state of every node, as it was read for a tick.",
        columns: &[
            EVENT,
            NODE,
            column("free", Near, "pages", "Free memory."),
            column("managed", Wide, "pages", "Memory that the watermarks refer to."),
            column("min", Wide, "pages", "Watermark below which allocations reclaim themselves."),
            column("low", Wide, "pages", "Watermark below which kswapd wakes."),
            column("high", Wide, "pages", "Watermark above which kswapd sleeps."),
            column("promo", Wide, "pages", "The same in tiering mode."),
        ],
    },
    Table {
        name: "moves",
        meaning: "Batches of moves that the engine asked for, one row per move. `events.number` \
            is the batch.",
        columns: &[
            EVENT,
            column("batch_pid", Number, "", "The process of the batch."),
            column("target", Number, "", "The node to move to."),
            column("direction", Text, "", "`promote`, `demote` or `balance`."),
            PID,
            VPN,
            PFN,
            ORDER,
            column("from", Number, "", "The node on which the evidence saw the page."),
        ],
    },
    Table {
        name: "demands",
        meaning: "What the engine asked to be demoted: the first row is the demand, further ones \
            are limits of scopes. `events.number` is the demand.",
        columns: &[
            EVENT,
            column(
                "limit",
                Text,
                "",
                "`all` of it, or `only` a scope's; of a scope with a `floor`, or a `braked` one.",
            ),
            SCOPE.or_null(),
            column("node", Number, "", "The node to demote from."),
            column("pages", Wide, "pages", "Pages, at most."),
            column("idle", Wide, "ns", "Only pages that were not accessed for so long."),
        ],
    },
    Table {
        name: "decisions",
        meaning: "The engine's journal.",
        columns: &[
            EVENT,
            column("time", Near, "ns", "The engine's time, CLOCK_MONOTONIC."),
            column("what", Text, "", "What was decided or happened, as in `explain`."),
            column(
                "reason",
                Text,
                "",
                "Why it was refused or held; what held an expired one; how a failed one ended.",
            )
            .or_null(),
            column("batch", Near, "", "The batch that it was issued in.").or_null(),
            PID,
            VPN,
            PFN,
            column("pages", Number, "pages", "The size of the folio."),
            column("direction", Text, "", "`promote`, `demote` or `balance`."),
            column("from", Number, "", "The node on which the evidence saw it."),
            column("to", Number, "", "The target, once chosen.").or_null(),
            column("score", Number, "", "The combined score of all sources."),
            column("why", Text, "", "Why the rule proposed it."),
            column("sources", Text, "", "The sources whose evidence had not expired, separated by spaces."),
        ],
    },
    Table {
        name: "settings",
        meaning: "What the machine, the program and its configuration are, by key.",
        columns: &[
            EVENT,
            column("key", Text, "", "What it is about."),
            column("value", Text, "", "What it is."),
        ],
    },
    Table {
        name: "losses",
        meaning: "Events that were not recorded because the disk did not keep up. They are \
            missing before this event.",
        columns: &[
            EVENT,
            column("events", Wide, "events", "Events that are missing."),
            column("pieces", Wide, "pieces", "Pieces of evidence in them."),
        ],
    },
];
