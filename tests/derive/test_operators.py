"""Operators one by one add up to what is derived of the step, and fusion only ever takes traffic away."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

import calc
from calc.derive.operators import Operators, Work, operators
from calc.derive.result import Derivation
from calc.errors import CertificateError, UnknownOperatorError
from calc.graph.step import Graph
from calc.performance.step_operators import step_operators
from calc.rules.registry import REGISTRY
from tests.derive.models import SMALL
from tests.rules.mutate import without
from tests.zoo import ZOO

QUICK = ("two-layer",)
PHASES = ("forward", "backward", "optimizer")
QUANTITY = {
    "matmul": "flops.{}.matmul",
    "elementwise": "flops.{}.elementwise",
    "moved": "bytes_moved.{}",
    "recompute": "flops.{}.recompute",
}
SOME = random.Random(5).sample([name for name, exhibit in ZOO.items() if not exhibit.slow], 2)

Traced = Callable[[str], tuple[Graph, Derivation]]


@pytest.fixture(scope="session")
def traced() -> Traced:
    """A built-in model's graph with the derivation from it, each made once."""

    @cache
    def make(name: str) -> tuple[Graph, Derivation]:
        graph = calc.trace(calc.load(name), optimizer="spec" if name == "cruncher" else "adamw")
        return graph, calc.derive(graph)

    return make


def _assert_adds_up(derived: Operators, works: Sequence[Work], derivation: Derivation, sizes: Mapping[str, int]) -> None:
    """As expressions and, of ``works`` at ``sizes``, as integers."""
    for phase in PHASES:
        for field, name in QUANTITY.items():
            if name.format(phase) in derivation.quantities and derivation[name.format(phase)].text is not None:
                quantity = derivation[name.format(phase)]
                assert quantity.at(**sizes) == sum(w.times * getattr(w, field) for w in works if w.phase == phase), (phase, field)
                if not derived.graph.special_cases:
                    assert quantity.text == derived.total(field, phase), (phase, field)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in ("cruncher", "mlp", "gpt2"))])
def test_operators_add_up_to_the_quantities(name: str, traced: Traced) -> None:
    """FLOPs and bytes of every phase, exactly: as closed forms, and at sizes with another depth."""
    graph, derivation = traced(name)
    rows = operators(graph)

    _assert_adds_up(rows, rows.at(SMALL[name]), derivation, SMALL[name])


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SOME else [pytest.mark.slow]) for n in ZOO])
def test_operators_of_a_model_add_up_and_fusion_adds_no_traffic(name: str) -> None:
    """Of each operator, fused bytes are at most the eager ones; a fused run launches once."""
    exhibit = ZOO[name]
    made = step_operators(exhibit.kept(), exhibit.sizes, options=exhibit.options)
    derived, works = made.operators, made.works

    _assert_adds_up(derived, works, calc.derive(derived.graph), {})
    assert works
    for work in works:
        assert 0 <= work.fused <= work.moved
        assert 0 <= work.fused_launches <= work.launches <= 1


def test_adamw_fused_moves_44_bytes_a_parameter_and_84_eager(traced: Traced) -> None:
    """The loop implementation reads its step count midway. Eager: mul_ 8, lerp_ 12, mul_ 8, addcmul_ 16, sqrt 8, div 8, add_ 8,
    addcdiv_ 16. Fused before the count: p, m, v, g read and p, m, v written; after it: v, m, p read and p written; 4 bytes each.
    Each of two counts is read and written by its addition, and read once more."""
    rows = operators(traced("two-layer")[0])

    assert "84*D**2 + 84*D*K + 24" == rows.total("moved", "optimizer")
    assert f"{4 * (4 + 3) + 4 * (3 + 1)}*D**2 + 44*D*K + {2 * 4 * 3}" == rows.total("fused", "optimizer")


def test_a_tensor_without_later_reads_is_not_written_by_a_fused_run(traced: Traced) -> None:
    """The quotient of √v exists only between two operators of AdamW: it is neither read nor written."""
    works = operators(traced("two-layer")[0]).at(SMALL["two-layer"])

    assert {0} == {w.fused for w in works if w.name == "aten.div.Tensor" and w.phase == "optimizer"}


def test_what_a_phase_touches_first_is_cold(traced: Traced) -> None:
    """Forward: both weights and the two inputs. Optimizer: of every parameter its two moments and itself, read and written in place, and
    its gradient; of two step counters a read and a write."""
    rows = operators(traced("two-layer")[0])

    assert "4*B*D + 4*B*K + 4*D**2 + 4*D*K" == rows.total("cold", "forward")
    assert f"{4 * (2 * 3 + 1)}*D**2 + 28*D*K + {2 * 2 * 4}" == rows.total("cold", "optimizer")


def test_a_count_that_differs_from_a_certificate_is_refused(traced: Traced) -> None:
    """Planted: the trace that certifies loses its last product."""
    graph, _ = traced("two-layer")
    trace = graph.certificates[0]
    lost = next(op.index for op in reversed(trace.ops) if op.name == "aten.mm.default")
    planted = replace(graph, certificates=(replace(trace, ops=tuple(op for op in trace.ops if op.index != lost)),))

    with pytest.raises(CertificateError, match="of the backward: "):
        operators(planted)


def test_an_operator_without_a_rule_is_refused(traced: Traced) -> None:
    """Never counted as nothing."""
    graph, _ = traced("two-layer")

    with pytest.raises(UnknownOperatorError, match=r"^no cost rule for operator aten\.mm\.default at "):
        operators(graph, without(REGISTRY, "aten.mm.default"))
