"""The import rules of the architecture, by parsing every file and by running with torch blocked.

Derived and measured numbers share no code, and nothing outside tracing, models and measuring needs torch: both are what
the product's trust rests on, so both are enforced here rather than remembered.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TORCH = ("torch", "transformers")
TORCH_PACKAGES = (
    *("calc.trace", "calc.models", "calc.measure", "calc.experiment"),
    *("calc.platform.torch_private", "calc.platform.operator_names"),
)
TORCH_FREE = ("calc.experiment.stated", "calc.models", "calc.models.catalogue", "calc.models.load")  # in spite of where they are
# Lowest first: a room imports from those before it alone, be it at load, in a function or for a type checker.
ROOMS = (
    *("errors", "units", "symbolic", "dimensions", "spec", "platform", "options", "experiment", "rules", "graph"),
    *("models", "trace", "derive", "hardware", "measure", "pipeline", "memory", "mathematics", "capacity", "performance", "notebook"),
)
REPORT_ROOMS = ("typeset", "figures", "page", "writers", "jobs", "views", "lecture", "live", "process", "cli")
# These may import torch, or what imports it, inside functions: a user has then asked for a run or a model.
LAZY = (
    "calc",
    "calc.models.load",
    "calc.pipeline.ahead",
    "calc.pipeline.certificates",
    "calc.pipeline.check",
    "calc.performance.training_run",
    "calc.memory.device_memory",
    "calc.mathematics.gradients",
    "calc.memory.inference",
    "calc.memory.caches",
    "calc.mathematics.initialization",
    "calc.memory.checkpoint",
    "calc.memory.memory_summary",
    "calc.memory.fp8",
    "calc.performance.step_operators",
    "calc.memory.per_parameter",
    "calc.performance.matmul",
    "calc.performance.measuring",
    "calc.platform.model_files",
    "calc.pipeline.depth",
    "calc.pipeline.iterations",
    "calc.pipeline.pipeline",
    "calc.pipeline.special_cases",
    "reports.lecture.runs",
    "calc.mathematics.einsum.check",
    "calc.capacity.sharding.module_tensors",
    "calc.mathematics.strides.check",
    "calc.mathematics.strides.walk",
    "calc.performance.transfers",
    "calc.mathematics.updates.check",
    "calc.mathematics.updates.cost",
    "reports.cli",
)
PUBLIC_FUNCTIONS = ("load", "trace", "derive", "check")


@dataclass(frozen=True)
class Import:
    """One imported module, and whether importing the file is enough to import it."""

    by: str
    module: str
    at_load: bool
    line: int

    def __str__(self) -> str:
        return f"{self.by} line {self.line} imports {self.module}"


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module_name(path): path for top in ("calc", "reports") for path in sorted((ROOT / top).rglob("*.py"))}


_HOLDING = (ast.stmt, ast.excepthandler, ast.match_case)  # an expression has no import in it


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all statements inside it, at any depth."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _HOLDING):
            yield from _statements(child)


def _imports_of(name: str, tree: ast.Module, package: bool) -> Iterator[Import]:
    """Every import of a module, except those only type checkers see."""

    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=rest):
                for child in rest:
                    yield from visit(child, at_load)
                return
            case ast.Import(names=names):
                yield from (Import(name, alias.name, at_load, node.lineno) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = name.split(".")[: len(name.split(".")) - level + package] if level else []
                base = ".".join([*above, *([module] if module else [])])
                for alias in names:
                    whole = f"{base}.{alias.name}"
                    yield Import(name, whole if whole in FILES else base, at_load, node.lineno)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                at_load = False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _HOLDING):
                yield from visit(child, at_load)

    yield from visit(tree, True)


@functools.cache
def tree(name: str) -> ast.Module:
    """A file of the product, parsed once for all tests."""
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@functools.cache
def imports() -> list[Import]:
    """Every import of every file of the product."""
    return [each for name, path in FILES.items() for each in _imports_of(name, tree(name), path.name == "__init__.py")]


def test_the_parser_tells_imports_made_at_load_from_those_in_functions() -> None:
    """What the rules below rest on: scope, relative names, names that are modules, and imports only type checkers see."""
    source = """
from __future__ import annotations
from calc import dimensions, Dim
from . import errors
if TYPE_CHECKING:
    import torch
class A:
    import sympy
    def f(self):
        import torch.nn
"""

    actual = [(i.module, i.at_load) for i in _imports_of("calc.x", ast.parse(source), package=False)]

    calcs = [("calc.dimensions", True), ("calc", True), ("calc.errors", True)]
    expected = [("__future__", True), *calcs, ("sympy", True), ("torch.nn", False)]
    assert expected == actual


def _within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _assert_none(offending: list[Import]) -> None:
    assert not offending, "; ".join(map(str, offending))


def _needs_torch(module: str) -> bool:
    return _within(module, *TORCH, *TORCH_PACKAGES) and module not in TORCH_FREE


def test_torch_is_imported_at_load_only_by_trace_models_and_measure() -> None:
    """No other file imports torch, or one of those packages, when it is itself imported."""
    _assert_none([i for i in imports() if i.at_load and _needs_torch(i.module) and not _needs_torch(i.by)])


def test_torch_is_imported_inside_functions_only_where_a_run_is_asked_for() -> None:
    """Loading, tracing, checking and the command line are the only others that reach torch at all."""
    inside = [i for i in imports() if not i.at_load and _needs_torch(i.module)]

    _assert_none([i for i in inside if not (_needs_torch(i.by) or i.by in LAZY or i.by.startswith("reports.cli"))])


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _all_imports(package: str, name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The room of a file of ``package``, and that of each of the package's files that it imports anywhere, for types too."""
    for node in _statements(tree):
        match node:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                targets = [whole if (whole := f"{module}.{alias.name}") in FILES else module for alias in names]
            case ast.ImportFrom():
                raise AssertionError(f"{name} line {node.lineno}: write the whole name of what is imported")
            case _:
                continue
        yield from ((_room(name), _room(target)) for target in targets if _within(target, package))


@pytest.mark.parametrize(
    ("statement", "room"),
    [
        ("from reports.cli.common import talk", "cli"),
        ("from reports import cli", "cli"),
        ("import reports.cli.common", "cli"),
        ("def f():\n    from reports.cli import common", "cli"),
        ("if TYPE_CHECKING:\n    from reports.cli.common import Number", "cli"),
        ("from reports import main", ""),
    ],
)
def test_every_way_of_importing_a_room_is_seen(statement: str, room: str) -> None:
    """What the next test rests on."""
    assert [("page", room)] == list(_all_imports("reports", "reports.page.model", ast.parse(statement)))


@pytest.mark.parametrize(("package", "rooms"), [("calc", ROOMS), ("reports", REPORT_ROOMS)])
def test_a_room_imports_only_from_rooms_below_it(package: str, rooms: tuple[str, ...]) -> None:
    """So there is no circle of rooms. ``calc/__init__``, the public surface, and ``reports/__init__``, the entry point, import from any."""
    files = [name for name in FILES if _within(name, package) and name != package]
    arrows = {(by, room) for name in files for by, room in _all_imports(package, name, tree(name)) if room not in ("", by)}

    assert {_room(name) for name in files} == {*rooms}
    assert [] == sorted(f"{by} -> {room}" for by, room in arrows if rooms.index(room) > rooms.index(by))


def test_no_room_of_reports_imports_the_entry_point() -> None:
    """``reports.main`` imports ``process`` and ``cli``."""
    _assert_none([i for i in imports() if i.module == "reports" and i.by.startswith("reports.")])


def test_few_files_stand_beside_the_rooms() -> None:
    """The vocabulary: five files."""
    assert {"__init__", "dimensions", "errors", "options", "spec", "units"} == {path.stem for path in (ROOT / "calc").glob("*.py")}
    assert {"__init__"} == {path.stem for path in (ROOT / "reports").glob("*.py")}


@pytest.mark.parametrize(
    ("importer", "banned"),
    [
        ("calc", ("reports", "templates", "tests")),
        ("reports", ("templates", "tests")),
        ("calc.rules", ("calc.models", "calc.trace", "calc.measure", "calc.derive")),
        ("calc.models", ("calc.rules", "calc.derive", "calc.trace", "calc.measure")),
        ("calc.measure", ("calc.rules", "calc.derive", "calc.mathematics.autodiff", "calc.trace", "calc.models")),
        ("calc.trace", ("calc.rules", "calc.derive", "calc.measure", "calc.models")),
        ("calc.derive", ("calc.trace", "calc.models", "calc.measure")),
    ],
)
def test_a_package_does_not_import(importer: str, banned: tuple[str, ...]) -> None:
    """Neither when imported nor inside a function."""
    _assert_none([i for i in imports() if _within(i.by, importer) and _within(i.module, *banned)])


# What only tests read: the tables of torch's private names; and what Python itself reads.
_READ_ELSEWHERE = {"FEWER", "ATTRIBUTES", "__getattr__", "__all__"}


def _mentioned(node: ast.AST) -> Iterator[str]:
    """The names read in it, also as attributes and as words of short texts, such as ``"calc.pipeline:derive"``."""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(text)) if len(text) < 100:
                yield from re.findall(r"\w+", text)


def _defined(module: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The classes, constants and functions of a file, without functions that a decorator registers."""
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name, decorator_list=[]) | ast.ClassDef(name=name):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def unread(modules: Mapping[str, ast.Module]) -> list[str]:
    """The definitions whose names are read nowhere but in themselves."""
    read = Counter(name for module in modules.values() for name in _mentioned(module))
    defined = ((file, name, node) for file, module in modules.items() for name, node in _defined(module) if name not in _READ_ELSEWHERE)
    rarely = ((file, name, node) for file, name, node in defined if read[name] < 10)  # others are read elsewhere; counting takes time
    return [f"{file} line {node.lineno}: {name}" for file, name, node in rarely if read[name] == [*_mentioned(node)].count(name)]


def test_each_definition_has_a_reader_in_the_product() -> None:
    """A function, class or constant that nothing reads, or only tests, goes."""
    assert [] == unread({file: tree(file) for file in FILES})


def test_a_definition_without_a_reader_is_noticed() -> None:
    """One that reads only itself is unread too; one that another file names in a text is read."""
    a, b = "def alone(n): return alone(n - 1)\nLISTED = 1\nclass Used: ...", "x = ['a:LISTED', Used]\nprint(x)"

    assert ["a line 1: alone"] == unread({"a": ast.parse(a), "b": ast.parse(b)})


def test_no_file_of_calc_takes_a_public_function_for_the_submodule_of_its_name() -> None:
    """``from calc import derive`` gives the function ``calc.derive``; within calc the module is meant, so it is named in full."""
    nodes = [(name, node) for name in FILES if _within(name, "calc") for node in _statements(tree(name))]
    froms = [(name, node) for name, node in nodes if isinstance(node, ast.ImportFrom) and node.module == "calc"]
    assert froms

    assert [] == [f"{name} line {node.lineno}" for name, node in froms if {a.name for a in node.names} & set(PUBLIC_FUNCTIONS)]


def test_no_import_cycle() -> None:
    """Following imports made at load never leads back to where it started."""
    edges: dict[str, set[str]] = {name: set() for name in FILES}
    for i in imports():
        if i.at_load and i.module in FILES and i.module != i.by:
            edges[i.by].add(i.module)
    assert any(edges.values())
    state: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert state.get(name) != "open", " -> ".join([*path[path.index(name) :], name])
        if name in state:
            return
        state[name] = "open"
        for other in sorted(edges[name]):
            visit(other, (*path, name))
        state[name] = "closed"

    for name in edges:
        visit(name, ())


def _run(code: str) -> None:
    """``code`` in a fresh interpreter in which importing torch or transformers fails."""
    blocked = f"import sys; sys.modules.update({dict.fromkeys(TORCH)!r}); "
    result = subprocess.run([sys.executable, "-c", blocked + code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert result.returncode == 0, result.stderr[-2000:]


def test_every_torch_free_file_imports_with_torch_blocked() -> None:
    """Every single file outside trace, models and measure, ``calc`` and ``reports`` themselves among them."""
    names = [name for name in FILES if not _needs_torch(name) and not name.endswith("__main__")]

    _run(f"import importlib; [importlib.import_module(name) for name in {names!r}]")


def test_the_catalogue_lists_models_with_torch_blocked() -> None:
    """``napkin list models`` needs no torch."""
    _run("from calc.models.catalogue import CATALOGUE; assert 'gpt2' in CATALOGUE")


def test_public_functions_stay_functions_after_their_submodules_are_imported() -> None:
    """Importing the package ``calc.derive`` does not turn the function ``calc.derive`` into the package."""
    _run(
        "import calc, importlib; [importlib.import_module(f'calc.{n}') for n in ('derive', 'pipeline.check', 'models.load')]; "
        "assert all(type(f).__name__ == 'function' for f in (calc.load, calc.derive, calc.check))"
    )


def test_importing_calc_imports_no_sympy() -> None:
    """Specs in users' files import calc, which must not cost them SymPy's start-up."""
    _run("import calc; assert 'sympy' not in sys.modules")
