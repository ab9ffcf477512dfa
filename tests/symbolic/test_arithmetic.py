"""Exact arithmetic and rearrangement of expressions, without SymPy; SymPy judges them here."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.symbolic import arithmetic
from calc.symbolic.arithmetic import Fractions, evaluate, isolated, power, tidy
from calc.symbolic.parser import free_names, parse
from calc.symbolic.writer import as_text

POSITIVE = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)

# Each with the letter that it is solved for.
EXPRESSIONS = (
    ("C/(86400*u*n*P)", "n"), ("6*N*D", "D"), ("B*w/(W + B*K)", "B"), ("b*(12*L*d**2 + V*d) + L*(34*T*B*d + 5*h*T**2*B)", "L"),
    ("1.69 + 406.4/N**(17/50) + 410.7/D**(7/25)", "N"), ("sqrt(2*s*F)", "F"), ("1 - a/o", "o"), ("1 - a/o", "a"), ("s*(1 + c/B)", "c"),
    ("(a*x + b)/(c*x + d)", "x"), ("e*(n - 1)*u*P/(2*n*l)", "n"), ("72*B*L*T*d**2*(1 + T/(6*d) + V/(12*d*L))", "L"), ("-(x - a)", "x"),
    ("(a + b*T)/(6*N) - 1", "N"), ("a - b/(x + c)", "x"),
)  # fmt: skip


@settings(max_examples=15)
@given(st.data())
@pytest.mark.parametrize(("text", "letter"), EXPRESSIONS)
def test_what_is_rearranged_gives_the_letter_back(text: str, letter: str, data: st.DataObject) -> None:
    """y from the expression, and the letter from y by the rearrangement: the same, but for the digits of a root."""
    values = {name: data.draw(POSITIVE) for name in sorted(free_names(text))}
    (back,) = isolated(text, letter, "y")
    try:
        y = evaluate(text, values)
        actual = evaluate(back, {**values, "y": y})
    except ZeroDivisionError:  # of (a·x + b)/(c·x + d) with a/c = b/d, which does not depend on x
        return

    # Subtracting 1.69 and the like costs digits: those of the part that is left.
    assert abs(actual - values[letter]) <= Fraction(1, 10**25) * values[letter]
    if "**(" not in text and "sqrt" not in text:
        assert actual == values[letter]


def test_rearrangements_are_written_as_one_writes_them() -> None:
    """Numbers first, one line of a fraction."""
    assert ("C/(86400*t*u*P)",) == isolated("C/(86400*u*n*P)", "n", "t")
    assert ("6*(N/G)**(31/14)",) == isolated("G*(C/6)**(14/31)", "C", "N")
    assert ("t*W",) == isolated("Max(F/P, Q/W)", "Q", "t")
    assert ("t*a", "t*b") == isolated("Max(x/a, x/b)", "x", "t")
    assert () == isolated("x**2 + x", "x", "y")


@given(st.fractions(min_value=0, max_value=10**30, max_denominator=10**12), st.integers(1, 9), st.integers(2, 40))
def test_a_power_is_below_and_forty_digits_near(x: Fraction, p: int, k: int) -> None:
    """r^k ≤ x^p, and a little more is above; a power has its root exactly."""
    actual, exact = power(x, Fraction(p, k))

    assert actual**k <= x**p
    assert exact or (actual * (1 + Fraction(1, 10**41))) ** k > x**p
    assert (x**p, True) == power(x**k, Fraction(p, k))
    assert x == 0 or (1 / x**p, True) == power(x**k, Fraction(-p, k))


@pytest.mark.parametrize("x", [Fraction(10**60 + 1), Fraction(10**60 - 1, 10**60), Fraction(10**60 + 1, 10**60), Fraction(1, 7**50)])
@pytest.mark.parametrize("exponent", [Fraction(1829, 3568), Fraction(8191, 2), Fraction(1, 8192), Fraction(3, 2)])
def test_a_power_is_so_where_digits_are_lost_or_an_exponent_is_long(x: Fraction, exponent: Fraction) -> None:
    """Near 1, whose logarithm is nearly 0, and near a power that has its root."""
    actual, exact = power(x, exponent)
    p, k = exponent.numerator, exponent.denominator

    assert exact or actual**k < x**p < (actual * (1 + Fraction(1, 10**41))) ** k


@pytest.mark.parametrize(("bits", "more"), [(1, 0), (4000, -1), (4000, 0), (4000, 1), (16_000, 7)])
@pytest.mark.parametrize("k", [2, 3, 40, 1000, 4999, 5000])
def test_whole_roots_are_the_last_that_do_not_pass(bits: int, more: int, k: int) -> None:
    """r^k ≤ n < (r + 1)^k, where the beginning that a double gives is far from all digits too."""
    n = 2**bits + more
    actual = arithmetic._whole_root(n, k)

    assert actual**k <= n < (actual + 1) ** k


def test_a_rounded_root_is_told_apart_from_an_exact_one() -> None:
    """√(9/4) is 3/2; √2 is not a fraction."""
    even, odd = Fractions({"x": Fraction(9, 4)}), Fractions({"x": Fraction(2)})

    assert (Fraction(3, 2), False) == (parse("sqrt(x)").value_in(even), even.rounded)
    assert sp.N(sp.sqrt(2), 35) == sp.N(sp.Rational(parse("x**(1/2)").value_in(odd)), 35)
    assert odd.rounded


@pytest.mark.parametrize(("text", "said"), [
    ("x**9000", "the exponent 9000 is too large to be worked out"),
    ("(0 - x)**(1/2)", "a root of a negative number has no value here"),
    ("x // 2", "cannot work out 'x // 2'"),
    ("f(x)", "cannot work out 'f(x)'"),
])  # fmt: skip
def test_what_cannot_be_worked_out_is_refused(text: str, said: str) -> None:
    """In one line."""
    with pytest.raises(BadInputError) as caught:
        evaluate(text, {"x": Fraction(3)})

    assert said == str(caught.value)


def test_text_that_is_no_expression_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^cannot read the expression 'x \+': write it with \+ - \* / // % \*\* and names$"):
        parse("x +")


def test_tidy_changes_no_value() -> None:
    """a·(b·c)/d/e is a·b·c/(d·e)."""
    values = {name: Fraction(p) for name, p in zip("abcde", (2, 3, 5, 7, 11), strict=True)}
    tree = tidy(parse("a*(b*c)/d/e"))

    assert ("a*b*c/(d*e)", evaluate("a*(b*c)/d/e", values)) == (as_text(tree), tree.value_in(Fractions(values)))
