"""Sweeps on a Ray cluster: each shard is a task.

Ray is not installed with the package: `pip install ray`. All workers have to see
the grid and the folder by the same path, and to have the same build of the package.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from . import _native
from ._native import Error
from ._results import Merged, Part
from ._verbs import AnyPath, merge
from ._verbs import sweep as _sweep

__all__ = ["sweep"]

SHARDS_A_TASK = 4
"""Shards for each task at a time by default, so that the wait for the last one is short."""


ENDING_S = 30
"""Time in which tasks that were cancelled end."""


def _shard(grid: str, out: str, machine: str | None, shard: str, threads: int) -> Part:
    return _sweep(grid, out, machine=machine, shard=shard, threads=threads)


def sweep(
    grid: AnyPath,
    out: AnyPath,
    *,
    machine: AnyPath | None = None,
    shards: int | None = None,
    cpus_per_task: int = 1,
    max_retries: int = 3,
) -> Merged:
    """Runs a grid on a Ray cluster, and puts its parts together as `sweep.parquet`.

    The bytes are those of a local sweep. A shard whose worker is lost is tried again up to
    `max_retries` times, and goes on with the runs that it kept; so does a second call after one
    that was cut off, with any number of `shards`. Without a connection to a cluster `ray.init()`
    makes one.
    """
    ray = _ray()
    if shards is not None and shards < 1:
        raise Error(f"shards: {shards} is less than 1")
    grid, out = os.path.abspath(grid), os.path.abspath(out)
    named = None if machine is None else os.fspath(machine)
    if named is not None and named.endswith((".toml", ".json")):
        named = os.path.abspath(named)
    # An error of the grid comes before anything is started.
    runs = _native.runs(grid, named)
    if not ray.is_initialized():
        ray.init()
    if shards is None:
        tasks = max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus_per_task)
        shards = min(runs, SHARDS_A_TASK * tasks)
    task = ray.remote(num_cpus=cpus_per_task, max_retries=max_retries)(_shard)
    numbers = [f"{number}/{shards}" for number in range(1, shards + 1)]
    left = [task.remote(grid, out, named, number, cpus_per_task) for number in numbers]
    try:
        while left:
            done, left = ray.wait(left)
            ray.get(done)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Error) else error) from None
    except ray.exceptions.RayError as error:
        raise Error(f"{error}; what was done is kept, and the same call goes on") from error
    finally:
        # After an error or Ctrl-C. What ends now lets go of its journal, for the next call.
        for one in left:
            ray.cancel(one)
        if left:
            ray.wait(left, num_returns=len(left), timeout=ENDING_S)
    return merge(out)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise Error(
            "Ray is not installed; `pip install ray` installs it, "
            "and `thermocline.sweep` needs none"
        ) from error
