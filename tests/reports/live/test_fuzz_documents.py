"""Documents that nobody would write: whatever stands in them, verification ends within a second, in 0, 1 or 2, and says why in one line.

They are made by a seed out of a corpus of documents that once hid something, took hours or broke a checker: parts of them repeated, cut,
mixed and misspelt. Models are those whose closed forms are stored.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from calc.errors import BadInputError
from reports import cli
from reports.jobs import job
from reports.jobs import report as report_job
from reports.jobs.job import Request
from reports.live.verify_reports import plain
from tests.reports import hostile

DOCUMENTS = 6_000
QUICK = 150
SECONDS = 20  # of the processor: a text that is not read in time proportional to its length takes minutes

BLOCK = """```napkin
model mlp as m B=5 d=11 f=13 K=3
model linear as l
device h100-sxm as h
ask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5 as run
L = 12  # layers
two = 2*m.parameters
```
"""
CLAIMS = (
    "It has **198**<!--= m.parameters --> parameters, twice that is 396<!--= two -->, in B = 5<!--= m.B -->",
    "at 989.5 TFLOP/s<!--= h.bf16 -->, ≈ 13<!--= L --> layers, < 200 days<!--= run.answer -->, 1.5e2 days<!--= run.t -->",
    "| 1.24 × 10^8<!--= 124e6 --> | 1.24·10⁸<!--= 124e6 --> | $5 k$<!--= 5 k$ --> | 33 %<!--= 1/3 --> |",
    "0.93 GB<!--= 1 GiB - 80 MB -->",
)
CORPUS = (
    "\n".join(("# Plan", "", BLOCK, *CLAIMS, "")),
    f"\ufeff{BLOCK}{CLAIMS[0]}\n".replace("\n", "\r\n"),
    f"<!--napkin\nL = 12\n-->\n{CLAIMS[3]}\n12<!--= L -->\n```python\n13<!--= L -->\n```\n`13<!--= L -->`\n",
    "```\nhidden\n\n3<!--= 4 -->\n",
    f"{' ' * 125}3<!--= 3 -->\n" * 100,
    f"{'`' * 999} 3<!--= 3 --> {'`' * 1000}\n",
    "```napkin\na0 = 1\n" + "".join(f"a{i} = a{i - 1} + 1/({2 * i + 1}**64)\n" for i in range(1, 400)) + "```\n1<!--= a399 -->\n",
    "```napkin\na0 = 1 s\n" + "".join(f"a{i} = a{i - 1}*a{i - 1}\n" for i in range(1, 400)) + "```\n1<!--= a399 -->\n",
    "<!--=" * 1_000 + "-->",
    f"```{' ' * 40_000}`\n3<!--= 3 -->\n",
    "3<!--= 3 -->\n" + "<!-- " * 2_000,
    "3<!--= (2**64)**62 -->, 3 e5<!--= 1/(2**64)**62 -->, 1.5·10⁻<!--= 3 -->, 2e999<!--= 2**64 -->\n",
    f"3<!--= {'(' * 60}1{')' * 60} -->, {'1' * 101}<!--= {'1' * 80} -->, 3<!--= 1e60**64 -->\n",
    "```napkin\nmodel hf:../x as m\nask flops model=hf:/etc/passwd tokens=1e9 as r\ndevice nothing as h\n```\n",
    "```napkin\nask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.4 gpu=mine hardware=/dev/zero as run\n```\n",
    "```napkin\nmodel mlp as m L=1000000000 d=99999999999999999999\nmodel mlp.py:spec as m\nmodel 'mlp as m\n```\n",
    f"3<!--= 3 -->\n{CLAIMS[0]}\nMade by Napkin on 2026-11-24 from one results object.\n",
)
PIECES = (
    "```", "````", "~~~", "```napkin\n", "<!--napkin\n", "-->", "<!--=", "<!--= 3 -->", "<!--", "`", "``", "\n", "\r\n", "\r",
    "\t", " ", "\u00a0", "\ufeff", "\u202e", "\x00", "\x1b[31m", "\u2028", "#", "|", "](", ")", "\\", "1", "2**64", "**", "*",
    "/", "+", "-", "(", "0", "1/0", "1e60", "1e-60", "1,234", ".5", "10⁻", "⁸", "×10^8", "≈", "<", "&lt;", "GB", "GiB/s",
    "days", "$", "%", "µs", "max(", "min(1,", "m.parameters", "L", "run.answer", "h.bf16", "two", "model", "ask", "device",
    " as ", "=", "B=0", "B=7", "'", '"', "hf:", ".py:spec", "__import__('os')", "𝟏", "١",
)  # fmt: skip


def documents(seed: int, count: int) -> Iterator[str]:
    """The corpus, then what chance makes of it."""
    chance = random.Random(seed)
    yield from CORPUS
    makers = (mutated, mutated, mutated, assembled, assembled, expression, repeated, texts)
    for _ in range(count - len(CORPUS)):
        yield chance.choice(makers)(chance)


def mutated(chance: random.Random) -> str:
    """A document of the corpus with parts of it cut, doubled, moved, replaced or misspelt."""
    text = chance.choice(CORPUS)
    for _ in range(chance.randint(1, 6)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 0, 1, 3, 10, 100)))
        part = text[start:end]
        new = chance.choice(
            (chance.choice(PIECES), "", part * 2, part[::-1], part.swapcase(), chance.choice(PIECES) * chance.randint(1, 200))
        )
        text = text[:start] + new + text[end:]
    return text


def assembled(chance: random.Random) -> str:
    """Lines of pieces and claims, behind a block of names or not."""
    lines = ["".join(chance.choices((*PIECES, *CLAIMS), k=chance.randint(1, 12))) for _ in range(chance.randint(1, 12))]
    return chance.choice(("", BLOCK)) + "\n".join(lines)


def expression(chance: random.Random) -> str:
    """A claim of an expression that is well formed more often than not."""

    def made(depth: int) -> str:
        if depth == 0 or chance.random() < 0.2:
            return chance.choice(
                ("1", "2", "3.5", "1e9", "1e-60", "80 GB", "1 s", "L", "m.parameters", "h.bf16", "run.t", "1/3", "0", "99999")
            )
        sign = chance.choice((" + ", " - ", "*", "/", "**", "^", ", "))
        inner = f"{made(depth - 1)}{sign}{made(depth - 1)}"
        return chance.choice((inner, f"({inner})", f"max({inner})", f"-{inner}", f"({inner})**{chance.choice((2, 7, 64, -64))}"))

    number = chance.choice(("3", "1.5e9", "≈ 7 GB", "> 0 s", "1·10⁸", "-5", "12,345.6 days", f"{10**90}", "x"))
    names = "".join(f"v{i} = {made(3)}\n" for i in range(chance.randint(0, 3)))
    return f"{BLOCK.removesuffix('```' + chr(10))}{names}```\n{number}<!--= {made(chance.randint(1, 6))} -->\n"


def repeated(chance: random.Random) -> str:
    """Few pieces, very often."""
    pieces = chance.choices((*PIECES, *CLAIMS, " " * 125, "3<!--= 3 -->"), k=chance.randint(1, 3))
    text = "".join(pieces) * chance.choice((10, 100, 1_000, 1_000, 5_000))
    return chance.choice(("", "3<!--= 3 -->\n", BLOCK)) + text[:200_000] + chance.choice(("", "-->", "\n", "`"))


def texts(chance: random.Random) -> str:
    """Texts that try to act where they are printed, as numbers, units and expressions."""
    one, other = chance.choices(hostile.ALL, k=2)
    return f"{BLOCK}{one} 3{other[:20]}<!--= {other} -->\n{chance.choice(CLAIMS)} {one}\n"


# -- running them ------------------------------------------------------------------------------------------------------------------------


def nothing_is_traced(*_: object, **__: object) -> NoReturn:
    raise BadInputError("only what is stored is derived in this test")


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What verification says of a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job, "derive", nothing_is_traced)

    def run(text: str, *words: str) -> Any:
        Path("d.md").write_bytes(text.encode("utf-8", "surrogatepass"))
        started = time.process_time()
        actual = CliRunner().invoke(cli.napkin, ["verify", "d.md", *words])
        assert time.process_time() - started < SECONDS, text[:300]
        return actual

    Path("d.md").write_text(BLOCK + CLAIMS[0] + "\n```napkin\nmodel hf:nothing as x\n```\n")
    CliRunner().invoke(cli.napkin, ["verify", "d.md"])  # what is imported once
    return run


def orderly(actual: Any, text: str) -> None:
    """An end as it should be: nothing escaped, one line where it is refused, and some claim that holds where it is verified."""
    assert isinstance(actual.exception, SystemExit | None), (text[:500], actual.exc_info)
    assert actual.exit_code in (0, 1, 2), text[:500]
    said = [line for line in actual.stderr.splitlines() if not re.fullmatch(r"loading .* …", line)]
    if actual.exit_code == 2:
        assert (actual.stdout, len(said)) == ("", 1), (text[:500], actual.stderr[:500])
        assert said[0].startswith("napkin: "), text[:500]
        assert len(said[0]) < 2_000, text[:500]
    else:
        summary = r"^d\.md: (\d+) of [1-9]\d* claims hold(?:; [1-9]\d* statements? did not run)?$"
        assert re.search(summary, actual.stdout, re.MULTILINE), text[:500]
    if actual.exit_code == 0:
        assert re.search(r"^d\.md: (\d+) of \1 claims hold$", actual.stdout, re.MULTILINE), text[:500]


def fuzz(verified: Callable[..., Any], seed: int, count: int) -> None:
    ends: Counter[int] = Counter()
    for number, text in enumerate(documents(seed, count)):
        actual = verified(text, *(("--unmarked",) if number % 3 == 0 else ("--diff",) if number % 3 == 1 else ()))
        orderly(actual, text)
        ends[actual.exit_code] += 1

    assert min(ends[0], ends[1], ends[2]) > count / 100, ends


@pytest.mark.slow
def test_some_documents_end_in_order(verified: Callable[..., Any]) -> None:
    """A sample of those below."""
    fuzz(verified, 1, QUICK)


@pytest.mark.slow
def test_no_document_keeps_verification_busy_or_breaks_it(verified: Callable[..., Any]) -> None:
    """Six thousand, each within a second."""
    fuzz(verified, 27, DOCUMENTS)


# -- reports -----------------------------------------------------------------------------------------------------------------------------


def edited(chance: random.Random, right: str) -> str:
    """A report with something cut, planted, doubled or replaced in it, with the line ends of another system or not."""
    lines = right.split("\n")
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(lines)) if chance.random() < 0.6 else len(lines) - 2  # where its inputs are
        line = lines[at]
        place = chance.randint(0, len(line))
        piece = chance.choice((*PIECES, "napkin-inputs", "3<!--= 3 -->"))
        lines[at] = chance.choice((line[:place] + piece + line[place:], line[:place], "", f"{line}\n{line}", piece, line.swapcase()))
    mark, end = chance.choice(("", "", "\ufeff")), chance.choice(("\n", "\n", "\r\n"))
    return mark + end.join("\n".join(lines).split("\n"))


@pytest.fixture(scope="module")
def made() -> report_job.BuiltReport:
    """A small report."""
    return report_job.make(Request("linear"), report_job.ReportChoices(formats=[".md"]), lambda _: None)


@pytest.mark.parametrize("count", [100, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_report_is_verified_only_as_it_was_written(
    count: int, made: report_job.BuiltReport, verified: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done to it: exit 0 where every character is the same, but for line ends and a byte order mark."""
    monkeypatch.setattr(report_job, "make", lambda *_, **__: made)
    chance, right = random.Random(count), made.texts["report.md"]
    ends: Counter[int] = Counter()
    for _ in range(count):
        text = edited(chance, right)
        actual = verified(text)
        assert isinstance(actual.exception, SystemExit | None), actual.exc_info
        assert actual.exit_code in (0, 1, 2)
        assert (actual.exit_code == 0) == (plain(text) == right), actual.output
        ends[actual.exit_code] += 1

    assert min(ends[0], ends[1], ends[2]) > count / 100, ends
