"""What the code that derives says: stored forms and the cache of traces depend on that, and not on how it is written or where it lies."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calc.models.load import load
from calc.options import Options
from calc.pipeline import precomputed
from calc.pipeline.cache import Cache
from calc.pipeline.precomputed import code, index, produced
from calc.spec import Spec

STALE = "the stored closed forms were made by other code: python -m calc.pipeline.precomputed.make re-derives them"
Edit = Callable[[str, Callable[[str], str]], None]


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Changes a file in a copy of the package, which takes the place of the package."""
    root = tmp_path / "calc"
    shutil.copytree(produced.ROOT, root, ignore=shutil.ignore_patterns("__pycache__", "stored"))
    for module in (produced, code):
        monkeypatch.setattr(module, "ROOT", root)

    def change(file: str, by: Callable[[str], str]) -> None:
        text = (root / file).read_text(encoding="utf-8")
        assert by(text) != text
        (root / file).write_text(by(text), encoding="utf-8")
        _forget()

    yield change
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for function in (
        *(code._imported, code._parsed, code._meaning, code._statement_texts, code._definition),
        *(index._digest_here, index._has_same_meaning, index.code_here),
    ):
        function.cache_clear()


def _trace_of(spec: Spec) -> Path | None:
    """The file of a trace in the cache."""
    return entry.path if (entry := Cache(spec, Options(), used=True)._entry) else None


def _everything() -> str:
    return code.combined(code.meanings(code.sources()).values())


@pytest.mark.slow
def test_a_comment_and_a_docstring_change_nothing(edit: Edit) -> None:
    """Neither a stored form nor the key of a trace in the cache."""
    before = _trace_of(load("gpt2"))
    edit("trace/recorder.py", lambda text: text.replace('"""', '"""Reworded. ', 1) + "# the end\n")

    assert before == _trace_of(load("gpt2")) is not None
    assert "" == precomputed.why_not("gpt2")


@pytest.mark.slow
def test_how_forms_are_written_changes_no_trace(edit: Edit) -> None:
    """A form says by its schema how it is read; what writes it has no part in what is derived."""
    before = _everything()
    edit("pipeline/precomputed/writing.py", lambda text: text + "_ONE_MORE = 1\n")

    assert before == _everything()
    assert not [file for file in code.sources() if file.startswith("pipeline/precomputed/")]


@pytest.mark.slow
def test_a_statement_changes_every_form_whose_derivation_runs_it(edit: Edit) -> None:
    before = _trace_of(load("gpt2"))
    edit("derive/accumulate.py", lambda text: text + "_ONE_MORE = 1\n")

    assert before != _trace_of(load("gpt2"))
    assert [STALE, STALE] == [precomputed.why_not("gpt2"), precomputed.why_not("transformers:llama")]


@pytest.mark.slow
def test_a_rule_changes_the_forms_and_traces_that_it_counts_and_no_others(edit: Edit) -> None:
    """Convolutions are in ResNet-50 and ViT, and in no GPT-2. What a user's own model depends on is not in the index."""
    specs = [load("resnet50"), load("gpt2"), replace(load("gpt2"), key="spec:0123")]
    before = [_trace_of(spec) for spec in specs]
    edit("rules/convolution.py", lambda text: text + "_ONE_MORE = 1\n")

    assert [STALE, STALE] == [precomputed.why_not("resnet50"), precomputed.why_not("vit-b")]
    assert ["", ""] == [precomputed.why_not("gpt2"), precomputed.why_not("linear")]
    assert [False, True, False] == [path == _trace_of(spec) for path, spec in zip(before, specs, strict=True)]


@pytest.mark.slow
def test_a_model_changes_its_own_forms_and_no_others(edit: Edit) -> None:
    edit("models/gpt2.py", lambda text: text + "_ONE_MORE = 1\n")

    assert [STALE, "", ""] == [precomputed.why_not(name) for name in ("gpt2", "llama3-8b", "transformers:gpt2")]


@pytest.mark.slow
def test_a_file_that_moves_changes_nothing(edit: Edit) -> None:
    """calc/symbolic/algebra.py as calc/polynomials/algebra.py, with every import of it."""
    before = _everything()
    (code.ROOT / "polynomials").mkdir()
    (code.ROOT / "symbolic" / "algebra.py").rename(code.ROOT / "polynomials" / "algebra.py")
    for file in code.ROOT.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"\bcalc\.symbolic\.algebra\b", "calc.polynomials.algebra", text), encoding="utf-8")
    _forget()

    assert "polynomials/algebra.py" in code.sources()
    assert before == _everything()


@pytest.mark.parametrize(("module", "same"), [("b", True), ("c", False), ("d", True)])
def test_an_import_is_the_definition_behind_it(module: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words in another module, or the same function through a third one, are the same; another body is not."""
    defines = {"a": "return 1", "b": "return 1", "c": "return 2"}
    files = {name: f"def f():\n    {body}\n" for name, body in defines.items()} | {"d": "from calc.a import f\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(code, "ROOT", tmp_path)
    said = []
    for source in ("a", module):
        (tmp_path / "uses.py").write_text(f"from calc.{source} import f\n\nprint(f())\n", encoding="utf-8")
        _forget()
        said.append(code.meanings(["uses.py"]))
    _forget()

    assert (said[0] == said[1]) is same


def test_what_a_form_depends_on_is_in_the_index() -> None:
    """The rules that it was counted by; GPT-2's are among those of every transformer, and it has no convolution."""
    forms = {line["file"]: line for line in json.loads((index.FOLDER / index.INDEX).read_text(encoding="utf-8"))["forms"]}

    assert "calc.rules.convolution" in forms["resnet50.json"]["rules"]
    assert "calc.rules.convolution" not in forms["gpt2.json"]["rules"]
    assert {"calc.rules.matmul", "calc.rules.attention", "calc.rules.views"} <= {*forms["gpt2.json"]["rules"]}
