"""Matmul FLOPs of a real run by torch's own ``FlopCounterMode``, only where its count is complete.

It silently counts 0 for operators that it does not know. So every operator of the run is checked: one that multiplies matrices
uncounted makes the reading "not measured", with its name. Fused attention on a CPU is such an operator: its matmuls are also run one by
one (``attention``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_backward_flop, flop_registry

from calc.measure.attention import AttentionMatmuls
from calc.measure.conventions_numerics import terms_of_product
from calc.measure.counter import CountedOnly, flop_counter
from calc.measure.measurement import Reading
from calc.measure.observer import Observer, fast_path
from calc.measure.recompute import RecomputeCounter, recompute_flops

INSTRUMENT = "torch.utils.flop_counter.FlopCounterMode"

aten = torch.ops.aten

# Names of operators that may multiply matrices, convolve or attend.
_MATMUL_LIKE = re.compile(
    r"mm(?![ai])|matmul|conv(?!ert)|attention|multi_head|encoder_layer|rnn|lstm|gru|linear|trilinear"
    r"|(^|_)(add)?(v?dot|mv)(_|$)|linalg|cholesky|solve|geqrf|orm?qr|householder|cdist|euclidean"
)
# Names that match but do no matmul: pointwise parts of cells, interpolation, norms, checks.
_NOT_MATMUL = re.compile(r"^_thnn_fused_|^_?upsample_|^hamming_window$|^_?linalg_(check_errors|cross|vector_norm|_powsum)|^_[cp]dist_|^glu")


def _dot(a: Sequence[int], b: Sequence[int], **ignored: Any) -> int:
    return 2 * a[0]


def _mv(matrix: Sequence[int], vector: Sequence[int], **ignored: Any) -> int:
    return 2 * matrix[0] * matrix[1]


def _addmv(bias: Sequence[int], matrix: Sequence[int], vector: Sequence[int], **ignored: Any) -> int:
    return _mv(matrix, vector)


def _addbmm(bias: Sequence[int], a: Sequence[int], b: Sequence[int], **ignored: Any) -> int:
    return 2 * a[0] * a[1] * a[2] * b[2]


def _product_in_place(target: Sequence[int], a: Sequence[int], b: Sequence[int], **ignored: Any) -> int:
    return 2 * math.prod(a) * b[-1]


def _trilinear(a: Any, b: Any, c: Any, *axes: Any, **ignored: Any) -> int:
    """FLOPs of Σ i1 i2 i3: one multiply-add (2 FLOP) per term of the sum."""
    names = dict(zip(("expand1", "expand2", "expand3"), axes, strict=False))
    return 2 * terms_of_product({"i1": a, "i2": b, "i3": c, **names})


_trilinear._get_raw = True  # type: ignore[attr-defined]  # how torch's counter marks a formula that takes tensors


def _euclidean(x: Sequence[int], y: Sequence[int], **ignored: Any) -> int:
    """FLOPs of one matmul whose rows have two more columns: squared norms and ones."""
    return 2 * math.prod(x[:-1]) * y[-2] * (x[-1] + 2)


# Multiply-adds (2 FLOP each) of systems of n equations: n(n - 1)/2 for a triangle and one right-hand side, n(n - 1)(2n - 1)/6 for
# L U = A, n(n² - 1)/6 for L Lᵀ = A.


def _triangles(shape: Sequence[int], n: int, count: int = 1) -> int:
    return count * math.prod(shape) // n * n * (n - 1)


def _lu(a: Sequence[int]) -> int:
    n = a[-1]
    return math.prod(a[:-2]) * n * (n - 1) * (2 * n - 1) // 3


def _solve_triangular(a: Sequence[int], b: Sequence[int], out_shape: Sequence[int] = (), **ignored: Any) -> int:
    return _triangles(out_shape, a[-1])


def _inverse(a: Sequence[int], **ignored: Any) -> int:
    return _lu(a) + _triangles(a, a[-1], 2)


def _solve(a: Sequence[int], b: Sequence[int], **ignored: Any) -> int:
    return _lu(a) + _triangles(b, a[-1], 2)


def _determinant(a: Sequence[int], **ignored: Any) -> int:
    return _lu(a)


def _cholesky(a: Sequence[int], **ignored: Any) -> int:
    n = a[-1]
    return math.prod(a[:-2]) * n * (n * n - 1) // 3


def _qr(a: Sequence[int], mode: str = "reduced", **ignored: Any) -> int:
    """Of reflection after reflection: 4 FLOP for each element of what is left of A behind its column, and of Q from its column on."""
    *batch, m, n = a
    k = min(m, n)
    elements = sum((m - j) * ((n - 1 - j) + (0 if mode == "r" else k - j)) for j in range(k))
    return 4 * math.prod(batch) * elements


def _lu_solve(lu: Sequence[int], exchanges: Sequence[int], b: Sequence[int], **ignored: Any) -> int:
    return _triangles(b, lu[-1], 2)


def _cholesky_solve(b: Sequence[int], factor: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    return _triangles(b, factor[-1], 2)


def _grouped_mm(a: Sequence[int], b: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    """FLOPs: each row or column of a grouped 2-D operand is multiplied by its group's matrix; two 3-D operands are batched."""
    columns_are_grouped = len(a) == 3 and len(b) == 2
    return 2 * math.prod(a[1:] if columns_are_grouped else a) * b[-1]


def _scaled_mm(x: Sequence[int], weight: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    return 2 * math.prod(x) * weight[-1]


def _convolution_backward(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Torch's own formula, corrected: torch's weight gradient ignores groups, so that part is divided by their number."""
    *head, groups, (needs_input, needs_weight, _) = args
    torchs: Any = conv_backward_flop  # its decorator changes the signature
    for_input = torchs(*head, groups, [needs_input, False, False], out_val=out_val)
    for_weight = torchs(*head, groups, [False, needs_weight, False], out_val=out_val)
    return int(for_input) + int(for_weight) // int(groups)


_convolution_backward._get_raw = True  # type: ignore[attr-defined]  # how torch's counter marks a formula that takes tensors

# Operators that the counter lacks (matrix-vector, grouped and in-place products) or gets wrong (grouped convolutions).
MAPPING: dict[Any, Callable[..., int]] = {
    aten.dot: _dot,
    aten.vdot: _dot,
    aten.mv: _mv,
    aten.addmv: _addmv,
    aten.addbmm: _addbmm,
    aten._grouped_mm: _grouped_mm,
    aten._scaled_mm_v2: _scaled_mm,
    aten._trilinear: _trilinear,
    aten._euclidean_dist: _euclidean,
    aten.linalg_solve_triangular: _solve_triangular,
    aten.linalg_inv_ex: _inverse,
    aten._linalg_solve_ex: _solve,
    aten._linalg_det: _determinant,
    aten._linalg_slogdet: _determinant,
    aten.linalg_cholesky_ex: _cholesky,
    aten.linalg_lu_solve: _lu_solve,
    aten.linalg_qr: _qr,
    aten.cholesky_solve: _cholesky_solve,
    aten.convolution_backward: _convolution_backward,
    aten.addmm_: _product_in_place,
    aten.baddbmm_: _product_in_place,
    aten.addmv_: _addmv,
    aten.addbmm_: _addbmm,
}
_COUNTED = {str(packet) for packet in (*flop_registry, *MAPPING)}


class MatmulCounter:
    """Counts the matmul FLOPs of one step, whose phases run inside ``counting``; fused attention on a CPU by its matmuls."""

    def __init__(self, phases: Sequence[str]) -> None:
        self.attention = AttentionMatmuls()
        self._counters: dict[str, list[FlopCounterMode]] = {phase: [] for phase in phases}
        self._recompute: list[RecomputeCounter] = []
        self._names: dict[str, set[str]] = {phase: set() for phase in phases}

    @contextmanager
    def counting(self, phase: str) -> Iterator[Observer]:
        """Context around a phase of the step, with the observer of its operators."""
        counter, observer = flop_counter({**MAPPING, **self.attention.mapping}), Observer()
        self._counters[phase].append(counter)
        self._recompute.append(RecomputeCounter(counter))
        with counter, CountedOnly(counter), self._recompute[-1] if phase == "backward" else nullcontext(), observer:
            yield observer
        self._names[phase] |= observer.names

    def readings(self, fused: Sequence[str]) -> dict[str, Reading]:
        """Matmul FLOPs by phase. ``fused``: attention kernels that the step runs by default."""
        return {f"flops.{phase}.matmul": self._reading(phase, fused if phase != "optimizer" else ()) for phase in self._counters}

    @property
    def recompute(self) -> int | None:
        """FLOPs of the operators that the backwards recomputed; ``None`` if they recomputed nothing."""
        return recompute_flops(self._recompute)

    def _reading(self, phase: str, fused: Sequence[str]) -> Reading:
        because = uncounted(self._names[phase] - self.attention.names)
        if because:
            return Reading(None, INSTRUMENT, because)
        return _measured(sum(counter.get_total_flops() for counter in self._counters[phase]), fused)


def _measured(value: int, fused: Sequence[str]) -> Reading:
    if not fused:
        return Reading(value, INSTRUMENT)
    kernels = ", ".join(name.split(".")[1] for name in fused)
    because = f"torch's counter does not see {kernels}: the same matmuls were run one by one"
    off = " and without the fast path (torch.backends.mha.set_fastpath_enabled(False))" if fast_path(fused) else ""
    return Reading(value, f"{INSTRUMENT} on the math attention backend{off}", because, proxy=True)


def uncounted(names: Iterable[str]) -> str:
    """Why the counter misses FLOPs of a run of these operators; empty if it misses none."""
    escaping = sorted({name for name in names if _escapes(name)})
    return f"the counter gives 0 for {', '.join(escaping)}, which multiplies matrices" if escaping else ""


def _escapes(name: str) -> bool:
    """Whether an operator may multiply matrices that the counter does not count."""
    namespace, _, qualified = name.partition(".")
    operator = qualified.partition(".")[0]
    if f"{namespace}.{operator}" in _COUNTED:
        return False
    if namespace not in ("aten", "prims"):
        return True
    return bool(_MATMUL_LIKE.search(operator)) and not _NOT_MATMUL.search(operator)
