"""The registry of rules: one owner for each operator, and nothing counted as zero by default."""

from __future__ import annotations

import importlib
import math

import pytest

from calc.errors import DuplicateRuleError, NapkinError, UnknownOperatorError
from calc.rules import families  # noqa: F401  # registers them
from calc.rules.registry import REGISTRY, Cost, Free, Operator, Registry, Rule, View, cost_of, term
from calc.symbolic.algebra import Algebra
from tests.rules.mutate import with_rule, without


def view(*shape: int, dtype: str = "float32") -> View:
    return View(shape, dtype, math.prod(shape))


def operator(name: str = "aten.twice.default") -> Operator:
    """A (2, 3) and a (3, 5) matrix of two formats."""
    return Operator(name, {"self": view(2, 3), "mat2": view(3, 5, dtype="bfloat16"), "alpha": 7}, (view(2, 5),))


def product(op: Operator) -> Cost:
    """A (m, k) B (k, n)."""
    (m, k), (_, n) = op.shape("self"), op.shape("mat2")
    return Cost(matmul=(term("A B", 2, m, k, n),), elementwise=(term("scale", m, n),))


def registry() -> Registry:
    made = Registry()
    made.add(Rule("aten.mm.default", product, "C = A B", "torch"))
    made.add(Rule("aten.mmm.default", product, "C = A B", "torch"))
    made.add(Free("aten.view.default", "metadata only"))
    made.add(Free("aten.clone.default", "a copy computes nothing", moves=True))
    return made


# -- terms -------------------------------------------------------------------------------------------------------------


def test_a_term_counts_the_product_of_its_factors() -> None:
    """2*2*3*5 = 60, with the factors as written."""
    assert term("A B", 2, 2, 3, 5).count == 60
    assert term("A B", 2, 2, 3, 5).factors == (2, 2, 3, 5)
    assert term("one").count == 1


def test_a_term_counts_polynomials_alike() -> None:
    """2*B*d*(3*d) = 6*B*d**2."""
    algebra = Algebra(["B", "d"])
    counted = term("qkv", 2, algebra.gen("B"), algebra.gen("d"), 3 * algebra.gen("d")).count

    assert algebra.text(counted) == "6*B*d**2"


# -- what a rule sees --------------------------------------------------------------------------------------------------


def test_an_operator_gives_its_tensors_by_their_schema_names() -> None:
    """Those in lists too; other arguments are values."""
    op = Operator("aten.cat.default", {"tensors": (view(2, 3), view(5, 3)), "dim": 0}, (view(7, 3),))

    assert [("tensors", (2, 3)), ("tensors", (5, 3))] == [(name, argument.shape) for name, argument in op.tensors()]
    assert op.value("dim") == 0
    assert op.value("missing", 11) == 11
    assert op.out.numel == 21
    assert operator().has("self")
    assert not operator().has("alpha")
    assert not operator().has("bias")


def test_a_rule_that_asks_for_an_argument_that_is_not_there_is_refused() -> None:
    """It was written for another call; counting on would be a guess."""
    message = r"^aten\.twice\.default was traced without the tensor argument 'bias': the rule does not fit this call$"
    with pytest.raises(NapkinError, match=message):
        operator().shape("bias")


# -- one owner -----------------------------------------------------------------------------------------------------------


def test_a_second_rule_for_an_operator_is_refused_with_the_first_one_named() -> None:
    """It would be unclear which of two counts is meant."""
    made = registry()

    with pytest.raises(DuplicateRuleError, match=r"^operator aten\.mm\.default already has a rule \(product\): keep one of them$"):
        made.add(Rule("aten.mm.default", lambda op: Cost(), "C = 0", "nobody"))


def test_an_operator_cannot_have_a_rule_and_be_free() -> None:
    """In either order."""
    made = registry()

    with pytest.raises(DuplicateRuleError, match=r"^operator aten\.mm\.default already has a rule \(product\)"):
        made.add(Free("aten.mm.default", "it is not"))
    with pytest.raises(DuplicateRuleError, match=r"^operator aten\.view\.default already has a rule \(free: metadata only\)"):
        made.add(Rule("aten.view.default", product, "C = A B", "torch"))


# -- costs -----------------------------------------------------------------------------------------------------------------


def test_the_cost_of_an_operator_is_what_its_rule_says() -> None:
    """(2, 3) by (3, 5): 2*2*3*5 = 60 FLOP of products, 2*5 = 10 elementwise."""
    cost = cost_of(operator("aten.mm.default"), "up", registry())

    assert [60] == [t.count for t in cost.matmul]
    assert [10] == [t.count for t in cost.elementwise]


def test_a_free_operator_moves_nothing_unless_it_says_so() -> None:
    """A view touches no element; a copy reads and writes all of them and computes nothing."""
    view_cost, copy_cost = (cost_of(operator(f"aten.{name}.default"), "", registry()) for name in ("view", "clone"))

    assert () == view_cost.matmul == view_cost.elementwise == copy_cost.matmul == copy_cost.elementwise
    assert (view_cost.reads, view_cost.writes) == ((), ())
    assert (copy_cost.reads, copy_cost.writes) == (None, None)


def test_an_unknown_operator_is_refused_with_the_whole_situation_and_both_ways_out() -> None:
    """Operator, module path, shapes with dtypes, the nearest names, how to state a cost and how to state that there is none."""
    with pytest.raises(UnknownOperatorError) as refusal:
        cost_of(operator("aten.mn.default"), "blocks.0.mlp.up", registry())

    assert str(refusal.value) == (
        "no cost rule for operator aten.mn.default at blocks.0.mlp.up, inputs: self (2, 3) float32, mat2 (3, 5) bfloat16."
        " Nearest known: aten.mm.default, aten.mmm.default."
        " An operator without a rule is never counted as zero: state its cost with @calc.rules.rule('aten.mn.default', …),"
        " or, if it truly costs nothing, state the reason with calc.rules.free('aten.mn.default', because=…)."
    )


def test_an_unknown_operator_without_module_path_inputs_or_neighbors_is_refused_as_well() -> None:
    """In a registry that knows nothing."""
    with pytest.raises(UnknownOperatorError, match=r"^no cost rule for operator my\.own at the top level, inputs: none\. An operator"):
        cost_of(Operator("my.own", {}, ()), "", Registry())


def test_free_operators_are_among_the_nearest_names() -> None:
    """``aten.vieww`` is most likely a view."""
    with pytest.raises(UnknownOperatorError, match=r"Nearest known: aten\.view\.default"):
        cost_of(operator("aten.vieww.default"), "", registry())


# -- altered copies -----------------------------------------------------------------------------------------------------


def test_a_planted_error_leaves_the_registry_as_it_was() -> None:
    """Copies are altered, never the one registry."""
    made = registry()
    wrong = with_rule(made, "aten.mm.default", lambda op: Cost())

    assert cost_of(operator("aten.mm.default"), "", wrong).matmul == ()
    assert cost_of(operator("aten.mm.default"), "", made).matmul != ()
    assert wrong.rules["aten.mm.default"].statement == "C = A B"


@pytest.mark.parametrize("name", ["aten.mm.default", "aten.view.default"])
def test_without_an_operator_it_is_unknown(name: str) -> None:
    """Whether it had a rule or was free."""
    with pytest.raises(UnknownOperatorError):
        cost_of(operator(name), "", without(registry(), name))

    assert registry().find(name) is not None


def test_the_one_registry_states_a_reason_for_everything() -> None:
    """A definition and a source for each rule, words for each free operator, and no operator in both."""
    assert all(entry.statement and entry.origin for entry in REGISTRY.rules.values())
    assert all(entry.because for entry in REGISTRY.frees.values())
    assert not set(REGISTRY.rules) & set(REGISTRY.frees)
    assert {"aten.addmm.default", "aten.mm.default", "aten.bmm.default"} <= set(REGISTRY.rules)
    assert "aten.view.default" in REGISTRY.frees


def test_a_reference_is_a_function_of_torch() -> None:
    """Whoever doubts a count can read it there."""
    references = {entry.reference.rpartition(".")[::2] for entry in REGISTRY.rules.values() if entry.reference}

    assert len(references) > 100
    assert [] == [name for module, name in references if not callable(getattr(importlib.import_module(module), name, None))]
