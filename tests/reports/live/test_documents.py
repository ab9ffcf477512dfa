"""Live documents: every marked number is checked, to the precision that it is written with, by code that runs none of the document's."""

from __future__ import annotations

import json
import os
import time
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from calc.errors import BadInputError
from reports import cli
from reports.jobs import job
from reports.live import units
from reports.live.document import read
from reports.live.engine import Engine, NamedValues, Scope
from reports.live.language import LanguageError, UnitValue, evaluate
from reports.live.verify_documents import fixed, judge, unmarked

STATE = UnitValue(Fraction(995_519_056), units.BYTE)  # 0.93 GiB, 1.00 GB
SCOPE = Scope(
    {"g": NamedValues("g", {"parameters": UnitValue(Fraction(124_439_808)), "optimizer_state.bytes": STATE})},
    {"L": UnitValue(Fraction(12)), "days": UnitValue(Fraction("143.92659") * 86400, units.SECOND), "x": UnitValue(Fraction(1, 3))},
)


def message(text: str) -> str:
    """What is wrong with the claim of one line; empty where it holds."""
    (finding,) = judge(read(text), SCOPE)
    assert finding.holds == (not finding.message)
    return finding.message


@pytest.mark.parametrize(
    "text",
    [
        "**124,439,808**<!--= g.parameters --> parameters",
        "124439808 parameters<!--= g.parameters -->",
        "about 124 M<!--= g.parameters -->",
        "| 124.4 million<!--= g.parameters --> |",
        "1.24e8<!--= g.parameters -->",
        "1.24 × 10^8<!--= g.parameters -->",
        "1.24·10⁸<!--= g.parameters -->",
        "0.93 GiB<!--= g.optimizer_state.bytes -->",
        "**0.93** GiB<!--= g.optimizer_state.bytes -->",
        "1.00 GB<!--= g.optimizer_state.bytes -->",
        "995,519,056 bytes<!--= g.optimizer_state.bytes -->",
        "under < 2 GiB<!--= g.optimizer_state.bytes -->",
        "at least ≥ 995 MB<!--= g.optimizer_state.bytes -->",
        "≈ 950 MiB<!--= g.optimizer_state.bytes -->",
        "143.93 days<!--= days -->",
        "0.33<!--= x -->",
        "33 %<!--= x -->",
        "`12`<!--= L --> layers",
        "12x<!--= L --> as much",
        "12 ×<!--= L -->",
        r"$1.24\times10^8$<!--= g.parameters -->",
        r"$1.24 \cdot 10^{8}$ parameters<!--= g.parameters -->",
        r"$\approx 950$ MiB<!--= g.optimizer_state.bytes -->",
        r"$\le 13$<!--= L -->",
        r"$$1.24\times10^8$$<!--= g.parameters -->",
        r"$`1.24\times10^8`$<!--= g.parameters -->",
        "$124{,}439{,}808$<!--= g.parameters -->",
        r"$996\,\mathrm{MB}$<!--= g.optimizer_state.bytes -->",
        r"$`996\text{ MB}`$<!--= g.optimizer_state.bytes -->",
        r"$12\times$<!--= L --> as much",
        r"$50\%$<!--= 1/2 -->",
        "12 times<!--= L --> as much",
        "<td>12<!--= L --></td>",
        "> 12<!--= L --> layers, quoted",
        "11 -> 12<!--= L -->",
    ],
)
def test_what_is_true_to_its_written_precision_holds(text: str) -> None:
    """Half a unit of the last place; signs say what they say; ≈ is within 5 %."""
    assert message(text) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("124,439,809<!--= g.parameters -->", "g.parameters = 124,439,808, document says 124,439,809 (+8e-07 %)"),
        ("125 M<!--= g.parameters -->", "g.parameters = 124 M, exactly 124,439,808, document says 125 M (+0.45 %)"),
        (
            "0.93 GB<!--= g.optimizer_state.bytes -->",
            "g.optimizer_state.bytes = 1.00 GB, exactly 995,519,056 bytes, document says 0.93 GB (-6.6 %): the number is"
            " correct in GiB; write GiB",
        ),
        (
            "< 900 MB<!--= g.optimizer_state.bytes -->",
            "g.optimizer_state.bytes = 995.519 MB, exactly 995,519,056 bytes, document says < 900 MB",
        ),
        ("is > 14.5<!--= L + 1/3 -->", "L + 1/3 = 12.3333, document says > 14.5"),
        ("7 GB<!--= (7 TFLOP) -->", "(7 TFLOP) = 7 TFLOP, document says 7 GB: wrong unit GB: expected FLOP"),
        ("≈ 13<!--= L -->", "L = 12, document says ≈ 13 (+8.3 %)"),
        ("12 GB<!--= L -->", "L = 12, document says 12 GB: wrong unit GB: expected a bare number"),
        (
            "995,519,056<!--= g.optimizer_state.bytes -->",
            "g.optimizer_state.bytes = 995.519 MB, document says 995,519,056: the number has no unit: write one, such as MB",
        ),
        ("12 furlongs<!--= L -->", 'L = 12, document says 12 furlongs: unknown unit "furlongs": expected a bare number'),
        ("996 mb<!--= g.optimizer_state.bytes -->",
         'g.optimizer_state.bytes = 995.519 MB, document says 996 mb: unknown unit "mb": did you mean MB?'),
        ("7 TFLOPS<!--= (7 TFLOP) -->", '(7 TFLOP) = 7 TFLOP, document says 7 TFLOPS: unknown unit "TFLOPS": did you mean TFLOPs?'),
        ("808<!--= g.parameters -->", "g.parameters = 124,439,808, document says 808 (-100 %)"),
        ("1,000<!--= L -->", "L = 12, document says 1,000 (+8,233 %)"),
        ("twelve<!--= L -->", "L = 12, but no number precedes the comment: write one"),
    ],
)
def test_what_is_off_is_said_with_the_right_value(text: str, said: str) -> None:
    """And where only the unit is wrong, that."""
    assert message(text) == said


@pytest.mark.parametrize("before", ["13<!--= L + 1 -->", "13 ->", "13 =>", "<td>", "<!-- note -->", ">"])
def test_what_ends_with_an_angle_bracket_is_no_inequality(before: str) -> None:
    """A comment, an arrow, a tag or the mark of a quotation: 11 is wrong, although 12 > 11."""
    finding = judge(read(f"{before} 11<!--= L -->"), SCOPE)[-1]

    assert finding.message == "L = 12, document says 11 (-8.3 %)"


def test_half_a_unit_of_the_last_place_is_the_border() -> None:
    """124 M holds for [123.5, 124.5] M."""
    for parameters, holds in ((123_500_000, True), (124_500_000, True), (123_499_999, False), (124_500_001, False)):
        scope = Scope({}, {"n": UnitValue(Fraction(parameters))})

        assert judge(read("124 M<!--= n -->"), scope)[0].holds is holds


@given(st.integers(1, 10**15), st.integers(0, 14), st.integers(-9, 9).filter(bool))
def test_a_changed_digit_of_an_exact_number_never_holds(number: int, place: int, by: int) -> None:
    """Whatever the number and the digit."""
    digits = str(number)
    at = place % len(digits)
    changed = digits[:at] + str((int(digits[at]) + by) % 10) + digits[at + 1 :]
    (finding,) = judge(read(f"{changed}<!--= n -->"), Scope({}, {"n": UnitValue(Fraction(number))}))

    assert finding.holds is (changed == digits)


# -- the language --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("2 + 3*4 - 6/4", Fraction(25, 2), units.NUMBER),
        ("-2**2", Fraction(-4), units.NUMBER),
        ("2**-2", Fraction(1, 4), units.NUMBER),
        ("(1 + 2)*3", Fraction(9), units.NUMBER),
        ("max(3, 7, 5) - min(2, 1)", Fraction(6), units.NUMBER),
        ("80 GB + 1GiB", Fraction(80 * 10**9 + 2**30), units.BYTE),
        ("3.35 TB/s * 2 s", Fraction(6_700_000_000_000), units.BYTE),
        ("6e3 FLOP / 2 TFLOP/s", Fraction(3, 10**9), units.SECOND),
        ("50% * 4", Fraction(2), units.NUMBER),
        ("1_000 * 0.1", Fraction(100), units.NUMBER),
    ],
)
def test_expressions_are_exact_and_keep_units(text: str, value: Fraction, unit: units.Kind) -> None:
    """0.1 is a tenth."""
    assert evaluate(text, SCOPE.lookup) == UnitValue(value, unit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a number or a name is missing at the end"),
        ("1 +", "a number or a name is missing at the end"),
        ("(1", "missing closing parenthesis"),
        ("1 2", "'2' after a complete expression: is an operator missing?"),
        ("1 GB + 1 s", "cannot add byte and s"),
        ("1/0", "division by 0"),
        ("0**-1", "division by 0"),
        ("2**0.5", "an exponent must be an integer, at most 64"),
        ("2**65", "an exponent must be an integer, at most 64"),
        ("(2**64)**64*(2**64)**64", "the number is too large"),
        ("9**9**9", "an exponent must be an integer, at most 64"),
        ("1e999", "a number too large: exponents go up to 60"),
        ("abs(1)", "unknown function 'abs': there are max and min"),
        ("__import__('os')", "'_' is not allowed in an expression: use numbers, names, + - * / **, max and min"),
        ("L.__class__", "L is a number: it has no '__class__'"),
        ("g", "g is not a number: name one of its numbers, as g.parameters"),
        ("g.nothing", "g has no 'nothing': it has parameters, optimizer_state.bytes"),
        ("unknown", "'unknown' is not defined above (defined: L, days, x, g.…)"),
        ("(" * 60 + "1" + ")" * 60, "parentheses nested more than 50 deep"),
        ("1" * 501, "an expression of 501 characters, at most 500 are allowed: use names"),
    ],
)
def test_an_expression_that_says_nothing_is_refused(text: str, said: str) -> None:
    """No attribute, no call, no large number gets through."""
    with pytest.raises(LanguageError) as caught:
        evaluate(text, SCOPE.lookup)

    assert str(caught.value) == said


# -- documents -----------------------------------------------------------------------------------------------------------------------


def test_quoted_claims_are_text() -> None:
    """In fences, and in inline code."""
    text = "```\n13<!--= L -->\n```\n`13<!--= L -->`\n~~~text\n13<!--= L -->\n~~~\n12<!--= L -->\n"

    assert [claim.line for claim in read(text).claims] == [8]


def test_a_claim_that_does_not_end_is_unread_and_stops_no_other() -> None:
    """Else it would be a comment that nobody checks."""
    text = "\n12 <!--= L\n-->\n12 <!--= L -->"
    why = "line 2, column 4: the claim begins with <!--= but its line has no -->: close it"

    assert [(2, why), (4, "")] == [(judged.claim.line, judged.unread) for judged in judge(read(text), SCOPE)]
    assert list(unmarked(read(text))) == [(2, 1, "12")]


def test_a_block_that_does_not_end_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^line 1: the napkin block that begins here does not end: close it with ```$"):
        read("```napkin\nL = 12\n")


def test_a_block_may_be_a_comment_that_no_reader_sees() -> None:
    """Its lines are statements at their places; a fence or a claim in it, and such a comment in a fence, are nothing of their own."""
    hidden = "<!--napkin\nL = 12\n  two = 2*L  # 7 <!--= L -->\n-->\n"
    document = read(f"{hidden}24<!--= two -->\n<!-- napkin -->\n13\n```\n{hidden}```\n")

    assert [(s.text, s.line, s.column) for s in document.statements] == [("L = 12", 2, 1), ("two = 2*L", 3, 3)]
    assert [(c.expr, c.line) for c in document.claims] == [("two", 5)]
    assert list(unmarked(document)) == [(7, 1, "13")]


def test_a_hidden_block_is_hidden_in_markdown() -> None:
    """A Markdown reader takes it for a comment, whole."""
    shown = MarkdownIt("commonmark").parse("before\n\n<!--napkin\nL = 12\n\nT = 3\n-->\n\nafter\n")

    assert [token.type for token in shown if token.level == 0] == [
        "paragraph_open", "paragraph_close", "html_block", "paragraph_open", "paragraph_close",
    ]  # fmt: skip


@pytest.mark.parametrize("begin", ["<!--napkin", "<!-- napkin", "  <!-- napkin  "])
def test_a_hidden_block_that_does_not_end_is_refused(begin: str) -> None:
    with pytest.raises(BadInputError, match=r"^line 1: the napkin block that begins here does not end: close it with -->$"):
        read(f"{begin}\nL = 12\n```\n```\n")


def test_fixing_keeps_unit_places_and_commas_and_leaves_units_and_inequalities_alone() -> None:
    """The digits only."""
    text = (
        "125 M<!--= g.parameters -->, **124,439,809**<!--= g.parameters -->, 0.93 GB<!--= g.optimizer_state.bytes -->,"
        " < 1 MB<!--= g.optimizer_state.bytes -->, 1.25e8<!--= g.parameters -->\n"
    )
    document = read(text)

    assert fixed(document, judge(document, SCOPE)) == text.replace("125 M", "124 M").replace("124,439,809", "124,439,808").replace(
        "1.25e8", "1.24e8"
    )


def test_fixing_writes_thousands_as_latex_does() -> None:
    """With ``{,}``, where the number had it."""
    document = read("$124{,}439{,}809$<!--= g.parameters -->")

    assert fixed(document, judge(document, SCOPE)) == "$124{,}439{,}808$<!--= g.parameters -->"


def test_fixed_documents_hold() -> None:
    """What is rewritten is checked like anything else."""
    document = read("1 M<!--= g.parameters -->, 9<!--= L -->, 5.123 days<!--= days -->, ≈ 3<!--= x --> and 7 %<!--= x -->")
    again = read(fixed(document, judge(document, SCOPE)))

    assert all(finding.holds for finding in judge(again, SCOPE))


def test_numbers_without_a_claim_are_found() -> None:
    """Not those of code, links, headings or words."""
    document = read("# 2 Plan\n1. first: 12<!--= L --> of 13 layers, `14`, [15](16), GPT-2, 17.5 GB\n```\n18\n```\n")

    assert list(unmarked(document)) == [(2, 28, "13"), (2, 62, "17.5")]
    formulas = read(r"$1.2 \times 10^{1}$<!--= L --> and $2^{10}$ and $1.2\times10^1$<!--= L -->")
    assert list(unmarked(formulas)) == [(1, 37, "2"), (1, 40, "10")]


# -- the command ---------------------------------------------------------------------------------------------------------------------

DOCUMENT = """# Plan

```napkin
model mlp as m B=5 d=11 f=13 K=3
device h100-sxm as h
L = 12  # layers
two = 2*m.parameters
```
It has 198<!--= m.parameters --> parameters, twice that is 396<!--= two -->, in B = 5<!--= m.B -->,
at 989.5 TFLOP/s<!--= h.bf16 -->, and 13<!--= L --> layers.
"""


def run(tmp_path: Path, text: str, *words: str) -> Result:
    (tmp_path / "plan.md").write_text(text, encoding="utf-8", newline="")
    return CliRunner().invoke(cli.napkin, ["verify", str(tmp_path / "plan.md"), *words])


def test_a_document_is_checked_against_derivations_and_devices(tmp_path: Path) -> None:
    """d*f + f + f*K + K = 11*13 + 13 + 13*3 + 3 = 198."""
    actual, file = run(tmp_path, DOCUMENT), tmp_path / "plan.md"

    assert actual.exit_code == 1
    assert actual.stdout == f"{file}:10:39: L = 12, document says 13 (+8.3 %)\n{file}: 4 of 5 claims hold\n"
    assert run(tmp_path, DOCUMENT.replace("13<!--= L", "12<!--= L")).exit_code == 0


@pytest.mark.parametrize("depth", ["10001", "1e999999999"])
def test_a_model_of_a_document_has_no_more_layers_than_the_limit(depth: str, tmp_path: Path) -> None:
    """Some steps are traced layer by layer, and a document is somebody else's."""
    for statement in (f"model gpt2 L={depth} as g", f"ask sharding model=llama3-8b L={depth} data=8 zero=3 as g"):
        actual = run(tmp_path, f"```napkin\n{statement}\n```\n1<!--= g.L -->\n")
        said = f"L = {depth}: a model in a document has at most 10,000 layers: give fewer"
        assert (actual.exit_code, actual.stderr) == (2, f"napkin: {tmp_path / 'plan.md'}: line 2: {said}\n")


def test_json_says_every_claim(tmp_path: Path) -> None:
    """With what it says, what it is, and why it fails."""
    (file,) = json.loads(run(tmp_path, DOCUMENT, "--format", "json").stdout)["files"]

    assert (file["kind"], file["verdict"], [c["holds"] for c in file["claims"]]) == ("document", "fails", [True, True, True, True, False])
    assert file["claims"][4] == {
        "line": 10,
        "column": 39,
        "expr": "L",
        "says": "13",
        "is": "12",
        "holds": False,
        "because": "L = 12, document says 13 (+8.3 %)",
    }


def test_fix_writes_and_diff_does_not(tmp_path: Path) -> None:
    """And a fixed document passes."""
    assert "-at 989.5 TFLOP/s<!--= h.bf16 -->, and 13<!--= L --> layers." in run(tmp_path, DOCUMENT, "--diff").stdout
    assert (tmp_path / "plan.md").read_text() == DOCUMENT
    assert run(tmp_path, DOCUMENT, "--fix").exit_code == 0
    assert (tmp_path / "plan.md").read_text() == DOCUMENT.replace("13<!--= L", "12<!--= L")


def test_a_claim_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """It has a line of its own, with what was meant; what can be repaired is, and what remains is said."""
    text = DOCUMENT.replace("<!--= m.parameters -->", "<!--= m.paramters -->")
    actual, file = run(tmp_path, text, "--fix"), tmp_path / "plan.md"

    assert (actual.exit_code, actual.stdout) == (
        1,
        f"{file}:9:8: not verified: mlp has no quantity 'paramters': did you mean 'parameters'? see napkin list quantities; repair"
        " it by hand\n"
        f"{file}:10:39: L = 12, document says 13 (+8.3 %); rewritten as 12\n"
        f"{file}: 3 of 5 claims hold, 1 rewritten, 1 left to repair by hand\n",
    )
    assert file.read_text() == text.replace("13<!--= L", "12<!--= L")


@pytest.mark.parametrize(
    ("claim", "near"),
    [("m.peak", "'memory.peak'"), ("m.flops.step", "'flops.step.total'"), ("twoo", "'two'"), ("h.bandwith", "'bandwidth'")],
)
def test_a_name_that_was_nearly_right_is_answered_with_the_right_one(claim: str, near: str, tmp_path: Path) -> None:
    """Of quantities, also by one part of their name."""
    actual = run(tmp_path, DOCUMENT.replace("<!--= two -->", f"<!--= {claim} -->"))

    assert f"did you mean {near}?" in actual.stdout


def test_a_statement_that_fails_stops_only_what_depends_on_it(tmp_path: Path) -> None:
    """Statements and claims that depend on it say so, by the line of the first failure; the others are run and judged."""
    block = "```napkin\nL = 12\nmodel gpt2 as g B=0\nx = 2*g.parameters\nL = 13\nunknown\n```\n"
    text = f"{block}12<!--= L -->, 7<!--= x -->, 8<!--= g.L --> and 3<!--= y -->.\n"
    actual, file = run(tmp_path, text), tmp_path / "plan.md"

    assert (1, [
        f"{file}:3:1: statement not run: B = 0 is not positive: sizes are integers from 1 to 2**63 - 1",
        f"{file}:4:7: statement not run: depends on line 3, which failed",
        f"{file}:5:1: statement not run: L is already defined: choose another name",
        f"{file}:6:1: statement not run: unknown statement 'unknown': write model … as NAME, ask … as NAME, device … as NAME, or NAME = …",
        f"{file}:8:16: not verified: depends on line 3, which failed",
        f"{file}:8:30: not verified: depends on line 3, which failed",
        f"{file}:8:49: not verified: 'y' is not defined above (defined: L)",
        f"{file}: 1 of 4 claims hold",
    ]) == (actual.exit_code, actual.stdout.splitlines())  # fmt: skip


def test_a_failed_statement_fails_a_document_whose_claims_hold(tmp_path: Path) -> None:
    """Also in JSON and as an annotation on GitHub."""
    text, file = "```napkin\nL = 1 +\n```\n3<!--= 3 -->\n", tmp_path / "plan.md"
    because = "a number or a name is missing at the end"
    data, annotated = run(tmp_path, text, "--format", "json"), run(tmp_path, text, "--format", "github")

    assert (1, 1) == (data.exit_code, annotated.exit_code)
    assert [{"line": 2, "column": 8, "because": because}] == json.loads(data.stdout)["files"][0]["failed_statements"]
    assert f"::error file={file},line=2,col=8::statement not run: {because}\n" == annotated.stdout


def test_too_few_claims_fail(tmp_path: Path) -> None:
    """A document whose comments were lost would pass otherwise."""
    actual = run(tmp_path, "Nothing but 3<!--= 3 --> here.\n", "--require-claims", "2")

    assert (actual.exit_code, actual.stdout.splitlines()[0]) == (
        1,
        f"{tmp_path / 'plan.md'}: 1 claims where at least 2 are required",
    )


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("L = 1 +", "line 2, column 8: a number or a name is missing at the end"),
        ("L = 1\nL = 2", "line 3: L is already defined: choose another name"),
        ("model gpt2", "line 2: 'model gpt2' gives no name: write model gpt2 … as NAME"),
        ("import os as x", "line 2: unknown statement 'import': write model … as NAME, ask … as NAME, device … as NAME, or NAME = …"),
        ("model nothing as g", None),
        ("model gpt2 as g B=0", None),
        (
            "model ../evil.py:spec as g",
            "line 2: ../evil.py:spec is code: it runs only if you name the file, as napkin verify … --source ../evil.py",
        ),
        ("device a1000000 as h", None),
        ("model gpt2 as g 'B=8", 'line 2: cannot read "model gpt2 as g \'B=8": No closing quotation'),
        ("model gpt2 as 1g", "line 2: '1g' is not a name: use letters, digits and underscores"),
    ],
)
def test_a_malformed_document_is_one_line_and_exit_2(statement: str, said: str | None, tmp_path: Path) -> None:
    """Naming the place, cause and way out."""
    actual = run(tmp_path, f"```napkin\n{statement}\n```\n")

    assert actual.exit_code == 2
    assert actual.stdout == ""
    last = actual.stderr.splitlines()[-1]
    assert last.startswith(f"napkin: {tmp_path / 'plan.md'}: line ")
    if said is not None:
        assert last == f"napkin: {tmp_path / 'plan.md'}: {said}"


def test_code_of_a_document_is_run_only_from_a_file_that_is_named(tmp_path: Path) -> None:
    """The named file is loaded wherever it lies, and a file beside the document is not."""
    spec = "from calc import Spec\nimport torch\nraise RuntimeError('was run')\n"
    (tmp_path / "mine.py").write_text(spec)
    refused = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n")
    run_ = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n", "--source", str(tmp_path / "mine.py"))

    assert "was run" not in refused.stderr
    assert "was run" in run_.stderr
    assert (refused.exit_code, run_.exit_code) == (2, 2)


def test_of_files_of_one_name_the_one_beside_the_document_is_meant(tmp_path: Path) -> None:
    """a/mine.py and b/mine.py are both named, and the document says b; where it says neither of them, nothing is run."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"raise RuntimeError('{folder} was run')\n")
    named = [word for folder in ("a", "b") for word in ("--source", str(tmp_path / folder / "mine.py"))]

    meant = run(tmp_path, "```napkin\nmodel b/mine.py:spec as m\n```\n", *named)
    either = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n", *named)

    assert "b was run" in meant.stderr
    assert "was run" not in either.stderr
    assert either.stderr.endswith("mine.py:spec matches 2 files: name only one mine.py with --source\n")


def test_code_is_not_run_for_a_question_either(tmp_path: Path) -> None:
    """Of a model that a question names."""
    (tmp_path / "mine.py").write_text("raise RuntimeError('was run')\n")
    actual = run(tmp_path, "```napkin\nask training-time model=mine.py:spec tokens=1e9 gpu=h100-sxm gpus=8 mfu=0.5 as run\n```\n")

    assert actual.exit_code == 2
    assert "mine.py:spec is code: it runs only if you name the file" in actual.stderr


def test_an_answer_has_its_letters_and_keys_with_units(tmp_path: Path) -> None:
    """6·70e9·15e12 FLOP, in days, and the devices."""
    block = "```napkin\nask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5 as run\n```\n"
    text = "143.93 days<!--= run.answer -->, 143.93 days<!--= run.t -->, 6.3e24 FLOP<!--= run.C -->, 1,024<!--= run.gpus -->\n"

    assert run(tmp_path, block + text).exit_code == 0


def test_an_engine_without_statements_knows_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^'x' is not defined above \(defined: nothing\)$"):
        Engine(tmp_path).run([]).lookup("x")


# -- what hides a document, or keeps a checker busy ----------------------------------------------------------------------------------------


def refused(tmp_path: Path, text: str, *words: str) -> str:
    """The one line that a document is refused with, without the name of its file."""
    actual = run(tmp_path, text, *words)
    start = f"napkin: {tmp_path / 'plan.md'}: "
    said = [line for line in actual.stderr.splitlines() if not line.endswith(" …")]

    assert (actual.exit_code, actual.stdout, len(said)) == (2, "", 1), actual.output
    assert said[0].startswith(start)
    return said[0].removeprefix(start)


@pytest.mark.parametrize("text", ["", "# Plan\n\nIt takes 5 GB.\n", "```napkin\nL = 12\n```\nL is 13.\n", "`13<!--= 12 -->`\n"])
def test_a_document_without_claims_is_refused(text: str, tmp_path: Path) -> None:
    """0 of 0 claims would hold."""
    assert refused(tmp_path, text) == (
        "it has no claims, so nothing in it can be verified: put <!--= EXPRESSION --> after a number, or leave the file out"
    )


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_are_line_ends(end: str, tmp_path: Path) -> None:
    """Checked alike, and --fix keeps them."""
    (tmp_path / "plan.md").write_bytes(DOCUMENT.replace("\n", end).encode())
    actual = CliRunner().invoke(cli.napkin, ["verify", "--fix", str(tmp_path / "plan.md")])

    assert f"{tmp_path / 'plan.md'}:10:39: L = 12, document says 13 (+8.3 %); rewritten as 12\n" in actual.stdout
    assert (tmp_path / "plan.md").read_bytes() == DOCUMENT.replace("13<!--= L", "12<!--= L").replace("\n", end).encode()


def test_a_byte_order_mark_hides_no_block(tmp_path: Path) -> None:
    """The block is in the first line, behind the mark, which --fix keeps."""
    actual = run(tmp_path, "\ufeff```napkin\nL = 12\n```\n13<!--= L -->\n", "--fix")

    said = f"{tmp_path / 'plan.md'}:4:1: L = 12, document says 13 (+8.3 %); rewritten as 12"
    assert (actual.exit_code, actual.stdout.splitlines()[0]) == (0, said)
    assert (tmp_path / "plan.md").read_text(encoding="utf-8") == "\ufeff```napkin\nL = 12\n```\n12<!--= L -->\n"


@pytest.mark.parametrize("fence", ["```", "~~~~", "```python"])
def test_a_foreign_block_that_does_not_end_is_refused(fence: str, tmp_path: Path) -> None:
    """It would hide every claim after it."""
    close = fence.removesuffix("python")

    assert refused(tmp_path, f"12<!--= 12 -->\n{fence}\n13<!--= 12 -->\n") == (
        f"line 2: the code block that begins here does not end and hides the rest: close it with {close}"
    )


def test_a_fence_ends_and_begins_as_in_commonmark() -> None:
    """Nothing stands behind a closing fence, and tildes may have backquotes behind them."""
    document = read("```\n13<!--= 12 -->\n``` !\n14<!--= 12 -->\n```\n~~~ `x`\n15<!--= 12 -->\n~~~\n12<!--= 12 -->\n")

    assert [claim.line for claim in document.claims] == [9]


@pytest.mark.parametrize(
    ("line", "claims"), [("``1<!--= 1 -->`", 1), ("\\`1<!--= 1 -->`", 1), ("``1`<!--= 1 -->``", 0), ("`1` `<!--= 1 -->` 2<!--= 2 -->", 1)]
)
def test_only_what_a_reader_sees_as_code_is_quoted(line: str, claims: int) -> None:
    """Backquotes close with as many, and an escaped one opens nothing."""
    assert len(read(line).claims) == claims


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * 5_000_001, "the document has 5,000,001 characters, Napkin reads at most 5,000,000: split it"),
        ("\n" * 200_001, "the document has 200,001 lines, Napkin reads at most 200,000: split it"),
        ("x" * 1_000_001, "line 1 has 1,000,001 characters, Napkin reads at most 1,000,000: break it"),
        ("1<!--= 1 -->\n" * 5_001, "the document has 5,001 claims, Napkin reads at most 5,000: split it"),
        (
            "```napkin\n" + "".join(f"a{i} = 1\n" for i in range(2_001)) + "```\n",
            "the document has 2,001 statements, Napkin reads at most 2,000: split it",
        ),
        (f"```napkin\na = {'1' * 2_000}\n```\n", "line 2: a statement of 2,004 characters, at most 2,000 are allowed: use names"),
        (
            f"{'1' * 101}<!--= 1 -->\n",
            "line 1, column 102: a number of 101 characters or more, Napkin reads at most 100: write it as 1.5e30",
        ),
        (
            "5 × 10⁻<!--= 1 -->\n",
            "line 1, column 8: the exponent of 10⁻ is not a number of one to three digits: write it as 1.5e30",
        ),
        (
            "5e1000<!--= 1 -->\n",
            "line 1, column 7: the exponent of e1000 is not a number of one to three digits: write it as 1.5e30",
        ),
        (
            "```napkin\na0 = 1\n" + "".join(f"a{i} = a{i - 1} + 1/({2 * i + 1}**64)\n" for i in range(1, 999)) + "```\n1<!--= a998 -->\n",
            "line 26, column 13: the number is too large",
        ),
        (
            "```napkin\na0 = 1 s\n" + "".join(f"a{i} = a{i - 1}*a{i - 1}\n" for i in range(1, 100)) + "```\n1 s<!--= a99 -->\n",
            "line 9, column 9: a unit to a power above 99",
        ),
        ("1 s<!--= (1 s)**64 * (1 s)**64 -->\n", "line 1, column 22: a unit to a power above 99"),
        (
            f"240<!--= {'+'.join('1' * 240)} -->\n" * 500,
            "line 409, column 488: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it",
        ),
        (
            "```napkin\n" + "".join(f"model mlp as m{i} B={i}\n" for i in range(1, 500)) + "```\n1<!--= m1.B -->\n",
            "line 402: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_each_limit_has_its_message(text: str, said: str, tmp_path: Path) -> None:
    """One line, exit status 2."""
    assert refused(tmp_path, text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3e5<!--= (2**64)**62 -->", "(2**64)**62 = 3.06918e+1194, document says 3e5 (-100 %)"),
        ("3<!--= 1/(2**64)**62 s -->", None),
        ("3e5<!--= 1/(2**64)**62 -->", "1/(2**64)**62 = 3.2582e-1195, document says 3e5 (wrong by orders of magnitude)"),
        (
            "3 GB<!--= (2**64)**62 -->",
            "(2**64)**62 = 3.06918e+1194, document says 3 GB: wrong unit GB: expected a bare number",
        ),
        ("3<!--= 1 GB * (2**64)**62 -->", None),
    ],
)
def test_a_value_that_no_float_holds_is_shown(text: str, said: str | None, tmp_path: Path) -> None:
    """2^3968 = 10^(3968·0.30103) is some 10^1194; a claim that is off is a check that failed, whatever the value."""
    actual = run(tmp_path, text)

    assert actual.exit_code in (1, 2)
    assert isinstance(actual.exception, SystemExit)
    if said is not None:
        assert actual.stdout.splitlines()[0] == f"{tmp_path / 'plan.md'}:1:1: {said}"


SLOW = {
    "125 spaces before claims": f"{' ' * 125}3<!--= 3 -->\n" * 100,
    "spaces between number and claim": f"3{' ' * 150}<!--= 3 -->\n" * 100,
    "claims in one line": f"{' ' * 125}3<!--= 3 -->" * 4_000,
    "a run of backquotes": f"<!-- x --> {'`' * 400_000} 3<!--= 3 -->",
    "runs of all lengths": "<!-- x --> " + " ".join("`" * i for i in range(1, 1_000)) + " 3<!--= 3 -->",
    "openings": "<!--=" * 150_000,
    "openings before an end": "<!--=" * 150_000 + "-->",
    "a fence with spaces": f"```{' ' * 400_000}`\n3<!--= 3 -->",
    "comments that do not end": "3<!--= 3 -->\n" + "<!-- " * 150_000,
    "links that do not end": "3<!--= 3 -->\n" + "](" * 400_000,
    "digits of a range": "3<!--= 3 -->\n" + "1" * 400_000 + "-1",
    "commas": "3<!--= 3 -->\n" + "1," * 400_000,
    "signs of a heading": f"3<!--= 3 -->\n{'#' * 400_000}x\n{' ' * 400_000}x",
}


@pytest.mark.parametrize("name", SLOW)
def test_a_document_is_read_in_time_proportional_to_its_length(name: str, tmp_path: Path) -> None:
    """Each of these took from minutes to hours; half a megabyte takes half a second."""
    started = time.process_time()
    actual = run(tmp_path, SLOW[name], "--unmarked")

    assert actual.exit_code in (0, 1, 2)
    assert time.process_time() - started < 20


def test_a_document_reads_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    """By name, by a link or as a folder, for a model and for a question; the file may be named."""
    room = tmp_path / "room"
    room.mkdir()
    for name in ("config.json", "own.toml"):
        (tmp_path / name).write_text("{")
        (room / f"link-{name}").symlink_to(tmp_path / name)
    for path in ("../config.json", "..", str(tmp_path / "config.json"), "link-config.json"):
        model = f"```napkin\nmodel 'hf:{path}' as m\n```\n1<!--= m -->\n"
        question = f"```napkin\nask flops 'model=hf:{path}' tokens=1e9 as m\n```\n1<!--= m -->\n"
        named = refused(room, model, "--source", str(tmp_path / "config.json"))

        outside = f"line 2: {path} is outside the document's folder: name the file, as napkin verify … --source {path}"

        assert [refused(room, model), refused(room, question)] == [outside, outside]
        assert "config.json is not JSON" in named
    for path in ("../own.toml", "link-own.toml", "/dev/zero"):
        ask = f"ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.4 gpu=mine hardware={path} as m"

        assert refused(room, f"```napkin\n{ask}\n```\n1<!--= m -->\n") == (
            f"line 2: {path} is outside the document's folder: name the file, as napkin verify … --source {path}"
        )


def test_a_document_reads_regular_files_only(tmp_path: Path) -> None:
    """A named pipe would never end."""
    os.mkfifo(tmp_path / "pipe")
    ask = "ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.4 gpu=mine hardware=pipe as m"

    for statement in (ask, "model hf:pipe as m"):
        assert (
            refused(tmp_path, f"```napkin\n{statement}\n```\n1<!--= m -->\n") == "line 2: pipe is not a regular file: give the path of one"
        )


def test_files_of_a_document_lie_beside_it_wherever_it_is_checked_from(tmp_path: Path) -> None:
    """``hardware=`` is relative to the document, as a config is."""
    entry = '[mine]\nname = "m"\nvendor = "v"\narchitecture = "a"\nyear = 2026\nmemory = 80\nbandwidth = 9\nsource = "s"\n'
    (tmp_path / "own.toml").write_text(f'{entry}peak.bf16 = {{ dense = 1, engine = "tensor" }}\n')
    ask = "ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.5 gpu=mine hardware=own.toml as run"

    assert run(tmp_path, f"```napkin\n{ask}\n```\n1.5e6 s<!--= run.answer -->\n").exit_code == 0


def test_a_document_traces_twenty_models_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to a minute; those whose closed forms are stored take none."""
    monkeypatch.setattr(job, "derive", lambda *_: {})
    many = "".join(f"model mlp as m{i} optimizer=sgd precision=bf16 attention=math B={i}\n" for i in range(1, 30))

    assert refused(tmp_path, f"```napkin\n{many}```\n1<!--= 1 -->\n") == (
        "line 21: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it"
    )
