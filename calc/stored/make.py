"""``python -m calc.stored.make``: derives the stored closed forms anew, which takes torch and minutes for each large model.

A form whose code means what it meant (comments and docstrings apart) is kept, and only its digest is written anew.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from calc.catalogue import CATALOGUE, configs
from calc.options import Options
from calc.stored import FOLDER, INDEX, SCHEMA
from calc.stored.produced import LIBRARIES, ROOT, digest

# Files that begin a derivation, beside the models.
BEGINNINGS = ("load.py", "pipeline.py", "rules/__init__.py")
# What measures, checks, shows and asks has no part in what is derived, though a result can be asked for it.
APART = ("measure", "check.py", "observed.py", "contrast.py", "document.py", "notebook.py", "questions", "takeovers.py")
# Tables that a recording or a derivation reads.
TABLES = ("data/checkpointing.toml", "data/hf_fields.toml", "data/kept.toml")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model, and how its step runs."""

    name: str
    options: Options

    @property
    def file(self) -> str:
        changed = [v for k, v in self.options.to_json().items() if v != Options().to_json().get(k)]
        return "-".join([self.name.replace(":", "-"), *changed]) + ".json"


def wanted() -> list[Wanted]:
    """Every built-in model and every configuration that travels with the package; the large language models also as they are used."""
    names = [*CATALOGUE, *(f"transformers:{name}" for name in configs())]
    used = ("gpt2", "llama3-8b", "llama3-70b", "mixtral")
    return [*(Wanted(name, Options()) for name in names), *(Wanted(name, Options(mode="infer")) for name in used)]


def sources() -> list[str]:
    """The files of this package that a derivation runs, found by following imports from those that begin one, and what it reads."""
    found: set[Path] = set()
    waiting = [*(ROOT / name for name in BEGINNINGS), *sorted((ROOT / "models").rglob("*.py"))]
    while waiting:
        file = waiting.pop()
        if file not in found and file.relative_to(ROOT).parts[0] not in APART:
            found.add(file)
            waiting += _imported(file)
    found |= {*(ROOT / "data" / "configs").glob("*.json")}
    return sorted([*(file.relative_to(ROOT).as_posix() for file in found), *TABLES])


def _imported(file: Path) -> Iterator[Path]:
    """Files of this package that one imports, at load or later."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "calc":
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                place = ROOT.joinpath(*name.split(".")[1:])
                yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if name != "calc" and path.is_file())


def meaning(files: Iterable[str]) -> str:
    """A digest of what files of this package say to Python: without comments, docstrings and how lines are set."""
    found = hashlib.sha256()
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        found.update(f"{file}\n{_bare(text) if file.endswith('.py') else text}\n".encode())
    return found.hexdigest()


def _bare(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m calc.stored.make", description="Derive the stored closed forms anew.")
    parser.add_argument("names", nargs="*", help="models to derive; none: all. The forms of others are kept as they are")
    parser.add_argument("--all", action="store_true", help="derive those too whose code has not changed in what it means")
    asked = parser.parse_args(words)
    FOLDER.mkdir(exist_ok=True)
    read_by = sources()
    # Taken before anything of it is run: if a file changes meanwhile, what is written is of the code that was loaded, and is noticed.
    code = digest(read_by), meaning(read_by)
    for one in wanted():
        if not asked.names or one.name in asked.names:
            before = {} if asked.all else next((line for line in _kept() if line["file"] == one.file), {})
            _write_index(_brought_up_to_date(one, before, *code), read_by)


def _brought_up_to_date(one: Wanted, before: dict[str, Any], sha256: str, means: str) -> dict[str, Any]:
    """The line of the index of a form, which is derived unless the line ``before`` still says the same."""
    line = _line(one, sha256, means)
    if {**before, "sha256": ""} == {**line, "sha256": ""} and (FOLDER / one.file).exists():
        return line
    from calc.stored.writing import made

    print(f"{one.file} …", file=sys.stderr, flush=True)
    _write(FOLDER / one.file, json.dumps(made(one.name, one.options), separators=(",", ":")))
    return line


def _write_index(line: dict[str, Any], read_by: Sequence[str]) -> None:
    """The index with one line brought up to date, whatever another process has written to it meanwhile."""
    lines = {kept["file"]: kept for kept in _kept()} | {line["file"]: line}
    ordered = [lines[one.file] for one in wanted() if one.file in lines]
    _write(FOLDER / INDEX, json.dumps({"schema": SCHEMA, "sources": read_by, "forms": ordered}, indent=1))


def _kept() -> list[dict[str, Any]]:
    """The lines of forms that are there."""
    index = FOLDER / INDEX
    return [*json.loads(index.read_text(encoding="utf-8"))["forms"]] if index.exists() else []


def _line(one: Wanted, sha256: str, means: str) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in LIBRARIES if name == "torch" or one.name.startswith("transformers:")}
    return {"name": one.name, "options": one.options.to_json(), "file": one.file, "sha256": sha256, "code": means, "versions": versions}


def _write(path: Path, text: str) -> None:
    """The file, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
