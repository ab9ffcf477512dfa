"""``napkin lecture``: every claim of public notes on CS336 lecture 2 computed anew, and the lecture's systems worked out."""

from __future__ import annotations

from collections.abc import Sequence

import click

from reports.cli.common import FAILED, SUCCESS, Integer, output_folder, print_result, refuse_idle, say_written, talk


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
