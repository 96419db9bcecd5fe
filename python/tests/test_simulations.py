"""Simulations and comparisons: what they answer, and what they refuse."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import thermocline
from conftest import SMALL


def test_a_run_has_a_report_for_each_seed() -> None:
    reports = thermocline.simulate("chunks-small", manager="numab2", set=SMALL, seeds=2, seed=5)
    assert [report.seed for report in reports] == [5, 6]
    for report in reports:
        assert (report.scenario, report.manager) == ("chunks-small", "numab2")
        assert report.finished
        assert report.time_s is not None and report.time_s > 0
        assert report.slowdown is not None and report.slowdown >= 1
        assert report.figures["time_s"] == report.time_s
        assert report.counters["numa_hint_faults"] == report.figures["numa_hint_faults"]
        assert sum(report.processes[0].pages) * 4096 == 64 << 20
        assert report.oracle is not None and 0 < report.oracle.static_top_share <= 1
    again = thermocline.simulate("chunks-small", manager="numab2", set=SMALL, seed=5)
    assert again == reports[:1]
    assert pickle.loads(pickle.dumps(reports)) == reports
    with pytest.raises(FrozenInstanceError):
        reports[0].seed = 1  # type: ignore[misc]


def test_a_rule_is_a_manager_of_ours() -> None:
    [report] = thermocline.simulate("chunks-small", rule="latency", set=SMALL)
    assert report.manager == "thermocline:latency"


def test_what_a_run_cannot_tell_is_none() -> None:
    [report] = thermocline.simulate("chunks-small", manager="none", set=[*SMALL, "limit=50ms"])
    assert not report.finished
    assert (report.time_s, report.oracle, report.slowdown) == (None, None, None)


def test_managers_are_compared_with_the_first() -> None:
    lines = thermocline.compare("chunks-small", manager=["none", "numab2"], set=SMALL, seeds=3)
    assert [(line.manager, line.seeds) for line in lines] == [("none", 3), ("numab2", 3)]
    assert (lines[0].p, lines[1].unfinished) == (1.0, 0)
    time_s = lines[1].figures["time_s"]
    assert time_s is not None and time_s.mean > 0 and time_s.sd >= 0


def test_what_has_no_effect_is_told() -> None:
    key = "config.admission.rate_limit_mbps=64"
    with pytest.warns(thermocline.Notice, match="has no effect under none"):
        thermocline.compare(
            "chunks-small", manager=["thermocline:latency", "none"], set=[*SMALL, key], seeds=1
        )


def test_errors_are_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("name = 3\n")
    for scenario, options, said in [
        ("redsi", {}, "redsi"),
        (str(file), {}, f"{file}:1: "),
        (str(tmp_path / "gone.toml"), {}, "cannot be read"),
        (str(tmp_path), {}, "there is no recording in it"),
        ("chunks-small", {"manager": "numab3"}, "numab3"),
        ("chunks-small", {"set": ["process.0.threats=2"]}, "threats"),
        ("chunks-small", {"set": ["machine=lab"], "machine": "lab"}, "no effect beside --machine"),
        ("chunks-small", {"seeds": 0}, "seeds: 0 is not in"),
        ("chunks-small", {"mode": "fast"}, "none of auto, exact and event"),
        ("chunks-small", {"manager": "none", "rule": "latency"}, "one of the two"),
        ("chunks-small", {"manager": "none", "record": tmp_path / "r"}, "has no engine"),
    ]:
        with pytest.raises(thermocline.Error) as raised:
            thermocline.simulate(scenario, **options)  # type: ignore[arg-type]
        assert said in str(raised.value), raised.value
        assert not str(raised.value).startswith("error: ")


@pytest.mark.parametrize("name", ["", "\0", "x" * 100_000, "/", "..", "/dev/zero", "/dev/zero.toml"])
def test_names_of_nothing_are_errors(name: str, tmp_path: Path) -> None:
    for ask in (
        lambda: thermocline.simulate(name),
        lambda: thermocline.simulate("chunks-small", machine=name),
        lambda: thermocline.simulate("chunks-small", manager=name),
        lambda: thermocline.simulate("chunks-small", rule="latency", set=[*SMALL, name]),
        lambda: thermocline.compare([name, name]),
        lambda: thermocline.plan(name),
        lambda: thermocline.replay(name),
        lambda: thermocline.read_trace(name, name),
        lambda: thermocline.sweep(name, tmp_path),
        lambda: thermocline.merge(name),
    ):
        with pytest.raises(thermocline.Error) as raised:
            ask()
        assert "defect" not in str(raised.value), raised.value


def test_values_of_another_type_are_refused() -> None:
    for options in [{"seeds": -1}, {"seeds": 2**70}, {"set": [3]}]:
        with pytest.raises((TypeError, OverflowError)):
            thermocline.simulate("chunks-small", **options)  # type: ignore[arg-type]


def test_other_threads_go_on_while_it_computes() -> None:
    ticks, done = 0, threading.Event()

    def simulate() -> None:
        thermocline.simulate("chunks-small", manager="numab2", mode="exact", set=SMALL)
        done.set()

    thread = threading.Thread(target=simulate)
    thread.start()
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 2


def test_a_signal_ends_it() -> None:
    import signal

    start = time.monotonic()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        thermocline.simulate("redis", manager="numab2", mode="exact", seeds=1000)
    assert time.monotonic() - start < 20
