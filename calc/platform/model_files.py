"""The loaded modules that may hold a model's code, and what they cache between calls: functions with ``lru_cache``, dictionaries,
globals. A meta tensor must not stay in such a cache, since a real run would use it."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import sysconfig
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

from calc.platform.replaced import replaced

_CALC = f"{Path(__file__).parent.parent}/"
_WITH_MODELS = tuple(f"{_CALC}{name}" for name in ("models/", "experiment/", "spec.py", "dimensions.py"))
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
# Looking through a module costs time in every trace. These packages, with which Napkin and transformers compute, write, download and are
# tested, contain no models.
_LEFT_ALONE = frozenset(
    (
        *("torch", "torchgen", "networkx", "sympy", "numpy", "mpmath", "gmpy2"),
        *("reports", "click", "jinja2", "markupsafe", "markdown", "markdown_it", "mdurl", "pygments", "yaml"),
        *("anyio", "filelock", "h11", "httpcore", "httpcore2", "httpx", "httpx2", "huggingface_hub", "idna", "tokenizers", "tqdm"),
        *("regex", "safetensors", "packaging", "truststore", "typing_extensions"),
        *("_pytest", "pytest", "pluggy", "iniconfig", "xdist", "execnet", "hypothesis", "sortedcontainers"),
    )
)
# Tables of thousands of names to import, and no code of a model: these modules, and those in the last.
_LAZY_IMPORTS = frozenset(("transformers", "transformers.models", "transformers.models.auto"))
_AUTO = "transformers.models.auto."
_TABLES = (dict, OrderedDict, defaultdict)  # exactly these: iterating a library's subclass may import modules
_REMEMBERING = type(functools.lru_cache(lambda: None))
_VALUES = operator.methodcaller("values")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class _Contents:
    """What ``ModelFiles`` lists of one module, and the identities of the values in it and in its classes when it was looked through."""

    module: ModuleType
    owners: list[Any]
    identities: list[int]
    remembering: list[tuple[Any, str]]
    of_torch: list[tuple[ModuleType, str]]
    tables: list[dict[Any, Any]]

    @classmethod
    def of(cls, module: ModuleType) -> _Contents:
        classes = [value for value in [*vars(module).values()] if _is_class_of(module, value)]
        owners = [module, *classes]
        functions = [value for owner in owners for value in [*vars(owner).values()]]
        values = [(owner, name, value) for owner in (*owners, *_closures(functions)) for name, value in [*attributes(owner).items()]]
        return cls(
            module=module,
            owners=owners,
            identities=_identities(owners),
            remembering=[(owner, name) for owner, name, value in values if remembers(value)],
            of_torch=[(module, name) for name, value in [*vars(module).items()] if _is_of_torch(value)],
            tables=[value for _, name, value in values if type(value) in _TABLES and not name.startswith("__")],
        )

    @property
    def is_current(self) -> bool:
        """Whether the module still has the same values: it may have been looked through in the middle of its import."""
        return self.identities == _identities(self.owners)


class ModelFiles:
    """The loaded modules that may hold a model's code. When the set of loaded modules has changed, those are looked through that are new or
    have other values than before.

    ``remembering`` lists the functions and methods with ``lru_cache`` as (module, class or closure cell, name); ``of_torch`` lists the
    modules that import functions of torch by name, with that name; ``tables`` lists the modules' globals and dictionaries. All are as of
    the last call of ``names``."""

    def __init__(self) -> None:
        self._loaded: list[ModuleType] = []
        self._contents: dict[int, _Contents] = {}
        self._names: list[dict[str, Any]] = []
        self.remembering: list[tuple[Any, str]] = []
        self.of_torch: list[tuple[ModuleType, str]] = []
        self.tables: list[dict[Any, Any]] = []

    def names(self) -> list[dict[str, Any]]:
        """The globals of each loaded module that may hold a model's code; the same list object if no module was loaded or unloaded."""
        loaded = [*sys.modules.values()]
        if len(loaded) != len(self._loaded) or not all(map(operator.is_, loaded, self._loaded)):
            modules = [module for module in loaded if _of_a_model(module)]
            self._loaded, self._names = loaded, [vars(module) for module in modules]
            self._contents = {id(module): self._look_through(module) for module in modules}
            each = [*self._contents.values()]
            self.remembering = [function for contents in each for function in contents.remembering]
            self.of_torch = [place for contents in each for place in contents.of_torch]
            tables = {id(table): table for contents in each for table in contents.tables}
            self.tables = [*self._names, *tables.values()]  # modules import each other's dictionaries: each once
        return self._names

    def _look_through(self, module: ModuleType) -> _Contents:
        before = self._contents.get(id(module))
        return before if before is not None and before.is_current else _Contents.of(module)


def _identities(owners: Iterable[Any]) -> list[int]:
    return [*map(id, chain.from_iterable([*vars(owner).values()] for owner in owners))]


def _is_of_torch(value: Any) -> bool:
    """Whether a value is a function of torch; some of those in C++ are of no module. Those of other packages may be of anything."""
    owner = value.__module__ if type(value) in (BuiltinFunctionType, FunctionType) else ""
    return owner is None or (isinstance(owner, str) and owner.startswith("torch"))


FILES = ModelFiles()


@contextlib.contextmanager
def replaced_by_name(owner: ModuleType, **functions: Callable[..., Any]) -> Iterator[None]:
    """Context in which ``functions`` stand for those of these names in ``owner``, a module of torch, and in files that import them by
    name."""
    FILES.names()
    instead = {id(getattr(owner, name)): function for name, function in functions.items()}
    imported = [(module, name, id(vars(module).get(name))) for module, name in FILES.of_torch]
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(owner, **functions))
        for module, name, original in imported:
            if original in instead:
                stack.enter_context(replaced(module, **{name: instead[original]}))
        yield


@contextlib.contextmanager
def on_meta_device() -> Iterator[None]:
    """Context in which tensors are created on torch's meta device; on exit, they are removed from the model's caches and dictionaries."""
    import torch

    FILES.names()
    functions = {id(f): f for owner, name in FILES.remembering if remembers(f := function_of(attributes(owner).get(name)))}
    misses = {key: function.cache_info().misses for key, function in functions.items()}
    try:
        with restored(FILES.tables, lambda value: _is(value, torch.Tensor) and value.is_meta), torch.device("meta"):
            yield
    finally:
        for key, function in functions.items():
            if function.cache_info().misses != misses[key]:
                function.cache_clear()


@contextlib.contextmanager
def restored(tables: Sequence[dict[Any, Any]], passing: Callable[[Any], bool]) -> Iterator[None]:
    """Context that on exit undoes its changes to ``tables`` whose key or value is ``passing``, or a tuple or list with one that is."""

    def passes(value: Any) -> bool:
        return any(map(passes, value)) if _is(value, tuple, list) else passing(value)

    before = [*map(len, tables)], [*_keys(tables)], [*_values(tables)]
    try:
        yield
    finally:
        for table, values in _changed(tables, *before):
            for key in [key for key, value in table.items() if values.get(key, _MISSING) is not value]:
                if not passes(key) and not passes(table[key]):
                    continue
                if key in values:
                    table[key] = values[key]
                else:
                    del table[key]


def _changed(
    tables: Sequence[dict[Any, Any]], sizes: Sequence[int], keys: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
    """The tables whose keys or values are not those of before, in this order and by identity; each with what it was. Mostly there is none,
    which one comparison of all of them shows, as fast as Python can."""
    if sizes == [*map(len, tables)] and _same_objects(values, _values(tables)) and _same_objects(keys, _keys(tables)):
        return
    for table, size, end in zip(tables, sizes, accumulate(sizes), strict=True):
        place = slice(end - size, end)
        if size != len(table) or not _same_objects(values[place], table.values()) or not _same_objects(keys[place], table):
            yield table, dict(zip(keys[place], values[place], strict=True))


def _keys(tables: Sequence[dict[Any, Any]]) -> Iterator[Any]:
    return chain.from_iterable(tables)


def _values(tables: Sequence[dict[Any, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(_VALUES, tables))


def _same_objects(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """Whether two iterables that are of one length have the same objects in the same order."""
    return all(map(operator.is_, first, second))


def attributes(owner: Any) -> Mapping[str, Any]:
    """The attributes of a module or class by name, or the content of a closure cell."""
    if not isinstance(owner, CellType):
        names: Mapping[str, Any] = vars(owner)
        return names
    try:
        return {"cell_contents": owner.cell_contents}
    except ValueError:  # nothing was assigned yet
        return {}


def remembers(value: Any) -> bool:
    """Whether a value is a function (or static or class method) with ``lru_cache``."""
    return _is(function_of(value), _REMEMBERING)


def function_of(value: Any) -> Any:
    """The function inside a ``staticmethod`` or ``classmethod``; other values unchanged."""
    return value.__func__ if _is(value, staticmethod, classmethod) else value


def _closures(functions: Iterable[Any]) -> list[CellType]:
    """The closure cells of ``functions``, and of the functions in those cells, recursively (e.g. a decorator's variables)."""
    cells: dict[int, CellType] = {}
    waiting = [*functions]
    while waiting:
        function = function_of(waiting.pop())
        if _is(function, _REMEMBERING):
            function = function.__wrapped__
        for cell in (function.__closure__ or ()) if _is(function, FunctionType) else ():
            if id(cell) not in cells:
                cells[id(cell)] = cell
                waiting += attributes(cell).values()
    return [*cells.values()]


def _is_class_of(module: ModuleType, value: Any) -> bool:
    return type(value) is type and value.__module__ == module.__name__


def file_of(module: object) -> Any:
    """The file of a loaded module, if it has one. It is not asked for as an attribute: a module that imports itself when it is first used
    would do so to answer, and may need what is not installed."""
    return getattr(module, "__dict__", {}).get("__file__")


def _of_a_model(module: ModuleType) -> bool:
    """Whether a module may hold a model's code: it is none of the standard library, of torch, or of Napkin outside its models."""
    file = file_of(module)
    return isinstance(file, str) and module.__name__ not in _LAZY_IMPORTS and _is_of_a_model(module.__name__, file)


@functools.cache
def _is_of_a_model(name: str, file: str) -> bool:
    if not file.endswith(".py") or name.partition(".")[0] in _LEFT_ALONE or name.startswith(_AUTO):
        return False
    if file.startswith(_CALC):
        return file.startswith(_WITH_MODELS)
    return "site-packages" in file or not file.startswith(_STANDARD_LIBRARY)


def _is(value: object, *kinds: type) -> bool:
    """Whether a value's type is one of ``kinds``. ``isinstance`` would read ``__class__``, which a user's object may override."""
    return issubclass(type(value), kinds)
