"""A sweep on a local Ray cluster of two workers, one of which is killed; `make python-ray`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import thermocline
import thermocline.ray

GRID = """\
scenarios = ["chunks-small"]
managers = ["none", "numab2"]
seeds = 24
mode = "exact"

[parameters]
process.0.footprint = ["64MiB", "96MiB"]
process.0.pattern.chunk = ["4MiB"]
process.0.pattern.accesses_per_page = [400]
"""
RUNS = 96


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two workers: a task takes a CPU, and there are two."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.fixture(scope="module")
def whole(grid: Path) -> bytes:
    """The bytes of the local sweep."""
    return Path(thermocline.sweep(grid, grid.parent / "whole").file).read_bytes()


def writers(out: Path) -> dict[int, int]:
    """Processes that have a journal of the folder open, with the lines that it has."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            files = [os.readlink(fd) for fd in (process / "fd").iterdir()]
            for file in files:
                if file.startswith(f"{out}/part-") and file.endswith(".journal"):
                    found[int(process.name)] = Path(file).read_bytes().count(b"\n")
        except OSError:
            continue
    return found


def killed_in(out: Path, killed: list[int]) -> None:
    """Kills a worker once two are at work, and it has kept runs and is not done."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not killed:
        at_work = writers(out)
        ready = [process for process, lines in at_work.items() if lines > 3]
        if len(at_work) == 2 and ready:
            os.kill(ready[0], signal.SIGKILL)
            killed.append(ready[0])
        time.sleep(0.01)


def test_a_killed_workers_shard_goes_on_and_the_bytes_are_the_same(
    grid: Path, whole: bytes, tmp_path: Path
) -> None:
    killed: list[int] = []
    out = tmp_path / "out"
    killer = threading.Thread(target=killed_in, args=(out, killed))
    killer.start()
    merged = thermocline.ray.sweep(grid, out, shards=4)
    killer.join()
    assert len(killed) == 1, "no worker was killed while it was at work"
    assert merged.runs == RUNS and Path(merged.file).read_bytes() == whole


def test_a_second_call_goes_on_where_the_first_was_cut_off(
    grid: Path, whole: bytes, tmp_path: Path
) -> None:
    killed: list[int] = []
    out = tmp_path / "out"
    killer = threading.Thread(target=killed_in, args=(out, killed))
    killer.start()
    with pytest.raises(thermocline.Error, match="what was done is kept, and the same call goes on"):
        thermocline.ray.sweep(grid, out, shards=4, max_retries=0)
    killer.join()
    kept = list(out.glob("part-*.journal")) + list(out.glob("part-*.parquet"))
    assert kept and not (out / "sweep.parquet").exists()
    # Another number of shards takes over the runs that are kept.
    assert not writers(out)
    merged = thermocline.ray.sweep(grid, out, shards=3)
    assert Path(merged.file).read_bytes() == whole


def test_an_error_of_a_worker_is_the_commands(grid: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sweep.json").write_text("{}")
    with pytest.raises(thermocline.Error, match="is no plan of a sweep"):
        thermocline.ray.sweep(grid, tmp_path / "out", shards=2)
    with pytest.raises(thermocline.Error, match="shards: 0 is less than 1"):
        thermocline.ray.sweep(grid, tmp_path / "out", shards=0)
