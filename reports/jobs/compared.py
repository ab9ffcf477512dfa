"""The job of ``napkin compare``: two steps, from the words that ask for them to their page, its Markdown and its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from calc.derive.compare import Comparison, document
from calc.derive.compare import compare as compare_derivations
from calc.errors import BadInputError
from calc.graph.unbacked_sizes import declared_sizes
from calc.platform.progress import Progress
from calc.symbolic.assignments import is_assignment, read_assignments
from reports.jobs import job
from reports.jobs.report import carried
from reports.jobs.request import PAIRS, Request, request_from
from reports.page.build import today
from reports.page.comparison import build
from reports.page.inputs import Inputs, digest_of, file_of
from reports.writers import html, markdown
from reports.writers.render import Look

LOOK = Look("comparison.j2")


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
        left, right = (self._request(side, word) for side, word in zip((self.left, self.right), words, strict=True))
        return left, right

    def _request(self, side: tuple[str, ...], word: str) -> Request:
        request = request_from(side[0], {**self.both, **read_assignments(side[1:], PAIRS)}, self.cache)
        return replace(request, model=word, written=side[0]) if word else request


def sides(left: str, right: str, both: Mapping[str, str], cache: bool = True) -> Sides:
    """The sides as they are typed, each in one word: a right one that begins with no model is the left one with those changes.
    Raises ``BadInputError`` for an empty side."""
    first, second = words_of(left), words_of(right)
    if not first or not second:
        raise BadInputError("a side is empty: write a model, as in 'gpt2 B=8'")
    return Sides(first, with_changes(first, second), both, cache)


def with_changes(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """``second``; if it begins with no model, ``first`` with its changes."""
    if not is_assignment(second[0]):
        return second
    changed = {**read_assignments(first[1:], PAIRS), **read_assignments(second, PAIRS)}
    return (first[0], *(f"{key}={value}" for key, value in changed.items()))


def words_of(text: str) -> tuple[str, ...]:
    """The words of a side. Raises ``BadInputError`` for a quotation without an end."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInputError(f"cannot read {text[:60]!r}: {error}") from None


def compare(both: Sides, progress: Progress, words: Sequence[str] = ("", "")) -> tuple[Comparison, Inputs]:
    """The comparison, and what makes it again; ``words`` load the models that are not loaded as they are written."""
    requests = both.requests(words)
    for request in requests:  # sizes that cannot be are refused before the work begins
        declared_sizes(job.load(request.model, progress), request.sizes)
    left, right = (job.derive(request, progress) for request in requests)
    left_digest, right_digest = (digest_of(file) if (file := file_of(request.model)) is not None else "" for request in requests)
    return compare_derivations(left, right, both.names), Inputs(
        kind="compare",
        model=shlex.join(both.left),
        other=shlex.join(both.right),
        options=dict(both.both),
        digest=left_digest,
        other_digest=right_digest,
        date=today(),
        environment={name: str(value) for name, value in {**right.provenance, **left.provenance}.items()},
    )


def texts(comparison: Comparison, inputs: Inputs) -> dict[str, str]:
    """By file name."""
    page = build(comparison, inputs)
    return {
        "compare.md": markdown.write(page, LOOK),
        "compare.html": html.write(page, LOOK),
        "compare.json": job.json_text({**document(comparison), **carried(inputs)}),
    }
