"""What the forward keeps for the backward, tensor by tensor: whole, counted once, and each with the operator that needs it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation, SavedTensor
from calc.derive.saved_for import IN_GENERAL, SavedAs, by_table, in_words
from calc.symbolic import algebra
from calc.symbolic.expression import Labelled, walk
from tests.derive.conftest import Derived
from tests.derive.models import CASES, SMALL, some_sizes
from tests.quick import few


def _one(result: Derivation, path: str, operator: str, because: str = "") -> SavedTensor:
    matching = [s for s in result.saved if (s.module_path, s.operator) == (path, f"aten.{operator}.default") and because in s.because]
    assert 1 == len(matching), matching
    return matching[0]


@pytest.mark.parametrize(("name", "optimizer", "attention"), CASES)
def test_the_tensors_add_up_to_the_activations(name: str, optimizer: str, attention: str, derived: Derived) -> None:
    """As closed forms, so at all sizes (of the case in force, where there is one); and as numbers."""
    result = derived(name, optimizer, attention)
    case = {algebra.symbol(name): size for name, size in result.specialized.items()}
    total = sum(algebra.to_sympy(s.expr) for s in result.saved)

    assert result["activations.bytes"].value == sum(s.value for s in result.saved)
    assert (result["activations.bytes"].expr - total).subs(case).expand() == 0


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_they_do_at_other_sizes(seed: int, derived: Derived) -> None:
    """Those of a derivation with random ones."""
    general = derived("gpt2")
    sizes = some_sizes(general, seed)
    derivation = calc.derive(calc.load("gpt2"), {name: size for name, size in sizes.items() if name != "k"})

    assert derivation["activations.bytes"].value == general["activations.bytes"].at(**sizes) == sum(s.value for s in derivation.saved)


def test_a_batch_of_one_has_its_own(derived: Derived) -> None:
    """Where the step runs other operators, the tensors are those of that case."""
    derivation = calc.derive(calc.load("mlp"), {"B": 1})

    assert derivation["activations.bytes"].value == sum(s.value for s in derivation.saved)


def test_a_product_keeps_its_input_for_the_gradient_of_its_weight(derived: Derived) -> None:
    """The second projection of the feed-forward: 4·B·T·f bytes in each of L layers."""
    kept = _one(derived("gpt2"), "transformer.h.*.mlp.c_proj", "addmm")

    assert ("gelu at transformer.h.*.mlp", ("B*T", "f"), "float32") == (str(kept.tensor), kept.shape, kept.dtype)
    assert ("L", "4*B*T*f*L") == (kept.times, kept.expr)
    assert ("AddmmBackward0", "dW = dyᵀ x needs x") == (kept.node, kept.because)


def test_a_softmax_keeps_its_result(derived: Derived) -> None:
    """Under math attention: B·h·T·T scores of 4 bytes in each layer."""
    kept = _one(derived("gpt2", "sgd", "math"), "transformer.h.*.attn", "_safe_softmax")

    assert ("4*B*T**2*h*L", "dx = y ⊙ (dy − Σ y dy) needs y") == (kept.expr, kept.because)


def test_queries_keys_and_values_are_one_storage(derived: Derived) -> None:
    """The first keeps all 3·d columns of the projection; the others say whose storage they lie in, and count nothing."""
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    rows = [s for s in derived("gpt2").saved if str(s.tensor) == "addmm at transformer.h.*.attn.c_attn" and attention in s.operator]

    assert ["12*B*T*d*L", "0", "0"] == [s.expr for s in rows]
    assert ["", *["addmm at transformer.h.*.attn.c_attn, saved at transformer.h.*.attn"] * 2] == [str(s.same_as or "") for s in rows]
    assert all(s.part for s in rows)
    assert ["query", "key", "value"] == [s.role for s in rows]
    assert 3 == len({s.because for s in rows})


def test_the_layers_but_the_first_read_what_the_one_before_made(derived: Derived) -> None:
    """L − 1 sums of the residual stream enter a first norm; the embeddings enter that of the first layer."""
    rows = [s for s in derived("gpt2").saved if s.module_path == "transformer.h.*.ln_1" and s.tensor.operator == "add"]

    assert [("add at transformer", "1"), ("add at transformer.h.*", "L - 1")] == [(str(s.tensor), s.times) for s in rows]


def test_parameters_are_not_among_them(derived: Derived) -> None:
    """Autograd holds weights too, but they are there anyway: no row is as large as one."""
    assert derived("gpt2").saved
    assert not [s for s in derived("gpt2").saved if s.shape in (("d", "f"), ("f", "d"), ("V", "d"), ("d",))]


def test_what_has_no_reason_of_its_own_is_said_in_general() -> None:
    """A reason that is true of every saved tensor."""
    assert IN_GENERAL == by_table("no_such_operator", "self").because == by_table("mm", "no such argument").because


@pytest.mark.slow
def test_the_input_of_a_checkpointed_block_is_saved() -> None:
    """One input a block, and not by an operator: the block is recomputed."""
    result = calc.derive(calc.load("gpt2"), SMALL["gpt2"], checkpointing="block")
    kept = [s for s in result.saved if s.operator == "torch.utils.checkpoint"]

    assert kept
    assert {"the backward recomputes the layers that are not saved, starting from it"} == {s.because for s in kept}
    assert result["activations.bytes"].value == sum(s.value for s in result.saved)


def test_the_document_has_them(derived: Derived) -> None:
    """Each with its bytes, its shape and whose backward needs it."""
    result = derived("gpt2")
    written = result.to_json()["saved"]

    assert len(result.saved) == len(written)
    assert result["activations.bytes"].value == sum(int(row["value"]) for row in written)
    assert {"tensor", "shape", "dtype", "times", "value", "needed_by", "node", "because", "same_storage_as"} <= set(written[0])


class Scaled(nn.Module):
    """One table scales the input of each layer's softmax: it is saved for the first product, and each softmax saves its result."""

    def __init__(self, d: Any, layers: int) -> None:
        super().__init__()
        self.first, self.layers = nn.Linear(d, d), nn.ModuleList(Scale() for _ in range(layers))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, table)
        return x.sum()


class Scale(nn.Module):
    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return (x * table).softmax(-1)


def test_a_step_has_the_reasons_of_its_own_tensors() -> None:
    """The table counts once, before the layers: why a softmax saves its result is no reason for it, nor is the second product's."""
    spec = calc.Spec(
        name="scaled",
        dims={"B": 5, "d": 7, "L": 3},
        build=lambda n: Scaled(n.d, n.L),
        inputs=lambda n: (torch.randn(n.B, n.d), torch.randn(n.B, n.d)),
        loss=lambda model, x, table: model(x, table),
    )
    steps = [s for s in calc.derive(spec, optimizer="sgd", cache=False).steps if s.quantity == "activations.bytes"]
    reasons = [s.because for s in steps if s.title == "layers.*"]

    assert [
        "da = b ⊙ dy needs b; a storage counts once; there is one such tensor in all",
        "dx = y ⊙ (dy − Σ y dy) needs y; a storage counts once",
    ] == reasons


def _rows(result: Derivation, title: str) -> tuple[list[str], str]:
    """The names of the tensors in the rows of a step of the activations, and its reason."""
    step = next(s for s in result.steps if s.quantity == "activations.bytes" and s.title == title)
    labels = [t.label for t in walk(step.before) if isinstance(t, Labelled)]
    return [label.partition(" ")[2].partition(" saved for")[0] for label in labels], step.because


def test_the_rows_of_attention_have_the_names_of_their_tensors(derived: Derived) -> None:
    """Each reason has the name of its row: of query, key and value, which share a storage, every one has its own."""
    names, because = _rows(derived("gpt2"), "transformer.h.*.attn")

    assert ["query, key, value", "log-sum-exp", "O"] == names
    assert because == (
        "query: probs is recomputed from query keyᵀ, and dkey = dscoresᵀ query;"
        " key: probs is recomputed from query keyᵀ, and dquery = dscores key; value: dprobs = dO valueᵀ needs value;"
        " log-sum-exp: probs = exp(scale · query keyᵀ − log Σ exp) needs the log-sum-exp of each row;"
        " O: dscores = probs ⊙ (dprobs − Σ dO ⊙ O) · scale needs O;"
        " a storage counts once"
    )


def test_the_mean_of_a_norm_and_its_deviation_are_rows_of_their_own(derived: Derived) -> None:
    """B·T of each, which were one row of 2·B·T."""
    names, because = _rows(derived("gpt2"), "transformer.h.*.ln_1")

    assert ["x", "mean", "1/σ"] == names
    assert because.startswith("x: x̂ = (x − mean)/σ is recomputed from x; mean: x̂")


def test_tensors_of_several_operators_have_the_operators_name(derived: Derived) -> None:
    """The scores of a log-softmax and the targets of the loss."""
    names, because = _rows(derived("gpt2"), "(loss)")

    assert ["y", "targets (model input)", "Σ weights"] == names
    assert because.startswith("y of _log_softmax: dx = dy − exp(y) Σ dy needs y; targets of nll_loss_forward: ")


def test_one_equation_that_needs_two_tensors_is_stated_once(derived: Derived) -> None:
    """A mean squared error has one gradient, of the difference."""
    _, because = _rows(derived("two-layer"), "(loss)")

    assert because == "dx = 2 (x − target) dℒ/n needs x and target; a storage counts once"


def test_a_saved_input_of_a_matmul_has_the_gradient_of_its_own_weight(derived: Derived) -> None:
    """Both are the x of a matmul: no name tells them apart, the weights do."""
    _, because = _rows(derived("two-layer"), "(model)")

    assert because == "dw1 = xᵀ dy needs x; dw2 = xᵀ dy needs x; a storage counts once"


def test_what_the_table_does_not_say_is_left_out() -> None:
    """A general reason says nothing beside a particular one."""
    uses = [SavedAs("mul", "a", equation="db = a ⊙ dy"), SavedAs("twice", "x")]

    assert "db = a ⊙ dy needs a" == in_words(uses)
    assert not in_words(uses[1:])
