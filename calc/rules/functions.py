"""Rarely used pointwise functions: rows of the same kind of table as ``calc.rules.pointwise``."""

from __future__ import annotations

from calc.rules.pointwise import Pointwise, register
from calc.rules.registry import DECOMPOSITION, FUNCTIONAL, REFS, Cost, Operator, View, free, rule
from calc.rules.shapes import each, whole

TABLE = (
    Pointwise("asinh.default", "y = arsinh x", ("arsinh x",), REFS + "asinh"),
    Pointwise("acosh.default", "y = arcosh x", ("arcosh x",), REFS + "acosh"),
    Pointwise("atanh.default", "y = artanh x", ("artanh x",), REFS + "atanh"),
    Pointwise("erfinv.default", "y = erf⁻¹ x", ("erf⁻¹ x",), REFS + "erfinv"),
    Pointwise("lgamma.default", "y = log Γ(x)", ("log Γ(x)",), REFS + "lgamma"),
    Pointwise("digamma.default", "y = Γ'(x)/Γ(x)", ("Γ'(x)/Γ(x)",), REFS + "digamma"),
    Pointwise("hypot.default", "y = √(a² + b²)", ("√(a² + b²)",), REFS + "hypot"),
    Pointwise("frac.default", "y = x − its whole part", ("x − trunc x",), REFS + "frac"),
    Pointwise("sinc.default", "y = sin(πx)/πx", ("π x", "sin(π x)", "sin(π x)/π x"), REFS + "sinc"),
    Pointwise("deg2rad.default", "y = π/180 · x", ("π/180 · x",), REFS + "deg2rad"),
    Pointwise("rad2deg.default", "y = 180/π · x", ("180/π · x",), REFS + "rad2deg"),
    Pointwise("logit.default", "y = log(x/(1 − x))", ("1 − x", "x/(1 − x)", "log(x/(1 − x))"), REFS + "special.logit"),
    Pointwise("logit_backward.default", "dx = dy/(x (1 − x))", ("1 − x", "x (1 − x)", "dy/(x (1 − x))"), DECOMPOSITION + "logit_backward"),
    Pointwise(
        "logaddexp.default",
        "y = log(exp a + exp b)",
        ("|a|, to find infinities", "a ≠ ∞ and a is a number", "a − b", "exp(−|a − b|)", "log(1 + …)", "max(a, b) + log(…)"),
        REFS + "logaddexp",
    ),
    Pointwise("special_entr.default", "y = −x log x", ("−x", "log x", "−x log x"), REFS + "special.entr"),
    Pointwise("copysign.Tensor", "y = |a| with b's sign", ("|a|", "−|a|", "|a|, a second time"), REFS + "copysign"),
    Pointwise("_prelu_kernel.default", "y = x, or w · x where x ≤ 0", ("w · x",), DECOMPOSITION + "_prelu_kernel"),
    Pointwise(
        "_prelu_kernel_backward.default",
        "dx = dy, or w dy where x ≤ 0; dw = x dy where x ≤ 0",
        ("w dy", "x dy"),
        DECOMPOSITION + "_prelu_kernel_backward",
    ),
    Pointwise("hardshrink.default", "y = x, or 0 where |x| ≤ λ", ("|x|",), FUNCTIONAL + "hardshrink"),
    Pointwise(
        "softshrink.default",
        "y = x − λ sign x, or 0 where |x| ≤ λ",
        ("|x|", "λ sign x", "x − λ sign x", "0 · x, which preserves NaN"),
        FUNCTIONAL + "softshrink",
    ),
    Pointwise("rrelu_with_noise_backward.default", "dx = r dy", ("r dy",), DECOMPOSITION + "rrelu_with_noise_backward"),
    Pointwise("i0.default", "y = I₀(x), Bessel's", ("I₀(x)",), REFS + "i0"),
    Pointwise("special_i1.default", "y = I₁(x), Bessel's", ("I₁(x)",), REFS + "special.i1"),
    Pointwise("special_erfcx.default", "y = exp(x²) erfc x", ("erfcx x",), REFS + "special.erfcx"),
    Pointwise(
        "special_log_ndtr.default",
        "y = log Φ(x)",
        (
            "t = x/√2",
            "−t",
            "erfcx(−t)",
            "erfcx(−t)/2",
            "log(…)",
            "t²",
            "log(…) − t²",
            "erfc t",
            "−erfc t",
            "−(erfc t)/2",
            "log(1 − (erfc t)/2)",
        ),
        REFS + "special.log_ndtr",
    ),
)

for _row in TABLE:
    register(_row)

free(
    "aten.softshrink_backward.default",
    "aten.hardshrink_backward.default",
    "aten.threshold.default",
    "aten.threshold_.default",
    "aten.nan_to_num.default",
    "aten.heaviside.default",
    "aten.fmax.default",
    "aten.fmin.default",
    because="compares and selects elements: no arithmetic",
    moves=True,
)
free("aten.complex.default", because="puts two real tensors side by side: no arithmetic", moves=True)
free("aten.ceil_.default", "aten.floor_.default", because="rounds, which is a cast: no arithmetic", moves=True)


@rule(
    "aten.special_xlog1py.default",
    statement="y = a log(1 + b), or 0 where a = 0",
    reference=REFS + "special.xlog1py",
    shapes="a and b broadcast to (*) → y (*).",
)
def xlog1py(op: Operator) -> Cost:
    return Cost(elementwise=(each("log(1 + b)", op.shape("other") if op.has("other") else ()), each("a log(1 + b)", op.out.shape)))


@rule("aten.angle.default", statement="y = arg x", source="one operation per element", shapes="x (*) → y (*).")
def angle(op: Operator) -> Cost:
    return Cost(elementwise=(each("arg x", op.out.shape),))


@rule("aten.ldexp.Tensor", statement="y = a · 2ᵇ", reference=DECOMPOSITION + "ldexp", shapes="a and b broadcast to (*) → y (*).")
def ldexp(op: Operator) -> Cost:
    exponent = op.value("other")
    return Cost(elementwise=(each("2ᵇ", exponent.shape if isinstance(exponent, View) else ()), each("a · 2ᵇ", op.out.shape)))


@rule(
    "aten.rrelu_with_noise.default",
    statement="y = x, or r x where x ≤ 0, r random",
    source="one product per element; random numbers and their comparison are 0",
    convention="the random numbers are written, and saved for backward",
    shapes="x (*) → y (*), r (*).",
)
def rrelu(op: Operator) -> Cost:
    return Cost(elementwise=(each("r x", op.out.shape),), reads=whole(op.tensor("self")), writes=whole(op.out, op.tensor("noise")))
