"""The tree of expressions: it is read as Python reads, written as Python writes, and is a plain value."""

from __future__ import annotations

import ast
import pickle
import random

import pytest

from calc.symbolic.expression import FloorQuotient, Name, Negative, Number, Product, Quotient, Sum, names
from calc.symbolic.parser import DEEPEST, LONGEST, ExpressionError, free_names, parse
from calc.symbolic.readable import readable
from calc.symbolic.writer import as_text, substituted

LEAVES = ("B", "T", "3", "12", "0.5", "floor(T/2)")


def written(generator: random.Random, depth: int) -> str:
    """A random expression with more brackets than it needs."""
    if not depth:
        return generator.choice(LEAVES)
    a, b = (written(generator, generator.randrange(depth)) for _ in range(2))
    operator = generator.choice(("+", "-", "*", "/", "//", "%", "**"))
    return generator.choice((f"({a}) {operator} ({b})", f"({a}) {operator} ({b})", f"-({a})", f"Max({a}, {b})"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1228640256*B + 1493286488", "1,228,640,256·B + 1,493,286,488"),
        ("N/(999*R) - 1000", "N/(999·R) − 1,000"),
        ("B**(-1024)", "B⁻¹⁰²⁴"),
        ("Max(4096, B)*0.7978845608", "max(4,096, B)·0.7978845608"),
        ("(-86400)**2", "(−86,400)²"),
        ("Piecewise((12345, B > 10000), (0, True))", "12,345 where B > 10,000; else 0"),
    ],
)
def test_digits_for_readers_are_in_groups_of_three(text: str, shown: str) -> None:
    """As in closed forms; neither exponents nor decimals are, nor what ``parse`` reads."""
    assert shown == readable(text)
    assert parse(text) == parse(as_text(parse(text)))


def test_what_is_written_has_the_brackets_that_python_writes() -> None:
    """``ast.unparse`` is the judge; ``a + -b`` alone is written ``a - b``."""
    generator, judged = random.Random(0), 0
    for _ in range(2000):
        source = written(generator, generator.randint(0, 5))
        tree, expected = parse(source), ast.unparse(ast.parse(source, mode="eval"))
        if " + -" in expected:
            continue
        judged += 1
        assert expected == as_text(tree, spaced=True)
        assert tree == parse(as_text(tree)) == parse(expected)
    assert judged > 1000


def test_sums_and_products_have_any_number_of_operands() -> None:
    """As Python reads them, from the left; a difference is a sum with a negative term."""
    B, T, d = map(Name, "BTd")

    assert Sum((B, Negative(T), d)) == parse("B - T + d")
    assert Sum((B, Negative(Sum((T, d))))) == parse("B - (T + d)")
    assert Quotient(Product((Number(2), B, T)), d) == parse("2*B*T/d")


def test_nodes_are_plain_values() -> None:
    """Two kinds with equal fields differ; a node cannot be changed, and survives pickling."""
    B, T = Name("B"), Name("T")

    assert Quotient(B, T) != FloorQuotient(B, T)
    assert "Quotient(Name('B'), Name('T'))" == repr(Quotient(B, T))
    assert {Quotient(B, T): 1}[parse("B/T")] == 1
    assert parse("Max(B, 2)*T") == pickle.loads(pickle.dumps(parse("Max(B, 2)*T")))
    with pytest.raises(AttributeError, match=r"^name of an expression cannot be set$"):
        B.name = "T"


def test_names_come_in_the_order_of_writing_and_functions_are_none() -> None:
    assert ("B", "T", "B") == names(parse("Max(B, T) + floor(B/2)"))
    assert {"B", "T"} == free_names("Max(B, T) + floor(B/2)")


def test_names_are_replaced_by_expressions() -> None:
    """With brackets where they are needed."""
    assert "(h * k) ** 2 + T" == substituted("d**2 + T", {"d": "h*k"})


@pytest.mark.parametrize("source", ["", "B +", "-" * (DEEPEST + 1) + "B", "(" * 5000, "B" * (LONGEST + 1), "B.real", "[B]", "f(*B)", "1j"])
def test_what_is_no_expression_is_refused(source: str) -> None:
    """In one line, however long or deep it is."""
    with pytest.raises(ExpressionError, match=r"^cannot read .{1,160}$"):
        parse(source)


def test_a_sum_of_many_terms_is_no_deeper_than_one() -> None:
    assert 900 == len(names(parse(" + ".join(["B"] * 900))))
