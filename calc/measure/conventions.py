"""Elementwise FLOPs of operators counted as a whole, by conventions, since torch has no suitable reference decomposition.

- matrix multiplications (also with vectors) and convolutions: their products are matmul FLOPs, so 0 here. The bias of ``addmm`` and its
  variants and of a convolution is one addition per result element; ``alpha`` scales the product, ``beta`` the bias, unless they are 1;
  a convolution's bias gradient is a reduction.
- matrix multiplications with scales (fp8), as torch's reference on a CPU: one multiplication for each element of both operands, and for
  each of the result one addition of a bias and, into fp8, one division by the result's scale.
- fused attention, N = scores (batch x query heads x query length x key length, in full even when causal) and R = rows of
  scores: the elementwise work of the mathematical formulation. Forward: N scalings, N additions of a floating mask if one is
  given, softmax = (N - R) maximum + N subtractions + N exponentials + (N - R) sum + N divisions. Backward: softmax's backward
  = N products + (N - R) sum + N products + N subtractions, and N scalings. The log-sum-exp that the kernel saves and the
  recomputed exponentials of its backward are not counted; heads that share keys add the key and value gradients of their group:
  (query heads / key heads - 1) additions per gradient element. Dropout, if its probability is not 0: 2 N each way.
- ``cumsum``, ``cumprod``: n - 1 per line of n. Maximum and minimum with their index: a reduction.
- accumulating scatters (``index_add``, ``scatter_add``, ``index_put`` with accumulate): one addition per source element.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calc.measure.conventions_images import IMAGES
from calc.measure.conventions_numerics import NUMERICS
from calc.measure.conventions_updates import UPDATES
from calc.measure.kinds import Args, Count, UncountableError, as_meta, reduced, results
from calc.platform.torch_private import no_modes


def _addmm(args: Args, outputs: Any) -> int:
    beta, alpha = args.get("beta", 1), args.get("alpha", 1)
    result = results(outputs)
    bias = 0 if beta == 0 else result
    return bias + (int(args["self"].numel()) if beta not in (0, 1) else 0) + (result if alpha != 1 else 0)


def _convolution(args: Args, outputs: Any) -> int:
    return results(outputs) if args.get("bias") is not None else 0


def _convolution_backward(args: Args, outputs: Any) -> int:
    grad = args["grad_output"]
    channels = grad.shape[1]
    return reduced(grad.numel(), channels) if args["output_mask"][2] else 0


def _scaled_mm(args: Args, outputs: Any) -> int:
    bias = results(outputs) if args.get("bias") is not None else 0
    to_fp8 = args.get("scale_result") is not None and outputs.dtype.itemsize == 1
    return int(args["self"].numel() + args["mat2"].numel()) + bias + (results(outputs) if to_fp8 else 0)


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
    softmax = reduced(scores, rows) + scores + scores + reduced(scores, rows) + scores
    return scores + mask + softmax + _dropout(args, scores)


def _attention_backward(args: Args, outputs: Any) -> int:
    scores, rows = _scores(args)
    query_heads, key_heads = args["query"].shape[-3], args["key"].shape[-3]
    shared = int((query_heads // key_heads - 1) * (args["key"].numel() + args["value"].numel()))
    softmax_backward = scores + reduced(scores, rows) + scores + scores
    return softmax_backward + scores + shared + _dropout(args, scores)


def _dropout(args: Args, scores: int) -> int:
    return 2 * scores if args.get("dropout_p", 0.0) else 0


def _cumulative(args: Args, outputs: Any) -> int:
    source = args["self"]
    length = source.shape[args["dim"]] if source.dim() else 1
    return reduced(source.numel(), source.numel() // length if length else 0)


def _extremum(args: Args, outputs: Any) -> int:
    return reduced(args["self"].numel(), results(outputs))


def _index_add(args: Args, outputs: Any) -> int:
    source = int(args["source"].numel())
    return source * (2 if args.get("alpha", 1) != 1 else 1)


def _scatter_add(args: Args, outputs: Any) -> int:
    return int(args["index"].numel())


def scatter_reduce(args: Args, outputs: Any) -> int:
    """One operation for each element that is scattered; a mean also divides each result. Raises ``UncountableError`` for others."""
    if args["reduce"] == "mean":
        return 2 * int(args["index"].numel()) + results(outputs)
    if args["reduce"] not in ("sum", "prod", "amax", "amin", "add", "multiply"):
        raise UncountableError(f"scatter with reduce={args['reduce']!r}")
    return int(args["index"].numel())


def _index_put(args: Args, outputs: Any) -> int:
    return indexed_elements(args) if args.get("accumulate", False) else 0


def fills_by_mask(args: Args) -> bool:
    """Whether ``index_put_`` writes a scalar where a single mask is true; torch then runs the kernel of ``masked_fill_``."""
    indices = [i for i in args["indices"] if i is not None]
    single = len(indices) == 1 and indices[0].dtype in (torch.bool, torch.uint8)
    return single and args["values"].dim() == 0 and not args.get("accumulate", False)


def indexed_elements(args: Args) -> int:
    """Number of elements of ``self[indices]``, by indexing a ``meta`` copy; masks are first converted to indices."""
    with no_modes():
        source = as_meta(args["self"])
        indices: list[Tensor | None] = []
        for index in args["indices"]:
            masks = index is not None and index.dtype in (torch.bool, torch.uint8)
            indices += [as_meta(p) for p in index.nonzero(as_tuple=True)] if masks else [None if index is None else as_meta(index)]
        return int(torch.ops.aten.index.Tensor(source, indices).numel())


CONVENTIONS: dict[str, Count] = {
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "addbmm": _addmm,
    "_scaled_mm": _scaled_mm,
    "_scaled_mm_v2": _scaled_mm,
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
    "scatter_reduce": scatter_reduce,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    **IMAGES,
    **NUMERICS,
    **UPDATES,
}
