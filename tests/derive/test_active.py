"""Active parameters: those that one token uses, with the experts per token as the traced step chooses them, or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.dimensions import Dim
from calc.pipeline.verdict import EXACT, NOT_MEASURED
from calc.spec import Spec
from tests.zoo import ZOO

DIMS = {"T": 11, "d": 16, "f": 24, "E": 5, "e": 3}
T, d, f, E, e = DIMS.values()


class Routed(nn.Module):
    """A router chooses experts in one stack of matrices, each with a bias; ``choose`` gives its indices, (T, e)."""

    def __init__(self, n: Any, choose: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.n, self.choose = n, choose
        self.router = nn.Linear(n.d, n.E, bias=False)
        self.stack = nn.Parameter(torch.randn(n.E, n.d, n.f))
        self.bias = nn.Parameter(torch.randn(n.E, n.f))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.choose(self.router(x), getattr(self.n, "e", 1))
        expert, order = chosen.flatten().sort()
        ends = torch.searchsorted(expert, torch.arange(self.n.E), right=True, out_int32=True)
        return F.grouped_mm(x[order // chosen.shape[-1]], self.stack, offs=ends) + self.bias[expert]


class Unbiased(Routed):
    """Without the bias, which is indexed."""

    def __init__(self, n: Any, choose: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__(n, choose)
        del self.bias

    def forward(self, x: Tensor) -> Tensor:
        expert, order = self.choose(self.router(x), self.n.e).flatten().sort()
        ends = torch.searchsorted(expert, torch.arange(self.n.E), right=True, out_int32=True)
        return F.grouped_mm(x[order // self.n.e], self.stack, offs=ends)


class Gathered(Routed):
    """The matrices of the chosen experts are gathered, one for each pair of token and expert."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.choose(self.router(x), getattr(self.n, "e", 1))
        return (torch.einsum("td,tedf->tef", x, self.stack[chosen]) + self.bias[chosen]).sum(1)


def _best(scores: Tensor, each: Any) -> Tensor:
    return scores.topk(each, dim=-1).indices


def _best_one(scores: Tensor, _: Any) -> Tensor:
    return scores.argmax(-1, keepdim=True)


def _sorted(scores: Tensor, each: Any) -> Tensor:
    return scores.sort(dim=-1, descending=True).indices[:, :each]


def _of(build: Callable[[Any], nn.Module], dims: dict[str, Any]) -> Spec:
    dims = {**dims, "d": Dim(d, multiple_of=4), "f": Dim(f, multiple_of=4)}  # grouped rows begin at multiples of 16 bytes
    return Spec("routed", dims, build, lambda n: (torch.randn(n.T, n.d),), lambda module, x: module(x).sum())


@pytest.mark.parametrize(
    ("build", "each"),
    [
        (lambda n: Routed(n, _best), e),
        (lambda n: Routed(n, _best_one), 1),
        (lambda n: Routed(n, _sorted), e),
        (lambda n: Gathered(n, _best), e),
    ],
    ids=["topk", "argmax", "sort", "gathered"],
)
def test_a_token_uses_the_experts_that_it_chooses(build: Callable[[Any], nn.Module], each: int) -> None:
    """The router whole, and of E matrices and biases those of its choice; a run that indexes a parameter does not show a token's."""
    sizes = {name: size for name, size in DIMS.items() if name != "e" or each == e}
    derivation = calc.derive(_of(build, sizes), cache=False, mode="infer")

    assert derivation["parameters"].value == d * E + E * d * f + E * f
    assert derivation["parameters.active"].value == d * E + each * d * f + each * f
    assert calc.check(derivation)["parameters.active"].verdict == NOT_MEASURED


def test_the_rows_of_a_grouped_matmul_are_measured() -> None:
    """Rows over tokens are experts per token."""
    derivation = calc.derive(_of(lambda n: Unbiased(n, _best), DIMS), cache=False, mode="infer")
    verdict = calc.check(derivation)["parameters.active"]

    assert verdict.derived == verdict.measured == d * E + e * d * f


class Square(nn.Module):
    """A vocabulary of as many words as the model is wide: every matrix has the sizes of the table. ``weight`` makes what multiplies."""

    def __init__(self, n: Any, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(n.V, n.d), nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)
        self.head, self.weight = nn.Linear(n.d, n.V), weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for layer in (self.first, self.second):
            x = x + F.linear(x, self.weight(layer.weight), layer.bias)
        return F.linear(x, self.weight(self.head.weight), self.head.bias)


@pytest.mark.parametrize("weight", [lambda w: w, lambda w: (w * 16).round() / 16, lambda w: w.to(torch.bfloat16).float()])
def test_a_matrix_of_the_sizes_of_the_table_is_a_head_only_where_no_other_follows(weight: Callable[[Tensor], Tensor]) -> None:
    """Two layers and the bias of the head are left, whether V = d or not and whatever is computed of a weight before it multiplies."""
    spec = Spec(
        "square",
        {"B": 3, "T": 11, "d": 7, "V": 7},
        lambda n: Square(n, weight),
        lambda n: (torch.randint(n.V, (n.B, n.T)),),
        lambda module, ids: module(ids).sum(),
    )
    derivation = calc.derive(spec, cache=False, mode="infer")

    assert derivation["parameters.non_embedding"].text == "2*d**2 + 2*d + V"
    assert calc.check(derivation)["parameters.non_embedding"].verdict == EXACT


class Resized(nn.Module):
    """Relative positions of a picture: ``seen`` makes of a table what is indexed."""

    def __init__(self, n: Any, seen: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.mix, self.seen = nn.Parameter(torch.randn(n.T, n.d)), nn.Linear(n.d, n.d), seen

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x)
        return y + self.seen(self.table)[torch.arange(x.shape[1]).flip(0)]


def resized(table: Tensor) -> Tensor:
    return F.interpolate(table.T[None], size=table.shape[0], mode="linear")[0].T


LEFT = {(lambda table: table): "d**2 + d", resized: "T*d + d**2 + d", torch.tanh: "T*d + d**2 + d"}


@pytest.mark.parametrize(("seen", "others"), LEFT.items())
def test_a_table_is_an_embedding_where_its_own_rows_are_looked_up(seen: Callable[[Tensor], Tensor], others: str) -> None:
    """Not where other numbers are computed of it first, though as many: SAM resizes its tables, at whatever size."""
    sizes = {"B": 3, "T": 11, "d": 7}
    spec = Spec("resized", sizes, lambda n: Resized(n, seen), lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(spec, cache=False, mode="infer")

    assert derivation["parameters.non_embedding"].text == others
    assert calc.check(derivation)["parameters.non_embedding"].verdict == EXACT


class Masked(nn.Module):
    """A random quarter of the positions goes on, by the order of random numbers, to a layer of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.rand(x.shape[:2]).argsort(1)[:, : x.shape[1] // 4]
        y: Tensor = self.second(self.first(x).gather(1, order[..., None].expand(-1, -1, x.shape[2])))
        return y


def test_an_order_of_random_numbers_routes_nothing() -> None:
    """Scores of a router are computed of parameters; a masked autoencoder uses every parameter for the positions that it keeps."""
    spec = Spec("masked", {"B": 3, "T": 23, "d": 7}, Masked, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(spec, cache=False, optimizer="sgd")

    assert derivation["parameters.active"].text == derivation["parameters"].text == "2*d**2 + 2*d"
    assert calc.check(derivation)["parameters.active"].verdict == EXACT


class Words(nn.Module):
    """Words and positions from tables, a layer, and a head that is the table of words if it is ``tied``."""

    def __init__(self, n: Any, *, tied: bool) -> None:
        super().__init__()
        self.words, self.positions, self.layer = nn.Embedding(n.V, n.d), nn.Embedding(n.T, n.d), nn.Linear(n.d, n.d)
        self.head = nn.Linear(n.d, n.V, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.words(ids) + self.positions(torch.arange(ids.shape[-1]))))


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_of_a_dense_model_is_active(tied: bool) -> None:
    """Tables are used whole. Without tables and head the layer is left: d² + d."""
    spec = Spec(
        "words",
        {"B": 3, "T": 11, "d": 7, "V": 13},
        lambda n: Words(n, tied=tied),
        lambda n: (torch.randint(n.V, (n.B, n.T)),),
        lambda module, ids: module(ids).sum(),
    )
    derivation = calc.derive(spec, cache=False, mode="infer")
    report = calc.check(derivation)

    assert derivation["parameters.active"].text == derivation["parameters"].text
    assert derivation["parameters.active"].value == (1 if tied else 2) * 13 * 7 + 11 * 7 + 7 * 7 + 7
    assert derivation["parameters.non_embedding"].text == "d**2 + d"
    assert {report[name].verdict for name in ("parameters.active", "parameters.non_embedding")} == {EXACT}


@pytest.mark.parametrize("name", [pytest.param("experts in a loop"), pytest.param("experts that were chosen", marks=pytest.mark.slow)])
def test_experts_that_run_one_after_the_other_count_e_times(name: str) -> None:
    """The number of an expert's rows is data-dependent, but each token has e experts."""
    exhibit = ZOO[name]
    derivation = calc.derive(exhibit.kept(), exhibit.sizes, **exhibit.options.to_json())
    router = {"experts in a loop": lambda n: n["d"] * n["E"], "experts that were chosen": lambda n: n["d"] * n["E"] + n["E"]}[name]

    for sizes in (exhibit.sizes, exhibit.other):
        n = {**derivation.sizes, **sizes}
        experts = derivation["parameters"].at(**sizes) - router(n)
        assert derivation["parameters.active"].at(**sizes) == router(n) + experts * n["e"] // n["E"]


class Capped(Routed):
    """Each expert takes the first c rows of those that chose it: how many of a token's experts run depends on data."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.choose(self.router(x), getattr(self.n, "e", 1))
        mask = F.one_hot(chosen, self.n.E).sum(1).to(x.dtype)
        slots = torch.einsum("te,td->etd", mask, x)[:, : self.n.c]
        return torch.einsum("ecd,edf->ecf", slots, self.stack)


def test_experts_with_a_capacity_have_no_count() -> None:
    """The reason names the module; 6ND needs the number and does not apply."""
    derivation = calc.derive(_of(lambda n: Capped(n, _best), {**DIMS, "c": 7}), cache=False, mode="infer")

    assert derivation["parameters.active"].value is None
    assert derivation["parameters.active"].unknown.endswith(
        "experts multiply slots that a capacity limits: how many a token gets depends on data"
    )


PUBLISHED = [
    # Mistral AI 2024, arXiv 2401.04088, section 2: 13B active (12.9B, embeddings included); 47B in all.
    ("mixtral-8x7b-v0.1", 46_702_792_704, 12_879_925_248, 0),
    # Qwen3-30B-A3B, model card: 30.5B in all, 3.3B active (printed truncated; embeddings included), 29.9B without embeddings.
    ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704, 0),
    # OpenAI 2025, gpt-oss model card, arXiv 2508.10925, table 1: 20.9B in all, 3.6B active without the input table.
    ("gpt-oss-20b", 20_914_757_184, 3_608_307_264, 201_088 * 2880),
    # DeepSeek-AI 2024, arXiv 2412.19437, abstract: 671B in all, 37B active, here without the input table.
    ("deepseek-v3", 671_026_404_352, 36_625_603_584, 129_280 * 7168),
    # Muennighoff et al. 2024, OLMoE, arXiv 2409.02060: 6.9B in all, 1.3B active.
    ("olmoe-1b-7b", 6_919_161_856, 1_282_017_280, 0),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("config", "total", "active", "table"), PUBLISHED, ids=[name for name, *_ in PUBLISHED])
def test_published_counts_of_active_parameters(config: str, total: int, active: int, table: int) -> None:
    """To the last parameter; ``table`` is the input embedding where the source leaves it out."""
    path = Path(__file__).parent.parent / "published" / "configs" / f"{config}.json"
    derivation = calc.derive(calc.load(f"hf:{path}"), {"B": 2, "T": 16}, mode="infer")

    assert derivation["parameters"].value == total
    assert derivation["parameters.active"].value == active + table
    assert derivation["parameters.non_embedding"].value == total - 2 * _table(path)


def _table(path: Path) -> int:
    config = json.loads(path.read_text())
    return int(config["vocab_size"]) * int(config["hidden_size"])


def test_data_dependent_rows_are_not_measured() -> None:
    """A run shows how many rows an expert had, not which were a token's."""
    exhibit = ZOO["experts in a loop"]
    derivation = calc.derive(exhibit.kept(), exhibit.sizes, **exhibit.options.to_json())
    verdict = calc.check(derivation, **exhibit.sizes)["parameters.active"]

    assert verdict.verdict == NOT_MEASURED
    assert verdict.because == "an index or a data-dependent size may come from a choice: a run does not show what belongs to a token"
