"""The job of ``napkin compare`` for several steps: from the words that ask for them to their table as a page, Markdown and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import calc
from calc.derive.quantities import QUANTITIES
from calc.derive.side_by_side import USUAL, SideBySide, document, side_by_side
from calc.errors import BadInputError
from calc.graph.unbacked_sizes import declared_sizes
from calc.platform.progress import Progress
from calc.symbolic.assignments import read_assignments
from reports.jobs import job
from reports.jobs.compared import with_changes, words_of
from reports.jobs.report import carried
from reports.jobs.request import PAIRS, Request, request_from
from reports.page.build import today
from reports.page.inputs import Inputs, digest_of, file_of
from reports.page.side_by_side import build
from reports.writers import html, markdown
from reports.writers.render import Look

LOOK = Look("side-by-side.j2")
MOST = 24


@dataclass(frozen=True, slots=True)
class TableSteps:
    """The steps of a table: each model at each place of the lists.

    ``models``: a model, then what is set for it alone as key=value. ``values``: key → one value for all steps, or as many as every other
    list has.
    """

    models: tuple[tuple[str, ...], ...]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantities: tuple[str, ...] = USUAL
    cache: bool = True

    @property
    def places(self) -> int:
        return max((len(values) for values in self.values.values()), default=1)

    def settings(self, place: int) -> dict[str, str]:
        """What is set for all models at one place of the lists."""
        return {key: values[place] if len(values) > 1 else values[0] for key, values in self.values.items()}

    def requests(self, words: Sequence[str] = ()) -> tuple[Request, ...]:
        """What is derived of each step; ``words`` load the models that are not loaded as they are written."""
        requests = []
        for i, (model, *own) in enumerate(self.models):
            for place in range(self.places):
                request = request_from(model, {**self.settings(place), **read_assignments(own, PAIRS)}, self.cache)
                requests.append(replace(request, model=words[i], written=model) if words and words[i] else request)
        return tuple(requests)

    @property
    def names(self) -> tuple[str, ...]:
        """Of each step, the model where there are several, and the first listed sizes that tell its places apart."""
        listed = [key for key, values in self.values.items() if len(values) > 1]
        least = next((n for n in range(len(listed)) if len({self._place(i, listed[:n]) for i in range(self.places)}) == self.places), None)
        places = [self._place(i, listed[:least]) for i in range(self.places)]
        several = len(self.models) > 1 or self.places == 1
        return tuple(" ".join(filter(None, (" ".join(model) if several else "", place))) for model in self.models for place in places)

    def _place(self, place: int, keys: Sequence[str]) -> str:
        return " ".join(f"{key}={self.values[key][place]}" for key in keys)


def steps(models: Sequence[str], given: Mapping[str, str], quantities: Sequence[str], cache: bool = True) -> TableSteps:
    """The steps as they are typed, a model with its own settings in one word, and ``{"d": "768,1024"}`` for all. Raises ``BadInputError``
    for lists of unequal lengths, equal steps, too many steps and unknown quantities."""
    unknown = next((name for name in quantities if name not in QUANTITIES), None)
    if unknown is not None:
        raise BadInputError(f"no quantity {unknown[:60]!r}: see napkin list quantities{job.nearest(unknown, QUANTITIES)}")
    values = {key: tuple(value.strip() for value in text.split(",")) for key, text in given.items()}
    lists = {key: several for key, several in values.items() if len(several) > 1}
    first = next(iter(lists), "")
    for key, several in lists.items():
        if len(several) != len(lists[first]):
            counts = f"{first} has {len(lists[first])} values and {key} has {len(several)}"
            raise BadInputError(f"{counts}: lists vary together, so give as many values of each")
        if not all(several):
            raise BadInputError(f"a value of {key} is empty in {','.join(several)[:60]!r}: leave out the comma")
    sides = [words_of(model) for model in models]
    if not all(sides):
        raise BadInputError("a step is empty: write a model, as in 'gpt2 B=8'")
    table = TableSteps(tuple(with_changes(sides[0], side) for side in sides), values, tuple(quantities) or USUAL, cache)
    number = len(table.models) * table.places
    if number > MOST:
        raise BadInputError(f"{number} steps are more than a table has columns for: give at most {MOST}, or use napkin sweep")
    if len(set(table.names)) < number:
        raise BadInputError("two steps of the table are the same: give each model, and each place of the lists, once")
    return table


def compute(table_steps: TableSteps, progress: Progress, words: Sequence[str] = ()) -> tuple[SideBySide, Inputs]:
    """The table, and what makes it again; ``words`` load the models that are not loaded as they are written."""
    requests = table_steps.requests(words)
    for request in requests:  # sizes that cannot be are refused before the work begins
        declared_sizes(calc.load(request.model), request.sizes)
    derivations = [job.derive(request, progress) for request in requests]
    files = [file_of(word) for word in (words or [model[0] for model in table_steps.models])]
    provenance = {name: str(value) for derivation in reversed(derivations) for name, value in derivation.provenance.items()}
    return side_by_side(derivations, table_steps.names, table_steps.quantities), Inputs(
        kind="table",
        model=shlex.join(shlex.join(model) for model in table_steps.models),
        other=" ".join(table_steps.quantities),
        options={key: ",".join(values) for key, values in table_steps.values.items()},
        digest=" ".join("-" if file is None else digest_of(file) for file in files) if any(files) else "",
        date=today(),
        environment=provenance,
    )


def steps_of(inputs: Inputs) -> TableSteps:
    """The steps of a page, from its inputs."""
    return steps(words_of(inputs.model), inputs.options, inputs.other.split())


def texts(table: SideBySide, inputs: Inputs) -> dict[str, str]:
    """By file name."""
    page = build(table, inputs)
    return {
        "compare.md": markdown.write(page, LOOK),
        "compare.html": html.write(page, LOOK),
        "compare.json": job.json_text({**document(table), **carried(inputs)}),
    }
