"""Sweeps: a grid gives what each of its points gives, exactly, and says where there is nothing to give."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calc
from calc.dimensions import Dim, resolve
from calc.errors import BadInputError, DimensionError, NapkinError, NegativeCountError, UnknownQuantityError
from calc.pipeline.precomputed import Stored
from calc.pipeline.precomputed.index import FOLDER
from calc.pipeline.sweep import FurtherTraces, SweptSizes, sweep, sweep_expression
from calc.pipeline.sweep_grid import Trouble, _default
from calc.symbolic import arrays
from calc.symbolic.exact import evaluate_text, holds
from calc.symbolic.polynomials import Point, Polynomial, Table

NAMES = ("B", "T", "d", "floor(T/2)")


def _form(name: str) -> Stored:
    return Stored(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def _polynomials() -> st.SearchStrategy[tuple[Table, Polynomial]]:
    """A table of monomials of up to three factors, and a polynomial over them with a denominator."""
    monomial = st.dictionaries(st.integers(0, len(NAMES) - 1), st.integers(1, 3), max_size=3).map(lambda d: tuple(sorted(d.items())))
    numerators = st.integers(-(10**6), 10**6).filter(bool)

    def of(monomials: list[tuple[tuple[int, int], ...]]) -> st.SearchStrategy[tuple[Table, Polynomial]]:
        table = Table(NAMES, tuple(monomials), ())
        terms = st.lists(numerators, min_size=len(monomials), max_size=len(monomials))
        return st.tuples(st.integers(1, 6), terms).map(lambda p: (table, Polynomial(p[0], tuple(enumerate(p[1])))))

    return st.lists(monomial, min_size=1, max_size=6, unique=True).flatmap(of)


def _exactly(table: Table, polynomial: Polynomial, sizes: Mapping[str, int]) -> Fraction:
    """The polynomial read off its own text, by fractions."""
    return evaluate_text(table.text(polynomial), sizes)


@given(_polynomials(), st.tuples(*(st.integers(1, 10**4) for _ in range(3))))
def test_a_polynomial_at_a_point_is_that_of_fractions(drawn: tuple[Table, Polynomial], sizes: tuple[int, int, int]) -> None:
    """The integer where it is one; else a refusal, never a rounded number."""
    table, polynomial = drawn
    at = dict(zip(NAMES, sizes, strict=False))
    expected = _exactly(table, polynomial, at)

    if expected.denominator == 1:
        assert expected == Point(table, at)(polynomial)
    else:
        with pytest.raises(NapkinError, match="not an integer"):
            Point(table, at)(polynomial)


@given(_polynomials(), st.tuples(*(st.lists(st.integers(1, 10**5), min_size=1, max_size=4) for _ in range(3))))
def test_a_mesh_is_all_of_its_points(drawn: tuple[Table, Polynomial], axes: tuple[list[int], ...]) -> None:
    """At every point of a grid of drawn sizes, also where the values are beyond 64 bits: 10⁶·(10⁵)⁹ is."""
    table, polynomial = drawn
    meshes = np.meshgrid(*axes, indexing="ij", sparse=True)
    spread = dict(zip(NAMES, meshes, strict=False))
    numerators = np.broadcast_to(arrays.Mesh(table, spread)(polynomial), tuple(map(len, axes)))

    for index, sizes in zip(np.ndindex(numerators.shape), itertools.product(*axes), strict=True):
        at = dict(zip(NAMES, sizes, strict=False))
        assert _exactly(table, polynomial, at) == Fraction(int(numerators[index]), polynomial.over)


CONDITIONS = ("B*T < 2*B", "B + T >= 3*T", "B == T", "B % 3 != T // 5", "not B < T", "B < 9 or T < 9")


@given(st.integers(1, 2**62), st.integers(1, 2**62), st.sampled_from(CONDITIONS))
def test_a_condition_over_arrays_is_that_at_points(b: int, t: int, text: str) -> None:
    """Products of two sizes of 62 bits do not wrap round."""
    swept = arrays.holds(text, {"B": np.asarray([b, 1]), "T": np.asarray([t, 1])})

    assert [holds(text, {"B": b, "T": t}), holds(text, {"B": 1, "T": 1})] == swept.tolist()


# -- models -----------------------------------------------------------------------------------------------------------------


SWEPT: dict[str, dict[str, Sequence[int]]] = {
    "llama3-8b": {"B": (1, 3), "T": (7, 1024), "L": (1, 2, 32), "d": (100, 4096), "h": (8, 32), "g": (3, 8)},
    "gpt2": {"B": (1, 8), "T": (1, 1024, 1025), "h": (5, 12), "L": (2, 12)},
    "transformers-gpt2": {"B": (1, 2, 5), "T": (3, 1024), "V": (50257, 100)},
    "mixtral": {"B": (1, 2), "E": (1, 8, 16), "e": (1, 2, 9), "T": (16, 17)},
}


@pytest.mark.parametrize("name", SWEPT)
def test_a_grid_is_all_of_its_points(name: str) -> None:
    """Where a point is refused by itself the grid has a gap, and everywhere else the same integers, of every known quantity."""
    form, axes = _form(name), SWEPT[name]

    _assert_all_points(form, axes, [q.name for q in form.quantities.values() if not q.unknown])


def _assert_all_points(form: Stored, axes: Mapping[str, Sequence[int]], known: Sequence[str]) -> int:
    """And how many of them have values."""
    table = sweep(form, SweptSizes(axes), known)
    for sizes, values in table.rows():
        at = dict(zip(axes, sizes, strict=True))
        try:
            expected: tuple[int | None, ...] = tuple(form.quantity(q).at(**at) if form.covers(at) else None for q in known)
        except DimensionError:
            expected = (None,) * len(known)
        assert expected == values, at
    assert sum(gap.points for gap in table.gaps) == sum(values[0] is None for _, values in table.rows())
    return sum(values[0] is not None for _, values in table.rows())


def test_where_the_step_reads_values_only_traced_sizes_hold() -> None:
    """Those of gpt2's step as it is stored: B = 8 with T = 1,024, and B = 30 with 84; at B = 13 and T = 71 it was traced in symbols."""
    data = json.loads((FOLDER / "gpt2.json").read_text(encoding="utf-8"))
    data["guards"].append(["B == 13 and T == 71", True, 0, True])

    assert 3 == _assert_all_points(Stored(data), {"B": [8, 13, 30], "T": [71, 80, 84, 1024]}, ["parameters"])


def test_a_grid_with_traced_cases_is_all_of_its_points() -> None:
    """Wherever the form does not hold (a batch of one, one feature), each point has what a derivation there gives."""
    names, axes = ("parameters", "activations.bytes", "memory.peak"), {"B": [1, 2], "D": [1, 4], "K": [1, 3]}
    spec = calc.load("two-layer")

    table = calc.sweep("two-layer", axes, names)

    assert ((), 8) == (table.gaps, table.points)
    for sizes, values in table.rows():
        there = calc.derive(spec, dict(zip(axes, sizes, strict=True)))
        assert values == tuple(there[name].value for name in names)


def test_a_case_that_cannot_be_traced_is_a_gap_with_its_reason() -> None:
    """Of two points at which the form does not hold one cannot be traced; the other is, and the first has no value."""
    data = json.loads((FOLDER / "linear.json").read_text(encoding="utf-8"))
    usual = json.loads(json.dumps(data))
    data |= {"guards": [["B != 1 and B != 3", True, 0]], "certified": [], "cases": []}

    def trace(sizes: Mapping[str, int]) -> Stored:
        if sizes["B"] == 1:
            raise NapkinError("no such step")
        return Stored(usual)

    table = sweep(Stored(data), SweptSizes({"B": [1, 2, 3], "D": [5], "K": [7]}), ["parameters"], FurtherTraces(trace))
    one = sweep(Stored(data), SweptSizes({"B": [1, 2, 3], "D": [5], "K": [7]}), ["parameters"], FurtherTraces(trace, 1))

    assert [(1, {"B": 1, "D": 5, "K": 7}, "no such step", True)] == [(g.points, g.first, g.because, g.possible) for g in table.gaps]
    assert [None, 42, 42] == [values[0] for _, values in table.rows()]  # 5·7 + 7
    assert [None, 42, None] == [values[0] for _, values in one.rows()]
    assert one.gaps[-1].because.endswith("in the traced cases, 1 at most: give fewer sizes, or --cases 2")


def test_listed_points_are_those_of_the_list() -> None:
    """Sizes go together line by line: linear has D·K + K parameters, 2·3 + 3 = 9 and 5·7 + 7 = 42."""
    table = sweep(_form("linear"), SweptSizes({"D": [2, 5], "K": [3, 7]}, listed=True), ["parameters"])

    assert [((2, 3), (9,)), ((5, 7), (42,))] == list(table.rows())


def test_a_point_that_cannot_be_is_a_gap_with_its_reason() -> None:
    """h = 5 does not divide d = 768, and T = 2,048 is more than C: of 4 points 2 + 1 have no value."""
    table = sweep(_form("gpt2"), SweptSizes({"h": [5, 12], "T": [1024, 2048]}), ["parameters"])

    assert [("k = d/h is not an integer", 2, {"h": 5, "T": 1024}), ("T is more than C", 1, {"h": 12, "T": 2048})] == [
        (gap.because, gap.points, gap.first) for gap in table.gaps
    ]


def test_beyond_64_bits_numbers_stay_exact() -> None:
    """linear with D = K = 2³¹ and B = 2⁸: 2·2⁸·2³¹·2³¹ = 2⁷¹; its neighbor of B = 1 fits."""
    table = sweep(_form("linear"), SweptSizes({"B": [2, 2**8], "D": [2**31], "K": [2**31]}), ["flops.forward.matmul"])

    assert [2**64, 2**71] == [values[0] for _, values in table.rows()]


def test_a_planted_wrap_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the foresight taken away the same sweep gives another number: the test above can fail."""
    monkeypatch.setattr(arrays, "widest", lambda largest: np.int64)
    with pytest.raises(NegativeCountError, match=r"^flops\.forward\.matmul is -9,223,372,036,854,775,808 at B = 1, "):
        sweep(_form("linear"), SweptSizes({"B": [2**8, 1], "D": [2**31, 1], "K": [2**31, 1]}), ["flops.forward.matmul"])

    table = sweep(_form("linear"), SweptSizes({"B": [2**8, 1], "D": [2**31, 1], "K": [2**30, 1]}), ["flops.forward.matmul"])
    assert 2**70 != next(table.rows())[1][0]


REFUSED = {
    "no such dimension": ({"Q": [1]}, ["parameters"], DimensionError, "this model has no dimension 'Q': it has B, D, K"),
    "too many points": ({"B": range(1, 10_001), "D": range(1, 10_001)}, ["parameters"], BadInputError,
                        "100,000,000 points, more than --most 20,000,000: give fewer sizes, or --most 100000000"),
    "no sizes": ({"B": []}, ["parameters"], BadInputError, "B has no sizes: give at least one"),
    "zero": ({"B": [4, 0]}, ["parameters"], DimensionError, "B = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
    "no integers": ({"B": [1.5, 2.7]}, ["parameters"], DimensionError,
                    "B = 1.5 is not an integer: sizes are integers from 1 to 2**63 - 1"),
    "one size": ({"B": 8}, ["parameters"], BadInputError, "B = 8: give a list of its sizes, e.g. [1, 2, 4]"),
    "nothing to work out": ({"B": [4]}, [], BadInputError, "nothing to sweep: name a quantity, e.g. memory.peak"),
    "a quantity there is not": ({"B": [4]}, ["master_weights.bytes"], UnknownQuantityError,
                                "master_weights.bytes is unknown: precision fp32 has no copies of the weights"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_swept_is_refused(case: str) -> None:
    """In one line, before any work."""
    sizes, quantities, error, message = REFUSED[case]

    with pytest.raises(error) as caught:
        sweep(_form("linear"), SweptSizes(sizes), quantities)
    assert message == str(caught.value)


@pytest.mark.parametrize("default", ["B + D/B", "D/(2*B)", "D/B*2", "2*D + B"])
def test_a_default_is_read_as_it_is_at_a_point(default: str) -> None:
    """B + D/B is a sum with a quotient in it, not (B + D)/B; where a quotient leaves a rest there is a gap, or the point is refused."""
    table = {"B": Dim(2), "D": Dim(12), "K": Dim(default)}

    for sizes in itertools.product((1, 2, 3, 4), (12, 24, 30)):
        at = dict(zip(("B", "D"), sizes, strict=True))
        trouble: Trouble = []
        try:
            expected = resolve(table, at)["K"]
        except NapkinError:
            expected = None
        swept = int(_default("K", table["K"], {name: np.asarray([size]) for name, size in at.items()}, trouble)[0])
        assert expected == (None if any(bad.any() for bad, _ in trouble) else swept)


# -- expressions --------------------------------------------------------------------------------------------------------------


EXPRESSIONS = ("12*L*d**2", "(L + d)**5 - L*d", "ceiling(L/d) + floor(d/L)", "Max(L, d, 7)*Min(L, d)", "L % d + L // d", "4*L*d/(2*L)")
SIZES = st.lists(st.integers(1, 10**9), min_size=1, max_size=3)


@given(SIZES, SIZES, st.sampled_from(EXPRESSIONS))
def test_an_expression_over_a_grid_is_that_at_points(depths: list[int], widths: list[int], text: str) -> None:
    """At every point, by fractions."""
    swept = sweep_expression(text, SweptSizes({"L": depths, "d": widths}))

    assert [int(evaluate_text(text, {"L": a, "d": b})) for a in depths for b in widths] == [values[0] for _, values in swept.rows()]


UNREADABLE = {
    "code": ("__import__('os')", """cannot read "__import__('os')": write it with + - * / // % ** and floor, ceiling, Max, Min, Mod"""),
    "no expression": ("12*", "cannot read the expression '12*': write it with + - * / // % ** and names"),
    "a name there is not": ("L*x", "'x' of the expression has no size: give x=…, or use only L"),
    "a fraction": ("L/7", "L / 7 is not an integer at all points: write // or ceiling(…), or choose sizes that divide"),
    "by nothing": ("L//(L - 12)", "L // (L - 12) divides by 0 at some of the points"),
    "huge": ("((L**64)**64)**64", "(L ** 64) ** 64 is too large: numbers here have up to 4096 binary digits"),
    "a power of a size": ("L**L", "an exponent must be a small integer: L ** L"),
    "powers of powers": ("9**9**9**9*L", "an exponent must be a small integer: 9 ** 9 ** 9 ** 9"),
    "brackets without end": ("(" * 5000, None),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_expression_that_cannot_be_is_refused(case: str) -> None:
    """Nothing of it is run, and no fraction is rounded."""
    text, message = UNREADABLE[case]

    with pytest.raises(NapkinError) as caught:
        sweep_expression(text, SweptSizes({"L": [12]}))
    assert message in (None, str(caught.value))
