"""Elementwise FLOPs and bytes moved of a real run, operator by operator, as torch executes it.

Bytes moved are those that operators address, whatever caches absorb: the distinct elements of every tensor argument read, plus
the elements of every result written, each times its item size. A dimension of stride 0 counts once. Exceptions:

- a view (all results share storage with an argument, none is changed) moves nothing;
- an operator that changes its argument in place reads and writes it; ``copy_``, ``fill_``, ``zero_``, random fills and
  ``out=`` only write it;
- ``empty`` and its variants write nothing; ``zeros``, ``ones``, ``full``, ``arange`` and random factories write all;
- an argument that is used only for its shape (``ones_like``, the input of ``nll_loss_backward``) is not read, nor is
  one that the requested results do not need (``convolution_backward`` without the input's gradient does not read the weight);
- gathering operators (``embedding``, ``index_select``, ``gather``, ``index``, ``nll_loss_forward``) read one source element
  per element they take, plus the indices;
- scattering in place (``index_put_``, ``index_add_``, ``scatter_add_``, ``scatter_``, ``index_copy_``, ``index_fill_``) writes
  one element per source element, and reads it too where it accumulates; scattering into a new result writes all of it;
  ``x[mask] = number`` is what torch runs as ``masked_fill_``: the mask is read, x read and written, all of them whole;
- batch normalization in training also reads and writes the running statistics;
- a tensor passed twice is read twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.experiment.composite_operators import decomposed, is_composite
from calc.measure.conventions import fills_by_mask, indexed_elements
from calc.measure.decomposition import elementwise
from calc.measure.kinds import (
    IGNORED_NAMESPACES,
    Args,
    UncountableError,
    base_name,
    bind,
    is_view,
    names,
    tensors_in,
)
from calc.platform.torch_private import OpOverload, TorchDispatchMode, no_modes


class ReferenceCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
    """Counts what runs inside it: ``with ReferenceCounter() as counter: loss.backward()``.

    ``elementwise``   elementwise FLOPs, by torch's own reference decompositions.
    ``bytes_moved``   bytes read and written by the operators.
    ``unknown``       operators that could not be counted, with their number of calls; neither number includes them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self.elementwise = 0
        self.bytes_moved = 0
        self.unknown: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in IGNORED_NAMESPACES:
            return func(*args, **kwargs)
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        # Some operators resize or swap storage, so the arguments are inspected before the call.
        try:
            before = _Call(func, args, kwargs)
        except UncountableError:
            self.unknown[str(func)] += 1
            return func(*args, **kwargs)
        outputs = func(*args, **kwargs)
        try:
            # What a count runs no other instrument sees; and it is the same in every gradient mode.
            with no_modes(), torch.inference_mode(False), torch.no_grad():
                flops = elementwise(func, args, kwargs, outputs)
                moved = before.bytes_moved(outputs)
        except UncountableError:
            self.unknown[str(func)] += 1
        else:
            self.elementwise += flops
            self.bytes_moved += moved
        return outputs


# -- bytes moved -------------------------------------------------------------------------------------------------------------


def distinct(tensor: Tensor) -> int:
    """Number of distinct elements that a tensor addresses: a dimension of stride 0 counts once."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0)


def _whole(*tensors: Tensor | None) -> int:
    """Bytes of all distinct elements of the tensors; ``None`` counts 0."""
    return sum(distinct(t) * t.element_size() for t in tensors if t is not None)


def _size(elements: int, like: Tensor) -> int:
    return elements * like.element_size()


NOTHING_WRITTEN = names("empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize set")

WRITE_ONLY = names("_foreach_copy _foreach_zero copy fill zero bernoulli uniform normal random exponential log_normal geometric cauchy")

SHAPE_ONLY: dict[str, frozenset[str]] = {
    "rrelu_with_noise": frozenset({"noise"}),  # written, never read
    **dict.fromkeys(
        names(
            "empty_like zeros_like ones_like full_like rand_like randn_like randint_like"
            " new_empty new_empty_strided new_zeros new_ones new_full"
            " nll_loss_backward nll_loss2d_backward max_pool2d_with_indices_backward avg_pool2d_backward"
            " max_pool3d_with_indices_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward"
            " adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward"
            " fractional_max_pool3d_backward reflection_pad1d_backward reflection_pad2d_backward"
            " reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward"
        ),
        names("self"),
    ),
    "native_layer_norm_backward": names("bias"),
    "is_same_size": names("self other"),
    "bernoulli.p": names("self"),
}


def _reads_gather(args: Args, outputs: Any) -> int:
    """Bytes read: one element of ``self`` or ``weight`` per result element, and all indices."""
    source = args["weight"] if "weight" in args else args["self"]
    indices = [*tensors_in(args.get("indices")), *tensors_in(args.get("index"))]
    return _size(outputs.numel(), source) + _whole(*indices)


def _reads_nll_loss(args: Args, outputs: Any) -> int:
    target = args["target"]
    picked = _size(target.numel(), args["self"]) + _whole(target)
    return picked + (_size(target.numel(), args["weight"]) if args.get("weight") is not None else 0)


def _reads_nll_loss_backward(args: Args, outputs: Any) -> int:
    target, weight = args["target"], args.get("weight")
    return _whole(args["grad_output"], target, args["total_weight"]) + (_size(target.numel(), weight) if weight is not None else 0)


def _reads_convolution_backward(args: Args, outputs: Any) -> int:
    mask = args["output_mask"]
    return _whole(args["grad_output"], args["weight"] if mask[0] else None, args["input"] if mask[1] else None)


def _reads_batch_norm_backward(args: Args, outputs: Any) -> int:
    statistics = ("save_mean", "save_invstd") if args["train"] else ("running_mean", "running_var")
    return _whole(args["grad_out"], args["input"], args.get("weight"), *(args.get(name) for name in statistics))


READS: dict[str, Callable[[Args, Any], int]] = {
    "embedding": _reads_gather,
    "index_select": _reads_gather,
    "gather": _reads_gather,
    "index": _reads_gather,
    "_unsafe_index": _reads_gather,
    "take": _reads_gather,
    "nll_loss_forward": _reads_nll_loss,
    "nll_loss2d_forward": _reads_nll_loss,
    "nll_loss_backward": _reads_nll_loss_backward,
    "nll_loss2d_backward": _reads_nll_loss_backward,
    "convolution_backward": _reads_convolution_backward,
    "native_batch_norm_backward": _reads_batch_norm_backward,
}


def _scatter_index_put(args: Args) -> tuple[int, int]:
    if fills_by_mask(args):
        return _whole(*tensors_in(args["indices"]), args["values"], args["self"]), _whole(args["self"])
    touched = _size(indexed_elements(args), args["self"])
    return _whole(*tensors_in(args["indices"]), args["values"]) + (touched if args.get("accumulate", False) else 0), touched


def _scatter_index_add(args: Args) -> tuple[int, int]:
    touched = _size(args["source"].numel(), args["self"])
    return _whole(args["index"], args["source"]) + touched, touched


def _scatter_index_copy(args: Args) -> tuple[int, int]:
    return _whole(args["index"], args["source"]), _size(args["source"].numel(), args["self"])


def _scatter_index_fill(args: Args) -> tuple[int, int]:
    target, index = args["self"], args["index"]
    lines = target.numel() // target.shape[args["dim"]] if target.numel() else 0
    return _whole(index, *tensors_in(args["value"])), _size(lines * index.numel(), target)


def _scatter_src(args: Args) -> tuple[int, int]:
    """(bytes read, bytes written) of ``scatter_`` and ``scatter_add_``: one source element per index."""
    index, source, target = args["index"], args.get("src"), args["self"]
    touched = _size(index.numel(), target)
    read = _whole(index) + (_size(index.numel(), source) if source is not None else 0)
    return read, touched


def _scatter_accumulate(args: Args) -> tuple[int, int]:
    read, touched = _scatter_src(args)
    return read + touched, touched


SCATTERS: dict[str, Callable[[Args], tuple[int, int]]] = {
    "index_put_": _scatter_index_put,
    "_index_put_impl_": _scatter_index_put,
    "index_add_": _scatter_index_add,
    "index_copy_": _scatter_index_copy,
    "index_fill_": _scatter_index_fill,
    "scatter_": lambda args: _scatter_accumulate(args) if args.get("reduce") else _scatter_src(args),
    "scatter_add_": _scatter_accumulate,
    "scatter_reduce_": _scatter_accumulate,
}


def _reads_bags(args: Args, outputs: Any) -> int:
    """Bytes read: one row of the table per lookup, and all other tensors."""
    weight = args["weight"]
    tensors = (tensor for name, value in args.items() if name != "weight" for tensor in tensors_in(value))
    return _size(args["indices"].numel() * weight.shape[-1], weight) + _whole(*tensors)


READS |= dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_per_sample_weights_backward"), _reads_bags)

# Fused optimizers write the gradients in place only if a scale is given; step counts are incremented by another operator.
FUSED_UPDATES = names("_fused_adam _fused_adamw _fused_sgd _fused_adagrad")

RUNNING_STATISTICS = names("native_batch_norm _native_batch_norm_legit")


class _Call:
    """The arguments and storages of one call of an operator, taken before it runs."""

    def __init__(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name = func._schema.name.split("::")[1]
        self.base = base_name(func)
        self.overload = f"{self.base}.{func._overloadname}"
        self.args = bind(func, args, kwargs)
        self.tensors = [(name, tensor) for name, value in self.args.items() for tensor in tensors_in(value)]
        self.storages = {_storage(tensor) for _, tensor in self.tensors}
        self.is_view = is_view(func)
        written = {a.name: a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
        self.written = self._statistics() if self.base in RUNNING_STATISTICS else frozenset(written)
        if self.base in FUSED_UPDATES:
            self.written -= {"state_steps"} if self.args.get("grad_scale") is not None else {"grads", "state_steps"}
        self.outs = frozenset(name for name, a in written.items() if a.is_out)

    def _statistics(self) -> frozenset[str]:
        """The statistics that batch normalization writes: none outside training, whatever its schema says."""
        return names("running_mean running_var") if self.args.get("training") else frozenset()

    def bytes_moved(self, outputs: Any) -> int:
        fresh = [t for t in tensors_in(outputs) if _storage(t) not in self.storages]
        if self.is_view or (not self.written and not fresh and any(True for _ in tensors_in(outputs))):
            return 0
        if self.name in SCATTERS:
            return sum(SCATTERS[self.name](self.args))
        return self._reads(outputs) + self._writes(fresh)

    def _reads(self, outputs: Any) -> int:
        if self.base in READS:
            return READS[self.base](self.args, outputs)
        ignored = (
            SHAPE_ONLY.get(self.base, SHAPE_ONLY.get(self.overload, frozenset()))
            | self.outs
            | (self.written if self.base in WRITE_ONLY else frozenset())
        )
        return _whole(*(tensor for name, tensor in self.tensors if name not in ignored))

    def _writes(self, fresh: Sequence[Tensor]) -> int:
        if self.base in NOTHING_WRITTEN:
            return 0
        return _whole(*fresh, *(tensor for name, tensor in self.tensors if name in self.written))


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except RuntimeError:
        raise UncountableError("a tensor without a storage") from None
