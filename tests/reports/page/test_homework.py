"""Exercises and solutions as files: questions without answers, answers with their numbers, both verified by making them again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calc.capacity.homework import ASSIGNMENT
from reports import cli
from reports.typeset.numbers import NBSP

WORDS = ("gpt2", "d=35,77", "h=5,7", "L=3,5", "V=47", "C=13", "T=11", "B=2", "--context", "17", "--memory", "3MB", "--mfu", "0.25")
XL = ("d=1600", "h=25", "L=48", "T=1024", "B=1")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("homework")
    done = run("homework", *WORDS, "--latex", "-o", str(folder))
    assert done.exit_code == 0, done.stderr
    return folder


def test_the_sheet_has_the_questions_and_no_answer(made: Path) -> None:
    """Of the same nine questions, which take a few pages; Markdown and HTML."""
    sheet, solutions = ((made / f"{name}.md").read_text(encoding="utf-8") for name in ("exercises", "solutions"))
    titles = re.findall(r"^### .*$", sheet, re.MULTILINE)

    assert titles == re.findall(r"^### .*$", solutions, re.MULTILINE)
    assert len(titles) == 9
    count = 47 * 77 + 13 * 77 + 5 * (12 * 77**2 + 13 * 77) + 2 * 77
    assert f"{count:,}" in solutions
    assert f"{count:,}" not in sheet
    assert len(solutions.splitlines()) < 300
    assert "--explain" not in sheet
    assert "| $`B`$ | batch size | 1 |" in sheet


def test_numbers_of_the_pages_are_those_of_the_document(made: Path) -> None:
    """Integers of every result and table, in each format; the commands of the solutions work."""
    body = json.loads((made / "solutions.json").read_text(encoding="utf-8"))
    pages = [(made / f"solutions{suffix}").read_text(encoding="utf-8") for suffix in (".md", ".html", ".tex")]
    numbers = [r["value"] for e in body["exercises"] for r in e["results"] if isinstance(r["value"], int)]
    numbers += [value for e in body["exercises"] for table in e["tables"] for row in table["rows"] for value in row["values"]]

    assert len(numbers) > 60
    assert [] == [number for number in numbers for page in pages if f"{number:,}" not in page]
    command = re.search(r"Every step: `napkin (derive [^`]* --explain parameters)`", pages[0])
    assert command is not None
    assert run(*command[1].split()).exit_code == 0


@pytest.mark.slow
def test_a_sheet_is_verified_by_making_it_again(made: Path, tmp_path: Path) -> None:
    """The sheet as it is written holds; solutions with another number do not."""
    sheet = made / "exercises.html"
    assert run("verify", str(sheet)).stdout.startswith(f"{sheet}: verified: made again from its inputs, every character is the same\n")

    latex = made / "solutions.tex"
    assert run("verify", str(latex)).stdout.startswith(f"{latex}: verified: made again from its inputs")
    file = tmp_path / "solutions.md"
    file.write_text((made / "solutions.md").read_text(encoding="utf-8").replace("33.3", "33.4", 1).replace("100.0", "100.1", 1))
    assert run("verify", str(file)).exit_code == 1


def test_a_sheet_of_chosen_quantities_has_their_questions_alone(tmp_path: Path) -> None:
    """A linear layer at B = 3, D = 5, K = 7: its parameters, and the FLOPs of a step, which no question of the assignment is about."""
    words = ("linear", "B=3", "D=5", "K=7", "--quantity", "parameters", "--quantity", "flops.step.total")
    assert run("homework", *words, "-o", str(tmp_path)).exit_code == 0
    sheet, solutions = ((tmp_path / f"{name}.md").read_text(encoding="utf-8") for name in ("exercises", "solutions"))

    assert re.findall(r"^### [\d.]+ (.*)$", sheet, re.MULTILINE) == ["Parameters", "flops.step.total"]
    assert "| parameters | 42 elements |" in solutions.replace("\u00a0", " ")
    assert "--explain flops.step.total" in solutions
    for name in ("exercises.html", "solutions.md"):
        assert run("verify", str(tmp_path / name)).exit_code == 0


def test_a_report_as_homework_derives_the_chosen_quantities_alone(tmp_path: Path) -> None:
    """Its chapters, answers and symbols; the page is verified by making it again; other layouts have links to every chapter."""
    chosen = ("--template", "homework", "--quantity", "parameters", "--quantity", "flops.forward.matmul")
    assert run("report", "linear", "B=3", "D=5", "K=7", *chosen, "-o", str(tmp_path)).exit_code == 0
    page = tmp_path / "report.md"
    text = page.read_text(encoding="utf-8")

    assert re.findall(r"^### [\d.]+ `(.*)`$", text, re.MULTILINE) == ["parameters", "flops.forward.matmul"]
    assert "| [parameters](#q-parameters) | 42\u00a0elements |" in text  # 5·7 + 7
    assert "memory.peak" not in text.partition("How it was checked")[0]
    assert "napkin report linear B=3 D=5 K=7 --template homework --quantity parameters --quantity flops.forward.matmul" in text
    assert run("verify", str(page)).exit_code == 0

    for words, why in (
        (("--quantity", "parameters"), "--quantity goes with --template homework: add it, or leave --quantity out"),
        (("--template", "homework", "--quantity", "speed"), "no quantity or rule of thumb 'speed'"),
    ):
        done = run("report", "linear", *words, "-o", str(tmp_path))
        assert (done.exit_code, done.stderr.startswith(f"napkin: {why}")) == (2, True)


@pytest.fixture(scope="module")
def xl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a homework of GPT-2 XL."""
    folder = tmp_path_factory.mktemp("xl")
    assert run("report", "gpt2", *XL, "--template", "homework", "-o", str(folder)).exit_code == 0
    return folder


def test_a_report_as_homework_derives_what_an_assignment_asks_for(xl: Path) -> None:
    """GPT-2 XL: what the questions of the exercise sheet ask for, all FLOPs of a step, and what these totals add up. Each by part, with its
    steps: a matmul with its sizes substituted, and the sum over layers. Nothing is left to another command."""
    text = (xl / "report.md").read_text(encoding="utf-8")
    titles, bodies = (re.split(r"^### [\d.]+ `(.*)`$", text, flags=re.MULTILINE)[start::2] for start in (1, 2))
    chapters = dict(zip(titles, bodies, strict=True))
    added = {f"flops.{of}" for of in ("forward.total", "backward.total", "forward.elementwise", "backward.elementwise")}

    assert {*chapters} == {*ASSIGNMENT, "flops.backward.matmul", "flops.step.total", "flops.optimizer.elementwise", *added}
    assert re.findall(r"^Largest parts of (.*):$", text, re.MULTILINE) == [*chapters]
    assert "| feed-forward | 2,013,265,920,000 | 57.4\u00a0% |" in text  # 4·1024·1600·6400·48
    assert [name for name, chapter in chapters.items() if "<details><summary>" not in chapter] == ["gradients.bytes"]
    assert "[parameters.bytes](#q-parameters.bytes)" in chapters["gradients.bytes"]
    assert r"={}& 2 \cdot 1 \cdot 1{,}024 \cdot 1{,}600 \cdot 6{,}400" in chapters["flops.forward.matmul"]
    assert r"& \sum_{\ell=1}^{L}(4\,B\,T^{2}\,d +8\,B\,T\,d^{2} +4\,B\,T\,d\,f) \\" in chapters["flops.forward.matmul"]
    assert "Every step of" not in text.partition("Given")[0]


def test_equations_of_a_homework_define_every_tensor_that_they_use(xl: Path) -> None:
    """Tensors with a module path, in GPT-2: scores, softmax, heads, and the gradients passed on. Of equal layers, the one before reads the
    embedding in place of what a layer gives, and its title says so."""
    text = (xl / "report.md").read_text(encoding="utf-8").partition("## 2 ")[2].partition("## 3 ")[0]
    equations = [line.partition("| `")[2].partition("` ")[0] for line in text.splitlines() if line.startswith("| `")]
    parameters = {tensor for tensor in _tensors(text) if tensor.rpartition(".")[2] in {"W", "w", "b"} and "∂" not in tensor}
    defined = {tensor for equation in equations for tensor in _tensors(equation.partition(" = ")[0])}

    assert {"attn.Q", "attn.S", "attn.P", "∂ℒ/∂attn.S", "∂ℒ/∂attn.c_attn.Y"} <= defined
    assert {tensor for equation in equations for tensor in _tensors(equation)} - defined - parameters == {"∂ℒ/∂transformer.X"}
    layers = "transformer.h.1, as in every transformer.h.\\*; transformer.h.0 has transformer.X in place of transformer.h.0.Y:\n"
    assert f"\nGradients, from the loss back: {layers}" in text


def _tensors(text: str) -> set[str]:
    """The names of tensors with a module path, and of their gradients; without the path of a layer, and without a transpose."""
    names = re.findall(r"(?:∂ℒ/∂)?[a-z]\w*(?:\.\w+)+[\u0302'²]?", re.sub(r"transformer\.h\.\d+\.(?=Y)", "", text))
    return {name.rstrip("ᵀ") for name in names}


def test_a_homework_of_a_large_model_is_light(xl: Path) -> None:
    """In Markdown and HTML."""
    assert [file.name for file in xl.glob("report.[hm]*") if file.stat().st_size >= 400_000] == []


def test_a_homework_that_would_be_too_heavy_has_the_answers_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each with its parts. The page names the commands that have the rest."""
    monkeypatch.setattr("reports.jobs.report._MOST_BYTES", 1000)
    assert run("report", "two-layer", "B=3", "D=5", "K=7", "--template", "homework", "-o", str(tmp_path)).exit_code == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")

    quantities = re.findall(r"^### [\d.]+ `(.*)`$", text, re.MULTILINE)
    assert sorted(quantities) == sorted((*ASSIGNMENT, "flops.backward.matmul", "flops.step.total"))
    assert not re.search(r"^#### ", text, re.MULTILINE)
    assert "Only matmuls and gradients of parameters are shown: napkin gradients two-layer prints all equations." in text
    line = "napkin report two-layer B=3 D=5 K=7 --template homework --quantity"
    assert f"`{line} memory.peak`" in text
    assert f"`{line} all`" in text


@pytest.mark.slow
def test_a_report_of_a_large_model_as_homework_is_verified(tmp_path: Path) -> None:
    """By making it again, as those of small models below."""
    assert run("report", "gpt2", *XL, "--template", "homework", "-o", str(tmp_path)).exit_code == 0

    assert run("verify", str(tmp_path / "report.md")).exit_code == 0


def test_a_report_of_a_small_model_as_homework_has_every_step(tmp_path: Path) -> None:
    """Two layers: shapes, the loss and its gradient as equations, each FLOP of the backward by the gradient that it is for, and no command
    for what is there already."""
    assert run("report", "two-layer", "B=3", "D=5", "K=7", "--template", "homework", "-o", str(tmp_path)).exit_code == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")

    assert "| `∂ℒ/∂Y2[b,k] = 2·(Y2[b,k] − x1[b,k])/(B·K)` | (B, K) | |" in text
    assert re.findall(r"text\{(?:mm: )?(d\w+ = [^}]*)\}", text) == [
        "dw2 = xᵀ dy of y = x w2",
        "dx = dy w2ᵀ of y = x w2",
        "dw1 = xᵀ dy of y = x w1",
    ]
    assert "because dw1 = xᵀ dy needs x; dw2 = xᵀ dy needs x; a storage counts once." in text
    assert "\n\nflops.backward.recompute is derived but not measured (no instrument separates recomputed" in text
    assert "Every step of" not in text.partition("Given")[0]
    assert "attention" not in text.partition("## 2 ")[0]
    assert run("verify", str(tmp_path / "report.md")).exit_code == 0


@pytest.mark.slow
def test_a_report_as_homework_derives_all_quantities(tmp_path: Path) -> None:
    """Those of the report of the same step, each with steps, and the equations; a step without attention has no causal FLOPs, and says
    nothing of them."""
    report, homework = ((tmp_path / name) for name in ("report", "homework"))
    sizes = ("linear", "B=3", "D=5", "K=7")
    assert run("report", *sizes, "-o", str(report)).exit_code == 0
    assert run("report", *sizes, "--template", "homework", "--quantity", "all", "-o", str(homework)).exit_code == 0
    full, text = ((folder / "report.md").read_text(encoding="utf-8") for folder in (report, homework))

    why = "because no operator or tensor of the step belongs to the matrix multiplications of the optimizer step."
    assert f"**0{NBSP}FLOP**\n\n{why}" in full
    assert not re.search(r"^=\{\}& 0\b", full, re.MULTILINE)
    chapters = [re.findall(r"^### 4[\d.]+ `(.*)`$", page, re.MULTILINE) for page in (full, text)]
    assert chapters[0] == chapters[1]
    assert "causal" not in full + text
    assert "| `∂ℒ/∂W = (∂ℒ/∂Y)ᵀ x0` (**parameter**) |" in text
    assert "#### 4.1.1 weight" in text
    assert run("verify", str(homework / "report.md")).exit_code == 0


@pytest.mark.slow
def test_chapters_of_a_homework_are_numbered_as_shown(tmp_path: Path) -> None:
    """A model with attention and without a mask has no causal FLOPs: a report says why, a homework leaves them out, and numbers no gap."""
    assert run("report", "vit-b", "B=2", "--template", "homework", "--quantity", "all", "-o", str(tmp_path)).exit_code == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^### 4\.(\d+) ", text, re.MULTILINE)]

    assert text.startswith("# vit-b: one training step\n")
    assert "causal" not in text
    assert numbers == [*range(1, len(numbers) + 1)]


REFUSED = {
    "gpt2 --mfu 1.5": "--mfu is a share of the peak: give at most 1",
    "gpt2 --memory 80": "--memory '80' has no unit: write it as 80GB (10**9 bytes) or 80GiB (2**30)",
    "gpt2 --steps 0": "--steps = '0' must be more than 0",
    "gpt2 --gpu nothing": "unknown accelerator 'nothing'",
    "gpt2 d=35,77 L=3": "k = d/h is not an integer at d = 35, h = 12: choose d as a multiple of h, e.g. d = 24",
    "linear --quantity speed": "no quantity 'speed': see napkin list quantities",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_answer_is_refused_in_one_line(words: str, tmp_path: Path) -> None:
    done = run("homework", *words.split(), "-o", str(tmp_path))

    assert (done.exit_code, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])
    assert done.stderr.splitlines()[-1].startswith(f"napkin: {REFUSED[words]}")
