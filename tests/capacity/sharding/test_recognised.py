"""A derivation is a decoder only if the tensors of a decoder are all of its parameters: what is halved, double or left over is why not."""

from __future__ import annotations

import pytest

from calc.capacity.sharding.derived import model_of
from calc.derive.result import Derivation, Quantity, QuantityTerm
from calc.graph.guards import TracedDim
from calc.symbolic.exact import evaluate_text
from calc.units import Unit

SIZES = {"B": 2, "T": 16, "d": 48, "h": 6, "k": 8, "f": 88, "L": 4, "V": 503, "C": 31}
# Queries, keys, values and output; up and down; two norms of a layer; embedding and head; the last norm.
DECODER = "4*L*d*h*k + 2*L*d*f + 2*L*d + 2*V*d + d"
EXPERTS = "4*L*d*h*k + 3*L*E*d*f + L*E*d + 2*L*d + 2*V*d + d"


def derivation(parameters: str, **more: int) -> Derivation:
    """A derivation of nothing but parameters, whose backward keeps nothing."""
    sizes = {**SIZES, **more}
    texts = {"parameters": parameters, "gradients.bytes": f"4*({parameters})", "activations.bytes": "0", "memory.peak": None}
    values = {name: int(evaluate_text(text, sizes)) if text else None for name, text in texts.items()}
    quantities = {
        name: Quantity(name, Unit.BYTE, "", text, values[name], (QuantityTerm("all", text or "0", 0, ""),)) for name, text in texts.items()
    }
    return Derivation(
        model="planted", source="", dims=tuple(TracedDim(name, "", size) for name, size in sizes.items()),
        options={"attention": "fused", "precision": "fp32"}, assumptions=(), quantities=quantities, steps=(), coverage=(), certificates=(),
        provenance={},
    )  # fmt: skip


@pytest.mark.parametrize("parameters", [DECODER, f"{DECODER} + C*d", f"{DECODER} + 2*C*d", f"{DECODER} + L*f + L*d"])
def test_all_parameters_of_a_decoder_are_its_tensors(parameters: str) -> None:
    """With positions, two tables of them, and biases."""
    model = model_of(derivation(parameters))
    counted = [
        t.times * evaluate_text(f"{t.rows}*{t.row_length}", SIZES) * (SIZES["L"] if t.where == "layer" else 1) for t in model.tensors
    ]

    assert model.only_data == ""
    assert evaluate_text(parameters, SIZES) == sum(counted)


@pytest.mark.parametrize(("parameters", "because"), [
    (f"{DECODER} + L*d/2", "its parameters have 5/2*L*d: not every layer has the same tensors, as a decoder's have"),
    (f"{DECODER} + L*h*k", "the tensors that a decoder has are not all of its parameters"),
    (f"{DECODER} + L*d*h*k", "its attention does not consist of queries, keys, values and one projection"),
    (f"{DECODER} + V", "its parameters have 1*V, which no decoder has"),
])  # fmt: skip
def test_a_tensor_too_many_is_why_it_is_no_decoder(parameters: str, because: str) -> None:
    """A vector in every second layer is a half; a single one of heads would vanish among biases."""
    assert because == model_of(derivation(parameters)).only_data


def test_biases_of_experts_are_no_second_router() -> None:
    """A router and the experts' own biases behind their products are 2*E*d in a layer."""
    assert model_of(derivation(EXPERTS, E=5, e=2)).only_data == ""
    assert model_of(derivation(f"{EXPERTS} + L*E*d", E=5, e=2)).only_data == (
        "it has 2 matrices or vectors of E*d in a layer, where a decoder has one router"
    )
