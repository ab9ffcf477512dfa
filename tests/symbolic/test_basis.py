"""From a model's dimensions to free symbols and back: nothing is lost, and ``h*k`` reads ``d`` again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.dimensions import Dim, evaluate, resolve
from calc.errors import SpecError
from calc.graph.basis import Basis, Fold, Folding, basis_of
from calc.symbolic.algebra import Algebra, evaluate_text

GPT2 = {
    "B": Dim(8), "d": Dim(768, multiple_of="h"), "h": Dim(12), "k": Dim("d/h", tied=True), "f": Dim("4*d"), "L": Dim(12),
}  # fmt: skip

# Query heads in groups, an even head width, a width declared before its parts.
LLAMA = {
    "B": Dim(1), "d": Dim(48, multiple_of="h"), "h": Dim(6, multiple_of="g"), "g": Dim(2), "k": Dim("d/h", tied=True, multiple_of=2),
}  # fmt: skip

FREE_HEADS = {"d": Dim(40), "h": Dim(6, multiple_of="g"), "g": Dim(2), "k": Dim(10, multiple_of=2)}
TIED_SUM = {"d": Dim(7), "f": Dim(11), "w": Dim("2*d + f", tied=True), "u": Dim("w*w", tied=True)}
SCALED = {"d": Dim(12, multiple_of=4), "q": Dim("d/4", tied=True)}
CONSTANT = {"d": Dim(5), "c": Dim(3, tied=True)}
PLAIN = {"B": Dim(2), "T": Dim(7, at_most="C"), "C": Dim(11)}

ALL = {"gpt2": GPT2, "llama": LLAMA, "free heads": FREE_HEADS, "tied sum": TIED_SUM, "scaled": SCALED, "constant": CONSTANT, "plain": PLAIN}


def numbers(basis: Basis, seed: list[int]) -> dict[str, int]:
    return {name: seed[i % len(seed)] for i, name in enumerate(basis.symbols)}


def folded(dims: Mapping[str, Dim], size: str, texts: Sequence[str] = ()) -> tuple[Folding, str]:
    """A size in basis symbols, in the dimensions: with what folds it, which knows the atoms of ``texts``."""
    basis = basis_of(dims)
    algebra = Algebra(basis.symbols, texts)
    fold = Folding(basis, algebra)
    return fold, fold.outer.text(fold(algebra.parse(size)))


SEEDS = st.lists(st.integers(1, 1000), min_size=8, max_size=8)


# -- symbols -----------------------------------------------------------------------------------------------------------


def test_a_width_of_heads_becomes_a_product() -> None:
    """d is h*k, so no size of the step divides anything; f stands for itself, since it may be set on its own."""
    basis = basis_of(GPT2)

    assert basis.symbols == ("B", "k", "h", "f", "L")
    assert basis.define["d"] == "(h)*(k)"
    assert basis.define["f"] == "f"
    assert basis.folds == (Fold("d", "h", "k"),)
    assert basis.hidden == {}


def test_divisibilities_nest() -> None:
    """h = g*r and k = 2*κ inside d = h*k: three symbols for four dimensions, and parts fold before what they make."""
    basis = basis_of(LLAMA)

    assert set(basis.symbols) == {"B", "g", "h_per_g", "k_per_2"}
    assert set(basis.folds[:2]) == {Fold("h", "g", "h_per_g"), Fold("k", 2, "k_per_2")}
    assert basis.folds[2:] == (Fold("d", "h", "k"),)
    assert basis.hidden == {"h_per_g": "h / g", "k_per_2": "k / 2"}
    assert basis.sizes({"B": 5, "g": 3, "h_per_g": 7, "k_per_2": 11}) == {"B": 5, "d": 3 * 7 * 2 * 11, "h": 21, "g": 3, "k": 22}


def test_a_head_width_of_its_own_is_free() -> None:
    """d then has nothing to do with h and k."""
    basis = basis_of(FREE_HEADS)

    assert "d" in basis.symbols
    assert basis.define["d"] == "d"


def test_tied_sizes_are_written_in_the_others() -> None:
    """w = 2*d + f, u = w*w: two symbols."""
    basis = basis_of(TIED_SUM)

    assert basis.symbols == ("d", "f")
    assert basis.sizes({"d": 7, "f": 11}) == {"d": 7, "f": 11, "w": 25, "u": 625}


def test_a_size_that_is_a_constant_is_no_symbol() -> None:
    """A tied integer stays that integer."""
    assert basis_of(CONSTANT).symbols == ("d",)
    assert basis_of(CONSTANT).define["c"] == "3"


def test_a_multiple_of_one_is_no_condition() -> None:
    """Nor is a multiple of itself."""
    assert basis_of({"d": Dim(5, multiple_of=1)}).symbols == ("d",)
    assert basis_of({"d": Dim(5, multiple_of="d")}).folds == ()


def test_a_quotient_needs_its_whole_declared_a_multiple() -> None:
    """k = d/h without d a multiple of h would be no integer at most sizes; the message says what to write."""
    with pytest.raises(SpecError, match=r"^dimension k is tied to d/h: declare d as Dim\(…, multiple_of='h'\)$"):
        basis_of({"d": Dim(12), "h": Dim(3), "k": Dim("d/h", tied=True)})
    with pytest.raises(SpecError, match=r"^dimension q is tied to d/4: declare d as Dim\(…, multiple_of=4\)$"):
        basis_of({"d": Dim(12), "q": Dim("d/4", tied=True)})


def test_a_regime_may_tie_dimensions() -> None:
    """One sequence, and as many key heads as query heads."""
    basis = basis_of({"B": Dim(1), "T": Dim(7), "h": Dim(3), "g": Dim(3)}, {"B": "1", "g": "h"})

    assert basis.symbols == ("T", "h")
    assert basis.sizes({"T": 7, "h": 3}) == {"B": 1, "T": 7, "h": 3, "g": 3}


def test_independent_sizes_are_the_models_own_as_far_as_they_are_known() -> None:
    """A width in place of its quotient; without the heads, no width."""
    basis = basis_of({"d": Dim(768, multiple_of="h"), "h": Dim(12), "q": Dim(16, multiple_of=4), "L": Dim(12)})

    assert basis.independent_sizes({"d_per_h": 5, "h": 7, "q_per_4": 3, "L": 2}) == {"d": 35, "h": 7, "q": 12, "L": 2}
    assert basis.independent_sizes({"d_per_h": 5, "L": 2}) == {"L": 2}


# -- there and back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", ALL.values(), ids=ALL)
@given(seed=SEEDS)
def test_values_and_sizes_are_inverse(dims: Mapping[str, Dim], seed: list[int]) -> None:
    """Symbols to dimensions and back, at any sizes."""
    basis = basis_of(dims)
    values = numbers(basis, seed)
    sizes = basis.sizes(values)

    assert values == basis.values(sizes)
    assert sizes == basis.sizes(basis.values(sizes))
    assert set(sizes) == set(dims)


@pytest.mark.parametrize("dims", ALL.values(), ids=ALL)
@given(seed=SEEDS)
def test_sizes_made_of_symbols_keep_every_declaration(dims: Mapping[str, Dim], seed: list[int]) -> None:
    """Multiples divide, tied dimensions equal their expressions: no run can meet sizes that the model refuses."""
    basis = basis_of(dims)
    sizes = basis.sizes(numbers(basis, seed))

    for name, dim in dims.items():
        if dim.multiple_of is not None:
            assert sizes[name] % (dim.multiple_of if isinstance(dim.multiple_of, int) else sizes[dim.multiple_of]) == 0
        if dim.tied:
            assert sizes[name] == evaluate(str(dim.default), sizes)


@pytest.mark.parametrize("dims", ALL.values(), ids=ALL)
def test_the_defaults_of_a_model_come_back(dims: Mapping[str, Dim]) -> None:
    """What the spec resolves to is a point of the basis."""
    sizes = resolve(dims, {})
    basis = basis_of(dims)

    assert sizes == basis.sizes(basis.values(sizes))


# -- folding -----------------------------------------------------------------------------------------------------------


def polynomials(basis: Basis) -> st.SearchStrategy[str]:
    monomial = st.builds(
        lambda c, powers: "*".join([f"({c})", *(f"{n}**{p}" for n, p in zip(basis.symbols, powers, strict=False))]),
        st.integers(-50, 50),
        st.lists(st.integers(0, 4), min_size=len(basis.symbols), max_size=len(basis.symbols)),
    )
    return st.lists(monomial, min_size=1, max_size=6).map(" + ".join)


@pytest.mark.parametrize("dims", ALL.values(), ids=ALL)
@given(data=st.data(), seed=SEEDS)
def test_folding_changes_no_value(dims: Mapping[str, Dim], data: st.DataObject, seed: list[int]) -> None:
    """A polynomial in the symbols and its folded form agree at all sizes of the model."""
    basis = basis_of(dims)
    inner = Algebra(basis.symbols)
    written = data.draw(polynomials(basis))
    fold = Folding(basis, inner)
    values = numbers(basis, seed)
    known = {**values, **basis.sizes(values)}
    folded = fold.outer.text(fold(inner.parse(written)))

    assert evaluate_text(written, values) == evaluate_text(folded, known)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("h*k", "d"),
        ("3*h**2*k**2", "3*d**2"),
        ("h*k**2", "d*k"),
        ("h**2*k", "d*h"),
        ("B*h", "B*h"),
        ("k", "k"),
        ("4*h*k*f + 2*h", "4*d*f + 2*h"),
        ("(h*k)*(h*k + 1)", "d**2 + d"),
        ("7", "7"),
    ],
)
def test_head_products_read_as_the_width(inner: str, outer: str) -> None:
    """Every pair of h and k becomes a d; what is left over stays."""
    fold, text = folded(GPT2, inner)

    assert text == fold.outer.text(fold.outer.parse(outer))


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("g*h_per_g*2*k_per_2", "d"),
        ("g*h_per_g", "h"),
        ("2*k_per_2", "k"),
        ("k_per_2", "k/2"),
        ("g*k_per_2", "g*k/2"),
        ("g**2*h_per_g*k_per_2", "g*d/2"),
        ("h_per_g", "h/g"),
        ("B*h_per_g**2", "B*(h/g)**2"),
    ],
)
def test_nested_products_fold_from_the_inside(inner: str, outer: str) -> None:
    """g*(h/g) is h, 2*(k/2) is k, and h*k is d; half a head width reads k/2, and a group is h/g where no dimension is called so."""
    fold, text = folded(LLAMA, inner)

    assert text == fold.outer.text(fold.outer.parse(outer))


def test_a_plain_integer_folds_to_itself() -> None:
    """Counts that depend on no size."""
    fold = Folding(basis_of(GPT2), Algebra(basis_of(GPT2).symbols))

    assert fold.outer.text(fold(42)) == "42"


def test_atoms_survive_folding() -> None:
    """floor(f/2) is a generator inside and outside."""
    assert folded(GPT2, "h*k*floor(f/2)", ["floor(f/2)"])[1] == "d*floor(f / 2)"


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("floor(8*g*h_per_g*2*k_per_2/3)", "floor(8 * d / 3)"),
        ("floor((floor(4*k_per_2/3) + 7)/8)", "floor((floor(2 * k / 3) + 7) / 8)"),
        ("B*floor(B*h_per_g/2)", "B*floor(B * (h / g) / 2)"),
        ("(g*h_per_g + 1)//(2*k_per_2)", "((h + 1) // k)"),
        ("ceiling(log(h_per_g, 2))", "ceiling(log(h / g, 2))"),
        ("floor(B/2)", "floor(B / 2)"),
        ("floor(h_per_g/(2*k_per_2))", "floor(h / (g * k))"),
    ],
)
def test_sizes_inside_what_is_rounded_are_folded_too(inner: str, outer: str) -> None:
    """No symbol of the basis is left in them; over one denominator, as people write it."""
    _, text = folded(LLAMA, inner, [inner])

    assert outer == text
    sizes = {"B": 5, "g": 3, "h": 21, "k": 22, "d": 462}
    assert evaluate_text(text, sizes) == evaluate_text(inner, {"B": 5, "g": 3, "h_per_g": 7, "k_per_2": 11})


@pytest.mark.parametrize(("inner", "outer"), [("floor(k_per_2*B*h_per_g/(B*h_per_g))", "floor(k / 2)"), ("k_per_2*B/B", "k/2")])
def test_a_quotient_in_which_sizes_cancel_is_none(inner: str, outer: str) -> None:
    """As torch writes it where a group is as large as the batch."""
    define = {"B": "B", "h": "(B)*(h_per_g)", "g": "B", "k": "(2)*(k_per_2)"}
    basis = Basis(("B", "h_per_g", "k_per_2"), define, (Fold("h", "g", "h_per_g"), Fold("k", 2, "k_per_2")))
    algebra = Algebra(basis.symbols, [inner])
    fold = Folding(basis, algebra)

    assert outer == fold.outer.text(fold(algebra.parse(inner)))
