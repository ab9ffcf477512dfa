"""Sizes that a step compares with numbers: it is traced on the side of the requested sizes, and they stay symbols."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc import Spec
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import SizesError
from calc.graph.basis import basis_of
from calc.graph.plan import Near
from calc.graph.step import Guard
from calc.trace import certificate_sizes
from calc.trace.hints import HintRules, hints
from calc.trace.tracer import hint_rules
from tests.checks import failures


class Deeper(nn.Module):
    """One layer, and another for each of ``limits`` that the length is above."""

    def __init__(self, n: Any, limits: tuple[int, ...]) -> None:
        super().__init__()
        self.layers, self.limits = nn.ModuleList(nn.Linear(n.d, n.d, bias=False) for _ in range(1 + len(limits))), limits

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.layers
        y: Tensor = first(x)
        for limit, layer in zip(self.limits, others, strict=True):
            if x.shape[1] > limit:
                y = layer(y)
        return y


def _spec(limits: tuple[int, ...], length: int, **more: int) -> Spec:
    dims = {"B": 2, **more, "T": length, "d": 8}
    return Spec("deeper", dims, lambda n: Deeper(n, limits), lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())


def _layers(derivation: Derivation, **sizes: int) -> int:
    """How many layers a forward runs: 2·B·T·d² each."""
    at = {**derivation.sizes, **sizes}
    return derivation["flops.forward.matmul"].at(**sizes) // (2 * at["B"] * at["T"] * at["d"] ** 2)


@pytest.mark.parametrize(
    ("limits", "length", "same", "other"),
    [
        pytest.param((512,), 1024, (513, 700, 4096), (512, 100), marks=pytest.mark.slow),
        pytest.param((512,), 128, (511, 7), (513, 4096), marks=pytest.mark.slow),
        pytest.param((10,), 9, (10, 5), (11, 600), marks=pytest.mark.slow),
        ((20, 24), 22, (21, 23), (20, 25)),
        pytest.param((20, 24), 22, (21,), (4096,), marks=pytest.mark.slow),
        ((3,), 3, (2,), (4, 7)),
    ],
)
def test_a_length_is_a_symbol_on_either_side(limits: tuple[int, ...], length: int, same: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Exact at the length that is the model's own, at others on its side without a trace, and beyond the limit with one."""
    s = _spec(limits, length)
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert not derivation.specialized
    assert not any("Mod" in a.expr for a in derivation.assumptions)
    assert [] == failures(calc.check(derivation, B=3))
    assert same
    for at in same:
        assert _layers(derivation, T=at) == 1 + sum(at > limit for limit in limits)
    assert other
    for at in other:
        beyond = calc.derive(s, {"T": at}, cache=False, optimizer="sgd")
        assert not beyond.specialized
        assert _layers(beyond) == 1 + sum(at > limit for limit in limits)


def test_few_points_are_multiplied_otherwise_than_many() -> None:
    """torch's distances of 25 points or fewer have kernels of their own. No batch need be even for that."""

    class Near(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.o)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cdist(x, x).topk(3, -1).values.sum() + self.mix(x).sum()

    dims = {"B": 2, "N": 11, "d": 5, "o": 7}
    s = Spec("points", dims, Near, lambda n: (torch.randn(n.B, n.N, n.d),), lambda module, x: module(x))
    few = calc.derive(s, cache=False, optimizer="sgd")
    many = calc.derive(s, {"N": 26}, cache=False, optimizer="sgd")

    for derivation, at in ((few, {"B": 3, "N": 25}), (many, {"B": 3, "N": 31})):
        assert [] == failures(calc.check(derivation, **at))
    assert few["flops.forward.matmul"].text != many["flops.forward.matmul"].text


def test_a_model_that_fails_at_the_requested_sizes_keeps_its_message() -> None:
    """A quarter of 3 channels is none. What torch says of that comes instead of the path that the trace took."""

    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Conv2d(n.c, n.c // 4, 1), nn.Conv2d(n.c // 4, n.c, 1))

    s = Spec("quarter", {"B": 2, "c": 12}, build, lambda n: (torch.randn(n.B, n.c, 5, 5),), lambda module, x: module(x).sum())

    assert calc.derive(s, {"c": 7}, cache=False, mode="infer")["parameters"].value == 7 + 1 + 7 + 7
    with pytest.raises(SizesError, match="expected weight to be at least 1 at dimension 0"):
        calc.derive(s, {"c": 3}, cache=False, mode="infer")


def test_hints_near_sizes_are_in_their_order_and_distinct() -> None:
    """Those up to the largest that is compared with a number are the nearest primes, or at them; those above are as they were."""
    basis = basis_of({name: Dim(1) for name in "BTdV"}, {})
    sizes = {"B": 2, "T": 24, "d": 24, "V": 1000}

    assert hints(basis, sizes, HintRules(near=Near(frozenset("T")))) == {"B": 2, "T": 29, "d": 31, "V": 67}
    assert hints(basis, sizes, HintRules(near=Near(frozenset("T"), exactly=True))) == {"B": 2, "T": 24, "d": 25, "V": 67}
    assert hints(basis, sizes) == {"B": 13, "T": 29, "d": 31, "V": 67}


def test_a_bound_of_a_number_is_no_smaller_than_it() -> None:
    """T is 101 throughout, and at most C - 2: the first prime from 103 on. V is larger than C here too."""
    dims = {"B": Dim(2), "T": Dim(101, at_most="C - 2"), "C": Dim(131), "V": Dim(1000)}
    basis = basis_of(dims, {"T": "101"})
    sizes = {name: dim.default for name, dim in dims.items()}

    assert {"B": 13, "C": 103, "V": 107} == hints(basis, sizes, hint_rules(dims, (), basis, None))


def test_the_rows_of_one_of_several_experts_are_no_more_than_its_share() -> None:
    """2·T rows of eight experts: n1 would be the prime before T otherwise, of which seven are more rows than there are."""
    dims = {"T": Dim(1024), "n1": Dim("T/4", at_most="(2*T + 7)/8", unbacked_at="here")}
    basis = basis_of(dims)
    made = hints(basis, {"T": 1024, "n1": 256}, hint_rules(dims, (), basis, None))

    assert {"n1": (2 * made["T"] + 7) // 8} == {"n1": made["n1"]}


def test_a_bound_of_a_product_is_no_smaller_than_it() -> None:
    """Where T is d, it is h*k: 13*17 at the hints, of which C is at least 2 more. 223 and 227 are the next primes."""
    width = {"h": Dim(4), "d": Dim(64, multiple_of="h"), "k": Dim("d/h", tied=True)}
    dims = {**width, "T": Dim(64, at_most="C - 2"), "C": Dim(131), "V": Dim(1000)}
    basis = basis_of(dims, {"T": "d"})
    sizes = {"h": 4, "d": 64, "k": 16, "T": 64, "C": 131, "V": 1000}

    assert {"h": 13, "k": 17, "C": 223, "V": 227} == hints(basis, sizes, hint_rules(dims, (), basis, None))


class Grown(nn.Module):
    """Adds T rows of a table of C, which is made again where T is more; twice where T is the width."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.proj = nn.Linear(n.d, n.d)
        self.rows = n.C
        self.table: Tensor
        self.register_buffer("table", torch.zeros(n.C, n.d))

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[1]
        table = torch.cat([self.table, self.table]) if self.rows < T else self.table
        y: Tensor = self.proj(x) + table[:T]
        return y + table[:T] if x.shape[2] == T else y


def test_a_special_case_of_equal_sizes_keeps_to_their_bounds() -> None:
    """T = d = h*k, and no more than C there, either: else the case would be one in which the table is made again."""
    dims = {"h": 4, "d": Dim(64, multiple_of="h"), "k": Dim("d/h", tied=True), "B": 1, "T": Dim(64, at_most="C"), "C": 131}
    spec = Spec("grown", dims, Grown, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum(), may_specialize=(("T",),))
    derivation = calc.derive(spec, cache=False)

    assert ["the closed forms have a special case where T = d"] == [assumption.expr for assumption in derivation.assumptions]
    assert [] == failures(calc.check(derivation, h=2, d=10, T=10, C=13))


class Rotated(nn.Module):
    """Keys that have a rotated and a plain part; where values are as wide as both, the sum of both is added to them."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.rotated, self.plain, self.values = (nn.Linear(n.d, width) for width in (n.r, n.p, n.v))

    def forward(self, x: Tensor) -> Tensor:
        keys, values = torch.cat([self.rotated(x), self.plain(x)], dim=-1), self.values(x)
        return (values + keys).sum() if keys.shape[-1] == values.shape[-1] else values.sum() + keys.sum()


def test_a_special_case_is_of_a_size_that_is_the_sum_of_two_others() -> None:
    """All three keep their symbols."""
    sizes = {"B": 4, "d": 24, "r": Dim(8, multiple_of=4), "p": 12, "v": 20}
    spec = Spec("rotated", sizes, Rotated, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x))
    derivation = calc.derive(spec, cache=False)

    assert ["the closed forms have a special case where v = r + p"] == [assumption.expr for assumption in derivation.assumptions][-1:]
    assert {} == dict(derivation.specialized)
    assert [] == failures(calc.check(derivation, B=3, d=7, r=8, p=5, v=13))
    assert [] == failures(calc.check(derivation, B=3, d=7, r=8, p=5, v=14))


class Wide(nn.Module):
    """A kernel of more samples than a trace usually has; a batch of one is added to itself."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, n.d, 400)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y + y if x.shape[0] == 1 else y


def test_a_special_case_of_a_step_that_needs_larger_sizes_is_traced_near_its_own() -> None:
    sizes = {"B": 4, "T": 1000, "d": Dim(6, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True)}
    spec = Spec("wide", sizes, Wide, lambda n: (torch.randn(n.B, 1, n.T),), lambda module, x: module(x).sum())
    derivation = calc.derive(spec, cache=False)

    assert [] == failures(calc.check(derivation, B=1, T=500, d=15, h=3))


class Rows(nn.Module):
    """As many rows of a table of C as there are tokens, in the root of that number parts."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.rows = nn.Buffer(torch.randn(1, n.C))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        return x * self.rows[:, :length].expand(x.shape[0], length) * math.isqrt(int(length))


def test_a_step_at_one_length_has_the_bound_of_the_length_as_a_symbol() -> None:
    """A table of fewer rows than tokens would be another step."""
    dims = {"B": Dim(2), "T": Dim(101, at_most="C"), "C": Dim(131)}
    s = Spec("rows", dims, Rows, lambda n: (torch.randn(n.B, n.T),), lambda m, x: m(x).sum(), may_specialize=(("T",),))
    derivation = calc.derive(s, cache=False, mode="infer")

    assert {"T"} == derivation.specialized.keys()
    assert [] == failures(calc.check(derivation, B=3, C=107))


def test_beyond_a_limit_a_batch_of_one_leaves_the_length_a_symbol() -> None:
    """Though the length may stay a number: the case of one is traced near the requested length, and other lengths need no trace."""
    s = replace(_spec((512,), 1024, B=1), may_specialize=(("T",),))
    derivation = calc.derive(s, cache=False, mode="infer")

    assert {} == derivation.specialization_reasons
    assert derivation.holds_at({"T": 700})
    assert (2, 2, 1) == tuple(_layers(derivation, T=length) for length in (1024, 700, 100))


class Placed(Deeper):
    """The same, with a vector for each position: its gradient is a sum over the batch, unless that is of one."""

    def __init__(self, n: Any, limits: tuple[int, ...]) -> None:
        super().__init__(n, limits)
        self.places = nn.Parameter(torch.zeros(1, n.T, n.d))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.places)


def test_a_case_beyond_a_limit_is_traced_once() -> None:
    """Near the requested length, which is compared with a number: with the usual symbols the case would take the other path again."""
    traced: list[str] = []
    one = replace(_spec((512,), 1024, B=1), build=lambda n: Placed(n, (512,)))
    derivation = calc.derive(one, cache=False, optimizer="sgd", progress=traced.append)

    assert 2 == _layers(derivation)
    assert 1 == sum("tracing that special case" in line for line in traced)
    assert 2 == sum("symbolic sizes" in line for line in traced)


def test_a_check_goes_to_the_side_of_a_limit_that_was_derived() -> None:
    """A small check that would be below the limit has the shortest length above it, and says so; what is given stays as it is."""
    small = replace(_spec((512,), 1024, B=1), check_at={"T": 16, "d": 4}, reduced="to be quick")
    derivation = calc.derive(small, cache=False, optimizer="sgd")
    report = calc.check(derivation)

    assert {"B": 1, "T": 513, "d": 4} == report.sizes
    assert "T = 513, the smallest at which the step runs as at the sizes of the derivation" in report.because
    assert "runs other operators" not in report.because
    assert report.ok
    assert {"B": 1, "T": 16, "d": 4} == calc.check(derivation, T=16).sizes


def test_what_pads_a_length_makes_the_length_alone_a_multiple() -> None:
    """Whole chunks of 16 run other operators than a padded rest, at any width, though the guards have products with the width."""

    class Chunks(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            rest = (16 - x.shape[1] % 16) % 16
            chunks = nn.functional.pad(self.mix(x), (0, 0, 0, rest)).unflatten(1, (-1, 16))
            y: Tensor = chunks.flatten(1, 2)[:, : x.shape[1]].reshape(x.shape[0], -1)
            return y

    dims = {"B": 2, "T": 64, "d": 8}
    chunked = Spec("chunks", dims, Chunks, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(replace(chunked, may_specialize=(("d",), ("T",))), cache=False, optimizer="sgd")

    assert ["Eq(Mod(T, 16), 0)"] == [a.expr for a in derivation.assumptions if "Mod" in a.expr]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, T=48, d=5))


def test_a_length_that_is_padded_leaves_a_width_below_a_limit_a_symbol() -> None:
    """The length is a multiple of the chunk of 16; that a width is at most 4 is another guard, which a trace on that side satisfies."""

    class Narrow(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            padded = nn.functional.pad(self.mix(x), (0, 0, 0, (16 - x.shape[1] % 16) % 16))
            y = padded[:, : x.shape[1]].reshape(x.shape[0], -1)
            return y if x.shape[2] <= 4 else y * 2

    dims = {"B": 2, "T": 96, "d": 4}
    narrow = Spec("narrow", dims, Narrow, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(replace(narrow, may_specialize=(("d",), ("T",))), cache=False, optimizer="sgd")

    assert ["Eq(Mod(T, 16), 0)"] == [a.expr for a in derivation.assumptions if "Mod" in a.expr]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, T=32, d=3))


def test_slopes_of_heads_fix_the_number_of_heads_alone() -> None:
    """Slopes for a power of 2 of heads, as those of ALiBi: 4 heads need 4, more need 8; the width per head is no part of that."""

    class Slopes(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.h, self.mix = n.h, nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            slopes = torch.arange(1, 2 ** math.ceil(math.log2(self.h)) + 1, dtype=torch.float32)
            heads = self.mix(x).unflatten(-1, (self.h, -1))
            return heads * slopes[: self.h, None]

    dims = {"B": 2, "d": Dim(12, multiple_of="h"), "h": 4, "k": Dim("d/h", tied=True)}
    sloped = Spec("slopes", dims, Slopes, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(replace(sloped, may_specialize=(("d", "h"),)), cache=False, optimizer="sgd")

    assert {"h"} == derivation.specialization_reasons.keys()
    assert [] == failures(calc.check(derivation, B=3, d=20))


def test_a_width_that_is_specialized_takes_the_heads_that_divide_it_along() -> None:
    """A width of 5·n + 2 has no column of padding, another one does; the number 12 divided by a symbol of heads is no size."""

    class Heads(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            if n.d // n.h * n.h != n.d:
                raise ValueError("the heads must divide the width")
            self.mix, self.pads = nn.Linear(n.d, n.d), n.d % 5 != 2

        def forward(self, x: Tensor) -> Tensor:
            y = self.mix(x)
            return nn.functional.pad(y, (0, 1)) if self.pads else y

    dims = {"B": 2, "d": Dim(12, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True)}
    heads = Spec("heads", dims, Heads, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(replace(heads, may_specialize=(("d",),)), cache=False, optimizer="sgd")

    assert {"d", "h", "k"} == derivation.specialization_reasons.keys()
    assert [] == failures(calc.check(derivation, B=3))


def test_a_certificate_satisfies_the_guards_that_it_can() -> None:
    """A width of at most 20 (fused attention of heads up to 256 wide, say) beside a guard that comes out otherwise at every certificate."""
    spec = _spec((), 128)
    graph = calc.trace(spec, cache=False, mode="infer")
    guards = (Guard("d <= 20", True, "here"), Guard("T < 1", True, "there"))

    certificates = certificate_sizes(replace(graph, guards=guards), spec.sizes(), 0)
    assert certificates
    for any_of in certificates:
        assert any_of[-1]["d"] <= 20
