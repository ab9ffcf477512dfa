"""Published statements about traffic between devices, from the expressions that layouts are worked out with."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

import calc
from calc.capacity.sharding import Layout, ShardedModel
from calc.capacity.sharding.account import choice_of
from calc.capacity.sharding.communication import ALL_REDUCE, Collective, collectives
from calc.capacity.sharding.model import LAYER, ShardedTensor
from calc.symbolic.algebra import to_sympy
from tests.published.figures import FIGURES, assert_reproduced, assert_same, printed, reproduces

# All parameters P in one layer, an element a byte, one micro-batch a step; rows that divide have no filling.
ONE_LAYER = ShardedModel("P parameters", {"L": 1}, (ShardedTensor("all", "P", "1", LAYER),), (), "as in the paper")
STAGES = ("baseline", "P_os", "P_os_g", "P_os_g_p")
PLAIN = {"q": "1", "w": "1", "m": "1", "l": "1", "Nl": "P", "Sl": "P/n"}


def sent(zero: int) -> sp.Expr:
    """Elements that a device sends in a step, of many devices."""
    choice = choice_of(Layout(data=2, zero=zero), 1)
    known = {to_sympy(letter): to_sympy(text) for letter, text in PLAIN.items()}
    whole = sum((to_sympy(of.sent).subs(known) for of in collectives(ONE_LAYER, choice, "only") if of.axis == "data"), sp.Integer(0))
    return sp.limit(sp.expand(whole), to_sympy("n"), sp.oo)


@reproduces("zero-comm")
def test_traffic_of_zero(row: str) -> None:
    """Gradients summed and weights gathered are 2 P; weights gathered for the backward again are one more."""
    for zero, name in ((0, "ddp_allreduce"), (2, "P_os_g"), (3, "P_os_g_p")):
        assert_same(printed(row, name), sent(zero))


def asked(parameters: str, data: int, stage: str) -> Fraction:
    """GB on each device, by the question: 2 + 2 + 12 bytes are what it takes where no recipe is named."""
    return calc.ask("sharding", parameters=parameters, data=data, zero=stage).value / 10**9


@reproduces("zero-fig1")
def test_the_first_figure_of_zero_as_a_question(row: str) -> None:
    """7.5 billion parameters on 64 devices, by stage."""
    assert_reproduced(row, {name: asked("7.5e9", 64, stage) for stage, name in zip("0123", STAGES, strict=True)})


@reproduces("zero-table1-7.5b", "zero-table1-1t")
def test_the_first_table_of_zero_as_a_question(row: str) -> None:
    """Stage and number of devices are in the name of each figure: Pos+g_DP64."""
    stages = {"Pos": "1", "Pos+g": "2", "Pos+g+p": "3"}
    names = [name.rsplit("_DP", 1) for name in FIGURES[row] if name != "source"]
    parameters = "1e12" if row.endswith("1t") else "7.5e9"

    assert_reproduced(row, {f"{stage}_DP{n}": asked(parameters, int(n), stages[stage]) for stage, n in names})


@reproduces("sb-ici-2chip")
def test_a_product_over_two_chips_is_bound_by_arithmetic_from_this_width_on(row: str) -> None:
    """Each chip multiplies half of the D columns, 2 B (D/t) F FLOP, and the sums of 2 B F bytes are added up: D = 2 C/W with two."""
    added = Collective("C", ALL_REDUCE, "tensor", "t", "2*B*F", "partial sums")
    work_of_a_column = to_sympy("2*B*F/t")
    width = (to_sympy(added.sent) / 45_000_000_000 / (work_of_a_column / 197_000_000_000_000)).subs(to_sympy("t"), 2)

    assert_reproduced(row, {"D": Fraction(int(width.p), int(width.q))})
