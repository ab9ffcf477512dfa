"""``napkin initialization``: what a model's values look like before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from calc.symbolic.writer import as_text
from reports.cli.common import SEED_OPTION, Integer, print_result, refuse_idle, sizes_arguments


@click.command()
@sizes_arguments()
@click.option("--draws", type=Integer(30, 100_000), metavar="INTEGER", help="Build and run N real modules (at least 30) for comparison.")
@SEED_OPTION
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def initialization(model: str, sizes: Sequence[str], draws: int | None, seed: int, as_json: bool) -> int:
    """Derive the second moment of every module's output at initialization, from the distributions of the model's own initializers.

    Sizes default to the small ones of the model's checks. With --draws, real modules are built and run; exit 1 if a derived moment is
    neither inside the sample's 99.9 % interval nor within the tolerance of its approximations.
    """
    import calc
    from calc.mathematics.initialization import initial
    from calc.mathematics.initialization.comparison import FAILED, compare
    from reports.jobs import job
    from reports.views import initialization as view

    if draws is None:
        refuse_idle("without --draws, which runs real modules", "seed")
    spec = calc.load(model)
    moments = initial(spec, {**spec.check_at, **job.sizes_from(sizes)})
    samples: dict[str, Any] = {}
    if draws is not None:
        from calc.measure.sampling import sample

        samples = sample(spec, moments.sizes, draws, seed=seed)
    lines = compare(moments, samples) if draws is not None else []
    compared = [asdict(line, dict_factory=_document) for line in lines]
    body = {"schema": 2, **asdict(moments, dict_factory=_document), "draws": draws, "seed": seed, "compared": compared}
    print_result(as_json, lambda: body, lambda out: view.show(moments, lines, out))
    return int(any(line.verdict == FAILED for line in lines))


def _document(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a record, with the equation as text."""
    return {name: (as_text(value, spaced=True) if value else "") if name == "equation" else value for name, value in fields}
