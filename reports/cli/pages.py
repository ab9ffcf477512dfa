"""``napkin lecture``, ``homework`` and ``site``: commands that write pages of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reports.cli.common import FAILED, SUCCESS, Integer, output_folder, pairs_option, print_result, refuse_idle, say_written, talk


@click.command()
@click.option("-o", "--output", default=".", show_default=True, metavar="DIR", help="Folder for the files.")
@click.option("--claim", "names", multiple=True, metavar="ID", help="Compute and show one claim, and write no file.")
@click.option("--system", "number", type=Integer(1), metavar="NUMBER", help="Work out and show one of the systems, and write no file.")
@click.option("--json", "as_json", is_flag=True, help="Also write the audit to standard output as JSON.")
def lecture(output: str, names: Sequence[str], number: int | None, as_json: bool) -> int:
    """Write lecture.md, lecture.html and lecture.json: claims of a lecture's notes with verdicts, and its systems, derived and checked.

    Takes a few minutes: models are traced, and steps run for real. A wrong claim is not a failure; a failed check of a system is.
    --claim computes single claims, by the ids of lecture.json; --system one system, 1 to 20.
    """
    if number is not None:
        refuse_idle("beside --system, which shows that alone and writes no file", "output", "names")
        return _show_system(number, as_json)
    if names:
        refuse_idle("beside --claim, which writes no file", "output")
        _show_claims(names, as_json)
        return SUCCESS
    from reports.jobs import job
    from reports.lecture.writing import document, lecture, summary

    folder = output_folder(output)
    with talk() as say:
        outcome = lecture(folder, say)
    click.echo(job.json_text(document(outcome)) if as_json else f"{len(outcome.audit.claims)} claims: {summary(outcome.audit)}\n", nl=False)
    say_written(*outcome.files)
    return 0 if outcome.ok else 1


def _show_system(number: int, as_json: bool) -> int:
    from reports.lecture.lab import Lab
    from reports.lecture.systems import system
    from reports.lecture.writing import show_system, system_document

    lecture_system = system(number)
    with talk() as say:
        result = lecture_system.work(Lab(say))
    print_result(
        as_json, lambda: {"schema": 1, **system_document(lecture_system, result)}, lambda out: show_system(lecture_system, result, out)
    )
    return SUCCESS if result.ok else FAILED


def _show_claims(names: Sequence[str], as_json: bool) -> None:
    from reports.lecture.audit import audit, claim_json
    from reports.lecture.lab import Lab
    from reports.lecture.writing import show_claims

    with talk() as say:
        audited = audit(Lab(say), names)
    print_result(as_json, lambda: {"schema": 1, "claims": [claim_json(c) for c in audited.claims]}, lambda out: show_claims(audited, out))


@click.command()
@click.option("-o", "--output", default="site", show_default=True, metavar="DIR", help="Folder for the pages.")
def site(output: str) -> None:
    """Write a static site: a page for each stored model, in which sizes can be changed, and one for the capacity questions.

    The pages need no server and load nothing. They are evaluated exactly in the reader's browser, and each number opens its derivation.
    """
    from reports.jobs import site as site_job

    folder = output_folder(output)
    with talk() as say:
        written = site_job.site(folder, say)
    say_written(*written)


@click.command()
@click.argument("model")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE[,VALUE]...]...")
@pairs_option
@click.option("-o", "--output", default=".", show_default=True, metavar="DIR", help="Folder for the files.")
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="Ask for this quantity only; may be repeated.")
@click.option("--context", metavar="TOKENS", help="Sequence length of the question on longer sequences (default 16384).")
@click.option("--memory", metavar="BYTES", help="Memory of one device, for the largest batch (default 80GB).")
@click.option("--gpu", "gpus", multiple=True, metavar="ID", help="A device of the training run (default a100-sxm-80 and h100-sxm).")
@click.option("--mfu", metavar="SHARE", help="Model FLOPs utilization of the training run (default 0.5).")
@click.option("--steps", metavar="NUMBER", help="Optimizer steps of the training run (default 400e3).")
@click.option("--batch", metavar="SEQUENCES", help="Sequences in a step of the training run (default 1024).")
@click.option("--latex", is_flag=True, help="Write exercises.tex and solutions.tex too, for pdflatex.")
@click.option("--no-cache", is_flag=True, help="Trace the steps again, and neither read nor write the cache.")
def homework(
    model: str,
    words: Sequence[str],
    output: str,
    quantities: Sequence[str],
    gpus: Sequence[str],
    latex: bool,
    no_cache: bool,
    **run: str | None,
) -> None:  # fmt: skip
    """Write exercises.md and .html, and solutions.md, .html and .json: a model's accounting as the questions of an assignment.

    The questions: parameters, matmuls of a forward pass, their shares over model sizes and sequence lengths, training memory as a function
    of the batch size, the largest batch, FLOPs of the optimizer, days of training. Lists of sizes make several models to compare: the
    first has the first value of each list, and so on. All other questions are about the last one: napkin homework gpt2
    d=768,1024,1280,1600 L=12,24,36,48 h=12,16,20,25. Settings of the step go with the sizes: attention=math optimizer=sgd.
    """
    from calc.symbolic.assignments import read_assignments
    from reports.jobs import homework as jobs
    from reports.jobs import job
    from reports.jobs.request import PAIRS
    from reports.jobs.side_by_side import steps

    table_steps = steps((model,), read_assignments(words, PAIRS), quantities, not no_cache)
    table_steps.requests()  # what cannot be asked for is refused before any work
    assumed, folder = jobs.run_from({name: text for name, text in run.items() if text is not None}, gpus), output_folder(output)
    with talk() as say:
        made = jobs.compute(table_steps, assumed, say, quantities=quantities)
    texts = {name: text for sheet in jobs.SHEETS for name, text in jobs.texts(made, sheet, latex=latex).items()}
    say_written(*job.write_all(Path(folder), texts))
