"""The command ``napkin``: data on standard output, talk on standard error, one line for every refusal.

Exit status: 0 all held, 1 a check failed, 2 bad usage or input. Whatever is heavy is imported inside the commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from calc.errors import BadInputError, NapkinError
from reports.cli_common import model_arguments, request_of, require_device, talk
from reports.cli_dtype import dtype
from reports.cli_einsum import einsum
from reports.cli_gradients import gradients
from reports.cli_initialisation import initialisation
from reports.cli_lecture import lecture
from reports.cli_measure import measure
from reports.cli_optimizer import optimizer
from reports.cli_recipes import bytes_per_parameter
from reports.cli_storage import storage

if TYPE_CHECKING:
    from reports.job import Request

HELD, FAILED, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


class Napkin(click.Group):
    """Turns every refusal, click's own included, into one line on standard error."""

    def main(  # type: ignore[override]  # click tells its results apart by standalone_mode, which is always off here
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra.pop("standalone_mode", None)
        try:
            status = super().main(args, prog_name or "napkin", standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = REFUSED
        except click.ClickException as error:
            status = _refuse(error.format_message())
        except NapkinError as error:
            status = _refuse(str(error))
        except (click.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        except BrokenPipeError:
            # Whoever read us has seen enough; Python would complain again while closing the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = PIPE_CLOSED
        sys.exit(status if isinstance(status, int) else HELD)


def _refuse(message: str) -> int:
    from reports.escape import visible

    click.echo(f"napkin: {visible(message)}", err=True)
    return REFUSED


def main() -> None:
    """Entry point of the console command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without × still gets the numbers
    napkin.main()


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from reports.job import version

        click.echo(f"napkin {version()}")
        context.exit()


@click.group(cls=Napkin, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit.")
def napkin() -> None:
    """The resource accounting of a PyTorch training step: closed forms by visible steps, each checked against a real run.

    MODEL is a built-in name (napkin list models), hf:PATH of a Hugging Face config.json, or FILE.py:NAME of your own spec.
    """


@napkin.command()
@model_arguments
@click.option("--explain", metavar="NAME", help="Show the steps of one quantity or rule of thumb (napkin list quantities|thumbs).")
@click.option("--coverage", is_flag=True, help="Show every operator: counted, free or refused. Also for a model that is refused.")
@click.option("--saved", is_flag=True, help="Show the tensors kept for the backward, one by one, and why.")
@click.option("--peak", is_flag=True, help="Show live bytes over the step, what is alive at the peak, what moves it, how CUDA rounds it.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def derive(explain: str | None, coverage: bool, saved: bool, peak: bool, as_json: bool, **words: Any) -> None:
    """Derive every quantity of a training step in closed form."""
    request = request_of(**words)
    if saved or peak:
        if explain is not None or coverage or (saved and peak):
            raise click.UsageError("--explain, --coverage, --saved and --peak each show one thing: give one of them")
        _show_memory(request, peak, as_json)
        return
    if coverage:
        _show_coverage(request, explain, as_json)
        return
    from reports import job

    if explain is not None:
        job.require_explained(explain, request.options.to_json())
    with talk() as say:
        derivation = job.derive(request, say)
    comparisons = job.comparisons(derivation, explain)
    if as_json:
        click.echo(job.json_text(_document(derivation, comparisons, explain)), nl=False)
        return
    from reports import terminal

    page, out = job.page(request, derivation, comparisons=comparisons), terminal.console()
    if explain is None:
        terminal.show_derivation(page, out)
        click.echo(f"\nEvery step: napkin derive {request.model} --explain NAME, of a quantity or a rule of thumb", err=True)
    elif explain in derivation:
        terminal.show_quantity(page, explain, out)
    else:
        terminal.show_thumb(page, explain, out)


def _show_memory(request: Request, peak: bool, as_json: bool) -> None:
    """The tensors kept for the backward, or live bytes over the step."""
    from calc.document import to_json
    from reports import job, terminal

    with talk() as say:
        derivation = job.derive(request, say)
        live, untimed = job.timeline(derivation, say) if peak else (None, "")
    if as_json:
        document = to_json(derivation, live=live)
        quantity, shown = ("memory.peak", ("takeovers", "timeline")) if peak else ("activations.bytes", ("saved",))
        head = {key: document[key] for key in ("schema", "model", "dims", "options")}
        parts = {key: document.get(key) for key in shown}
        click.echo(job.json_text({**head, "quantities": {quantity: document["quantities"][quantity]}, **parts}), nl=False)
        return
    page, out = job.page(request, derivation, live=live, untimed=untimed), terminal.console()
    (terminal.show_peak if peak else terminal.show_saved)(page, out)


def _show_coverage(request: Request, explain: str | None, as_json: bool) -> None:
    """The ledger on standard output; a refusal comes after it."""
    if explain is not None:
        raise click.UsageError("--coverage shows operators and --explain a quantity: give one of them")
    from calc.document import ledger_document
    from reports import coverage, job, terminal

    with talk() as say:
        found = job.covered(request, say)
    if as_json:
        because = str(found.refusal or "")
        click.echo(job.json_text(ledger_document(found.model, request.options.to_json(), found.sizes, found.ledger, because)), nl=False)
    else:
        terminal.show_coverage(found.model, coverage.coverage(found.ledger), terminal.console())
    if found.refusal is not None:
        sys.stdout.flush()
        raise found.refusal


def _document(derivation: Any, comparisons: Sequence[Any], explain: str | None) -> dict[str, Any]:
    """The whole document, or of one quantity or rule of thumb what explains it."""
    from calc.document import to_json

    document = to_json(derivation, comparisons=comparisons)
    if explain is None:
        return document
    head = {key: document[key] for key in ("schema", "model", "dims", "options")}
    if explain not in derivation:
        return {**head, "textbook": document["textbook"]}
    steps = [step for step in document["steps"] if step["quantity"] == explain]
    return {**head, "quantities": {explain: document["quantities"][explain]}, "steps": steps}


@napkin.command()
@model_arguments
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Where the real run takes place: cpu or cuda.")
@click.option("--json", "as_json", is_flag=True, help="Write the verdicts as JSON.")
@click.option("--strict", is_flag=True, help="Fail where something could not be measured.")
def check(device: str, as_json: bool, strict: bool, **words: Any) -> int:
    """Run the step for real and compare every quantity with what was derived."""
    request = request_of(**words)
    from reports import job

    require_device(device)
    with talk() as say:
        derivation = job.derive(request, say)
        checks = job.check(derivation, request.sizes, device, say)
    if as_json:
        click.echo(job.json_text(job.check_json(checks)), nl=False)
    else:
        from reports import terminal

        terminal.show_checks(job.page(request, derivation, checks), terminal.console())
    return _status(checks, strict)


@napkin.command()
@model_arguments
@click.option("-o", "--output", default=".", show_default=True, metavar="DIR", help="Where the three files go.")
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Where the checks run: cpu or cuda.")
@click.option("--strict", is_flag=True, help="Fail where something could not be measured.")
def report(output: str, device: str, strict: bool, **words: Any) -> int:
    """Write report.md, report.html and report.json: derivation, checks and comparisons, with every step."""
    request = request_of(**words)
    from reports import job, terminal

    require_device(device)
    with talk() as say:
        outcome = job.report(request, Path(output), device, say)
    out = terminal.console()
    terminal.show_derivation(outcome.page, out)
    out.print()
    if outcome.checks is not None:
        terminal.show_checks(outcome.page, out)
    else:
        out.print(terminal.tally(outcome.page.tally))
    for path in outcome.files:
        click.echo(f"wrote {click.format_filename(path)}", err=True)
    return _status(outcome.checks, strict)


def _status(checks: Any, strict: bool) -> int:
    """0 when nothing failed; with ``strict``, what was not measured fails too."""
    if checks is None:
        return FAILED if strict else HELD
    verdicts = [v.verdict for v in checks.verdicts]
    return FAILED if "failed" in verdicts or (strict and "not measured" in verdicts) else HELD


@napkin.command()
@click.argument("model")
@click.option("-d", "--dim", "sizes", multiple=True, metavar="NAME=INTEGER", help="Set a dimension: T is the tokens kept, B the sequences.")
@click.option("--weights", "weights_in", default="bf16", show_default=True, metavar="FORMAT", help="fp32, bf16, fp8, int8, int4, …")
@click.option("--group", type=int, metavar="INTEGER", help="Weights that share a scale in int4: 128 if nothing is said.")
@click.option("--cache-format", "cache_in", default="bf16", show_default=True, metavar="FORMAT", help="Of keys and values.")
@click.option("--no-cache", is_flag=True, help="Record the forward anew, and keep no recording.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def inference(model: str, sizes: Sequence[str], no_cache: bool, as_json: bool, **formats: Any) -> None:
    """What using a model takes: weights in a number format, keys and values of T tokens, both in closed form."""
    from calc.inference import document
    from reports import job

    with talk() as say:
        found = job.inference(model, job.sizes_from(sizes), say, remember=not no_cache, **formats)
    if as_json:
        click.echo(job.json_text(document(found)), nl=False)
        return
    from reports import terminal

    terminal.show_inference(found, terminal.console())


@napkin.command()
@model_arguments
@click.option("--memory", metavar="BYTES", help="What there is: 80GB, 80GiB. Says which choice fits and runs the least again.")
@click.option("--json", "as_json", is_flag=True, help="Write the comparison as JSON.")
def checkpointing(memory: str | None, as_json: bool, **words: Any) -> None:
    """Compare the choices of checkpointing: what each holds at its peak and runs again."""
    if words["checkpointing"] != "none":
        raise click.UsageError("this compares every choice of --checkpointing: leave the option out")
    from calc.recomputing import document
    from calc.units import bytes_in
    from reports import job, recomputing, terminal

    limit = None if memory is None else bytes_in(memory)
    with talk() as say:
        found = recomputing.compare(request_of(**words), limit, say)
    if as_json:
        click.echo(job.json_text(document(found)), nl=False)
    else:
        recomputing.show(found, terminal.console())


@napkin.command()
@model_arguments
@click.option("--save-seconds", type=float, metavar="SECONDS", help="How long a checkpoint takes to write, for how often to save.")
@click.option("--failure-hours", type=float, metavar="HOURS", help="Mean time between failures, for how often to save.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def checkpoint(save_seconds: float | None, failure_hours: float | None, as_json: bool, **words: Any) -> int:
    """What a checkpoint takes on disk, and whether training resumes from one bit for bit, in a real run."""
    if (save_seconds is None) != (failure_hours is None):
        raise click.UsageError("how often to save needs both --save-seconds and --failure-hours")
    from calc.saving import document
    from reports import job

    with talk() as say:
        found = job.saving(request_of(**words), say, save_seconds, failure_hours)
    if as_json:
        click.echo(job.json_text(document(found)), nl=False)
    else:
        from reports import terminal

        terminal.show_saving(found, terminal.console())
    return HELD if found.ok else FAILED


LISTS = ("models", "dtypes", "optimizers", "rules", "quantities", "thumbs")


@napkin.command("list")
@click.argument("what", metavar="|".join(LISTS))
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
def list_(what: str, words: Sequence[str], as_json: bool) -> None:
    """List what there is: models, dtypes, optimizers, rules of operators, quantities or rules of thumb.

    With WORDs, only entries that hold every one of them: napkin list rules convolution. What an optimizer keeps is per parameter
    tensor, of n elements of s bytes; r and c are its last two sizes, N the elements of all tensors.
    """
    if what not in LISTS:
        raise click.UsageError(f"nothing to list under {what!r}: there are {', '.join(LISTS)}")
    from reports import job, listing, rules, terminal

    if as_json:
        click.echo(job.json_text(listing.document(what, words)), nl=False)
        return
    out = terminal.console()
    found = terminal.show_rules(rules.table(words), out) if what == "rules" else terminal.show_rows(listing.rows(what, words), out)
    if not found:
        raise BadInputError(f"no entry of {what} holds {' and '.join(repr(word[:40]) for word in words)}: napkin list {what} shows all")


for _command in (bytes_per_parameter, dtype, einsum, gradients, initialisation, lecture, measure, optimizer, storage):
    napkin.add_command(_command)


if __name__ == "__main__":
    main()
