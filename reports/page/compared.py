"""Two steps that are compared, from the words that ask for them to a page, its Markdown and its JSON: what differs, and by what."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from calc.derive.compare import Change, Contrast, contrast, document
from calc.errors import BadInputError
from calc.symbolic import tree
from reports.cli import job
from reports.cli.request import Request, asked, pairs
from reports.page.build import today
from reports.page.inputs import Inputs, digest_of, file_of
from reports.page.model import Formula
from reports.page.parts import formula, or_unknown, sizes_text
from reports.typeset.numbers import Amount, amount, signed, significant
from reports.typeset.wording import sentence
from reports.views.compare import in_cases
from reports.writers import html, markdown
from reports.writers.render import Look

LOOK = Look("contrast.j2")
SECTIONS = {"differing": "What is compared", "quantities": "Quantities", "terms": "Where the differences come from"}
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sides:
    """Of each side the model, then its sizes and options as key=value; ``both`` is set for both, where a side does not set it itself."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    both: Mapping[str, str] = field(default_factory=dict)
    cache: bool = True

    @property
    def names(self) -> tuple[str, str]:
        return " ".join(self.left), " ".join(self.right)

    def requests(self, words: Sequence[str] = ("", "")) -> tuple[Request, Request]:
        """What is derived of each side; ``words`` load the models that are not loaded as they are written."""
        one, other = (self._request(side, word) for side, word in zip((self.left, self.right), words, strict=True))
        return one, other

    def _request(self, side: tuple[str, ...], word: str) -> Request:
        found = asked(side[0], {**self.both, **pairs(side[1:])}, self.cache)
        return replace(found, model=word, written=side[0]) if word else found


def sides(left: str, right: str, both: Mapping[str, str], cache: bool = True) -> Sides:
    """The sides as they are typed, each in one word: a right one that begins with no model is the left one with those changes."""
    first, second = _words(left), _words(right)
    if not first or not second:
        raise BadInputError("a side is empty: write a model, as in 'gpt2 B=8'")
    if _is_change(second[0]):
        changes = pairs(second)
        second = (first[0], *(f"{key}={value}" for key, value in {**pairs(first[1:]), **changes}.items()))
    return Sides(first, second, both, cache)


def _is_change(word: str) -> bool:
    """Whether a word is ``g=32`` or ``zero-grad=zero``; ``gpt2:dropout=0.1`` is a model."""
    key, sign, _ = word.partition("=")
    return bool(sign) and key.replace("-", "_").isidentifier()


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInputError(f"cannot read {text[:60]!r}: {error}") from None


# -- the page --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuantityRow:
    """A quantity on both sides; ``target`` is where its difference is taken apart, empty where there is nothing to take apart."""

    quantity: str
    meaning: str
    target: str
    left: str
    right: str
    difference: str
    share: str


@dataclass(frozen=True, slots=True)
class TermRow:
    site: str
    formula: Formula | None
    value: str
    because: str


@dataclass(frozen=True, slots=True)
class Part:
    """One difference: its closed form, its value, and the places that it comes from. ``here`` is always empty."""

    number: str
    anchor: str
    quantity: str
    meaning: str
    formula: Formula | None
    note: str
    value: Amount
    terms: tuple[TermRow, ...]
    here: None = None


@dataclass(frozen=True, slots=True)
class ContrastPage:
    """A whole comparison, ready to write. ``inputs`` is a line from which it can be made again."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    settings: tuple[tuple[str, str, str], ...]
    rows: tuple[QuantityRow, ...]
    parts: tuple[Part, ...]
    sections: Mapping[str, str]
    inputs: str
    cases: tuple[str, ...] = ()


def compare(both: Sides, progress: Progress, words: Sequence[str] = ("", "")) -> tuple[Contrast, Inputs]:
    """The comparison, and what makes it again; ``words`` load the models that are not loaded as they are written."""
    requests = both.requests(words)
    left, right = (job.derive(request, progress) for request in requests)
    one, other = (digest_of(file) if (file := file_of(request.model)) is not None else "" for request in requests)
    return contrast(left, right, both.names), Inputs(
        kind="compare",
        model=shlex.join(both.left),
        other=shlex.join(both.right),
        options=dict(both.both),
        digest=one,
        other_digest=other,
        date=today(),
        environment={name: str(value) for name, value in {**right.provenance, **left.provenance}.items()},
    )


def texts(found: Contrast, inputs: Inputs) -> dict[str, str]:
    """By file name."""
    page = build(found, inputs)
    return {
        "compare.md": markdown.write(page, LOOK),
        "compare.html": html.write(page, LOOK),
        "compare.json": job.json_text({**document(found), **job.carried(inputs)}),
    }


def build(found: Contrast, inputs: Inputs) -> ContrastPage:
    sized = {name: (or_unknown(one), or_unknown(other)) for name, (one, other) in found.sizes.items()}
    return ContrastPage(
        model=f"{found.left} → {found.right}",
        step="two steps and their difference",
        subtitle="Right less left. Sizes that both sides have stay letters; those in which they differ are put in.",
        sizes=f"both: {sizes_text(found.same)}" if found.same else "the sides have no size in common",
        date=inputs.noted,
        settings=tuple((name, one, other) for name, (one, other) in {**found.options, **sized}.items()),
        rows=tuple(_row(change) for change in found.changes),
        parts=tuple(_part(str(i), change) for i, change in enumerate((c for c in found.changes if c.value), 1)),
        sections=SECTIONS,
        inputs=inputs.text(),
        cases=tuple(sentence(f"{words[0].upper()}{words[1:]}") for words in in_cases(found)),
    )


def _anchor(change: Change) -> str:
    return f"d-{change.quantity}"


def _row(change: Change) -> QuantityRow:
    left, right = ("unknown" if n is None else amount(n, change.unit).text for n in (change.left, change.right))
    difference = "unknown" if change.value is None else signed(change.value)
    share = significant(_ratio(change)) if change.left and change.right is not None else "–"
    return QuantityRow(change.quantity, change.meaning, _anchor(change) if change.value else "", left, right, difference, share)


def _ratio(change: Change) -> Fraction:
    return Fraction(change.right or 0, change.left or 1)


def _part(number: str, change: Change) -> Part:
    assert change.value is not None  # only what differs has a part
    value = replace(amount(change.value, change.unit), exact=signed(change.value))
    terms = tuple(TermRow(t.site, _formula(t.expr), signed(t.value), t.because) for t in change.terms)
    return Part(number, _anchor(change), change.quantity, change.meaning, _formula(change.expr), change.note, value, terms)


def _formula(expr: str | None) -> Formula | None:
    return None if expr is None else formula(tree.parse(expr))
