"""A report followed with pencil and paper: from the printed page alone, step by step, every line gives the next one."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest
from markdown_it import MarkdownIt

import calc
from calc.derive.rules_of_thumb import compare
from calc.rules.registry import REGISTRY
from reports.page.build import PageContent, build
from reports.page.rules import STEP_RULES
from reports.writers import html, markdown
from tests.reports import pages
from tests.reports.reading import Unreadable, evaluate, names

POINTS = 5
SMALL = {"B": 2, "T": 8, "d": 12, "h": 3, "V": 17, "C": 8, "L": 2}


@dataclass(frozen=True)
class Printed:
    """A step as it is read off the page. ``lines`` are its sides, the last one with numbers put in; ``value`` stands under them. One
    without a number is a row of the table of peak candidates, which has one line: M₂ from M₁."""

    number: str
    title: str
    rules: tuple[str, ...]
    lines: tuple[str, ...]
    value: int
    why: str
    badge: str


@dataclass(frozen=True)
class Walk:
    """The page, and what is read off it."""

    text: str
    symbols: Mapping[str, tuple[str, str]]
    steps: Sequence[Printed]


_DOWN = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def printed(text: str) -> Iterator[Printed]:
    """Every step of the derivation, in order; one that points at an equal one before has no lines of its own."""
    for part in re.split(r"^#### (?=4\.)", text.partition("\n## 5 ")[0], flags=re.MULTILINE)[1:]:
        heading, body = re.split(r"\n(?:<a id=|</details>|### )", part)[0].split("\n", 1)
        number, _, title = heading.partition(" ")
        blocks = re.findall(r"```math\n\\begin\{aligned\}\n(.*?)\n\\end\{aligned\}\n```", body, re.DOTALL)
        rows = [row for block in blocks for row in block.split(" \\\\\n")]
        lines: list[str] = []
        for row in rows:
            sign, _, said = row.partition("&")
            formula = re.sub(r"\s*&&.*", "", said)
            if sign == "={}" or not lines:
                lines.append(formula)
            else:
                lines[-1] += f" {formula}"
        value = re.search(r"^(?:(?:=|as in step [^\n]*:) )?\*\*([\d,−]+)", body, re.MULTILINE)  # a step of nothing has no equation
        assert value is not None, heading
        why = re.search(r"^because (.*)", body, re.MULTILINE)
        badge = re.search(r"^([∎∴]) (.*?) · rule", body, re.MULTILINE)
        yield Printed(
            number,
            title,
            tuple(re.findall(r"· rule \[[^\]]*\]\(#([^)]*)\)", body)),
            (lines[0], *lines) if len(lines) == 2 else tuple(lines),  # a line that repeats the first is left out
            int(value[1].replace(",", "").replace("−", "-")),
            why[1] if why else "",
            f"{badge[1]} {badge[2]}" if badge else "",
        )


def tabled(text: str) -> dict[str, list[Printed]]:
    """The rows of each table of peak candidates that say how a candidate follows from another one, by letter and in order."""
    rows = re.findall(r'^\| <a id="(?:peak|first)-[^"]*"></a>([^|]*) \| ([\d,]+) \| ([A-Z])([₀-₉]+) = \$`([^`]*)`\$', text, re.MULTILINE)
    by_letter: dict[str, list[Printed]] = {}
    for name, value, letter, index, line in rows:
        step = Printed("", f"{letter}{index}: {name}", (), (line,), int(value.replace(",", "")), "", "")
        by_letter.setdefault(letter, []).append(step)
    return by_letter


def with_rows(steps: Sequence[Printed], rows: Mapping[str, Sequence[Printed]]) -> Iterator[Printed]:
    """The steps, and each row of a table after the step of the candidate before it."""
    left = {letter: list(own) for letter, own in rows.items()}
    for step, following in itertools.zip_longest(steps, steps[1:]):
        yield step
        letter = moment(step).partition("_")[0]
        until = moment(following).partition("_") if following is not None else ("", "", "")
        while letter and left.get(letter) and (until[0] != letter or _index(left[letter][0]) < int(until[2])):
            yield left[letter].pop(0)
    assert not any(left.values())


def _index(step: Printed) -> int:
    return int(moment(step).partition("_")[2])


def table_of_symbols(text: str) -> dict[str, tuple[str, str]]:
    """Symbol → value and source, as the page's table has them."""
    part = text.partition('<a id="symbols"></a>')[2].partition("\n## ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \$`([^`]*)`\$ \|[^|]*\|[^|]*\| ([^|]*) \| ([^|]*) \|", part, re.MULTILINE)
    return {next(iter(names(latex)), latex): (value, source) for latex, value, source in rows}


def with_reasons(text: str, steps: Iterable[Printed]) -> Iterator[Printed]:
    """The steps; one that refers to the reason, rule and check of another one has those, in the place of its own."""
    by_number: dict[str, Printed] = {}
    bodies = {part.partition(" ")[0]: part for part in re.split(r"^#### (?=4\.)", text, flags=re.MULTILINE)[1:]}
    before: Printed | None = None
    for step in steps:
        body = bodies[step.number].split("\n#")[0]
        named = re.search(r"^Reason, rule and check as in \[([\d.]+)\]", body, re.MULTILINE)
        of = by_number[named[1]] if named else before if re.search(r"^Same reason, rule and check\.", body, re.MULTILINE) else None
        before = step if of is None else replace(step, rules=of.rules, why=of.why, badge=of.badge)
        by_number[step.number] = before
        yield before


def walked(page: Any) -> Walk:
    text = markdown.write(page)
    steps = tuple(with_rows(list(with_reasons(text, printed(text))), tabled(text)))
    assert any(step.lines for step in steps)
    return Walk(text, table_of_symbols(text), steps)


@pytest.fixture(scope="module", params=["sample", pytest.param("gpt2", marks=pytest.mark.slow)])
def page(request: pytest.FixtureRequest) -> Any:
    """The sample's page, and that of a GPT-2 of few sizes: its steps are those of the large one."""
    if request.param == "sample":
        return pages.page()
    derivation = calc.derive(calc.load("gpt2"), SMALL)
    return build(PageContent(derivation, comparisons=compare(derivation), chosen=SMALL))


@pytest.fixture(scope="module")
def walk(page: Any) -> Walk:
    return walked(page)


def sizes(walk: Walk) -> dict[str, Fraction]:
    """The symbols whose value the table has; a word there says where else it stands."""
    return {name: Fraction(value.replace(",", "")) for name, (value, _) in walk.symbols.items() if re.fullmatch(r"[\d,]+", value)}


def at_random(walk: Walk, seed: int) -> dict[str, Fraction]:
    """Values of all symbols; of one that is always something else, as its source says, that."""
    chance = random.Random(seed)
    actual = {name: Fraction(chance.randint(2, 10**4)) for name in sizes(walk)}
    for name in actual:
        always = walk.symbols[name][1].partition("always ")[2]
        if always:
            top, _, bottom = always.replace("·", r" \cdot ").partition("/")
            actual[name] = evaluate(top, actual) / (evaluate(bottom, actual) if bottom else 1)
    return actual


def moment(step: Printed) -> str:
    """The name that a step gives to what it arrives at: ``M_2`` of "M₂: backward, …"; empty where it gives none."""
    named = re.match(r"([A-Z])([₀-₉]+): ", step.title)
    return f"{named[1]}_{named[2].translate(_DOWN)}" if named else ""


def test_every_step_of_the_page_is_read(page: Any, walk: Walk) -> None:
    """None is passed over."""
    steps = [step for chapter in page.chapters for step in chapter.steps]

    in_tables = [step for step in steps if step.tabled and step.folded]
    assert [f"4.{step.number}" for step in steps if step not in in_tables] == [step.number for step in walk.steps if step.number]
    assert [step.title.partition(":")[0] for step in in_tables] == [step.title.partition(":")[0] for step in walk.steps if not step.number]
    assert len(steps) > 8
    assert all(len(step.lines) == 3 or step.value == 0 or re.search(r"as in step", walk.text) for step in walk.steps if step.number)


def test_every_step_applies_one_rule_that_is_there(page: Any, walk: Walk) -> None:
    """One link to a rule in each that has lines, to a row of the table of rules; each is one of the registry or of the ways to add up."""
    rows = set(re.findall(r'\| <a id="(rule-[^"]+)"></a>', walk.text))
    for step in (step for step in walk.steps if step.number):
        assert len(step.rules) == (1 if step.lines or step.value == 0 else 0), step.number
        assert set(step.rules) <= rows
    known = {*STEP_RULES, *REGISTRY.rules, *REGISTRY.frees}
    assert {row.name for row in page.rules} <= known


def test_every_symbol_was_defined_before(walk: Walk) -> None:
    """In the table of symbols with its value, or by a step that stands above."""
    known = set(sizes(walk))
    assert {"B", "T", "d", "L", "V"} <= known
    for step in walk.steps:
        for line in step.lines:
            assert names(line) <= known, (step.number, names(line) - known)
        known |= {moment(step)} - {""}


def test_before_gives_after_in_every_step(walk: Walk) -> None:
    """At five random points, as both are printed; a moment has the value that its own step gave it."""
    for seed in range(POINTS):
        values = at_random(walk, seed)
        for step in walk.steps:
            if not step.lines:
                continue
            before, after = step.lines[0], step.lines[1 if step.number else 0]
            actual = evaluate(after, values)
            assert evaluate(before, values) == actual, (step.number, before, after)
            if moment(step):
                values[moment(step)] = actual


def test_numbers_put_in_give_the_value(walk: Walk) -> None:
    """The third line has no symbol left, and comes to what is printed under it; so does the second at the sizes of the table."""
    values = sizes(walk)
    for step in walk.steps:
        if not step.number:
            assert evaluate(step.lines[0], values) == step.value, step.title
        elif step.lines:
            _, after, substituted = step.lines
            assert names(substituted) == set(), step.number
            assert evaluate(substituted, {}) == evaluate(after, values) == step.value, step.number
        if moment(step):
            values[moment(step)] = Fraction(step.value)


def test_every_step_says_how_it_was_verified(walk: Walk) -> None:
    """Proved symbolically, or checked at so many random points, five at least; and why it holds."""
    for step in walk.steps:
        if not step.lines or not step.number:
            continue
        assert step.why, step.number
        assert step.badge.startswith(("∎ proved symbolically", "∴ checked at random points: ")), step.number
        if step.badge.startswith("∴"):
            actual = re.search(r"(\d+) (?:random exact )?points", step.badge)
            assert actual is not None
            assert int(actual[1]) >= 5


_UP = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def digits(text: str) -> Fraction:
    """A line of numbers as HTML prints it, ``4·12² + 2·12``."""
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: f"^{{{m[0].translate(_UP)}}}", text.replace("\u00a0", " "))
    text = text.replace("·", r"\cdot ").replace("−", "-").replace("max(", r"\max(")
    return evaluate(re.sub(r"(\d),(?=\d{3})", r"\1{,}", text), {})


def test_html_prints_lines_that_come_to_the_same(page: Any) -> None:
    """The row of numbers of each step, read off the page, comes to the value behind it."""
    text = re.sub(r"<wbr>|</?(?:i|small|b)>", "", html.write(page))
    rows = re.findall(r'<(?:span|p) class="subst">= (.*?) = <span class="n">([\d,−]+)', text)
    read = 0
    for row, value in rows:
        plain = re.sub(r"<sup>(\d+)</sup>", lambda m: m[1].translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")), row)
        plain = re.sub(r"<[^>]*>", "", plain)
        assert digits(plain) == int(value.replace(",", "").replace("−", "-")), row
        read += 1

    assert read > 8


def test_a_wrong_line_is_noticed() -> None:
    """Another digit, another sign, a symbol of nowhere."""
    values = {"B": Fraction(7), "d": Fraction(11)}
    assert evaluate(r"2(B\,d)(3\,d) +\underbrace{d^{2}}_{\text{a \_ b}}", values) == 2 * 77 * 33 + 121
    assert evaluate(r"2(B\,d)(3\,d) -d^{2}", values) != evaluate(r"6\,B\,d^{2} +d^{2}", values)
    assert evaluate(r"\sum_{\ell=1}^{B}(4\,d +1) +\frac{1}{2}\,d", values) == 7 * 45 + Fraction(11, 2)
    assert evaluate(r"\max(B, d, 1{,}000) \cdot {2}^{3}", values) == 8000
    assert evaluate(r"\left\lfloor \frac{d}{2} \right\rfloor \cdot (d \bmod 4)", values) == 5 * 3
    with pytest.raises(Unreadable, match="x is not defined before"):
        evaluate("2 x", values)


def test_the_page_that_is_walked_is_markdown(walk: Walk) -> None:
    """What is read off as mathematics is what a Markdown reader takes for it."""
    fences = [token for token in MarkdownIt("commonmark").parse(walk.text) if token.type == "fence" and token.info == "math"]

    assert len(fences) >= len([step for step in walk.steps if step.lines])
