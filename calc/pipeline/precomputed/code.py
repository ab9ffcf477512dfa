"""The meaning of the code that derives: its statements, whatever their layout, comments and files.

A file's *meaning* is a digest of its statements without comments, docstrings and paths. An import from this package counts as the name
that it binds and the definition behind that name, so that moving a file, or importing from elsewhere, changes nothing. Stored forms and
the cache of traces depend on meanings: editing a docstring, a file that a derivation does not run, or the layout of the folders throws
nothing away.

Reading and parsing the files takes about a second, so ``calc.pipeline.precomputed`` compares the files' bytes first
and comes here if they differ.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from calc.models.catalogue import CATALOGUE
from calc.pipeline.precomputed.produced import ROOT

# Files where a derivation starts, besides the models.
BEGINNINGS = ("models/load.py", "pipeline/pipeline.py", "rules/families.py")
# Code that measures, checks, displays or answers questions does not affect derivations, though a result can call it. Nor does the
# writer of forms: a form states its schema.
EXCLUDED = (
    *("measure/", "notebook/", "capacity/questions/", "pipeline/check.py", "pipeline/observed.py", "pipeline/precomputed/"),
    *("derive/compare.py", "derive/to_json.py", "derive/peak_crossovers.py"),
)
# Tables that a trace or a derivation reads.
TABLES = ("data/checkpointing.toml", "data/hf_fields.toml", "data/why_saved.toml", "data/why_state.toml")

# The rules that every derivation imports.
_COMMON = ("__init__", "families", "registry")

_PACKAGE = "calc"


def sources() -> list[str]:
    """The files of this package that a derivation of any known model runs or reads, by their paths in it."""
    return sorted({*_paths(_reached([*_beginnings(), *_models()])), *_configs(), *TABLES})


def sources_of(name: str, rules: Iterable[str]) -> list[str]:
    """The files that the derivation of the known model ``name`` runs or reads; ``rules`` are the modules that state the costs of its
    operators (``calc.rules.matmul``)."""
    head, _, config = name.partition(":")
    library = head == "transformers"
    own = [file for module in ("calc.models.hf" if library else CATALOGUE[head].module, *rules) for file in _files(module)]
    optional = {*(ROOT / "rules").glob("*.py"), *_models()} - {*_reached(own), *(ROOT / "rules" / f"{name}.py" for name in _COMMON)}
    reached = _paths(_reached([*_beginnings(), *own], optional))
    return sorted({*reached, *([f"data/configs/{config}.json"] if library else []), *TABLES})


def meanings(files: Iterable[str]) -> dict[str, str]:
    """A digest of the meaning of each file, by its path in this package. Files without statements are left out."""
    return {file: _meaning(ROOT / file) for file in files if not file.endswith(".py") or _has_statements(ROOT / file)}


def combined(digests: Iterable[str]) -> str:
    """One digest of several, independent of their order."""
    return _digest(*sorted(digests))


# -- which files --------------------------------------------------------------------------------------------------------------


def _beginnings() -> list[Path]:
    return [ROOT / name for name in BEGINNINGS]


def _models() -> list[Path]:
    return sorted((ROOT / "models").rglob("*.py"))


def _configs() -> list[str]:
    return _paths((ROOT / "data" / "configs").glob("*.json"))


def _paths(files: Iterable[Path]) -> list[str]:
    return [file.relative_to(ROOT).as_posix() for file in files]


def _reached(beginnings: Iterable[Path], skipped: Collection[Path] = ()) -> set[Path]:
    """The files that imports from ``beginnings`` reach, at any depth."""
    reached: set[Path] = set()
    waiting = [*beginnings]
    while waiting:
        file = waiting.pop()
        if file not in reached and file not in skipped and not file.relative_to(ROOT).as_posix().startswith(EXCLUDED):
            reached.add(file)
            waiting += _imported(file)
    return reached


@functools.cache
def _imported(file: Path) -> tuple[Path, ...]:
    """The files of this package that a file imports, at load or later."""
    nodes = [node for node in ast.walk(_parsed(file)) if isinstance(node, ast.ImportFrom) and _ours(node)]
    names = [name for node in nodes for name in (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))]
    return tuple(path for name in names if name != _PACKAGE for path in _files(name))


def _ours(node: ast.ImportFrom) -> bool:
    return (node.module or "").split(".")[0] == _PACKAGE


def _files(module: str) -> Iterator[Path]:
    """The file of a module or package, if there is one of that name."""
    place = ROOT.joinpath(*module.split(".")[1:])
    yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())


# -- the meaning of files ----------------------------------------------------------------------------------------------------


@functools.cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _has_statements(file: Path) -> bool:
    return any(not isinstance(statement, ast.Expr) for statement in _parsed(file).body)


@functools.cache
def _meaning(file: Path) -> str:
    if file.suffix != ".py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    bindings = [_binding(node) for node in ast.walk(_parsed(file)) if isinstance(node, ast.ImportFrom) and _ours(node)]
    return _digest(*_statement_texts(file), *bindings)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@functools.cache
def _statement_texts(file: Path) -> tuple[str, ...]:
    """The statements of a file, without docstrings and without what is imported from this package."""
    return tuple(ast.dump(statement) for statement in _Bare().visit(ast.parse(file.read_bytes())).body)


class _Bare(ast.NodeTransformer):
    """Removes docstrings and imports from this package. A statement takes the place of each, so that the others keep theirs."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if _ours(node) else node


def _binding(node: ast.ImportFrom) -> str:
    """What an import from this package binds: names, each with the definition that it refers to."""
    return "\n".join(f"{alias.asname or alias.name} = {_definition(node.module or '', alias.name)}" for alias in node.names)


@functools.cache
def _definition(module: str, name: str) -> str:
    """A digest of the statement that defines ``name`` in ``module``, or where that module imports it from. A module counts as its name: its
    contents have their own digest."""
    if any(_files(f"{module}.{name}")):
        return name
    for file in _files(module):
        for statement, text in zip(_parsed(file).body, _statement_texts(file), strict=True):
            origin = _origin(statement, name)
            if origin:
                return _definition(*origin)
            if name in _bound(statement):
                return _digest(text)
    return name


def _origin(statement: ast.stmt, name: str) -> tuple[str, str] | None:
    """The module of this package, and the name in it, that ``name`` is imported from by a statement."""
    for node in ast.walk(statement) if isinstance(statement, ast.ImportFrom | ast.If) else ():
        if isinstance(node, ast.ImportFrom) and _ours(node):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return node.module or "", alias.name
    return None


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
