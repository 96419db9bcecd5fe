"""The verbs: what they take, and how the native half is asked."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from . import _native
from ._native import Table
from ._results import Comparison, Merged, Part, Plan, Replay, Report, built

AnyPath = str | os.PathLike[str]

TABLES: tuple[str, ...] = tuple(_native.tables())
"""The tables of a recording."""


class Notice(UserWarning):
    """What the command would tell beside its answer."""


def _told(text: str) -> Any:
    answer = json.loads(text)
    for note in answer["notes"]:
        warnings.warn(note, Notice, stacklevel=3)
    return answer["answer"]


def _listed(values: str | Sequence[str]) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


def _path(path: AnyPath | None) -> str | None:
    return None if path is None else os.fspath(path)


def simulate(
    scenario: AnyPath,
    *,
    machine: AnyPath | None = None,
    manager: str | None = None,
    rule: str | None = None,
    set: str | Sequence[str] = (),
    seeds: int = 1,
    seed: int = 1,
    mode: Literal["auto", "exact", "event"] = "auto",
    record: AnyPath | None = None,
    private: bool = False,
) -> list[Report]:
    """Simulates a scenario under a manager, and gives a report for each seed.

    `scenario` is a preset's name, a TOML file, or a recording's folder, and `machine` a preset's
    name, a TOML file, or what `thermocline doctor --json` has printed. `rule` is the same as
    `manager="thermocline:RULE"`. `set` changes values, as in `["process.0.threads=2"]`. `record`
    records the engine's evidence and decisions into a folder; with `private`, without names,
    numbers and addresses of processes.
    """
    text = _native.simulate(
        os.fspath(scenario),
        _path(machine),
        manager,
        rule,
        _listed(set),
        seeds,
        seed,
        mode,
        _path(record),
        private,
    )
    return built(list[Report], _told(text))


def compare(
    scenarios: AnyPath | Sequence[AnyPath],
    *,
    manager: str | Sequence[str] = (),
    machine: AnyPath | None = None,
    set: str | Sequence[str] = (),
    seeds: int = 4,
) -> list[Comparison]:
    """Runs every manager on every scenario, and gives a line for each two of them.

    All managers are compared if none is named; the first is what the others are compared with.
    """
    if isinstance(scenarios, str | os.PathLike):
        scenarios = [scenarios]
    named = [os.fspath(scenario) for scenario in scenarios]
    text = _native.compare(named, _listed(manager), _path(machine), _listed(set), seeds)
    return built(list[Comparison], _told(text))


def plan(
    folder: AnyPath,
    *,
    loss: float | str = 0.03,
    latency_ns: tuple[float, float] | None = None,
    memory_bound: float | str | None = None,
    sizes: Sequence[int | str] = (),
    source: Literal["hint-faults", "samples", "regions"] | None = None,
) -> Plan:
    """Says how much DRAM a recorded program needs.

    Shares are numbers, or text as in `"3%"`. Sizes of DRAM are bytes, or text as in `"25%"` and
    `"8GiB"`. `latency_ns` are the latencies of DRAM and of the slower memory.
    """
    text = _native.plan(
        os.fspath(folder),
        str(loss),
        None if latency_ns is None else f"0={latency_ns[0]},1={latency_ns[1]}",
        None if memory_bound is None else str(memory_bound),
        [f"{size}B" if isinstance(size, int) else size for size in sizes],
        source,
    )
    return built(Plan, _told(text))


def replay(
    folder: AnyPath,
    *,
    rule: str | None = None,
    set: str | Sequence[str] = (),
    config: AnyPath | None = None,
    diff: bool = False,
    pages: int = 10,
    journal: AnyPath | None = None,
) -> Replay:
    """Lets a rule decide on recorded evidence, and compares with what was decided then.

    With `diff`, it says where the fates of pages differ, and lists so many `pages`. `journal` is a
    file that the decisions of the replay are written into, one a line, as JSON.
    """
    listed = pages if diff else None
    text = _native.replay(
        os.fspath(folder), rule, _listed(set), _path(config), listed, _path(journal)
    )
    return built(Replay, _told(text))


def read_trace(folder: AnyPath, table: str) -> Table:
    """Reads a table of a recording into memory, one of `TABLES`.

    Files that are torn or damaged are left out, and named by `Table.left_out`.
    """
    return _native.read_trace(os.fspath(folder), table)


def sweep(
    grid: AnyPath,
    out: AnyPath,
    *,
    machine: AnyPath | None = None,
    shard: str = "1/1",
    threads: int | None = None,
) -> Part:
    """Runs a shard of a grid, or what is left of it, into a folder.

    `shard` is `"K/N"`, the K-th of N. Finished runs are kept: after Ctrl-C or a kill the same call
    goes on. It uses all cores, or so many `threads`.
    """
    library = _native.__file__
    text = _native.shard(os.fspath(grid), os.fspath(out), _path(machine), shard, threads, library)
    return built(Part, json.loads(text))


def merge(out: AnyPath) -> Merged:
    """Puts the parts of a sweep together as `sweep.parquet`, to the same bytes for any shards."""
    return built(Merged, json.loads(_native.merge(os.fspath(out))))
