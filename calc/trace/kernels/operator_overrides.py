"""Overrides for torch functions that take plain numbers where a model may pass a symbolic size; the size stays symbolic."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch
import torch.backends.opt_einsum
from torch import nn

from calc.experiment.uncompiled import uncompiled
from calc.platform.model_files import replaced_by_name
from calc.platform.operator_names import OperatorNames
from calc.platform.replaced import replaced
from calc.platform.sized_list import SizedList
from calc.platform.torch_private import FakeTensor, no_dispatch, no_modes
from calc.trace.kernels.chosen_experts import of_chosen_experts
from calc.trace.kernels.recurrent import cell_by_cell
from calc.trace.values import sequence_lengths
from calc.trace.values.constant_propagation import note_made_from
from calc.trace.values.data_dependence import mark_picked
from calc.trace.values.facts import OneIn, ZerosBeyond, fact_of, index_bound, note
from calc.trace.values.scalar_reads import ScalarRead

if TYPE_CHECKING:
    from calc.trace.recorder import Recorder

aten = torch.ops.aten
_SMALL = 1024
_ITEM = torch.Tensor.item  # torch's own, whatever replaces it during a trace
_INTERPOLATIONS: dict[tuple[str, int], Any] = {
    ("nearest", 1): aten.upsample_nearest1d.default,
    ("nearest", 2): aten.upsample_nearest2d.default,
    ("nearest", 3): aten.upsample_nearest3d.default,
    ("nearest-exact", 1): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 2): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 3): aten._upsample_nearest_exact3d.default,
    ("linear", 1): aten.upsample_linear1d.default,
    ("bilinear", 2): aten.upsample_bilinear2d.default,
    ("bicubic", 2): aten.upsample_bicubic2d.default,
    ("trilinear", 3): aten.upsample_trilinear3d.default,
}


@contextlib.contextmanager
def overriding_operators(recorder: Recorder) -> Iterator[None]:
    """Context in which ``torch.histc`` counts into a symbolic number of bins, ``interpolate`` scales a symbolic size, and so on, under
    ``recorder``."""
    called, picking = recorder.traced_as, recorder.unbacked.picking
    original = torch.histc

    def histc(input: torch.Tensor, bins: Any = 100, min: float = 0, max: float = 0, *, out: Any = None) -> torch.Tensor:
        if not isinstance(bins, torch.SymInt):
            return original(input, bins, min, max, out=out)
        with called("aten.histc.default", {"self": input, "bins": bins, "min": min, "max": max}):
            return torch.empty((bins,), dtype=input.dtype, device=input.device)

    interpolate = functools.partial(_interpolate, nn.functional.interpolate)
    package = torch.backends.opt_einsum.get_opt_einsum()
    with (
        replaced(torch.backends.opt_einsum, get_opt_einsum=lambda: package if package is None else _Orders(package)),
        replaced_by_name(
            torch,
            histc=histc,
            max_pool1d=functools.partial(_max_pool1d, torch.max_pool1d),
            masked_select=functools.partial(_masked_select, torch.masked_select),
            **{n: functools.partial(made, called, getattr(torch, n)) for n, made in _NUMBERED.items()},
            **{n: functools.partial(_copied, getattr(torch, n), recorder) for n in ("tensor", "as_tensor")},
        ),
        replaced_by_name(torch.fft, **{n: _frequencies(called, n, getattr(torch.fft, n)) for n in ("fftfreq", "rfftfreq")}),
        replaced(torch.Tensor, histc=histc, masked_select=_method(_masked_select, torch.masked_select)),
        replaced(FakeTensor, tolist=_listed(recorder), **_picked(picking)),
        replaced_by_name(
            nn.functional, interpolate=interpolate, one_hot=functools.partial(_one_hot, nn.functional.one_hot, picking)
        ),
        cell_by_cell(recorder.path.within, recorder.exchanged.add),
        uncompiled(recorder.exchanged.add),
        sequence_lengths.written_out(),
        of_chosen_experts(recorder),
    ):
        yield


class _Path(Exception):
    """The order in which an einsum contracts its operands."""

    def __init__(self, path: Any) -> None:
        super().__init__()
        self.path = path


class _Orders:
    """The package opt_einsum, as ``torch.einsum`` calls it for the contraction order of three or more operands. With symbolic sizes the
    search runs as with numbers: its comparisons are guards, so the order is that at the hints. The cost report after the search needs
    plain numbers; torch does not use it, so it is skipped."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def contract_path(self, equation: str, *operands: torch.Tensor, optimize: str) -> tuple[Any, ...]:
        search = self._package.paths.get_path_fn(optimize)

        class FixedOrder(self._package.paths.PathOptimizer):  # type: ignore[misc,name-defined]  # the base is known at run time
            def __call__(self, *given: Any) -> Any:
                raise _Path(search(*given))

        try:
            path: tuple[Any, ...] = self._package.contract_path(equation, *operands, optimize=FixedOrder())
        except _Path as end:
            return (end.path,)
        return path


def _frequencies(called: Callable[[str, dict[str, Any]], Any], name: str, original: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """``torch.fft.fftfreq``, or ``rfftfreq`` of a real signal, of a symbolic number of samples."""

    def frequencies(n: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
        if not isinstance(n, torch.SymInt) or options.get("out") is not None:
            return original(n, d, **options)
        with called(f"aten.fft_{name}.default", {"n": n, "d": d}):
            made = torch.empty((n if name == "fftfreq" else n // 2 + 1,), dtype=options.get("dtype"), device=options.get("device"))
        return made.requires_grad_(options.get("requires_grad", False))

    return frequencies


def _linspace(
    called: Callable[[str, dict[str, Any]], Any],
    original: Callable[..., torch.Tensor],
    start: Any,
    end: Any,
    steps: Any = None,
    **options: Any,
) -> torch.Tensor:
    """``torch.linspace`` of a symbolic number of steps."""
    plain = not isinstance(steps, torch.SymInt) or options.get("out") is not None
    if plain or isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor):
        return original(start, end, steps, **options)
    with called("aten.linspace.default", {"start": start, "end": end, "steps": steps}):
        made = torch.empty((steps,), dtype=options.get("dtype"), device=options.get("device"))
    return made.requires_grad_(options.get("requires_grad", False))


def _arange(
    called: Callable[[str, dict[str, Any]], Any], original: Callable[..., torch.Tensor], *bounds: Any, **options: Any
) -> torch.Tensor:
    """``torch.arange`` where a bound or the step is a double that is computed from sizes: as symbols torch takes whole numbers alone. It
    counts the elements in doubles, as here."""
    names = ("end",) if len(bounds) == 1 else ("start", "end", "step")
    given = {"start": 0, "step": 1, **dict(zip(names, bounds, strict=False)), **{n: options[n] for n in _BOUNDS if n in options}}
    if not any(isinstance(value, torch.SymFloat) for value in given.values()) or options.get("out") is not None:
        return original(*bounds, **options)
    with called("aten.arange.start_step", {name: given[name] for name in _BOUNDS}):
        length = math.ceil((given["end"] - given["start"]) / given["step"])
        made = torch.empty((length,), dtype=options.get("dtype"), device=options.get("device"))
    return made.requires_grad_(options.get("requires_grad", False))


_BOUNDS = ("start", "end", "step")
_NUMBERED: dict[str, Callable[..., torch.Tensor]] = {"linspace": _linspace, "arange": _arange}


def _copied(original: Callable[..., torch.Tensor], recorder: Recorder, data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.tensor`` of a list with numbers, doubles computed from sizes and one-element tensors: each element is read, and its value is
    propagated if known. It runs no operator, also of a list whose length is a symbol."""
    if isinstance(data, torch.Tensor):
        return original(data, *args, **kwargs)
    if isinstance(data, SizedList):
        with recorder.unrecorded():
            return torch.ones((data.size,), *args, **kwargs)
    parts = [*_numbers_in(data)]
    read = any(isinstance(part, ScalarRead) for part in parts)
    if not read and not any(isinstance(part, torch.Tensor | torch.SymFloat) for part in parts):
        return original(data, *args, **kwargs)
    if not args and kwargs.get("dtype") is None:
        with no_dispatch():
            kwargs["dtype"] = functools.reduce(torch.promote_types, map(_type_of, parts))
    with recorder.copying():
        plain = _plain(data)
    made = original(plain, *args, **kwargs)
    note_made_from(made, parts, constant=not read)
    return made


def _listed(recorder: Recorder) -> Callable[[FakeTensor], Any]:
    """``tensor.tolist``. On a real tensor it runs no operators: it reads the memory."""
    original = FakeTensor.tolist

    def tolist(self: FakeTensor) -> Any:
        with recorder.unrecorded():
            return original(self)

    return tolist


def _numbers_in(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for part in data:
            yield from _numbers_in(part)
    else:
        yield data


def _plain(data: Any) -> Any:
    if isinstance(data, list | tuple):
        return [_plain(part) for part in data]
    return _ITEM(data) if isinstance(data, torch.Tensor) else data


def _type_of(number: Any) -> torch.dtype:
    if isinstance(number, torch.Tensor):
        return number.dtype
    whole = int | torch.SymInt
    return torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, whole) else torch.get_default_dtype()


def _max_pool1d(original: Callable[..., torch.Tensor], input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``max_pool1d``. With a gradient, torch saves the indices, by the operators of ``max_pool1d_with_indices``."""
    if not any(isinstance(size, torch.SymInt) for size in input.shape):
        return original(input, *args, **kwargs)
    result: torch.Tensor = torch.max_pool1d_with_indices(input, *args, **kwargs)[0]
    return result


def _interpolate(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """The operator that torch would run: ``torch.nn.functional.interpolate`` itself needs plain numbers. A scale of 2 or 0.5 is exact, one
    of 0.1 is not."""
    scaled = (
        _scaled(input.shape[2:], scale_factor) if size is None else size if isinstance(size, list | tuple) else (size,) * (input.dim() - 2)
    )
    operator = _INTERPOLATIONS.get((mode, input.dim() - 2))
    if scaled is None or operator is None or antialias or not any(isinstance(s, torch.SymInt) for s in (*input.shape, *scaled)):
        return original(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    result: torch.Tensor = operator(input, scaled) if "nearest" in mode else operator(input, scaled, bool(align_corners))
    return result


def _scaled(sizes: Sequence[Any], scale_factor: Any) -> list[Any] | None:
    """The sizes times their factors, rounded down; None where a factor is not a small fraction."""
    factors = scale_factor if isinstance(scale_factor, list | tuple) else (scale_factor,) * len(sizes)
    exact = [Fraction(f) for f in factors]
    if any(f.denominator > _SMALL for f in exact):
        return None
    pairs = zip(sizes, exact, strict=True)
    return [s * f.numerator // f.denominator if f.denominator > 1 else s * f.numerator for s, f in pairs]


class _MaskedSelect(torch.autograd.Function):
    """``masked_select`` with the saved tensors and operators of torch: torch's own backward needs sizes as plain numbers."""

    @staticmethod
    def forward(ctx: Any, choose: Callable[..., torch.Tensor], x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, mask)
        return choose(x, mask)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        x, mask = ctx.saved_tensors
        shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]  # untyped in torch
        whole = torch.zeros_like(x.expand(shape))
        return None, whole.masked_scatter(mask, gradients[0]).sum_to_size(x.shape), None


def _masked_select(
    original: Callable[..., torch.Tensor], input: torch.Tensor, mask: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    if out is not None or not (input.requires_grad and torch.is_grad_enabled()):
        return original(input, mask) if out is None else original(input, mask, out=out)
    chosen: torch.Tensor = _MaskedSelect.apply(original, input, mask)  # type: ignore[no-untyped-call]  # untyped in torch
    return chosen


def _method(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a method of tensors: a partial function does not bind."""

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return function(original, self, *args, **kwargs)

    return method


def _picked(picking: Callable[[], Any]) -> dict[str, Any]:
    """Indexing, where an index that is a one-element tensor is read: it selects one of several parts of equal size. It is only installed on
    fake tensors: once ``torch.Tensor`` has had its own ``__getitem__``, torch takes it for a sequence, and ``torch.tensor`` of
    zero-dimensional tensors calls their ``len``."""
    take, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__

    def getitem(self: torch.Tensor, index: Any) -> Any:
        if not _picks(index):
            return take(self, index)
        with picking():
            part = take(self, index)
        mark_picked(part)
        return part

    def setitem(self: torch.Tensor, index: Any, value: Any) -> None:
        with picking() if _picks(index) else contextlib.nullcontext():
            put(self, index, value)

    return {"__getitem__": getitem, "__setitem__": setitem}


def _picks(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(_picks(i) for i in index)
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype not in (torch.bool, torch.uint8)


@functools.cache
def _reads_once(one_hot: Callable[..., torch.Tensor]) -> bool:
    """Whether this torch version computes the least and the greatest class in one pass, as releases after 2.11 do. In inference mode
    ``one_hot`` would be seen as one operator."""
    with torch.inference_mode(False), no_modes(), OperatorNames() as seen:
        one_hot(torch.zeros(1, dtype=torch.int64), 1)
    return "aten.aminmax.default" in seen.names


def _one_hot(
    original: Callable[..., torch.Tensor], picking: Callable[[], Any], input: torch.Tensor, num_classes: Any = -1
) -> torch.Tensor:
    """``one_hot`` by the operators that torch runs: its own function needs a plain number of classes, and reads values to check them."""
    if isinstance(num_classes, int) and num_classes == -1:
        return original(input)
    once = _reads_once(original)
    extremes = torch.aminmax(input) if once else ()
    with picking():
        for i, extreme in enumerate((torch.min, torch.max)):
            (extremes[i] if once else extreme(input)).item()
    made = torch.zeros((*input.shape, num_classes), dtype=torch.int64)
    made.scatter_(-1, input.unsqueeze(-1), 1)
    count = index_bound(fact_of(input))
    if count is not None:
        note(made, OneIn((count,), within=ZerosBeyond(input.dim(), count), chosen=fact_of(input).chosen))
    return made
