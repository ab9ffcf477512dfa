"""Polynomials of sizes: read, written and evaluated exactly, and refused where they are not an integer."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import NapkinError
from calc.symbolic.algebra import Algebra, evaluate_text, log2_ceiling, symbol, to_sympy

NAMES = ("B", "T", "d")

# Texts as records write them: sums and products of sizes and numbers, every operand in parentheses.
TEXTS = st.recursive(
    st.sampled_from([*NAMES, "1", "2", "3", "7"]),
    lambda inner: st.one_of(
        st.builds("({}) + ({})".format, inner, inner),
        st.builds("({}) - ({})".format, inner, inner),
        st.builds("({})*({})".format, inner, inner),
        st.builds("({})**{}".format, inner, st.integers(1, 2)),
        st.builds("-({})".format, inner),
    ),
    max_leaves=8,
)
SIZES = st.fixed_dictionaries({name: st.integers(1, 10**6) for name in NAMES})


def algebra(*texts: str) -> Algebra:
    return Algebra(NAMES, texts)


def python(text: str, sizes: dict[str, int]) -> Any:
    """What Python itself makes of the text: the other route to its value."""
    return eval(text, {"__builtins__": {}}, dict(sizes))


# -- a ring, compared with Python's integers -------------------------------------------------------------------------------


@given(TEXTS, SIZES)
def test_a_polynomial_has_the_value_that_python_computes(text: str, sizes: dict[str, int]) -> None:
    """However large: integers have no rounding."""
    a = algebra()

    assert python(text, sizes) == a.value(a.parse(text), sizes)
    assert python(text, sizes) == evaluate_text(text, sizes)


@given(TEXTS, TEXTS, TEXTS)
def test_polynomials_obey_the_laws_of_a_ring(p: str, q: str, r: str) -> None:
    """Equal polynomials compare equal however they were reached, which is what makes a step's check decisive."""
    a = algebra()
    x, y, z = a.parse(p), a.parse(q), a.parse(r)

    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert x * (y + z) == x * y + x * z
    assert x - x == a.constant(0)
    assert a.parse(f"({p})*(({q}) + ({r}))") == x * y + x * z


@given(TEXTS)
def test_text_reads_back_to_the_same_polynomial(text: str) -> None:
    """What a report prints is the polynomial, for us and for SymPy."""
    a = algebra()
    poly = a.parse(text)

    assert poly == a.parse(a.text(poly))
    assert sp.expand(to_sympy(a.text(poly)) - to_sympy(text)) == 0
    assert sp.expand(a.expr(poly) - to_sympy(text)) == 0


@given(TEXTS)
def test_terms_multiply_and_add_up_to_the_polynomial(text: str) -> None:
    """Each term is its coefficient times powers of sizes."""
    a = algebra()
    total = a.constant(0)
    for coefficient, powers in a.terms(a.parse(text)):
        product = a.constant(coefficient)
        for name, power in powers.items():
            product *= a.gen(name) ** power
        total += product

    assert a.parse(text) == total


def test_texts_are_written_as_sympy_writes_polynomials() -> None:
    """Terms in order of the first size's power, coefficient first, no factor 1, one sign between terms."""
    a = algebra()

    assert a.text(a.parse("-d + 3*T*B*T - 2")) == "3*B*T**2 - d - 2"
    assert a.text(a.parse("-B")) == "-B"
    assert a.text(a.parse("B - B")) == "0"
    assert a.text(a.parse("(B + 1)*(B - 1)")) == "B**2 - 1"
    assert a.text(a.parse("T*(T + 1)/2")) == "T**2/2 + T/2"
    assert a.text(7) == "7"
    assert a.text(a.constant(Fraction(3, 2))) == "3/2"


def test_plain_integers_read_like_polynomials() -> None:
    """A recording at concrete sizes is folded by the same code, on integers."""
    a = algebra()

    assert a.value(42, {}) == 42
    assert a.terms(42) == [(Fraction(42), {})]
    assert a.terms(0) == []
    assert a.expr(42) == 42


# -- halves and other fractions ----------------------------------------------------------------------------------------


@given(st.integers(1, 10**9))
def test_fractions_that_add_up_to_an_integer_are_exact(T: int) -> None:
    """T**2/2 + T/2 has half-integer terms and an integer value: T(T+1)/2."""
    a = algebra()

    assert a.value(a.parse("T**2/2 + T/2"), {"T": T}) == T * (T + 1) // 2


def test_a_value_that_is_no_integer_is_refused() -> None:
    """Half of 7 bytes is not a number of bytes: 7/2 is named, not rounded."""
    a = algebra()

    assert a.value(a.parse("T/2"), {"T": 8}) == 4
    with pytest.raises(NapkinError, match=r"^T/2 is 7/2, not an integer, at \{'T': 7\}: choose sizes that divide$"):
        a.value(a.parse("T/2"), {"T": 7})


@pytest.mark.parametrize("text", ["1.5*T", "T/d", "T/0", "T**d", "T**-1", "q"])
def test_what_is_no_polynomial_of_the_sizes_is_refused(text: str) -> None:
    """Never read as something near it."""
    with pytest.raises(NapkinError, match=r"^cannot read the size .*: it is not a polynomial in B, T, d$"):
        algebra().parse(text)


@pytest.mark.parametrize("text", ["1.5*T", "f(T)", "T @ d", "'T'", "T if d else B", "[T]", "f(T, n=2)", "T < d < B", "1j", "1e999"])
def test_what_is_no_size_has_no_value_and_no_expression(text: str) -> None:
    """The readers that know no set of sizes refuse the same."""
    for read in (to_sympy, lambda text: evaluate_text(text, {"T": 5, "d": 3, "B": 2}), algebra().parse):
        with pytest.raises(NapkinError, match=r"^cannot read (the size '|.*: write it with \+ - \* / // % \*\* and floor, )"):
            read(text)


# -- atoms: sizes that are not a polynomial ---------------------------------------------------------------------------------

ATOMS = {
    "floor((T)/(2))": lambda T, d: T // 2,
    "ceiling((T)/(2))": lambda T, d: -(-T // 2),
    "Max(T, d)": max,
    "Min(T, d)": min,
    "Mod(T, 3)": lambda T, d: T % 3,
    "T//3": lambda T, d: T // 3,
    "T % d": lambda T, d: T % d,
    "ceiling(log(T, 2))": lambda T, d: next(n for n in range(99) if 2**n >= T),
    "ceiling(log((2*T + d), 2))": lambda T, d: next(n for n in range(99) if 2**n >= 2 * T + d),
    "floor((floor((T)/(2)) + d)/(3))": lambda T, d: (T // 2 + d) // 3,
}


@pytest.mark.parametrize("text", ATOMS)
@given(T=st.integers(1, 10**6), d=st.integers(1, 10**3))
def test_an_atom_is_a_generator_of_its_own_with_an_exact_value(text: str, T: int, d: int) -> None:
    """It multiplies and cancels like a size, and is evaluated from the sizes in it."""
    a = algebra(text)
    atom, expected = a.parse(text), ATOMS[text](T, d)

    assert a.value(atom, {"T": T, "d": d}) == expected
    assert a.value(a.parse(f"3*({text})*({text}) - B"), {"T": T, "d": d, "B": 5}) == 3 * expected**2 - 5
    assert atom * 2 - atom - atom == a.constant(0)
    assert evaluate_text(text, {"T": T, "d": d}) == expected


def test_many_polynomials_at_the_same_sizes_evaluate_an_atom_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At T = 13, with 13//4 = 3: 3*5 + 2 and 3**2 - 5. Other sizes have another value."""
    a, evaluated = algebra("T//4"), list[str]()

    def counting(text: str, sizes: dict[str, int]) -> Fraction:
        evaluated.append(text)
        return evaluate_text(text, sizes)

    monkeypatch.setattr(sys.modules[Algebra.__module__], "evaluate_text", counting)
    value = a.at({"T": 13, "B": 5})

    assert [17, 4] == [value(a.parse(text)) for text in ("(T//4)*B + 2", "(T//4)**2 - B")]
    assert len(evaluated) == 1
    assert a.value(a.parse("T//4"), {"T": 29}) == 7


@pytest.mark.parametrize("text", [text for text in ATOMS if text.endswith(")")])
def test_an_atom_reads_back_from_its_text_and_in_sympy(text: str) -> None:
    """At T = 17, d = 5 SymPy's own function gives what ours gives. Records write atoms as functions, never as // or %."""
    a = algebra(text)
    poly = a.parse(f"3*({text}) + d")

    assert a.parse(a.text(poly)) == poly
    for expr in (a.expr(poly), to_sympy(a.text(poly))):
        assert expr.subs({symbol("T"): 17, symbol("d"): 5}) == 3 * ATOMS[text](17, 5) + 5


@given(n=st.integers(1, 10**9))
def test_a_rounded_logarithm_of_a_size_is_written_down_or_computed(n: int) -> None:
    """A number is doubled that often until it reaches the size; a symbol's is an atom with the same value."""
    stages = log2_ceiling(n)

    assert isinstance(stages, int)
    assert 2**stages >= n
    assert n == 1 or 2 ** (stages - 1) < n
    assert evaluate_text(str(log2_ceiling("(n)")), {"n": n}) == stages


def test_an_atom_is_spelt_in_one_way() -> None:
    """Blanks do not make two atoms of one, or like terms would stay apart."""
    a = algebra("floor(T/2)", "floor( T / 2 )")

    assert a.parse("floor(T/2)") == a.parse("floor( T / 2 )")
    assert a.names == ("B", "T", "d", "floor(T / 2)")


# -- symbols ---------------------------------------------------------------------------------------------------------------


def test_there_is_one_symbol_for_a_dimension() -> None:
    """Same-named symbols with other assumptions would not cancel."""
    assert to_sympy("B") - symbol("B") == 0
    assert algebra().expr(algebra().parse("B")) == symbol("B")
    assert symbol("B").is_integer
    assert symbol("B").is_positive


@pytest.mark.parametrize("name", ["N", "E", "S", "I", "O", "Q", "C", "pi", "beta", "gamma", "zeta", "Max_"])
def test_names_that_sympy_uses_itself_are_plain_dimensions(name: str) -> None:
    """A model with E experts or N points must not meet Euler's number or ``sympy.N``."""
    a = Algebra([name])

    assert to_sympy(f"2*{name} + 1") == 2 * symbol(name) + 1
    assert a.value(a.parse(f"2*{name} + 1"), {name: 5}) == 11


def test_an_algebra_of_no_sizes_is_of_numbers() -> None:
    """A model whose every size is fixed still adds up."""
    a = Algebra([])

    assert a.value(a.parse("3*4 + 2"), {}) == 14
    assert a.text(a.parse(14)) == "14"


def test_a_sum_of_hundreds_of_terms_is_read() -> None:
    """The sign of each is its own."""
    text = "d" + "".join(f" {'+-'[i % 2]} {i + 2}*B**{i + 1}" for i in range(600))

    read = to_sympy(text)

    assert len(read.args) == 601
    assert read.coeff(symbol("B"), 600) == -601
