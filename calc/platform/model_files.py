"""The loaded modules that may hold a model's code, and what they remember from one call to the next: functions with ``lru_cache``, tables,
globals. What is built without memory must not be remembered, since a real run would meet it."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import sysconfig
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

_OWN = tuple(f"{Path(__file__).parent.parent}/{folder}" for folder in ("trace", "measure", "derive"))
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_LEFT_ALONE = ("torch", "sympy", "numpy", "mpmath", "_pytest", "pytest", "hypothesis")
_TABLES = (dict, OrderedDict, defaultdict)  # a library's own kinds of them may import what they name when they are gone through
_REMEMBERING = type(functools.lru_cache(lambda: None))
_MISSING = object()


class ModelFiles:
    """The modules that may hold a model's code. Of the thousands that are loaded, most are asked about once.

    ``remembering`` are the functions and methods that keep their results, each as (module, class or variable of a closure, name), and
    ``tables`` their dictionaries and globals, both as of the last call of ``names``."""

    def __init__(self) -> None:
        self._loaded: list[ModuleType] = []
        self._names: list[dict[str, Any]] = []
        self.remembering: list[tuple[Any, str]] = []
        self.tables: list[dict[Any, Any]] = []

    def names(self) -> list[dict[str, Any]]:
        """The globals of each module that is loaded now: the same list as before where the modules are the same."""
        loaded = [*sys.modules.values()]
        if len(loaded) != len(self._loaded) or not all(map(operator.is_, loaded, self._loaded)):
            modules = [module for module in loaded if _of_a_model(module)]
            self._loaded, self._names = loaded, [vars(module) for module in modules]
            classes = [value for module in modules for value in [*vars(module).values()] if _is_class_of(module, value)]
            functions = [value for owner in (*modules, *classes) for value in [*vars(owner).values()]]
            owners = (*modules, *classes, *_closures(functions))
            values = [(owner, name, value) for owner in owners for name, value in [*attributes(owner).items()]]
            self.remembering = [(owner, name) for owner, name, value in values if remembers(value)]
            tables = {id(value): value for _, name, value in values if type(value) in _TABLES and not name.startswith("__")}
            self.tables = [*self._names, *tables.values()]  # files have others' tables too: each once
        return self._names


FILES = ModelFiles()


@contextlib.contextmanager
def on_meta_device() -> Iterator[None]:
    """Context in which tensors are made on torch's meta device, and after which no function and no table of a model remembers them."""
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
    """Context after which ``tables`` hold no key and no value that is ``passing``, or a tuple or list with such a one."""

    def passes(value: Any) -> bool:
        return any(map(passes, value)) if _is(value, tuple, list) else passing(value)

    before = [(table, {**table}) for table in tables]
    try:
        yield
    finally:
        for table, values in before:
            for key in [key for key, value in table.items() if values.get(key, _MISSING) is not value]:
                if not passes(key) and not passes(table[key]):
                    continue
                if key in values:
                    table[key] = values[key]
                else:
                    del table[key]


def attributes(owner: Any) -> Mapping[str, Any]:
    """The names and values that a module, a class, or one variable of a closure has."""
    if not isinstance(owner, CellType):
        names: Mapping[str, Any] = vars(owner)
        return names
    try:
        return {"cell_contents": owner.cell_contents}
    except ValueError:  # nothing was assigned yet
        return {}


def remembers(value: Any) -> bool:
    """Whether a global or an attribute of a class is a function that remembers its results."""
    return _is(function_of(value), _REMEMBERING)


def function_of(value: Any) -> Any:
    """The function that a static method or a method of a class is; other values as they are."""
    return value.__func__ if _is(value, staticmethod, classmethod) else value


def _closures(functions: Iterable[Any]) -> list[CellType]:
    """The variables that ``functions`` have from the functions in which they were made, as a decorator's own, and so on for theirs."""
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


def _of_a_model(module: ModuleType) -> bool:
    """Whether a file may hold a model's code: not torch, not Python's own, not what traces and measures."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_of_a_model(module.__name__, file)


@functools.cache
def _is_of_a_model(name: str, file: str) -> bool:
    if not file.endswith(".py") or name.partition(".")[0] in _LEFT_ALONE:
        return False
    if file.startswith(_OWN):
        return False
    return "site-packages" in file or not file.startswith(_STANDARD_LIBRARY)


def _is(value: object, *kinds: type) -> bool:
    """Whether a value is of a type. ``isinstance`` would ask the value itself, which may be anything that a user's file holds."""
    return issubclass(type(value), kinds)
