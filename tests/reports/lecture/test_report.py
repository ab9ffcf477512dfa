"""The audit as it is read: three files from one object, self-contained, with every link leading somewhere."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from calc.mathematics.initialization import Initial, ModuleVariance
from calc.mathematics.initialization.state import DISTINCT_ROWS, VARIES, WIDE
from calc.pipeline.check import Report
from calc.pipeline.verdict import Verdict
from calc.symbolic.expression import Number, Quotient
from calc.symbolic.parser import parse
from calc.symbolic.worked import WorkedCalculation
from reports import cli
from reports.lecture import writing
from reports.lecture.audit import audit
from reports.lecture.disputes import DISPUTES
from reports.lecture.lab import Lab
from reports.lecture.repairs import run_errors
from reports.lecture.system import LectureSystem, SystemAnswer, SystemResult, SystemVerdict, from_run
from reports.lecture.systems import system
from reports.lecture.systems.learning import _propagated
from reports.lecture.systems.models import _off
from reports.lecture.systems.scale import _once
from reports.page.inputs import Inputs
from reports.page.lecture import LecturePage
from reports.writers import html, markdown
from tests.reports.writers.test_html import Reader

NAMES = ("q1-144days", "8h100-week", "8h100-two-weeks", "fp16-max", "bf16-1001", "mfu-0.5-good", "gpt4-2e25")
GALLERY = Path(__file__).resolve().parents[3] / "reports" / "gallery"


WEEKS = tuple(dispute for dispute in DISPUTES if "8h100-week" in dispute.claims)


@pytest.fixture(scope="module")
def page() -> LecturePage:
    """A page of a few claims, the contradictions among them, and systems that need no model."""
    lab = Lab()
    systems: list[tuple[LectureSystem, SystemResult]] = [(system(n), system(n).work(lab)) for n in (3, 7, 19)]
    with mock.patch("reports.lecture.audit.DISPUTES", WEEKS):
        return writing.build(audit(lab, NAMES), tuple(systems), Inputs(kind="lecture", date="demand"), run_errors())


def test_the_page_in_html_is_self_contained(page: LecturePage) -> None:
    """No script, no request, balanced elements, and each link of the page leads to an id that there is."""
    text = html.write(page, writing.LOOK)
    read = Reader(text)
    ids = [a["id"] for _, a in read.elements if "id" in a]

    assert not read.all("script", "img", "link", "iframe")
    assert len(ids) == len(set(ids))
    assert [] == [a["href"] for a in read.all("a") if (a["href"] or "").startswith("#") and (a["href"] or "")[1:] not in ids]
    assert "Content-Security-Policy" in text


def test_every_claim_stands_with_its_verdict_in_both(page: LecturePage) -> None:
    """Id, restatement, verdict and reason."""
    written, marked = html.write(page, writing.LOOK), markdown.write(page, writing.LOOK)

    for name, verdict in (("q1-144days", "holds after rounding"), ("bf16-1001", "wrong"), ("gpt4-2e25", "cannot be checked")):
        assert re.search(rf'id="claim-{name}".*?{verdict}', written, re.DOTALL), name
        assert re.search(rf"claim-{name}.*?{verdict}", marked), name


def test_calculations_show_their_numbers(page: LecturePage) -> None:
    """GPT-3: 6 · 174,600,000,000 · 300,000,000,000 = 3.1428 · 10²³ FLOP."""
    marked = markdown.write(page, writing.LOOK)

    assert r"6 \cdot 174{,}600{,}000{,}000 \cdot 300{,}000{,}000{,}000" in marked
    assert "= **3.1428 · 10²³ FLOP**".replace(" ", "\u00a0").replace("=\u00a0", "= ") in marked


def test_a_year_is_no_quantity_and_a_unit_stands_behind_its_number() -> None:
    """2020 has no groups of digits; 1e25 FLOP come before the words that they are in force."""
    names = ("tf32-since", "bf16-2018", "fp8-2022", "mp-2017", "int4-train", "opt-adam-2014", "eu-004", "gpt4-2e25")
    actual = audit(Lab(), names)
    values = {c.claim.id: writing.shown(c.finding.value, c.finding.unit) for c in actual.claims}

    years = ["2020", "2016", "2022", "2017", "2023", "2014"]
    assert {**dict(zip(names, years, strict=False)), "eu-004": "1e25 FLOP, in force", "gpt4-2e25": "2e25 FLOP, unpublished"} == values
    assert "2,020" == writing.shown(2020)


def test_no_two_checks_of_a_table_have_one_name() -> None:
    """The same model at the same sizes is told apart by its optimizer and by its precision."""
    verdict = Verdict("memory.peak", 1, 1, "real run", "exact", 0, "")
    reports = [
        Report("two-layer", {"B": 3}, {"optimizer": optimizer, "precision": precision}, (verdict,), {})
        for optimizer, precision in (("sgd", "fp32"), ("adamw", "fp32"), ("adamw", "bf16"))
    ]
    names = [check.quantity for report in reports for check in from_run(report, "memory.peak")]

    assert [f"two-layer, {step}, at B=3: memory.peak" for step in ("sgd in fp32", "adamw in fp32", "adamw in bf16")] == names


def test_a_check_names_the_difference_that_is_expected() -> None:
    """Recomputation, which the flop counter does not see."""
    verdict = Verdict("flops.backward.matmul", 18_149_376, 18_001_920, "counter", "in parts", expected=147_456)
    (check,) = from_run(
        Report("llama3-70b", {"B": 2}, {"optimizer": "adamw", "precision": "fp32"}, (verdict,), {}), "flops.backward.matmul"
    )

    assert "measured in parts, equal but for recomputation" == writing._check(check).badge.words


def test_a_long_fraction_in_a_formula_is_rounded() -> None:
    """A short one is written in full."""
    assert Number(23_623_236) == writing._number_leaf(Fraction(23_623_236 * 10**12 + 1, 10**12))
    assert Quotient(Number(1), Number(3)) == writing._number_leaf(Fraction(1, 3))


def test_a_rule_s_error_has_one_direction_and_no_zero_percent() -> None:
    """12.6 % below; where the percentage rounds to 0, the bytes."""
    assert "12.6 % below the exact 1,000" == _off(874, 1000, "byte")
    assert "592 bytes below the exact 1,991,037,520" == _off(1_991_036_928, 1_991_037_520, "byte")
    assert "equal to the exact 5" == _off(5, 5, "FLOP")


def test_a_calculation_that_two_precisions_share_is_printed_once() -> None:
    """Named after both."""
    one, other = WorkedCalculation("largest-model", (), ()), WorkedCalculation("largest-model", (), (), ("bf16",))
    assert ["largest-model, fp32 and bf16-master"] == [c.name for c in _once({"fp32": one, "bf16-master": one})]
    assert ["largest-model, fp32", "largest-model, bf16"] == [c.name for c in _once({"fp32": one, "bf16": other})]


def test_a_moment_within_tolerance_stands_beside_the_allowance_that_it_is_within() -> None:
    """2 is 4 % below 2.09 and allowed 5 %, as it rests on ε (1 %), on rows apart (1 %) and on many features (3 %)."""
    rests = (VARIES, DISTINCT_ROWS, WIDE)
    part = ModuleVariance("norm", 2.0, 0.0, parse("2"), None, "", rests)
    actual = Initial("mlp", {}, (), (part,))
    samples = {"norm": SimpleNamespace(second=2.1, error=0.01 / 3.29, calls=1)}
    rows: list[SystemAnswer] = []
    checks: list[SystemVerdict] = []
    with mock.patch("reports.lecture.systems.learning.moments", return_value=(actual, samples)):
        _propagated("mlp", {}, rows, checks)

    assert [("within", f"2.09 to 2.11, 99.9 %, and 5 % beyond: {'; '.join(rests)}")] == [(c.verdict, c.because) for c in checks]


def test_the_markdown_has_its_tables(page: LecturePage) -> None:
    """As a Markdown reader finds them, every row with as many cells as its header."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.write(page, writing.LOOK))
    rows: list[int] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append(0)
        elif token.type in ("th_open", "td_open"):
            rows[-1] += 1

    assert len([t for t in tokens if t.type == "table_open"]) >= 8
    assert set(rows) <= {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (8256, "parameters", "8,256 parameters"),
        (63 * 10**23, "FLOP", "6.3 · 10²⁴ FLOP"),
        (0.0078125, "", "0.0078125"),
        (1.1754943508222875e-38, "", "1.175494 · 10⁻³⁸"),
        (-14, "", "−14"),
        (0.0, "1", "0"),
        ("a copy", "", "a copy"),
        (1, "bytes", "1 byte"),
        (2, "byte", "2 bytes"),
        (16, "element", "16 elements"),
        (1, "devices", "1 device"),
        (Fraction(1), "sequences", "1 sequence"),
        (1.5, "tokens/s", "1.5 tokens/s"),
    ],
)
def test_numbers_are_written_as_they_are_read(value: float | str | Fraction, unit: str, text: str) -> None:
    """In groups of three, by their power of ten where they are large or small."""
    assert text == writing.shown(value, unit).replace("\u00a0", " ")


def test_the_gallery_says_the_same_in_all_three() -> None:
    """Every claim of the JSON stands in the Markdown and in the HTML, with its verdict."""
    document = json.loads((GALLERY / "lecture.json").read_text(encoding="utf-8"))
    marked, written = ((GALLERY / f"lecture.{kind}").read_text(encoding="utf-8") for kind in ("md", "html"))
    in_html = {
        m[1]: m[2] for m in re.finditer(r'<tr id="claim-([^"]+)">.*?<span class="badge [a-z]+">[^<a-z]* ([a-z ]+)<', written, re.DOTALL)
    }

    assert {claim["id"]: claim["verdict"] for claim in document["claims"]} == in_html
    assert [] == [c["id"] for c in document["claims"] if not re.search(rf'claim-{re.escape(c["id"])}"></a>.*{c["verdict"]}', marked)]


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    """Before minutes of work, in one line, with status 2."""
    (tmp_path / "taken").write_text("x", encoding="utf-8")
    done = CliRunner().invoke(cli.napkin, ["lecture", "-o", str(tmp_path / "taken")])

    assert done.exit_code == 2
    assert done.stdout == ""
    assert "cannot write a report to" in done.stderr
