"""The built-in models: their sizes by hand, and that they train as ordinary modules."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.errors import BadInputError, DimensionError
from calc.experiment.inputs import inputs_at
from calc.models.catalogue import CATALOGUE
from calc.models.cruncher import AdaGrad
from calc.models.load import load
from calc.options import Options
from calc.spec import Sizes
from tests.models.building import build, parameters

# Small enough to run in a moment; distinct primes where the model allows them.
SMALL = {
    "linear": {"B": 3, "D": 7, "K": 5},
    "two-layer": {"B": 3, "D": 7, "K": 5},
    "cruncher": {"B": 3, "D": 7, "L": 2},
    "mlp": {"B": 3, "d": 7, "f": 11, "K": 5},
    "gpt2": {"B": 2, "T": 7, "d": 15, "h": 3, "f": 13, "L": 2, "V": 17, "C": 11},
    "gpt2:dropout=0.1": {"B": 2, "T": 7, "d": 15, "h": 3, "f": 13, "L": 2, "V": 17, "C": 11},
    "llama3-8b": {"B": 2, "T": 7, "d": 13, "h": 6, "g": 3, "k": 10, "f": 11, "L": 4, "V": 17},
    "llama3-70b": {"B": 2, "T": 7, "d": 13, "h": 6, "g": 3, "k": 10, "f": 11, "L": 4, "V": 17},
    "mixtral": {"B": 3, "T": 11, "d": 16, "h": 6, "g": 3, "k": 10, "f": 8, "L": 4, "V": 17, "E": 7, "e": 2},
    "vit-b": {"B": 5, "S": 21, "P": 7, "d": 26, "h": 2, "f": 11, "L": 4, "K": 17},
    "resnet50": {"B": 5, "S": 64, "w": 7, "K": 11},
}


def test_every_built_in_model_is_tried_here() -> None:
    """A new entry of the catalogue needs sizes above."""
    assert {name.partition(":")[0] for name in SMALL} == set(CATALOGUE)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "resnet50" else []) for n in SMALL])
def test_a_model_trains(name: str) -> None:
    """Its loss is one number, every parameter gets a gradient, and a few steps on the same batch lower the loss."""
    torch.manual_seed(0)
    spec = load(name)
    module, inputs, _ = build(spec, **SMALL[name])
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        loss = spec.loss(module, *inputs)
        loss.backward()
        gradients = [p.grad for p in module.parameters()]
        assert gradients
        assert all(gradient is not None for gradient in gradients)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    assert loss.shape == ()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_built_the_same_twice(name: str) -> None:
    """One seed, one set of weights: the real runs of a check are repeatable."""
    spec = load(name)
    torch.manual_seed(5)
    first, _, _ = build(spec, **SMALL[name])
    torch.manual_seed(5)
    second, _, _ = build(spec, **SMALL[name])

    pairs = [*zip(first.parameters(), second.parameters(), strict=True)]
    assert pairs
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", SMALL)
def test_the_sizes_of_the_checks_fit_the_model(name: str) -> None:
    """Other dimensions keep their values at them."""
    spec = load(name)
    at = spec.sizes(spec.check_at)

    assert spec.check_at
    assert all(at[letter] == value for letter, value in spec.check_at.items())


# -- inference -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_inference_predicts_from_the_input_alone(name: str) -> None:
    """No targets: the prediction is what the module returns."""
    torch.manual_seed(0)
    spec = load(name)
    module, (x, _), n = build(spec, **SMALL[name])
    (taken,) = inputs_at(spec, n, Options(mode="infer"))

    assert spec.predict is not None
    with torch.no_grad():
        assert torch.equal(spec.predict(module.eval(), x), module(x))
    assert (x.shape, x.dtype) == (taken.shape, taken.dtype)


# Second sizes of the real runs; the first are those of SMALL.
SECOND = {
    "linear": {"B": 5, "D": 3, "K": 11},
    "two-layer": {"B": 5, "D": 3, "K": 11},
    "cruncher": {"B": 5, "D": 3, "L": 4},
    "mlp": {"B": 5, "d": 3, "f": 7, "K": 11},
    "gpt2": {"B": 3, "T": 5, "d": 14, "h": 2, "f": 11, "L": 3, "V": 19, "C": 7},
    "gpt2:dropout=0.1": {"B": 3, "T": 5, "d": 14, "h": 2, "f": 11, "L": 3, "V": 19, "C": 7},
    "llama3-8b": {"B": 3, "T": 5, "d": 24, "h": 4, "g": 2, "f": 13, "L": 3, "V": 19},
    "llama3-70b": {"B": 3, "T": 5, "d": 24, "h": 4, "g": 2, "f": 13, "L": 3, "V": 19},
    "mixtral": {"B": 2, "T": 5, "d": 32, "h": 4, "g": 2, "f": 24, "L": 3, "V": 19, "E": 5, "e": 3},
    "vit-b": {"B": 3, "S": 15, "P": 5, "d": 21, "h": 3, "f": 13, "L": 3, "K": 7},
    "resnet50": {"B": 3, "S": 32, "w": 5, "K": 7},
}
_QUICK = ("linear", "two-layer", "cruncher", "mlp")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in _QUICK else [pytest.mark.slow]) for n in SMALL])
def test_inference_equals_real_runs_at_two_sets_of_sizes(name: str) -> None:
    """Nothing that is measured differs, and the peak, the FLOPs and the bytes moved are measured."""
    spec = load(name)
    derivation = calc.derive(spec, mode="infer", cache=False)
    for sizes in (SMALL[name], SECOND[name]):
        report = calc.check(derivation, **sizes)

        assert [] == [str(v) for v in report.verdicts if v.failed]
        measured = {v.quantity for v in report.verdicts if v.measured is not None}
        assert {"memory.peak", "flops.forward.total", "bytes_moved.forward"} <= measured


def test_gpt2_in_inference_by_hand() -> None:
    """The peak is after the head: weights, B T ids of 8 bytes, and in fp32 the last hidden states B T d and the logits B T V. No FLOP of a
    loss is left: the head's matmul of 2 B T d V is all that has V."""
    derivation = calc.derive(load("gpt2"), mode="infer", cache=False)
    B, T, d, V = 8, 1024, 768, 50257
    weights = 4 * 124_439_808

    assert weights + 8 * B * T + 4 * B * T * d + 4 * B * T * V == derivation["memory.peak"].value == 2_169_811_968
    assert "2*B*T*d*V" in str(derivation["flops.step.total"].text)
    assert "V" not in str(derivation["flops.forward.elementwise"].text)


# -- parameters by hand ----------------------------------------------------------------------------------------------------


def test_gpt2_has_the_published_number_of_parameters() -> None:
    """Embeddings V d + C d; L blocks of attention 4 d^2 + 4 d, feed-forward 8 d^2 + 5 d, two norms 4 d; a last norm 2 d."""
    d, L, V, C = 768, 12, 50257, 1024
    blocks = L * (4 * d**2 + 4 * d + 8 * d**2 + 5 * d + 4 * d)

    assert V * d + C * d + blocks + 2 * d == 124_439_808
    assert parameters("gpt2") == 124_439_808


def test_gpt2_follows_every_one_of_its_dimensions() -> None:
    """(17 + 11) 15 + 2 (4*15^2 + 4*15 + 2*15*13 + 13 + 15 + 4*15) + 2*15 = 420 + 2 * 1438 + 30."""
    attention, feed_forward, norms = 4 * 15**2 + 4 * 15, 2 * 15 * 13 + 13 + 15, 4 * 15

    assert attention + feed_forward + norms == 1438
    assert parameters("gpt2", **SMALL["gpt2"]) == 420 + 2 * 1438 + 30


def test_gpt2_head_is_tied_to_the_embedding() -> None:
    """One storage, so it is counted once."""
    module, _, _ = build(load("gpt2"), **SMALL["gpt2"])

    names = dict(module.named_parameters())
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names
    assert module.lm_head.weight.data_ptr() == names["transformer.wte.weight"].data_ptr()


def test_gpt2_names_its_modules_as_published_checkpoints_do() -> None:
    """So that module paths in a report are those its reader knows."""
    module, _, _ = build(load("gpt2"), **SMALL["gpt2"])

    assert {"transformer.wte", "transformer.wpe", "transformer.h.1.attn.c_attn", "transformer.h.1.mlp.c_fc", "transformer.ln_f"} <= {
        name for name, _ in module.named_modules()
    }


def test_gpt2_computes_causal_attention() -> None:
    """Logits of a position do not change with the tokens after it, and do with the one at it."""
    torch.manual_seed(0)
    module, (ids, _), n = build(load("gpt2"), **SMALL["gpt2"])
    other = ids.clone()
    other[:, 4] = (ids[:, 4] + 1) % n.V

    before, after = module(ids), module(other)

    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def test_gpt2_loss_is_the_mean_over_all_positions() -> None:
    """At equal logits it is log V."""
    spec = load("gpt2")
    module, inputs, n = build(spec, **SMALL["gpt2"])
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()

    assert spec.loss(module, *inputs).item() == pytest.approx(math.log(n.V))


def test_gpt2_refuses_more_tokens_than_positions() -> None:
    """Positions are learned: there are C of them."""
    with pytest.raises(DimensionError, match=r"^T = 1025 is more than C = 1024: this model needs T <= C: lower T or raise C$"):
        load("gpt2").sizes({"T": 1025})


@pytest.mark.parametrize("rate", ["1", "-0.1", "nan", "2"])
def test_gpt2_refuses_a_dropout_that_is_no_rate(rate: str) -> None:
    """At 1 nothing would be left."""
    with pytest.raises(BadInputError, match=r"is not a rate: give a number from 0 to below 1$"):
        load(f"gpt2:dropout={rate}")


def test_linear_has_a_bias() -> None:
    """7 * 5 + 5."""
    assert parameters("linear", **SMALL["linear"]) == 40


def test_two_layer_has_none() -> None:
    """7 * 7 + 7 * 5."""
    assert parameters("two-layer", **SMALL["two-layer"]) == 84


def test_mlp_has_two() -> None:
    """7 * 11 + 11 + 11 * 5 + 5."""
    assert parameters("mlp", **SMALL["mlp"]) == 148


# -- the lecture's Cruncher --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("D", "layers", "count"), [(4, 2, 36), (64, 2, 8256), (5, 0, 5)])
def test_cruncher_has_the_lectures_number_of_parameters(D: int, layers: int, count: int) -> None:
    """D^2 for each layer and D for the last: 2 * 16 + 4, 2 * 4096 + 64, 0 + 5."""
    with torch.device("meta"):
        module = load("cruncher").build(Sizes(D=D, L=layers))

    assert sum(p.numel() for p in module.parameters()) == count


def test_cruncher_saves_its_input_activations_and_both_sides_of_the_loss() -> None:
    """x, h1, h2 of B D = 2 * 4 elements, the prediction and y of B = 2 each: 3 * 8 + 2 + 2 = 28."""
    spec = load("cruncher")
    module, inputs, _ = build(spec, B=2, D=4, L=2)
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    saved: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // 4
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        spec.loss(module, *inputs)

    assert sum(elements for storage, elements in saved.items() if storage not in weights) == 28


def test_the_lectures_adagrad_divides_by_the_root_of_the_summed_squares() -> None:
    """Two steps with gradients 3 and 4: 0.1 * 3 / sqrt(9 + 1e-5), then 0.1 * 4 / sqrt(9 + 16 + 1e-5)."""
    p = nn.Parameter(torch.tensor([1.0]))
    optimizer = AdaGrad([p], lr=0.1)
    values = []
    for gradient in (3.0, 4.0):
        p.grad = torch.tensor([gradient])
        optimizer.step()
        values.append(p.item())

    first = 1 - 0.1 * 3 / math.sqrt(9 + 1e-5)
    assert values == pytest.approx([first, first - 0.1 * 4 / math.sqrt(25 + 1e-5)])


def test_the_lectures_adagrad_keeps_one_number_per_parameter_and_torchs_a_counter_too() -> None:
    """36 against 36 + 3, one counter for each of the three weights; the lecture's has no state before its first step."""
    spec = load("cruncher")
    assert spec.optimizer is AdaGrad

    def elements(optimizer: torch.optim.Optimizer) -> int:
        return sum(t.numel() for state in optimizer.state.values() for t in state.values())

    module, inputs, _ = build(spec, B=2, D=4, L=2)
    lectures, torchs = AdaGrad(module.parameters()), torch.optim.Adagrad(module.parameters())
    assert elements(lectures) == 0
    spec.loss(module, *inputs).backward()
    lectures.step()
    torchs.step()

    assert elements(lectures) == 36
    assert elements(torchs) == 39


def test_mlp_loss_is_cross_entropy_over_classes() -> None:
    """The same as computed from its logits."""
    spec = load("mlp")
    module, (x, classes), _ = build(spec, **SMALL["mlp"])

    assert torch.equal(F.cross_entropy(module(x), classes), spec.loss(module, x, classes))
