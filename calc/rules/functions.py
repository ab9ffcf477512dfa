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
    Pointwise(
        "logaddexp2.default",
        "y = log₂(2ᵃ + 2ᵇ)",
        ("min(a, b) − max(a, b)", "2^(min − max)", "log(1 + …)", "1/log 2 · log(1 + …)", "max(a, b) + …"),
        REFS + "logaddexp2",
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
    Pointwise("special_i0e.default", "y = exp(−|x|) I₀(x)", ("exp(−|x|) I₀(x)",), REFS + "special.i0e"),
    Pointwise("special_i1e.default", "y = exp(−|x|) I₁(x)", ("exp(−|x|) I₁(x)",), REFS + "special.i1e"),
    Pointwise("special_bessel_j0.default", "y = J₀(x), Bessel's", ("J₀(x)",), REFS + "special.bessel_j0"),
    Pointwise("special_bessel_j1.default", "y = J₁(x), Bessel's", ("J₁(x)",), REFS + "special.bessel_j1"),
    Pointwise("special_spherical_bessel_j0.default", "y = sin(x)/x, Bessel's", ("sin(x)/x",), REFS + "special.spherical_bessel_j0"),
    Pointwise("special_ndtri.default", "y = Φ⁻¹(x)", ("Φ⁻¹(x)",), REFS + "special.ndtri"),
    Pointwise("special_zeta.default", "y = ζ(a, b), Hurwitz's", ("ζ(a, b)",), REFS + "special.zeta"),
    Pointwise("igamma.default", "y = P(a, b), the regularized incomplete gamma function", ("P(a, b)",), REFS + "igamma"),
    Pointwise("igammac.default", "y = 1 − P(a, b), of the incomplete gamma function P", ("1 − P(a, b)",), REFS + "igammac"),
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
free(
    "aten.ceil_.default",
    "aten.floor_.default",
    "aten.round.decimals",
    "aten.frexp.Tensor",
    "aten.nextafter.default",
    because="rounds or reads the parts of a number, which is a cast: no arithmetic",
    moves=True,
)


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


@rule(
    "aten.polygamma.default",
    statement="y = the n-th derivative of Γ'(x)/Γ(x)",
    source="one operation per element",
    shapes="x (*) → y (*).",
)
def polygamma(op: Operator) -> Cost:
    return Cost(elementwise=(each("n-th derivative of Γ'(x)/Γ(x)", op.out.shape),))


@rule(
    "aten._standard_gamma_grad.default",
    "aten._dirichlet_grad.default",
    statement="∂y/∂a of a sample y of the gamma or Dirichlet distribution with parameter a",
    source="one operation per element",
    shapes="y, a and, of Dirichlet's, their total (*) → ∂y/∂a (*).",
)
def gradient_of_sample(op: Operator) -> Cost:
    return Cost(elementwise=(each("∂y/∂a", op.out.shape),))


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
