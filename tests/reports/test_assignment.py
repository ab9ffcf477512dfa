"""The accounting of CS336's first assignment: the documented commands answer all of it, each number equal to an independent computation.

Nothing here asks Napkin: shapes are those of the assignment and of the papers, multiplied out.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reports import cli

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
FP32 = {"A100": Fraction(195, 10) * 10**12, "H100": Fraction(67) * 10**12}  # dense, FLOP/s
RUN = {"context": 16_384, "memory": 80 * 10**9, "mfu": Fraction(1, 2), "steps": 400_000, "batch": 1024}


@dataclass(frozen=True)
class Transformer:
    """A decoder of L blocks of width d with h heads and a feed-forward of f. ``gated``: the one of the assignment, with RMSNorm, rotary
    positions, SwiGLU, no biases and a head of its own; else GPT-2, with LayerNorm, C learned positions, biases and a tied head."""

    d: int
    L: int
    h: int
    f: int
    V: int
    T: int
    C: int = 0

    @property
    def gated(self) -> bool:
        return not self.C

    @property
    def weights(self) -> list[int]:
        """The elements of each parameter tensor."""
        d, f = self.d, self.f
        if self.gated:
            return [self.V * d, d, d * self.V] + self.L * [d, *4 * [d * d], d, *3 * [d * f]]
        block = [d, d, d * 3 * d, 3 * d, d * d, d, d, d, d * f, f, f * d, d]
        return [self.V * d, self.C * d, d, d] + self.L * block

    def matmuls(self, T: int) -> list[tuple[str, int]]:
        """Each matmul of a sequence of T tokens, 2·m·k·n FLOPs, all blocks together, with its part."""
        d, f, of_token = self.d, self.f, 2 * T * self.L
        projections = 3 * [of_token * d * d] if self.gated else [of_token * d * 3 * d]
        return [
            *(("query, key and value", flops) for flops in projections),
            ("query keyᵀ", of_token * T * d),
            ("probs value", of_token * T * d),
            ("attention output", of_token * d * d),
            *((3 if self.gated else 2) * [("feed-forward", of_token * d * f)]),
            ("head", 2 * T * d * self.V),
        ]

    def parts(self, T: int) -> Mapping[str, int]:
        every = self.matmuls(T)
        return {part: sum(flops for name, flops in every if name == part) for part, _ in every}

    def forward(self, T: int) -> int:
        return sum(flops for _, flops in self.matmuls(T))

    @property
    def saved(self) -> tuple[int, int]:
        """Bytes that autograd saves for a sequence, and whatever the batch is, in fp32; ids and targets are of 8 bytes."""
        d, f, h = self.d, self.f, self.h
        attention = 4 * (d + d + d + d + h)  # query, key, value, the result, and the logarithm of each query's sum
        if self.gated:
            norm = 4 * (d + d + d + 1)  # its input, the normalized one, the scaled one, and 1/rms
            block = 2 * norm + attention + 4 * d + 4 * (f + f + f + f)  # the heads side by side; gate, its SiLU, up, their product
            return self.T * (self.L * block + norm + 4 * self.V + 8 + 8), 2 * 4 * self.T * (d // h // 2) + 4
        norm = 4 * (d + d + 1 + 1)  # its input, the result, mean and 1/deviation
        block = 2 * norm + attention + 4 * (f + f)  # before and after GELU
        return self.T * (self.L * block + norm + 4 * self.V + 8 + 8), 8 * self.T + 4

    def saved_by_part(self, B: int) -> Mapping[str, int]:
        """The same bytes of B sequences by part: a norm keeps its inputs, and what it gives is the input of a matmul."""
        d, f, h, tokens, of_layers = self.d, self.f, self.h, B * self.T, B * self.T * self.L
        inner = 8 * d + 4 if self.gated else 4 * d + 8
        output = {"attention output": of_layers * 4 * d} if self.gated else {}
        return {
            "embedding": tokens * 8 + (0 if self.gated else 8 * self.T),
            "query, key and value": of_layers * 4 * d,
            **output,
            "attention": of_layers * (16 * d + 4 * h) + (4 * self.T * (d // h) if self.gated else 0),
            "feed-forward": of_layers * (4 * d + (16 if self.gated else 8) * f),
            "norms": of_layers * 2 * inner + tokens * inner,
            "head": tokens * 4 * d,
            "loss": tokens * (4 * self.V + 8) + 4,
        }

    @property
    def state(self) -> int:
        """Bytes of AdamW: two moments for each parameter and a step counter for each tensor."""
        return 8 * sum(self.weights) + 4 * len(self.weights)

    @property
    def peak(self) -> tuple[int, int]:
        """The peak of a step as bytes for a sequence and beside: after the backward of the softmax there are two more tensors of logits,
        the loss, and no gradient yet."""
        a, b = self.saved
        return a + 2 * 4 * self.T * self.V, 4 * sum(self.weights) + self.state + b + 4


def answers(sizes: list[Transformer], run: Mapping[str, Any]) -> Mapping[str, set[int]]:
    """The integers of each answer, of the last model; shares over all."""
    one, count = sizes[-1], sum(sizes[-1].weights)
    T, long, (a, b), (slope, rest) = one.T, run["context"], one.saved, one.peak
    whole = 8 * count + one.state + b
    batch = int((run["memory"] - rest) // slope)
    step = 3 * one.forward(T) * run["batch"]
    return {
        "parameters": {count, 4 * count, *rows(one)},
        "matmuls": {T, one.forward(T), *(flops for _, flops in one.matmuls(T))},
        "parts": {one.forward(T), *one.parts(T).values()},
        "sizes": {n for size in sizes for n in (size.forward(T), *size.parts(T).values())},
        "context": {long, *(n for length in (T, long) for n in (one.forward(length), *one.parts(length).values()))},
        "memory": {4 * count, one.state, a, b, a + b, whole, a + whole, *one.saved_by_part(1).values()},
        "largest-batch": {run["memory"], a, whole, slope, rest, *(slope * n + rest for n in (batch, batch + 1)), batch, batch + 1,
                          (run["memory"] - whole) // a, *live(one, batch)},
        "optimizer": {14 * count + 3 * len(one.weights)},
        "days": {run["steps"], run["batch"], T, step, *(number for peak in FP32.values() for number in time(step, peak, run))},
    }  # fmt: skip


def live(one: Transformer, batch: int) -> set[int]:
    """Bytes at the peak by role: weights, ids and targets, activations, two tensors of logits with the loss, the optimizer's state."""
    (a, b), inputs = one.saved, 16 * one.T * batch
    return {4 * sum(one.weights), inputs, a * batch + b - inputs, 2 * 4 * one.T * one.V * batch + 4, one.state}


def rows(one: Transformer) -> Iterator[int]:
    """The elements of each tensor outside the blocks, and of each inside, in all blocks together."""
    outer = 3 if one.gated else 4
    yield from one.weights[:outer]
    yield from (elements * one.L for elements in one.weights[outer : outer + (len(one.weights) - outer) // one.L])


def time(step: int, peak: Fraction, run: Mapping[str, Any]) -> Iterator[int]:
    """The rounded number of days, or of the largest unit of which there is one, and the seconds of that unit."""
    seconds = run["steps"] * step / (peak * run["mfu"])
    unit = max(unit for unit in (1, 60, 3600, 86_400) if unit <= max(seconds, 1))
    yield from (rounded(seconds / unit), unit)


def rounded(value: Fraction) -> int:
    """Three significant digits, as the page has them."""
    place = 10 ** (math.floor(math.log10(value)) - 2)
    return round(value / place) * place


def sections(page: str) -> Mapping[str, str]:
    pieces = re.split(r'<a id="exercise-([a-z-]+)"></a>', page)
    return dict(zip(pieces[1::2], (piece.partition("\n---\n")[0] for piece in pieces[2::2]), strict=True))


def integers(section: str) -> set[int]:
    """Those of four digits and more, which are written with commas; the command at the end of an answer is none of it."""
    shown = re.sub(r"\$`.*?`\$|\nEvery step: .*", "", section)
    return {int(number.replace(",", "")) for number in re.findall(r"\d{1,3}(?:,\d{3})+(?!\.?\d)", shown)}


def shares(section: str, column: int) -> Mapping[str, str]:
    """The percentages of a table's column of shares, by part."""
    rows = (line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `") and "%" in line)
    return {row[0].strip("`"): [cell for cell in row if cell.endswith("%")][column] for row in rows if row[0] != "`all`"}


def trends(section: str) -> Mapping[str, set[str]]:
    """The parts of each sentence on shares, by its verb; "query, key and value" has a comma of its own."""
    found = re.findall(r"^The share ((?:grows|shrinks)(?: and shrinks)?) for (.*)\.$", section, re.MULTILINE)
    return {verb: set(re.findall(r"(?:^|[,;] )([A-Za-z][^%]*?) (?:from|with) \d", listed)) for verb, listed in found}


def expected_trends(parts: list[Mapping[str, int]]) -> Mapping[str, set[str]]:
    expected: dict[str, set[str]] = {}
    for part in parts[0]:
        shares = [Fraction(of[part], sum(of.values())) for of in parts]
        changes = {"grows" if before < after else "shrinks" for before, after in pairwise(shares)}
        expected.setdefault(" and ".join(sorted(changes)), set()).add(part)
    return expected


def solved(words: list[str], folder: Path) -> str:
    done = CliRunner().invoke(cli.napkin, [*words, "-o", str(folder)])
    assert done.exit_code == 0, done.stderr
    return (folder / "solutions.md").read_text(encoding="utf-8")


def documented() -> list[list[str]]:
    """The words of each command of the README that makes an exercise sheet."""
    commands = re.findall(r"`napkin (homework [^`]*) -o out`", README)
    return [shlex.split(command) for command in commands]


def sizes_of(words: list[str]) -> list[Transformer]:
    """The models that a command asks for: GPT-2, or the gated one."""
    given = {key: value.split(",") for key, value in (word.split("=") for word in words[2:] if "=" in word)}
    usual: dict[str, Any] = {"V": ["50257"], "T": ["1024"]} | ({"C": ["1024"]} if words[1] == "gpt2" else {})
    values = {**usual, **{key: value for key, value in given.items() if key != "g"}}
    places = max(map(len, values.values()))
    each = [{key: int(value[i] if len(value) > 1 else value[0]) for key, value in values.items()} for i in range(places)]
    return [Transformer(**{"f": 4 * one["d"], **one}) for one in each]


def assert_all_answers(words: list[str], run: Mapping[str, Any], folder: Path) -> None:
    """Each answer of the page has the integers of the independent one and no other, and its shares."""
    models = sizes_of(words)
    found, expected = sections(solved(words, folder)), answers(models, run)
    assert [*found] == [*expected]
    for name, section in found.items():
        assert integers(section) == {number for number in expected[name] if number >= 1000}, name
    for column, model in enumerate(models):
        of = model.parts(model.T)
        written = {part: f"{100 * flops / sum(of.values()):.1f}\u00a0%" for part, flops in of.items()}
        assert shares(found["sizes"], column) == written
    assert trends(found["sizes"]) == expected_trends([model.parts(model.T) for model in models])
    largest = re.findall(r"\| (\d+)\s+sequences \|", found["largest-batch"])
    (a, b), (slope, rest), count = models[-1].saved, models[-1].peak, sum(models[-1].weights)
    assert sum(models[-1].saved_by_part(1).values()) == a + b
    by_hand = ((run["memory"] - 8 * count - models[-1].state - b) // a, (run["memory"] - rest) // slope)
    assert [int(number) for number in largest] == [*by_hand]
    assert f"{slope:,}·B + {rest:,} for B from " in found["largest-batch"]


def test_at_most_three_documented_commands_answer_the_assignment() -> None:
    """The sizes are small to XL; of the assignment's own Transformer too, whose feed-forward has 6,400 at every size."""
    commands = documented()

    assert 1 <= len(commands) <= 3
    assert [model.d for words in commands for model in sizes_of(words)] == 2 * [768, 1024, 1280, 1600]
    (xl,) = (sizes_of(words)[-1] for words in commands if words[1] == "llama3-8b")
    assert (xl.f, sum(xl.weights)) == (6400, 2_127_057_600)
    assert [sum(sizes_of(words)[-1].weights) for words in commands if words[1] == "gpt2"] == [1_557_611_200]


@pytest.mark.slow
@pytest.mark.parametrize("words", documented(), ids=lambda words: words[1])
def test_every_answer_of_the_documented_commands_is_right(words: list[str], tmp_path: Path) -> None:
    assert_all_answers(words, RUN, tmp_path)


_SMALL = "d=40,84 h=5,7 L=3,5 V=1009 T=67 --context 201 --memory 60MB --mfu 0.25 --steps 3000 --batch 2003"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2 C=71", "llama3-8b g=5,7 f=331"])
def test_every_answer_is_right_at_other_sizes(model: str, tmp_path: Path) -> None:
    """In models that take seconds."""
    run = {"context": 201, "memory": 60 * 10**6, "mfu": Fraction(1, 4), "steps": 3000, "batch": 2003}
    assert_all_answers(["homework", *f"{model} {_SMALL}".split()], run, tmp_path)
