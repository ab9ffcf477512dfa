"""Update rules as equations: ten steps of each are ten steps of torch's class, and an error planted in an equation is noticed."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

import calc
from calc.errors import BadInputError, MeasurementError
from calc.mathematics.updates.check import check
from calc.mathematics.updates.cost import as_written, executed
from calc.mathematics.updates.run import expression, operations
from calc.mathematics.updates.table import RULES, WITHOUT, UpdateEquation, UpdateRule, rule
from calc.memory.per_parameter import per_parameter
from calc.models import one_tensor
from calc.options import NAMED_OPTIMIZERS
from calc.symbolic.algebra import evaluate_text, to_sympy
from reports.views.optimizers import shown

# Values at which no term is small enough to hide: decays that are not 0, an eps of the size of the gradients.
FAR: dict[str, dict[str, float]] = {
    "sgd": {"wd": 0.3, "lr": 0.1},
    "momentum": {"wd": 0.3, "tau": 0.2, "lr": 0.1, "mu": 0.7},
    "nesterov": {"wd": 0.3, "lr": 0.1, "mu": 0.7},
    "adagrad": {"wd": 0.3, "eta": 0.2, "eps": 0.1, "lr": 0.1},
    "adagrad-lecture": {"eps": 0.1, "lr": 0.3},
    "rmsprop": {"wd": 0.3, "eps": 0.1, "alpha": 0.8},
    "rmsprop-momentum": {"wd": 0.3, "eps": 0.1, "alpha": 0.8, "mu": 0.7},
    "rmsprop-centered": {"wd": 0.3, "eps": 0.1, "alpha": 0.8},
    "adam": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8},
    "adamw": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8},
    "amsgrad": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8, "lr": 0.1},
    "adamax": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8},
    "nadam": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8, "psi": 0.5},
    "radam": {"wd": 0.3, "eps": 0.1, "beta1": 0.7, "beta2": 0.8},
    "adadelta": {"wd": 0.3, "eps": 0.1, "rho": 0.7, "lr": 0.5},
    "asgd": {"wd": 0.3, "lambd": 0.2, "alpha": 0.6, "t0": 3.0, "lr": 0.1},
    "adafactor": {"lr": 0.7, "wd": 0.2, "eps1": 0.3, "eps2": 0.2, "d": 1.1, "decay": -0.6},
    "rprop": {"lr": 0.1, "up": 1.3, "down": 0.4, "least": 0.05, "most": 0.3},
}
BY_NAME = pytest.mark.parametrize("name", RULES)


@BY_NAME
def test_ten_steps_of_the_equations_are_ten_steps_of_torch(name: str) -> None:
    """At the class's defaults and at values far from them."""
    for values in ({}, FAR[name]):
        report = check(RULES[name], values)

        assert report.ok, (values, report)
        assert 10 == report.steps


def planted(equation: UpdateEquation) -> Iterator[str]:
    """The equation with a sign turned, an addend dropped, a factor dropped or a divisor dropped: one error each."""
    tree = ast.parse(equation.text, mode="eval")
    for node in [n for n in ast.walk(tree) if isinstance(n, ast.BinOp)]:
        operator, left, right = node.op, node.left, node.right
        turned = {ast.Add: ast.Sub, ast.Sub: ast.Add}.get(type(operator))
        if turned is not None:
            node.op = turned()
            yield ast.unparse(tree)
            node.op = operator
        if isinstance(operator, ast.Pow) or (isinstance(operator, ast.Mult | ast.Div) and ast.unparse(right) == "1"):
            continue
        nothing: ast.expr = ast.Constant(1 if isinstance(operator, ast.Mult | ast.Div) else 0)
        node.right = nothing
        yield ast.unparse(tree)
        node.right, node.left = right, nothing if not isinstance(operator, ast.Div) else left
        if node.left is nothing:
            yield ast.unparse(tree)
        node.left = left


@BY_NAME
def test_an_error_planted_in_an_equation_is_noticed(name: str) -> None:
    """A turned sign, a dropped addend, factor or divisor, one at a time in every equation."""
    of = RULES[name]
    tried = 0
    assert of.equations
    for at, equation in enumerate(of.equations):
        for text in planted(equation):
            wrong = replace(equation, text=text)
            if expression(wrong) == expression(equation):
                continue
            equations = (*of.equations[:at], wrong, *of.equations[at + 1 :])
            tried += 1
            with contextlib.suppress(BadInputError):  # it leaves the numbers of fp64: noticed as well
                assert not check(replace(of, equations=equations), FAR[name]).ok, f"{equation.target} = {text} goes unnoticed"

    assert tried >= 3


@BY_NAME
def test_the_state_of_a_rule_is_what_torch_keeps(name: str) -> None:
    """4 bytes in fp32 for each letter that is kept; what is left of torch's state are single numbers of 4 bytes."""
    if name not in NAMED_OPTIMIZERS or RULES[name].of_matrix:
        return
    n = 1009
    rest = evaluate_text(NAMED_OPTIMIZERS[name].state, {"n": n, "s": 4}) - as_written(RULES[name]).state * n

    assert rest in (0, 4, 8, 12)
    assert rest >= 4 * len(RULES[name].single)


@pytest.mark.parametrize(
    ("name", "flops", "state"), [("sgd", "2*n", "0"), ("momentum", "4*n", "4*n"), ("adamw", "14*n + 3", "8*n + 4"), ("muon", None, "4*r*c")]
)
def test_what_is_executed_comes_from_a_trace_of_one_tensor(name: str, flops: str | None, state: str) -> None:
    """AdamW: two moments of 4 bytes and a step counter; its 14 FLOP a parameter are torch's own order of the equations."""
    result = executed(name)

    assert state == result.state
    assert to_sympy(result.flops) == sum(to_sympy(part.flops) for part in result.parts)
    assert flops in (None, result.flops)


def test_bytes_of_state_per_parameter_are_those_of_the_accounting() -> None:
    """The rule's own count, the recorded one and bytes per parameter of a derivation agree: 8 of AdamW."""
    derivation = calc.derive(one_tensor.vector(), optimizer="adamw")
    term = next(t for t in per_parameter(derivation).terms if t.quantity == "optimizer_state.bytes")

    assert as_written(RULES["adamw"]).state == term.per_parameter == 8
    assert 4 == term.remainder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", 2),  # lr*g and the difference
        ("nesterov", 2 + 2 + 2),  # mu*b + g, g + mu*b, theta - lr*(…)
        ("adagrad", 2 + 2 + 1 + 1 + 1),  # g², sum; root, + eps; rate*g, quotient, difference
        ("adam", 3 + 4 + 1 + 1 + 5),
        ("adamw", 3 - 1 + 1 + 3 + 4 + 1 + 1 + 5 - 1),  # theta - lr*wd*theta: a product and a difference
    ],
)
def test_operations_as_written_are_counted_by_hand(name: str, expected: int) -> None:
    """What is the same for every element is not counted, and a weight decay of 0 does not run."""
    assert expected == as_written(RULES[name]).operations


def test_a_decay_that_is_not_zero_is_counted() -> None:
    """g + wd*theta is a product and a sum."""
    assert operations(RULES["sgd"]) == operations(RULES["sgd"], ["wd"]) + 2


def test_equations_are_shown_as_a_person_writes_them() -> None:
    """Greek letters, products with a dot, cases with their conditions."""
    texts = {e.target: shown(e.text) for e in RULES["momentum"].equations}

    assert {"g": "g + λ·θ", "b": "g where t = 1; else μ·b + (1 − τ)·g", "theta": "θ − lr·b"} == texts
    assert "θ − lr·m̂/(√(v̂) + ε)" == shown(RULES["adam"].equations[-1].text)
    assert "θ − lr·m̂·[√(r·(1 − β₂^t)) / (√(v) + ε) where ρ > 5; else 1]" == shown(RULES["radam"].equations[-1].text)


def test_every_optimizer_has_equations_or_a_reason() -> None:
    """None is left out in silence."""
    assert {*NAMED_OPTIMIZERS} == ({*RULES} - {"adagrad-lecture"}) | {*WITHOUT}


@pytest.mark.parametrize(
    ("name", "values", "kind", "message"),
    [
        ("lion", {}, BadInputError, r"^unknown optimizer 'lion': use one of sgd, .*, muon$"),
        ("muon", {}, BadInputError, r"^muon orthogonalizes whole matrices by five rounds of matmuls: .*$"),
        ("lbfgs", {}, BadInputError, r"^optimizer 'lbfgs' is refused: .*$"),
        ("adam", {"x": 1.0}, BadInputError, r"^adam has no hyperparameter 'x': it has lr, beta1, beta2, eps, wd$"),
        ("adam", {"beta1": 1.0}, MeasurementError, r"^torch's Adam refuses \{.*\}: Invalid beta parameter at index 0: 1\.0$"),
        ("sgd", {"lr": 1e300, "wd": 1e300}, BadInputError, r"^sgd overflows fp64 within 10 steps at lr=1e\+300, .*$"),
        ("radam", {"beta2": 0.6}, BadInputError, r"^radam: .*$"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(name: str, values: dict[str, float], kind: type[Exception], message: str) -> None:
    """With the letters that there are, or torch's own reason."""
    with pytest.raises(kind, match=message):
        check(rule(name), values)


def test_a_rule_is_plain_data() -> None:
    """Its letters are those of its equations, its state and nothing else."""
    for of in RULES.values():
        assert isinstance(of, UpdateRule)
        used = {str(s) for e in of.equations for s in expression(e).free_symbols}
        known = {"theta", "g", "t", *of.defaults(), *of.state, *of.single, *(e.target for e in of.equations)}
        assert used <= known, of.name
