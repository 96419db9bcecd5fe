"""What all tests use, and the line by which the test run is counted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import thermocline

SMALL = ["process.0.footprint=64MiB", "process.0.pattern.chunk=4MiB"]
"""A preset that takes a moment."""

RECORDED = """\
name = "fifth"
summary = "a fifth of 32 MiB has nine tenths of the accesses"
machine = "cxl-2tier"

[config.kernel]
scan_delay_ms = 20
scan_period_min_ms = 100
scan_size_mb = 8

[[process]]
name = "fifth"
threads = 1
node = "cpu"
footprint = "32MiB"
place = [{ node = "low" }]
compute_ns = 20000.0
pattern = { kind = "hotspot", hot_share = 0.2, access_share = 0.9, accesses = 500_000 }
"""
RECORDED_SET = ["machine.min_free=256KiB", "machine.node.0.memory=12MiB"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a simulated program."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "fifth.toml").write_text(RECORDED)
    thermocline.simulate(
        folder / "fifth.toml",
        rule="adaptive",
        mode="event",
        set=RECORDED_SET,
        record=folder / "fifth.trace",
    )
    return folder / "fifth.trace"


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(recorded, tmp_path / "copy.trace")
    return tmp_path / "copy.trace"


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Counts as cargo does; a test that was skipped has not shown what it is there for."""
    yield
    count = {key: len(found) for key, found in terminalreporter.stats.items()}
    failed = sum(count.get(key, 0) for key in ("failed", "error", "skipped", "xfailed", "xpassed"))
    passed = count.get("passed", 0)
    word = "FAILED" if failed or not passed else "ok"
    terminalreporter.write_line(
        f"test result: {word}. {passed} passed; {failed} failed; 0 ignored; python"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
