"""Totals by part of the model: each part by hand, and all of them together the whole; modules and names of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.derive.loops import Group, staged
from calc.derive.result import Derivation
from calc.spec import Spec
from calc.symbolic.algebra import Algebra
from calc.symbolic.exact import evaluate_text
from calc.units import Unit
from tests.derive.conftest import Derived
from tests.derive.test_other_sizes import alone
from tests.derive.test_other_sizes import spec as layers

B, T, D, FF, L, K = 5, 7, 11, 29, 3, 13


class Block(nn.Module):
    """Attention and a feed-forward in one module, without a module for either, their weights without a name for what they do."""

    def __init__(self, d: Any, f: Any) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.empty(d, d)) for _ in range(4))
        self.e, self.g = nn.Parameter(torch.empty(d, f)), nn.Parameter(torch.empty(f, d))
        self.r = nn.Parameter(torch.empty(d))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.r
        scores = torch.einsum("btd,bsd->bts", x @ self.a, x @ self.b) / 3
        x = x + torch.einsum("bts,bsd->btd", scores.softmax(-1), x @ self.c) @ self.d
        return x + F.gelu(x @ self.e) @ self.g


class Net(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.stem = nn.Conv1d(n.d, n.d, 3, padding=1)
        self.blocks = nn.ModuleList(Block(n.d, n.f) for _ in range(n.L))
        self.scale = nn.LayerNorm((n.d,))
        self.score = nn.Linear(n.d, n.K)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.score(self.scale(x))


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.T, n.d), torch.randint(n.K, (n.B, n.T))


def _stream(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


OWN = Spec(
    name="own",
    dims={"B": B, "T": T, "d": D, "f": FF, "L": L, "K": K},
    build=Net,
    inputs=_inputs,
    loss=lambda model, x, classes: F.cross_entropy(model(x).flatten(0, 1), classes.flatten()),
)


@pytest.fixture(scope="module")
def own() -> Derivation:
    return calc.derive(OWN)


def parts(derivation: Derivation, quantity: str) -> Mapping[str, int]:
    return {part.part: int(part.value) for part in derivation[quantity].parts}


def assert_whole(derivation: Derivation) -> None:
    """Of every quantity but peaks, parts add up to the value, addends to each part, and each closed form has the part's value."""
    for quantity in (q for q in derivation.quantities.values() if q.value and not q.candidates):
        assert sum(part.value for part in quantity.parts) == quantity.value, quantity.name
        for part in quantity.parts:
            assert evaluate_text(part.expr, derivation.sizes) == part.value, (quantity.name, part.part)
            assert sum(evaluate_text(addend.expr, derivation.sizes) for addend in part.addends) == part.value, (quantity.name, part.part)


@pytest.mark.slow
def test_parts_follow_from_operators_in_a_module_that_has_all_of_them(own: Derivation) -> None:
    """Four matrices of d·d, two of d·f, a convolution of three taps: 2·m·k·n each, and twice that in the backward but for the stem."""
    forward = {
        "query, key and value": 3 * L * 2 * B * T * D * D,
        "query keyᵀ": L * 2 * B * T * T * D,
        "probs value": L * 2 * B * T * T * D,
        "attention output": L * 2 * B * T * D * D,
        "feed-forward": 2 * L * 2 * B * T * D * FF,
        "stem": 3 * 2 * B * T * D * D,
        "head": 2 * B * T * D * K,
    }

    assert parts(own, "flops.forward.matmul") == forward
    assert parts(own, "flops.backward.matmul") == {part: n * (1 if part == "stem" else 2) for part, n in forward.items()}
    assert parts(own, "parameters") == {
        "query, key and value": 3 * L * D * D,
        "attention output": L * D * D,
        "feed-forward": 2 * L * D * FF,
        "stem": 3 * D * D + D,
        "blocks.*.r": L * D,
        "norms": 2 * D,
        "head": D * K + K,
    }
    assert_whole(own)


@pytest.mark.slow
def test_tensors_that_a_module_of_several_parts_saves_are_of_the_part_that_they_are_computed_from(own: Derivation) -> None:
    """All of fp32. A matrix saves its input, GELU too, and a product of activations saves both. The input of ``x * r`` is the residual
    stream, which is of no part, also where only the stem has computed it."""
    saved, stream, hidden = parts(own, "activations.bytes"), 4 * L * B * T * D, 4 * L * B * T * FF

    assert {part: n for part, n in saved.items() if part not in ("head", "loss", "norms")} == {
        "query, key and value": 3 * stream,
        "query keyᵀ": 2 * stream,
        "softmax": 4 * L * B * T * T,
        "probs value": stream,
        "attention output": stream,
        "feed-forward": stream + 2 * hidden,
        "stem": 4 * B * T * D,
        "other": stream,
    }
    assert_whole(own)


@pytest.mark.slow
def test_both_attentions_have_scores_and_mix_of_their_own(derived: Derived) -> None:
    """GPT-2 small: 2·B·T²·d a layer for each; fused attention computes the scores once more for its backward."""
    each = 12 * 2 * 8 * 1024**2 * 768
    for attention, again in (("fused", 1), ("math", 0)):
        gpt = derived("gpt2", attention=attention)
        forward, step = parts(gpt, "flops.forward.matmul"), parts(gpt, "flops.step.total")
        assert (forward["query keyᵀ"], forward["probs value"]) == (each, each)
        assert (step["query keyᵀ"], step["probs value"]) == ((3 + again) * each, 3 * each)
        assert_whole(gpt)
    assert parts(derived("gpt2"), "parameters") == {
        "embedding": (50257 + 1024) * 768,
        "query, key and value": 12 * (3 * 768**2 + 3 * 768),
        "attention output": 12 * (768**2 + 768),
        "feed-forward": 12 * (8 * 768**2 + 5 * 768),
        "norms": 12 * 4 * 768 + 2 * 768,
    }


class MixFirst(nn.Module):
    """Attention whose mix has value as the left operand: valueᵀ Pᵀ, transposed."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.empty(d, d)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        p = torch.bmm(x @ self.a, (x @ self.b).transpose(1, 2)).softmax(-1)
        return torch.bmm((x @ self.c).transpose(1, 2), p.transpose(1, 2))


def _labels(derivation: Derivation, quantity: str, *names: str) -> set[str]:
    return {str(addend.label) for part in derivation[quantity].parts if part.part in names for addend in part.addends}


def test_matmuls_of_attention_have_the_names_of_their_products(own: Derivation) -> None:
    """Where it is not fused too, in both passes; where V is the left operand, those of the mix have the names of any matmul."""
    first = replace(
        OWN, name="mix first", dims={"B": B, "T": T, "d": D}, build=lambda n: MixFirst(n.d), inputs=_stream, loss=lambda m, x: m(x).sum()
    )
    swapped = calc.derive(first)

    for quantity, scores, mix in (
        ("flops.forward.matmul", {"query keyᵀ"}, {"probs value"}),
        ("flops.backward.matmul", {"dquery = dscores key", "dkeyᵀ = queryᵀ dscores"}, {"dprobs = dO valueᵀ", "dvalue = probsᵀ dO"}),
    ):
        assert (_labels(own, quantity, "query keyᵀ"), _labels(own, quantity, "probs value")) == (scores, mix)
        assert _labels(swapped, quantity, "query keyᵀ") == scores
    assert _labels(swapped, "flops.backward.matmul", "probs value") == {"dx = dy Wᵀ", "dW = xᵀ dy"}


@pytest.mark.slow
def test_experts_and_their_router_are_apart() -> None:
    """Mixtral: a token uses e of E experts, and each of them has three matrices."""
    n = {"B": 2, "T": 5, "d": 24, "h": 6, "g": 2, "k": 10, "f": 56, "L": 3, "V": 29, "E": 7, "e": 2}
    mixtral = calc.derive(calc.load("mixtral"), n, optimizer="sgd")
    forward = parts(mixtral, "flops.forward.matmul")

    assert forward["experts"] == 2 * 2 * 5 * 3 * 2 * 24 * 56 * 3
    assert forward["router"] == 2 * 2 * 5 * 24 * 7 * 3
    assert parts(mixtral, "parameters")["experts"] == 3 * 7 * 24 * 56 * 3
    assert "feed-forward" not in forward
    assert_whole(mixtral)


class Attention(nn.Module):
    """Attention with a vector of its own."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.qkv, self.out, self.scale = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Parameter(torch.empty(d))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((q * self.scale @ k.transpose(0, 1)).softmax(-1) @ v)


class Experts(nn.Module):
    """Attention, then a router that chooses two experts, each with a bias."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.attention, self.router = Attention(n.d), nn.Linear(n.d, n.E)
        self.stack, self.bias = nn.Parameter(torch.empty(n.E, n.d, n.d)), nn.Parameter(torch.empty(n.E, n.d))

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        chosen = self.router(x).topk(2, -1).indices
        return (torch.einsum("td,tedf->tef", x, self.stack[chosen]) + self.bias[chosen]).sum(1)


def test_biases_of_experts_and_vectors_of_attention_are_of_them() -> None:
    """As in gpt-oss, where each expert has biases and attention a sink for each head."""
    dims: dict[str, Any] = {"T": T, "d": D, "E": 5}
    spec = Spec("experts", dims, Experts, lambda n: (torch.randn(n.T, n.d),), lambda module, x: module(x).sum())
    count = parts(calc.derive(spec, cache=False, mode="infer"), "parameters")

    assert count == {
        "query, key and value": 3 * (D**2 + D),
        "attention output": D**2 + D,
        "attention": D,
        "router": 5 * (D + 1),
        "experts": 5 * (D**2 + D),
    }


class OneStorage(nn.Module):
    """Attention whose queries, keys and values are views of one result, as Bloom's are at a batch of one."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1)).unbind(2)
        return self.out(torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v))


def test_gradients_of_attention_belong_to_its_products_where_all_operands_are_one_storage() -> None:
    """Two gradients of query keyᵀ and two of probs value, each as many FLOP as the product."""
    dims = {"B": B, "T": T, "d": D}
    spec = Spec("views", dims, lambda n: OneStorage(n.d), lambda n: (torch.randn(n.B, n.T, n.d),), lambda m, x: m(x).square().sum())
    derivation = calc.derive(spec, cache=False, optimizer="sgd")
    backward = parts(derivation, "flops.backward.matmul")

    assert (backward["query keyᵀ"], backward["probs value"]) == (2 * 2 * B * T * T * D, 2 * 2 * B * T * T * D)
    assert_whole(derivation)


class TimeMixing(nn.Module):
    """Keys, values and gates of RWKV, mixed over time without a matmul, then a gated feed-forward."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.key, self.value, self.gate, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.by, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.score = nn.Linear(d, K)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.key(x).exp()
        mixed = (weight * self.value(x)).cumsum(0) / weight.cumsum(0)
        x = x + self.out(self.gate(x).sigmoid() * mixed)
        return self.score(x + self.down(F.silu(self.by(x)) * self.up(x)))


def test_a_mixture_over_time_is_no_feed_forward() -> None:
    """Its projections are parts by module; what has a gate and one other before it is a feed-forward."""
    spec = Spec("mixing", {"T": T, "d": D}, lambda n: TimeMixing(n.d), lambda n: (torch.randn(n.T, n.d),), lambda m, x: m(x).sum())
    count = parts(calc.derive(spec, cache=False, mode="infer"), "flops.forward.matmul")

    projections = dict.fromkeys(("key", "value", "gate", "out"), 2 * T * D**2)
    assert count == projections | {"feed-forward": 2 * T * 3 * 2 * D**2, "head": 2 * T * D * K}


@pytest.mark.slow
def test_a_convolutional_network_has_its_stages() -> None:
    """ResNet-50: no attention and no feed-forward; the head is the last linear layer."""
    resnet = calc.derive(calc.load("resnet50"), mode="infer")

    assert [*parts(resnet, "flops.forward.matmul")] == ["conv1", "layer1", "layer2", "layer3", "layer4", "head"]
    assert parts(resnet, "parameters")["head"] == 2048 * 1000 + 1000
    assert_whole(resnet)


class Recurrent(nn.Module):
    """Two layers of an LSTM, whose second takes what the gates of the first return, and a head."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.memory = nn.LSTM(n.d, n.f, num_layers=2, batch_first=True)
        self.score = nn.Linear(n.f, n.K)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.memory(x)[0])


def test_layers_of_a_recurrence_are_no_feed_forward() -> None:
    """Four gates, each of W x + U h and two biases."""
    spec = Spec("recurrent", dims={"B": B, "d": D, "f": FF, "K": K}, build=Recurrent, inputs=_three_steps, loss=OWN.loss)
    derivation = calc.derive(spec, optimizer="sgd")

    assert parts(derivation, "parameters") == {"memory": 4 * FF * (D + 3 * FF) + 4 * 4 * FF, "head": FF * K + K}
    assert parts(derivation, "flops.forward.matmul") == {"memory": 3 * 2 * B * 4 * FF * (D + 3 * FF), "head": 3 * 2 * B * FF * K}
    assert_whole(derivation)


def _three_steps(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, 3, n.d), torch.randint(n.K, (n.B, 3))


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("layer1.0.conv", "layer2.0.conv", "layer2.1.conv", "head"), ("layer1", "layer2", "layer2", "head")),
        (("stages.0.conv", "stages.1.0.conv"), ("stages.0", "stages.1")),
        (("0.weight", "h.*.mlp"), ("0", "h.*.mlp")),
    ],
)
def test_modules_of_a_numbered_container_are_one_part(paths: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """Of several containers each is one; of one container, each of its modules."""
    one = Algebra(("x",), ()).constant(1)
    groups = [Group("q", path, "", "", (), one, one, Unit.FLOP, path) for path in paths]

    assert tuple(g.part for g in staged(groups)) == expected


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (lambda: layers(alone), {}),
        pytest.param(lambda: calc.load("gpt2"), {"T": 7, "L": 2, "V": 47, "C": 13, "h": 5, "d": 35}, marks=pytest.mark.slow),
    ],
    ids=["layers", "gpt2"],
)
def test_a_part_of_a_step_with_a_special_case_has_both_forms(model: Callable[[], Spec], sizes: dict[str, int]) -> None:
    """At a batch of one, and at larger ones."""
    derivation = calc.derive(model(), {"B": 1, **sizes}, optimizer="sgd")

    assert_whole(derivation)
    assert_whole(derivation.at_sizes({"B": 3}))


@pytest.mark.slow
def test_a_hugging_face_model_without_attention_has_its_modules(tmp_path: Path) -> None:
    """Mamba: what is neither attention nor feed-forward is a part by its module; a bias belongs to the weight of its module."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MambaConfig(vocab_size=47, hidden_size=14, state_size=3, num_hidden_layers=2, time_step_rank=2)
    config.architectures = ["MambaForCausalLM"]
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    mamba = calc.derive(calc.load(f"hf:{tmp_path}/config.json"), {"B": 2, "T": 5}, optimizer="sgd")
    mixer, count = "backbone.layers.*.mixer", parts(mamba, "parameters")

    assert (count["embedding"], count[f"{mixer}.conv1d"], count[f"{mixer}.in_proj"]) == (47 * 14, 2 * (28 * 4 + 28), 2 * 14 * 56)
    assert parts(mamba, "flops.forward.matmul")["head"] == 2 * 2 * 5 * 14 * 47
    assert not {"feed-forward", "query keyᵀ", "query, key and value"} & {*count, *parts(mamba, "flops.step.total")}
    assert_whole(mamba)


def numbered(spec: Spec, sizes: Mapping[str, int]) -> Spec:
    """The same model with a number for each size, so that its trace has no symbol and every layer is traced."""
    n = SimpleNamespace(**spec.sizes(sizes))
    return Spec(spec.name, dims={"unused": 97}, build=lambda _: spec.build(n), inputs=lambda _: spec.inputs(n), loss=spec.loss)


_PRIMES = {
    "gpt2": {"B": 3, "T": 11, "d": 5 * 7, "h": 5, "f": 31, "L": 4, "V": 43, "C": 13},
    "llama3-8b": {"B": 3, "T": 11, "d": 47, "h": 3 * 5, "g": 5, "k": 2 * 7, "f": 31, "L": 4, "V": 43},
    "mixtral": {"B": 3, "T": 11, "d": 8 * 5, "h": 3 * 5, "g": 5, "k": 2 * 7, "f": 8 * 11, "L": 4, "V": 43, "E": 7, "e": 2},
    "vit-b": {"B": 3, "S": 3 * 11, "P": 11, "d": 5 * 7, "h": 5, "f": 31, "L": 4},
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name != "gpt2" else ()) for name in _PRIMES])
def test_each_part_at_other_sizes_is_that_of_a_trace_without_symbols(name: str) -> None:
    """Of a dense model, one with grouped queries, one with experts and one of images: the closed form of every part, evaluated at distinct
    sizes, equals what a step of those numbers runs, and no part is of one side only; of a peak, the bytes of each role."""
    spec = calc.load(name)
    symbolic = calc.derive(spec, _PRIMES[name], optimizer="sgd")
    fresh = calc.derive(numbered(spec, _PRIMES[name]), optimizer="sgd", cache=False)
    peaks = [quantity for quantity, value in symbolic.quantities.items() if value.candidates]
    names = [quantity for quantity, value in symbolic.quantities.items() if value.value and quantity not in peaks]

    assert (len(names) > 15, len(peaks)) == (True, 2)
    for quantity in peaks:
        largest, alone = symbolic[quantity].largest_candidate, fresh[quantity].largest_candidate
        assert largest is not None
        assert alone is not None
        closed = {role: evaluate_text(expr, symbolic.sizes) for role, expr in largest.parts.items()}
        assert closed == alone.part_values, quantity
    for quantity in names:
        closed = {part.part: evaluate_text(part.expr, symbolic.sizes) for part in symbolic[quantity].parts}
        assert closed == parts(fresh, quantity), quantity
    assert {part.part for part in symbolic["flops.forward.matmul"].parts} >= {"query keyᵀ", "probs value", "head"}


def test_weights_without_a_module_are_parts_of_their_own() -> None:
    """Two-layer: w1 and w2 by their names, in which steps are written too; so is what each product saves, though both run in the model."""
    derivation = calc.derive(calc.load("two-layer"), {"B": 5, "D": 7, "K": 11})
    names = ("parameters", "flops.forward.matmul", "activations.bytes")
    parts = {name: {p.part: p.value for p in derivation[name].parts} for name in names}

    assert {"w1": 7 * 7, "w2": 7 * 11} == parts["parameters"]
    assert {"w1": 2 * 5 * 7 * 7, "w2": 2 * 5 * 7 * 11} == parts["flops.forward.matmul"]
    assert {"w1": 4 * 5 * 7, "w2": 4 * 5 * 7, "loss": 2 * 4 * 5 * 11} == parts["activations.bytes"]


class OwnSoftmax(nn.Module):
    """Attention and a head over classes, with a softmax and a loss that are written out, as in an exercise."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(n.d, n.d, bias=False) for _ in range(4))
        self.classes = nn.Linear(n.d, n.K, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).mT
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        weights = weights / weights.sum(-1, keepdim=True)
        y: Tensor = self.classes(self.o(weights @ self.v(x)))
        return y


def _own_loss(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    logits = model(x)
    logits = logits - logits.max(-1, keepdim=True).values
    right: Tensor = logits.gather(-1, classes[..., None]).squeeze(-1)
    return (logits.exp().sum(-1).log() - right).mean()


def test_a_softmax_may_be_an_exponential_over_its_sum_and_a_largest_number_chooses_no_expert() -> None:
    """Scores, mix and head are those of a model that calls ``softmax`` and ``cross_entropy``; nothing is routed."""
    spec = Spec("own softmax", {"B": B, "T": T, "d": D, "K": K}, OwnSoftmax, _inputs, _own_loss)
    forward = {
        "query, key and value": 3 * 2 * B * T * D * D,
        "query keyᵀ": 2 * B * T * T * D,
        "probs value": 2 * B * T * T * D,
        "attention output": 2 * B * T * D * D,
        "head": 2 * B * T * D * K,
    }
    derivation = calc.derive(spec, optimizer="sgd")

    assert forward == parts(derivation, "flops.forward.matmul")
    assert derivation["flops.forward.causal"].unknown == "no attention call of this model declares a causal mask"


class Points(nn.Module):
    """Takes the largest of each feature over all points, and goes on."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.each, self.all = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.all(self.each(x).max(1).values)
        return y


def test_a_layer_whose_largest_results_are_taken_is_no_router() -> None:
    """What is chosen are values; nothing uses their places."""
    spec = Spec("points", {"B": B, "T": T, "d": D, "f": FF}, Points, _stream, lambda model, x: model(x).sum())
    derivation = calc.derive(spec, optimizer="sgd", mode="infer")

    assert {"each": 2 * B * T * D * FF, "head": 2 * B * FF * D} == parts(derivation, "flops.forward.matmul")


def _alike(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x).flatten(1)
    return F.cross_entropy(y @ y.mT, torch.arange(x.shape[0]))


def test_matmuls_of_a_loss_function_are_of_the_loss() -> None:
    """As of a contrastive loss, which compares all pairs of a batch: 2·B²·(T·d) in the same part as its logarithm."""
    spec = Spec("pairs", {"B": B, "T": T, "d": D}, lambda n: nn.Linear(n.d, n.d), _stream, _alike)
    derivation = calc.derive(spec, optimizer="sgd")

    assert {"(model)": 2 * B * T * D * D, "loss": 2 * B * B * T * D} == parts(derivation, "flops.forward.matmul")
    assert "(loss)" not in parts(derivation, "flops.step.total")
