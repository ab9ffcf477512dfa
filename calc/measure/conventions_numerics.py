"""Elementwise FLOPs of operators on vectors and tables, counted as a whole.

- a cumulative log-sum-exp: 4 operations (difference, exponential, log(1 + ...), sum) per element of a line except the first;
- weight normalization backward, N elements in n slices: dw v summed over each slice, divided by its norm twice; then three
  operations per element, and g / norm per slice;
- embedding bags: every row that is looked up is added to its bag (of zeros), after a product if it has a weight; a mean divides
  once per result element. Backward: per row looked up, a row of the gradient is divided (mean), multiplied by the weight (if any),
  and added; for a maximum only the largest elements are added. The gradient of a weight is a dot product of two rows;
- a scatter that averages: one addition and one count per source element, one division per element of the result;
- margin losses backward: the margins are recomputed; each is added to its class and subtracted from the target's;
- distances between all pairs of rows of M elements: difference, power and sum, and one root per pair. Backward: per pair one
  division, per element a difference, a product and a sum, and the powers that p requires;
- Fourier transforms: 5 N log2 N for a line of N, the logarithm rounded up, for every axis in turn. A real signal of N counts
  N // 2 + 1 frequencies instead of N. Normalization multiplies every result element once; ``fftfreq`` multiplies every index
  by one number;
- factorizations and solutions of n equations: the textbook's divisions and roots; their multiply-adds are matmul FLOPs. The
  logarithm of a determinant takes absolute values and logarithms of n pivots, their sum and the product of their signs;
- a cross product: two products and a difference for each result element;
- connectionist temporal classification, N = rows x (steps - 1) x (2 letters + 1) paths' probabilities, of padding too: a sum of three
  in logarithms (3 differences, 3 exponentials, 2 sums, a logarithm, a sum) and the letter's own, 11 each; a loss is a sum of two and a
  sign, 8. Backward: the same from the other end, 1 to join both, 7 to add it to its letter's; 2 per row at the ends; 6 per score;
- segment reductions: every element is combined with its segment's initial value; a mean divides each result. Backward: a mean divides each
  gradient, a product multiplies it by the result and divides that by every element; otherwise gradients are copied.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from calc.measure.kinds import Args, Count, as_meta, reduced, results

_SUM, _MEAN, _MAX = 0, 1, 2


def _lines(args: Args) -> int:
    source = args["self"]
    length = source.shape[args["dim"]] if source.dim() else 1
    return int(source.numel()) // length if length else 0


def _log_cumulative(args: Args, outputs: Any) -> int:
    return 4 * (results(outputs) - _lines(args))


def _weight_norm_backward(args: Args, outputs: Any) -> int:
    elements, slices = int(args["saved_v"].numel()), int(args["saved_g"].numel())
    return elements + reduced(elements, slices) + 2 * slices + 3 * elements + slices


def _bag(args: Args, outputs: Any) -> int:
    width, mode = int(args["weight"].shape[-1]), args.get("mode", _SUM)
    looked_up = int(args["indices"].numel()) * width
    if mode == _MAX:
        return looked_up
    weighted = looked_up if args.get("per_sample_weights") is not None else 0
    return looked_up + weighted + (results(outputs) if mode == _MEAN else 0)


def _bag_backward(args: Args, outputs: Any) -> int:
    grad, mode = args["grad"], args["mode"]
    if mode == _MAX:
        return int(grad.numel())
    looked_up = int(args["indices"].numel()) * int(grad.shape[-1])
    weighted = looked_up if args.get("per_sample_weights") is not None else 0
    return looked_up + weighted + (looked_up if mode == _MEAN else 0)


def _bag_weights_backward(args: Args, outputs: Any) -> int:
    width = int(args["grad"].shape[-1])
    return int(args["indices"].numel()) * (width + reduced(width, 1))


def _put(args: Args, outputs: Any) -> int:
    return int(args["index"].numel()) if args.get("accumulate", False) else 0


def _multi_margin_backward(args: Args, outputs: Any) -> int:
    scores, targets = int(args["self"].numel()), int(args["target"].numel())
    powers = 2 * scores if args["p"] == 2 else 0
    weighted = scores if args.get("weight") is not None else 0
    return targets + scores + powers + weighted + scores + scores


def _multilabel_margin_backward(args: Args, outputs: Any) -> int:
    scores, classes = int(args["self"].numel()), int(args["self"].shape[-1])
    return scores + 3 * scores * classes + scores


def _pairs(args: Args) -> tuple[int, int]:
    """(pairs of rows, elements of each row)."""
    x, y = args["x1"], args["x2"]
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return math.prod(batch) * int(x.shape[-2]) * int(y.shape[-2]), int(x.shape[-1])


def _own_pairs(args: Args) -> tuple[int, int]:
    """(pairs of two rows, elements of each row)."""
    rows, width = (int(size) for size in args["self"].shape)
    return rows * (rows - 1) // 2, width


def _distance(args: Args, outputs: Any) -> int:
    args = {"p": 2, **args}
    pairs, width = _own_pairs(args) if "self" in args else _pairs(args)
    power = 0 if args["p"] in (0, float("inf")) else pairs * width
    root = 0 if args["p"] in (0, 1, float("inf")) else pairs
    return pairs * width + power + reduced(pairs * width, pairs) + root


def _distance_backward(args: Args, outputs: Any) -> int:
    rows = 2 if "self" in args else 1  # that a pair of rows adds to
    pairs, width = _own_pairs(args) if "self" in args else _pairs(args)
    if args["p"] == 1:
        return (2 + rows) * pairs * width
    return pairs + ((2 if args["p"] == 2 else 4) + rows) * pairs * width


def _fourier(args: Args, outputs: Any) -> int:
    source = args["self"]
    spectrum = source if source.is_complex() else outputs
    lines = [source.shape[axis] for axis in args["dim"]]
    if "last_dim_size" in args:
        lines[-1] = args["last_dim_size"]
    stages = sum(math.ceil(math.log2(length)) for length in lines)
    return 5 * int(spectrum.numel()) * stages + (int(outputs.numel()) if args["normalization"] else 0)


def terms_of_product(args: Args) -> int:
    """Number of terms of Σ i1 i2 i3 after the operands are expanded by the axes that they lack."""
    shapes = []
    for name, axes in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        tensor = as_meta(args[name])
        for axis in args[axes]:
            tensor = tensor.unsqueeze(axis)
        shapes.append(tensor.shape)
    return math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]  # torch leaves it untyped


def _systems(matrix: Any) -> tuple[int, int]:
    """(number of square matrices, their width)."""
    return math.prod(matrix.shape[:-2]), int(matrix.shape[-1])


def _lu(args: Args, outputs: Any) -> int:
    batch, n = _systems(args["A"])
    return batch * n * (n - 1) // 2


def _triangular(args: Args, outputs: Any) -> int:
    return 0 if args.get("unitriangular", False) else results(outputs)


def _inverse(args: Args, outputs: Any) -> int:
    return _lu(args, outputs) + results(outputs)


def _cholesky(args: Args, outputs: Any) -> int:
    batch, n = _systems(args["self"])
    return batch * (n * (n - 1) // 2 + n)


def _qr(args: Args, outputs: Any) -> int:
    """Of each column the part that is left: its squares, their sum, a division of each element."""
    *batch, m, n = (int(size) for size in args["A"].shape)
    return math.prod(batch) * sum(3 * (m - j) - 1 for j in range(min(m, n)))


def _log_determinant(args: Args, outputs: Any) -> int:
    batch, n = _systems(args["A"])
    return _lu(args, outputs) + 2 * batch * n + 2 * reduced(batch * n, batch)


def _segments(args: Args, outputs: Any) -> int:
    return int(args["data"].numel()) + (results(outputs) if args["reduce"] == "mean" else 0)


def _segments_backward(args: Args, outputs: Any) -> int:
    of_segments = int(args["grad"].numel())
    return {"mean": of_segments, "prod": of_segments + int(args["data"].numel())}.get(args["reduce"], 0)


def _ctc(args: Args, outputs: Any) -> int:
    rows, steps, places = (int(size) for size in outputs[1].shape)
    return 11 * rows * reduced(steps, 1) * places + 8 * rows


def _ctc_backward(args: Args, outputs: Any) -> int:
    rows, steps, places = (int(size) for size in args["log_alpha"].shape)
    return 19 * rows * reduced(steps, 1) * places + 2 * rows + 6 * results(outputs)


def _two_triangles(args: Args, outputs: Any) -> int:
    return 2 * results(outputs)


NUMERICS: dict[str, Count] = {
    "fft_fftfreq": lambda args, outputs: results(outputs),
    "fft_rfftfreq": lambda args, outputs: results(outputs),
    "_fft_c2c": _fourier,
    "_fft_r2c": _fourier,
    "_fft_c2r": _fourier,
    "logcumsumexp": _log_cumulative,
    "_weight_norm_interface_backward": _weight_norm_backward,
    "_embedding_bag": _bag,
    "_embedding_bag_forward_only": _bag,
    "_embedding_bag_backward": _bag_backward,
    "_embedding_bag_per_sample_weights_backward": _bag_weights_backward,
    "put": _put,
    **dict.fromkeys(("angle", "polygamma", "_standard_gamma_grad", "_dirichlet_grad"), lambda args, outputs: results(outputs)),
    "rrelu_with_noise": lambda args, outputs: results(outputs),
    "multi_margin_loss_backward": _multi_margin_backward,
    "multilabel_margin_loss_backward": _multilabel_margin_backward,
    "_cdist_forward": _distance,
    "_cdist_backward": _distance_backward,
    "_pdist_forward": _distance,
    "_pdist_backward": _distance_backward,
    "_trilinear": lambda args, outputs: terms_of_product(args),
    "linalg_solve_triangular": _triangular,
    "linalg_lu_factor_ex": _lu,
    "linalg_inv_ex": _inverse,
    "_linalg_solve_ex": lambda args, outputs: _lu(args, outputs) + results(outputs),
    "linalg_lu_solve": lambda args, outputs: results(outputs),
    "linalg_cholesky_ex": _cholesky,
    "cholesky_solve": _two_triangles,
    "linalg_qr": _qr,
    "_linalg_slogdet": _log_determinant,
    "linalg_cross": lambda args, outputs: 3 * results(outputs),
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc_backward,
    "segment_reduce": _segments,
    "_segment_reduce_backward": _segments_backward,
    "_linalg_det": lambda args, outputs: _lu(args, outputs) + results(outputs) * reduced(int(args["A"].shape[-1]), 1),
}
