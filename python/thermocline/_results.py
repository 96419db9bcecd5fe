"""What the verbs answer: objects of the values that the command prints with `--json`.

Times end in `_s`, `_us` or `_ns`, sizes in `_bytes` or `_pages` (of 4 KiB), rates in `_per_s`;
shares are fractions of 1. `None` is what is not known.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar

T = TypeVar("T")


PLAIN = (type(None), bool, int, float, str)
"""What is in an answer as it is."""


def _named(name: str) -> dict[str, str]:
    """Of a field that has another name, without its unit, in the answer."""
    return {"name": name}


def built(kind: type[T], value: Any) -> T:
    """The value as an object of a type; of a dataclass every field has to be there, no other."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    made: Any = value
    if origin in (typing.Union, types.UnionType):
        some = next((one for one in inner if one is not type(None)), object)
        made = value if isinstance(value, PLAIN) else built(some, value)
    elif origin is list:
        made = [built(inner[0], one) for one in value]
    elif origin is tuple and inner[-1] is not Ellipsis:
        made = tuple(built(one, part) for one, part in zip(inner, value, strict=True))
    elif origin is dict:
        made = {key: built(inner[1], one) for key, one in value.items()}
    elif isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        made = kind(**_fields(kind, dict(value)))
    return typing.cast(T, made)


def _fields(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    hints, out = typing.get_type_hints(kind), {}
    for one in fields(kind):
        name = one.metadata.get("name", one.name)
        if name in value:
            out[one.name] = built(hints[one.name], value.pop(name))
        elif one.default is MISSING and one.default_factory is MISSING:
            raise TypeError(f"{kind.__name__} needs {name}")
    if value:
        raise TypeError(f"{kind.__name__} has no {', '.join(value)}")
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean and standard deviation over seeds."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node at the end of a run."""

    node: int
    tier: int
    used_pages: int
    accesses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Times of a program's operations."""

    operations: int
    per_s: float
    mean_us: float
    p50_us: float
    p99_us: float
    p99_9_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at the end of a run; pages are by node, in the order of `Report.nodes`."""

    name: str
    pages: list[int]
    mean_pages: list[float]
    time_s: float | None
    scan_passes: int
    scan_period_ms: int
    operations: Operations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Bounds of the best placements."""

    static_top_share: float
    static_time_s: float
    phased_top_share: float
    all_top_time_s: float
    all_low_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Pages promoted and demoted up to a time."""

    time_s: float
    promoted_pages: int = field(metadata=_named("promoted"))
    demoted_pages: int = field(metadata=_named("demoted"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """A manager's additional results."""

    threshold_course: list[tuple[int, int]] = field(default_factory=list)
    latencies: list[tuple[int, int, int]] = field(default_factory=list)
    figures: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a simulated run came to."""

    scenario: str
    manager: str
    mode: str
    seed: int
    time_s: float | None
    finished: bool
    populate_s: float
    top_share: float | None
    """The share of the accesses that the top tier served."""
    counters: dict[str, int]
    """Every counter, under the kernel's name where it counts the same."""
    nodes: list[Node]
    processes: list[Process]
    overhead_s: float
    scan_s: float
    aside_s: float
    programs_s: float
    oracle: Oracle | None
    notes: Notes
    figures: dict[str, bool | int | float | None]
    """The columns of a sweep's results: figures that every run has, and counters."""
    course: list[Course] = field(default_factory=list)

    @property
    def slowdown(self) -> float | None:
        """Time against that with all memory in the top tier."""
        return self.figures["slowdown"]

    @property
    def oracle_share(self) -> float | None:
        """The top tier's share of the accesses, of that which the best static placement has."""
        return self.figures["oracle_share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the runs of a manager on a scenario came to."""

    scenario: str
    manager: str
    seeds: int
    unfinished: int
    """Runs that ended at the scenario's limit."""
    figures: dict[str, Summary | None]
    """The figures of `Report.figures`; `None` if a run has none."""
    p: float | None
    """How probable such a difference in time from the first manager is by chance."""
    p_holm: float | None
    """The same, corrected for the number of managers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A value, with a band that leaves out 5 % at each end."""

    low: float | None
    likely: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory that a plan is about."""

    seen_bytes: int = field(metadata=_named("seen"))
    """With evidence or silent: what the answer is about."""
    silent_bytes: int = field(metadata=_named("silent"))
    """Of these, in use without an access that was seen."""
    dark_bytes: int = field(metadata=_named("dark"))
    """In use, and not visible to the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked: shares, and the latency of DRAM and of the slower memory."""

    loss: float
    latency_ns: tuple[float, float]
    memory_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherShare:
    """The DRAM that keeps the loss, if the program waits for memory for another share of time."""

    memory_bound: float
    dram_bytes: Band = field(metadata=_named("dram"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a size of DRAM would give, placed at best."""

    dram_pages: int
    share: Band
    """Of the accesses, served by DRAM."""
    slowdown: Band
    """Time against all memory in DRAM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Why shares may be greater than the evidence can tell."""

    kind: Literal["reach", "regions"]
    per_s: float | None = None
    pages: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What DAMON's checks of about one length found."""

    check_s: float
    snapshots: int
    found: float
    """The share of them that found an access, weighed by the sizes of regions."""
    error: float
    """Its standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much DRAM a recorded program needs. `print` shows what the command prints."""

    recording: str
    source: str
    seconds: float | None
    untimed: str | None
    epochs: int
    memory: Memory
    reach_per_s: float | None
    checks: list[Checks]
    """What checks of several lengths found; empty where they have one length."""
    silent_below_per_s: float | None
    slowed: float | None
    accesses_per_s: Band
    question: Question
    memory_bound_given: bool
    share_needed: float
    smallest_bytes: Band = field(metadata=_named("smallest"))
    """The DRAM that keeps the loss."""
    others: list[OtherShare]
    points: list[Point]
    open: Open | None
    assumptions: list[str]
    notes: list[str]
    sentence: str
    text: str

    def __str__(self) -> str:
        return self.text.rstrip("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDifference:
    """The first decision that differs, as a line of the journal; `None`: nothing more."""

    number: int
    recorded: dict[str, Any] | None
    replayed: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What of a replay's moves and demands the recording has."""

    batches: int
    batches_apart: int
    outcomes_withheld: int
    demands: int
    demands_apart: int
    results_withheld: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Pages of one direction, by what became of them as recorded and as replayed."""

    pages: int
    journals: tuple[int, int]
    moved_in_both: int
    moved_only_recorded: int
    moved_only_replayed: int
    same_reason: int
    another_reason: int
    only_recorded: int
    only_replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Pages with the same two fates."""

    direction: str
    recorded: str
    replayed: str
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A page whose fates differ."""

    page: dict[str, int]
    direction: str
    recorded: str
    replayed: str
    recorded_at_ns: int | None = field(metadata=_named("recorded_at"))
    replayed_at_ns: int | None = field(metadata=_named("replayed_at"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """Where the fates of pages differ."""

    counts: dict[str, Counts]
    pairs: list[Pair]
    first: list[Example]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay came to."""

    recording: str
    program: str | None
    rules: tuple[str, str]
    """The rule recorded, and the one replayed."""
    unchanged: bool
    """Whether it was replayed with its own configuration."""
    steps: int
    pieces: int
    decisions: tuple[int, int]
    """Decisions recorded, and replayed."""
    same: bool
    first_difference: DecisionDifference | None
    followed: Followed
    missing: int
    """Events that are missing in the recording."""
    missing_from: int | None
    left_out: list[str]
    """Files that are torn or damaged, and why."""
    diff: Fates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A shard of a sweep whose runs are all done."""

    file: str = field(metadata=_named("part"))
    runs: int
    done_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """All runs of a sweep in one file."""

    file: str
    runs: int
