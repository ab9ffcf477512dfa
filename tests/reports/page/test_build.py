"""The document model: complete, consistent with the derivation, and never flattering."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from calc.derive.names import StepPlace
from calc.derive.result import QuantityPart, StepCheck
from calc.derive.rules_of_thumb import compare
from calc.errors import BadInputError
from calc.graph.step import Assumption, TracedDim
from calc.symbolic.algebra import evaluate_text
from calc.symbolic.expression import Name, Number, Product
from calc.symbolic.marks import as_latex
from reports.page.build import PageContent, build
from reports.page.parts import meaning_in
from reports.typeset.wording import in_words
from reports.writers import html, markdown
from reports.writers.render import Look
from tests.reports import sample


@pytest.fixture
def page():
    derivation = sample.derivation()
    return build(PageContent(derivation, sample.checks(), compare(derivation), chosen={"B": 2}))


def test_every_step_is_there(page):
    """In order, numbered by chapter."""
    shown = [s.title.rpartition(": ")[2] for c in page.chapters for s in c.steps]

    assert sorted(s.title for s in sample.derivation().steps) == sorted(shown)
    assert str(len(shown)) == page.steps
    assert all(s.number == f"{c.number}.{i}" for c in page.chapters for i, s in enumerate(c.steps, 1))


def test_a_table_by_part_that_another_chapter_has_is_referred_to():
    """A token uses all parameters of a model without experts."""
    page = build(PageContent(sample.derivation()))
    parameters, active = (next(c for c in page.chapters if c.quantity == name) for name in ("parameters", "parameters.active"))

    assert parameters.terms == active.terms
    assert parameters.same_table is None
    assert ("parameters", parameters.anchor) == (active.same_table.words, active.same_table.target)
    assert 1 == sum(chapter.same_table is not None for chapter in page.chapters)


def test_steps_that_are_alike_but_for_their_place_stand_once():
    """The second of three equal ones and the third are named under the first; numbers have no gaps, and none is lost."""
    full = sample.derivation()
    first = full.steps[0]
    twins = tuple(replace(first, id=f"twin-{i}", place=StepPlace(f"h.*.twin_{i}")) for i in (1, 2))
    other = replace(first, id="other", place=StepPlace("h.*.other"), because="another reason")

    page = build(PageContent(replace(full, steps=(first, *twins, other, *full.steps[1:]))))

    (chapter,) = (c for c in page.chapters if c.quantity == first.quantity)
    assert (("h.*.{twin_1,twin_2}",), "and 2 alike") == (chapter.steps[0].alike, chapter.steps[0].more)
    assert "h.*.other" == chapter.steps[1].title
    assert [f"{chapter.number}.{i}" for i in range(1, len(chapter.steps) + 1)] == [s.number for s in chapter.steps]
    assert str(len(full.steps) + 3) == page.steps
    assert chapter.steps[-1].last


@pytest.mark.parametrize(("write", "written"), [(markdown.write, "also `h.*.<b>twin`"), (html.write, "&lt;b&gt;twin</code>")])
def test_places_of_steps_that_are_alike_are_all_written(write, written):
    """Under the one that stands for them, inert."""
    full = sample.derivation()
    twin = replace(full.steps[0], id="twin", place=StepPlace("h.*.<b>twin"))

    text = write(build(PageContent(replace(full, steps=(full.steps[0], twin, *full.steps[1:])))))

    assert written in text


def test_the_three_answers_are_parameters_peak_and_flops(page):
    """4,080 elements, 89,120 bytes, 282,960 FLOP."""
    assert ["4,080", "89,120", "282,960"] == [t.answer.exact for t in page.tiles]


def test_only_measured_checks_count_as_passed(page):
    """Two were measured and equal; what was measured in parts or not at all has counts of its own."""
    assert (("2", "passed"), ("1", "measured in parts"), ("0", "failed"), ("1", "not measured")) == page.tally.counts


def test_an_expected_difference_is_printed_as_expected(page):
    """The backward's matmuls, 156,000 FLOP, have 1,200 that no counter sees; of a difference of 1,199 the expected one is named."""
    short = sample.Verdict("flops.backward.matmul", 156000, 154801, "FlopCounterMode", "failed", expected=1200)

    failed = next(row for row in build(PageContent(sample.derivation(), sample.checks(short))).checks if row.badge.words == "failed")

    assert "+1,200, as expected" == next(row for row in page.checks if row.quantity == "flops.backward.matmul").difference
    assert "+1,199; expected +1,200" == failed.difference


def test_a_failure_shows_on_the_first_screen():
    """The tally turns bad, and says how many."""
    failing = sample.checks(sample.Verdict("activations.bytes", 23180, 23179, "saved_tensors_hooks", "failed"))

    actual = build(PageContent(sample.derivation(), failing)).tally

    assert "bad" == actual.tone
    assert ("1", "failed") in actual.counts


def test_without_checks_nothing_is_called_measured():
    """Every badge says so, and the tally says that nothing ran."""
    page = build(PageContent(sample.derivation()))

    assert not page.tally.ran
    assert {"not measured"} == {a.badge.words for a in page.answers}


def test_every_used_symbol_has_a_row_and_no_row_is_unused(page):
    """k occurs in no formula and has none; ℓ is the index of a sum over layers."""
    assert ["B", "T", "d", "h", "f", "L", "V", "C"] == [s.formula.plain[0] for s in page.symbols][:8]
    assert {"M_1", "ℓ"} >= {s.formula.plain[0] for s in page.symbols[8:]}


def test_a_symbol_of_an_assumption_has_a_row_where_assumptions_are_shown():
    """N, on which no number depends: T ≤ N is shown. A page of chosen quantities shows none."""
    full = sample.derivation()
    most = TracedDim("N", "maximum positions", 1024)
    assumed = replace(full, dims=(*full.dims, most), assumptions=(*full.assumptions, Assumption("T <= N", "made for at most N")))
    symbols = [[s.formula.plain[0] for s in build(PageContent(assumed, only=only)).symbols] for only in ((), ("parameters",))]

    assert "N" in symbols[0]
    assert "N" not in symbols[1]


def test_a_symbol_says_where_its_value_comes_from(page):
    """Given, by default expression, or the model's own."""
    sources = {s.formula.plain[0]: s.source for s in page.symbols}

    assert ("given", "by default 4·d", "the model's default") == (sources["B"], sources["f"], sources["L"])


def test_the_substituted_row_evaluates_to_the_printed_value(page):
    """Read back from what is printed, not from the tree it was made of."""
    assert any(chapter.steps for chapter in page.chapters)
    for chapter in page.chapters:
        for step in chapter.steps:
            row = " ".join(map(as_latex, step.substituted.pieces))
            row = row.replace(r"\cdot", "*").replace(r"\,", "*").replace("{,}", "").replace(r"\max", "Max").replace(r"\left", "")
            row = re.sub(r"\{(\d+)\}\^\{(\d+)\}", r"\1**\2", row.replace(r"\right", ""))
            row = re.sub(r"(\d)\s*\(", r"\1*(", row)
            assert evaluate_text(row, {}) == int(step.value.exact.replace(",", "")), step.anchor


def test_a_step_whose_numbers_do_not_hold_is_never_printed():
    """A wrong value is an error of ours, and stops the report."""
    good = sample.derivation()
    bad = replace(good.steps[0], value=good.steps[0].value + 1)

    with pytest.raises(ValueError, match=r"^step parameters.qkv: the substituted row is 468, the value is 469$"):
        build(PageContent(replace(good, steps=(bad,))))


def test_symbolic_proof_and_random_points_have_different_badges(page):
    """Word and sign differ, not only the color."""
    badges = {(s.badge.sign, s.badge.words) for c in page.chapters for s in c.steps}

    assert {("∎", "proved symbolically"), ("∴", "checked at random points")} == badges


def test_ids_are_unique_and_legal_whatever_steps_are_called():
    """Two steps with one hostile id get two anchors."""
    tree = Product((Number(2), Name("B")))
    step = replace(sample.derivation().steps[0], id='"><script>', before=tree, after=tree, value=4, check=StepCheck("symbolic", "0"))

    page = build(PageContent(sample.derivation(steps=(step, step))))
    anchors = [s.anchor for c in page.chapters for s in c.steps]

    assert 2 == len(set(anchors))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", a) for a in anchors)


def test_every_step_names_a_rule_that_is_listed(page):
    """The link of each step ends at a row of the table of rules."""
    rows = {r.anchor for r in page.rules}

    assert {s.rule.target for part in (*page.chapters, *page.rules_of_thumb) for s in part.steps} <= rows


def test_unknown_quantities_and_unmeasured_ones_are_listed_as_not_covered(page):
    """With their reasons."""
    assert f"flops.forward.causal is unknown: {sample.NO_MASK}." in page.not_covered
    assert "memory.peak is derived but not measured (no CUDA device)." in page.not_covered


def test_terms_close(page):
    """The rows of each table of terms add up to the total under it."""
    with_terms = [chapter for chapter in page.chapters if chapter.terms]
    assert with_terms
    for chapter in with_terms:
        total = sum(int(t.value.replace(",", "").replace("−", "-")) for t in chapter.terms)
        assert f"{total:,}" == chapter.value.exact, chapter.quantity


def test_attention_overtakes_the_other_products_where_the_derivation_says(page):
    """4·B·L·T²·d = 8·B·L·T·d² + 4·B·L·T·d·f + 2·B·T·V·d at T = 2d + f + V/(2L) = 24 + 48 + 17/4 = 76.25: from 77 on."""
    assert "T\u00a0=\u00a077" == page.crossover.at


def test_the_date_is_the_one_that_is_fixed(monkeypatch):
    """SOURCE_DATE_EPOCH makes two runs alike; nonsense in it is refused in one line."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert "1970-01-02" == build(PageContent(sample.derivation())).date

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(BadInputError, match=r"^SOURCE_DATE_EPOCH = 'soon' is not a time: give seconds since 1970 as an integer$"):
        build(PageContent(sample.derivation()))


def test_a_form_by_cases_shows_the_one_in_force_and_the_general_one():
    """At B = 2 the sample's special case is in force; both forms and the condition are shown."""
    quantities = sample.quantities()
    text = "Piecewise((8*T + 3, Eq(B, 2)), (8*B*T, True))"
    quantities["gradients.bytes"] = replace(quantities["gradients.bytes"], text=text, value=43)

    page = build(PageContent(sample.derivation(quantities=quantities)))
    chapter = next(c for c in page.chapters if c.quantity == "gradients.bytes")
    answer = next(a for a in page.answers if a.quantity == "gradients.bytes")

    assert ("8·T", "+ 3") == chapter.formula.plain
    assert ("8·B·T",) == chapter.otherwise.plain
    assert "where B\u00a0=\u00a02" == answer.note


def test_divisibility_is_said_in_words_where_there_is_no_typesetting(page):
    """d mod h = 0 as a formula, "h divides d" as text."""
    assert {"h divides d", "T ≤ C"} <= {"".join(a.formula.plain) for a in page.assumptions}


@pytest.mark.parametrize(
    ("condition", "words"),
    [("not (T >= 4096)", "T < 4096"), ("not (B == 1)", "B ≠ 1"), ("T <= C", "T ≤ C"), ("not (T >= f(C))", "T < f(C)")],
)
def test_a_condition_that_must_not_hold_is_said_as_its_opposite(condition, words):
    assert words == in_words(condition)


def test_a_solution_lists_the_rules_of_its_own_steps_and_of_the_operators_in_them():
    """A sum over operators uses the rule of each that is counted; what only rules of thumb use is not on the page; free operators
    state nothing that a step uses."""
    full = sample.derivation()
    operators = ("aten.mul_.Tensor", "aten.sqrt.default", "aten.view.default")
    steps = (replace(full.steps[0], id="update", rule="sum over operators", operators=operators), *full.steps[1:])

    page = build(PageContent(replace(full, steps=steps), None, compare(full)))
    listed = {row.name: row.use for row in page.derivation_rules}
    written = markdown.write(page, Look("homework.j2"))

    assert {"aten.mul_.Tensor": "1 step", "aten.sqrt.default": "1 step", "sum over operators": "1 step"}.items() <= listed.items()
    assert "aten.view.default" not in listed
    assert {s.rule.words for c in page.chapters for s in c.steps} | {"aten.mul_.Tensor", "aten.sqrt.default"} == set(listed)
    assert {"sizes substituted", "correction", "corrected sum"} <= {row.name for row in page.rules} - set(listed)
    assert ("`aten.sqrt.default`" in written, "`sizes substituted`" in written) == (True, False)


def test_steps_of_rules_of_thumb_are_shown_under_them(page):
    """Numbered within the section, each with what it corrects; the last arrives at the exact count."""
    (thumb,) = (t for t in page.rules_of_thumb if t.name == "2ND")

    assert [f"{thumb.number}.{i}" for i in range(1, len(thumb.steps) + 1)] == [s.number for s in thumb.steps]
    assert ("81,600\u00a0FLOP", "78,000\u00a0FLOP") == (thumb.steps[0].value.text, thumb.steps[-1].value.text)
    assert thumb.exact.text == thumb.steps[-1].value.text


def test_rules_of_thumb_that_do_not_apply_stand_apart_with_the_reason(page):
    """No row of unknowns in the table."""
    assert {"6BN", "BDL activations"} <= {t.name for t in page.inapplicable_rules}
    assert not {t.name for t in page.rules_of_thumb} & {t.name for t in page.inapplicable_rules}
    assert all(t.reason.startswith(("does not apply: ", "cannot be compared: ")) for t in page.inapplicable_rules)


def test_a_letter_of_attention_has_its_usual_meaning_in_a_step_with_attention() -> None:
    """The hidden width of an LSTM can be called h; a meaning that a spec gives is kept."""
    without = sample.derivation()
    quantity, dim = without["parameters"], next(dim for dim in without.dims if dim.name == "h")
    projected = replace(quantity, parts=(QuantityPart("attention output", quantity.text or "", 1),))
    attending = replace(without, quantities={"parameters": projected})
    given = replace(dim, meaning="cells")

    assert ("dimension h", "attention heads") == (meaning_in(dim, without), meaning_in(dim, attending))
    assert "cells" == meaning_in(given, without)
