"""``python -OO`` drops docstrings and assertions: what Napkin says and writes is the same with it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAIN = "import sys; from reports.cli import main; sys.argv[0] = 'napkin'; main()"
# Classes that are given the docstring of what they stand for: nobody shows it.
_READERS = ("__doc__", "getdoc", "cleandoc")
NOT_SHOWN = {"calc/trace/values/integers.py"}


def _napkin(*words: str, optimize: str, folder: Path) -> bytes:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": optimize, "NAPKIN_CACHE": "off"}
    command = [sys.executable, "-c", MAIN, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_that_is_shown_is_a_docstring() -> None:
    """No file reads ``__doc__`` or asks ``inspect`` for it. Only files with such a word are parsed."""
    texts = {path: path.read_text(encoding="utf-8") for top in ("calc", "reports") for path in (ROOT / top).rglob("*.py")}
    actual = {
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if any(word in text for word in _READERS)
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Attribute) and node.attr in _READERS) or (isinstance(node, ast.Name) and node.id == "__doc__")
    }
    assert actual

    assert actual <= NOT_SHOWN


@pytest.mark.slow
def test_the_rules_are_the_same_without_docstrings(tmp_path: Path) -> None:
    """Statement, shapes and source of every operator's rule."""
    assert _napkin("list", "rules", "--json", optimize="2", folder=tmp_path) == _napkin(
        "list", "rules", "--json", optimize="", folder=tmp_path
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [("list", "rules"), ("derive", "gpt2", "--json"), ("derive", "linear")], ids=" ".join)
def test_a_command_writes_the_same_without_docstrings(words: tuple[str, ...], tmp_path: Path) -> None:
    """Byte for byte."""
    assert _napkin(*words, optimize="2", folder=tmp_path) == _napkin(*words, optimize="", folder=tmp_path)


@pytest.mark.slow
def test_a_report_is_the_same_without_docstrings(tmp_path: Path) -> None:
    """All three files, byte for byte."""
    for optimize in ("0", "2"):
        _napkin("report", "linear", "-o", optimize, optimize=optimize, folder=tmp_path)
    files = [{path.name: path.read_bytes() for path in (tmp_path / optimize).iterdir()} for optimize in ("0", "2")]

    assert len(files[0]) == 3
    assert files[0] == files[1]
