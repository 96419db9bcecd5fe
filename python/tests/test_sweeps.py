"""Sweeps: shards of any number, in any order, come to the same bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import thermocline
import thermocline.ray

GRID = """\
scenarios = ["chunks-small"]
managers = ["none", "numab2"]
seeds = 3

[parameters]
process.0.footprint = ["64MiB", "96MiB"]
process.0.pattern.chunk = ["4MiB"]
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_shards_come_to_the_bytes_of_the_whole(grid: Path, tmp_path: Path) -> None:
    part = thermocline.sweep(grid, tmp_path / "whole")
    assert (part.runs, part.done_before) == (12, 0)
    for shard in ("3/5", "1/5", "5/5", "2/5", "4/5"):
        thermocline.sweep(grid, tmp_path / "shards", shard=shard, threads=1)
    merged = thermocline.merge(tmp_path / "shards")
    assert merged.runs == 12
    assert Path(merged.file).read_bytes() == Path(part.file).read_bytes()
    assert pyarrow.parquet.read_table(merged.file).num_rows == 12
    assert thermocline.sweep(grid, tmp_path / "shards").done_before == 12


def test_errors_of_sweeps_are_the_commands(grid: Path, tmp_path: Path) -> None:
    with pytest.raises(thermocline.Error, match="sweep.json: cannot be read"):
        thermocline.merge(tmp_path)
    with pytest.raises(thermocline.Error, match="K/N"):
        thermocline.sweep(grid, tmp_path / "out", shard="6/5")
    thermocline.sweep(grid, tmp_path / "out", shard="1/4")
    with pytest.raises(thermocline.Error, match="9 of 12 runs are missing"):
        thermocline.merge(tmp_path / "out")
    grid.write_text(GRID.replace("seeds = 3", "seeds = 4"))
    with pytest.raises(thermocline.Error, match="holds the results of another grid"):
        thermocline.sweep(grid, tmp_path / "out")
    grid.write_text("scenarios = []\nseeds = 1\n")
    with pytest.raises(thermocline.Error, match="grid.toml: scenarios: there is none"):
        thermocline.sweep(grid, tmp_path / "other")


def test_without_ray_the_error_says_what_to_install(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it were not installed, where it is.
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(thermocline.Error, match="`pip install ray`"):
        thermocline.ray.sweep(grid, tmp_path / "out")
