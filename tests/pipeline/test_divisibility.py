"""Sizes that must be multiples, where a model says nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc import Spec
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import compare
from calc.errors import Failure, NapkinError, SizesError
from calc.options import Options
from calc.pipeline import divisibility
from calc.pipeline.cache import Cache
from calc.pipeline.divisibility import candidates
from calc.pipeline.precomputed import form_of
from calc.pipeline.precomputed.writing import of_derivation
from calc.pipeline.sweep import SweptSizes, sweep
from tests.checks import failures


class Heads(nn.Module):
    """Splits its width among heads, which nobody declared to divide it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.mix = n.h, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        batch, width = x.shape
        y: Tensor = self.mix(x).view(batch, self.h, width // self.h).softmax(-1)
        return y


def _spec(build: Any, **dims: int) -> Spec:
    return Spec("split", dims, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


def test_a_multiple_that_the_sizes_allow_is_taken_and_stated() -> None:
    """12 columns among 3 heads; the closed forms hold for any d that h divides."""
    derivation = calc.derive(_spec(Heads, B=2, d=12, h=3), cache=False, optimizer="sgd")

    [said] = [a.because for a in derivation.assumptions if a.expr == "Eq(Mod(d, h), 0)"]
    assert said.startswith("inferred by tracing: without it raised RuntimeError at test_divisibility.py:")
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=5, d=14, h=7))


def test_closed_forms_with_an_inferred_multiple_are_not_kept() -> None:
    """Later commands would refuse a chunked sequence that is shorter than a chunk, which the model runs with another divisor or none."""
    form = of_derivation("split", calc.derive(_spec(Heads, B=2, d=12, h=3), cache=False, mode="infer"))
    assert form is None

    declared = replace(_spec(Heads, B=2, d=12, h=3), dims={"B": 2, "d": calc.Dim(12, multiple_of="h"), "h": 3})
    assert of_derivation("split", calc.derive(declared, cache=False, mode="infer")) is not None


def test_a_model_that_runs_at_no_size_keeps_its_own_error() -> None:
    """Nothing is taken for a multiple to no avail."""

    class Broken(Heads):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).view(-1, 1000003)

    with pytest.raises(SizesError, match=r"^split raised RuntimeError at test_divisibility\.py:"):
        calc.derive(_spec(Broken, B=2, d=12, h=3), cache=False, mode="infer")


def test_an_error_of_the_models_own_comes_before_a_missing_multiple() -> None:
    """The line that fails at the sizes themselves, not the one that fails for want of a multiple."""

    class Broken(Heads):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).transpose(0, 1).view(-1)

    with pytest.raises(SizesError, match=r"^split raised \w+ at test_divisibility\.py:\d+: return super\(\)\.forward\(x\)\.transpose"):
        calc.derive(_spec(Broken, B=2, d=12, h=3), cache=False, mode="infer")


def test_a_multiple_is_inferred_for_a_model_with_data_dependent_sizes() -> None:
    """What is above nought is no reason not to look."""

    class Chosen(Heads):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y[y > 0.1]

    derivation = calc.derive(_spec(Chosen, B=2, d=12, h=3), cache=False, optimizer="sgd")

    assert [a.expr for a in derivation.assumptions if "Mod" in a.expr] == ["Eq(Mod(d, h), 0)"]
    assert [] == failures(calc.check(derivation))


def test_a_multiple_inferred_at_other_sizes_does_not_bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 columns are a multiple of 16, which the model's own message names; 24 are not, and need not be: 8 is enough."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))

    class Eighths(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] % 8 != 0:
                raise ValueError("as many as 16 columns are fine")
            y: Tensor = self.mix(x)
            return y

    def at(d: int) -> Derivation:
        s = Spec("split", {"B": 2, "d": 32}, Eighths, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum(), key="split")
        return calc.derive(s, {"d": d})

    assert [at(32)["parameters"].value, at(24)["parameters"].value] == [32 * 33, 24 * 25]
    assert at(32)["parameters"].text == at(24)["parameters"].text == "d**2 + d"


class Pairs(nn.Module):
    """Rotates pairs of each head's columns, behind a feed-forward width of eight thirds, rounded up to a multiple of 8."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        width = 8 * ((int(8 * n.d / 3) + 7) // 8)
        self.h, self.up, self.down = n.h, nn.Linear(n.d, width), nn.Linear(width, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.up(x).relu())
        pairs = torch.view_as_complex(y.view(x.shape[0], self.h, -1).unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones(()), torch.ones(()))).flatten(1)


def test_the_share_of_each_head_is_a_multiple_too() -> None:
    """24 columns are 3 heads of 4 pairs: d/h is even. Nothing stays a number, and d is d inside what is rounded."""
    derivation = calc.derive(_spec(Pairs, B=2, d=24, h=3), cache=False, optimizer="sgd")

    assert {"Eq(Mod(d, h), 0)", "Eq(Mod(d_per_h, 2), 0)"} <= {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert "16*d*floor((floor(8 * d / 3) + 7) / 8) + d + 8*floor((floor(8 * d / 3) + 7) / 8)" == derivation["parameters"].text
    assert [] == failures(calc.check(derivation, B=5, d=28, h=7))
    assert compare(derivation)


def test_two_multiples_of_one_width_are_inferred_in_either_order() -> None:
    """The width is halved before it is split among heads, so its evenness is found first; it becomes that of each head's share."""

    class Halves(Pairs):
        def forward(self, x: Tensor) -> Tensor:
            left, right = x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]
            return super().forward(torch.cat([left + right, left - right], 1))

    derivation = calc.derive(_spec(Halves, B=2, d=24, h=3), cache=False, optimizer="sgd")

    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=5, d=28, h=7))


def test_squares_of_an_image_are_a_multiple_of_their_side() -> None:
    """12 are three squares of 4 along a side: S/P stands in the closed forms, and is what it says at other sizes."""

    class Squares(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.side, self.cut = n.P, nn.Conv2d(1, n.d, n.P, n.P)
            self.places = nn.Parameter(torch.zeros((n.S // n.P) ** 2, n.d))

        def forward(self, x: Tensor) -> Tensor:
            batch, size, _ = x.shape
            count = size // self.side
            y: Tensor = self.cut(x.unsqueeze(1)).flatten(2).transpose(1, 2) + self.places
            return y.view(batch, count, count, -1).repeat_interleave(self.side, 1) * x.unsqueeze(-1)[:, :, :count]

    dims = {"B": 2, "S": 12, "P": 4, "d": 7}
    s = Spec("squares", dims, Squares, lambda n: (torch.randn(n.B, n.S, n.S),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "P**2*d + d*(S / P)**2 + d" == derivation["parameters"].text
    assert [] == failures(calc.check(derivation, B=3, S=15, P=5, d=11))
    assert compare(derivation)


@pytest.mark.slow
def test_divisors_of_the_requested_sizes_are_inferred_before_sizes_are_specialized() -> None:
    """The step runs at any S and P, but otherwise where P does not divide S; heads are a number in the code, so d is a multiple of 3."""

    class Patches(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.cut, self.mix = nn.Conv2d(1, n.d, n.P, n.P), nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.cut(x.unsqueeze(1)).flatten(2).transpose(1, 2)
            y: Tensor = self.mix(tokens).view(x.shape[0], -1, 3, tokens.shape[2] // 3).softmax(-1)
            return y

    dims = {"B": 2, "S": 12, "P": 4, "d": 21}
    s = Spec("patches", dims, Patches, lambda n: (torch.randn(n.B, n.S, n.S),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"Eq(Mod(S, P), 0)", "Eq(Mod(d, 3), 0)"} <= {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, S=35, P=5, d=33))


def test_a_divisor_that_a_check_of_the_code_asks_for_is_inferred() -> None:
    """Of a convolution in 15 groups, though its message names no number, and though the spec allows d to be specialized."""

    class Groups(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Conv1d(n.d, n.d, 3, groups=15)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.mix(x.unsqueeze(2).expand(-1, -1, 7))
            return y

    s = replace(_spec(Groups, B=2, d=45), may_specialize=(("d",),))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "Eq(Mod(d, 15), 0)" in {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, d=75))


def test_the_batch_divides_what_the_code_says_that_it_divides() -> None:
    """A queue of keys that whole batches replace, as of momentum contrast: no other divisor is tried, and nothing is specialized."""

    class Queue(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.d)
            self.register_buffer("keys", torch.randn(n.K, n.d))

        def forward(self, x: Tensor) -> Tensor:
            assert self.keys.shape[0] % x.shape[0] == 0
            y: Tensor = self.mix(x) @ self.keys.T
            return y

    derivation = calc.derive(_spec(Queue, B=4, d=7, K=20), cache=False, optimizer="sgd")

    assert {"Eq(Mod(K, B), 0)"} == {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, d=5, K=21))


class InPairs(nn.Module):
    """Rotates its width in pairs, which no line divides: of an odd width, the even places are one more than the odd ones."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        even = self.mix(x)[..., ::2]
        y: Tensor = x * torch.stack([even, even], -1).flatten(-2)
        return y


class Checked(InPairs):
    """Says itself that its width must be even, in an error that has another one as its cause."""

    def __init__(self, n: Any) -> None:
        super().__init__(n)
        try:
            if n.d is None or (n.d % 2 == 1):
                raise ValueError("an odd width")
        except ValueError as error:
            raise RuntimeError("cannot be built") from error

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x)
        return y


class RoutedRows(InPairs):
    """Torch's grouped matmul takes rows of a multiple of 16 bytes: of four numbers of fp32."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = nn.functional.grouped_mm(x, self.mix.weight.t().unsqueeze(0), offs=torch.ones(1, dtype=torch.int32)).relu()
        return y


class SinesOfHalves(InPairs):
    """Half of the width for each of two axes, in pairs of a sine and a cosine, as positions in an image are written."""

    def forward(self, x: Tensor) -> Tensor:
        half = self.mix(x)[:, : x.shape[1] // 2]
        axis = torch.stack([half[:, 0::2].sin(), half[:, 1::2].cos()], -1).flatten(1)
        return x * torch.cat([axis, axis], 1)


class PaddedWhereOdd(InPairs):
    """Runs at every width, but otherwise at odd ones."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x)
        if y.shape[1] % 2 == 1:
            y = torch.cat([y, torch.zeros(y.shape[0], 1)], 1)
        return y


class PaddedToChunks(InPairs):
    """Attention within chunks of 4 positions, the last of which is padded, as in state-space models."""

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.pad(self.mix(x), (0, 0, 0, (4 - x.shape[1] % 4) % 4))
        chunks = y.reshape(y.shape[0], -1, 4, y.shape[2])
        return (chunks @ chunks.transpose(-1, -2)).sum(2).flatten(1)[:, : x.shape[1]]


class ChunkByChunk(InPairs):
    """The same, one chunk after another: their number is read as a number."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x)
        state = torch.zeros(y.shape[0], y.shape[2], y.shape[2])
        for i in range((y.shape[1] + 3) // 4):
            chunk = y[:, 4 * i : 4 * i + 4]
            state = state + chunk.transpose(-1, -2) @ chunk
        return state


@pytest.mark.parametrize("module", [PaddedToChunks, pytest.param(ChunkByChunk, marks=pytest.mark.slow)])
def test_a_length_that_is_cut_into_chunks_is_a_multiple_of_them_and_no_number(module: type[InPairs]) -> None:
    """20 positions are 5 chunks. 22 are padded to 24 or have a shorter last chunk, so they are traced for themselves."""
    inputs = lambda n: (torch.randn(n.B, n.T, n.d),)  # noqa: E731  # of one line
    s = Spec(
        "chunks", {"B": 2, "T": 20, "d": 7}, module, inputs, lambda m, x: m(x).sum(), may_unroll=("T",), may_specialize=(("d",), ("T",))
    )
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "Eq(Mod(T, 4), 0)" in {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, T=28, d=11))
    assert [] == failures(calc.check(calc.derive(s, {"T": 22}, cache=False, optimizer="sgd")))


def test_no_certificate_is_traced_in_vain_before_a_multiple_is_assumed() -> None:
    """One trace with the requested length runs other operators than the graph: no closed form is derived before."""
    inputs = lambda n: (torch.randn(n.B, n.T, n.d),)  # noqa: E731  # of one line
    s = Spec("chunks", {"B": 1, "T": 20, "d": 7}, PaddedToChunks, inputs, lambda m, x: m(x).sum(), may_specialize=(("d",), ("T",)))
    lines: list[str] = []
    calc.derive(s, cache=False, optimizer="sgd", progress=lines.append)
    before = lines[: lines.index("assuming T to be a multiple of 4")]

    assert [line.partition(" at ")[0] for line in before] == ["tracing the step with symbolic sizes", "tracing a certificate"]
    assert "T = 20" in before[-1]


class ViewedInChunks(nn.Module):
    """Lengths that are multiples of 4 are viewed once more, which costs nothing."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y if y.shape[1] % 4 else y.transpose(1, 2).transpose(1, 2)


def test_no_multiple_is_assumed_where_views_alone_differ() -> None:
    inputs = lambda n: (torch.randn(n.B, n.T, n.d),)  # noqa: E731  # of one line
    s = Spec("viewed", {"B": 3, "T": 20, "d": 7}, ViewedInChunks, inputs, lambda m, x: m(x).sum(), may_specialize=(("d",), ("T",)))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {dim.name: dim.multiple_of for dim in derivation.dims} == {"B": None, "T": None, "d": None}


@pytest.mark.parametrize(("module", "multiple"), [(InPairs, 2), (Checked, 2), (RoutedRows, 4), (SinesOfHalves, 4), (PaddedWhereOdd, 2)])
def test_a_width_that_the_code_needs_even_is_a_multiple_and_no_number(module: type[InPairs], multiple: int) -> None:
    s = replace(_spec(module, B=2, d=20), may_specialize=(("d",), ("B",)))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert f"Eq(Mod(d, {multiple}), 0)" in {a.expr for a in derivation.assumptions}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, d=28))


def test_a_trace_of_even_widths_is_cached_beside_that_of_all_widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace of an odd width is in the cache when that of an even one is needed, and is not read in its place; both are read later."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    s = replace(_spec(PaddedWhereOdd, B=2, d=20), may_specialize=(("d",), ("B",)), key="padded where odd")
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        assert lines.count("assuming d to be a multiple of 2") <= 1, "the same multiple is inferred once more"

    for width in (15, 20, 15, 20):
        derivation = calc.derive(s, {"d": width}, optimizer="sgd", progress=progress)
        assert derivation["parameters"].value == width * (width + 1)
        assert not derivation.specialized

    assert lines.count("assuming d to be a multiple of 2") == 1
    assert lines.count("tracing the step with symbolic sizes") == 2


def test_a_multiple_that_is_inferred_is_in_the_cache_and_not_searched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    s = replace(_spec(PaddedWhereOdd, B=2, d=20), may_specialize=(("d",), ("B",)), key="padded where odd")
    first, second = list[str](), list[str]()
    derivations = [calc.derive(s, optimizer="sgd", progress=lines.append) for lines in (first, second)]

    assert "assuming d to be a multiple of 2" in first
    assert {"trace read from the cache"} == {*second}
    assert derivations[0].to_json() == derivations[1].to_json()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1, "dims": {}}', '{"key": "k", "dims": {"d": {"default": []}}}'])
def test_a_damaged_entry_of_multiples_is_deleted(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    s = replace(_spec(PaddedWhereOdd, B=2, d=20), may_specialize=(("d",), ("B",)), key="padded where odd")
    store = Cache(s, Options(), True, "multiples")
    store.write_spec(s)
    file = next(tmp_path.iterdir())
    file.write_text(file.read_text().partition("\n")[0] + "\n" + text)

    assert store.read_spec(lambda line: None) is None
    assert not file.exists()


def test_other_sizes_than_those_of_an_inferred_branch_are_traced_for_themselves() -> None:
    """An odd width has one number more a row to write, which an even one has not."""
    s = replace(_spec(PaddedWhereOdd, B=2, d=20), may_specialize=(("d",), ("B",)))
    even, odd = (calc.derive(s, {"d": d}, cache=False, optimizer="sgd") for d in (20, 21))

    assert [] == failures(calc.check(odd, B=3, d=27))
    assert even["bytes_moved.forward"].at(d=27) == odd["bytes_moved.forward"].at(d=27)
    assert odd["bytes_moved.forward"].at(d=28) == even["bytes_moved.forward"].at(d=28) < odd["bytes_moved.forward"].at(d=27)


def test_a_divisor_that_does_not_decide_the_branch_is_not_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A multiple of 5 may be odd. Without a divisor, the width is a number."""
    monkeypatch.setattr(divisibility, "_exact_divisions", lambda *_: [("d", 5)])
    s = replace(_spec(PaddedWhereOdd, B=2, d=20), may_specialize=(("d",), ("B",)))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert not [a for a in derivation.assumptions if "Mod(d, 5)" in a.expr]
    assert derivation.specialized == {"d": 20}


class InFours(InPairs):
    """Takes four rows together."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x).reshape(-1, 4, x.shape[1]).sum(1)
        return y


def test_the_default_need_not_be_a_multiple_where_the_requested_size_is_one() -> None:
    """The model does not run with its default of 1 row; it runs with 8, and the closed forms hold at 12."""
    s = _spec(InFours, B=1, d=7)

    assert [] == failures(calc.check(calc.derive(s, {"B": 8}, cache=False, optimizer="sgd"), B=12, d=5))
    with pytest.raises(NapkinError, match="is invalid for input of size 7"):
        calc.derive(s, cache=False, optimizer="sgd")


SQUARES = """
import torch
from torch import nn
from calc import Spec
from calc.dimensions import Dim

def squares(n):
    return (n.S // n.P) * (n.S // n.P)

spec = Spec("squares", {"B": 2, "S": Dim(12, multiple_of="P"), "P": 4}, lambda n: nn.Linear(squares(n), 1, bias=False),
            lambda n: (torch.randn(n.B, squares(n)),), lambda module, x: module(x).sum())
"""


def test_a_sweep_over_sizes_that_do_not_divide_has_gaps(tmp_path: Path) -> None:
    """Squares of 4 in 8 and 12, and none in 9: (S/P)² parameters, 4 and 9."""
    (tmp_path / "squares.py").write_text(SQUARES)
    table = sweep(form_of(f"{tmp_path / 'squares.py'}:spec", cache=False), SweptSizes({"S": [8, 9, 12]}), ["parameters"])

    assert [(4,), (None,), (9,)] == [values for _, values in table.rows()]


class Grouped(nn.Module):
    """A grouped convolution; the line that makes it names 8, and 2 groups are enough of a divisor."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        groups = 2
        self.mix = nn.Conv1d(n.d, 8, 1, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x.unsqueeze(-1))
        return y


def test_the_smallest_multiple_that_can_be_traced_is_stated() -> None:
    """8 is named by the line that raises and does; 2 is tried then, and is enough."""
    derivation = calc.derive(_spec(Grouped, B=2, d=16), cache=False, optimizer="sgd")

    assert [a.expr for a in derivation.assumptions if "Mod" in a.expr] == ["Eq(Mod(d, 2), 0)"]
    assert [] == failures(calc.check(derivation, B=5, d=14))


def test_advice_of_ours_names_no_multiple() -> None:
    """What a message says to declare is an example: its 8 and its 64 are no sizes of the model."""
    advice = 'declare what a size must be a multiple of: "d": 8'
    failure = Failure("Conv(dim): must be divisible by groups", "split ", advice=advice)
    wanted = next(candidates(_spec(Grouped, B=2, d=16), {"B": 2, "d": 16}, SizesError(failure)))

    assert wanted.reason == "assuming d to be a multiple of 2"


def test_unequal_heads_are_a_multiple_of_each_other_before_numbers_of_the_line() -> None:
    """8 query heads share the keys of 2: the divisor to try first is g, not the 2 of ``transpose(-2, -1)``."""
    unequal = "The size of tensor a (h) must match the size of tensor b (g) at non-singleton dimension 1"
    said = f"s = q @ k.transpose(-2, -1): {unequal}"
    wanted = next(candidates(_spec(Heads, B=2, d=24, h=8, g=2), {"B": 2, "d": 24, "h": 8, "g": 2}, SizesError(said)))

    assert wanted.reason == "assuming h to be a multiple of g"
