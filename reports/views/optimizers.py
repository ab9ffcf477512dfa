"""An optimizer's rule on a terminal: its equations, what it keeps, and what a step takes."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.updates.check import UpdateCheck
from calc.mathematics.updates.cost import AsWritten, UpdateCost, as_written
from calc.mathematics.updates.run import expression
from calc.mathematics.updates.table import RULES, WITHOUT, UpdateEquation, UpdateRule
from calc.options import NAMED_OPTIMIZERS
from calc.symbolic.expression import Number, Product
from calc.symbolic.parser import parse
from calc.symbolic.readable import readable
from reports.writers.terminal import Styled, Terminal, bold, dim

_SIGNS = {
    "theta": "θ",
    "beta1": "β₁",
    "beta2": "β₂",
    "eps": "ε",
    "wd": "λ",
    "mu": "μ",
    "tau": "τ",
    "eta": "η",
    "alpha": "α",
    "rho": "ρ",
    "psi": "ψ",
    "mhat": "m̂",
    "vhat": "v̂",
    "next": "μ′",
    "rhomax": "ρ∞",
    "lambd": "λ₀",
    "t0": "t₀",
    "up": "η₊",
    "down": "η₋",
    "least": "s₋",
    "most": "s₊",
    "sqrt": "√",
    "Abs": "abs",
    "eps1": "ε₁",
    "eps2": "ε₂",
}


def shown(text: str) -> str:
    """An equation's side as a person writes it: ``β₁·m + (1 − β₁)·g``; cases with their conditions."""
    return readable(text, _SIGNS)


def show(name: str, cost: UpdateCost | None, check: UpdateCheck | None, out: Terminal) -> None:
    """Equations, letters, state, what is executed, and the comparison with torch where one was asked for."""
    optimizer, rule = NAMED_OPTIMIZERS.get(name), RULES.get(name)
    out.line(bold(name), f": {optimizer.call}" if optimizer else ": no class of torch.optim")
    out.line()
    if rule is None:
        out.line(WITHOUT[name])
    else:
        _show_rule(rule, out)
    if cost is not None:
        out.line()
        out.line(f"executed by torch's {cost.implementation} implementation in one later step, for {cost.tensor} in fp32", style="dim")
        counts = (("arithmetic", cost.flops, "FLOP"), ("moved", cost.moved, "bytes"), ("state", cost.state, "bytes"))
        out.table((), [(label, bold(f"{text} {unit}")) for label, text, unit in counts])
        out.line("; ".join(f"{part.operation}: {part.flops}" for part in cost.parts), style="dim")
    if check is not None:
        out.line()
        verdict = check.verdict
        both = f"{check.steps} steps of the equations and of torch, parameter and state"
        summary = f"{verdict.verdict}: {both}, differ by {check.difference:.2g} at most"
        style = "green" if check.ok else "bold red"
        out.line(Styled(f"{summary}, of {check.scale:.3g}; tolerance {verdict.tolerance:.2g}: {verdict.because}", style))


def _show_rule(rule: UpdateRule, out: Terminal) -> None:
    out.table((), [(bold(f"{shown(each.target)} ← {shown(each.text)}"), dim(each.about)) for each in rule.equations])
    out.line()
    values = ", ".join(f"{shown(letter)} = {value:g}" for letter, value in rule.defaults().items())
    first = [f"{shown(x)} = {_at_first(text)}" for x, text in (*rule.state.items(), *rule.single.items())]
    out.line(f"θ a parameter, g its gradient, t the step from 1; {values}")
    out.line(f"state, at first: {', '.join(first)}" if first else "no state")
    if rule.of_matrix:
        out.line("of a matrix; rows and cols are means over its rows and its columns, mean that of all, rms the root of the mean square")
    else:
        out.line(_counts(rule))
    out.line(f"source: {rule.source}", style="dim")


def _at_first(text: str) -> str:
    """The first value of a state: zeros of a row or a column are 0."""
    tree = parse(text)
    return "0" if isinstance(tree, Product) and tree.factors[0] == Number(0) else readable(tree, _SIGNS)


def _counts(rule: UpdateRule) -> str:
    cost = as_written(rule)
    counts = f"{cost.operations} FLOP, {cost.state} bytes of state, {cost.least_moved} bytes moved at least"
    return f"per parameter, as written, in fp32: {counts} (terms with a decay of 0 left out; where an equation has cases, the last one)"


# -- plain data -------------------------------------------------------------------------------------------------------


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
    parts = [{"operation": part.operation, "flops": part.flops} for part in cost.parts]
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
