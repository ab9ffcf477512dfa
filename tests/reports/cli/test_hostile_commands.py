"""The command line, live documents and reports with two hundred and fifty hostile texts in them: inert, or refused in one line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calc.errors import BadInputError
from calc.platform import files
from reports import cli
from reports.jobs import job
from reports.jobs import report as report_job
from reports.page.inputs import Inputs
from tests.quick import few
from tests.reports import hostile, sample
from tests.reports.inert import Elements, controls

# A text acts in few places or in none: every fourth at each place with the quick tests, all of them with the others.
TEXTS = pytest.mark.parametrize(
    "texts", [pytest.param(hostile.ALL[::4], id="some"), pytest.param(hostile.ALL, id="all", marks=pytest.mark.slow)]
)


def run(words: Sequence[str]) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def some_quick(places: Iterable[str], *quick: str) -> list[Any]:
    """All places, those that are not ``quick`` among the slow tests."""
    return [place if place in quick else pytest.param(place, marks=pytest.mark.slow) for place in places]


def orderly(actual: Result, words: Sequence[str]) -> None:
    """No traceback, nothing that acts; where it is refused, one bounded line and no data."""
    assert actual.exception is None or isinstance(actual.exception, SystemExit), (words, actual.exc_info)
    assert actual.exit_code in (0, 1, 2), words
    assert controls(actual.stdout + actual.stderr) == [], words
    if actual.exit_code == 2:
        said = [line for line in actual.stderr.rstrip("\n").split("\n") if not re.fullmatch(r"(?:loading|precision) .* …", line)]
        assert len(said) == 1, (words, actual.stderr)
        assert len(said[0]) < 2_000, words
        assert actual.stdout == "", words


ARGUMENTS: dict[str, Callable[[str], Sequence[str]]] = {
    "a command": lambda s: ["--", s],
    "a model": lambda s: ["derive", "--", s],
    "options of a model": lambda s: ["derive", f"mlp:{s}"],
    "a config": lambda s: ["derive", f"hf:{s}"],
    "a folder of a config": lambda s: ["derive", f"hf:nowhere/{s}"],
    "a configuration of the library": lambda s: ["derive", f"transformers:{s}"],
    "a file of one's own": lambda s: ["derive", f"{s}.py:spec"],
    "a name in a file": lambda s: ["derive", f"nowhere.py:{s}"],
    "a size": lambda s: ["derive", "mlp", "-d", f"{s}=3"],
    "the value of a size": lambda s: ["derive", "mlp", "-d", f"B={s}x"],
    "an optimizer": lambda s: ["derive", "mlp", "--optimizer", s],
    "what is explained": lambda s: ["derive", "mlp", "--explain", s],
    "a device": lambda s: ["check", "mlp", "--device", s],
    "a template": lambda s: ["report", "mlp", "--template", f"{s}!"],
    "a folder of templates": lambda s: ["report", "mlp", "--templates", f"nowhere/{s}"],
    "what is verified": lambda s: ["verify", "--", f"{s}.md"],
    "a form of messages": lambda s: ["verify", "x.md", "--format", s],
    "a list": lambda s: ["list", "--", f"{s}!"],
    "words of a list": lambda s: ["list", "models", "--", s],
    "a file of accelerators": lambda s: ["list", "hardware", "--hardware", s],
    "an accelerator": lambda s: ["roofline", "mlp", "--gpu", s],
    "an accelerator of one's own": lambda s: ["roofline", "mlp", "--gpu", "x", "--hardware", s],
    "a question": lambda s: ["ask", "--", f"{s}!"],
    "a letter of a question": lambda s: ["ask", "training-time", f"{s}=3"],
    "the value of a letter": lambda s: ["ask", "training-time", f"gpu={s}"],
    "named dimensions": lambda s: ["einsum", "--", f"{s}!"],
    "a number": lambda s: ["dtype", "bf16", "--", s],
    "what is compared": lambda s: ["compare", "--", s, "nothing"],
    "points of a sweep": lambda s: ["sweep", "mlp", "--from", s],
    "a layout": lambda s: ["shard", "llama3-8b", f"{s}=3"],
    "a calibration": lambda s: ["predict", "mlp", "--calibration", s],
}


@TEXTS
@pytest.mark.parametrize("place", few(ARGUMENTS, 16))
def test_the_command_line_takes_them_for_what_they_are(
    place: str, texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of one line wherever they stand for something that is not there."""
    monkeypatch.chdir(tmp_path)
    for text in texts:
        words = ARGUMENTS[place](text)
        orderly(run(words), words)

    assert list(tmp_path.iterdir()) == []


# -- file names ------------------------------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if not file.is_dir())


@TEXTS
def test_a_report_goes_into_the_folder_of_that_name_whole_or_not_at_all(
    texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``-o NAME``, for all that stay inside of a folder."""
    content = {"report.md": "a", "report.html": "b", "report.json": "c"}

    def report(request: object, directory: Path, *rest: object) -> SimpleNamespace:
        files = job.write_all(directory, content)
        return SimpleNamespace(files=files, checks=None, unchecked="", derivation=sample.derivation(), comparisons=())

    monkeypatch.setattr(report_job, "report", report)
    outcomes: Counter[int] = Counter()
    for number, text in enumerate(texts):
        room = tmp_path / str(number) / "a" / "b"
        room.mkdir(parents=True)
        monkeypatch.chdir(room)
        name = text.lstrip("/") or "x"  # inside of the room, or two above it
        actual = run(["report", "mlp", "-o", name if "../../.." not in name else "x"])
        outcomes[actual.exit_code] += 1
        orderly(actual, [name])
        written = sorted(file.name for file in files_of(tmp_path / str(number)))
        assert written == (sorted(content) if actual.exit_code == 0 else []), ascii(name)

    assert outcomes[0] > 0.8 * len(texts)
    assert outcomes[2] > 0.04 * len(texts)


def test_a_table_goes_into_the_file_of_that_name_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--csv NAME`` of a sweep; the values come without a model."""
    for number, text in enumerate(hostile.ALL):
        room = tmp_path / str(number)
        room.mkdir()
        monkeypatch.chdir(room)
        refused = ""
        try:
            files.write(files.Output(text.replace("/", "∕"), ["a\n", "1\n"]))
        except BadInputError as error:
            refused = str(error)
        assert [file.read_text() for file in room.iterdir()] == ([] if refused else ["a\n1\n"])


def test_a_place_that_is_taken_by_a_folder_leaves_all_files_as_they_were(tmp_path: Path) -> None:
    """Also those that could have been replaced before it."""
    (tmp_path / "a.md").write_text("old")
    (tmp_path / "b.md").mkdir()
    with pytest.raises(BadInputError, match=r"b\.md: it is a folder"):
        job.write_all(tmp_path, {"a.md": "new", "b.md": "new"})

    assert (tmp_path / "a.md").read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.md", "b.md"]


@TEXTS
def test_files_of_those_names_are_read_as_any_other(texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--hardware``, ``hf:``, ``--templates``, ``--source`` and ``verify`` of files that are there under such a name."""
    inputs = Inputs("report", "mine.py:x", digest="0" * 64)
    (tmp_path / "r.md").write_text(f"# r\n\n<!-- napkin-inputs {inputs.text()} -->\n")
    made = 0
    for number, text in enumerate(texts):
        room = tmp_path / str(number)
        room.mkdir()
        monkeypatch.chdir(room)
        name = text.replace("/", "∕")
        try:
            Path(f"x{name}").mkdir()
            Path(f"{name}.md").write_text("3<!--= 4 -->\n")
        except (OSError, ValueError):
            continue
        made += 1
        for words in (
            ["verify", "--", f"{name}.md"],
            ["verify", "--format", "github", "--", f"{name}.md"],
            ["verify", "--source", f"{name}.md", "--", "../r.md"],
            ["verify", "--templates", f"x{name}", "--", "../r.md"],
            ["list", "hardware", "--hardware", f"{name}.md"],
            ["derive", f"hf:{name}.md"],
            ["derive", f"hf:x{name}"],
            ["report", "mlp", "--template", "none", "--templates", f"x{name}"],
        ):
            actual = run(words)
            orderly(actual, words)
            assert actual.exit_code in (1, 2), words

    assert made > 0.8 * len(texts)


# -- what succeeds ---------------------------------------------------------------------------------------------------------------------


@TEXTS
def test_an_environment_that_a_report_claims_is_printed_as_text(
    texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that is none is refused, in one line; what is noted by another name is a difference."""
    monkeypatch.chdir(tmp_path)
    made = report_job.make(job.Request("mlp"), report_job.ReportChoices(), lambda _: None)
    monkeypatch.setattr(report_job, "make", lambda *_, **__: made)
    for text in texts[::4]:
        for environment, status in (({"python": text}, 2), ({text: text}, 1)):
            inputs = Inputs("report", "mlp", environment=environment)
            Path("r.md").write_text(f"# r\n\n<!-- napkin-inputs {inputs.text()} -->\n")
            actual = run(["verify", "r.md"])
            orderly(actual, [text])
            assert actual.exit_code == status


def test_a_file_of_such_a_name_is_rewritten_and_derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--fix`` of a document and a spec of one's own, both by names that would act."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job, "derive", lambda request, progress: sample.derivation())
    for text in ("\x1b[31mred", "\u202eevil", "\x9b2J", "\u2066a", "[bold]x", "a\nb"):
        Path(f"{text}.md").write_text("4<!--= 3 -->\n")
        orderly(run(["verify", "--fix", "--", f"{text}.md"]), [text])
        assert Path(f"{text}.md").read_text() == "3<!--= 3 -->\n"
        actual = run(["derive", f"{text}.py:spec"])
        orderly(actual, [text])
        assert "Every step: napkin derive" in actual.stderr


@TEXTS
def test_an_answer_about_an_accelerator_of_such_a_name_is_text(
    texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words and as JSON, which is ASCII; every text of the file is somebody's own."""
    monkeypatch.chdir(tmp_path)
    keys = ("name", "vendor", "architecture", "source", "note", "memory_note")
    question = ["ask", "training-time", "parameters=1e9", "tokens=1e9", "mfu=0.4", "gpus=8", "gpu=mine", "hardware=own.toml"]
    answered = 0
    for text in texts:
        said = json.dumps(text).replace("\x7f", "\\u007f")
        entry = ["[mine]", *(f"{key} = {said}" for key in keys), "year = 2026", "memory = 80", "bandwidth = 9", f"device_names = [{said}]"]
        Path("own.toml").write_text("\n".join([*entry, f"peak.bf16 = {{ dense = 1, engine = {said} }}\n"]))
        for words in (["list", "hardware", "mine", "--hardware", "own.toml"], question):
            for form in ([], ["--json"]):
                actual = run([*words, *form])
                orderly(actual, [*words, *form])
                answered += actual.exit_code == 0

    assert answered > 2 * len(texts)


# -- a model of somebody's own ---------------------------------------------------------------------------------------------------------

SPEC = """
import json
from pathlib import Path
import torch
from torch import nn
from calc import Dim, Spec

NAMES = json.loads(Path(__file__).with_name("names.json").read_text())

class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(d, d) for name in NAMES})
    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x

spec = Spec(NAMES[0], dims={"B": Dim(2, NAMES[1]), "d": Dim(3, NAMES[2])}, build=lambda n: Net(n.d),
            inputs=lambda n: (torch.randn(n.B, n.d),), loss=lambda model, x: model(x).sum(), notes=tuple(NAMES[3:8]))
"""


def reported(folder: Path, names: Sequence[str]) -> Elements:
    """The report of a model whose modules have these names: written, verified, and its page."""
    folder.mkdir()
    (folder / "m.py").write_text(SPEC)
    (folder / "names.json").write_text(json.dumps(names))
    words = ["report", f"{folder / 'm.py'}:spec", "--no-cache", "--latex", "-o", str(folder / "out")]
    actual = run(words)
    assert actual.exit_code == 0, actual.stderr[-300:]
    assert controls(actual.stdout + actual.stderr) == []
    made = sorted((folder / "out").iterdir())
    again = run(["verify", "--source", str(folder / "m.py"), *map(str, made)])
    assert (again.exit_code, again.stdout.count("every character is the same")) == (0, 4)
    for file in made:
        assert controls(file.read_text(encoding="utf-8").replace("\u200b", "")) == []  # which breaks up a fence in a command
    return Elements((folder / "out" / "report.html").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_model_whose_modules_are_called_so_is_reported_as_any_other(tmp_path: Path) -> None:
    """Recorded, run, written in four formats and verified; its page has the kinds of elements that another one has."""
    known = dict.fromkeys(text.replace(".", "") for text in hostile.ALL if len(text) < 200)  # torch allows no dot
    names = [name for name in known if name and name != "*"][::5]
    actual, usual = (reported(tmp_path / folder, called) for folder, called in (("a", names), ("b", [f"n{i}" for i in range(len(names))])))

    assert len(names) > 40
    assert set(actual.tags) == set(usual.tags)
    assert actual.attributes <= usual.attributes


# -- live documents --------------------------------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, Callable[[str], str]] = {
    "prose": lambda s: f"# {s}\n\n{s} 3<!--= 3 --> {s}\n",
    "an expression": lambda s: f"3<!--= {s} -->\n",
    "what stands before a claim": lambda s: f"{s}<!--= 3 -->\n",
    "a unit": lambda s: f"3 {s}<!--= 3 -->\n",
    "a statement": lambda s: f"```napkin\n{s}\n```\n",
    "a model": lambda s: f'```napkin\nmodel "{s}" as g\n```\n',
    "a config": lambda s: f'```napkin\nmodel "hf:{s}" as g\n```\n',
    "code": lambda s: f'```napkin\nmodel "{s}.py:x" as g\n```\n',
    "a size": lambda s: f'```napkin\nmodel mlp as g "B={s}"\n```\n',
    "a name": lambda s: f"```napkin\n{s} = 3\n```\n",
    "a question": lambda s: f'```napkin\nask training-time parameters="{s}" as g\n```\n',
    "a device": lambda s: f'```napkin\ndevice "{s}" as g\n```\n',
}


@TEXTS
@pytest.mark.parametrize("place", some_quick(DOCUMENTS, "prose", "an expression", "a config", "a name"))
def test_a_document_holds_them_as_text(place: str, texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked, or refused in one line; nothing of a document runs, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    for text in texts:
        written = DOCUMENTS[place](text).encode("utf-8", "surrogatepass")
        Path("d.md").write_bytes(written)
        orderly(run(["verify", "d.md"]), [place, text])
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [written]


REPORTS: dict[str, Callable[[str], Inputs]] = {
    "kind": lambda s: Inputs(s or "x", "mlp"),
    "model": lambda s: Inputs("report", s),
    "config": lambda s: Inputs("report", f"hf:{s}", digest="0"),
    "size": lambda s: Inputs("report", "mlp", {s: 3}),
    "option": lambda s: Inputs("report", "mlp", options={s: "x"}),
    "device": lambda s: Inputs("report", "mlp", device=f"{s}!"),
    "template": lambda s: Inputs("report", "mlp", template=f"{s}!"),
}


@TEXTS
@pytest.mark.parametrize("place", some_quick(REPORTS, "model"))
def test_a_report_that_says_it_was_made_from_them_is_not_verified(
    place: str, texts: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, whatever stands in its inputs."""
    monkeypatch.chdir(tmp_path)
    for text in texts:
        Path("r.md").write_text(f"# r\n\n<!-- napkin-inputs {REPORTS[place](text).text()} -->\n")
        actual = run(["verify", "r.md"])
        orderly(actual, [place, text])
        assert actual.exit_code == 1
        assert actual.stdout.startswith("r.md: not verified: ")
        assert actual.stdout.count("\n") == 1
