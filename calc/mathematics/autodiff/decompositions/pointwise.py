"""Element by element: every function as a scalar expression of its arguments, which are broadcast."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.autodiff import scalar
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.scalar import Sigmoid, Softplus, larger, smaller, truth, where
from calc.mathematics.autodiff.sizes import INFINITY
from calc.mathematics.autodiff.views import NodeView

x, y, z = argument(0), argument(1), argument(2)
Expression = Any  # a scalar expression, or a function from the call to one


def define(names: str, expr: Expression, *tensors: str, integral: bool = False) -> None:
    """Register operators of ``tensors`` with that expression in x, y, z; a function of the call where further arguments count."""

    @decomposition(*names.split())
    def result(call: OperatorCall) -> NodeView:
        result_expr = expr(call) if callable(expr) and not isinstance(expr, sp.Basic) else expr
        about: dict[str, Any] = (
            {"integral": True} if integral or call.dtype() in ("bool", "int64", "int32", "uint8") else {"integral": False}
        )
        return call.pointwise(result_expr, [call.tensor(t) for t in tensors or ("self",)], **about)


# -- arithmetic ------------------------------------------------------------------------------------------------------------

define("add", lambda c: x + c.number("alpha", 1) * y, "self", "other")
define("sub", lambda c: x - c.number("alpha", 1) * y, "self", "other")
define("rsub", lambda c: y - c.number("alpha", 1) * x, "self", "other")
define("mul", x * y, "self", "other")
define("addcmul", lambda c: x + c.number("value", 1) * y * z, "self", "tensor1", "tensor2")
define("addcdiv", lambda c: x + c.number("value", 1) * y / z, "self", "tensor1", "tensor2")
define("lerp.Scalar", lambda c: x + c.number("weight") * (y - x), "self", "end")
define("lerp.Tensor", x + z * (y - x), "self", "end", "weight")
define("neg negative", -x)
define("positive clone alias lift lift_fresh contiguous real conj _conj resolve_conj resolve_neg", x)
define("reciprocal", 1 / x)
define("square", x**2)
define("fmod", x - scalar.Truncate(x / y) * y, "self", "other")
define("remainder", x - scalar.Floor(x / y) * y, "self", "other")
define("floor_divide __floordiv__", scalar.Floor(x / y), "self", "other")


@decomposition("_to_copy", "to")
def cast(call: OperatorCall) -> NodeView:
    """The same number. Equations know one kind of real numbers; a cast to whole numbers or truth values is a function."""
    view, dtype = call.tensor("self"), call.dtype()
    if dtype == "bool" and not call.equations[view.node].integral:
        return call.pointwise(truth(sp.Ne(x, 0)), (view,), integral=True)
    if dtype.startswith(("int", "uint")) and not call.equations[view.node].integral:
        return call.pointwise(scalar.Truncate(x), (view,), integral=True)
    return view


@decomposition("div", "true_divide")
def div(call: OperatorCall) -> NodeView:
    rounded = {None: x / y, "floor": scalar.Floor(x / y), "trunc": scalar.Truncate(x / y)}[call.raw("rounding_mode")]
    return call.pointwise(rounded, (call.tensor("self"), call.tensor("other")))


@decomposition("pow")
def power(call: OperatorCall) -> NodeView:
    """A Python number stays one: x² instead of x to the power of a tensor."""
    base, exponent = call.raw("self"), call.raw("exponent")
    if not hasattr(exponent, "value"):
        return call.pointwise(x ** call.number("exponent"), (call.tensor("self"),))
    if not hasattr(base, "value"):
        return call.pointwise(call.number("self") ** x, (call.tensor("exponent"),))
    return call.pointwise(x**y, (call.tensor("self"), call.tensor("exponent")))


# -- functions -------------------------------------------------------------------------------------------------------------

for _name in ("exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt"):
    define(_name if not _name.startswith("a") else f"{_name} arc{_name[1:]}", getattr(sp, _name)(x))
define("rsqrt", x ** sp.Rational(-1, 2))
define("exp2", 2**x)
define("expm1 special_expm1", sp.exp(x) - 1)
define("log2", sp.log(x) / sp.log(2))
define("log10", sp.log(x) / sp.log(10))
define("log1p special_log1p", sp.log(1 + x))
define("erf special_erf", sp.erf(x))
define("erfc special_erfc", 1 - sp.erf(x))
define("lgamma", sp.loggamma(x))
define("abs absolute", sp.Abs(x))
define("sigmoid special_expit", Sigmoid(x))
define("logit", sp.log(x / (1 - x)))
define("log_sigmoid_forward log_sigmoid", -Softplus(-x))
define("logaddexp", larger(x, y) + sp.log(1 + sp.exp(-sp.Abs(x - y))), "self", "other")
define("atan2 arctan2", sp.atan2(x, y), "self", "other")
define("hypot", sp.sqrt(x**2 + y**2), "self", "other")
define("sinc", where(sp.Eq(x, 0), 1, sp.sin(sp.pi * x) / (sp.pi * x)))
define("xlogy special_xlogy", where(sp.Eq(x, 0), 0, x * sp.log(y)), "self", "other")
define("special_xlog1py", where(sp.Eq(x, 0), 0, x * sp.log(1 + y)), "self", "other")
define("deg2rad", x * sp.pi / 180)
define("rad2deg", x * 180 / sp.pi)
define("copysign", sp.Abs(x) * where(y < 0, -1, 1), "self", "other")
define("floor", scalar.Floor(x))
define("ceil", scalar.Ceiling(x))
define("round", scalar.Round(x))
define("trunc fix", scalar.Truncate(x))
define("frac", x - scalar.Truncate(x))
define("sign sgn", scalar.Sign(x))
define("nan_to_num", x)

# -- activations -----------------------------------------------------------------------------------------------------------

_TANH_GELU = sp.sqrt(2 / sp.pi) * (x + sp.Float(0.044715) * x**3)
define("relu", where(x > 0, x, 0))
define("relu6", where(x <= 0, 0, where(x >= 6, 6, x)))
define("silu", x * Sigmoid(x))
define("mish", x * sp.tanh(Softplus(x)))
define("gelu", lambda c: x / 2 * (1 + (sp.tanh(_TANH_GELU) if c.raw("approximate", "none") == "tanh" else sp.erf(x / sp.sqrt(2)))))
define("leaky_relu", lambda c: where(x > 0, x, c.number("negative_slope", 0.01) * x))
define("prelu _prelu_kernel", where(x > 0, x, y * x), "self", "weight")
define("hardsigmoid", where(x <= -3, 0, where(x >= 3, 1, x / 6 + sp.Rational(1, 2))))
define("hardswish", where(x <= -3, 0, where(x >= 3, x, x * (x + 3) / 6)))
define("hardshrink", lambda c: where(sp.Abs(x) <= c.number("lambd", 0.5), 0, x))
define("threshold", lambda c: where(x > c.number("threshold"), x, c.number("value")))
define("softsign", x / (1 + sp.Abs(x)))


@decomposition("hardtanh")
def hardtanh(call: OperatorCall) -> NodeView:
    low, high = call.number("min_val", -1), call.number("max_val", 1)
    return call.pointwise(where(x <= low, low, where(x >= high, high, x)), (call.tensor("self"),))


@decomposition("softshrink")
def softshrink(call: OperatorCall) -> NodeView:
    limit = call.number("lambd", 0.5)
    return call.pointwise(where(x > limit, x - limit, where(x < -limit, x + limit, 0)), (call.tensor("self"),))


@decomposition("elu")
def elu(call: OperatorCall) -> NodeView:
    """s (x where x > 0, else α (exp(c x) - 1)); torch writes SELU and CELU as this too."""
    alpha, scale, inner = call.number("alpha", 1), call.number("scale", 1), call.number("input_scale", 1)
    return call.pointwise(where(x > 0, scale * x, scale * alpha * (sp.exp(inner * x) - 1)), (call.tensor("self"),))


@decomposition("celu")
def celu(call: OperatorCall) -> NodeView:
    alpha = call.number("alpha", 1)
    return call.pointwise(where(x > 0, x, alpha * (sp.exp(x / alpha) - 1)), (call.tensor("self"),))


@decomposition("selu")
def selu(call: OperatorCall) -> NodeView:
    """Klambauer et al. 2017, with their two constants."""
    alpha, scale = sp.Float(1.6732632423543772848170429916717), sp.Float(1.0507009873554804934193349852946)
    return call.pointwise(where(x > 0, scale * x, scale * alpha * (sp.exp(x) - 1)), (call.tensor("self"),))


@decomposition("softplus")
def softplus(call: OperatorCall) -> NodeView:
    """log(1 + exp(β x))/β, and x itself beyond the threshold."""
    beta, threshold = call.number("beta", 1), call.number("threshold", 20)
    return call.pointwise(where(beta * x > threshold, x, Softplus(beta * x) / beta), (call.tensor("self"),))


@decomposition("glu")
def glu(call: OperatorCall) -> NodeView:
    """The first half times σ of the second."""
    from calc.mathematics.autodiff.decompositions.shapes import narrowed

    view = call.tensor("self")
    axis = call.axis(view)
    half = call.shape()[axis]
    first, second = narrowed(call, view, axis, sp.Integer(0), half), narrowed(call, view, axis, half, half)
    return call.pointwise(x * Sigmoid(y), (first, second))


# -- choosing --------------------------------------------------------------------------------------------------------------

define("maximum fmax max.other", larger(x, y), "self", "other")
define("minimum fmin min.other", smaller(x, y), "self", "other")
define("where", where(sp.Ne(x, 0), y, z), "condition", "self", "other")
define("masked_fill", where(sp.Ne(y, 0), z, x), "self", "mask", "value")


@decomposition("clamp", "clip", "clamp_min", "clamp_max")
def clamp(call: OperatorCall) -> NodeView:
    """The bounds themselves pass the gradient on, as in torch."""
    expr, views = x, [call.tensor("self")]
    for bound in ("min", "max"):
        if call.has(bound):
            views.append(call.tensor(bound))
            limit = argument(len(views) - 1)
            expr = where(x < limit if bound == "min" else x > limit, limit, expr)
    return call.pointwise(expr, views)


@decomposition("copy")
def copy(call: OperatorCall) -> NodeView:
    """The source, expanded to the target."""
    return _over(call, "src")


@decomposition("fill")
def fill(call: OperatorCall) -> NodeView:
    return _over(call, "value")


@decomposition("zero", "zeros_like")
def zero(call: OperatorCall) -> NodeView:
    return _constant(call, sp.Integer(0))


def _over(call: OperatorCall, name: str) -> NodeView:
    """A tensor broadcast over the axes of ``self``."""
    from calc.mathematics.autodiff.decompositions.shapes import expanded

    return expanded(call.tensor(name), call.shape())


def _constant(call: OperatorCall, value: sp.Expr) -> NodeView:
    from calc.mathematics.autodiff.decompositions.creation import constant

    return constant(call, value, call.shape())


# -- comparisons and integers ----------------------------------------------------------------------------------------------

for _name, _relation in (("eq", sp.Eq), ("ne", sp.Ne), ("lt", sp.Lt), ("le", sp.Le), ("gt", sp.Gt), ("ge", sp.Ge)):
    define(f"{_name} __{_name}__", truth(_relation(x, y)), "self", "other", integral=True)
_TRUE_X, _TRUE_Y = truth(sp.Ne(x, 0)), truth(sp.Ne(y, 0))
define("logical_not", truth(sp.Eq(x, 0)), integral=True)
define("logical_and", _TRUE_X * _TRUE_Y, "self", "other", integral=True)
define("logical_or", 1 - (1 - _TRUE_X) * (1 - _TRUE_Y), "self", "other", integral=True)
define("logical_xor", truth(sp.Ne(_TRUE_X, _TRUE_Y)), "self", "other", integral=True)
define("isnan", truth(sp.Ne(x, x)), integral=True)
define("isfinite", truth(sp.Abs(x) < INFINITY), integral=True)
define("isinf", truth(sp.Eq(sp.Abs(x), INFINITY)), integral=True)


def _bits(names: str, of_truths: sp.Expr, *tensors: str) -> None:
    @decomposition(*names.split())
    def result(call: OperatorCall) -> NodeView:
        if call.dtype() != "bool":
            raise call.refusal("it works on the bits of integers")
        return call.pointwise(of_truths, [call.tensor(t) for t in tensors], integral=True)


_bits("bitwise_not", 1 - x, "self")
_bits("bitwise_and __and__", x * y, "self", "other")
_bits("bitwise_or __or__", 1 - (1 - x) * (1 - y), "self", "other")
_bits("bitwise_xor __xor__", truth(sp.Ne(x, y)), "self", "other")
