"""Elementwise FLOPs of one operator, counted by running torch's own reference decomposition of it on ``meta`` tensors.

The decomposition (``torch._decomp``, ``torch._refs``) runs under a counting mode, recursively down to prims. An arithmetic
prim counts its result elements, a reduction of n elements to one n - 1; comparisons, selections, casts, rounding, copies,
views, factories and random numbers are 0. A reference that branches on the device takes the branch of any device but CPU.

Some operators are counted as a whole, because their reference is missing, or is written in a way that says nothing of the
operator's own arithmetic (a running sum written as a masked square, index arithmetic):

- matrix products (also with vectors) and convolutions: their products are matmul FLOPs, so 0 here. The bias of ``addmm`` and its
  kin and of a convolution is one addition per result element; ``alpha`` scales the product, ``beta`` the bias, unless they are 1;
  a convolution's bias gradient is a reduction.
- fused attention, N = scores (batch x query heads x query length x key length, in full even when causal) and R = rows of
  scores: the elementwise work of the mathematical formulation. Forward: N scalings, N additions of a floating mask if one is
  given, softmax = (N - R) maximum + N subtractions + N exponentials + (N - R) sum + N divisions. Backward: softmax's backward
  = N products + (N - R) sum + N products + N subtractions, and N scalings. The log-sum-exp the kernel keeps, and the repeated
  exponentials of its backward, are not counted; heads that share keys add the key and value gradients of their group:
  (query heads / key heads - 1) additions per gradient element. Dropout, if its probability is not 0: 2 N each way.
- ``cumsum``, ``cumprod``: n - 1 per line of n. Maximum and minimum with their position: a reduction.
- accumulating scatters (``index_add``, ``scatter_add``, ``index_put`` with accumulate): one addition per source element.
- pooling: each window is a reduction of the whole kernel (padding included), and the average one division per result
  element; backward one division per source element and one addition for each element of its window.
- an ``alpha`` of 1 is no multiplication, nor is softplus's ``beta``.
- moving, selecting and sorting elements: 0, whatever index arithmetic the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._prims
import torch._refs
from torch import Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

Args = Mapping[str, Any]


class UncountableError(Exception):
    """An operator that has no decomposition and is of no known kind. The message is its name."""


# -- kinds of operators, by name without overload and without the underscore of in-place ---------------------------------


def names(text: str) -> frozenset[str]:
    """The words of a list of operator names."""
    return frozenset(text.split())


ARITHMETIC_PRIMS = names(
    "abs acos acosh asin asinh atan atanh cos cosh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 cbrt digamma"
    " erf erf_inv erfc erfcx exp expm1 exp2 lgamma log log1p log2 log10 ndtri neg reciprocal sin sinh spherical_bessel_j0 sqrt"
    " tan tanh add atan2 div fmod gcd hypot igamma igammac mul pow remainder rsqrt sub zeta"
)
REDUCTION_PRIMS = names("amax amin prod sum xor_sum var")
FREE_PRIMS = names(
    # Comparisons and selections.
    "eq ge gt le lt ne isfinite signbit sign maximum minimum fmax fmin where maximum_value minimum_value"
    " bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical"
    # Casts, rounding, parts of a complex number.
    " convert_element_type device_put item ceil floor round trunc frexp nextafter conj conj_physical real imag"
    # Copies, views, factories, random numbers.
    " as_strided broadcast_in_dim collapse_view expand_dims slice split_dim squeeze transpose view_of view_element_type"
    " as_strided_scatter collapse cat reshape rev clone copy_strided copy_to resize fill empty_strided empty_permuted"
    " scalar_tensor iota normal _uniform_helper uniform"
)

FREE = names(
    # Comparisons, selections, logic, order.
    "eq ge gt le lt ne isnan isinf isfinite isneginf isposinf signbit sign sgn maximum minimum fmax fmin where masked_fill"
    " all any equal logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not"
    " bitwise_left_shift bitwise_right_shift argmax argmin sort topk histc kthvalue median nonzero unique_dim _unique2 searchsorted"
    " bucketize isin heaviside tril triu masked_select cummax cummin is_same_size _local_scalar_dense mode"
    # Casts and rounding.
    " _to_copy ceil floor round trunc conj_physical"
    # Copies and moves.
    " clone copy _copy_from constant_pad_nd cat stack flip roll repeat repeat_interleave index index_select gather take"
    " embedding index_copy index_fill scatter slice_backward select_backward diagonal_backward slice_scatter select_scatter"
    " diagonal_scatter as_strided_scatter reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d"
    " replication_pad2d replication_pad3d _unsafe_index pixel_shuffle pixel_unshuffle channel_shuffle im2col resize"
    # Views that the schema does not call one.
    " _unsafe_view unsafe_split unsafe_chunk _reshape_alias lift lift_fresh set resize_as"
    # Factories and random numbers.
    " empty empty_like empty_strided new_empty new_empty_strided empty_permuted zeros zeros_like new_zeros zero ones ones_like"
    " new_ones full full_like new_full fill scalar_tensor arange linspace eye tril_indices triu_indices"
    " rand rand_like randn randn_like randint randint_like randperm bernoulli uniform normal random exponential log_normal"
    " geometric cauchy multinomial poisson _efficientzerotensor"
    # Matrix products: their products are matmul FLOPs.
    " mm bmm mv dot vdot _grouped_mm"
)


def base_name(func: OpOverload) -> str:
    """``aten::add_`` → ``add``: the operator's name without namespace, and without the underscore of in-place."""
    name = func._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def bind(func: OpOverload, args: Sequence[Any], kwargs: Args) -> dict[str, Any]:
    """Arguments of a call by their schema names; those left at their default are absent."""
    names = [a.name for a in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def is_view(func: OpOverload) -> bool:
    """Whether an operator only shows elements in another way: a view, or in place (``t_``)."""
    return bool(func.is_view) or torch.Tag.inplace_view in func.tags


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in a value, also inside lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def _results(outputs: Any) -> int:
    """Elements of the first result: the number of arithmetic results of a pointwise operator."""
    return next((int(t.numel()) for t in tensors_in(outputs)), 0)


def _all_results(outputs: Any) -> int:
    return sum(t.numel() for t in tensors_in(outputs))


def _reduced(elements: int, results: int) -> int:
    return max(elements - results, 0)


# -- operators counted as a whole ------------------------------------------------------------------------------------------


def _addmm(args: Args, outputs: Any) -> int:
    beta, alpha = args.get("beta", 1), args.get("alpha", 1)
    result = _results(outputs)
    bias = 0 if beta == 0 else result
    return bias + (int(args["self"].numel()) if beta not in (0, 1) else 0) + (result if alpha != 1 else 0)


def _convolution(args: Args, outputs: Any) -> int:
    return _results(outputs) if args.get("bias") is not None else 0


def _convolution_backward(args: Args, outputs: Any) -> int:
    grad = args["grad_output"]
    channels = grad.shape[1]
    return _reduced(grad.numel(), channels) if args["output_mask"][2] else 0


def _scores(args: Args) -> tuple[int, int]:
    *batch, query_length, _ = args["query"].shape
    rows = int(math.prod(batch) * query_length)
    return rows * int(args["key"].shape[-2]), rows


def _float_mask(args: Args) -> bool:
    mask = args.get("attn_mask") if args.get("attn_mask") is not None else args.get("attn_bias")
    return mask is not None and mask.dtype != torch.bool


def _attention(args: Args, outputs: Any) -> int:
    scores, rows = _scores(args)
    mask = scores if _float_mask(args) else 0
    softmax = (scores - rows) + scores + scores + (scores - rows) + scores
    return scores + mask + softmax + _dropout(args, scores)


def _attention_backward(args: Args, outputs: Any) -> int:
    scores, rows = _scores(args)
    query_heads, key_heads = args["query"].shape[-3], args["key"].shape[-3]
    shared = int((query_heads // key_heads - 1) * (args["key"].numel() + args["value"].numel()))
    softmax_backward = scores + (scores - rows) + scores + scores
    return softmax_backward + scores + shared + _dropout(args, scores)


def _dropout(args: Args, scores: int) -> int:
    return 2 * scores if args.get("dropout_p", 0.0) else 0


def _cumulative(args: Args, outputs: Any) -> int:
    source = args["self"]
    length = source.shape[args["dim"]] if source.dim() else 1
    return _reduced(source.numel(), source.numel() // length if length else 0)


def _extremum(args: Args, outputs: Any) -> int:
    return _reduced(args["self"].numel(), _results(outputs))


def _index_add(args: Args, outputs: Any) -> int:
    source = int(args["source"].numel())
    return source * (2 if args.get("alpha", 1) != 1 else 1)


def _scatter_add(args: Args, outputs: Any) -> int:
    return int(args["index"].numel())


def _scatter_reduce(args: Args, outputs: Any) -> int:
    if args["reduce"] not in ("sum", "prod", "amax", "amin", "add", "multiply"):
        raise UncountableError(f"scatter with reduce={args['reduce']!r}")
    return int(args["index"].numel())


def _index_put(args: Args, outputs: Any) -> int:
    return indexed_elements(args) if args.get("accumulate", False) else 0


def indexed_elements(args: Args) -> int:
    """Elements that ``self[indices]`` addresses (integer indices), found by indexing a ``meta`` copy."""
    with _disable_current_modes():
        source = _meta(args["self"])
        indices = [_meta(i) if isinstance(i, Tensor) else i for i in args["indices"]]
        if any(i is not None and i.dtype == torch.bool for i in indices):
            raise UncountableError("index_put with a boolean mask")
        return int(torch.ops.aten.index.Tensor(source, indices).numel())


def _window(args: Args) -> int:
    """Elements of one pooling window, whose kernel may be given by one size for all its axes."""
    kernel = args["kernel_size"]
    return int(math.prod(kernel)) if len(kernel) > 1 else int(kernel[0]) ** 2


def _max_pool(args: Args, outputs: Any) -> int:
    return _results(outputs) * (_window(args) - 1)


def _max_pool_backward(args: Args, outputs: Any) -> int:
    return int(args["grad_output"].numel())


def _average_pool(args: Args, outputs: Any) -> int:
    return _results(outputs) * (_window(args) - 1) + _results(outputs)


def _average_pool_backward(args: Args, outputs: Any) -> int:
    source = int(args["grad_output"].numel())
    return source + source * _window(args)


WHOLE: dict[str, Callable[[Args, Any], int]] = {
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "addbmm": _addmm,
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
    "cumsum": _cumulative,
    "cumprod": _cumulative,
    "max": _extremum,
    "min": _extremum,
    "index_add": _index_add,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "avg_pool2d": _average_pool,
    "avg_pool2d_backward": _average_pool_backward,
}


def _is_known(func: OpOverload) -> bool:
    """Whether an operator is counted without decomposing it."""
    name = base_name(func)
    return func.namespace == "prims" or (func.namespace == "aten" and (name in FREE or name in WHOLE or is_view(func)))


def _known(func: OpOverload, args: Sequence[Any], kwargs: Args, outputs: Any) -> int | None:
    """The count of an operator of a known kind; ``None`` if it must be decomposed."""
    name = base_name(func)
    if func.namespace == "prims":
        return _prim(name, args, outputs)
    if func.namespace != "aten":
        return None
    bound = bind(func, args, kwargs)
    if name == "scatter" and "reduce" in bound:
        return _scatter_reduce(bound, outputs)
    if name in FREE or is_view(func):
        return 0
    whole = WHOLE.get(name)
    return None if whole is None else whole(bound, outputs)


def _prim(name: str, args: Sequence[Any], outputs: Any) -> int:
    if name in ARITHMETIC_PRIMS:
        return _all_results(outputs)
    if name in REDUCTION_PRIMS:
        return _reduced(args[0].numel(), _results(outputs))
    if name in FREE_PRIMS:
        return 0
    raise UncountableError(f"prims.{name}")


# -- everything else: run the decomposition --------------------------------------------------------------------------------


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the arithmetic of everything that runs under it, decomposing what is of no known kind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_known(func):
            outputs = func(*args, **kwargs)
            self.count += _known(func, args, kwargs, outputs) or 0
            return outputs
        if func.namespace in IGNORED_NAMESPACES:
            return func(*args, **kwargs)
        return self.decompose(func, args, kwargs)

    def decompose(self, func: OpOverload, args: Sequence[Any], kwargs: Args) -> Any:
        """Run one operator's decomposition, with what it calls coming back to this mode."""
        decomposition = _decomposition(func)
        if decomposition is None and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            decomposition = func.decompose
        if decomposition is None:
            raise UncountableError(str(func))
        with self:
            outputs = decomposition(*args, **kwargs)
        if outputs is NotImplemented:
            raise UncountableError(str(func))
        return outputs


IGNORED_NAMESPACES = names("prim profiler")


def _decomposition(func: OpOverload) -> Callable[..., Any] | None:
    """Torch's decomposition of an operator; an in-place one without its own takes the functional one's."""
    found = decomposition_table.get(func)
    if found is not None or not func._schema.name.endswith("_"):
        return found
    packet = getattr(torch.ops.aten, base_name(func), None)
    functional = getattr(packet, func._overloadname, None) if packet is not None else None
    return decomposition_table.get(functional) if functional is not None else None


def _meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _meta(value)
    if isinstance(value, list | tuple):
        return type(value)(_on_meta(v) for v in value)
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value


_COUNTS: dict[Any, int] = {}


def elementwise(func: OpOverload, args: Sequence[Any], kwargs: Args, outputs: Any) -> int:
    """Elementwise FLOPs of one call, given what it returned.

    Raises ``UncountableError`` for an operator that is of no known kind and has no decomposition.
    """
    known = _known(func, args, kwargs, outputs)
    if known is not None:
        return known
    # References multiply by any scale they are handed; one that is 1 is handed over if it is written as 1.0.
    kwargs = {name: value for name, value in kwargs.items() if name != "alpha" or value != 1}
    if base_name(func) == "softplus" and len(args) > 1 and args[1] == 1:
        args = [args[0], None, *args[2:]]
    key = (func, _signature(args), _signature(sorted(kwargs.items())))
    if key not in _COUNTS:
        _COUNTS[key] = _decomposed(func, args, kwargs)
    return _COUNTS[key]


def _decomposed(func: OpOverload, args: Sequence[Any], kwargs: Args) -> int:
    # Modes of the caller (another counter, say) must not see the decomposition's own operators.
    with _disable_current_modes(), torch.no_grad():
        mode = _Counting()
        try:
            mode.decompose(func, [_on_meta(a) for a in args], {k: _on_meta(v) for k, v in kwargs.items()})
        except UncountableError:
            raise
        except Exception as error:  # whatever a reference raises, the operator is then uncounted, and said to be
            raise UncountableError(f"{func}: its decomposition does not run on meta tensors: {error}") from error
        return mode.count


def _signature(value: Any) -> Any:
    """What of an argument can change the count: shapes, number formats and plain values."""
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(_signature(v) for v in value)
    if isinstance(value, int | float | bool | str | complex):
        return (type(value), value)
    return str(value)
