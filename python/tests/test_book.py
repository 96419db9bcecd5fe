"""The book's chapter: its code is run, block by block, and what it shows is what is printed.

`BLESS=1` writes what is printed into the chapter.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

CHAPTER = Path(__file__).resolve().parents[2] / "docs" / "src" / "python.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(code: str, line: int, names: dict[str, object]) -> str:
    """What a block prints; errors name its lines of the chapter."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * line + code, str(CHAPTER), "exec"), names)
    return out.getvalue()


def run(text: str) -> str:
    """The chapter with what its blocks print in those that show it; files are written here."""
    names: dict[str, object] = {}
    last = ""
    parts, end = [], 0
    for block in BLOCK.finditer(text):
        kind, code = block[1], block[2]
        line = text.count("\n", 0, block.start()) + 1
        parts.append(text[end : block.start(2)])
        end = block.end(2)
        if kind == "text":
            code, last = last, ""
        elif last:
            raise AssertionError(f"docs/src/python.md:{line}: what is printed before is not shown")
        elif kind == "toml":
            # The first line names the file.
            Path(code.split("\n")[0].removeprefix("# ")).write_text(code)
        else:
            assert kind == "python", f"docs/src/python.md:{line}: {kind} is not run"
            last = printed(code, line, names)
        parts.append(code)
    assert not last, "what the last block prints is not shown"
    return "".join(parts) + text[end:]


def test_the_chapter_shows_what_its_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = CHAPTER.read_text()
    assert text.count("```") == 2 * len(BLOCK.findall(text)) >= 16
    fresh = run(text)
    if "BLESS" in os.environ:
        CHAPTER.write_text(fresh)
    assert fresh.splitlines() == text.splitlines()
