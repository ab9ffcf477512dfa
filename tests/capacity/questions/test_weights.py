"""Weights of a model in use: their bytes are those of ``napkin inference``, and what a token reads leaves out what it does not meet."""

from __future__ import annotations

from fractions import Fraction

import pytest

import calc
from calc.capacity.questions import ask
from calc.capacity.questions.weights import WeightRead, Weights, in_use
from calc.errors import BadInputError
from calc.memory.inference import inference

MIXTURE = Weights(
    (WeightRead("attention", 1000, Fraction(1)), WeightRead("table", 500, Fraction(0)), WeightRead("experts", 8000, Fraction(2, 8)))
)


@pytest.mark.parametrize(("tokens", "read"), [(1, 1000 + 2000), (3, 1000 + 6000), (4, 1000 + 8000), (5, 1000 + 8000)])
def test_more_tokens_read_more_experts_until_all_are_read(tokens: int, read: int) -> None:
    """2 of 8 experts for each token that chooses others; a looked-up table is not read."""
    assert read == MIXTURE.read(tokens)
    assert MIXTURE.nbytes == 9500


def test_without_a_model_a_mixture_of_experts_is_warned_of() -> None:
    """A number of parameters does not say which of them a token meets; the note is there for each question that says at most."""
    of = {"parameters": "46.7e9", "gpu": "h100-sxm"}
    cached = {**of, "layers": 32, "kv_heads": 8, "head_width": 128, "sequence": 4096}
    said = "for a mixture of experts name the model, since this is not a bound there"

    for actual in (ask("quantized", **of), ask("tokens-per-second", **cached), ask("time-per-token", **cached)):
        assert any(note.endswith(said) for note in actual.notes), actual.question


@pytest.mark.slow
def test_a_token_of_a_dense_model_reads_all_but_the_tables_that_are_looked_up() -> None:
    """GPT-2's table of words is its head as well, and is read; that of positions, 1024 · 768 in 2 bytes, is not."""
    weights = in_use("gpt2", {}, lambda _: None).weights("bf16")

    assert (2 * 124439808, 2 * 1024 * 768, ()) == (weights.nbytes, weights.nbytes - weights.read(), weights.partial)
    assert weights.read() == weights.read(1000)


@pytest.mark.slow
def test_a_token_of_a_mixture_reads_the_experts_that_it_is_multiplied_with() -> None:
    """2 of 8 experts of 3·d·f weights in each of 32 layers; with the rest, but the table and the norms, half of the FLOPs of one token."""
    d, f, layers = 4096, 14336, 32
    use = in_use("mixtral", {}, lambda _: None)
    weights = use.weights("bf16")
    met = weights.read() / 2 - (2 * layers + 1) * d  # norms are read and not multiplied
    alone = 4 * 32 * 128 * layers  # scores and values of a token with itself

    assert 46702792704 * 2 - weights.read() == 2 * (32000 * d + 6 * 3 * d * f * layers)
    assert 2 * met == use.flops - alone == 25497698304 - alone
    assert calc.derive(calc.load("mixtral"), {"B": 1, "T": 1}, mode="infer")["flops.forward.matmul"].value == use.flops


@pytest.mark.slow
def test_at_most_is_a_bound_for_a_mixture_of_experts() -> None:
    """One token waits for what it reads, 3.35e12 bytes/s; more sequences are flagged with what they may read on top."""
    one = ask("quantized", model="mixtral", gpu="h100-sxm")
    of = {"model": "mixtral", "gpu": "h100-sxm", "gpus": 2, "sequence": 4096}
    three = ask("tokens-per-second", batch=3, **of)
    cache = 3 * 4096 * 131072

    assert one.value == Fraction(3350 * 10**9, 25497706496)
    assert {row.label: row.value for row in one.rows}["bf16"] == 93405585408
    assert three.value == 3 * 2 * Fraction(3350 * 10**9, 25497706496 + cache)
    assert three.flags[-1] == (
        "a mixture of experts: 25.498 GB of weights are read if all 3 sequences go to the same experts, and up to 70.595 GB"
        " if they go to different ones: then tokens-per-second is 278.37 tokens/s"
    )
    assert not any("mixture" in flag for flag in ask("tokens-per-second", **of).flags)


@pytest.mark.slow
def test_weights_of_a_model_are_those_of_the_account_of_inference() -> None:
    """In int4 tables and norms stay in 16 bits: 17 sequences fit beside them, and 18 would if all were packed."""
    usage = inference(calc.load("llama3-8b"), {"B": 18, "T": 8192}, weights_in="int4")
    answer = ask("largest-concurrency", model="llama3-8b", gpu="rtx4090", sequence=8192, weights="int4")
    used = ask("tokens-per-second", model="llama3-8b", gpu="rtx4090", sequence=8192, batch=17, weights="int4")

    assert answer["Q"] == used["Q"] == usage.weights.value == 4920795136
    assert answer.bound is not None
    assert (17, usage.total) == (answer.value, answer.bound.further_value)
    assert usage.total is not None
    assert usage.total > 24 * 10**9
    assert answer.rule_of_thumb is not None
    assert answer.rule_of_thumb.value == 18


def test_a_model_without_a_sequence_generates_no_tokens() -> None:
    with pytest.raises(BadInputError, match=r"^mlp reads no sequence: it has no dimension T, so it generates no tokens$"):
        ask("quantized", model="mlp", gpu="h100-sxm")


@pytest.mark.slow
def test_bytes_of_a_weight_have_no_part_beside_a_model() -> None:
    """The model says which of its weights are in which format."""
    with pytest.raises(BadInputError, match=r"^weight-bytes does not affect the answer: leave it out$"):
        ask("quantized", model="gpt2", gpu="h100-sxm", weight_bytes=1)


@pytest.mark.slow
def test_a_planted_share_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were all experts read, the bound would be less than half of what one token allows."""
    right = ask("quantized", model="mixtral", gpu="h100-sxm").value
    monkeypatch.setattr(Weights, "read", lambda self, tokens=1: Fraction(self.nbytes))

    assert ask("quantized", model="mixtral", gpu="h100-sxm").value < right / 2
