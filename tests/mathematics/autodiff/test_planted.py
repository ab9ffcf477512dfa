"""A wrong sign, a dropped term, a missing transpose in any primitive's rule is caught by the comparison with autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from calc.errors import NapkinError
from calc.mathematics.autodiff import ir, reverse
from calc.mathematics.autodiff.ir import Equations, Node, Operand, argument
from calc.mathematics.autodiff.summing import Summing
from calc.mathematics.gradients import _sizes, gradients, trial
from calc.options import Options
from tests.mathematics.autodiff.models import MODELS

# A model whose forward has the primitive between a parameter and the loss.
RUN_BY = {
    ir.Contract: "mlp with GELU",
    ir.Map: "cross-entropy",
    ir.Reduce: "layer norm",
    ir.Gather: "tied head",
    ir.Scatter: "vision",
    ir.Split: "multi-head attention",
    ir.Merge: "multi-head attention",
    ir.Concatenate: "shuffled",
    ir.Cumulate: "shuffled",
}


def _negated(rule: reverse.Rule) -> reverse.Rule:
    def wrong(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
        share = rule(equations, node, gradient, i)
        return None if share is None else equations.map(-argument(0), (equations.same(share),), equations[share].shape)

    return wrong


def _dropped(rule: reverse.Rule) -> reverse.Rule:
    def wrong(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
        return None if i == 0 else rule(equations, node, gradient, i)

    return wrong


def _untransposed(rule: reverse.Rule) -> reverse.Rule:
    """The gradient's first two axes stand for each other."""

    def wrong(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
        share = rule(equations, node, gradient, i)
        if share is None or len(equations[share].shape) < 2:
            return share
        shape = equations[share].shape
        return equations.map(argument(0), (Operand(share, (1, 0, *range(2, len(shape)))),), shape)

    return wrong


def _slow(kind: type[Any]) -> Any:
    return pytest.param(kind, marks=pytest.mark.slow)


def _caught(name: str) -> bool:
    """Whether a derivation is refused or differs from autograd."""
    spec = MODELS[name]
    try:
        equations = gradients(spec)
        return not trial(equations, spec, _sizes(equations.program, spec, 0, {}), Options(), 0).ok
    except (NapkinError, ValueError, IndexError):  # numpy's own refusals: shapes that do not fit
        return True


@pytest.mark.parametrize("plant", [_negated, _dropped, _untransposed])
@pytest.mark.parametrize("kind", [k if k in (ir.Contract, ir.Map, ir.Reduce, ir.Gather) else _slow(k) for k in RUN_BY])
def test_an_error_in_a_rule_is_caught(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], plant: Callable[[reverse.Rule], reverse.Rule]
) -> None:
    """In the rule of each primitive."""
    monkeypatch.setitem(reverse.RULES, kind, plant(reverse.RULES[kind]))

    assert _caught(RUN_BY[kind])


def test_every_rule_has_a_model_that_runs_it() -> None:
    """A rule that is never compared would be worth nothing."""
    assert set(RUN_BY) == set(reverse.RULES)


def test_an_error_in_a_fact_about_sums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean taken for a sum, where a layer norm's gradient is simplified."""
    _known_total = Summing._known_total

    def wrong(self: Summing, *given: Any) -> Any:
        actual = _known_total(self, *given)
        return None if actual is None else {m: 2 * c for m, c in actual.items()}

    monkeypatch.setattr(Summing, "_known_total", wrong)

    assert _caught("layer norm")


def test_an_error_in_a_derivative_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A derivative one part in a million off."""
    right = reverse.partial
    monkeypatch.setattr(reverse, "partial", lambda expr, i: right(expr, i) * (1 + sp.Rational(1, 10**6)))

    assert _caught("softmax")
