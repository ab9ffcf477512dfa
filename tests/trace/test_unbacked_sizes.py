"""Data-dependent sizes become dimensions with a bound and an expected value; nothing read out of data ever becomes a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import calc
from calc.derive.result import Derivation
from calc.errors import DataDependentError, DimensionError, NapkinError
from calc.graph import serialize
from calc.graph.step import TracedDim
from calc.spec import Spec
from tests.checks import failures
from tests.trace.modules import spec

MATMUL = "flops.forward.matmul"


class Weighted(nn.Module):
    """``of(x * w)``: which elements are positive is for the inputs to say."""

    def __init__(self, d: Any, of: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
        self.of = of

    def forward(self, x: Tensor) -> Any:
        return self.of(x * self.w)


def function(of: Callable[[Tensor], Any], **changes: Any) -> Spec:
    return spec(lambda n: Weighted(n.d, of), **{"dims": {"B": 19, "d": 7}, **changes})


def derived(s: Spec, sizes: dict[str, int] | None = None, **options: Any) -> Derivation:
    return calc.derive(s, sizes, cache=False, **{"optimizer": "sgd", **options})


def decided(derivation: Derivation) -> list[TracedDim]:
    return [dim for dim in derivation.dims if dim.unbacked_at]


def by_name(derivation: Derivation) -> dict[str, tuple[str | None, str | None]]:
    """Expected value and bound of each data-dependent size."""
    return {dim.name: (dim.expr, dim.at_most) for dim in decided(derivation)}


def rows_of_a_fixed_mask(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    first = torch.arange(x.shape[0]) < 11
    return F.mse_loss(module(x)[first], y[first])


def test_rows_chosen_by_the_same_mask_twice_are_equally_many_in_every_certificate() -> None:
    """Where the sizes are numbers the values of a mask are known; it selects n1 rows there too, in the backward as in the forward."""

    def inputs(n: Any) -> tuple[Tensor, ...]:
        return torch.randn(n.B, n.d), torch.randn(n.B, n.d)

    derivation = derived(function(torch.sin, inputs=inputs, loss=rows_of_a_fixed_mask))

    assert {"n1": ("B", "B")} == by_name(derivation)
    assert derivation.specialized == {}
    assert [] == failures(calc.check(derivation))


# -- experts --------------------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """One matrix an expert, applied to the tokens that chose it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.e = n.e
        self.router = nn.Linear(n.d, n.E, bias=False)
        self.experts = nn.ModuleList([nn.Linear(n.d, n.f, bias=False) for _ in range(n.E)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        weights, chosen = torch.topk(self.router(x).softmax(-1), self.e, dim=-1)
        total = torch.zeros(())
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            total = total + (expert(x[token]) * weights[token, place, None]).sum()
        return total


def experts(**changes: Any) -> Spec:
    parts = {
        "name": "experts",
        "dims": {"B": 2, "T": 12, "d": 5, "f": 7, "E": 4, "e": 2},
        "build": Experts,
        "inputs": lambda n: (torch.randn(n.B, n.T, n.d),),
        "loss": lambda module, x: module(x),
    }
    return Spec(**{**parts, **changes})


@pytest.fixture(scope="module")
def routed() -> Derivation:
    return derived(experts())


def test_an_expert_has_its_share_of_the_tokens(routed: Derivation) -> None:
    """B*T tokens choose e of E experts each, so one expert is chosen B*T*e/E times if all are chosen alike, and B*T*e at most."""
    assert {"n1": ("B*T*e/E", "B*T*e")} == by_name(routed)
    assert 2 * 12 * 2 // 4 == routed.sizes["n1"]
    (dim,) = decided(routed)
    assert re.fullmatch(r"elements chosen at test_unbacked_sizes\.py:\d+: token, place = torch\.where\(chosen == i\)", dim.meaning)


def test_all_experts_together_have_every_token_e_times(routed: Derivation) -> None:
    """2*d*f for each of B*T*e choices, and the router's 2*d*E for each of B*T tokens."""
    n = routed.sizes
    choices = n["B"] * n["T"] * n["e"]

    assert "2*B*T*d*E + 2*d*f*E*n1" == routed[MATMUL].text
    assert 2 * choices * n["d"] * n["f"] + 2 * n["B"] * n["T"] * n["d"] * n["E"] == routed[MATMUL].value


def test_the_expected_value_follows_the_other_sizes(routed: Derivation) -> None:
    """It is an expression, rounded up where it is no integer: 2*13*2/4 = 13, 2*13*2/3 = 17.33."""
    at = {"B": 2, "T": 13}

    assert routed[MATMUL].at(**at, n1=13) == routed[MATMUL].at(**at)
    assert routed[MATMUL].at(**at, E=3, n1=18) == routed[MATMUL].at(**at, E=3)


def test_the_assumption_says_what_is_expected_and_how_to_change_it(routed: Derivation) -> None:
    """Beside the number itself: it is no fact about the model."""
    (assumption,) = [a for a in routed.assumptions if "n1" in a.expr]

    assert "Eq(n1, ceiling(B*T*e/E))" == assumption.expr
    assert assumption.because.startswith("expected number of elements chosen at test_unbacked_sizes.py:")
    assert "-d n1=" in assumption.because


def test_more_experts_a_token_than_experts_is_no_guard(routed: Derivation) -> None:
    """That e is at most E is declared by the model, so it is not an assumption each time something depends on it."""
    (e,) = [dim for dim in routed.dims if dim.name == "e"]

    assert "E" == e.at_most
    assert [] == [a.expr for a in routed.assumptions if re.fullmatch(r"e <= \d+|e <= E", a.expr)]


def test_a_data_dependent_size_can_be_set() -> None:
    """7 tokens an expert in place of 12; what is derived stays at that."""
    given = derived(experts(), {"n1": 7})

    assert 7 == given.sizes["n1"]
    assert 2 * 24 * 5 * 4 + 2 * 5 * 7 * 4 * 7 == given[MATMUL].value == given[MATMUL].at()


def test_a_size_above_its_bound_is_refused() -> None:
    """49 of 2*12*2 = 48 choices."""
    why = r"^n1 = 49 is more than B\*T\*e = 48: this model needs n1 <= B\*T\*e: lower n1 or raise B or T or e$"
    with pytest.raises(DimensionError, match=why):
        derived(experts(), {"n1": 49})


@pytest.mark.parametrize("name", ["n2", "n9", "n0", "m1"])
def test_a_size_without_a_line_is_unknown(name: str) -> None:
    """Names like n1 may come up while the step is traced, so they are looked for when it is."""
    with pytest.raises(DimensionError, match=f"^this model has no dimension '{name}'"):
        derived(some_rows(), {name: 3})


# -- masks ----------------------------------------------------------------------------------------------------------------


def some_rows() -> Spec:
    return function(lambda x: x[x[:, 0] > 0])


def drawn(x: Tensor) -> Tensor:
    return x[torch.rand(x.shape[0]) < 0.15]


def either(x: Tensor) -> Tensor:
    kept = (x[:, 0] > 0) | (x[:, 1] > 0)
    return x[kept] * (x * 2)[kept]


def one_and_another(x: Tensor) -> Tensor:
    return torch.cat([x[x[:, 0] > 0], x[x[:, 1] > 0]])


def two_rows_of_a_mask(x: Tensor) -> Tensor:
    mask = x > 0
    return torch.cat([x[:, mask[0]], x[:, mask[1]]], dim=1)


def rows_that_data_pick(x: Tensor) -> Tensor:
    mask = x > 0
    return torch.cat([x[:, mask[x[:, 0].argmax()]], x[:, mask[x[:, 1].argmax()]]], dim=1)


def changed_in_between(x: Tensor) -> Tensor:
    mask = (x[:, 0] > 0).clone()
    before = x.detach()[mask]
    mask[0] = True
    return torch.cat([before, x[mask]])


def entries(x: Tensor) -> Tensor:
    return x[x > 0]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (drawn, {"n1": ("3*B/20", "B")}),
        (either, {"n1": ("B", "B")}),
        (one_and_another, {"n1": ("B", "B"), "n2": ("B", "B")}),
        (two_rows_of_a_mask, {"n1": ("d", "d"), "n2": ("d", "d")}),
        (rows_that_data_pick, {"n1": ("d", "d"), "n2": ("d", "d")}),
        (changed_in_between, {"n1": ("B", "B"), "n2": ("B", "B")}),
        (entries, {"n1": ("B*d", "B*d")}),
    ],
)
def test_the_same_values_have_one_size_and_others_another(of: Callable[[Tensor], Tensor], expected: dict[str, Any]) -> None:
    """A mask used twice chooses as many each time; another mask, another part of it, or the mask after a change need not."""
    assert expected == by_name(derived(function(of)))


@pytest.mark.parametrize("mode", [pytest.param("eval", marks=pytest.mark.slow), "infer"])
def test_a_forward_alone_is_exact_too(mode: str) -> None:
    """In inference mode torch counts no changes of a tensor, so they are counted here."""
    report = calc.check(derived(function(changed_in_between), mode=mode))

    assert report.ok
    assert {"n1": ("B", "B"), "n2": ("B", "B")} == by_name(derived(function(changed_in_between), mode=mode))


def test_a_line_in_several_layers_has_one_size() -> None:
    """It is known by the lines that lead to it, not by how often they are passed."""

    class Layers(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(n.L)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                rows = (x[:, 0] > 0).nonzero()[:, 0]
                x = x.index_add(0, rows, layer(x[rows]))
            return x

    derivation = derived(spec(Layers, dims={"B": 19, "d": 7, "L": 5}))

    assert {"n1": ("B", "B")} == by_name(derivation)
    assert "2*d**2*L*n1" == derivation[MATMUL].text


def test_recomputed_operators_have_the_sizes_of_the_forward() -> None:
    """A checkpointed part is called from no line of the model's the second time."""

    def positive(x: Tensor) -> Tensor:
        return torch.tanh(x[x[:, 0] > 0])

    derivation = derived(function(lambda x: checkpoint(positive, x, use_reentrant=False)))

    assert {"n1": ("B", "B")} == by_name(derivation)
    assert calc.check(derivation).ok


# -- branches -------------------------------------------------------------------------------------------------------------


def test_an_index_is_never_what_it_is_chosen_below() -> None:
    """A router of E experts never says E, so a loop that passes over expert E passes over none."""

    def of(x: Tensor) -> Tensor:
        best = x.argmax(-1)
        return x if best[0] == x.shape[1] else x * 2

    assert "3*B*d - 1" == derived(function(of))["flops.forward.elementwise"].text


PADDING = 1


def _tokens(low: Any) -> dict[str, Any]:
    """A spec's input and loss of tokens drawn from ``low`` to V - 1, whose embedding drops what is padding only if there is any."""

    class Padded(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.embedding = nn.Embedding(n.V, n.d)

        def forward(self, tokens: Tensor) -> Tensor:
            padding = tokens.eq(PADDING)
            x = self.embedding(tokens)
            return x if not padding.any() and tokens.ne(PADDING).all() and (~padding).all() else x * 2

    return {
        "dims": {"B": 19, "d": 7, "V": 31},
        "build": Padded,
        "inputs": lambda n: (torch.randint(low, n.V, (n.B,)),),
        "loss": lambda m, x: m(x).sum(),
    }


def test_tokens_drawn_above_the_padding_have_none() -> None:
    """Then ``padding.any()`` is false in every run: the branch is taken that doubles nothing, and the sum is all there is."""
    assert "B*d - 1" == derived(Spec("m", **_tokens(PADDING + 1)))["flops.forward.elementwise"].text


@pytest.mark.parametrize("low", [PADDING, 0])
def test_tokens_that_may_be_padding_are_data(low: int) -> None:
    with pytest.raises(DataDependentError, match=r"at test_unbacked_sizes\.py:\d+: return x if .*: it depends on the data"):
        derived(Spec("m", **_tokens(low)))


def test_no_index_is_below_zero() -> None:
    """As with -100, the label that torch's cross-entropy ignores."""

    def of(x: Tensor) -> Tensor:
        best = x.argmax(-1)
        return x * 2 if best.eq(-100).any() else x

    assert "2*B*d - 1" == derived(function(of))["flops.forward.elementwise"].text


def test_an_index_that_was_changed_may_be_anything() -> None:
    """Also through another view of the same memory."""

    def of(x: Tensor) -> Tensor:
        best = x.argmax(-1)
        view = best.view(-1)
        best += 1
        return x if view[0] == x.shape[1] else x * 2

    with pytest.raises(DataDependentError, match=r"reads a value out of a tensor at test_unbacked_sizes\.py"):
        derived(function(of))


def test_an_index_that_was_exchanged_may_be_anything() -> None:
    """The tensor is the same one, its storage is another."""

    def of(x: Tensor) -> Tensor:
        best = x.argmax(-1)
        best.data = best + 1
        return x if best[0] == x.shape[1] else x * 2

    with pytest.raises(DataDependentError, match=r"reads a value out of a tensor at test_unbacked_sizes\.py"):
        derived(function(of))


def test_a_number_of_chosen_elements_may_be_requested() -> None:
    """How many there are is a size as any other: it may be compared, and may be a size."""

    def of(x: Tensor) -> Tensor:
        rows = (x[:, 0] > 0).nonzero()[:, 0]
        if len(rows) == 0:
            return x
        return x[rows] * torch.ones(len(rows), x.shape[1])

    derivation = derived(function(of))

    assert "B*d + 2*d*n1 - 1" == derivation["flops.forward.elementwise"].text


# -- data-dependent sizes without a mask ----------------------------------------------------------------------------------------


def up_to_the_largest(x: Tensor) -> Tensor:
    return x[: int(x.argmax(1).max())]


def up_to_an_item(x: Tensor) -> Tensor:
    return x[: x.argmax().item()]


def split_by_a_list(x: Tensor) -> Tensor:
    return torch.cat([part * 2 for part in x.split(x.argmax(1).tolist())])


def zeros_of_a_sum(x: Tensor) -> Tensor:
    return x.sum() + torch.zeros((x > 0).sum().item())


def as_often_as_data_say(x: Tensor) -> Tensor:
    for _ in range(int(x.argmax())):
        x = x * 2
    return x


def viewed_by_a_sum(x: Tensor) -> Tensor:
    mask = x[:, 0] > 0
    return x[mask].view(int(mask.sum()), -1)


def repeated(x: Tensor) -> Tensor:
    return x.repeat_interleave(x.argmax(1), 0)


def counted(x: Tensor) -> Tensor:
    return x.sum() * torch.bincount(x.argmax(1))


def counted_with_too_few(x: Tensor) -> Tensor:
    return x.sum() * torch.bincount(x.argmax(1), minlength=2)


@pytest.mark.parametrize(
    "of",
    [
        up_to_the_largest,
        up_to_an_item,
        split_by_a_list,
        zeros_of_a_sum,
        as_often_as_data_say,
        viewed_by_a_sum,
        repeated,
        counted,
        counted_with_too_few,
    ],
)
def test_a_value_of_data_never_becomes_a_number(of: Callable[[Tensor], Tensor]) -> None:
    """Lengths, loop counts and parts read out of a tensor are refused with their line."""
    with pytest.raises(NapkinError) as refusal:
        derived(function(of))

    assert isinstance(refusal.value, DataDependentError)
    assert re.search(r"test_unbacked_sizes\.py:\d+: ", str(refusal.value))
    assert "\n" not in str(refusal.value)


def test_counts_of_known_numbers_have_a_known_length() -> None:
    """Of d numbers from 0 to d - 1 each is counted, whichever come."""
    derivation = derived(function(lambda x: x * torch.bincount(x.argmax(1), minlength=x.shape[1])))

    assert {} == by_name(derivation)
    assert calc.check(derivation).ok


# -- saved ----------------------------------------------------------------------------------------------------------------


def test_a_saved_graph_keeps_data_dependent_sizes(tmp_path: Path) -> None:
    """Bound, expected value and place."""
    graph = calc.trace(some_rows(), optimizer="sgd", cache=False)
    serialize.save(graph, tmp_path / "graph.json")
    again = serialize.load(tmp_path / "graph.json")

    assert graph.dims == again.dims
    assert calc.derive(graph)["memory.peak"].text == calc.derive(again)["memory.peak"].text
    assert by_name(calc.derive(again)) == {"n1": ("B", "B")}


MODEL = """
import torch
from torch import nn
from calc import Spec

spec = Spec(
    name="some rows",
    dims={"B": 19, "d": 7},
    build=lambda n: nn.Linear(n.d, n.d),
    inputs=lambda n: (torch.randn(n.B, n.d),),
    loss=lambda module, x: module(x[x[:, 0] > 0]).sum(),
)
"""


def test_a_cached_trace_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced, read from the cache, and read from it with the size given."""
    (tmp_path / "rows.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))
    s = calc.load(f"{tmp_path / 'rows.py'}:spec")

    without = calc.derive(s, cache=False)
    first, second, given = calc.derive(s), calc.derive(s), calc.derive(s, {"n1": 5})

    assert without.to_json()["quantities"] == first.to_json()["quantities"] == second.to_json()["quantities"]
    assert without.dims == first.dims == second.dims
    assert 5 == given.sizes["n1"]
    assert 2 * 5 * 7 * 7 == given[MATMUL].value


def test_a_loss_over_some_places_is_exact() -> None:
    """Masked modelling: the loss of the places that were drawn."""

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        drawn = torch.rand(x.shape[0]) < 0.3
        return F.cross_entropy(module(x)[drawn], y[drawn])

    derivation = derived(
        spec(
            lambda n: nn.Linear(n.d, n.V),
            dims={"B": 19, "d": 7, "V": 11},
            inputs=lambda n: (torch.randn(n.B, n.d), torch.randint(n.V, (n.B,))),
            loss=loss,
        )
    )

    assert {"n1": ("3*B/10", "B")} == by_name(derivation)
    assert calc.check(derivation).ok


def test_what_a_distribution_checks_of_its_arguments_is_no_branch() -> None:
    """Torch raises where they are not valid; a step that runs has passed. The entropy of a policy, say."""
    entropy = spec(
        lambda n: nn.Linear(n.d, n.V),
        dims={"B": 5, "d": 7, "V": 11},
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: torch.distributions.Categorical(logits=module(x)).entropy().mean(),
    )

    assert calc.check(derived(entropy)).ok
