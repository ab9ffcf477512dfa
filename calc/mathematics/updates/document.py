"""An optimizer's rule and costs as plain data."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.updates.check import UpdateCheck
from calc.mathematics.updates.cost import AsWritten, UpdateCost, as_written
from calc.mathematics.updates.rules import UpdateEquation, UpdateRule
from calc.mathematics.updates.run import expression
from calc.mathematics.updates.table import RULES, WITHOUT
from calc.options import NAMED_OPTIMIZERS

# Letters that LaTeX writes as more than themselves.
_LATEX = {
    "theta": r"\theta",
    "beta1": r"\beta_1",
    "beta2": r"\beta_2",
    "eps": r"\epsilon",
    "wd": r"\lambda",
    "lr": r"\gamma",
    "mhat": r"\hat m",
    "vhat": r"\hat v",
    "mu": r"\mu",
    "tau": r"\tau",
    "eta": r"\eta",
    "alpha": r"\alpha",
    "rho": r"\rho",
    "psi": r"\psi",
    "next": r"\mu'",
    "rhomax": r"\rho_\infty",
    "lambd": r"\lambda_0",
    "t0": "t_0",
    "up": r"\eta_+",
    "down": r"\eta_-",
    "least": r"s_{\min}",
    "most": r"s_{\max}",
}


def latex(equation: UpdateEquation) -> str:
    """The equation as LaTeX."""
    expr = expression(equation)
    names = {s: _LATEX[str(s)] for s in expr.free_symbols if str(s) in _LATEX}
    return rf"{_LATEX.get(equation.target, equation.target)} \leftarrow {sp.latex(expr, symbol_names=names)}"


def document(name: str, cost: UpdateCost | None, check: UpdateCheck | None) -> dict[str, Any]:
    """The ``"schema": 2`` document of one optimizer. Without a rule its equations are null, with the reason."""
    optimizer, rule = NAMED_OPTIMIZERS.get(name), RULES.get(name)
    return {
        "schema": 2,
        "optimizer": {"name": name, "class": optimizer.kind if optimizer else None, "call": optimizer.call if optimizer else None},
        "rule": _rule(rule) if rule else None,
        "unknown": WITHOUT.get(name, ""),
        "as_written": _written(as_written(rule)) if rule and not rule.of_matrix else None,
        "executed": _cost(cost) if cost else None,
        "check": _check(check) if check else None,
    }


def _rule(rule: UpdateRule) -> dict[str, Any]:
    equations = [{"target": e.target, "expr": e.text, "latex": latex(e), "because": e.about} for e in rule.equations]
    state = [{"name": name, "first": first, "per": "element"} for name, first in rule.state.items()]
    single = [{"name": name, "first": first, "per": "tensor"} for name, first in rule.single.items()]
    return {"equations": equations, "hyperparameters": rule.defaults(), "state": state + single, "source": rule.source}


def _written(cost: AsWritten) -> dict[str, Any]:
    return {
        "flops_per_parameter": cost.operations,
        "state_bytes_per_parameter": cost.state,
        "least_moved_bytes_per_parameter": cost.least_moved,
        "format": "fp32",
    }


def _cost(cost: UpdateCost) -> dict[str, Any]:
    head = {"implementation": cost.implementation, "tensor": cost.tensor, "format": "fp32"}
    parts = [{"operation": operation, "flops": flops} for operation, flops in cost.parts]
    return {**head, "flops": cost.flops, "bytes_moved": cost.moved, "state_bytes": cost.state, "parts": parts}


def _check(check: UpdateCheck) -> dict[str, Any]:
    return {
        "verdict": check.verdict.verdict,
        "steps": check.steps,
        "difference": check.difference,
        "tolerance": check.verdict.tolerance,
        "scale": check.scale,
        "hyperparameters": dict(check.letters),
        "because": check.verdict.because,
    }
