"""A class is called what it is: no two classes of the product have one name, so a name in a message or a diff says which is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Models are read on their own, as a paper has them, and each has these parts.
OF_MODELS = {"Attention", "Block", "FeedForward", "Trunk"}


def _shared(files: Iterable[Path]) -> dict[str, list[str]]:
    """Names of classes, at any depth, that stand in several files or twice in one, with the files."""
    places = defaultdict(list)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(file.anchor)))
    return {name: actual for name, actual in places.items() if len(actual) > 1}


def _allowed(name: str, actual: list[str]) -> bool:
    return name in OF_MODELS and all("/calc/models/" in f"/{file}" for file in actual)


def test_no_two_classes_of_the_product_have_one_name() -> None:
    """Private ones and those inside functions too; the exceptions are parts of models, and each of them is needed."""
    shared = _shared(file for top in ("calc", "reports") for file in sorted((ROOT / top).rglob("*.py")))

    assert {} == {name: actual for name, actual in shared.items() if not _allowed(name, actual)}
    assert shared.keys() == OF_MODELS


def test_a_name_that_is_taken_twice_is_found(tmp_path: Path) -> None:
    """In two files, twice in one, and inside a function; a name of its own is not."""
    (tmp_path / "a.py").write_text("class Step: ...\nclass Own: ...\nclass Row: ...\n")
    (tmp_path / "b.py").write_text("def f():\n    class Step: ...\nclass Row: ...\nclass Row: ...\n")

    assert {"Step": 2, "Row": 3} == {name: len(actual) for name, actual in _shared(sorted(tmp_path.glob("*.py"))).items()}
