"""An optimizer's rule on a terminal: its equations, what it keeps, and what a step takes."""

from __future__ import annotations

from calc.mathematics.updates.check import UpdateCheck
from calc.mathematics.updates.cost import UpdateCost, as_written
from calc.mathematics.updates.rules import UpdateRule
from calc.mathematics.updates.table import RULES, WITHOUT
from calc.options import NAMED_OPTIMIZERS
from calc.symbolic.expression import Expression, FunctionCall, Number, Piecewise
from calc.symbolic.parser import parse
from calc.symbolic.writer import ATOM, TextWriter
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
    "Max": "max",
    "eps1": "ε₁",
    "eps2": "ε₂",
    "Min": "min",
}


class _EquationWriter(TextWriter):
    """With the symbols of papers, and cases with their conditions."""

    def name(self, name: str) -> str:
        return _SIGNS.get(name, name)

    def exponent(self, exponent: Expression) -> str:
        return "²" if exponent == Number(2) else super().exponent(exponent)

    def written(self, expr: Expression) -> tuple[str, int]:
        match expr:
            case Piecewise():
                return f"[{_cases(expr)}]", ATOM
            case FunctionCall("Eq", (left, right)):
                return f"{self.written(left)[0]} = {self.written(right)[0]}", ATOM
        return super().written(expr)


_WRITER, _OF_CASES = (_EquationWriter("·", over, "^", " − ") for over in ("/", " / "))


def shown(text: str) -> str:
    """An equation's side as a person writes it: ``β₁·m + (1 − β₁)·g``; cases with their conditions."""
    tree = parse(text)
    return _cases(tree) if isinstance(tree, Piecewise) else _WRITER.written(tree)[0]


def _cases(node: Piecewise) -> str:
    *first, (last, _) = node.cases
    parts = [f"{_OF_CASES.written(value)[0]} where {_OF_CASES.written(condition)[0]}" for value, condition in first]
    return "; ".join([*parts, f"else {_OF_CASES.written(last)[0]}"])


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
        out.line("; ".join(f"{operation}: {flops}" for operation, flops in cost.parts), style="dim")
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
    first = [f"{shown(x)} = {'0' if text.startswith('0*') else shown(text)}" for x, text in (*rule.state.items(), *rule.single.items())]
    out.line(f"θ a parameter, g its gradient, t the step from 1; {values}")
    out.line(f"state, at first: {', '.join(first)}" if first else "no state")
    if rule.of_matrix:
        out.line("of a matrix; rows and cols are means over its rows and its columns, mean that of all, rms the root of the mean square")
    else:
        out.line(_counts(rule))
    out.line(f"source: {rule.source}", style="dim")


def _counts(rule: UpdateRule) -> str:
    cost = as_written(rule)
    counts = f"{cost.operations} FLOP, {cost.state} bytes of state, {cost.least_moved} bytes moved at least"
    return f"per parameter, as written, in fp32: {counts} (decays of 0 left out; of cases the last)"
