"""``napkin verify``: whether a report, or the numbers of a live document, still are what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from calc.errors import BadInputError, suggestion
from reports.cli.common import FAILED, SUCCESS, Integer, say_idle, talk

if TYPE_CHECKING:
    from calc.platform.files import Output
    from reports.live.document import LiveDocument
    from reports.live.engine import FailedStatement
    from reports.live.verify_documents import JudgedClaim
    from reports.live.verify_reports import Regenerated
    from reports.page.inputs import Inputs

    Rewriting = tuple[Output, int]
    """A document with the right numbers, and how many of them it had wrong."""

Given = TypeVar("Given")
Result = TypeVar("Result")
_FORMATS = ("text", "github", "json")
_NOTHING = "it has no claims, so nothing in it can be verified: put <!--= EXPRESSION --> after a number, or leave the file out"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How files are verified, as the command's options name it; ``form`` is that of messages."""

    form: str
    fix: bool
    diff: bool
    require_claims: int
    unmarked: bool
    sources: Sequence[str]
    templates: str | None
    no_cache: bool


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--fix", "fix", is_flag=True, help="Rewrite wrong digits of a live document in place; units, bounds and words are left to you."
)
@click.option("--diff", "diff", is_flag=True, help="Show what --fix would change in a live document, and change nothing.")
@click.option("--format", "form", default="text", show_default=True, metavar="FORM", help="Format of messages: text, github or json.")
@click.option("--require-claims", type=Integer(0), default=0, metavar="INTEGER", help="Fail if the document has fewer than N claims.")
@click.option("--unmarked", is_flag=True, help="List the numbers of a live document that have no claim.")
@click.option(
    "--source", "sources", multiple=True, metavar="FILE", help="Allow a file of your own to be loaded: a config, or code, which is run."
)
@click.option("--templates", metavar="DIR", help="Folder of your own templates that the report was made with.")
@click.option("--no-cache", is_flag=True, help="Trace the steps of models again, and neither read nor write the cache for them.")
def verify(files: Sequence[str], **words: Any) -> int:
    """Regenerate reports and compare, or check every claim of live documents.

    A FILE that Napkin wrote (.html, .md, .json, .tex) is regenerated from the inputs it carries, and every difference is listed as
    edited or drifted; date, versions and machine are shown, but not verified. Any other .md is a live document: blocks define
    models and names, as ```napkin or as comments, <!--napkin ... -->; <!--= EXPRESSION --> after a number is what it must equal.
    Signs and words before the number, such as "<", "at least" and "about", are bounds.
    Exit 1 if something does not hold or cannot be verified, 2 if nothing in a file can be.
    """
    how = VerifyOptions(**words)
    if how.form not in _FORMATS:
        raise click.UsageError(f"unknown format {how.form!r}: {suggestion(how.form, _FORMATS)}")
    if how.fix and how.diff:
        raise click.UsageError("--diff shows what --fix would do: give one of them")
    from reports.live.verify_reports import Regenerated
    from reports.page.inputs import FORMATS

    read = _each([Path(file) for file in files], lambda file: _read(file, how.fix))
    _require_document(read, "--fix" if how.fix else "--diff" if how.diff else "")
    rewritten: dict[Path, Rewriting] = {}
    regenerated = Regenerated(frozenset(FORMATS) & {file.path.suffix for file in read})
    note = "no file is rewritten, since not all can be verified" if how.fix else ""
    outcomes = _each(read, lambda file: _one(file, how, regenerated, rewritten), note)
    _put_in_place(rewritten)  # once every file is judged
    if how.form == "json":
        from reports.jobs.job import json_text

        click.echo(json_text({"schema": 1, "files": [document for _, document in outcomes]}), nl=False)
    return SUCCESS if all(ok for ok, _ in outcomes) else FAILED


def _files(sources: Sequence[str]) -> tuple[Path, ...]:
    """The files of ``sources``, each a path or the name of a model that it has (``hf:PATH``, ``FILE.py:NAME``)."""
    from reports.page.inputs import file_of

    return tuple(file_of(source) or Path(source) for source in sources)


@dataclass(frozen=True, slots=True)
class _File:
    """A file that can be verified. ``inputs``: those of a report, ``None`` for a live document."""

    path: Path
    text: str
    inputs: Inputs | None


def _each(files: Sequence[Given], act: Callable[[Given], Result], note: str = "") -> list[Result]:
    """What ``act`` returns for each file. Raises ``BadInputError`` once all were tried; each refusal is a line of its own, after the
    ``note`` to those who read the results of other files."""
    results: list[Result] = []
    refusals: list[BadInputError] = []
    for file in files:
        try:
            results.append(act(file))
        except BadInputError as error:
            refusals.append(error)
    if refusals and results and note:
        click.echo(f"napkin: {note}", err=True)
    _refuse(refusals)
    return results


def _refuse(refusals: Sequence[BadInputError]) -> None:
    """Raise the last refusal, once those before it are on standard error."""
    from reports.typeset.escape import brief

    for error in refusals[:-1]:
        click.echo(f"napkin: {brief(str(error))}", err=True)
    if refusals:
        raise refusals[-1]


def _read(file: Path, fix: bool) -> _File:
    """A file with its text. Raises ``BadInputError`` if it cannot be verified, or not be rewritten where ``fix`` would do that."""
    from calc.platform import files
    from reports.live import verify_reports

    text = verify_reports.read_text(file)
    inputs = verify_reports.inputs_of(file, text)
    if inputs is None and file.suffix != ".md":
        raise BadInputError(f"{file.name} carries no inputs from which Napkin could make it again, so nothing in it can be verified")
    if inputs is None and fix:
        files.judge(file)
    return _File(file, text, inputs)


def _require_document(read: Sequence[_File], option: str) -> None:
    """Refuse an option that is for live documents, such as ``--fix``, where every file is a report."""
    if option and all(file.inputs is not None for file in read):
        _refuse([_is_report(file, option) for file in read])


def _is_report(file: _File, option: str) -> BadInputError:
    has_commands = "Commands" in file.text or '"commands"' in file.text
    how = " with the command in its section Commands" if has_commands else ""
    return BadInputError(f"{file.path.name} was written by Napkin: {option} is for live documents; make it again{how}")


def _one(
    file: _File, how: VerifyOptions, regenerated: Regenerated, rewritten: dict[Path, Rewriting]
) -> tuple[bool, dict[str, Any]]:
    if file.inputs is None:
        say_idle(file.path, "a live document", "templates")
        return _document(file.path, file.text, how, rewritten)
    say_idle(file.path, "a report", "fix", "diff", "require_claims", "unmarked", "no_cache")
    if not file.inputs.templates:
        say_idle(file.path, "made by no templates of your own", "templates")
    return _report(file, file.inputs, how, regenerated)


def _report(read: _File, inputs: Inputs, how: VerifyOptions, regenerated: Regenerated) -> tuple[bool, dict[str, Any]]:
    from reports.live.verify_reports import shown, summary, verify

    file, own = read.path, None if how.templates is None else Path(how.templates)
    with talk() as say:
        outcome = verify(file, read.text, inputs, _files(how.sources), own, say, regenerated)
    from reports.typeset.escape import brief

    for note in outcome.notes:
        click.echo(brief(f"{file}: {note}"), err=True)
    if how.form == "text":
        for line in summary(outcome, str(file)):
            _say(line)
        if outcome.ok:
            _say(f"{file}: verified: made again from its inputs, every character is the same")
            _say(f"{file}: noted, not verified: {outcome.noted}")
    elif how.form == "github":
        for each in shown(outcome)[:20]:
            _annotate(file, each.line, each.column, str(each))
        if outcome.because:
            _annotate(file, 1, 1, f"not verified: {outcome.because}")
        if outcome.ok:
            click.echo(f"::notice file={_property(str(file))}::noted, not verified: {_message(outcome.noted)}")
    verdict = "verified" if outcome.ok else "not verified" if outcome.because else "differs"
    places = [
        {"line": d.line, "column": d.column, "says": d.says, "right": d.right} | ({"missing_lines": d.missing} if d.missing else {})
        for d in outcome.differences
    ]
    body = {"kind": "report", "verdict": verdict, "because": outcome.because or None, "differences": places, "notes": list(outcome.notes)}
    return outcome.ok, {"file": str(file), **body, "noted": outcome.noted}


def _document(file: Path, text: str, how: VerifyOptions, rewritten: dict[Path, Rewriting]) -> tuple[bool, dict[str, Any]]:
    from reports.live.verify_documents import unmarked

    document, failed, findings = _judged(file, text, how)
    bare = list(unmarked(document)) if how.unmarked else []
    few = len(findings) < how.require_claims
    _tell_failed(file, how.form, failed)
    few_said = f"{len(findings)} claims where at least {how.require_claims} are required" if few else ""
    _tell(file, how.form, findings, bare, how.fix, few_said, len(failed))
    if how.diff or how.fix:
        new = _rewrite(file, text, document, findings, how.diff)
        if new is not None:
            rewritten.setdefault(file.resolve(), new)
    ok = not few and not failed and all(f.holds or (how.fix and f.right) for f in findings)
    return ok, {"file": str(file), "kind": "document", **_body(ok, findings, failed, bare)}


def _judged(
    file: Path, text: str, how: VerifyOptions
) -> tuple[LiveDocument, Sequence[FailedStatement], Sequence[JudgedClaim]]:
    """The document, its statements that failed, and a finding for each claim. Raises ``BadInputError`` for a document without claims."""
    from reports.live.document import read
    from reports.live.engine import Engine
    from reports.live.verify_documents import judge

    try:
        document = read(text)
        _require_no_report(document)
        with talk() as say:
            scope = Engine(file.resolve().parent, _files(how.sources), not how.no_cache, say).run(document.statements)
            findings = judge(document, scope)
        if not findings:
            raise BadInputError(_NOTHING)
    except BadInputError as error:
        raise BadInputError(f"{file}: {error}") from None
    return document, scope.failed, findings


def _body(
    ok: bool, findings: Sequence[JudgedClaim], failed: Sequence[FailedStatement], bare: Sequence[tuple[int, int, str]]
) -> dict[str, Any]:
    """The JSON of a document: verdict, claims, failed statements, numbers without a claim."""
    claims = [
        {"line": f.claim.line, "column": f.claim.column, "expr": f.claim.expr, "says": f.says, "is": f.is_, "holds": f.holds}
        | ({"exact": f.exact} if f.exact else {})
        | {"because": f.message or None}
        for f in findings
    ]
    numbers = [{"line": line, "column": column, "number": number} for line, column, number in bare]
    statements = [{"line": f.line, "column": f.column, "because": f.message} for f in failed]
    return {"verdict": "holds" if ok else "fails", "claims": claims, "failed_statements": statements, "unmarked": numbers}


def _require_no_report(document: LiveDocument) -> None:
    """Refuse a report without its inputs: as a live document, nothing of it would be verified."""
    from reports.live.document import line_of_report

    line = line_of_report(document)
    if line:
        raise BadInputError(
            f"line {line} is from a report that Napkin wrote, but the inputs to regenerate it are missing or cannot be read:"
            " write the report again"
        )


def _tell_failed(file: Path, form: str, failed: Sequence[FailedStatement]) -> None:
    """The statements that could not be run; their dependent claims come later."""
    for each in failed:
        if form == "github":
            _annotate(file, each.line, each.column, f"statement not run: {each.message}")
        elif form == "text":
            _say(f"{file}:{each.line}:{each.column}: statement not run: {each.message}")


def _tell(
    file: Path, form: str, findings: Sequence[JudgedClaim], bare: Sequence[tuple[int, int, str]], fix: bool, few: str, failed: int
) -> None:
    places = [(f.claim.line, f.claim.column, f"{f.message}{_repaired(f) if fix else ''}") for f in findings if not f.holds]
    if form == "github":
        for line, column, message in places:
            _annotate(file, line, column, message)
        for line, column, number in bare:
            click.echo(f"::warning file={_property(str(file))},line={line},col={column}::{number} has no claim")
        if few:
            _annotate(file, 1, 1, few)
    if form != "text":
        return
    for line, column, message in places:
        _say(f"{file}:{line}:{column}: {message}")
    for line, column, number in bare:
        _say(f"{file}:{line}:{column}: {number} has no claim")
    if few:
        _say(f"{file}: {few}")
    repaired = sum(bool(f.right) for f in findings) if fix else 0
    left = _left(repaired, len(places) - repaired) if fix else ""
    _say(f"{file}: {len(findings) - len(places)} of {len(findings)} claims hold{left}{_not_run(failed)}")


def _repaired(finding: JudgedClaim) -> str:
    written = finding.claim.written
    return f"; rewritten as {finding.right}{written.power}" if finding.right and written else "; repair it by hand"


def _left(repaired: int, unrepaired: int) -> str:
    """What ``--fix`` repaired and what remains; empty where every claim held."""
    return f", {repaired} rewritten, {unrepaired} left to repair by hand" if repaired or unrepaired else ""


def _not_run(failed: int) -> str:
    """How many statements did not run; empty if all did."""
    return f"; {failed} statement{'s' if failed != 1 else ''} did not run" if failed else ""


def _rewrite(file: Path, text: str, document: LiveDocument, findings: Sequence[JudgedClaim], diff: bool) -> Rewriting | None:
    """The document with the right numbers, where it has wrong ones; with ``diff`` they are only shown."""
    import difflib

    from calc.platform.files import Output
    from reports.live.verify_documents import fixed

    new = fixed(document, findings)
    if diff:
        lines = difflib.unified_diff(text.splitlines(), new.splitlines(), str(file), str(file), lineterm="")
        for line in lines:
            _say(line)
    elif new != text:
        return Output(file, new, expected=text.encode()), sum(bool(f.right) for f in findings)
    return None


def _put_in_place(rewritten: Mapping[Path, Rewriting]) -> None:
    """Write the documents, all or none; one that has changed since it was read is refused."""
    from calc.platform.files import write
    from reports.typeset.escape import brief

    places = write(*(output for output, _ in rewritten.values()))
    for file, (_, numbers) in zip(places, rewritten.values(), strict=True):
        click.echo(brief(f"rewrote {numbers} number{'s' if numbers != 1 else ''} of {file}"), err=True)


def _say(line: str) -> None:
    from reports.typeset.escape import visible

    click.echo(visible(line))


def _annotate(file: Path, line: int, column: int, message: str) -> None:
    """An annotation as GitHub's workflow commands take it."""
    click.echo(f"::error file={_property(str(file))},line={line},col={column}::{_message(message)}")


def _message(text: str) -> str:
    from reports.typeset.escape import visible

    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    from reports.typeset.escape import visible

    return visible(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
