"""``napkin derive``, ``check`` and ``report``: a step in closed form, beside a real run, and written as a report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from reports.cli.common import (
    FAILED,
    SEED_OPTION,
    SUCCESS,
    model_arguments,
    output_folder,
    print_result,
    request_of,
    require_device,
    say_written,
    talk,
)

if TYPE_CHECKING:
    from calc.derive.result import Derivation
    from calc.derive.rules_of_thumb import RuleComparison
    from reports.jobs.request import Request
    from reports.writers.terminal import Terminal

_MORE = "\nEvery step: napkin derive {} --explain NAME, of a quantity or a rule of thumb"


@click.command()
@model_arguments
@click.option("--explain", metavar="NAME", help="Show the steps of one quantity or rule of thumb (napkin list quantities|rules-of-thumb).")
@click.option("--coverage", is_flag=True, help="Show every operator: counted, free or refused. Also for a model that is refused.")
@click.option("--saved", is_flag=True, help="Show the tensors saved for the backward, one by one, and why.")
@click.option("--peak", is_flag=True, help="Show live bytes over the step, tensors at the peak, the peak as a·B + b, and CUDA's rounding.")
@click.option("--memory-summary", is_flag=True, help="Show what torch.cuda.memory_summary() would print after two steps, simulated.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
@click.option(
    "--values", is_flag=True, help="With --json: only the quantities and their terms, without steps, operators and rules of thumb."
)
def derive(
    explain: str | None, coverage: bool, saved: bool, peak: bool, memory_summary: bool, as_json: bool, values: bool, **options: Any
) -> None:
    """Derive every quantity of a training step in closed form."""
    request = request_of(**options)
    if memory_summary:
        if saved or peak or coverage or values or explain is not None:
            raise click.UsageError("--memory-summary shows one thing: give it without --explain, --coverage, --saved, --peak and --values")
        _show_memory_summary(request, as_json)
        return
    if values and (saved or peak or coverage or explain is not None or not as_json):
        raise click.UsageError("--values goes with --json alone: it leaves out what --explain, --coverage, --saved and --peak show")
    if not (saved or peak or coverage or explain is not None or (as_json and not values)) and _show_stored(request, as_json):
        return
    if saved or peak:
        if explain is not None or coverage or (saved and peak):
            raise click.UsageError("--explain, --coverage, --saved and --peak each show one thing: give one of them")
        _show_memory(request, peak, as_json)
        return
    if coverage:
        _show_coverage(request, explain, as_json)
        return
    from reports.jobs import job

    if explain is not None:
        job.require_explained(explain, request.options.to_json())
    with talk() as say:
        derivation = job.derive(request, say)
    if values:
        click.echo(job.json_text(_values(derivation)), nl=False)
    else:
        _show_derived(request, derivation, explain, as_json)
    job.keep(request, derivation)


def _show_derived(request: Request, derivation: Derivation, explain: str | None, as_json: bool) -> None:
    """A derivation with the rules of thumb beside it."""
    from reports.jobs import job

    comparisons = () if explain is not None and explain in derivation else job.comparisons(derivation, explain)
    print_result(
        as_json, lambda: _document(derivation, comparisons, explain), lambda out: _show(request, derivation, comparisons, explain, out)
    )


def _show(request: Request, derivation: Derivation, comparisons: Sequence[RuleComparison], explain: str | None, out: Terminal) -> None:
    """All answers, or the steps of one quantity or rule of thumb."""
    from reports.typeset.escape import brief
    from reports.views import answers, explained

    if explain is None:
        answers.show(answers.of_derivation(derivation, comparisons), out)
        click.echo(_MORE.format(brief(request.model)), err=True)
    elif explain in derivation:
        explained.show_quantity(derivation, explain, out)
    else:
        explained.show_rule_of_thumb(derivation, comparisons[0], out)


def _show_stored(request: Request, as_json: bool) -> bool:
    """Show the answers of a stored closed form that holds at these sizes, and say so on standard error; False if there is none."""
    from calc.pipeline.precomputed import stored, why_not

    form = stored(request.model, request.options.to_json()) if request.cache else None
    if form is None or not form.covers(request.sizes):
        return False
    of = ", ".join(f"{name} {version}" for name, version in form.versions.items())
    from reports.views import answers
    from reports.writers.terminal import Terminal

    not_bundled = why_not(request.model, request.options.to_json())
    origin = "closed forms that an earlier command derived" if not_bundled else "bundled closed forms of this version of napkin"
    Terminal(file=sys.stderr).line(f"{origin}, traced with {of}; --no-cache traces the step again")

    print_result(
        as_json, lambda: _values(form.derivation(request.sizes)), lambda out: answers.show(answers.of_stored(form, request.sizes), out)
    )
    if not as_json:
        from reports.typeset.escape import brief

        click.echo(_MORE.format(brief(request.model)), err=True)
    return True


def _values(derivation: Any) -> dict[str, Any]:
    """The quantities alone, and the notes."""
    from calc.derive.to_json import values_document

    return {**values_document(derivation), "notes": list(derivation.notes)}


def _show_memory(request: Request, peak: bool, as_json: bool) -> None:
    """The tensors saved for the backward, or live bytes over the step."""
    from reports.jobs import job
    from reports.views import memory
    from reports.writers.terminal import Terminal

    with talk() as say:
        derivation = job.derive(request, say)
        live, no_timeline = job.timeline(derivation, say) if peak else (None, "")
    if as_json:
        from calc.derive.to_json import to_json

        document = to_json(derivation, live=live)
        quantity, shown = ("memory.peak", ("crossovers", "timeline")) if peak else ("activations.bytes", ("saved",))
        head = {key: document[key] for key in ("schema", "model", "dims", "options")}
        parts = {key: document.get(key) for key in shown}
        click.echo(job.json_text({**head, "quantities": {quantity: document["quantities"][quantity]}, **parts}), nl=False)
        return
    if peak:
        memory.show_peak(derivation, live, no_timeline, Terminal())
    else:
        memory.show_saved(derivation, Terminal())


def _show_memory_summary(request: Request, as_json: bool) -> None:
    """The allocator's statistics after two steps."""
    from calc.memory.memory_summary import memory_summary
    from reports.jobs import job
    from reports.views import memory

    with talk() as say:
        derivation = job.derive(request, say)
        summary = memory_summary(derivation, say)
    print_result(as_json, lambda: {"schema": 1, **summary.to_json()}, lambda out: memory.show_summary(summary, out))


def _show_coverage(request: Request, explain: str | None, as_json: bool) -> None:
    """The ledger on standard output; a refusal comes after it."""
    if explain is not None:
        raise click.UsageError("--coverage shows operators and --explain a quantity: give one of them")
    from calc.derive.to_json import ledger_document
    from reports.jobs import job
    from reports.page.coverage import coverage
    from reports.views import explained as view

    with talk() as say:
        covered = job.covered(request, say)
    because, options = str(covered.refusal or ""), request.options.to_json()
    print_result(
        as_json,
        lambda: ledger_document(covered.model, options, covered.sizes, covered.ledger, because),
        lambda out: view.show(covered.model, coverage(covered.ledger), out),
    )
    if covered.refusal is not None:
        sys.stdout.flush()
        raise covered.refusal


def _document(derivation: Any, comparisons: Sequence[Any], explain: str | None) -> dict[str, Any]:
    """The whole document, or of one quantity or rule of thumb what explains it."""
    from calc.derive.to_json import to_json

    document = to_json(derivation, comparisons=comparisons)
    if explain is None:
        return document
    head = {key: document[key] for key in ("schema", "model", "dims", "options")}
    if explain not in derivation:
        return {**head, "textbook": document["textbook"]}
    steps = [step for step in document["steps"] if step["quantity"] == explain]
    return {**head, "quantities": {explain: document["quantities"][explain]}, "steps": steps}


@click.command()
@model_arguments
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Device for the real run: cpu or cuda.")
@SEED_OPTION
@click.option("--json", "as_json", is_flag=True, help="Write the verdicts as JSON.")
@click.option("--strict", is_flag=True, help="Fail if something could not be measured.")
def check(device: str, seed: int, as_json: bool, strict: bool, **options: Any) -> int:
    """Run the step for real and compare every quantity with what was derived."""
    request = request_of(**options)
    from reports.jobs import job

    require_device(device)
    job.require_checkable(request, device)
    with talk() as say:
        derivation = job.derive(request, say)
        checks = job.check(derivation, request.sizes, device, say, seed)
    from calc.derive.to_json import specialized_document
    from reports.views import checks as view

    print_result(as_json, lambda: job.check_json(checks, specialized_document(derivation)), lambda out: view.show(derivation, checks, out))
    return _status(checks, strict)


@click.command()
@model_arguments
@click.option("-o", "--output", default=".", show_default=True, metavar="DIR", help="Folder for the files.")
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Device for the checks: cpu or cuda.")
@click.option("--gpu", default="", metavar="ID", help="Accelerator whose memory and rates the figures show: see napkin list hardware.")
@click.option("--template", default="", metavar="NAME", help="Layout: report, homework, design-section, or one of your own.")
@click.option("--templates", default="", metavar="DIR", help="A folder of templates and a report.css that override the built-in ones.")
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="With --template homework: the quantity to derive, or all.")
@click.option("--latex", is_flag=True, help="Write report.tex too, for pdflatex.")
@click.option("--interactive", is_flag=True, help="Write report.interactive.html too: change sizes, recipe and device in the page.")
@click.option("--strict", is_flag=True, help="Fail if something could not be measured.")
def report(
    output: str,
    device: str,
    gpu: str,
    template: str,
    templates: str,
    quantities: Sequence[str],
    latex: bool,
    interactive: bool,
    strict: bool,
    **options: Any,
) -> int:
    """Write report.md, report.html and report.json: derivation, checks and comparisons, with every step.

    --template homework answers the questions of an assignment with the model's equations and every step; --quantity NAME derives the
    quantity NAME instead, --quantity all every quantity.
    """
    if quantities and template != "homework":
        raise click.UsageError("--quantity goes with --template homework: add it, or leave --quantity out")
    request = request_of(**options)
    from reports.jobs import job
    from reports.jobs import report as report_job
    from reports.page.checks import tally
    from reports.page.inputs import FORMATS
    from reports.views import answers
    from reports.views import checks as view
    from reports.writers.render import look_of
    from reports.writers.terminal import Terminal

    require_device(device)
    for name in filter(report_job.ALL.__ne__, quantities):
        job.require_explained(name, request.options.to_json())
    look, folder = look_of(template, templates), output_folder(output)
    formats = [suffix for suffix in FORMATS if latex or suffix != ".tex"]
    choices = report_job.ReportChoices(device, look, gpu, quantities, formats, interactive)
    with talk() as say:
        outcome = report_job.report(request, folder, choices, say)
    out = Terminal()
    answers.show(answers.of_derivation(outcome.derivation, outcome.comparisons), out)
    out.line()
    if outcome.checks is not None:
        view.show(outcome.derivation, outcome.checks, out)
    else:
        view.show_tally(tally(None, outcome.unchecked), out)
    say_written(*outcome.files)
    return _status(outcome.checks, strict)


def _status(checks: Any, strict: bool) -> int:
    """0 when nothing failed; with ``strict``, what was not measured fails too."""
    if checks is None:
        return FAILED if strict else SUCCESS
    verdicts = [v.verdict for v in checks.verdicts]
    return FAILED if "failed" in verdicts or (strict and "not measured" in verdicts) else SUCCESS
