"""``napkin optimizer``: the rule of an optimizer as equations, its state, FLOPs and bytes, and torch's own steps beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from reports.cli.common import print_result


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("values", nargs=-1, metavar="[NAME=NUMBER]...")
@click.option(
    "--implementation", default="loop", show_default=True, metavar="WAY", help="Optimizer implementation: loop, foreach or fused."
)
@click.option("--check", "checked", is_flag=True, help="Compare ten steps of the equations with ten of torch's class.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def optimizer(name: str, values: Sequence[str], implementation: str, checked: bool, as_json: bool) -> int:
    """Show the update rule of an optimizer as equations, with its state, FLOPs and bytes per parameter.

    NAME is one of napkin list optimizers, or adagrad-lecture. NAME=NUMBER sets a hyperparameter for --check, e.g. lr=0.1 beta1=0.8.
    """
    from calc.errors import BadInputError
    from calc.mathematics.updates.check import check
    from calc.mathematics.updates.cost import executed
    from calc.mathematics.updates.document import document
    from calc.mathematics.updates.run import letters
    from calc.mathematics.updates.table import WITHOUT, rule
    from calc.options import NAMED_OPTIMIZERS, made

    equations = None if name in WITHOUT else rule(name)
    made(implementation=implementation)
    overrides = _numbers(values)
    if equations is None and (checked or overrides):
        raise BadInputError(f"{WITHOUT[name]}; leave --check and values out")
    if equations is not None:
        letters(equations, overrides)
        if overrides and not checked:
            raise BadInputError(f"values such as {values[0][:40]} are for a comparison with torch: add --check")
    cost = executed(name, implementation) if name in NAMED_OPTIMIZERS else None
    verdict = check(equations, overrides) if checked and equations is not None else None
    from reports.views import optimizers

    print_result(as_json, lambda: document(name, cost, verdict), lambda out: optimizers.show(name, cost, verdict, out))
    return 0 if verdict is None or verdict.ok else 1


def _numbers(texts: Sequence[str]) -> dict[str, float]:
    from calc.errors import BadInputError
    from calc.mathematics.dtypes.numbers import read
    from calc.symbolic.assignments import read_assignments

    form = "a hyperparameter as NAME=NUMBER, e.g. lr=0.1"
    values: dict[str, float] = {}
    for name, number in read_assignments(texts, form).items():
        value = read(number).value
        if value is None or abs(value) > sys.float_info.max:
            raise BadInputError(f"cannot read {f'{name}={number}'[:40]!r}: write {form}")
        values[name] = float(value)
    return values
