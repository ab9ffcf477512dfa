"""Constant propagation: real values of tensors that depend only on sizes and constants, so that branches on them are taken correctly.

Position ids, causal masks and an optimizer's step counter are such tensors; libraries branch on them
(``(diff(positions) != 1).any()``), which a fake tensor cannot answer. Each gets a *constant*: the result of the same operator on real
tensors at the hint sizes. A tensor that depends on parameters or data has none, and a branch on it is refused; a write of such values
through any view invalidates the constant. A large tensor whose values repeat along dimensions, such as a padding mask for each pair of
positions, has each of them once in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch

from calc.errors import DataDependentError
from calc.platform.torch_private import FakeTensor, no_dispatch, tree_map
from calc.trace.source_lines import user_line
from calc.trace.values.facts import WHOLE, once_per_operator, overwritten

_LARGEST, _LARGEST_WHOLE = 1 << 20, 1 << 24  # elements in memory; a mask has one for each pair of positions
_RANDOM = torch.Tag.nondeterministic_seeded
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default, torch.ops.aten.equal.default)
_FILLING = {f"aten::{name}" for name in ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")}
_FILLED = {"ones": 0, "zeros": 0, "full": 0, "new_ones": 1, "new_zeros": 1, "new_full": 1}  # operator → position of the sizes
_UNSET = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}


class ConstantPropagation:
    """Computes the constants of one run. They are attributes of the fake tensors, so they are freed with them.

    ``constant_reads``  line that read a constant → its value, and why it has that value.
    ``value_reads``     line that read a value which depends on symbols → these symbols: it may differ at other sizes. The symbols are
                        attributes of storages, since views share what is written.
    """

    def __init__(
        self, hint: Callable[[Any], Any], symbols: Callable[[Any], frozenset[str]] | None, trip_counts: Collection[str] = ()
    ) -> None:
        self._hint = hint
        self._symbols = symbols
        self._trip_counts = frozenset(trip_counts)
        self.constant_reads: dict[str, tuple[str, str]] = {}
        self.value_reads: dict[str, frozenset[str]] = {}
        self.only_copied = False

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Context in which values are only read to be copied into another tensor: no branch depends on them yet."""
        self.only_copied = True
        try:
            yield
        finally:
            self.only_copied = False

    def answer(self, func: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """``(True, value)`` where ``func`` reads the value of a constant tensor; ``(False, None)`` for other operators.

        Raises ``DataDependentError`` where the tensor depends on data.
        """
        if func not in _READS:
            return False, None
        if not all(has_constant_values(a) for a in args if isinstance(a, torch.Tensor)):
            raise DataDependentError(
                f"the step reads a value out of a tensor at {user_line()}: it depends on the data, so no closed form follows; "
                "make the branch depend on sizes, or give the two cases as two models"
            )
        with no_dispatch():
            value = func(*tree_map(self._real, args))
        if self.only_copied:
            return True, value
        made_of = self._made_of(args)
        if made_of:
            self.value_reads[user_line()] = made_of | self.value_reads.get(user_line(), made_of)
        # An optimizer reads its step counter for each parameter: one number per step, not a branch, so not an assumption.
        elif isinstance(value, bool) or func is not torch.ops.aten._local_scalar_dense.default:
            self.constant_reads[user_line()] = str(value), "it depends on constants only; computed on real tensors"
        return True, value

    def counted(self, x: torch.Tensor, count: Callable[[torch.Tensor], int]) -> int | None:
        """``count`` of the values of ``x`` if they depend on constants and trip counts only; else None."""
        if not isinstance(x, FakeTensor) or not has_constant_values(x) or self.symbols_of((x,)):
            return None
        with no_dispatch():
            return count(self._real(x))

    def has_count(self, x: torch.Tensor, symbolic_count: Any, count: Callable[[torch.Tensor], int]) -> bool:
        """Whether ``x`` is a constant whose ``count`` at the hints equals ``known``, the count at all sizes."""
        if not isinstance(x, FakeTensor) or not has_constant_values(x):
            return False
        with no_dispatch():
            return bool(count(self._real(x)) == self._hint(symbolic_count))

    def symbols_of(self, tensors: Sequence[torch.Tensor]) -> frozenset[str]:
        """The symbols without trip counts that the values of ``tensors`` depend on; none where they depend on data too."""
        return self._made_of(tensors) - self._trip_counts if all(map(has_constant_values, tensors)) else frozenset()

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Compute the constants of the results of ``func``, or invalidate those of tensors that it overwrites with unknown values."""
        if func in _READS:
            return
        sizes: tuple[Any, ...] = ()
        if func._schema.name in _FILLING and not has_constant_values(args[0]):  # uses the sizes of its first argument, not the values
            sizes, args = tuple(args[0].shape), (self._blank(args[0]), *args[1:])
        written = tuple(overwritten(func, args, kwargs))
        for tensor in written:
            self._copy_repeated(tensor)
        if _is_arbitrary(func) or not _all_constant(args) or not _all_constant(kwargs.values()):
            for tensor in written:
                tensor.untyped_storage().napkin_unknown = True  # type: ignore[attr-defined]  # the attribute is ours, on torch's storage
            return
        real = self._computed(func, args, kwargs, out)
        if real is None:
            return
        _attach(out, real)
        made_of = self._made_of((args, sizes, tuple(kwargs.values())))
        if made_of:
            results = out if isinstance(out, list | tuple) else (out,)
            for tensor in (*written, *(t for t in results if isinstance(t, torch.Tensor))):
                storage = tensor.untyped_storage()
                storage.napkin_made_of = made_of | getattr(storage, "napkin_made_of", made_of)  # type: ignore[attr-defined]  # as above

    def _copy_repeated(self, written: torch.Tensor) -> None:
        """Give a tensor that is about to be written to each of its values in memory; its base and its views have no constant from then
        on, as they do not see what is written."""
        storage = written.untyped_storage()
        if not hasattr(storage, "napkin_repeated") or not has_constant_values(written):
            return
        storage.napkin_repeated += 1
        if self._small(written):
            with no_dispatch():
                _attach(written, self._real(written).contiguous())

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        """What ``func`` returns for real tensors; None where that is too large."""
        if _counts_in_memory(func) and any(hasattr(t.untyped_storage(), "napkin_repeated") for t in args if isinstance(t, torch.Tensor)):
            return None
        reals = tree_map(self._real, args)
        options = {k: self._device(v) for k, v in tree_map(self._real, dict(kwargs)).items()}
        large = isinstance(out, torch.Tensor) and self._hinted_numel(out) > _LARGEST and not func._schema.is_mutable
        with no_dispatch():
            if large and (torch.Tag.pointwise in func.tags or func is torch.ops.aten._to_copy.default):
                return self._elementwise(func, reals, options, out)
            if func.is_view:
                return _view(func, reals, options)
            if self._small(out):
                return func(*reals, **options)
            one = _of_one_element(func, reals) if large else None
            return None if one is None else self._repeated(func(*one, **options), out)

    def _elementwise(self, func: Any, args: tuple[Any, ...], options: Mapping[str, Any], out: torch.Tensor) -> torch.Tensor | None:
        """The result of an elementwise operator, computed once for all positions that repeat along a dimension; None where the others
        are too many."""
        shape = [self._hint(size) for size in out.shape]
        small = tuple(_once(arg.expand(shape)) if isinstance(arg, torch.Tensor) and arg.dim() else arg for arg in args)
        axes = zip(*(arg.shape for arg in small if isinstance(arg, torch.Tensor) and arg.dim()), strict=True)
        if prod(max(axis) for axis in axes) > _most(out.dtype):
            return None
        return self._repeated(func(*small, **options), out)

    def _repeated(self, once: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The values of ``out``, of which ``once`` has each that repeats along a dimension; all in memory if ``out`` is small, in the same
        order there: ``as_strided`` counts in it."""
        values = once.expand([self._hint(size) for size in out.shape])
        if self._small(out):
            return torch.empty_strided(values.shape, [self._hint(stride) for stride in out.stride()], dtype=values.dtype).copy_(values)
        out.untyped_storage().napkin_repeated = 0  # type: ignore[attr-defined]  # ours, as above
        return values

    def _made_of(self, values: Iterable[Any]) -> frozenset[str]:
        """The symbols that ``values`` depend on: those in symbolic numbers, and those noted on the storages of tensors."""
        symbols: frozenset[str] = frozenset()
        if self._symbols is None:
            return symbols
        for value in values:
            if isinstance(value, list | tuple):
                symbols |= self._made_of(value)
            elif isinstance(value, torch.Tensor):
                symbols |= getattr(value.untyped_storage(), "napkin_made_of", symbols)
            else:
                symbols |= self._symbols(value)
        return symbols

    def _small(self, out: Any) -> bool:
        # In-place operators on lists return nothing.
        tensors = out if isinstance(out, list | tuple) else [] if out is None else [out]
        return all(isinstance(t, torch.Tensor) and self._hinted_numel(t) <= _most(t.dtype) for t in tensors)

    def _hinted_numel(self, tensor: torch.Tensor) -> int:
        count = 1
        for size in tensor.shape:
            count *= self._hint(size)
        return count

    def _blank(self, like: torch.Tensor) -> torch.Tensor:
        """A real tensor with the shape and dtype of ``like`` and one element in memory."""
        with no_dispatch():
            return torch.empty((), dtype=like.dtype).expand([self._hint(size) for size in like.shape])

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return getattr(value, "napkin_constant", (value,))[0]
        return self._hint(value)

    @staticmethod
    def _device(value: Any) -> Any:
        return torch.device("cpu") if isinstance(value, torch.device) else value


def _most(dtype: torch.dtype) -> int:
    return _LARGEST_WHOLE if dtype in WHOLE else _LARGEST


@once_per_operator
def _is_arbitrary(func: Any) -> bool:
    """Whether the values of the result are random or uninitialized."""
    return _RANDOM in func.tags or func._schema.name in _UNSET


@once_per_operator
def _counts_in_memory(func: Any) -> bool:
    """Whether the values of the result depend on where those of an argument are in memory: on its strides."""
    return "strided" in func._schema.name or func._schema.name == "aten::_reshape_alias"


def _all_constant(values: Iterable[Any]) -> bool:
    """Whether every tensor in ``values`` is real or has a constant."""
    return all(
        _all_constant(v) if isinstance(v, list | tuple) else not isinstance(v, torch.Tensor) or has_constant_values(v) for v in values
    )


def has_constant_values(value: Any) -> bool:
    """Whether the values of ``value`` are known: it is a real tensor, or its constant is still valid."""
    if not isinstance(value, FakeTensor):
        return True
    constant = value.__dict__.get("napkin_constant")
    if constant is None:
        return False
    storage = value.untyped_storage()
    valid: bool = constant[1] == (storage._cdata, _copies(storage)) and not hasattr(storage, "napkin_unknown")
    return valid


def _copies(storage: torch.UntypedStorage) -> int:
    """How often a tensor with this storage was copied because it was written to and its values repeated in memory."""
    copies: int = getattr(storage, "napkin_repeated", 0)
    return copies


def constant_values(value: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor as a real tensor, if they are the same at all sizes; else None."""
    if not has_constant_values(value) or hasattr(value.untyped_storage(), "napkin_made_of"):
        return None
    real: torch.Tensor = getattr(value, "napkin_constant", (value,))[0]
    return real


def attach_values(out: torch.Tensor, real: torch.Tensor) -> None:
    """Make ``real`` the constant of ``out``, which depends on constants only."""
    _attach(out, real)


def note_made_from(out: torch.Tensor, parts: Sequence[Any], constant: bool) -> None:
    """Note that ``out`` contains the values of ``parts``, tensors and doubles computed from sizes among them: it depends on the same
    symbols and is constant where all of them are."""
    storage = out.untyped_storage()
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    made_of = frozenset[str]().union(*(getattr(t.untyped_storage(), "napkin_made_of", ()) for t in tensors))
    made_of = made_of.union(*(part.node.shape_env.symbols_of(part) for part in parts if isinstance(part, torch.SymFloat)))
    if made_of:
        storage.napkin_made_of = made_of  # type: ignore[attr-defined]  # ours, as above
    if not constant or not all(map(has_constant_values, tensors)):
        storage.napkin_unknown = True  # type: ignore[attr-defined]  # ours, as above


def _view(func: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Views of a constant; None where its values are in memory once for several positions, and only a copy of all has such a view."""
    try:
        return func(*args, **options)
    except RuntimeError:
        return None


def _of_one_element(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of an operator that makes equal elements, for one element; None for other operators."""
    name = func._schema.name
    if name in _FILLING and name.endswith("_like"):
        return (args[0][(0,) * args[0].dim()], *args[1:])
    at = _FILLED.get(name.removeprefix("aten::"))
    return None if at is None else (*args[:at], [], *args[at + 1 :])


def _once(x: torch.Tensor) -> torch.Tensor:
    """``x`` with one index in each dimension along which its values repeat."""
    x = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.stride())]
    for dim in range(x.dim() if x.numel() <= _LARGEST_WHOLE else 0):
        first = x.narrow(dim, 0, 1)
        if bool((x == first).all()):
            x = first
    return x


def _attach(out: Any, real: Any) -> None:
    if isinstance(out, torch.Tensor) and isinstance(real, torch.Tensor):
        if isinstance(out, FakeTensor) and out.layout is torch.strided:
            storage = out.untyped_storage()
            out.napkin_constant = real, (storage._cdata, _copies(storage))  # type: ignore[attr-defined]  # ours, on torch's tensor
    elif isinstance(out, list | tuple):
        for o, r in zip(out, real, strict=True):
            _attach(o, r)
