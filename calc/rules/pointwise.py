"""Pointwise operators: the same few operations for every element of the result.

Plain ones are rows of a table: operators, definition, and one named addend for each arithmetic operation that the reference
makes per element. Those whose reference branches on an argument have a function of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.rules.registry import DECOMPOSITION, FUNCTIONAL, REFS, Cost, Operator, View, rule
from calc.rules.shapes import each, given_number


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A row: ``ops`` are overloads without "aten.", ``addends`` the operations made for each result element."""

    ops: str
    statement: str
    addends: tuple[str, ...]
    reference: str


SIGMOID = ("−x", "exp(−x)", "1 + exp(−x)", "σ(x) = 1/(1 + exp(−x))")

TABLE = (
    Pointwise("mul.Tensor mul.Scalar mul_.Tensor mul_.Scalar", "y = a · b", ("a · b",), REFS + "mul"),
    Pointwise("div.Tensor div.Scalar div_.Tensor div_.Scalar", "y = a / b", ("a / b",), REFS + "div"),
    Pointwise("remainder.Tensor remainder.Scalar remainder_.Scalar", "y = a mod b, of b's sign", ("a mod b",), REFS + "remainder"),
    Pointwise("fmod.Tensor fmod.Scalar", "y = a mod b, of a's sign", ("a mod b",), REFS + "fmod"),
    Pointwise("atan2.default", "y = atan2(a, b)", ("atan2(a, b)",), REFS + "atan2"),
    Pointwise("pow.Tensor_Tensor pow.Scalar", "y = aᵇ", ("aᵇ",), REFS + "pow"),
    Pointwise("abs.default abs_.default", "y = |x|", ("|x|",), REFS + "abs"),
    Pointwise("neg.default neg_.default", "y = −x", ("−x",), REFS + "neg"),
    Pointwise("reciprocal.default reciprocal_.default", "y = 1/x", ("1/x",), REFS + "reciprocal"),
    Pointwise("exp.default exp_.default", "y = exp x", ("exp x",), REFS + "exp"),
    Pointwise("exp2.default", "y = 2ˣ", ("2ˣ",), REFS + "exp2"),
    Pointwise("expm1.default", "y = exp x − 1", ("exp x − 1",), REFS + "expm1"),
    Pointwise("log.default log_.default", "y = log x", ("log x",), REFS + "log"),
    Pointwise("log2.default", "y = log₂ x", ("log₂ x",), REFS + "log2"),
    Pointwise("log10.default", "y = log₁₀ x", ("log₁₀ x",), REFS + "log10"),
    Pointwise("log1p.default", "y = log(1 + x)", ("log(1 + x)",), REFS + "log1p"),
    Pointwise("sqrt.default sqrt_.default", "y = √x", ("√x",), REFS + "sqrt"),
    Pointwise("rsqrt.default rsqrt_.default", "y = 1/√x", ("1/√x",), REFS + "rsqrt"),
    Pointwise("sin.default sin_.default", "y = sin x", ("sin x",), REFS + "sin"),
    Pointwise("cos.default cos_.default", "y = cos x", ("cos x",), REFS + "cos"),
    Pointwise("tan.default", "y = tan x", ("tan x",), REFS + "tan"),
    Pointwise("asin.default", "y = arcsin x", ("arcsin x",), REFS + "asin"),
    Pointwise("acos.default", "y = arccos x", ("arccos x",), REFS + "acos"),
    Pointwise("atan.default", "y = arctan x", ("arctan x",), REFS + "atan"),
    Pointwise("sinh.default", "y = sinh x", ("sinh x",), REFS + "sinh"),
    Pointwise("cosh.default", "y = cosh x", ("cosh x",), REFS + "cosh"),
    Pointwise("tanh.default tanh_.default", "y = tanh x", ("tanh x",), REFS + "tanh"),
    Pointwise("erf.default", "y = erf x", ("erf x",), REFS + "erf"),
    Pointwise("erfc.default", "y = 1 − erf x", ("1 − erf x",), REFS + "erfc"),
    Pointwise("polar.default", "y = r cos φ + i r sin φ", ("cos φ", "r cos φ", "sin φ", "r sin φ"), REFS + "_conversions.polar"),
    Pointwise("sigmoid.default sigmoid_.default", "y = 1/(1 + exp(−x))", SIGMOID, REFS + "sigmoid"),
    Pointwise("silu.default silu_.default", "y = x σ(x)", (*SIGMOID, "x σ(x)"), DECOMPOSITION + "silu"),
    Pointwise(
        "mish.default mish_.default",
        "y = x tanh(log(1 + exp x))",
        ("exp x", "s = log(1 + exp x)", "tanh s", "x tanh s"),
        FUNCTIONAL + "mish",
    ),
    Pointwise(
        "hardswish.default hardswish_.default",
        "y = x clip(x + 3, 0, 6)/6",
        ("x + 3", "x clip(…)", "x clip(…)/6"),
        DECOMPOSITION + "hardswish",
    ),
    Pointwise("hardsigmoid.default hardsigmoid_.default", "y = clip(x + 3, 0, 6)/6", ("x + 3", "clip(…)/6"), DECOMPOSITION + "hardsigmoid"),
    Pointwise("leaky_relu.default leaky_relu_.default", "y = x, or slope · x where x ≤ 0", ("slope · x",), FUNCTIONAL + "leaky_relu"),
    Pointwise(
        "elu.default elu_.default",
        "y = scale · x, or scale · α (exp(γ x) − 1) where x ≤ 0",
        ("scale · x", "γ x", "exp(γ x) − 1", "scale α (exp(γ x) − 1)"),
        FUNCTIONAL + "elu",
    ),
    Pointwise(
        "log_sigmoid_forward.default",
        "y = min(0, x) − log(1 + exp(−|x|))",
        ("|x|", "−|x|", "z = exp(−|x|)", "log(1 + z)", "min(0, x) − log(1 + z)"),
        DECOMPOSITION + "log_sigmoid_forward",
    ),
    Pointwise(
        "sigmoid_backward.default", "dx = dy · y (1 − y)", ("1 − y", "y (1 − y)", "dy · y (1 − y)"), DECOMPOSITION + "sigmoid_backward"
    ),
    Pointwise("tanh_backward.default", "dx = dy (1 − y²)", ("y²", "1 − y²", "dy (1 − y²)"), DECOMPOSITION + "tanh_backward"),
    Pointwise(
        "silu_backward.default",
        "dx = dy σ(x) (1 + x (1 − σ(x)))",
        (*SIGMOID, "dy σ(x)", "1 − σ(x)", "x (1 − σ(x))", "1 + x (1 − σ(x))", "dy σ(x) (1 + x (1 − σ(x)))"),
        DECOMPOSITION + "silu_backward",
    ),
    Pointwise(
        "mish_backward.default",
        "dx = dy (t + x σ(x) (1 − t²)), t = tanh(log(1 + exp x))",
        (
            "exp x",
            "s = log(1 + exp x)",
            "t = tanh s",
            *SIGMOID,
            "x σ(x)",
            "t²",
            "1 − t²",
            "x σ(x) (1 − t²)",
            "t + x σ(x) (1 − t²)",
            "dy (…)",
        ),
        DECOMPOSITION + "mish_backward",
    ),
    Pointwise(
        "hardswish_backward.default",
        "dx = dy (x/3 + 1/2), or 0, or dy outside ±3",
        ("x/3", "x/3 + 1/2", "dy (x/3 + 1/2)"),
        DECOMPOSITION + "hardswish_backward",
    ),
    Pointwise("hardsigmoid_backward.default", "dx = dy/6 within ±3", ("dy/6",), DECOMPOSITION + "hardsigmoid_backward"),
    Pointwise("leaky_relu_backward.default", "dx = dy, or slope · dy where x ≤ 0", ("slope · dy",), DECOMPOSITION + "leaky_relu_backward"),
    Pointwise(
        "softplus_backward.default",
        "dx = dy z/(z + 1), z = exp(β x)",
        ("β x", "z = exp(β x)", "β x, for the threshold", "dy z", "z + 1", "dy z/(z + 1)"),
        DECOMPOSITION + "softplus_backward",
    ),
    Pointwise(
        "native_dropout_backward.default",
        "dx = dy · mask · scale",
        ("mask · scale", "dy · mask · scale"),
        DECOMPOSITION + "native_dropout_backward",
    ),
)


def register(row: Pointwise) -> None:
    """Register the rule of a row."""

    @rule(
        *(f"aten.{op}" for op in row.ops.split()),
        statement=row.statement,
        reference=row.reference,
        shapes="all arguments broadcast to (*) → y (*).",
    )
    def pointwise(op: Operator) -> Cost:
        return Cost(elementwise=tuple(each(addend, op.out.shape) for addend in row.addends))


for _row in TABLE:
    register(_row)


def _each_of(op: Operator, *addends: str) -> Cost:
    return Cost(elementwise=tuple(each(addend, op.out.shape) for addend in addends))


@rule(
    "aten.add.Tensor",
    "aten.add.Scalar",
    "aten.add_.Tensor",
    "aten.add_.Scalar",
    statement="y = a + alpha · b",
    reference=REFS + "add",
    source="an alpha of 1 is not a multiplication",
    shapes="a and b broadcast to (*) → y (*).",
)
def add(op: Operator) -> Cost:
    return _each_of(op, *_scaled(op), "a + b")


@rule(
    "aten.sub.Tensor",
    "aten.sub.Scalar",
    "aten.sub_.Tensor",
    "aten.sub_.Scalar",
    statement="y = a − alpha · b",
    reference=REFS + "sub",
    source="an alpha of 1 is not a multiplication",
    shapes="a and b broadcast to (*) → y (*).",
)
def sub(op: Operator) -> Cost:
    return _each_of(op, *_scaled(op), "a − b")


def _scaled(op: Operator) -> tuple[str, ...]:
    """The multiplication by ``alpha``, unless ``other`` is a number: that is scaled before the operator runs."""
    return ("alpha · b",) if given_number(op, "alpha") and isinstance(op.value("other"), View) else ()


@rule(
    "aten.xlogy.Tensor",
    statement="y = a log b, or 0 where a = 0",
    reference=REFS + "xlogy",
    shapes="a and b broadcast to (*) → y (*).",
)
def xlogy(op: Operator) -> Cost:
    return Cost(elementwise=(each("log b", op.shape("other") if op.has("other") else ()), each("a log b", op.out.shape)))


@rule(
    "aten.rsub.Tensor",
    "aten.rsub.Scalar",
    statement="y = b − alpha · a",
    reference=REFS + "rsub",
    source="an alpha of 1 is not a multiplication",
    shapes="a and b broadcast to (*) → y (*).",
)
def rsub(op: Operator) -> Cost:
    return _each_of(op, *(("alpha · a",) if given_number(op, "alpha") else ()), "b − a")


@rule(
    "aten.pow.Tensor_Scalar",
    "aten.pow_.Scalar",
    statement="y = xᵖ",
    reference=REFS + "pow",
    source="x · x for p = 2, √x for p = 1/2, a copy for p = 1",
    shapes="x (*) → y (*).",
)
def power(op: Operator) -> Cost:
    exponent = op.value("exponent")
    if exponent == 1:
        return Cost()
    return _each_of(op, {2: "x · x", 0.5: "√x"}.get(exponent, "xᵖ"))


@rule(
    "aten.floor_divide.default",
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    statement="y = a / b rounded down, or towards 0",
    reference=REFS + "floor_divide",
    source="the remainder is taken off before dividing; rounding is 0",
    shapes="a and b broadcast to (*) → y (*).",
)
def divide_and_round(op: Operator) -> Cost:
    mode = op.value("rounding_mode", None if op.name.startswith("aten.div") else "floor")
    if mode != "floor":
        return _each_of(op, "a / b")
    if not op.out.dtype.startswith(("float", "bfloat")):
        return _each_of(op, "a / b", "a mod b", "− 1 where the signs differ")
    return _each_of(
        op,
        "a mod b",
        "a − a mod b",
        "(a − a mod b) / b",
        "− 1 where the signs differ",
        "quotient − its floor",
        "floor + 1",
        "a / b, for b = 0",
        "copysign of 0: |0|",
        "copysign of 0: −|0|",
        "copysign of 0: |0|, a second time",
    )


@rule(
    "aten.gelu.default",
    "aten.gelu_.default",
    statement="y = x Φ(x), or its tanh approximation",
    reference=FUNCTIONAL + "gelu",
    shapes="x (*) → y (*).",
)
def gelu(op: Operator) -> Cost:
    if op.value("approximate", "none") == "tanh":
        return _each_of(
            op, "x²", "x³", "0.044715 x³", "x + 0.044715 x³", "√(2/π) (…)", "x/2", "tanh(…)", "1 + tanh(…)", "x/2 (1 + tanh(…))"
        )
    return _each_of(op, "x/2", "x/√2", "erf(x/√2)", "1 + erf(x/√2)", "x/2 (1 + erf(x/√2))")


@rule(
    "aten.gelu_backward.default",
    statement="dx = dy (Φ(x) + x φ(x)), or of its tanh approximation",
    reference=DECOMPOSITION + "gelu_backward",
    shapes="dy (*), x (*) → dx (*).",
)
def gelu_backward(op: Operator) -> Cost:
    if op.value("approximate", "none") == "tanh":
        return _each_of(
            op,
            "x²",
            "x³",
            "0.044715 x³",
            "x + 0.044715 x³",
            "u = √(2/π) (…)",
            "t = tanh u",
            "x/2",
            "1 + t",
            "(1 + t)/2",
            "t²",
            "1 − t²",
            "3·0.044715 x²",
            "1 + 3·0.044715 x²",
            "u' = √(2/π) (…)",
            "x/2 (1 − t²)",
            "x/2 (1 − t²) u'",
            "(1 + t)/2 + x/2 (1 − t²) u'",
            "dy (…)",
        )
    return _each_of(
        op,
        "x/√2",
        "erf(x/√2)",
        "1 + erf(x/√2)",
        "Φ = (1 + erf(x/√2))/2",
        "x²",
        "−x²/2",
        "exp(−x²/2)",
        "φ = exp(−x²/2)/√(2π)",
        "x φ",
        "Φ + x φ",
        "dy (Φ + x φ)",
    )


@rule(
    "aten.softplus.default",
    statement="y = log(1 + exp(β x))/β",
    reference=FUNCTIONAL + "softplus",
    source="without the two scalings unless β is given",
    shapes="x (*) → y (*).",
)
def softplus(op: Operator) -> Cost:
    if given_number(op, "beta"):
        return _each_of(op, "β x", "exp(β x)", "log(1 + exp(β x))", "log(…)/β")
    return _each_of(op, "exp x", "log(1 + exp x)")


@rule(
    "aten.celu.default",
    "aten.celu_.default",
    statement="y = x, or α (exp(x/α) − 1) where x ≤ 0",
    reference=FUNCTIONAL + "celu",
    source="without the two scalings unless α is given",
    shapes="x (*) → y (*).",
)
def celu(op: Operator) -> Cost:
    return _each_of(op, "x/α", "exp(x/α) − 1", "α (exp(x/α) − 1)") if given_number(op, "alpha") else _each_of(op, "exp x − 1")


@rule(
    "aten.elu_backward.default",
    statement="dx = dy scale, or dy γ scale α exp(γ x) where x ≤ 0",
    reference=DECOMPOSITION + "elu_backward",
    shapes="dy (*), x or y (*) → dx (*).",
)
def elu_backward(op: Operator) -> Cost:
    if op.value("is_result"):
        return _each_of(op, "γ dy", "y + scale α", "γ dy (y + scale α)", "scale dy")
    return _each_of(op, "γ dy", "scale α γ dy", "γ x", "exp(γ x)", "scale α γ dy exp(γ x)", "scale dy")


@rule(
    "aten.log_sigmoid_backward.default",
    statement="dx = dy (1[x<0] ∓ z/(1 + z)), z = exp(−|x|)",
    reference=DECOMPOSITION + "log_sigmoid_backward",
    shapes="dy (*), x (*), z (*) or, where the forward did not save it, (0) → dx (*).",
)
def log_sigmoid_backward(op: Operator) -> Cost:
    recomputed = ("|x|", "−|x|", "z = exp(−|x|)") if op.tensor("buffer").numel == 0 else ()
    return _each_of(op, *recomputed, "1 + z", "z/(1 + z)", "± z/(1 + z)", "1[x<0] ∓ z/(1 + z)", "dy (…)")


@rule(
    "aten.glu.default",
    statement="y = a σ(b), with a and b the halves of x along dim",
    reference=FUNCTIONAL + "glu",
    shapes="x (*, 2 n) → y (*, n).",
)
def glu(op: Operator) -> Cost:
    return _each_of(op, "−b", "exp(−b)", "1 + exp(−b)", "σ(b) = 1/(1 + exp(−b))", "a σ(b)")


@rule(
    "aten.glu_backward.default",
    statement="da = dy σ(b), db = dy a σ(b) (1 − σ(b))",
    reference=DECOMPOSITION + "glu_backward",
    shapes="dy (*, n), x (*, 2 n) → dx (*, 2 n).",
)
def glu_backward(op: Operator) -> Cost:
    addends = (
        "−b",
        "exp(−b)",
        "1 + exp(−b)",
        "σ(b) = 1/(1 + exp(−b))",
        "1 − σ(b)",
        "σ(b) (1 − σ(b))",
        "a σ(b) (1 − σ(b))",
        "db = dy a σ(b) (1 − σ(b))",
        "da = dy σ(b)",
    )
    return Cost(elementwise=tuple(each(addend, op.shape("grad_output")) for addend in addends))


@rule(
    "aten.native_dropout.default",
    statement="y = x · mask / (1 − p)",
    reference=DECOMPOSITION + "native_dropout",
    source="random numbers and their comparison are 0",
    shapes="x (*) → y (*), mask (*).",
)
def dropout(op: Operator) -> Cost:
    return _each_of(op, "x · mask", "x · mask / (1 − p)") if op.value("train") and op.value("p") not in (0, 1) else Cost()
