"""``python -m calc.pipeline.precomputed.make``: re-derives the stored closed forms, which takes torch and minutes for each large model.

A form stays, and only the digest of the files' bytes is rewritten, if the files that its derivation runs mean what they meant
(``calc.pipeline.precomputed.code``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from calc.models.catalogue import CATALOGUE, configs
from calc.options import Options
from calc.pipeline.precomputed import code
from calc.pipeline.precomputed.index import FOLDER, INDEX, SCHEMA
from calc.pipeline.precomputed.produced import LIBRARIES, digest


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model, and how its step runs."""

    name: str
    options: Options

    @property
    def file(self) -> str:
        changed = [v for k, v in self.options.to_json().items() if v != Options().to_json().get(k)]
        return "-".join([self.name.replace(":", "-"), *changed]) + ".json"


def wanted() -> list[StoredModel]:
    """Every built-in model and every bundled configuration; the large language models also in inference mode."""
    names = [*CATALOGUE, *(f"transformers:{name}" for name in configs())]
    used = ("gpt2", "llama3-8b", "llama3-70b", "mixtral")
    return [*(StoredModel(name, Options()) for name in names), *(StoredModel(name, Options(mode="infer")) for name in used)]


def main(command_line: Sequence[str] | None = None) -> None:
    """Re-derives the stored forms whose code changed, and writes their index."""
    parser = argparse.ArgumentParser(prog="python -m calc.pipeline.precomputed.make", description="Re-derive the stored closed forms.")
    parser.add_argument("names", nargs="*", help="models to derive (default: all); other forms stay unchanged")
    parser.add_argument("--all", action="store_true", help="also re-derive forms whose code has not changed in meaning")
    arguments = parser.parse_args(command_line)
    FOLDER.mkdir(exist_ok=True)
    # Computed before any of it runs: if a file changes meanwhile, the entry describes the loaded code, and the change is detected.
    sources = code.sources()
    deriving_code = DerivingCode(tuple(sources), digest(sources), code.meanings(sources))
    for one in wanted():
        if not arguments.names or one.name in arguments.names:
            before = {} if arguments.all else next((line for line in _existing() if line["file"] == one.file), {})
            _write_index(_updated(one, before, deriving_code), deriving_code)


@dataclass(frozen=True, slots=True)
class DerivingCode:
    """The deriving code: its files, the digest of their bytes, and the meaning of each."""

    sources: tuple[str, ...]
    sha256: str
    meanings: Mapping[str, str]

    def code(self, name: str, rules: Sequence[str]) -> str:
        """A digest of the meaning of the files that the derivation of one model runs."""
        return code.combined(self.meanings[file] for file in code.sources_of(name, rules) if file in self.meanings)


def _updated(one: StoredModel, before: dict[str, Any], deriving_code: DerivingCode) -> dict[str, Any]:
    """The index entry of a form, derived unless the entry ``before`` is still valid."""
    if "rules" in before and _has_schema(FOLDER / one.file):
        line = _line(one, before["rules"], deriving_code)
        if {**before, "sha256": ""} == {**line, "sha256": ""}:
            return line
    from calc.pipeline.precomputed.writing import made

    print(f"{one.file} …", file=sys.stderr, flush=True)
    form = made(one.name, one.options)
    _write(FOLDER / one.file, json.dumps(form.data, separators=(",", ":")))
    return _line(one, form.rules, deriving_code)


def _has_schema(path: Path) -> bool:
    """Whether a form is there that this code reads."""
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["schema"] == SCHEMA


def _write_index(line: dict[str, Any], deriving_code: DerivingCode) -> None:
    """Replace one entry of the index, whatever another process wrote to it meanwhile."""
    lines = {entry["file"]: entry for entry in _existing()} | {line["file"]: line}
    ordered = [lines[one.file] for one in wanted() if one.file in lines]
    everything = code.combined(deriving_code.meanings.values())
    _write(FOLDER / INDEX, json.dumps({"schema": SCHEMA, "sources": deriving_code.sources, "code": everything, "forms": ordered}, indent=1))


def _existing() -> list[dict[str, Any]]:
    """The index entries of existing forms."""
    index = FOLDER / INDEX
    return [*json.loads(index.read_text(encoding="utf-8"))["forms"]] if index.exists() else []


def _line(one: StoredModel, rules: Sequence[str], deriving_code: DerivingCode) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in LIBRARIES if name == "torch" or one.name.startswith("transformers:")}
    made_by = {"sha256": deriving_code.sha256, "rules": [*rules], "code": deriving_code.code(one.name, rules), "versions": versions}
    return {"name": one.name, "options": one.options.to_json(), "file": one.file, **made_by}


def _write(path: Path, text: str) -> None:
    """Write the file completely or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
