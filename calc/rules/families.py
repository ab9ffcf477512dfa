"""What every operator of a training step costs: one family per file, registered with ``calc.rules.registry``.

Importing this module fills ``calc.rules.registry.REGISTRY``. Rules know shapes, never models, and need no torch. Their elementwise counts
are transcribed by hand from torch's reference decompositions, addend by addend, so a measurement that runs those decompositions is an
independent check.
"""

from calc.rules import (
    attention,
    comparisons,
    convolution,
    copies,
    creation,
    embedding,
    fastpath,
    fourier,
    functions,
    indexing,
    linear_algebra,
    lists,
    loss,
    margins,
    matmul,
    normalization,
    optimizer,
    pointwise,
    pooling,
    reduction,
    reparametrization,
    resampling,
    softmax,
    views,
)

__all__ = [
    "attention",
    "comparisons",
    "convolution",
    "copies",
    "creation",
    "embedding",
    "fastpath",
    "fourier",
    "functions",
    "indexing",
    "linear_algebra",
    "lists",
    "loss",
    "margins",
    "matmul",
    "normalization",
    "optimizer",
    "pointwise",
    "pooling",
    "reduction",
    "reparametrization",
    "resampling",
    "softmax",
    "views",
]
