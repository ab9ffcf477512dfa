"""Checkpointing as an option: which parts of a module are recomputed, that its step stays the same, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import SpecError
from calc.experiment.checkpointing import checkpointed
from calc.measure import measure
from calc.models.load import load
from calc.options import Options
from calc.pipeline.check import compare
from calc.pipeline.patterns import in_patterns
from calc.pipeline.verdict import EXACT, FAILED, IN_PARTS, NOT_MEASURED
from calc.spec import Spec
from calc.symbolic.algebra import to_sympy
from tests.models.building import build

MASKED = {"flops.forward.causal", "flops.backward.causal"}
SIZES = {"B": 2, "T": 5, "d": 6, "h": 3, "f": 7, "V": 13, "C": 11}


class Attention(nn.Module):
    def __init__(self, d: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(d, d)

    def forward(self, x: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.inner(x) * scale)
        return y, y.detach()


class AttentionNorm(nn.LayerNorm):
    """Named after an attention, and none."""


class Block(nn.Module):
    """An attention with a keyword and two results, and a layer after it."""

    def __init__(self, d: Any, f: Any) -> None:
        super().__init__()
        self.norm, self.attention = AttentionNorm((d,)), Attention(d)
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = x + self.attention(self.norm(x), scale=scale)[0]
        y: Tensor = x + self.down(torch.sigmoid(self.up(x)))
        return y


class Stack(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(n.d, n.f) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def _spec(make: Callable[[Any], nn.Module] = Stack, trip_counts: tuple[str, ...] = ("L",)) -> Spec:
    return Spec(
        name="stack",
        dims={"B": 3, "d": 5, "f": 11, "L": 4},
        build=make,
        inputs=lambda n: (torch.randn(n.B, n.d, requires_grad=False),),
        loss=lambda module, x: module(x).square().mean(),
        trip_counts=trip_counts,
    )


@cache
def _derived(choice: str) -> Derivation:
    return calc.derive(_spec(), cache=False, optimizer="sgd", checkpointing=choice)


def _run_again(module: nn.Module, choice: str) -> list[str]:
    """The parts that are recomputed, by name."""
    checkpointed("a model", module, choice)
    return [name for name, part in module.named_modules() if "forward" in vars(part)]


def _stack(times: int, d: int = 4) -> nn.ModuleList:
    return nn.ModuleList([Block(d, d) for _ in range(times)])


def test_blocks_are_the_children_of_the_outermost_lists() -> None:
    """Those of an encoder and of a decoder alike, whatever lists are inside them or beside them."""
    inside = _stack(2)
    inside[1].experts = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)])
    model = nn.ModuleDict({"encoder": _stack(2), "decoder": inside, "plain": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])})

    assert ["encoder.0", "encoder.1", "decoder.0", "decoder.1"] == _run_again(model, "block")


def test_of_a_sequence_the_parts_of_one_class_are_blocks() -> None:
    """What stands before and after them is none, and stages that are sequences themselves are looked into."""
    stage = [nn.Sequential(*(Block(2, 2) for _ in range(2))) for _ in range(2)]

    assert ["1", "2"] == _run_again(nn.Sequential(nn.Linear(2, 2), Block(2, 2), Block(2, 2), nn.Sequential(nn.ReLU())), "block")
    assert ["0.0", "0.1", "1.0", "1.1"] == _run_again(nn.Sequential(*stage), "block")


def test_blocks_that_are_plain_sequences_are_blocks() -> None:
    """As the pairs of a convolution and its norm."""
    pairs = nn.Sequential(*(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()) for _ in range(3)))

    assert ["0", "1", "2"] == _run_again(pairs, "block")


def test_lists_of_lists_are_looked_into() -> None:
    """A list cannot be called."""
    assert ["0.0", "0.1", "1.0"] == _run_again(nn.ModuleList([_stack(2), _stack(1)]), "block")


@pytest.mark.parametrize(("choice", "expected"), [("block/2", ["0", "2", "4"]), ("block/3", ["0", "3"]), ("block/9", ["0"])])
def test_every_second_block_is_the_first_and_the_third(choice: str, expected: list[str]) -> None:
    """So it is of each list."""
    assert expected == _run_again(_stack(5), choice)


def test_attention_is_the_outermost_part_of_that_name() -> None:
    """Not its norm, and nothing inside it or outside the blocks."""
    model = nn.ModuleDict({"layers": _stack(2), "attention": Attention(4)})
    model["layers"][0].attention.attn = Attention(4)

    assert ["layers.0.attention", "layers.1.attention"] == _run_again(model, "attention")


def test_a_block_that_several_layers_share_is_wrapped_once() -> None:
    """Checkpoints inside of checkpoints would run it three times."""
    block = Block(4, 4)
    module = checkpointed("a model", nn.ModuleList([block, block]), "block")

    assert block.forward is module[0].forward is module[1].forward
    assert Block.forward is block.forward.__closure__[0].cell_contents.__func__


@pytest.mark.parametrize(
    ("module", "choice", "message"),
    [
        (
            nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)),
            "block",
            "a model: checkpointing 'block' finds no blocks, which are modules with parts of their own in an nn.ModuleList, or several"
            " of one class in an nn.Sequential",
        ),
        (
            nn.ModuleList([nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))]),
            "attention",
            "a model: checkpointing 'attention' finds no attention:"
            " no part of Sequential is of a class with 'attention' or 'attn' in its name",
        ),
    ],
)
def test_a_module_without_such_parts_is_refused(module: nn.Module, choice: str, message: str) -> None:
    """With what was looked for."""
    with pytest.raises(SpecError) as refusal:
        checkpointed("a model", module, choice)
    assert message == str(refusal.value)


@pytest.mark.parametrize("choice", ["block", "block/2", "attention"])
def test_the_gradients_stay_the_same(choice: str) -> None:
    """Dropout too: the noise is regenerated from the same state."""
    spec = load("gpt2:dropout=0.3")
    gradients = []
    for each in ("none", choice):
        torch.manual_seed(0)
        module, inputs, _ = build(spec, L=4, **SIZES)
        module = checkpointed("a model", module, each)
        spec.loss(module, *inputs).backward()
        gradients.append([p.grad for p in module.parameters()])

    assert gradients[0]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# -- on both routes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["block", pytest.param("block/2", marks=pytest.mark.slow), "attention"])
def test_every_quantity_of_a_checkpointed_step_is_exact(choice: str) -> None:
    """At a depth and sizes that the derivation has not seen; what is recomputed is measured too."""
    report = calc.check(_derived(choice), B=7, d=3, f=5, L=6)

    assert report.passed
    assert [] == [str(v) for v in report.verdicts if v.verdict != EXACT and v.quantity not in MASKED]
    assert EXACT == report["flops.backward.recompute"].verdict


def test_what_a_block_keeps_is_its_argument() -> None:
    """4 B d bytes for each of L blocks, and the last one's result for the loss: 4·3·5·(4 + 1) = 300, with the scale of the mean."""
    assert 300 <= (_derived("block")["activations.bytes"].value or 0) < 320
    assert "L" in str(_derived("block")["activations.bytes"].expr)


def test_the_forward_is_recomputed_except_for_the_last_matmul() -> None:
    """Torch stops once it has all that was saved; no argument of the backward comes after the last product."""
    forward, again = (_derived("block")[f"flops.{name}"].expr for name in ("forward.matmul", "backward.recompute"))
    B, d, f, L = (next(s for s in forward.free_symbols if s.name == name) for name in "BdfL")

    assert 0 == (forward - again - 2 * B * d * f * L).expand()


def _own(choice: str, phase: str) -> sp.Expr:
    """Elementwise work at the blocks themselves, outside their parts."""
    terms = _derived(choice)[f"flops.{phase}.elementwise"].terms
    return sp.Add(*(to_sympy(term.expr) for term in terms if term.module_path == "blocks.*"))


def test_recomputed_operators_have_their_own_module_path() -> None:
    """The block's first sum and its sigmoid are the block's when they are recomputed; torch stops before its second sum of B d."""
    repeated = _own("block", "backward") - _own("none", "backward")

    assert 0 == sp.expand(repeated - _own("none", "forward") + to_sympy("B*d*L"))


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["fused", "math"])
@pytest.mark.parametrize("choice", ["block", "block/2", "attention"])
def test_gpt2_is_exact(choice: str, attention: str) -> None:
    """What fused attention repeats inside is counted apart, from the sizes of its calls."""
    derivation = calc.derive(load("gpt2"), {**SIZES, "L": 3}, cache=False, checkpointing=choice, attention=attention)
    report = calc.check(derivation, **SIZES, L=5)

    assert report.passed
    assert [] == [str(v) for v in report.verdicts if not v.passed and v.quantity not in MASKED]
    assert (IN_PARTS if attention == "fused" else EXACT) == report["flops.backward.recompute"].verdict


class Fused(nn.Module):
    """Attention as one operator, whose result is saved."""

    def __init__(self, d: Any, k: Any) -> None:
        super().__init__()
        self.inner, self.k = nn.Linear(d, d), k

    def forward(self, x: Tensor) -> Tensor:
        each = self.inner(x).unflatten(-1, (-1, self.k)).transpose(1, 2)  # (B, h, T, k)
        y: Tensor = nn.functional.scaled_dot_product_attention(each, each, each)
        return x + y.transpose(1, 2).flatten(2)


FUSED = Spec(
    name="fused",
    dims={"B": 2, "T": 3, "d": Dim(10, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True), "L": 2},
    build=lambda n: nn.Sequential(*(Fused(n.d, n.k) for _ in range(n.L))),
    inputs=lambda n: (torch.randn(n.B, n.T, n.d, requires_grad=False),),
    loss=lambda module, x: module(x).square().mean(),
    trip_counts=("L",),
)


def test_what_fused_attention_recomputes_is_counted_from_its_sizes() -> None:
    """In each of two blocks: the layer, 2·2·3·10·10 = 1200, the two products, 2·2·(2·2·3·3·5) = 720, and inside the kernel's backward the
    first of them once more, 360, which no operator shows."""
    measurement = measure(FUSED, {}, options=Options(optimizer="sgd", checkpointing="block"))

    assert 2 * (1200 + 720 + 360) == measurement["flops.backward.recompute"].value
    assert measurement["flops.backward.recompute"].proxy
    assert 2 * (1200 + 720) == measurement.recompute


@pytest.mark.slow
def test_a_wrong_count_of_what_fused_attention_recomputes_fails() -> None:
    """By one FLOP; the right one passes, and so does the backward that it is part of."""
    derivation = calc.derive(FUSED, cache=False, optimizer="sgd", checkpointing="block")
    measurement = measure(FUSED, {}, options=Options(optimizer="sgd", checkpointing="block"))
    right = {name: derivation[name].value for name in derivation}
    wrong = {**right, "flops.backward.recompute": (right["flops.backward.recompute"] or 0) + 1}

    verdicts = [compare(derivation, numbers, measurement)["flops.backward.recompute"].verdict for numbers in (right, wrong)]
    assert [IN_PARTS, FAILED] == verdicts
    assert IN_PARTS == compare(derivation, right, measurement)["flops.backward.matmul"].verdict


LAYERS = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 80, "num_hidden_layers": 4, "vocab_size": 97}
LLAMA = LAYERS | {"max_position_embeddings": 64, "num_key_value_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "bert": LAYERS | {"model_type": "bert", "architectures": ["BertForMaskedLM"], "max_position_embeddings": 64},
    "vit": LAYERS | {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 16, "patch_size": 4},
    "mixtral": LLAMA | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2},
    "albert": LAYERS
    | {"model_type": "albert", "architectures": ["AlbertForMaskedLM"], "embedding_size": 16, "max_position_embeddings": 64},
}


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["block", "block/2", "attention"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_transformers_is_exact(family: str, choice: str, tmp_path: Path) -> None:
    """Their layers take keywords, return tuples, and have a switch for checkpointing of their own, which stays off."""
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES[family]))
    derivation = calc.derive(load(f"hf:{tmp_path}"), cache=False, optimizer="sgd", checkpointing=choice)
    report = calc.check(derivation)

    assert report.passed
    assert [] == [str(v) for v in report.verdicts if not v.passed and v.quantity not in MASKED]
    assert (report["flops.backward.recompute"].measured or 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["block", "block/2"])
def test_a_convolutional_network_is_exact(choice: str) -> None:
    """Its blocks are sequences; batch norms move their means twice. Of a causal mask, nothing is asked."""
    report = calc.check(calc.derive(load("resnet50"), cache=False, optimizer="sgd", checkpointing=choice))

    assert [] == [str(v) for v in report.verdicts if v.verdict != EXACT]


# -- every second block ---------------------------------------------------------------------------------------------------------


def _pattern(spec: Spec, choice: str, **sizes: int) -> Dim:
    return in_patterns(spec, sizes, Options(checkpointing=choice)).dimensions["L"]


def test_a_depth_is_a_number_of_patterns_plus_the_requested_remainder() -> None:
    """4 and 6 are 2 n, 5 is 2 n + 1, which then is also what the model stands at."""
    half, third = (f"one of every {every} blocks is recomputed" for every in (2, 3))

    assert Dim(4, multiple_of=2, because=half) == _pattern(_spec(), "block/2", L=6)
    assert Dim(5, multiple_of=2, plus=1, because=half) == _pattern(_spec(), "block/2", L=5)
    assert Dim(4, multiple_of=3, plus=1, because=third) == _pattern(_spec(), "block/3")
    assert Dim(4) == _pattern(_spec(), "block")


def test_the_patterns_of_the_model_itself_stay_whole() -> None:
    """Layers that repeat in threes after two others: with every second one, a pattern is six."""
    spec = _spec()
    hybrid = Spec(
        **{name: getattr(spec, name) for name in ("name", "build", "inputs", "loss", "trip_counts")},
        dims={"L": Dim(14, multiple_of=3, plus=2, because="layers repeat in patterns of 3")},
    )
    because = "layers repeat in patterns of 3 and one of every 2 blocks is recomputed"

    assert Dim(14, multiple_of=6, plus=2, because=because) == _pattern(hybrid, "block/2")
    assert Dim(11, multiple_of=6, plus=5, because=because) == _pattern(hybrid, "block/2", L=11)


@pytest.mark.slow
def test_a_check_at_the_other_kind_of_depth_is_of_closed_forms_of_that() -> None:
    """Those of the derivation are of even depths alone."""
    report = calc.check(_derived("block/2"), L=5)

    assert report.passed
    assert 0 == report.failed
    assert 5 == report.sizes["L"]


@pytest.mark.slow
def test_a_depth_that_the_spec_does_not_name_is_inferred() -> None:
    """It is read as a number, and then as so many patterns."""
    derivation = calc.derive(_spec(trip_counts=()), {"L": 5}, cache=False, optimizer="sgd", checkpointing="block/2")

    repeated = derivation["flops.backward.recompute"]
    assert 5 * repeated.at(L=7) == 4 * repeated.at(L=9)  # blocks 1, 3, 5, 7 of 7, and one more of 9
    report = calc.check(derivation, B=7, L=7)
    assert report.passed
    assert [] == [str(v) for v in report.verdicts if v.verdict not in (EXACT, NOT_MEASURED)]
