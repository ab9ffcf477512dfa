"""Calls of matrix multiplications and convolutions."""

from __future__ import annotations

from typing import Any

import torch

from tests.rules.calls import add, call, r, spread
from tests.rules.operators import Case

# -- matrix multiplications ----------

add("mm.default", lambda: call(r(2, 3), r(3, 5)), lambda: call(r(3, 2).t(), r(1, 5).expand(3, 5)))
add("bmm.default", lambda: call(r(2, 3, 5), r(2, 5, 7)), lambda: call(spread(3, 5), r(2, 5, 7)))
add(
    "addmm.default",
    lambda: call(r(5), r(2, 3), r(3, 5)),
    lambda: call(r(5), r(2, 3), r(3, 5), beta=0.5, alpha=2),
    lambda: call(r(2, 5), r(2, 3), r(3, 5), beta=0),
)
add(
    "baddbmm.default",
    lambda: call(r(7, 2, 5), r(7, 2, 3), r(7, 3, 5)),
    lambda: call(r(2, 5), r(7, 2, 3), r(7, 3, 5), beta=0.5, alpha=2),
    lambda: call(r(7, 2, 5), r(7, 2, 3), r(7, 3, 5), beta=0),
)
add("mv.default", lambda: Case((r(3, 5), r(5)), matmul=2 * 3 * 5))
add("dot.default", lambda: Case((r(5), r(5)), matmul=2 * 5))


def _grouped() -> Case:
    """11 rows of 16 columns, in two groups, each with a 16 x 24 matrix: 2*11*16*24 = 8448."""
    ends = torch.tensor([4, 11], dtype=torch.int32)
    return Case((r(11, 16, dtype=torch.bfloat16), r(2, 16, 24, dtype=torch.bfloat16), ends), matmul=2 * 11 * 16 * 24)


def _grouped_gradient() -> Case:
    """The gradient of two 16 x 24 matrices from 8 rows in two groups: 2*16*8*24 = 6144."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    return Case((r(8, 16, dtype=torch.bfloat16).t(), r(8, 24, dtype=torch.bfloat16), ends), matmul=2 * 16 * 8 * 24)


def _grouped_columns() -> Case:
    """Two 24 x 16 matrices, each by its group of 8 columns of 16: 2*24*16*8 = 6144."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    return Case((r(2, 24, 16, dtype=torch.bfloat16), r(16, 8, dtype=torch.bfloat16), ends), matmul=2 * 24 * 16 * 8)


add("_grouped_mm.default", _grouped, _grouped_gradient, _grouped_columns)



def fp8(*shape: int) -> torch.Tensor:
    return r(*shape).to(torch.float8_e4m3fn)


def _scaled(**options: Any) -> Case:
    return Case((fp8(3, 5), fp8(7, 5).t(), r(), r()), options, matmul=2 * 3 * 5 * 7)


add(
    "_scaled_mm.default",
    lambda: _scaled(out_dtype=torch.bfloat16),
    lambda: _scaled(bias=r(7), out_dtype=torch.float32),
    lambda: _scaled(scale_result=r()),
    lambda: _scaled(scale_result=r(), out_dtype=torch.bfloat16),
    lambda: Case((fp8(3, 5), fp8(5, 7), r(3, 1), r(1, 7)), {"bias": r(7), "out_dtype": torch.bfloat16}, matmul=2 * 3 * 5 * 7),
)
add(
    "_scaled_mm_v2.default",
    lambda: Case((fp8(3, 5), fp8(5, 7), [r()], [0], [0], [r()], [0], [0], r(7), torch.bfloat16), matmul=2 * 3 * 5 * 7),
    lambda: Case((fp8(3, 5), fp8(5, 7), [r(3, 1)], [1], [0], [r(1, 7)], [1], [0], None, torch.bfloat16), matmul=2 * 3 * 5 * 7),
)

# -- convolutions: a (2, 6, 7, 11) image, 10 kernels of 3 x 5, padding 1 x 2: the result is (2, 10, 7, 11) ----------

add(
    "convolution.default",
    lambda: call(r(2, 6, 7, 11), r(10, 6, 3, 5), r(10), [1, 1], [1, 2], [1, 1], False, [0, 0], 1),
    lambda: call(r(2, 6, 7, 11), r(10, 3, 3, 5), None, [1, 1], [1, 2], [1, 1], False, [0, 0], 2),
    lambda: call(r(2, 6, 7), r(6, 5, 3), r(10), [2], [0], [1], True, [0], 2),
)


def _convolution_backward(mask: list[bool], products: int, groups: int = 1) -> Case:
    """Each product is 2 * batch 2 * positions 7*11 * kernel elements 10*(6/groups)*3*5."""
    weight = r(10, 6 // groups, 3, 5)
    args = (r(2, 10, 7, 11), r(2, 6, 7, 11), weight, [10], [1, 1], [1, 2], [1, 1], False, [0, 0], groups, mask)
    return Case(args, matmul=products * 2 * 2 * 7 * 11 * weight.numel())


add(
    "convolution_backward.default",
    lambda: _convolution_backward([True, True, True], 2),
    lambda: _convolution_backward([False, True, True], 1),
    lambda: _convolution_backward([True, False, False], 1, groups=2),
    # Transposed: kernel elements 6*5*3 applied at the 7 positions of the input.
    lambda: Case(
        (r(2, 10, 15), r(2, 6, 7), r(6, 5, 3), [10], [2], [0], [1], True, [0], 2, [True, True, True]), matmul=2 * 2 * 2 * 7 * 6 * 5 * 3
    ),
)
