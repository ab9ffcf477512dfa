"""``napkin check`` and ``napkin report``: what was derived beside a real run, shown or written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="With --template homework: every step of it, or of all.")
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

    --template homework answers the questions of an assignment in a few pages; --quantity NAME derives a quantity step by step instead,
    --quantity all every quantity.
    """
    if quantities and template != "homework":
        raise click.UsageError("--quantity goes with --template homework: add it, or leave --quantity out")
    request = request_of(**options)
    from reports.jobs import job
    from reports.jobs import report as report_job
    from reports.page.checks import tally
    from reports.views import answers
    from reports.views import checks as view
    from reports.writers.render import look_of
    from reports.writers.terminal import Terminal

    require_device(device)
    for name in filter(report_job.ALL.__ne__, quantities):
        job.require_explained(name, request.options.to_json())
    look, folder = look_of(template, templates), output_folder(output)
    with talk() as say:
        outcome = report_job.report(request, folder, device, say, latex, look, gpu, interactive, quantities)
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
