"""Live documents: every marked number is checked, to the precision that it is written with, by code that runs none of the document's."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from calc.errors import BadInputError
from reports.live import units
from reports.live.document import read
from reports.live.engine import NamedValues, Scope
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
        "about 124 M parameters<!--= g.parameters -->",
        "0.124B params<!--= g.parameters -->",
        "**124.4** million parameters<!--= g.parameters -->",
        r"$124.4$ million parameters<!--= g.parameters -->",
        "3.45 thousand hours<!--= days -->",
        "3.45 thousand GPU hours<!--= days -->",
        "3,454 GPU-hours<!--= days -->",
        "24 B<!--= L * 2 B -->",
        "24 FLOP<!--= L * 2 FLOP -->",
        "24 s<!--= L * 2 s -->",
        r"$996\ \text{MB}$<!--= g.optimizer_state.bytes -->",
        r"$996\;\mathrm{MB}$<!--= g.optimizer_state.bytes -->",
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
            "g.optimizer_state.bytes = 0.996 GB, exactly 995,519,056 bytes, document says 0.93 GB (-6.6 %): the number is"
            " correct in GiB; write GiB",
        ),
        (
            "< 900 MB<!--= g.optimizer_state.bytes -->",
            "g.optimizer_state.bytes = 995.519 MB, exactly 995,519,056 bytes, document says < 900 MB",
        ),
        ("is > 14.5<!--= L + 1/3 -->", "L + 1/3 = 12.3333, exactly 37/3, document says > 14.5"),
        ("7 GB<!--= (7 TFLOP) -->", "(7 TFLOP) = 7 TFLOP, document says 7 GB: wrong unit GB: expected FLOP"),
        ("≈ 13<!--= L -->", "L = 12, document says ≈ 13 (+8.3 %)"),
        ("12 GB<!--= L -->",
         "L = 12, document says 12 GB: wrong unit GB: expected a bare number; an amount in an expression has its unit, such as 2 B"),
        (
            "995,519,056<!--= g.optimizer_state.bytes -->",
            "g.optimizer_state.bytes = 995.519 MB, document says 995,519,056: the number has no unit: write one, such as MB",
        ),
        ("14 %<!--= (7 TFLOP)/50e12 -->",
         "(7 TFLOP)/50e12 = 0.14 FLOP, document says 14 %: wrong unit %: the expression is in FLOP; divide it by an amount in FLOP,"
         " with its unit"),
        ("12 furlongs<!--= L -->", 'L = 12, document says 12 furlongs: unknown unit "furlongs": expected a bare number'),
        ("996 mb<!--= g.optimizer_state.bytes -->",
         'g.optimizer_state.bytes = 995.519 MB, document says 996 mb: unknown unit "mb": did you mean MB?'),
        ("7 TFLOPS<!--= (7 TFLOP) -->", '(7 TFLOP) = 7 TFLOP, document says 7 TFLOPS: unknown unit "TFLOPS": did you mean TFLOPs?'),
        ("808<!--= g.parameters -->", "g.parameters = 124,439,808, document says 808 (-99.999 %)"),
        ("1,000<!--= L -->", "L = 12, document says 1,000 (+8,233 %)"),
        ("4<!--= 3/4 -->", "3/4 = 0.75, document says 4 (+433 %)"),
        ("3/4<!--= 1/2 -->", "1/2 = 0.5, document says 3/4 (+50 %)"),
        ("0.04 days<!--= 45 min -->", "45 min = 0.0312 days, exactly 1/32 days, document says 0.04 days (+28 %)"),
        ("0.5 GB<!--= 1 GB/3 -->", "1 GB/3 = 0.333 GB, exactly 1/3 GB, document says 0.5 GB (+50 %)"),
        ("12 %<!--= L -->", "L = 1,200 %, document says 12 % (-99 %): the number is correct without %: write 12"),
        ("124<!--= g.parameters -->",
         "g.parameters = 124,439,808, document says 124 (-99.9999 %): the number is correct in M; write M"),
        ("5 bn<!--= 5e9 -->", '5e9 = 5,000,000,000, document says 5 bn: unknown unit "bn": did you mean billion?'),
        ("5 gigabytes<!--= 5 GB -->", '5 GB = 5 GB, document says 5 gigabytes: unknown unit "gigabytes": did you mean GB?'),
        ("5 teraflops<!--= (5 TFLOP) -->",
         '(5 TFLOP) = 5 TFLOP, document says 5 teraflops: unknown unit "teraflops": did you mean TFLOP?'),
        ("5 teraflops<!--= 5 TFLOP/s -->",
         '5 TFLOP/s = 5 TFLOP/s, document says 5 teraflops: unknown unit "teraflops": did you mean TFLOP/s?'),
        ("7e12<!--= (7 TFLOP) --> FLOP",
         "(7 TFLOP) = 7 TFLOP, document says 7e12: the number has no unit before its comment: put the comment after FLOP"),
        ("7<!--= (7 TFLOP) --> layers", "(7 TFLOP) = 7 TFLOP, document says 7: the number has no unit: write one, such as TFLOP"),
        ("2 million hours<!--= L -->", "L = 12, document says 2 million hours: wrong unit million hours: expected a bare number;"
         " an amount in an expression has its unit, such as 2 s"),
        ("11 k heads<!--= L -->", "L = 0.012 k heads, document says 11 k heads (+91,567 %)"),
        ("5 Ki<!--= 5120 -->", '5120 = 5,120, document says 5 Ki: unknown unit "Ki": write 5,120'),
        ("5 d<!--= 5 days -->", '5 days = 5 days, document says 5 d: unknown unit "d": did you mean days?'),
        ("twelve<!--= L -->", "L = 12, but no number in digits precedes the comment: write one"),
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


def test_a_claim_with_a_space_before_its_sign_is_not_overlooked() -> None:
    """The comment would be plain HTML, and the number beside it would look verified. A rule of signs is a comment."""
    text = "12<!--= L -->\n13<!-- = L -->\n<!-- ===== -->\n"

    right, spaced = judge(read(text), SCOPE)

    assert right.holds
    assert spaced.message == "not verified: a claim begins with <!--= and this comment with <!-- =: leave out the space"


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
