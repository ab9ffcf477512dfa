"""Isolates what outlives a trace from it: function caches (``functools.lru_cache``), tables in which a model's files cache results, and
modules that a model imports while it is built.

Cached results must not pass from one trace to another: a size is a symbol of its own trace, a tensor a fake one, and a real run has
neither. Sizes are compared by their expressions here, not by a hash. Only where a result contains tensors does it matter which calls share
one: there, sizes with different expressions are compared, which is a guard.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

import torch

from calc.platform.model_files import FILES, attributes, function_of, remembers, restored
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor, no_modes, tensor_utils
from calc.trace.recorder import tensors_in

_Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


@contextlib.contextmanager
def bypassing_caches() -> Iterator[None]:
    """Context in which a model's functions cache only the calls of this trace. Afterwards neither they nor its tables contain its tensors
    or sizes: a real run would look them up by a number, and another trace would get a foreign tensor."""
    FILES.names()
    with _of_this_trace(), restored(FILES.tables, _of_a_trace), _importing_outside(), _unpickling_outside():
        yield


@contextlib.contextmanager
def _importing_outside() -> Iterator[None]:
    """Context in which an imported file is executed as outside of a trace: a tensor that it makes for a class or for itself is a real one,
    which the real run meets too."""
    original = SourceFileLoader.exec_module
    with no_modes():
        pass  # it imports a file of torch itself, in the middle of which it could not be called

    def outside(loader: SourceFileLoader, module: ModuleType) -> None:
        with no_modes():
            original(loader, module)

    with replaced(SourceFileLoader, exec_module=outside):
        yield


@contextlib.contextmanager
def _unpickling_outside() -> Iterator[None]:
    """Context in which a tensor is unpickled as a constant: torch would load a fake tensor, of no device."""
    load: Callable[[bytes], Any] = torch.storage._load_from_bytes
    rebuild: Callable[..., Any] = tensor_utils._rebuild_tensor

    def loaded(data: bytes) -> Any:
        with no_modes():
            return load(data)

    def rebuilt(storage: Any, *layout: Any) -> Any:
        if storage._untyped_storage.device.type == "meta":  # of ``torch.load``, which makes fake tensors by itself
            return rebuild(storage, *layout)
        with no_modes():
            made = rebuild(storage, *layout)
        return torch.ops.aten.lift_fresh.default(made)

    with replaced(torch.storage, _load_from_bytes=loaded), replaced(tensor_utils, _rebuild_tensor=rebuilt):
        yield


@contextlib.contextmanager
def _of_this_trace() -> Iterator[None]:
    originals = [(owner, name, value) for owner, name in FILES.remembering if remembers(value := attributes(owner).get(name))]
    made: set[_Remembering] = set()
    for owner, name, value in originals:
        made.add(remembering := _remembering(function_of(value)))
        function = remembering.function
        setattr(owner, name, type(value)(function) if isinstance(value, staticmethod | classmethod) else function)
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)
        for remembering in made:
            remembering.forget()


def _of_a_trace(value: Any) -> bool:
    return isinstance(value, FakeTensor | torch.SymInt | torch.SymFloat)


@functools.cache
def _remembering(original: Any) -> _Remembering:
    """That of a function, made once: there are some two hundred, and thousands of traces in a process."""
    return _Remembering(original)


class _Remembering:
    """The cached results of one function in one trace: of all calls with symbolic sizes, and of other calls whose result contains
    tensors."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._results: dict[Any, Any] = {}
        self._with_tensors: list[tuple[_Arguments, Any]] = []

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        def remembered(*args: Any, **kwargs: Any) -> Any:
            key = _key((args, kwargs))
            return self._plain(args, kwargs) if key is None else self._symbolic(key, (args, kwargs))

        functools.update_wrapper(remembered, self._original)
        for name in ("cache_info", "cache_clear", "cache_parameters"):
            setattr(remembered, name, getattr(self._original, name))
        return remembered

    def forget(self) -> None:
        if self._with_tensors:
            self._original.cache_clear()
        self._results.clear()
        self._with_tensors.clear()

    def _plain(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        computed = self._original.cache_info().misses
        result = self._original(*args, **kwargs)
        if tensors_in(result):
            if not self._with_tensors and self._original.cache_info().misses == computed:  # cached before this trace
                self._original.cache_clear()
                result = self._original(*args, **kwargs)
            self._store((args, kwargs), result)
        return result

    def _store(self, arguments: _Arguments, result: Any) -> None:
        """Keep a result as long as the original would: no tensor lives longer than in a real run."""
        self._with_tensors.append((arguments, result))
        most = self._original.cache_parameters()["maxsize"]
        if most is not None and len(self._with_tensors) > most:
            gone = {id(old) for _, old in self._with_tensors[: len(self._with_tensors) - most]}
            del self._with_tensors[: len(self._with_tensors) - most]
            gone -= {id(left) for _, left in self._with_tensors}
            self._results = {key: value for key, value in self._results.items() if id(value) not in gone}

    def _symbolic(self, key: Any, arguments: _Arguments) -> Any:
        if key not in self._results:
            same = next((result for earlier, result in self._with_tensors if _equal(arguments, earlier)), None)
            args, kwargs = arguments
            result = self._original.__wrapped__(*args, **kwargs) if same is None else same
            self._results[key] = result
            if same is None and tensors_in(result):
                self._store(arguments, result)
            return result
        return self._results[key]


def _key(arguments: _Arguments) -> Any:
    """The cache key of a call with symbolic sizes; None where no argument contains one."""
    args, kwargs = arguments
    values = (args, tuple(kwargs.items()))
    return _token(values) if _has_sizes(values) else None


def _has_sizes(value: Any) -> bool:
    return any(map(_has_sizes, value)) if isinstance(value, tuple) else isinstance(value, torch.SymInt | torch.SymFloat)


def _token(value: Any) -> Any:
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return type(value), value.node.expr
    return tuple(map(_token, value)) if isinstance(value, tuple) else value


def _equal(first: _Arguments, second: _Arguments) -> bool:
    (args, kwargs), (others, named) = first, second
    return kwargs.keys() == named.keys() and _alike((args, *kwargs.values()), (others, *(named[name] for name in kwargs)))


def _alike(first: Any, second: Any) -> bool:
    """Whether a cache takes the two as one key: a tensor is alike itself alone, as by its hash."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_alike, first, second))
    return first is second or (not isinstance(first, torch.Tensor) and bool(first == second))
