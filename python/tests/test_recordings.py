"""Recordings: their tables as Arrow, plans and replays."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pyarrow
import pyarrow.parquet
import pytest
import thermocline


def of_files(folder: Path, table: str) -> pyarrow.Table:
    """The rows of a table as Arrow's own reader reads them."""
    return pyarrow.concat_tables(
        pyarrow.parquet.read_table(path) for path in sorted(folder.glob(f"{table}-*.parquet"))
    )


def test_every_table_is_that_of_its_files(recorded: Path) -> None:
    filled = 0
    for name in thermocline.TABLES:
        table = thermocline.read_trace(recorded, name)
        arrow = pyarrow.table(table)
        assert (table.name, len(table), table.left_out) == (name, arrow.num_rows, [])
        assert arrow.column_names == table.columns and table.columns[0] == "event"
        if len(table):
            filled += 1
            theirs = of_files(recorded, name)
            assert arrow.cast(theirs.schema) == theirs
    assert filled >= 8


def test_nothing_is_copied_on_the_way_out(recorded: Path) -> None:
    table = thermocline.read_trace(recorded, "accesses")

    def addresses() -> list[int]:
        columns = pyarrow.table(table).select(["time", "vpn", "node"]).columns
        chunks = [chunk for column in columns for chunk in column.chunks]
        return [chunk.buffers()[1].address for chunk in chunks]

    assert addresses() == addresses() and addresses()
    frame = polars.DataFrame(table)
    assert frame.height == len(table)
    assert frame["time"].to_list() == pyarrow.table(table)["time"].to_pylist()


def test_arrow_outlives_the_table(recorded: Path) -> None:
    table = thermocline.read_trace(recorded, "settings")
    arrow = pyarrow.table(table)
    del table
    assert "config" in arrow["key"].to_pylist()
    # A capsule that nobody takes.
    capsule = thermocline.read_trace(recorded, "settings").__arrow_c_stream__(None)
    del capsule


def test_columns_have_units_and_meanings(recorded: Path) -> None:
    schema = pyarrow.schema(thermocline.read_trace(recorded, "accesses"))
    assert schema.field("time").metadata[b"unit"] == b"ns"
    assert schema.field("vpn").nullable and schema.field("vpn").type == pyarrow.uint64()
    assert schema.field("pfn_offset").type == pyarrow.int64()
    assert schema.field("store").type == pyarrow.bool_()


def test_torn_files_are_left_out_and_named(copied: Path) -> None:
    whole = len(thermocline.read_trace(copied, "events"))
    torn = copied / "events-999999.parquet"
    torn.write_bytes(b"PAR1")
    table = thermocline.read_trace(copied, "events")
    assert len(table) == whole and [str(torn) in left for left in table.left_out] == [True]
    torn.unlink()
    last = sorted(copied.glob("nodes-*.parquet"))[-1]
    bytes_ = bytearray(last.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    last.write_bytes(bytes_)
    assert len(list(copied.glob("part-*.json"))) > 1
    table = thermocline.read_trace(copied, "events")
    assert len(table) < whole and str(last) in table.left_out[0]


def test_what_is_no_table_or_recording_is_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(thermocline.Error, match='no "access"; it has events, steps'):
        thermocline.read_trace(recorded, "access")
    for folder, said in [(tmp_path, "no recording in it"), (tmp_path / "gone", "cannot be read")]:
        with pytest.raises(thermocline.Error, match=said):
            thermocline.read_trace(folder, "events")
        with pytest.raises(thermocline.Error, match=said):
            thermocline.plan(folder)
        with pytest.raises(thermocline.Error, match=said):
            thermocline.replay(folder)


def test_a_plan_is_the_commands(recorded: Path) -> None:
    plan = thermocline.plan(recorded, loss="3%", sizes=["20%", 16 << 20])
    assert plan.source == "hint-faults" and plan.memory.seen_bytes == 32 << 20
    assert plan.question.loss == 0.03 and plan.question.memory_bound == 0.3
    assert not plan.memory_bound_given
    assert [point.dram_pages for point in plan.points] == [1638, 4096]
    assert plan.points[0].share.likely is not None and plan.points[0].share.likely > 0.8
    assert plan.smallest_bytes.low is not None and plan.smallest_bytes.high is not None
    assert plan.smallest_bytes.low <= plan.smallest_bytes.high
    assert str(plan).startswith(plan.sentence) and "Assumed:" in str(plan)
    given = thermocline.plan(recorded, loss=0.1, memory_bound=0.5, latency_ns=(90, 300))
    assert given.memory_bound_given and given.question.latency_ns == (90.0, 300.0)
    assert given.question.loss == 0.1 and given.question.memory_bound == 0.5


def test_a_plan_refuses_what_the_command_refuses(recorded: Path) -> None:
    for options, said in [
        ({"loss": "3"}, "loss: \"3\" is no share"),
        ({"memory_bound": 2.0}, "memory_bound"),
        ({"sizes": ["0%"]}, "sizes: no DRAM is no plan"),
        ({"sizes": ["1TiB"]}, "more than the 32.0 MiB"),
        ({"latency_ns": (0, 1)}, "latency_ns"),
        ({"source": "guesses"}, "source"),
        ({"source": "samples"}, "heat cannot be estimated"),
    ]:
        with pytest.raises(thermocline.Error) as raised:
            thermocline.plan(recorded, **options)  # type: ignore[arg-type]
        assert said in str(raised.value), raised.value


def test_a_replay_decides_the_same_and_another_rule_does_not(
    recorded: Path, tmp_path: Path
) -> None:
    same = thermocline.replay(recorded, journal=tmp_path / "journal")
    assert same.unchanged and same.same and same.first_difference is None and same.diff is None
    assert same.rules == ("adaptive", "adaptive") and same.missing == 0
    lines = (tmp_path / "journal").read_text().splitlines()
    assert len(lines) == same.decisions[0] == same.decisions[1]
    assert "page" in json.loads(lines[0])
    other = thermocline.replay(recorded, rule="latency", diff=True, pages=2)
    assert other.rules == ("adaptive", "latency") and not other.same
    assert other.first_difference is not None and other.diff is not None
    assert len(other.diff.first) == 2 and other.diff.first[0].page.keys() == {"pid", "vpn"}
    counts = other.diff.counts["promote"]
    pairs = [pair for pair in other.diff.pairs if pair.direction == "promote"]
    assert counts.pages == sum(pair.pages for pair in pairs)


def test_a_replay_refuses_what_the_command_refuses(recorded: Path, tmp_path: Path) -> None:
    for options, said in [
        ({"rule": "lru"}, 'there is no rule "lru"'),
        ({"set": ["admission.rate_limit=64"]}, "did you mean `admission.rate_limit_mbps`?"),
        ({"set": ["nothing"]}, "write it as section.key=value"),
        ({"config": tmp_path / "gone.toml"}, "cannot read"),
        ({"journal": tmp_path / "no" / "journal"}, "cannot write the journal"),
    ]:
        with pytest.raises(thermocline.Error) as raised:
            thermocline.replay(recorded, **options)  # type: ignore[arg-type]
        assert said in str(raised.value), raised.value


def test_scopes_of_ones_own_are_told_to_be_the_recorded_ones(
    recorded: Path, tmp_path: Path
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('[rule]\nname = "latency"\n[[scope]]\nname = "web"\ncgroup = "/web"\n')
    with pytest.warns(thermocline.Notice, match="scopes are the recorded ones"):
        outcome = thermocline.replay(recorded, config=config)
    assert outcome.rules == ("adaptive", "latency")
