"""``napkin gradients``, ``einsum``, ``dtype``, ``optimizer``, ``initialization`` and ``storage``: the mathematics of a model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from calc.symbolic.writer import as_text
from reports.cli.common import SEED_OPTION, Integer, pairs_option, print_result, refuse_idle, sizes_arguments, talk


@click.command()
@sizes_arguments("Set a depth (default 2); with --check, also sizes to run at. L=3 after the model is the same.")
@click.option("--parameter", metavar="NAME", help="Show only what the gradient of this parameter depends on.")
@click.option("--notation", default="index", show_default=True, metavar="KIND", help="Notation: index (with labels) or matrix.")
@click.option("--attention", default="fused", show_default=True, metavar="KIND", help="Attention kernel: fused or math.")
@click.option("--steps", is_flag=True, help="Show the chain rule link by link first, with the rule of each primitive.")
@click.option(
    "--check", "checked", is_flag=True, help="Evaluate in numpy at three random sizes, and compare with autograd and central differences."
)
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON: both notations, text and LaTeX.")
def gradients(
    model: str, sizes: Sequence[str], parameter: str | None, notation: str, attention: str, steps: bool, checked: bool, as_json: bool
) -> int:
    """Derive the gradients of a model's loss by the chain rule: equations with shapes and FLOPs, in the form of textbooks.

    MODEL is as for napkin derive. What repeats from layer to layer is shown once. Exit status 1: a comparison failed.
    """
    from calc.mathematics.gradients import check
    from calc.mathematics.gradients import gradients as derive
    from calc.options import made
    from reports.jobs import job
    from reports.views import gradients as view

    if as_json:
        refuse_idle("beside --json, which has both notations and every step", "notation", "steps")
    if notation not in ("index", "matrix"):
        raise click.UsageError(f"unknown notation {notation[:40]!r}: use index or matrix")
    options, fixed = made(attention=attention), job.sizes_from(sizes)
    with talk() as say:
        spec = job.load(model, say)
        spec.sizes(fixed)  # a size that cannot be is refused before the work begins
        derived = derive(spec, fixed, options, say)
        if parameter is not None:
            derived.parameter(parameter)
        compared = check(derived, spec, fixed, options, say) if checked else None
    matrix = notation == "matrix"
    print_result(
        as_json,
        lambda: view.document(derived, parameter, compared),
        lambda out: view.show(derived, matrix, parameter, compared, out, steps),
    )
    return 1 if compared is not None and not compared.ok else 0


@click.command(context_settings={"ignore_unknown_options": True})  # "-> a" is a pattern, no option
@click.argument("pattern")
@click.argument("words", nargs=-1, metavar="[NAME=INTEGER]...")
@pairs_option
@click.option(
    "--reduce", "reduction", default="", metavar="HOW", help="Reduction of one operand: sum (the default), mean, max, min or prod."
)
@click.option("--dtype", default="fp32", show_default=True, metavar="FORMAT", help="Number format of the elements, for bytes.")
@click.option("--check", "checked", is_flag=True, help="Run it for real: compare with torch's FLOP counter and with autograd.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def einsum(pattern: str, words: Sequence[str], reduction: str, dtype: str, checked: bool, as_json: bool) -> int:
    """Count an operation over named dimensions: result, FLOPs, bytes, intensity, gradients, the cheapest order of several operands.

    PATTERN is an einops pattern: "b s d, d f -> b s f" contracts, "b s d -> b d" reduces, "b (h k) -> b h k" rearranges,
    "b d -> b t d" repeats. Without its size a dimension stays a symbol. "...=6" is the product of the sizes that an ellipsis stands for.
    """
    from calc.errors import BadInputError
    from calc.mathematics.dtypes.layouts import element_bytes, named
    from calc.mathematics.einsum.check import check
    from calc.mathematics.einsum.operation import operation
    from calc.mathematics.einsum.pattern import read, sizes_of
    from reports.views.einsum import document

    item_size = element_bytes(named(dtype))
    if item_size.denominator != 1:
        raise BadInputError(f"{dtype[:40]} has elements smaller than a byte: choose a dtype of 8 bits or more")
    parsed = read(pattern)
    op = operation(parsed, sizes_of(parsed, words), int(item_size), reduction)
    verdicts = check(op) if checked else None
    from reports.views import einsum as view

    print_result(as_json, lambda: document(op, dtype, verdicts), lambda out: view.show(op, dtype, verdicts, out))
    return 1 if any(v.failed for v in verdicts or ()) else 0


@click.command(context_settings={"ignore_unknown_options": True})  # -0 and -1e-8 are numbers, no options
@click.argument("name", metavar="FORMAT")
@click.argument("number", required=False)
@click.option("--bits", metavar="BITS", help="Read a number from its bits instead: '0 01000 0100011111', 0x211f.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def dtype(name: str, number: str | None, bits: str | None, as_json: bool) -> None:
    """Show what a number format can hold, derived from its layout; with NUMBER, what it is rounded to, bit by bit.

    FORMAT is a name of napkin list dtypes, one of torch's, or a layout such as e3m4. NUMBER is exact: 0.01, 1e-8, -0, 0x1.8p3, inf.
    """
    from calc.mathematics.dtypes.encode import encode, of_bits
    from calc.mathematics.dtypes.layouts import named
    from calc.mathematics.dtypes.numbers import read
    from reports.views.formats import document

    layout = named(name)
    if number is not None and bits is not None:
        raise click.UsageError("NUMBER and --bits both give the number: leave one out")
    encoding = encode(layout, read(number)) if number is not None else of_bits(layout, bits) if bits is not None else None
    from reports.views import formats

    print_result(as_json, lambda: document(layout, encoding), lambda out: formats.show(layout, encoding, out))


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
    from calc.mathematics.updates.run import letters
    from calc.mathematics.updates.table import WITHOUT, rule
    from calc.options import NAMED_OPTIMIZERS, made
    from reports.views.optimizers import document

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
    body = {"schema": 3, **asdict(moments, dict_factory=_document), "draws": draws, "seed": seed, "compared": compared}
    print_result(as_json, lambda: body, lambda out: view.show(moments, lines, out))
    return int(any(line.verdict == FAILED for line in lines))


def _document(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a record, with the equation as text."""
    return {name: (as_text(value, spaced=True) if value else "") if name == "equation" else value for name, value in fields}


@click.command()
@sizes_arguments("Set a dimension of MODEL; B=8 T=1024 after MODEL is the same.", model=False)
@click.option("--attention", default="fused", show_default=True, metavar="KIND", help="Attention kernel of MODEL: fused or math.")
@click.option("--tensor", "shape", metavar="SHAPE", help="Show operations on a tensor of this shape instead, e.g. 4x4.")
@click.option("--do", "expression", metavar="EXPRESSION", help='Operations on the tensor: "x.transpose(0, 1).contiguous()".')
@click.option("--index", metavar="I,J", help="Show where this element of the result lies.")
@click.option("--dtype", default="fp32", show_default=True, metavar="FORMAT", help="Number format of the tensor.")
@click.option("--check", "checked", is_flag=True, help="Compare with real tensors.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def storage(model: str | None, sizes: Sequence[str], attention: str, checked: bool, as_json: bool, **options: Any) -> int:
    """Show which operations return views and which allocate, with shape, strides and offset in elements.

    For MODEL's traced forward, or a tensor with --tensor; without either, for a 4 × 4 matrix under eight kinds of operations.
    """
    if model is not None:
        tensor_options = [name for name in ("shape", "expression", "index") if options[name] is not None]
        if tensor_options or options["dtype"] != "fp32":
            raise click.UsageError("--tensor, --do, --index and --dtype describe a tensor: leave them or MODEL out")
        return _of_model(model, sizes, attention, checked, as_json)
    if sizes:
        raise click.UsageError("-d sets a dimension of a model: name one")
    refuse_idle("without a model", "attention")
    return _of_tensor(checked, as_json, **options)


def _of_model(model: str, sizes: Sequence[str], attention: str, checked: bool, as_json: bool) -> int:
    from calc.mathematics.strides.check import check_forward
    from calc.mathematics.strides.walk import storage as walked
    from calc.options import made
    from reports.cli.common import talk
    from reports.jobs import job
    from reports.views.strides import forward

    options, fixed = made(attention=attention), job.sizes_from(sizes)
    with talk() as say:
        spec = job.load(model, say)
        spec.sizes(fixed)  # a size that cannot be is refused before the work begins
        say("tracing the forward")
        walk = walked(spec, fixed, options)
        verdict = check_forward(spec, walk, options) if checked else None
    from reports.views import strides as view

    print_result(as_json, lambda: forward(walk, verdict), lambda out: view.show_forward(walk, verdict, out))
    return int(verdict is not None and verdict.failed)


def _of_tensor(checked: bool, as_json: bool, shape: str | None, expression: str | None, index: str | None, dtype: str) -> int:
    from calc.mathematics.strides.check import check
    from calc.mathematics.strides.expression import carried_out, demonstration, place_of, read, shape_of
    from calc.mathematics.strides.operations import tensor
    from reports.views.strides import chains

    if shape is None:
        if expression is not None or index is not None:
            raise click.UsageError("--do and --index need a tensor: add --tensor, e.g. --tensor 4x4")
        x, results = demonstration(dtype)
    else:
        x, text = tensor(shape_of(shape), dtype), expression or "x"
        results = ((text, carried_out(x, read(text))),)
    steps = results[-1][1]
    last = x if not steps else steps[-1].result.tensor if steps[-1].result is not None else None
    place = place_of(index, last) if index is not None and last is not None else None
    verdicts = [check(x, chain) for _, chain in results] if checked else None
    if as_json:
        from reports.jobs import job

        body = chains(x, results, verdicts)
        click.echo(job.json_text({**body, "place": None if place is None or last is None else last.layout.place(place)}), nl=False)
    else:
        from reports.views import strides as view
        from reports.writers.terminal import Terminal

        out = Terminal()
        view.show_chains(x, results, verdicts, out)
        if place is not None and last is not None:
            view.show_place(last, place, out)
    return int(any(v.failed for chain in verdicts or () for v in chain))
