"""Traces every operator that a training step dispatches, and every allocation and free of a storage.

The recorder is a dispatch mode above torch's fake tensors: it sees ATen operators as a real step runs them, with symbolic sizes. It holds
no reference to any tensor, so lifetimes are those of the step itself.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from calc.errors import NapkinError, TraceError
from calc.experiment.composite_operators import decomposed, is_composite
from calc.graph.step import LOSS, OPTIMIZER, RECOMPUTED, TOP, Call, Event, Op, Tensor
from calc.platform.torch_private import FakeTensor, TorchDispatchMode, current_node, next_node_number
from calc.symbolic.algebra import log2_ceiling
from calc.trace.kernels import fake_kernels, fourier
from calc.trace.kernels.result_cache import Repeats, token_of
from calc.trace.module_paths import ModulePath
from calc.trace.symbolic_sizes import DIVIDING, NUMBERING, read_by_torch, refuse_undivided
from calc.trace.values import affine_indices, chosen_rows, data_dependence, facts, true_counts
from calc.trace.values.constant_propagation import ConstantPropagation
from calc.trace.values.unbacked_sizes import UnbackedSizes

_DOING = {"forward": "the forward", "backward": "the backward", "optimizer": "the optimizer's step", "zero_grad": "zero_grad"}
_OF_OPTIMIZERS = ("optimizer", "zero_grad")
_ZEROS, _NUMBERED = torch.ops.aten.new_zeros.default, torch.ops.aten.arange.start
_STRIDED = torch.ops.aten.as_strided.default
_LIFT = torch.ops.aten.lift_fresh.default
_DEVICE = torch.ops.prim.device.default
# What torch asks of a tensor (its device), and marks for its profiler. Every other library's operators are traced, as any may compute.
_WITHOUT_ARITHMETIC = frozenset({"prim", "profiler"})
# Of the operators that replace another one in the trace, those whose values depend on sizes only.
_MAKING = {
    str(made): made for made in (torch.ops.aten.linspace.default, torch.ops.aten.fft_fftfreq.default, torch.ops.aten.fft_rfftfreq.default)
}
# Torch's own code reads these as plain numbers, and may branch on them without a guard (the order of multiplications).
_AS_NUMBERS = (torch.ops.aten.size.default, torch.ops.aten.stride.default, torch.ops.aten.storage_offset.default)


class _MutatesTrackedError(NapkinError):
    """An in-place operator runs under autograd, and views are not made like those of real tensors."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes are untyped
    """Traces the steps of one process. Set ``phase`` and ``step`` before each part of a step; ``phase = ""`` traces nothing."""

    def __init__(
        self,
        repeats: Repeats,
        unbacked: Mapping[str, Any],
        observed: Mapping[str, Sequence[int]] | None = None,
        aliasing: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        env = repeats.env
        self.size: Callable[[Any], int | str] = _plain if env is None else env.size
        self._hint: Callable[[Any], Any] = _plain if env is None else env.hint
        self._symbolic = env is not None
        if env is not None:
            env.is_tracing = lambda: bool(self.phase)
        self.constants = ConstantPropagation(self._hint, None if env is None else env.symbols_of, () if env is None else env.trip_counts)
        self.unbacked = UnbackedSizes(unbacked, self.size, self.storage, observed or {}, self.constants, lambda: not self.phase)
        self.repeats = repeats
        self.path = ModulePath()
        self.phase = ""
        self.step = 0
        self.ops: list[Op] = []
        self.events: list[Event] = []
        self.nbytes: dict[int, int | str] = {}
        self.calls: list[Call] = []
        self.call: int | None = None
        self.renamed: tuple[str, list[tuple[str, Any]]] | None = None
        self.mutates_tracked = False
        self._aliasing = aliasing  # whether views are those of real tensors
        self.exchanged: set[str] = set()
        self._view_result: torch.Tensor | None = None
        self._lifting = False
        self._stands_for: dict[int, weakref.ref[torch.Tensor]] = {}  # storage of a fake tensor → the real one in whose place it is
        self._zeros_count: Any = 0  # elements of the last zeros: the storage of a gradient of a strided view
        self.owner: dict[int, str] = {}
        self.maker: dict[int, str] = {}
        self.alive: set[int] = set()
        self._refs: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self.sources: dict[int, tuple[str, str, int | None]] = {}
        self._numbered = last_node_number()
        self._tensors: dict[Any, Tensor] = {}
        self._schemas: dict[int, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
        self._parameter_of_node: dict[int, str] = {}

    def release(self) -> None:
        """End the trace: nothing refers back to the recorder, so that what it holds is freed without a search for reference cycles."""
        self._refs.clear()
        del self.unbacked
        if self.repeats.env is not None:
            self.repeats.env.is_tracing = _never

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch must wrap each dispatch to exclude it from torch.compile: nothing is compiled here, and the wrapper takes time."""
        return False

    # -- operators ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # torch reads this attribute as often as all others together
        kwargs = kwargs or {}
        if self._view_result is not None and func is _STRIDED:
            return self._view_result
        if func.namespace in _WITHOUT_ARITHMETIC:
            return func(*args, **kwargs)
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        if func is _NUMBERED and type(current_node()).__name__ == NUMBERING:
            args = (args[0], self._zeros_count)
        try:
            return self._run(func, args, kwargs)
        finally:
            self.repeats.tokens.clear()

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator, which is traced within a phase; values are propagated in any case."""
        if self.phase and func in _AS_NUMBERS:
            refuse_undivided(self.repeats.env)
        self._lifting = func is _LIFT
        unbacked, out = self._unbacked_result(func, args, kwargs)
        if not unbacked:
            answered, answer = self.constants.answer(func, args)
            out = answer if answered else self.repeats.run(func, args, kwargs, fake_kernels.run)
        if not unbacked or self.unbacked.of_constants:
            self._follow(func, args, kwargs, out)
        if self.phase and func in _AS_NUMBERS:
            if not self._symbolic:
                return out
            if type(current_node()).__name__ == DIVIDING:
                return [self._hint(size) for size in out]
            raise read_by_torch()
        if func is _ZEROS:
            self._zeros_count = out.numel()
        data_dependence.follow(func, args, kwargs, out)
        true_counts.follow(func, args, kwargs, out)
        chosen_rows.follow(func, args, kwargs, out)
        if self._symbolic:
            affine_indices.follow(func, args, kwargs, out)
        if not self.phase:
            return out  # what is made beforehand counts from the first operator that uses it
        if func is _LIFT:
            # A constant written in Python. Its fake tensor keeps the real one alive, which does not happen in a real run.
            self.tensor(out, OPTIMIZER if self.phase in _OF_OPTIMIZERS else self.path.current)
        else:
            self._trace_operator(func, args, kwargs, out)
            self.unbacked.follow(func, args, out)
            self.mutates_tracked = self.mutates_tracked or self._mutates_tracked(func, args)
            if self.mutates_tracked and not self._aliasing:
                raise _MutatesTrackedError
        return out

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """Context that ends quietly at an operator after which the trace is wrong, as ``mutates_tracked`` then says."""
        try:
            yield
        except NapkinError:
            if self._aliasing or not self.mutates_tracked:
                raise

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Propagate the values of ``out`` where sizes and constants determine them: those of the operator that replaces ``func`` in the
        trace."""
        meant = _MAKING.get(self.renamed[0]) if self.renamed else None
        if meant is None or self.renamed is None:
            self.constants.follow(func, args, kwargs, out)
        else:
            self.constants.follow(meant, (), {**dict(self.renamed[1]), "dtype": out.dtype}, out)

    def _mutates_tracked(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an in-place operator runs under autograd. The optimizer runs without it."""
        return torch.is_grad_enabled() and bool(self._schema(func)[2]) and any(t.requires_grad for t in tensors_in(args))

    def _unbacked_result(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        """``(True, result)`` of an operator with a data-dependent result size, or that reads a value which does not depend on data; else
        ``(False, None)``."""
        answered, answer = affine_indices.answer(func, args) if self._symbolic else (False, None)
        if not answered:
            answered, answer = self.unbacked.answer(func, args)
        return (answered, answer) if answered else self.unbacked.run(func, args, kwargs)

    def _trace_operator(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        operator, names, mutated = self._schema(func)
        node = current_node() if self.phase == "backward" else None
        name, given = self.renamed or (operator, [*zip(names, args, strict=False), *kwargs.items()])
        if not tensors_in(out) and not tensors_in([value for _, value in given]):
            return  # it takes dtypes or numbers only (``promote_types``)
        written = tuple((n, self._value(v)) for n, v in given)
        chosen = self.unbacked.chosen(func, args, kwargs)
        if chosen is not None:
            written += (("chosen", self.size(chosen)),)
        if func in fourier.TRANSFORMS:
            written += (("stages", tuple(log2_ceiling(self.size(n)) for n in fourier.lengths(args, out))),)
        module_path, call = self._module_path_of(operator, node, written)
        index = len(self.ops)
        nbytes = fake_kernels.storage_bytes(func, args, dict(kwargs), out)
        if nbytes is not None:
            self.nbytes[self.storage(out, module_path)] = self.size(nbytes)
        outputs = tuple(self.tensor(t, module_path) for t in tensors_in(out))
        self.ops.append(
            Op(
                index,
                name,
                self.phase,
                self.step,
                module_path,
                written,
                outputs,
                mutated,
                self._node(node),
                call,
            )
        )

    @contextlib.contextmanager
    def traced_as(self, name: str, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Context in which operators are traced as ``name`` with those arguments: for an operator that torch cannot run symbolically."""
        self.renamed = (name, list(arguments.items()))
        try:
            yield
        finally:
            self.renamed = None

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Context for what torch does without operators: reading the memory of a tensor."""
        phase, self.phase = self.phase, ""
        try:
            yield
        finally:
            self.phase = phase

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Context in which values are read out of tensors only to be written into another one."""
        with self.unrecorded(), self.constants.copying():
            yield

    @contextlib.contextmanager
    def returning_view(self, result: torch.Tensor) -> Iterator[None]:
        """Context in which ``as_strided`` returns ``result``, whose origin the trace already contains."""
        self._view_result = result
        try:
            yield
        finally:
            self._view_result = None

    def _node(self, node: Any) -> str:
        if node is None:
            return ""
        return RECOMPUTED if torch.is_grad_enabled() else type(node).__name__

    def _schema(self, func: Any) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Name of an operator, names of its arguments, and names of those that it mutates."""
        schema = self._schemas.get(id(func))
        if schema is None:
            names = tuple(a.name for a in func._schema.arguments)
            schema = self._schemas[id(func)] = (str(func), names, tuple(name for _, name in facts.written(func)))
        return schema

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value, "")
        if isinstance(value, bool | str | type(None) | float) or type(value) is int:
            return value
        if isinstance(value, torch.SymInt):
            return self.size(value)
        if isinstance(value, list | tuple):
            return tuple(self._value(v) for v in value)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, torch.SymFloat):
            return "a number computed from sizes"
        return str(value)

    def _module_path_of(self, operator: str, node: Any, values: tuple[tuple[str, Any], ...]) -> tuple[str, int | None]:
        if self.phase == "forward":
            module_path = self.path.current
            # The autograd node of the running operator has just been numbered, so it has the latest number. An in-place operator
            # first copies what its backward needs: the copy shares both nodes.
            last = last_node_number()
            for number in {last, *range(self._numbered + 1, last)}:
                self.sources.setdefault(number, (module_path, operator, self.call))
            self._numbered = last
            return module_path, self.call
        if self.phase == "backward":
            # Autograd runs a node with gradients disabled, unless it recomputes parts of the forward (activation checkpointing).
            if node is None or not torch.is_grad_enabled():
                return self._backward_module_path(node)
            module_path = self.path.current if self.path.inside else self.path.recomputed_part(self._backward_module_path(node)[0])
            self.sources.setdefault(last_node_number(), (module_path, operator, self.call))
            return module_path, self.call
        for _, value in values:
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor) and tensor.storage in self.owner:
                    return self.owner[tensor.storage], None
        return TOP, None

    def where(self) -> str:
        """What the step is doing, for a guard or an error without a user's source line."""
        node = current_node()
        if self.phase == "backward" and node is not None:
            module_path, op, _ = self.sources.get(node._sequence_nr(), (self._backward_module_path(node)[0], type(node).__name__, None))
            return f"the backward of {op} at {module_path}"
        after = f", after {self.ops[-1].name} at {self.ops[-1].module_path}" if self.ops else ""
        return f"{_DOING.get(self.phase, 'the building of the model')}{after}"

    def _backward_module_path(self, node: Any) -> tuple[str, int | None]:
        if node is None:
            return LOSS, None
        source = self.sources.get(node._sequence_nr())
        if source is not None:
            return source[0], source[2]
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self.owner.get(self.storage(variable), LOSS).rpartition(".")[0] or TOP, None
        return LOSS, None

    # -- storages -------------------------------------------------------------------------------------------------

    def tensor(self, value: torch.Tensor, module_path: str) -> Tensor:
        """The trace entry of a tensor: storage, shape, dtype, distinct elements."""
        form = self.storage(value, module_path), self.repeats.tokens.get(id(value)) or token_of(value)
        described = self._tensors.get(form)
        if described is None:
            storage, strides = form[0], value.stride()
            shape = tuple(map(self.size, value.shape))
            distinct = _product(s for s, stride in zip(shape, strides, strict=True) if not _is_zero(stride) or _is_zero(s))
            described = self._tensors[form] = Tensor(storage, shape, str(value.dtype).removeprefix("torch."), distinct)
        return described

    def storage(self, value: torch.Tensor, module_path: str = "") -> int:
        """Index of a tensor's storage; a new storage is noted as allocated now."""
        if value.layout is not torch.strided:
            raise TraceError(
                f"a sparse tensor is used in {self.where()}: its number of elements depends on the data, so it has no closed form;"
                " use dense ones (sparse=False)"
            )
        untyped = value.untyped_storage()
        key = untyped._cdata
        entry = self._refs.get(key)
        if entry is not None:
            return entry[0]
        real = self._stands_for[key]() if key in self._stands_for else None
        if real is not None:
            return self.storage(real, module_path)
        index = len(self.nbytes)
        self.nbytes[index] = self.size(untyped.nbytes())
        self.maker[index] = module_path
        self.alive.add(index)
        self.events.append(Event(1, index, len(self.ops)))
        self._refs[key] = (index, weakref.ref(untyped, functools.partial(self._freed, key, index)))
        if self.phase in _OF_OPTIMIZERS and module_path:
            self.owner.setdefault(index, module_path)
        return index

    def same_storage(self, real: torch.Tensor, fake: torch.Tensor) -> bool:
        """Note that ``fake``, which stands for ``real``, has its storage; not if it is a constant of the step, which is in its place."""
        if self._lifting or fake.layout is not torch.strided:
            return False
        self._stands_for[fake.untyped_storage()._cdata] = weakref.ref(real)
        return True

    def first_of(self, storage: int) -> Tensor:
        """The first tensor that was traced in a storage."""
        return next(tensor for tensor in self._tensors.values() if tensor.storage == storage)

    def knows(self, value: torch.Tensor) -> bool:
        """Whether an operator has used this tensor's storage. States of random generators, for example, are created without one."""
        key = value.untyped_storage()._cdata
        return key in self._refs or key in self._stands_for

    def _freed(self, key: int, index: int, _: Any) -> None:
        self._refs.pop(key, None)
        self.alive.discard(index)
        self.events.append(Event(-1, index, len(self.ops)))


def _plain(value: Any) -> Any:
    return value


def _never() -> bool:
    return False


def last_node_number() -> int:
    """Sequence number of the latest autograd node."""
    return int(next_node_number()) - 1


def tensors_in(out: Any) -> list[torch.Tensor]:
    """Every tensor in nested tuples, lists and dictionaries."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, list | tuple):
        return [t for item in out for t in tensors_in(item)]
    if isinstance(out, Mapping):
        return [t for item in out.values() for t in tensors_in(item)]
    return []


def _is_zero(size: Any) -> bool:
    """Whether a size or stride is the number 0; a symbolic one is not compared, so no guard arises."""
    return type(size) is int and size == 0


def _product(sizes: Any) -> int | str:
    number, texts = 1, []
    for size in sizes:
        if isinstance(size, int):
            number *= size
        else:
            texts.append(size if size.isidentifier() else f"({size})")
    if not texts or not number:
        return number
    return "*".join([str(number), *texts] if number != 1 else texts)
