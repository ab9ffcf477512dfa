"""Eight operations on one small matrix: which return views, and which allocate."""

from __future__ import annotations

from calc.mathematics.strides.expression import StrideStep, carried_out, read
from calc.mathematics.strides.operations import StridedTensor, tensor

SHAPE = (4, 4)
# What is asked of each: an operation, where the layout allows it and where it does not.
CHAINS = (
    "x.view(2, 8)",
    "x.transpose(0, 1)",
    "x.transpose(0, 1).view(16)",
    "x.reshape(16)",
    "x.transpose(0, 1).reshape(16)",
    "x[1:3]",
    "x.unsqueeze(0).expand(3, 4, 4)",
    "x.contiguous()",
    "x.transpose(0, 1).contiguous()",
    "x.to(bf16)",
    "x + 1",
)


def demonstration(dtype: str = "fp32") -> tuple[StridedTensor, tuple[tuple[str, tuple[StrideStep, ...]], ...]]:
    """The matrix, and each chain carried out on it."""
    x = tensor(SHAPE, dtype)
    return x, tuple((text, carried_out(x, read(text))) for text in CHAINS)
