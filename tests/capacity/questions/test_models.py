"""A model in a question: its own exact counts, with the rule of thumb beside them; memory filled up to its own peak."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import calc
from calc.capacity.questions import ask, models
from calc.capacity.questions.memory_solver import filled
from calc.capacity.questions.quantities import in_sentence
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import BadInputError, DimensionError
from calc.symbolic.parser import free_names
from tests.capacity.steps import false_steps

RUN = {"tokens": "300e9", "gpu": "a100-sxm-80", "gpus": 8, "mfu": "0.3"}


@pytest.fixture(scope="module")
def gpt2() -> Derivation:
    return calc.derive(calc.load("gpt2"))


def flops(derivation: Derivation, **sizes: int) -> int:
    forward, backward, again = (
        derivation[f"flops.{name}"].at(**sizes) for name in ("forward.matmul", "backward.matmul", "backward.recompute")
    )
    return forward + backward - again


@pytest.mark.slow
def test_a_models_flops_take_the_place_of_the_rule(gpt2: Derivation) -> None:
    """Model FLOPs of a token at T = 1024, times tokens, over 0.3 · 8 · 312e12; 6·N·D beside it leaves 12.6 % out."""
    answer = ask("training-time", model="gpt2", **RUN)
    rate = Fraction(3, 10) * 8 * 312 * 10**12
    a_token = Fraction(flops(gpt2, B=8, T=1024), 8 * 1024)

    assert answer.value == a_token * 300 * 10**9 / rate / 86400
    assert answer.rule_of_thumb is not None
    assert answer.rule_of_thumb.value == Fraction(6 * 124439808 * 300 * 10**9) / rate / 86400
    assert ("C = 6*N*D", "-12.6%") == (answer.rule_of_thumb.rule, f"{float(answer.rule_of_thumb.off(answer.value)):.1%}")
    assert answer.to_json()["rule_of_thumb"]["rule"] == "C = 6*N*D"


@pytest.mark.slow
def test_sizes_of_the_model_are_given_by_name(gpt2: Derivation) -> None:
    """Shorter sequences have less attention; an unknown size is refused."""
    assert ask("training-time", model="gpt2", T=512, **RUN)["c"] == Fraction(flops(gpt2, B=1, T=512), 512)
    with pytest.raises(DimensionError, match=r"^this model has no dimension 'Z': it has B, T, "):
        ask("training-time", model="gpt2", Z=512, **RUN)


def test_sizes_of_a_model_count_beside_its_tokens() -> None:
    """Attention of a token takes 12·T·d·L FLOPs forward and backward: 512 positions fewer are 12·512·768·12 fewer."""
    short, long = (ask("training-time", model="gpt2", B=4, T=length, **RUN)["c"] for length in (512, 1024))

    assert 12 * 512 * 768 * 12 == long - short


@pytest.mark.slow
def test_what_a_model_gives_cannot_be_solved_for() -> None:
    with pytest.raises(BadInputError, match=r"^parameters follows from model=gpt2: leave the model out to solve for it$"):
        ask("training-time", model="gpt2", days=3, solve="parameters", **RUN)


@pytest.mark.slow
def test_where_attention_overtakes_the_matrices_of_a_model(gpt2: Derivation) -> None:
    """Forward FLOPs of a token are a + b·T: at the answer attention has at least half, one before it less."""
    length = int(ask("attention-crossover", model="gpt2").value)
    a_token = {t: Fraction(gpt2["flops.forward.matmul"].at(B=1, T=t), t) for t in (128, 256)}
    b = (a_token[256] - a_token[128]) / 128
    a = a_token[128] - 128 * b

    assert b * length >= a > b * (length - 1)


@pytest.mark.slow
def test_where_the_rule_is_off_by_more_than_a_share(gpt2: Derivation) -> None:
    """6·N leaves 10 % out from T tokens on, not from T - 1."""
    length = int(ask("six-nd-error", model="gpt2", error="10%").value)
    before, there = (Fraction(flops(gpt2, B=1, T=t), 6 * t * 124439808) - 1 for t in (length - 1, length))

    assert before < Fraction(1, 10) <= there


@pytest.mark.slow
def test_the_largest_batch_is_the_last_that_fits(gpt2: Derivation) -> None:
    """By the exact peak of the model's own step; the rule of thumb says 14 % more."""
    answer = ask("largest-batch", model="gpt2", gpu="h100-sxm")
    batch = int(answer.value)

    assert gpt2["memory.peak"].at(B=batch, T=1024) <= 80 * 10**9 < gpt2["memory.peak"].at(B=batch + 1, T=1024)
    assert answer.bound is not None
    assert answer.bound.further_value == gpt2["memory.peak"].at(B=batch + 1, T=1024)
    assert answer.rule_of_thumb is not None
    assert answer.rule_of_thumb.value > batch
    back = ask("largest-batch", model="gpt2", batch=batch, solve="memory")
    assert back.value == gpt2["memory.peak"].at(B=batch, T=1024) == answer.bound.value


@pytest.mark.slow
def test_whether_a_model_fits_is_asked_of_its_own_step(gpt2: Derivation) -> None:
    """The peak of its step with activations, where the rule of thumb has the state alone; the state is that of the recipe asked for."""
    answer = ask("fits", model="gpt2", gpu="h100-sxm", B=32)
    derivation = calc.derive(calc.load("gpt2"), precision="bf16", optimizer="sgd")
    state = ask("training-state", model="gpt2", precision="bf16", optimizer="sgd")

    assert answer.value == Fraction(gpt2["memory.peak"].at(B=32, T=1024), 80 * 10**9)
    assert answer.rule_of_thumb is not None
    assert answer.rule_of_thumb.value == Fraction(16 * 124439808, 80 * 10**9)
    assert state.value == sum(derivation[f"{name}.bytes"].at() for name in ("parameters", "gradients", "optimizer_state"))


@pytest.mark.slow
def test_a_sequence_ends_where_a_model_has_no_more_positions() -> None:
    """GPT-2 learned 1024 of them: memory is not what stops it, and a note says so."""
    answer = ask("largest-sequence", model="gpt2", gpu="h100-sxm", batch=1)

    assert (1024, None, None) == (answer.value, answer.bound, answer.rule_of_thumb)  # a rule that knows of memory only is no comparison
    assert "sequence stops here: T = 1025 is more than C = 1024: this model needs T <= C: lower T or raise C" in answer.notes


@pytest.mark.slow
def test_a_model_that_does_not_fit_at_all_is_refused() -> None:
    """With what the least batch takes."""
    said = r"^even B = 1 does not fit: the step takes \d[\d,]+ bytes \([\d.]+ GB\), and there are 1,000,000,000 bytes \(1 GB\)$"

    with pytest.raises(BadInputError, match=said):
        ask("largest-batch", model="gpt2", memory="1GB")


@pytest.mark.slow
@pytest.mark.parametrize(("question", "given"), [("attention-crossover", {}), ("six-nd-error", {"error": "100%"})])
def test_a_length_beyond_the_positions_of_a_model_is_flagged(question: str, given: dict[str, str]) -> None:
    """GPT-2 has 1024 of them; where the answer is less nothing is said, nor of a model that any length goes through."""
    answer = ask(question, model="gpt2", **given)

    assert answer.value > 1024
    assert answer.flags == (f"beyond C = 1,024 positions: gpt2 reads no sequence of {int(answer.value):,} tokens",)
    assert ask("attention-crossover", model="gpt2", C=8192).flags == ()
    assert ask("attention-crossover", model="llama3-8b").flags == ()


@pytest.mark.slow
@pytest.mark.parametrize(("question", "given"), [
    ("cache", {}), ("training-time", RUN), ("largest-concurrency", {"gpu": "h100-sxm"}), ("tokens-per-second", {"gpu": "h100-sxm"}),
])  # fmt: skip
def test_a_sequence_beyond_the_positions_of_a_model_is_refused(question: str, given: dict[str, Any]) -> None:
    with pytest.raises(DimensionError, match=r"^T = 4096 is more than C = 1024: this model needs T <= C: lower T or raise C$"):
        ask(question, model="gpt2", T=4096, **given)


def test_a_window_of_attention_bounds_what_is_cached(tmp_path: Path) -> None:
    """3 layers of 2 heads of width 8 cache the last 10 of 37 tokens: 3 · 10 · 2 · 2 · 8 elements; without a length it is refused."""
    fields = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 211, "num_hidden_layers": 3}
    of = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 503, "sliding_window": 11}
    (tmp_path / "config.json").write_text(json.dumps({**fields, **of}))
    model = f"hf:{tmp_path}"

    cached = ask("cache", model=model, T=37, B=5)

    assert cached.value == 5 * 2 * (3 * 10 * 2 * 2 * 8)
    assert next(put.meaning for put in cached.inputs if put.symbol == "E") == (
        "cached values per token, on average at T = 37, as sliding_attention layers do not cache every token:"
        " 2·B·L·g·k·min(10, T) elements of B·T tokens, g = 2, k = 8, L = 3"
    )
    with pytest.raises(BadInputError, match=r"sliding_attention layers do not cache every token: give the length, e\.g\. T=\d+$"):
        ask("cache-per-token", model=model)


@pytest.mark.slow
@pytest.mark.parametrize(("question", "key", "near"), [
    ("training-time", "token", "tokens"), ("training-time", "nodes", "gpus"), ("training-time", "gpu_count", "gpus"),
    ("largest-batch", "memor", "memory"),
])  # fmt: skip
def test_a_key_that_is_no_size_of_the_model_is_named_with_the_one_that_was_meant(question: str, key: str, near: str) -> None:
    """Keys of the question come first: the model's dimensions are single letters."""
    with pytest.raises(BadInputError) as caught:
        ask(question, model="gpt2", **{key: 8})
    assert str(caught.value) == f"neither {question} nor gpt2 has {key!r}: did you mean {near}?"


@pytest.mark.slow
def test_the_peak_of_a_step_is_called_so_and_its_even_division_flagged() -> None:
    """It is not the state; and no layout on 8 devices divides all of it."""
    one, eight = (ask("fits", model="gpt2", gpu="h100-sxm", B=32, gpus=gpus) for gpus in (1, 8))

    assert [row.label for row in eight.also] == ["bytes needed"]
    assert eight.also[0].because.startswith("the peak, not the state alone: ")
    assert () == one.flags
    assert eight.flags == (
        f"what one process needs at its peak, {in_sentence(eight['Y'], 'bytes')}, is divided evenly among 8 devices, a lower bound that no"
        " layout reaches in general: napkin shard MODEL works a layout out, napkin layout MODEL searches for the best",
    )
    assert ask("largest-batch", model="gpt2", gpu="h100-sxm", gpus=8).flags[0].startswith("what one process needs at its peak, ")


@pytest.mark.parametrize(("model", "memory"), [("two-layer", "2MB"), ("two-layer", "1GB"), ("mlp", "30MB"), ("mlp", "2GB")])
def test_the_step_of_the_peak_is_that_of_the_candidate_that_binds_at_the_answer(
    model: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order the candidates come, the one that is printed evaluates to the peak at the answer."""
    candidates = Derivation.__getitem__

    def backwards(self: Derivation, name: str) -> Any:
        quantity = candidates(self, name)
        return replace(quantity, candidates=quantity.candidates[::-1])

    monkeypatch.setattr(Derivation, "__getitem__", backwards)
    answer = ask("largest-batch", model=model, memory=memory)

    assert false_steps(answer) == []
    assert "B" in free_names(answer.calculation.steps[0].expr)
    assert answer.calculation.steps[0].value <= answer.bound.limit if answer.bound else False


@pytest.mark.slow
@pytest.mark.parametrize("question", ["largest-batch", "largest-sequence", "largest-depth", "largest-width", "fits", "training-time"])
@pytest.mark.parametrize("model", ["gpt2", "llama3-8b", "vit-b"])
def test_every_printed_step_of_a_model_evaluates_to_its_number(model: str, question: str) -> None:
    run = {"tokens": "1e9", "peak": "1e15", "mfu": "0.4"} if question == "training-time" else {"memory": "900GB"}
    try:
        answer = ask(question, model=model, **run)
    except BadInputError:
        return  # no size of it is asked for, or the smallest does not fit
    assert false_steps(answer) == []


# -- filling, on a synthetic model -------------------------------------------------------------------------------------------------------


class Made:
    """A model whose peak is 10·d·B, with d a multiple of 12 and at most 120."""

    name = "made"

    def dimension(self, name: str) -> Any:
        return SimpleNamespace(tied=name == "k", multiple_of=12 if name == "d" else None, plus=0)

    def all_sizes(self, **_: int) -> Mapping[str, int]:
        return {}

    def at(self, _: str, B: int = 1, d: int = 12) -> int:
        if d > 120 or d % 12:
            raise DimensionError(f"d = {d} is too much")
        return 10 * d * B

    def peak(self, **sizes: int) -> tuple[int, str, str]:
        return self.at("", **sizes), "10*d*B", "from the closed form of memory.peak"


class Patterned(Made):
    """A model of 10·L bytes, with patterns of 3 layers after 2 others."""

    def dimension(self, name: str) -> Any:
        return Dim(8, multiple_of=3, plus=2)

    def at(self, _: str, L: int = 5) -> int:
        if L % 3 != 2:
            raise DimensionError(f"L = {L} is not 2 and a multiple of 3")
        return 10 * L


FITS = [("B", 120, 1, 240), ("B", 1199, 9, 1200), ("B", 1200, 10, 1320), ("d", 599, 48, 600), ("d", 10**6, 120, None)]


@pytest.mark.parametrize(("dim", "memory", "size", "there"), FITS)
def test_filling_finds_the_last_size_that_fits(dim: str, memory: int, size: int, there: int | None) -> None:
    """On the border too, in the steps that the model can have, and up to its own limit."""
    actual = filled(Made(), dim, Fraction(memory))

    assert (size, there) == (actual.size, actual.next_peak)
    assert actual.peak <= memory
    assert bool(actual.capped) == (there is None)


def test_a_tied_size_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^k cannot be set in made: it follows from others$"):
        filled(Made(), "k", Fraction(1))


def test_a_planted_peak_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak that is read twice too high gives another batch, which the derivation contradicts."""
    peak, derived = models.QuestionModel.at, calc.derive(calc.load("linear"))
    right = int(ask("largest-batch", model="linear", memory="1GB").value)
    monkeypatch.setattr(models.QuestionModel, "at", lambda self, q, **sizes: peak(self, q, **sizes) * (2 if q == "memory.peak" else 1))
    wrong = int(ask("largest-batch", model="linear", memory="1GB").value)

    assert derived["memory.peak"].at(B=right) <= 10**9 < derived["memory.peak"].at(B=right + 1)
    assert derived["memory.peak"].at(B=wrong + 1) <= 10**9


def test_a_convention_is_none_of_the_answer_where_the_model_is_counted() -> None:
    """Model FLOPs of a token are the model's own, so the rule's convention neither counts nor is stated; without a model it is both."""
    rate = {"tokens_per_second": 1000, "gpu": "h100-sxm"}
    counted = ask("training-mfu", model="gpt2", T=1024, **rate)

    assert "convention" not in {given.key for given in counted.inputs}
    assert not [note for note in counted.notes if "convention" in note]
    assert "convention" in {given.key for given in ask("training-mfu", parameters="1e9", **rate).inputs}
    with pytest.raises(BadInputError, match=r"^convention does not affect the answer: leave it out$"):
        ask("training-mfu", model="gpt2", T=1024, convention="palm", **rate)


def test_a_depth_in_patterns_is_searched_among_its_valid_ones() -> None:
    """8 and 11 layers beside 10 that would fit; the smallest depth is one pattern."""
    depth = filled(Patterned(), "L", Fraction(100))

    assert (8, 80, 11, 110) == (depth.size, depth.peak, depth.further, depth.next_peak)
    with pytest.raises(BadInputError, match=r"^even L = 5 does not fit: the step takes 50 bytes, and there are 49 bytes$"):
        filled(Patterned(), "L", Fraction(49))
