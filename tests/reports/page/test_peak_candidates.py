"""Peak candidates are shown as their difference from an earlier one, which leads to the same closed forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

import calc
from calc.derive.names import StepPlace
from calc.derive.result import Derivation, Step, StepCheck
from calc.derive.rules_of_thumb import compare
from calc.pipeline import pipeline
from calc.symbolic import tree
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Labelled, Name, Number, Product, Sum, bare
from reports.page.build import PageContent, build
from reports.page.peak_candidates import PeakCandidates, PeakCandidateView, monomials
from reports.page.steps import by_operator
from reports.writers import markdown

PEAKS = ("memory.peak", "memory.peak.first_step")


@pytest.fixture(scope="module")
def derivation() -> Derivation:
    return calc.derive(calc.load("gpt2"), {"B": 2, "T": 8, "d": 12, "h": 3, "V": 17, "C": 8})


def named(derivation: Derivation) -> list[PeakCandidateView]:
    moments = PeakCandidates()
    return [m for name in PEAKS for m in moments.of([s for s in derivation.steps if s.quantity == name]).values()]


def added(terms: tuple[Expression, ...]) -> dict[Expression, Fraction]:
    actual: dict[Expression, Fraction] = {}
    for term in terms:
        for key, coefficient in monomials(bare(term)).items():
            actual[key] = actual.get(key, Fraction(0)) + coefficient
    return {key: coefficient for key, coefficient in actual.items() if coefficient}


def in_full(moment: PeakCandidateView) -> Mapping[Expression, Fraction]:
    """Its closed form, from the moment that it is told by."""
    return monomials(moment.step.after) if moment.base is None else added((moment.base.step.after, *moment.change))


def test_a_difference_leads_to_the_moments_own_form(derivation: Derivation) -> None:
    """Term by term, and what is said role by role is the same change."""
    differences = [m for m in named(derivation) if m.base is not None]

    assert len(differences) > 10
    for moment in differences:
        assert monomials(moment.step.after) == in_full(moment)
        assert added(moment.change) == added(moment.by_role)


def test_the_reason_of_a_candidate_with_nothing_to_add_speaks_of_no_change(derivation: Derivation) -> None:
    """In the first step the optimizer ends with as much as in the second."""
    differences = [m for m in named(derivation) if m.base is not None]
    equal = [m for m in differences if not m.change]

    assert 0 < len(equal) < len(differences)
    assert {(m.step.quantity, m.base.step.quantity) for m in equal if m.base} == {("memory.peak.first_step", "memory.peak")}
    assert {m.because for m in equal} == {"the first step has the same storages live here as the second"}
    assert {"what is live at only one of the two makes the difference"} == {m.because for m in differences if m.change}


def test_a_candidate_as_large_as_another_of_its_step_names_it() -> None:
    """M₂ has the bytes of M₁ in every role."""
    first, second = (PeakCandidateView("M", i, live("a", 8)) for i in (1, 2))

    assert "as many bytes of each role are live as at M₁" == replace(second, base=first).because


def test_a_moment_refers_to_one_that_stands_before_it(derivation: Derivation) -> None:
    """The largest of the sizes at hand is the first, and is told in full."""
    moments = named(derivation)
    names = [m.name.name for m in moments]

    assert ["M_1", "F_1"] == [name for name in names if name.endswith("_1")]
    assert moments[0].base is None
    assert derivation["memory.peak"].value == moments[0].step.value
    assert all(m.base is None or names.index(m.base.name.name) < i for i, m in enumerate(moments))


def test_the_page_shows_each_moment_once_and_its_row_comes_to_its_value(derivation: Derivation) -> None:
    """Numbers put into the difference, the other moment's value among them."""
    page = build(PageContent(derivation))
    rows = [c for chapter in page.chapters for c in chapter.candidates]
    steps = {s.anchor: s for chapter in page.chapters for s in chapter.steps}

    assert len({c.target for c in rows}) == len(rows) > 20
    for row in rows:
        step = steps[row.target]
        assert row.value.exact == step.value.exact
        digits = " ".join(step.substituted.plain).replace(",", "").replace("·", "*").replace("−", "-").replace("²", "**2")
        assert int(step.value.exact.replace(",", "")) == evaluate_text(digits, {})


def test_a_change_that_its_roles_do_not_make_is_not_told() -> None:
    """8d + 4h + 2k + V, then 9d + 4h + 2k + V: one term sets them apart, unless the roles say otherwise; then each is shown as it is."""
    first, second = live("a", 8), live("b", 9)
    wrong = replace(second, before=Sum((Labelled(Name("d"), "parameter"),)))

    assert PeakCandidates().of([first, second, maximum(first, second)])[first.after].change == (tree.parse("-d"),)
    assert PeakCandidates().of([first, wrong, maximum(first, wrong)])[first.after].base is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*d + 3*B*T - d", {("d",): 1, ("B", "T"): 3}),
        ("B*T/2 - 7", {("B", "T"): Fraction(1, 2), (): -7}),
        ("-4*d**2", {("d**2",): -4}),
    ],
)
def test_like_terms_are_collected(text: str, expected: Mapping[tuple[str, ...], int]) -> None:
    actual = monomials(tree.parse(text))

    assert expected == {tuple(tree.text(f) for f in key.factors): c for key, c in actual.items() if isinstance(key, Product)}


def live(title: str, coefficient: int) -> Step:
    """A moment at d = 4, h = 3, k = 2, V = 1."""
    after = tree.parse(f"{coefficient}*d + 4*h + 2*k + V")
    before = Sum((Labelled(after, "parameter"),))
    check = StepCheck("symbolic", "holds")
    return Step(title, "memory.peak", StepPlace(title), "live storages by role", before, after, "", check, coefficient * 4 + 17, ())


def maximum(*steps: Step) -> Step:
    before, after = (tree.maximum(getattr(s, side) for s in steps) for side in ("before", "after"))
    return replace(steps[0], id="max", before=before, after=after, rule="maximum")


def test_the_formula_of_a_candidate_is_written_once(derivation: Derivation) -> None:
    """One that is another plus a difference has it in the table, where its name leads; its step would repeat it."""
    page = build(PageContent(derivation=derivation))
    text = markdown.write(page)
    rows = [row for c in page.chapters for row in c.candidates if row.formula and row.name]

    assert len(rows) > 10
    assert all(text.count(f'<a id="{row.target}"></a>') == 1 for row in rows)
    assert not [step.number for c in page.chapters for step in c.others if step.tabled and f"#### 4.{step.number} " in text]
    assert "A candidate that is written from another one is that one, plus what is live only here and less what is live only there." in text
    assert "Steps of the other peak candidates that the table does not write from another one" in text


def test_the_terms_of_a_total_are_quantities(derivation: Derivation) -> None:
    """Others are modules; what all of them are is in parentheses."""
    titles = {c.quantity: c.titles["table"] for c in build(PageContent(derivation)).chapters}

    assert ["flops.step.total by quantity", "parameters.bytes by module path (float32 parameter)"] == [
        titles["flops.step.total"],
        titles["parameters.bytes"],
    ]


def test_a_difference_of_a_rule_of_thumb_counts_the_modules_that_it_does_not_name(derivation: Derivation) -> None:
    """2ND counts the norms and biases of a layer, which no matmul uses: three are named."""
    page = build(PageContent(derivation, comparisons=compare(derivation)))
    rows = [d for t in page.rules_of_thumb for d in t.differences if d.more]

    assert rows
    assert all(len(row.module_paths) == 3 for row in rows)
    assert f"` and {rows[0].more} more | " in markdown.write(page)


def test_an_operator_has_one_name_on_a_page(derivation: Derivation) -> None:
    """That of torch, with its underscore, for a peak candidate, a saved or live tensor and an instant."""
    text = markdown.write(build(PageContent(derivation, timeline=pipeline.timeline(derivation))))

    assert r"\_log_softmax at (loss)" in text
    assert not re.search(r"(?<![\w\\])log_softmax", text)


def test_a_candidate_in_a_loop_is_explained_once(derivation: Derivation) -> None:
    """Which iteration a name without one means, and that the backward begins with the last layer."""
    chapters = {c.quantity: c for c in build(PageContent(derivation)).chapters}
    says = "A module path with * runs in a loop: a candidate there is in its first iteration, unless its name says which."

    assert chapters["memory.peak"].loops == f"{says} The backward goes through a loop from its end: its first iteration is the last layer."
    assert chapters["parameters"].loops == ""


def test_equal_terms_of_one_operator_are_written_as_one() -> None:
    """Three results of V·d of lerp are 3·V·d with all their names; another operator begins anew, and parts of a module stay apart."""
    each = Product((Name("V"), Name("d")))
    labels = (("mul_", "a · b"), ("lerp_", "end − x"), ("lerp_", "w (end − x)"), ("lerp_", "x + w (end − x)"), ("sqrt", "√x"))
    shown = by_operator(Sum(tuple(Labelled(each, label, operator) for operator, label in labels)))
    parts = Sum((Labelled(each, "wte.weight"), Labelled(each, "wpe.weight")))

    assert [(tree.text(term.body), term.operator, term.label) for term in shown.terms] == [
        ("V*d", "mul_", "a · b"),
        ("3*V*d", "lerp_", "end − x, w (end − x), x + w (end − x)"),
        ("V*d", "sqrt", "√x"),
    ]
    assert by_operator(parts) == parts


def test_equal_tensors_of_one_parameter_are_one_term() -> None:
    """Both averages of AdamW have the shape of the parameter; its step counter, between them, has not."""
    size = Product((Number(4), Name("d")))
    tensors = Sum(tuple(Labelled(body, label) for body, label in ((size, "exp_avg"), (size, "exp_avg_sq"), (Number(4), "step"))))

    joined = Sum((Labelled(Product((Number(2), *size.factors)), "exp_avg, exp_avg_sq"), Labelled(Number(4), "step")))
    assert joined == by_operator(tensors, of_equals=True)
    assert tensors == by_operator(tensors)
