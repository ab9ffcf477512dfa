"""Operations over named dimensions: shapes and counts by hand, orders against every other, gradients against autograd."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.mathematics.einsum import steps as steps_
from calc.mathematics.einsum.check import check
from calc.mathematics.einsum.operation import Operation, operation
from calc.mathematics.einsum.order import alternatives, best, left_to_right
from calc.mathematics.einsum.pattern import ELLIPSIS, equation, read, sizes_of
from calc.mathematics.einsum.steps import Count, product, total

PRIMES = (2, 3, 5, 7, 11, 13)


def made(text: str, *words: str, how: str = "", item_size: int = 4) -> Operation:
    pattern = read(text)
    return operation(pattern, sizes_of(pattern, words), item_size, how)


def at_primes(text: str, how: str = "") -> Operation:
    """Every dimension another prime, so that two that are swapped cannot hide."""
    pattern = read(text)
    return operation(pattern, dict(zip(pattern.names, PRIMES, strict=False)), 4, how)


# -- counts by hand ---------------------------------------------------------------------------------------------------------------


def test_a_contraction_takes_two_flop_for_each_combination() -> None:
    """2·2·3·5·7 = 420; read 30 + 35 elements and write 42, of 4 bytes."""
    op = made("b s d, d f -> b s f", "b=2", "s=3", "d=5", "f=7")

    assert ("2*b*s*d*f", 420) == (op.flops.text, op.flops.at(op.sizes))
    assert 4 * (30 + 35 + 42) == op.bytes.at(op.sizes)
    assert (2, 3, 7) == op.pattern.result.shape(op.sizes)
    assert op.intensity is not None
    assert 420 / 428 == float(op.intensity)
    assert "Y[b, s, f] = Σ_d A[b, s, d] B[d, f]" == op.equation


def test_the_lecture_s_matrix_product_is_2bdk() -> None:
    """B = 16384, D = 32768, K = 8192: 8,796,093,022,208."""
    op = made("B D, D K -> B K", "B=16384", "D=32768", "K=8192")

    assert 2 * 16384 * 32768 * 8192 == 8796093022208 == op.flops.at(op.sizes)


def test_without_sizes_counts_are_expressions() -> None:
    """And nothing has a value."""
    op = made("b s d, d f -> b s f", "d=5")

    assert ("2*b*s*d*f", None, None, ("b", "s", "f")) == (op.flops.text, op.flops.at(op.sizes), op.intensity, op.missing)
    assert ("b", "s", "f") == op.pattern.result.shape(op.sizes)


@pytest.mark.parametrize(
    ("text", "how", "flops", "elements"),
    [
        ("b s d -> b d", "sum", "b*s*d - b*d", "b*s*d + b*d"),
        ("b s d -> b d", "mean", "b*s*d", "b*s*d + b*d"),
        ("b s d -> b d", "max", "b*s*d - b*d", "b*s*d + b*d"),
        ("b s ->", "", "b*s - 1", "b*s + 1"),
        ("i, j -> i j", "", "i*j", "i + j + i*j"),  # no dimension is summed: one multiplication each
        ("b s d, d f -> b f", "", "2*b*d*f + b*s*d - b*d", "b*s*d + d*f + b*f"),  # s is summed before the product
        ("b (h k) -> b h k", "", "0", "0"),
        ("b t h k -> b h t k", "", "0", "0"),
        ("b t h k -> b t (h k)", "", "0", "0"),
        ("b h t k -> b t (h k)", "", "0", "2*b*h*t*k"),  # h and k do not follow one another: a copy
        ("b d -> b t d", "", "0", "0"),  # stride 0
        ("b d -> b (t d)", "", "0", "b*d + b*t*d"),
        ("... d -> ...", "sum", "rest_*d - rest_", "rest_*d + rest_"),
    ],
)
def test_flops_and_elements_moved_are_those_counted_by_hand(text: str, how: str, flops: str, elements: str) -> None:
    """A reduction of n elements is n - 1; a view moves nothing."""
    op = made(text, how=how, item_size=1)

    assert (flops, elements) == (op.flops.text, op.bytes.text)


# -- order ------------------------------------------------------------------------------------------------------------------------


def every_order(names: tuple[str, ...]) -> list[object]:
    """Every way to contract two at a time, as pairs of pairs."""
    if len(names) == 1:
        return [names[0]]
    actual = []
    rest = names[1:]
    for size in range(len(rest)):
        for chosen in itertools.combinations(rest, size):
            others = tuple(n for n in rest if n not in chosen)
            actual += [(a, b) for a in every_order((names[0], *chosen)) for b in every_order(others)]
    return actual


def flops_of(op: Operation, tree: object) -> int:
    """By hand: dimensions of a set are needed while an operand outside it or the result has them."""
    names = "ABCDEFGHIJ"[: len(op.pattern.operands)]
    of = {n: frozenset(axes.names) for n, axes in zip(names, op.pattern.operands, strict=True)}
    cost = 0

    def visit(node: object) -> tuple[frozenset[str], frozenset[str]]:
        nonlocal cost
        if isinstance(node, str):
            return frozenset(node), of[node]
        assert isinstance(node, tuple)
        (mine, left), (other, right) = visit(node[0]), visit(node[1])
        inside = mine | other
        needed = frozenset(op.pattern.result.names).union(*(of[n] for n in names if n not in inside))
        for a, b in ((left, right), (right, left)):
            rest = a & (b | needed)
            if rest != a:
                cost += math.prod(op.sizes[n] for n in a) - math.prod(op.sizes[n] for n in rest)
        left, right = left & (right | needed), right & (left | needed)
        summed = (left & right) - needed
        cost += (2 if summed else 1) * math.prod(op.sizes[n] for n in left | right)
        return inside, (left | right) & needed

    visit(tree)
    return cost


PATTERNS = (
    "a b, b c, c d -> a d",
    "a b, b c, c d, d e -> a e",
    "a, a b, b c, c -> ",
    "b q h k, b s h k, b s h v -> b q h v",
    "i r, j r, k r, r -> i j k",
    "a b, c d, b c -> a d",
    "a e, b, c b -> a c",
)


@pytest.mark.parametrize("text", PATTERNS)
@given(data=st.data())
@settings(max_examples=15)
def test_the_order_is_the_least_of_all_orders(text: str, data: st.DataObject) -> None:
    """Each is written out and counted by hand; none takes fewer FLOPs. numpy's own best takes no fewer either."""
    pattern = read(text)
    sizes = {name: data.draw(st.integers(2, 60), name) for name in pattern.names}
    op = operation(pattern, sizes)
    counted = {tree: flops_of(op, tree) for tree in every_order(tuple("ABCDEFGHIJ"[: len(pattern.operands)]))}

    assert min(counted.values()) == op.flops.at(sizes)
    shapes = [np.broadcast_to(0.0, [sizes[n] for n in axes.names]) for axes in pattern.operands]
    path = np.einsum_path(equation(pattern), *shapes, optimize=("optimal", 2**62))[0]
    if all(len(step) == 2 for step in path[1:]):
        left: list[object] = list("ABCDEFGHIJ"[: len(pattern.operands)])
        for i, j in path[1:]:
            pair = (left[i], left[j])
            left = [x for at, x in enumerate(left) if at not in (i, j)] + [pair]
        assert flops_of(op, left[0]) >= min(counted.values())


def test_a_wide_middle_is_contracted_first() -> None:
    """(100·2)(2·50)(50·3): from the left 2·100·2·50 + 2·100·50·3 = 50,000; from the right 600 + 1,200."""
    op = made("a b, b c, c d -> a d", "a=100", "b=2", "c=50", "d=3")

    assert (50000, 1800) == (op.plain.at(op.sizes), op.flops.at(op.sizes))
    assert ["b c, c d -> b d", "a b, b d -> a d"] == [step.pattern for step in op.steps]


def test_without_sizes_no_order_is_called_the_least() -> None:
    """It depends on them."""
    pattern = read("a b, b c, c d -> a d")

    assert best(pattern, {"a": 3}).how == "from left to right: the best order depends on sizes that are not given"
    assert left_to_right(pattern) == best(pattern, {"a": 3}).steps


def test_without_sizes_the_flops_of_all_three_orders_are_expressions() -> None:
    """AB first is 2abc + 2acd, BC first 2bcd + 2abd; A and C share nothing, so their product has all four dimensions twice."""
    actual = dict(alternatives(read("a b, b c, c d -> a d")))

    assert "2*a*b*c + 2*a*c*d" == actual["((A B) C)"].text
    sizes = {"a": 2, "b": 3, "c": 5, "d": 7}
    assert [2 * 30 + 2 * 70, 210 + 2 * 210, 2 * 105 + 2 * 42] == [
        actual[order].at(sizes) for order in ("((A B) C)", "((A C) B)", "((B C) A)")
    ]


# -- real runs --------------------------------------------------------------------------------------------------------------------

RUNS = (
    ("b s d, d f -> b s f", ""), ("b q h k, b s h k -> b h q s", ""), ("i, i ->", ""), ("i, j -> i j", ""), ("b i, b i -> b i", ""),
    ("b s d, d f -> b f", ""), ("b s d, d f -> s b", ""), ("a b, b c, c d -> a d", ""), ("i, i, i j, k, l -> l", ""),
    ("... i, i j -> ... j", ""), ("b s d -> d b", "sum"), ("b s d -> d", "mean"), ("b s d -> b", "max"), ("b s d -> s", "min"),
    ("b s d -> b d", "prod"), ("b (h k) -> b h k", ""), ("b t (h k) -> b h t k", ""), ("b h t k -> b t (h k)", ""),
    ("b t h k -> (b t) (h k)", ""), ("b d -> b t d", ""), ("b d -> (b t) d", ""), ("b d -> d (t b)", ""), ("a 1 b -> b a 1", ""),
)  # fmt: skip


@pytest.mark.parametrize(("text", "how"), RUNS)
def test_a_real_run_has_the_shape_flops_memory_and_gradients_that_are_derived(text: str, how: str) -> None:
    """einops on torch tensors under torch's FLOP counter and autograd, at distinct primes."""
    report = check(at_primes(text, how))

    assert not [v for v in report if v.verdict not in ("exact", "within")], report
    assert any("gradient of A" == v.quantity for v in report)


@pytest.mark.parametrize("plant", ["a factor of 2", "a dropped dimension", "backward as the forward"])
def test_an_error_planted_in_a_count_is_noticed(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch's counter."""
    op = at_primes("b s d, d f -> b s f")
    step = op.steps[0]
    if plant == "backward as the forward":
        monkeypatch.setattr(steps_.EinsumStep, "backward_matmul", property(lambda self: self.matmul))
    wrong = {"a factor of 2": product(step.matmul.terms[0][1]), "a dropped dimension": product(step.matmul.terms[0][1][1:], 2)}
    op = replace(op, steps=(replace(step, matmul=wrong.get(plant, step.matmul)),))

    assert [v for v in check(op) if v.verdict == "failed"]


def test_an_error_planted_in_what_is_a_view_is_noticed() -> None:
    """A merge that copies, called a view."""
    op = at_primes("b h t k -> b t (h k)")

    assert [v.quantity for v in check(replace(op, steps=(replace(op.steps[0], elements=Count()),))) if v.verdict == "failed"] == [
        "shares the operand's storage"
    ]


def test_dimensions_of_size_1_leave_the_counter_s_verdict_open() -> None:
    """torch leaves them out of its matmuls; the numbers are compared all the same."""
    actual = {v.quantity: v.verdict for v in check(made("b d, d f -> b f", "b=2", "d=1", "f=3"))}

    assert "not measured" == actual["FLOP of the matmuls of the forward"]
    assert actual["gradient of B"] in ("exact", "within")


@pytest.mark.parametrize(
    "text", ["b h t k -> b t (h k)", "b h t -> (t h b)", "b d -> (b t) d", "b d -> d (t b)", "b d -> b (t d)", "b t h -> h (b t)"]
)
@given(data=st.data())
@settings(max_examples=12)
def test_what_is_a_view_is_so_at_sizes_of_1_too(text: str, data: st.DataObject) -> None:
    """A dimension of size 1 lies nowhere: merging around it may be a view where it else were a copy."""
    pattern = read(text)
    op = operation(pattern, {name: data.draw(st.integers(1, 3), name) for name in pattern.names})

    verdicts = check(op)

    assert verdicts
    assert not [v for v in verdicts if v.verdict == "failed"]


def test_gradients_are_written_with_what_is_summed_and_what_is_repeated() -> None:
    """dA sums over what A has not; it is the same along what only A has."""
    op = made("b s d, d f -> b f")

    assert ["dA[b, s, d] = Σ_f dY[b, f] B[d, f]", "dB[d, f] = Σ_{b,s} dY[b, f] A[b, s, d]"] == [g.equation for g in op.gradients]
    assert op.gradients[0].because.endswith("; the same for every s")
    assert "2*b*f*d" == op.gradients[0].flops.text


# -- patterns and sizes --------------------------------------------------------------------------------------------------------------


def test_an_ellipsis_is_one_size_the_product_of_what_it_stands_for() -> None:
    """... hidden -> ... with 6 rows of 5."""
    op = made("... hidden -> ...", "...=6", "hidden=5")

    assert (6 * 5 - 6, (6,), {ELLIPSIS: 6, "hidden": 5}) == (op.flops.at(op.sizes), op.pattern.result.shape(op.sizes), op.sizes)


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("b s", [], r"^cannot read the pattern 'b s': write operands, one arrow and the result, e\.g\. \"b s d, d f -> b s f\"$"),
        (
            "b s d d -> b", [],
            r"^cannot read the pattern 'b s d d -> b': d appears twice on one side: give each dimension its own name$",
        ),
        (
            "b (s -> b", [],
            r"^cannot read the pattern 'b \(s -> b': a parenthesis is not closed: write each \( with its \), as in \(h k\)$",
        ),
        ("b 3 -> b", [], r"^the pattern 'b 3 -> b' has a number for a dimension: give it a name and its size, e\.g\. k=3$"),
        ("class b -> b", [], r"^the pattern 'class b -> b' has 'class' for a dimension, a word of Python: choose another name$"),
        (
            "b -> b t, b", [],
            r"^cannot read the pattern 'b -> b t, b': ',' is not allowed: separate names by blanks, operands by commas left of the arrow$",
        ),
        ("b s -> b t", [], r"^the pattern 'b s -> b t' both sums dimensions and makes new ones \(t\): do them one at a time$"),
        ("b, s -> b t", [], r"^the pattern 'b, s -> b t' has t in the result but in no operand: leave it out or add it to one$"),
        ("b (h k), k -> b", [], r"^the pattern 'b \(h k\), k -> b' merges dimensions of several operands: .*$"),
        ("ß -> ß", [], r"^cannot read the pattern 'ß -> ß': names are made of the letters A to z, digits and _$"),
        ("x" * 500, [], r"^a pattern of 500 characters is too long: at most 400$"),
        (",".join(11 * "b") + "-> b", [], r"^the pattern .* is too large: at most 10 operands and 40 dimensions$"),
        ("b s -> b", ["z=3"], r"^the pattern 'b s -> b' has no dimension 'z': it has b, s$"),
        ("batch s -> s", ["bathc=3"], r"^the pattern 'batch s -> s' has no dimension 'bathc'; did you mean batch\?$"),
        ("b s -> b", ["b=-3"], r"^b = -3 is not positive: sizes are integers from 1 to 2\*\*63 - 1$"),
        ("b s -> b", ["b=0"], r"^b = 0 is not positive: .*$"),
        ("b s -> b", ["b=2", "b=3"], r"^the size of b is given twice: give it once$"),
        ("b s -> b", ["b"], r"^cannot read 'b': write a dimension as NAME=INTEGER, e\.g\. B=8$"),
    ],
)
def test_a_pattern_or_size_that_is_none_is_refused_in_one_line(text: str, words: list[str], message: str) -> None:
    """With the way out."""
    with pytest.raises(BadInputError, match=message):
        made(text, *words)


def test_what_cannot_be_run_is_refused_before_anything_is_made() -> None:
    """A size that is missing; a result larger than its operands."""
    with pytest.raises(BadInputError, match=r"^a run needs every size: give s too, e\.g\. s=7$"):
        check(made("b s -> b", "b=2"))
    with pytest.raises(BadInputError, match=r"^a run would compute 10,000,200,000 combinations, more than 33,554,432: check at smaller"):
        check(made("i, j -> i j", "i=100000", "j=100000"))
    with pytest.raises(BadInputError, match=r"^unknown reduction 'median': did you mean mean\? \(sum, mean, max, min, prod\)$"):
        made("b s -> b", how="median")


def test_like_terms_are_collected_whatever_their_order() -> None:
    """b·s and s·b are one term; what cancels is gone."""
    assert "3*b*s + 1" == total((product("bs"), product("sb", 2), product(()))).text
    assert ("0", 0) == ((product("b") + product("b", -1)).text, Count().at({}))
