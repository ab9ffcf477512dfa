"""Expression trees: what is written reads back to the value that is shown, and keeps the order in which it was argued."""

from __future__ import annotations

import fractions
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.symbolic.algebra import Algebra, evaluate_text, symbol, to_sympy
from calc.symbolic.expression import Expression, FunctionCall, Labelled, Name, Negative, Number, OverLayers, Power, Product, Quotient, Sum
from calc.symbolic.tree import maximum, text, value

B, T, d, L = (Name(name) for name in ("B", "T", "d", "L"))
SIZES = {"B": 2, "T": 7, "d": 13, "L": 3}

HALF = Name("T // 2")  # a size that is no polynomial stays one name
LEAVES = st.one_of(st.builds(Number, st.integers(-3, 11)), st.sampled_from([B, T, d, L, HALF, Name("floor(d/3)")]))


def power(base: Expression, exponent: int) -> Power:
    return Power(base, Number(exponent))


def _compound(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    terms = st.one_of(inner, st.builds(Labelled, inner, st.just("where it comes from")))
    several = st.lists(terms, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Sum, several),
        st.builds(Product, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(power, inner, st.integers(1, 2)),
        st.builds(Negative, inner),
        st.builds(Labelled, inner, st.just("where it comes from")),
        st.builds(OverLayers, st.just("l"), st.one_of(st.just(L), inner), inner),
        st.builds(Quotient, st.builds(lambda x: Product((x, T)), inner), st.builds(Number, st.integers(1, 7))),
        st.builds(maximum, several),
    )


TREES = st.recursive(LEAVES, _compound, max_leaves=12)


def exactly(tree: Expression) -> fractions.Fraction:
    """The tree's value at ``SIZES``, by its definition and in fractions: no code shared with ``display.value``."""
    match tree:
        case Number(number):
            return fractions.Fraction(number)
        case Name(name):
            return leaf(name)
        case Sum(terms):
            return fractions.Fraction(sum(exactly(t) for t in terms))
        case Product(factors):
            actual = fractions.Fraction(1)
            for factor in factors:
                actual *= exactly(factor)
            return actual
        case Power(base, Number(exponent)):
            return fractions.Fraction(exactly(base) ** exponent)
        case Quotient(top, bottom):
            return exactly(top) / exactly(bottom)
        case Negative(body):
            return -exactly(body)
        case OverLayers(_, upper, body):
            return exactly(upper) * exactly(body)
        case Labelled(body, _):
            return exactly(body)
        case FunctionCall("Max", items):
            return max(exactly(item) for item in items)
    raise AssertionError(tree)


def leaf(name: str) -> Any:
    return fractions.Fraction({**SIZES, "T // 2": 3, "floor(d/3)": 4}[name])


@given(TREES)
def test_what_is_written_has_the_value_that_is_shown(tree: Expression) -> None:
    """Signs, brackets and order of operations come out right in every nesting."""
    assert exactly(tree) == evaluate_text(text(tree), SIZES)


@given(TREES)
def test_the_value_of_a_tree_is_exact(tree: Expression) -> None:
    """With fractions for names it is the definition's."""
    assert exactly(tree) == value(tree, leaf)


@given(TREES)
@settings(max_examples=40)
def test_sympy_reads_what_is_written(tree: Expression) -> None:
    """One line of plain ASCII, without labels, that ``expr`` fields can hold."""
    written = text(tree)

    assert "\n" not in written
    assert "where" not in written
    assert exactly(tree) == to_sympy(written).subs({symbol(name): size for name, size in SIZES.items()}).doit()


def test_the_value_of_a_tree_is_a_polynomial_when_its_names_are() -> None:
    """L layers of 2*(B*T)*d*(3*d), halved: 3*B*T*d**2*L."""
    algebra = Algebra(["B", "T", "d", "L"])
    tree = Quotient(OverLayers("l", L, Product((Number(2), Product((B, T)), d, Product((Number(3), d))))), Number(2))

    assert algebra.text(value(tree, algebra.gen)) == "3*B*T*d**2*L"


@pytest.mark.parametrize(
    ("written", "tree"),
    [
        ("2*(B*T)*d*(3*d)", Product((Number(2), Product((B, T)), d, Product((Number(3), d))))),
        ("12*d**2 + 13*d", Sum((Product((Number(12), power(d, 2))), Product((Number(13), d))))),
        ("d + B + T", Sum((d, B, T))),
        ("B - T", Sum((B, Negative(T)))),
        ("B - (T + d)", Sum((B, Negative(Sum((T, d)))))),
        ("B + (T - d)", Sum((B, Sum((T, Negative(d)))))),
        ("-(B + T)", Negative(Sum((B, T)))),
        ("-B + T", Sum((Negative(B), T))),
        ("(B + T)**2", power(Sum((B, T)), 2)),
        ("(B*T)**2", power(Product((B, T)), 2)),
        ("(B**2)**3", power(power(B, 2), 3)),
        ("(B**2)**3", power(Labelled(power(B, 2), "a square"), 3)),
        ("(B**2)**3", power(Labelled(Labelled(power(B, 2), "a square"), "of B"), 3)),
        ("(-2)**2", power(Labelled(Number(-2), "negative"), 2)),
        ("(B + T)*d", Product((Labelled(Labelled(Sum((B, T)), "a sum"), "of two"), d))),
        ("B - T", Sum((B, Labelled(Labelled(Negative(T), "less"), "T")))),
        ("2*(T // 2)", Product((Number(2), HALF))),
        ("d/(T // 2)", Quotient(d, HALF)),
        ("(T // 2)**2", power(HALF, 2)),
        ("(T*(T + 1))/2", Quotient(Product((T, Sum((T, Number(1))))), Number(2))),
        ("B/(2*T)", Quotient(B, Product((Number(2), T)))),
        ("B*(T/2)", Product((B, Quotient(T, Number(2))))),
        ("L*(d + 1)", OverLayers("l", L, Sum((d, Number(1))))),
        ("2*(L*d)", Product((Number(2), OverLayers("l", L, d)))),
        ("B*T + B*d", Sum((Labelled(Product((B, T)), "scores"), Labelled(Product((B, d)), "values")))),
        ("B*T - d", Sum((Labelled(Product((B, T)), "scores"), Labelled(Negative(d), "values")))),
        ("Max(B*T, d**2 + 1)", maximum((Product((B, T)), Sum((power(d, 2), Number(1)))))),
        ("0", Sum(())),
        ("1", Product(())),
    ],
)
def test_a_tree_is_written_as_it_was_argued(written: str, tree: Expression) -> None:
    """Nothing is reordered, multiplied out or cancelled; brackets stand where a reader needs them."""
    assert written == text(tree)


def test_a_number_over_a_number_is_exact() -> None:
    """L/3 - 2624/3, as a depth of 3 n + 2 layers leaves it: no float comes in between."""
    algebra = Algebra(["L"])
    tree = Sum((Quotient(L, Number(3)), Negative(Quotient(Number(2624), Number(3)))))

    assert algebra.value(value(tree, algebra.gen), {"L": 2627}) == 1
    assert value(tree, {"L": 2627}.__getitem__) == 1


def test_labels_change_no_value() -> None:
    """They are words under a brace."""
    assert value(Labelled(Sum((B, T)), "tokens"), leaf) == 2 + 7
    assert value(Sum((Labelled(B, "a"), Labelled(T, "b"))), leaf) == 2 + 7


def test_a_sum_over_layers_is_their_number_times_one() -> None:
    """Σ over 3 layers of 13 + 1 is 42."""
    assert value(OverLayers("l", L, Sum((d, Number(1)))), leaf) == 42


def test_trees_are_plain_values() -> None:
    """Equal trees compare equal and can be keys."""
    assert {Sum((B, T)): 1}[Sum((Name("B"), Name("T")))] == 1
    assert Sum((B, T)) != Sum((T, B))
