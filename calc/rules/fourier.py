"""Fourier transforms.

The operations of a fast transform depend on the plan that a library makes for its length, so they are counted by the usual benchmark
formula: each of ⌈log₂ N⌉ stages takes 5 operations per element of a line of N.
"""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, Term, View, rule, term
from calc.rules.shapes import each

STAGES = "Frigo & Johnson, The Design and Implementation of FFTW3, section IV: 5 N log₂ N real operations, the logarithm rounded up"
BY_AXES = "several axes one after another; a factor of normalization is one product per result element"


def _transforms(op: Operator, lines: View) -> tuple[Term, ...]:
    """Transforms along every axis of complex ``lines``, and their normalization."""
    stages = op.value("stages")
    normalized = (each("scale y", op.out.shape),) if op.value("normalization") != 0 else ()
    return (*(term(f"5 N ⌈log₂ N⌉ per line, axis {i + 1} of {len(stages)}", 5, *lines.shape, n) for i, n in enumerate(stages)), *normalized)


@rule(
    "aten.fft_fftfreq.default",
    "aten.fft_rfftfreq.default",
    statement="f[k] = k/(n d), for the frequencies that a transform of n samples has",
    source="torch's kernel: positions, multiplied by 1/(n d)",
    shapes="→ f (n), or (⌊n/2⌋ + 1) of a real signal.",
)
def frequencies(op: Operator) -> Cost:
    return Cost(elementwise=(each("k · 1/(n d)", op.out.shape),), reads=())


@rule(
    "aten._fft_c2c.default",
    statement="y[k] = Σₙ x[n] exp(∓2πi k n/N), along each axis",
    source=STAGES,
    convention=BY_AXES,
    shapes="x (*), complex → y (*), complex.",
)
def complex_to_complex(op: Operator) -> Cost:
    return Cost(elementwise=_transforms(op, op.out))


@rule(
    "aten._fft_r2c.default",
    statement="y[k] = Σₙ x[n] exp(−2πi k n/N), along each axis",
    source=STAGES,
    convention="frequencies that are returned are counted: ⌊N/2⌋ + 1 of N on the last axis, or all if all are requested; " + BY_AXES,
    shapes="x (*, N), real → y (*, ⌊N/2⌋ + 1) or (*, N), complex.",
)
def real_to_complex(op: Operator) -> Cost:
    return Cost(elementwise=_transforms(op, op.out))


@rule(
    "aten._fft_c2r.default",
    statement="x[n] = Σₖ y[k] exp(2πi k n/N), along each axis, where y[N − k] is the conjugate of y[k]",
    source=STAGES,
    convention="frequencies that are given are counted: ⌊N/2⌋ + 1 of N on the last axis; " + BY_AXES,
    shapes="y (*, ⌊N/2⌋ + 1), complex → x (*, N), real.",
)
def complex_to_real(op: Operator) -> Cost:
    return Cost(elementwise=_transforms(op, op.tensor("self")))
