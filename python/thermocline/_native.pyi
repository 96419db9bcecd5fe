"""The native half of `thermocline`."""

from typing import final

__all__ = [
    "VERSION",
    "Error",
    "Table",
    "compare",
    "merge",
    "plan",
    "read_trace",
    "replay",
    "runs",
    "shard",
    "simulate",
    "tables",
]

VERSION: str

class Error(Exception):
    """What was asked for cannot be done; the message is the command's."""

@final
class Table:
    """A table of a recording. Whoever takes Arrow takes it, without a copy:
    `pyarrow.table(table)`, `polars.DataFrame(table)`."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    @property
    def left_out(self) -> list[str]:
        """Files of the recording that are torn or damaged, and why."""
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object:
        """The schema, by the PyCapsule interface of Arrow."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, by the PyCapsule interface of Arrow."""

def tables() -> list[str]: ...
def read_trace(folder: str, table: str) -> Table: ...
def simulate(
    scenario: str,
    machine: str | None,
    manager: str | None,
    rule: str | None,
    set: list[str],
    seeds: int,
    seed: int,
    mode: str,
    record: str | None,
    private: bool,
) -> str: ...
def compare(
    scenarios: list[str], manager: list[str], machine: str | None, set: list[str], seeds: int
) -> str: ...
def plan(
    folder: str,
    loss: str,
    latency_ns: str | None,
    memory_bound: str | None,
    sizes: list[str],
    source: str | None,
) -> str: ...
def replay(
    folder: str,
    rule: str | None,
    set: list[str],
    config: str | None,
    pages: int | None,
    journal: str | None,
) -> str: ...
def runs(grid: str, machine: str | None) -> int: ...
def shard(
    grid: str, out: str, machine: str | None, shard: str, threads: int | None, library: str
) -> str: ...
def merge(out: str) -> str: ...
