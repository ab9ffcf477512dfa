"""A report is made again from the inputs it carries: every edited digit shows, and nothing that is edited along with it hides that."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calc.errors import BadInputError
from calc.options import Options
from reports import cli
from reports.jobs import report as report_job
from reports.jobs.job import Request
from reports.lecture import writing
from reports.live import verify_reports
from reports.page.inputs import Inputs, digest_of, embedded
from tests.models.configs import LLAMA

SUFFIXES = (".md", ".html", ".json", ".tex")
EDITS = 100


@pytest.fixture(scope="module")
def made() -> report_job.BuiltReport:
    """A small report with checks."""
    return report_job.make(Request("mlp", {"B": 5, "d": 11, "f": 13, "K": 3}), report_job.ReportChoices(), lambda _: None)


@pytest.fixture
def once(made: report_job.BuiltReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are not made again: they are what that one is."""
    monkeypatch.setattr(report_job, "make", lambda *_, **__: made)


@pytest.fixture(scope="module")
def texts(made: report_job.BuiltReport) -> Mapping[str, str]:
    """Its texts by suffix."""
    return {Path(name).suffix: text for name, text in made.texts.items()}


@pytest.fixture
def report(texts: Mapping[str, str], tmp_path: Path) -> Path:
    """A folder with its files."""
    for suffix, text in texts.items():
        (tmp_path / f"report{suffix}").write_text(text, encoding="utf-8")
    return tmp_path


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["verify", str(file), *words])


def test_what_was_not_touched_is_verified(report: Path) -> None:
    """In each format: made again, every character is the same; what cannot be made again is listed as noted."""
    first, *rest = (report / f"report{suffix}" for suffix in SUFFIXES)
    actual = run(first, *map(str, rest))
    noted = json.loads((report / "report.json").read_text(encoding="utf-8"))["inputs"]
    environment = Inputs("report", date=noted["date"], environment=noted["environment"]).noted

    same = "verified: made again from its inputs, every character is the same"
    assert (actual.exit_code, actual.stdout) == (
        0,
        "".join(f"{file}: {same}\n{file}: noted, not verified: {environment}\n" for file in (first, *rest)),
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_edited_digit_shows(suffix: str, texts: Mapping[str, str]) -> None:
    """Anywhere outside the style sheet: numbers, figures, dates, versions, and the inputs themselves, which then make another report."""
    text, chance = texts[suffix], random.Random(7)
    style = re.search(r"<style>.*</style>", text, re.DOTALL)
    places = [m.start() for m in re.finditer(r"[0-9]", text) if style is None or not style.start() < m.start() < style.end()]
    inputs = embedded(text, suffix)
    shown = 0
    for at in chance.sample(places, EDITS):
        edited = text[:at] + str((int(text[at]) + chance.randint(1, 9)) % 10) + text[at + 1 :]
        try:
            same = embedded(edited, suffix) == inputs
        except BadInputError:
            continue  # 07 is no JSON: refused
        assert not same or list(verify_reports.differences(edited, text)), at
        shown += 1

    assert shown > EDITS // 2


def test_a_report_is_made_once_for_all_of_its_files(report: Path, made: report_job.BuiltReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files of one report: each is compared, and the edited one named."""
    wanted: list[frozenset[str]] = []

    def make(request: Request, choices: report_job.ReportChoices, *_: Any) -> report_job.BuiltReport:
        wanted.append(frozenset(choices.formats))
        assert choices.quantities == []  # all of them
        return made

    monkeypatch.setattr(report_job, "make", make)
    edited = report / "report.md"
    edited.write_text(edited.read_text(encoding="utf-8").replace("1,820", "1,829", 1), encoding="utf-8")
    actual = run(edited, *(str(report / f"report{suffix}") for suffix in SUFFIXES[1:]), "--format", "json")

    assert wanted == [frozenset(SUFFIXES)]
    assert [file["verdict"] for file in json.loads(actual.stdout)["files"]] == ["differs", "verified", "verified", "verified"]


def test_edited_inputs_make_another_report(report: Path, texts: Mapping[str, str]) -> None:
    """B = 5 there and 6 in the inputs: what is right then is what 6 gives."""
    file = report / "report.md"
    file.write_text(texts[".md"].replace('"B": 5', '"B": 6'), encoding="utf-8")
    actual = run(file)

    assert actual.exit_code == 1
    assert "says '5', right is '6'" in actual.stdout


def test_a_number_that_was_edited_is_named_with_place_and_right_value(report: Path, texts: Mapping[str, str], once: None) -> None:
    """2*B*d*f + 2*B*f*K = 2*5*11*13 + 2*5*13*3 = 1,820 FLOP."""
    file = report / "report.md"
    lines = texts[".md"].split("\n")
    line = next(i for i, text in enumerate(lines) if text.startswith("| [flops.forward.matmul]"))
    column = lines[line].index("1,820") + 1
    lines[line] = lines[line].replace("1,820", "1,829", 1)
    file.write_text("\n".join(lines), encoding="utf-8")
    actual = run(file)

    assert (actual.exit_code, actual.stdout) == (1, f"{file}:{line + 1}:{column}: says '1,829', right is '1,820'\n")


def test_differences_come_as_json_and_as_annotations(report: Path, texts: Mapping[str, str], once: None) -> None:
    """For a program, and for a pull request."""
    file = report / "report.md"
    file.write_text(texts[".md"].replace("1,820", "1,829", 1), encoding="utf-8")
    (actual,) = json.loads(run(file, "--format", "json").stdout)["files"]
    annotated = run(file, "--format", "github").stdout

    assert (actual["kind"], actual["verdict"]) == ("report", "differs")
    assert [(d["says"], d["right"]) for d in actual["differences"]] == [("1,829", "1,820")]
    assert re.fullmatch(r"::error file=\S+,line=\d+,col=\d+::says '1,829', right is '1,820'\n", annotated)


def test_lines_that_were_taken_out_or_put_in_show(texts: Mapping[str, str]) -> None:
    """A row of a table, either way."""
    text = texts[".md"]
    lines = text.split("\n")
    row = next(i for i, line in enumerate(lines) if line.startswith("| [flops.forward.matmul]"))
    (missing,) = verify_reports.differences("\n".join(lines[:row] + lines[row + 1 :]), text)
    (added,) = verify_reports.differences("\n".join([*lines[:row], "all is well", *lines[row:]]), text)

    assert (missing.says, missing.right) == ("", lines[row] if len(lines[row]) <= 80 else f"{lines[row][:79]}…")
    assert (added.line, added.says, added.right) == (row + 1, "all is well", "")


@pytest.mark.slow
def test_another_machine_is_said_and_is_no_difference(report: Path, texts: Mapping[str, str]) -> None:
    """What was noted of it stands in the text and in the inputs alike."""
    file = report / "report.md"
    version = json.loads(texts[".json"])["inputs"]["environment"]["python"]
    file.write_text(texts[".md"].replace(version, "3.99.1"), encoding="utf-8")
    actual = run(file)

    assert actual.exit_code == 0
    assert f"made with python 3.99.1, here python is {version}" in actual.stderr


# -- what another program made of a report -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_line_ends_and_a_byte_order_mark_are_read_as_what_they_are(suffix: str, report: Path, texts: Mapping[str, str], once: None) -> None:
    """As git's autocrlf and some editors leave a report; an edited digit shows all the same."""
    file = report / f"report{suffix}"
    file.write_bytes(f"\ufeff{texts[suffix]}".replace("\n", "\r\n").encode())
    same = run(file)
    file.write_bytes(texts[suffix].replace("1,820", "1,829").replace("\n", "\r\n").encode())
    edited = run(file)

    assert (same.exit_code, same.stdout.splitlines()[0]) == (
        0,
        f"{file}: verified: made again from its inputs, every character is the same",
    )
    assert (edited.exit_code, texts[suffix].count("1,820") > 0) == ((1, True) if "1,820" in texts[suffix] else (0, False))


NO_INPUTS = "is from a report that Napkin wrote, but the inputs to regenerate it are missing or cannot be read: write the report again"


@pytest.mark.parametrize("without", [r"<!-- napkin-inputs.*-->", r"napkin-inputs", r"<!-- (?=napkin-inputs)"])
def test_a_report_without_its_inputs_is_no_live_document(without: str, report: Path, texts: Mapping[str, str]) -> None:
    """Nor with a claim that holds put into it."""
    file = report / "report.md"
    for claim in ("", "\n\n3<!--= 3 -->\n"):
        file.write_text(re.sub(without, "", texts[".md"]) + claim, encoding="utf-8")
        actual = run(file)

        assert (actual.exit_code, actual.stdout) == (2, "")
        assert re.fullmatch(rf"napkin: {re.escape(str(file))}: line \d+ {NO_INPUTS}\n", actual.stderr)


@pytest.mark.parametrize("sign", ["Made by Napkin on 2026-11-24 from one results object.", '<a id="q-parameters"></a>', "# a: b, derived"])
def test_each_sign_of_a_report_tells(sign: str, tmp_path: Path) -> None:
    """Its last sentence, an anchor of a quantity, its heading among anchors; quoted, they tell nothing."""
    text = f'3<!--= 3 -->\n\n<a id="answers"></a>\n\n{sign}\n'
    (tmp_path / "x.md").write_text(text)
    (tmp_path / "quoted.md").write_text(f"3<!--= 3 -->\n```\n{text}```\n")

    assert run(tmp_path / "x.md").stderr == f"napkin: {tmp_path / 'x.md'}: line 5 {NO_INPUTS}\n"
    assert run(tmp_path / "quoted.md").exit_code == 0


# -- what cannot be made again -------------------------------------------------------------------------------------------------------------

PLANTED = "Audited: it needs 5 GB on an H100"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("date", f"2026-11-23. {PLANTED}"),
        ("date", "2026-11-31"),
        ("date", "demand"),
        ("source", PLANTED),
        ("source", f"{PLANTED}.py, sha256 0123456789abcdef"),
        ("python", f"3.11.7 {PLANTED}"),
        ("torch", "2.13.0+cpu.and.this.was.audited.by.a.third.party.today"),
        ("check: device", f"cpu (x86_64). {PLANTED}"),
        ("check: device", f"cpu ({'x' * 65})"),
        ("check: platform", PLANTED),
    ],
)
def test_prose_in_a_noted_field_is_refused(name: str, value: str, texts: Mapping[str, str], tmp_path: Path) -> None:
    """It would agree with itself, and a reader would take it for verified."""
    inputs = embedded(texts[".md"], ".md")
    assert inputs is not None
    old = inputs.date if name == "date" else inputs.environment[name]
    (tmp_path / "x.md").write_text(texts[".md"].replace(old, value), encoding="utf-8")
    actual = run(tmp_path / "x.md")
    shown = value[:60]
    why = "not YYYY-MM-DD" if name == "date" else "which Napkin never writes"

    assert (actual.exit_code, actual.stdout) == (2, "")
    said = rf"napkin: x\.md: the (check: )?\w+ of the report is '{re.escape(shown)}', {why}: make the report again\n"
    assert re.fullmatch(said, actual.stderr)


def test_another_source_of_the_model_is_not_verified(texts: Mapping[str, str], tmp_path: Path, once: None) -> None:
    """It has the form of one, and is not that of the model."""
    source = "LlamaForCausalLM of transformers 5.13.1, config sha256 0123456789abcdef"
    (tmp_path / "x.md").write_text(texts[".md"].replace("built-in", source), encoding="utf-8")

    assert run(tmp_path / "x.md").stdout == (
        f"{tmp_path / 'x.md'}: not verified: it gives the model's source as {source}, but the source is built-in\n"
    )


def test_what_is_noted_by_another_name_is_a_difference(texts: Mapping[str, str], tmp_path: Path) -> None:
    """In the inputs, where no reader sees it."""
    (tmp_path / "x.md").write_text(texts[".md"].replace('"environment": {', f'"environment": {{"audit": "{PLANTED}", '), encoding="utf-8")
    actual = run(tmp_path / "x.md")

    assert (actual.exit_code, actual.stdout.count("\n")) == (1, 1)


def test_a_lecture_notes_versions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """How chance was seeded is what it is here."""
    monkeypatch.setattr(writing, "make", lambda _, stamp: (None, {"lecture.md": stamp.text()}))
    noted = Inputs("lecture", date="demand", environment={"torch": "2.1.0", "chance": PLANTED, "audit": PLANTED})
    texts, here = verify_reports._remade(noted, (), None, lambda _: None, (".md",))
    again = json.loads(texts["lecture.md"])

    assert again["environment"] == {**here, "torch": "2.1.0"}
    assert PLANTED not in texts["lecture.md"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch", "2.13.0"), ("torch", "2.15.0.dev20261101+cu128"), ("torch", "2.6.0a0+ecf3bae40a.nv25.01"), ("python", "3.13.0rc1+"),
        ("napkin", "not installed"), ("check: device", "cuda:0 (NVIDIA H100 80GB HBM3)"), ("check: device", "cpu ()"),
        ("check: platform", "Windows"), ("transformers", "5.0.0.dev0"), ("source", "built-in"),
        ("source", "BertModel of transformers 5.1.0, config sha256 0123456789abcdef"), ("check: seed", "0"),
    ],
)  # fmt: skip
def test_versions_and_machines_as_they_are_keep_to_the_grammar(name: str, value: str) -> None:
    """Releases, nightly builds, those of a vendor; devices as their drivers call them."""
    inputs = Inputs("report", "mlp", date="2026-11-24", environment={name: value})

    assert inputs.require_grammar() is None


def test_what_is_noted_is_listed_for_a_program_and_a_pull_request_too(report: Path, once: None) -> None:
    file = report / "report.md"
    (actual,) = json.loads(run(file, "--format", "json").stdout)["files"]

    assert run(file, "--format", "github").stdout == f"::notice file={file}::noted, not verified: {actual['noted']}\n"
    assert actual["noted"].startswith("20")


@pytest.mark.parametrize(
    "text",
    ["\n" * 2_000_000, "x" * 20_000_000, "x y" * 5_000_000, "<!-- napkin-inputs {" * 100_000],
    ids=["lines", "word", "words", "inputs"],
)
def test_a_long_report_is_compared_in_time_proportional_to_its_length(text: str, texts: Mapping[str, str]) -> None:
    """In front of the right one, after it, and in its place."""
    right, started = texts[".md"], time.process_time()
    for says in (text, text + right, right + text):
        assert next(verify_reports.differences(says, right))
        assert list(itertools.islice(verify_reports.differences(says, right), 10_000))
        embedded(says, ".md")

    assert time.process_time() - started < 20


def test_lines_put_in_and_taken_out_in_several_places_are_one_difference_each(texts: Mapping[str, str]) -> None:
    """Blank lines and rows of tables in between agree again."""
    lines = texts[".md"].split("\n")
    times, chance = Counter(lines), random.Random(3)
    single = [i for i, line in enumerate(lines) if len(line) > 30 and times[line] == 1][::40]
    for _ in range(20):
        places = chance.sample(single, 5)
        fewer = [line for i, line in enumerate(lines) if i not in places]
        more = [each for i, line in enumerate(lines) for each in ([f"put in {i}", line] if i in places else [line])]

        assert len(list(verify_reports.differences("\n".join(fewer), texts[".md"]))) == 5
        assert len(list(verify_reports.differences("\n".join(more), texts[".md"]))) == 5


# -- reports of a user's own files -----------------------------------------------------------------------------------------------------

SPEC = """
import torch
from calc import Spec

spec = Spec("mine", dims={"B": 5, "d": 7}, build=lambda n: torch.nn.Linear(n.d, 3), inputs=lambda n: (torch.randn(n.B, n.d),),
            loss=lambda model, x: model(x).sum(), predict=lambda model, x: model(x))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a file, beside it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(SPEC)
    inference = Options(mode="infer", precision="bf16")  # no further step is derived for the peak's paragraph
    made = report_job.make(Request(f"{folder / 'mine.py'}:spec", options=inference), report_job.ReportChoices(), lambda _: None)
    (folder / "report.md").write_text(made.texts["report.md"], encoding="utf-8")
    return folder


def test_a_file_of_ones_own_is_not_loaded_unless_it_is_named(own: Path) -> None:
    """It could be any code."""
    actual = run(own / "report.md")

    assert actual.exit_code == 1
    assert actual.stdout == (
        f"{own / 'report.md'}: not verified: it is about {own / 'mine.py'}, a file of your own: name it with --source FILE\n"
    )


def test_the_named_file_has_to_be_the_one(own: Path, tmp_path: Path) -> None:
    """By its digest; also when somebody put the other's digest into the report, whose numbers then differ."""
    other = tmp_path / "mine.py"
    other.write_text(SPEC.replace("Linear(n.d, 3)", "Linear(n.d, 4)"))
    forged = tmp_path / "report.md"
    old, new = (hashlib.sha256(file.read_bytes()).hexdigest() for file in (own / "mine.py", other))
    forged.write_text((own / "report.md").read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    assert run(own / "report.md", "--source", str(other)).stdout == (
        f"{own / 'report.md'}: not verified: it was made from another file than {other}: the SHA-256 differs\n"
    )
    assert run(forged, "--source", str(other)).exit_code == 1


def test_the_named_file_verifies_wherever_it_lies(own: Path, tmp_path: Path) -> None:
    """A copy does."""
    shutil.copy(own / "mine.py", tmp_path / "mine.py")

    beside, copied = (run(own / "report.md", "--source", str(folder / "mine.py")) for folder in (own, tmp_path))

    assert (beside.exit_code, copied.exit_code) == (0, 0)
    assert copied.stdout.endswith(f", file {own / 'mine.py'}\n")  # where it was is only noted


@pytest.mark.slow
def test_a_config_verifies_wherever_it_lies(tmp_path: Path) -> None:
    """Its report has the folder's name in the title, and the path in the commands."""
    folder, file, moved = tmp_path / "llama", tmp_path / "report.md", tmp_path / "moved.json"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    inference = Options(mode="infer", precision="bf16")
    made = report_job.make(Request(f"hf:{folder}", options=inference), report_job.ReportChoices(), lambda _: None)
    file.write_text(made.texts["report.md"], encoding="utf-8")
    shutil.copy(folder / "config.json", moved)

    assert made.texts["report.md"].startswith("# llama: one forward")
    for source in (folder, folder / "config.json", moved):
        assert run(file, "--source", str(source)).stdout.startswith(f"{file}: verified: ")


NOTHING = "carries no inputs from which Napkin could make it again, so nothing in it can be verified"
NOT_OURS = "x.json: its inputs are not as Napkin writes them: make the report again"


def test_of_several_named_files_the_one_it_was_made_from_is_taken(own: Path, tmp_path: Path) -> None:
    """By its digest, whatever it is called."""
    other, renamed = tmp_path / "mine.py", tmp_path / "renamed.py"
    other.write_text("raise RuntimeError('not this one')\n")
    shutil.copy(own / "mine.py", renamed)

    assert run(own / "report.md", "--source", str(other), "--source", str(renamed)).exit_code == 0


def test_the_digest_of_a_configs_folder_is_that_of_its_config(tmp_path: Path) -> None:
    """hf:FOLDER stands for hf:FOLDER/config.json."""
    (tmp_path / "config.json").write_text("{}")

    assert digest_of(tmp_path) == digest_of(tmp_path / "config.json") == hashlib.sha256(b"{}").hexdigest()


# -- bad input ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "{", "x.json: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("x.json", "{}", f"x.json {NOTHING}"),
        ("x.html", "<p>hello", f"x.html {NOTHING}"),
        ("x.pdf", "", "x.pdf is not a file that Napkin writes: give a .md, .html, .tex or .json"),
        ("x.json", '{"inputs": {"kind": 3}}', NOT_OURS),
        ("x.json", '{"inputs": {"kind": "report", "more": 1}}', NOT_OURS),
        ("x.json", '{"inputs": {"kind": "report", "sizes": {"B": true}}}', NOT_OURS),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    actual = run(tmp_path / name)

    assert (actual.exit_code, actual.stdout, actual.stderr) == (2, "", f"napkin: {said}\n")


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (Inputs("report", "nothing-like-it"), "it cannot be made again: unknown model"),
        (Inputs("report", "mlp", {"B": 0}), "it cannot be made again: B = 0"),
        (Inputs("report", "mlp", options={"optimizer": "sdg"}), "it cannot be made again: unknown optimizer 'sdg'"),
        (Inputs("novel", "mlp"), "it cannot be made again: unknown kind of report 'novel'"),
        (Inputs("report", "mlp", device="tpu"), "it cannot be made again: unknown device 'tpu'"),
    ],
)
def test_inputs_that_make_nothing_are_not_verified(inputs: Inputs, why: str, tmp_path: Path) -> None:
    """They were edited, or are of another version."""
    (tmp_path / "r.md").write_text(f"# r\n\n<!-- napkin-inputs {inputs.text()} -->\n")
    actual = run(tmp_path / "r.md")

    assert actual.exit_code == 1
    assert actual.stdout.startswith(f"{tmp_path / 'r.md'}: not verified: {why}")


def test_no_name_ends_the_comment_or_the_attribute_it_stands_in() -> None:
    """Read back, it is the same."""
    inputs = Inputs("report", "--> <script>'\"&`\u2028\n", {"B": 5}, environment={"source": "</style>--!>"})
    line = inputs.text()

    assert not re.search(r"--|[<>&'`\n\u2028]", line)
    assert embedded(f"<!-- napkin-inputs {line} -->", ".md") == inputs


@pytest.mark.slow
def test_a_page_with_a_script_is_made_again(tmp_path: Path) -> None:
    """With the report beside it, from the same inputs; a changed digit of its data is named."""
    made = CliRunner().invoke(cli.napkin, ["report", "two-layer", "--interactive", "--mode", "infer", "-o", str(tmp_path)])
    page = tmp_path / "report.interactive.html"
    untouched = run(page)
    page.write_text(page.read_text(encoding="utf-8").replace('"default":1024', '"default":1025', 1), encoding="utf-8")
    edited = run(page)

    assert (made.exit_code, untouched.exit_code, edited.exit_code) == (0, 0, 1)
    assert f"{page}: verified: made again from its inputs, every character is the same\n" in untouched.stdout
    assert "says '1025', right is '1024'" in edited.stdout
