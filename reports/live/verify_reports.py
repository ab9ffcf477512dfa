"""Checks of a report: Napkin makes it again from its embedded inputs and compares every character.

Nothing that a reader sees is trusted, not even an embedded digest. Notes on date and machine cannot be made again: they must match a
grammar and agree with each other, and are listed as not verified; a difference to this machine is reported. A user's own model is loaded
only from a file that the user names.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from calc.errors import BadInputError, NapkinError
from calc.platform import files
from calc.platform.progress import Progress
from calc.symbolic.search import last
from reports.page.inputs import (
    FORMATS,
    INTERACTIVE,
    REPORT,
    SITE,
    Inputs,
    digest_of,
    embedded,
    file_of,
    folder_digest,
    plain,
    without_versions,
)

_FILE = files.Kind(50_000_000)
_MOST_DIFFERENCES = 10_000
_AHEAD = 20  # lines searched for an inserted or deleted line
_LONGEST_PATH = 300
_LONGEST_LINE = 100_000  # characters of two lines that are compared word by word


@dataclass(frozen=True, slots=True)
class ReportDifference:
    """A difference: line and column from 1, the text of the report, and the correct text. ``missing``: how many lines there are still to
    come where the report ends, the first of them ``right``; 0 for another difference."""

    line: int
    column: int
    says: str
    right: str
    missing: int = 0

    @property
    def is_blank(self) -> bool:
        """Whether it is only a line end that is missing or does not belong, as of a line without text."""
        return not self.says and not self.right and not self.missing

    def __str__(self) -> str:
        if self.missing:
            return f"the file ends at line {self.line}; {self.missing:,} lines are missing"
        if self.is_blank:
            return "a line end is missing or does not belong here"
        if not self.right:
            return f"{self.says!r} does not belong here"
        return f"says {self.says!r}, right is {self.right!r}" if self.says else f"missing: {self.right!r}"


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """The result of a check.

    ``because``: why the report could not be verified. ``notes``: differences of the machine. ``noted``: what cannot be verified.
    """

    differences: tuple[ReportDifference, ...] = ()
    because: str = ""
    notes: tuple[str, ...] = ()
    noted: str = ""

    @property
    def ok(self) -> bool:
        return not self.differences and not self.because


def read_text(file: Path) -> str:
    """The text of a file, unchanged. Raises ``BadInputError`` for a folder, and for a suffix that neither reports nor documents have."""
    if file.is_dir():
        raise BadInputError(f"{files.shown(file)} is a folder: give a .md, .html, .tex or .json file")
    if file.suffix not in FORMATS:
        raise BadInputError(f"{file.name} is not a file that Napkin writes: give a .md, .html, .tex or .json")
    return _FILE.read_text(file)


def inputs_of(file: Path, text: str) -> Inputs | None:
    """The inputs in a report; ``None`` if the file is not a report of Napkin. Raises ``BadInputError`` if they are damaged."""
    try:
        inputs = embedded(plain(text), file.suffix)
        if inputs is not None:
            inputs.require_grammar()
        return inputs
    except BadInputError as error:
        raise BadInputError(f"{file.name}: {error}") from None


def verify(
    file: Path,
    text: str,
    inputs: Inputs,
    sources: Sequence[Path],
    templates: Path | None,
    progress: Progress,
    regenerated: Regenerated | None = None,
) -> VerifiedReport:
    """The differences between a report and the same report made now. ``sources``, ``templates``: the user's own, if named.
    ``regenerated`` holds the reports of files that were verified before."""
    because = _foreign(inputs, templates)
    if because:
        return VerifiedReport(because=because)
    try:
        output = regenerated or Regenerated(frozenset((file.suffix,)))
        texts, environment = output.of(inputs, sources, templates if inputs.templates else None, progress)
    except _Unnamed as error:
        return VerifiedReport(because=str(error))
    except NapkinError as error:
        return VerifiedReport(because=f"it cannot be made again: {error}")
    ending = f"/{inputs.model}" if inputs.kind == SITE else file.suffix
    right = next((output for name, output in texts.items() if f"/{name}".endswith(ending)), None)
    if right is None:
        return VerifiedReport(because=f"Napkin writes no {inputs.kind} as {ending[:60]}")
    source = _other_source(inputs, environment)
    if source:
        return VerifiedReport(because=source)
    differing = itertools.islice(differences(plain(text), right), _MOST_DIFFERENCES)
    return VerifiedReport(tuple(differing), notes=tuple(_elsewhere(inputs, environment)), noted=_noted(inputs))


def _noted(inputs: Inputs) -> str:
    """The notes that cannot be verified, as text: date, machine, and paths of the user's own files."""
    places = [f"file {str(file)[:_LONGEST_PATH]}" for file in map(file_of, _models(inputs)) if file is not None]
    return ", ".join([inputs.of_machine.noted, *places])


def _models(inputs: Inputs) -> list[str]:
    """The model arguments of a report."""
    if inputs.kind == "table":
        return [step[0] for step in map(shlex.split, shlex.split(inputs.model)) if step]
    if inputs.kind == "compare":
        return [side[0] for side in map(shlex.split, (inputs.model, inputs.other)) if side]
    return [inputs.model.partition(" ")[0] if inputs.kind == "homework" else inputs.model]


def _other_source(inputs: Inputs, environment: Mapping[str, str]) -> str:
    """Why the noted source is not the model's; empty if it is. A user's file may have another path here, but has the same digest."""
    file, right = file_of(inputs.model), environment.get("source", "")
    if file is not None and file.suffix == ".py":
        right = f"{file.name}, sha256 {inputs.digest[:16]}"
    noted = inputs.environment.get("source", right)
    return (
        "" if without_versions(noted) == without_versions(right) else f"it gives the model's source as {noted}, but the source is {right}"
    )


class _Unnamed(BadInputError):
    """A report is about a file that the user did not name."""


def _word(model: str, digest: str, sources: Sequence[Path]) -> str:
    """The model argument that loads a report's model. Raises ``_Unnamed`` for a user's file that is not named."""
    file = file_of(model)
    if file is None:
        return model
    if not sources:
        raise _Unnamed(f"it is about {file}, a file of your own: name it with --source FILE")
    source = next((source for source in sources if digest_of(source) == digest), None)
    if source is None:
        raise _Unnamed(f"it was made from another file than {sources[0]}: the SHA-256 differs")
    head, tail = ("hf:", "") if model.startswith("hf:") else ("", f":{model.rpartition(':')[2]}")
    return f"{head}{source}{tail}"


def _compared(inputs: Inputs, sources: Sequence[Path], progress: Progress) -> Texts:
    from reports.jobs import compared

    both = compared.sides(inputs.model, inputs.other, inputs.options)
    digests = (inputs.digest, inputs.other_digest)
    models = [_word(side[0], digest, sources) for side, digest in zip((both.left, both.right), digests, strict=True)]
    contrast, regenerated = compared.compare(both, progress, models)
    return compared.texts(contrast, regenerated.as_noted(inputs)), regenerated.environment


def _side_by_side(inputs: Inputs, sources: Sequence[Path], progress: Progress) -> Texts:
    from reports.jobs import side_by_side as jobs

    table_steps = jobs.steps_of(inputs)
    digests = inputs.digest.split() or [""] * len(table_steps.models)
    if len(digests) != len(table_steps.models):
        raise BadInputError("its inputs are not as Napkin writes them: make the report again")
    model_words = [_word(model[0], digest, sources) for model, digest in zip(table_steps.models, digests, strict=True)]
    table, regenerated = jobs.compute(table_steps, progress, model_words)
    return jobs.texts(table, regenerated.as_noted(inputs)), regenerated.environment


def _homework(inputs: Inputs, sources: Sequence[Path], progress: Progress) -> Texts:
    from reports.jobs import homework as jobs

    table_steps, run, quantities = jobs.asked_of(inputs)
    if inputs.template not in jobs.SHEETS:
        raise BadInputError(f"unknown sheet {inputs.template[:40]!r}")
    word = _word(table_steps.models[0][0], inputs.digest, sources)
    derivations, exercises, regenerated = jobs.compute(table_steps, run, progress, word, quantities)
    return jobs.texts((derivations, exercises, regenerated.as_noted(inputs)), inputs.template), regenerated.environment


def _foreign(inputs: Inputs, templates: Path | None) -> str:
    """Why the user's own templates cannot make it again; empty if they can or if it has none."""
    if not inputs.templates:
        return ""
    if templates is None or not os.path.isdir(templates):
        return "it uses templates of your own: name their folder with --templates DIR"
    if folder_digest(templates) != inputs.templates:
        return f"it was made with other templates than those in {templates}: the SHA-256 differs"
    return ""


Texts = tuple[Mapping[str, str], Mapping[str, str]]
"""(file name → text, environment of this machine)."""


@dataclass(frozen=True, slots=True)
class Regenerated:
    """Reports made again, each once for all of its files. ``formats``: the suffixes of all files."""

    formats: frozenset[str]
    _texts: dict[str, Texts] = field(default_factory=dict)

    def of(self, inputs: Inputs, sources: Sequence[Path], templates: Path | None, progress: Progress) -> Texts:
        """The report that ``inputs`` make; of a site, every page."""
        key = (replace(inputs, model="") if inputs.kind == SITE else inputs).text()
        if key not in self._texts:
            self._texts[key] = _remade(inputs, sources, templates, _with_duration(progress), self.formats)
        return self._texts[key]


def _with_duration(progress: Progress) -> Progress:
    """``progress``, which says how long it takes before the first stage of making a report again: one that is refused has none."""
    unsaid = iter(("making it again, which takes as long as it did the first time",))

    def say(stage: str) -> None:
        for duration in unsaid:
            progress(duration)
        progress(stage)

    return say


def _remade(inputs: Inputs, sources: Sequence[Path], templates: Path | None, progress: Progress, formats: Collection[str]) -> Texts:
    """The texts that ``inputs`` make, at least in ``formats``, and the environment of this machine."""
    inputs = inputs.of_machine
    if inputs.kind == "compare":
        return _compared(inputs, sources, progress)
    if inputs.kind == "table":
        return _side_by_side(inputs, sources, progress)
    if inputs.kind == "homework":
        return _homework(inputs, sources, progress)
    word = _word(inputs.model, inputs.digest, sources)
    if inputs.kind == "lecture":
        from reports.lecture import writing

        regenerated = Inputs(kind="lecture", environment=dict(writing.provenance()))
        return writing.make(progress, regenerated.as_noted(inputs))[1], regenerated.environment
    if inputs.kind == SITE:
        return _site(inputs, progress)
    if inputs.kind not in (REPORT, INTERACTIVE):
        raise BadInputError(f"unknown kind of report {inputs.kind[:40]!r}")
    return _report(inputs, word, templates, progress, formats)


def _site(inputs: Inputs, progress: Progress) -> Texts:
    from reports.jobs import site

    return site.texts(progress, inputs.date), {}


def _report(inputs: Inputs, word: str, templates: Path | None, progress: Progress, formats: Collection[str]) -> Texts:
    """A report, or the page with a script beside it."""
    from calc.options import made
    from reports.jobs.interactive import FILE, interactive
    from reports.jobs.report import ReportChoices, make
    from reports.jobs.request import Request
    from reports.writers.render import look_of

    if inputs.device not in ("cpu", "cuda"):
        raise BadInputError(f"unknown device {inputs.device[:40]!r}")
    request = Request(word, inputs.sizes, made(**inputs.options), written=inputs.model)
    look = look_of(inputs.template, str(templates or ""))
    noted = replace(inputs, kind=REPORT)
    report = make(request, ReportChoices(inputs.device, look, inputs.gpu, inputs.other.split(), formats), progress, noted)
    if inputs.kind == REPORT:
        return report.texts, report.environment
    return {FILE: interactive(request, report.texts["report.html"], progress, look, inputs.gpu)}, report.environment


def _elsewhere(inputs: Inputs, environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in inputs.environment.items():
        if environment.get(name, value) != value:
            yield f"made with {name} {value}, here {name} is {environment[name]}"


_TOKEN = re.compile(r"\w+(?:[.,]\w+)*|\s+|.", re.DOTALL)


def differences(says: str, right: str) -> Iterator[ReportDifference]:
    """The differences of two texts, word by word, in order."""
    if says == right:
        return
    ours, theirs = _lines(says), _lines(right)
    if ours == theirs:  # all but the last line end
        yield ReportDifference(max(len(ours), 1), 1, "", "")
    for i, line, right_lines in _pairs(ours, theirs):
        right_line = right_lines[0] if right_lines else None
        if line is None:
            missing = len(right_lines) if len(right_lines) > 1 else 0
            yield ReportDifference(max(i, 1), 1, "", _clipped(right_line or ""), missing)
        elif right_line is None:
            yield ReportDifference(i + 1, 1, _clipped(line), "")
        else:
            yield from _in_line(i + 1, line, right_line)


def _lines(text: str) -> list[str]:
    """The lines of a text. What is behind its last line end is none."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, str | None, Sequence[str]]]:
    """(line from 0, first text, line of the second text) for each differing line: ``None`` and empty if a text lacks the line. Where the
    first text ends, all lines of the second that are still to come are one difference.

    Inserted and deleted lines are searched in the next few lines only, so the time is linear.
    """
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            i, j = i + 1, j + 1
            continue
        added, missing = _skipped(ours[i : i + _AHEAD], theirs[j : j + _AHEAD]) if len(ours) != len(theirs) else (0, 0)
        for _ in range(added):
            yield i, ours[i], ()
            i += 1
        for _ in range(missing):
            yield i, None, theirs[j : j + 1]
            j += 1
        if not added and not missing:
            yield i, ours[i], theirs[j : j + 1]
            i, j = i + 1, j + 1
    yield from ((at, ours[at], ()) for at in range(i, len(ours)))
    if j < len(theirs):
        yield i, None, theirs[j:]


def _skipped(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """The fewest lines to skip in either text until both agree; (0, 0) if the first line of one replaces that of the other."""
    for count in range(1, _AHEAD):
        if count < len(ours) and count < len(theirs) and ours[count] and ours[count] == theirs[count]:
            return 0, 0
        if count < len(ours) and ours[count] == theirs[0]:
            return count, 0
        if count < len(theirs) and ours[0] == theirs[count]:
            return 0, count
    return 0, 0


def _in_line(line: int, says: str, right: str) -> Iterator[ReportDifference]:
    """The differing words of a line; one difference for the whole line if the words do not correspond or it is very long."""
    short = len(says) + len(right) <= _LONGEST_LINE
    ours, theirs = (_TOKEN.findall(says), _TOKEN.findall(right)) if short else ([], [""])
    if len(ours) != len(theirs):
        start = max(_common(says, right) - 20, 0)
        yield ReportDifference(line, start + 1, _clipped(says[start:]), _clipped(right[start:]))
        return
    column = 1
    for word, right_word in zip(ours, theirs, strict=True):
        if word != right_word:
            yield ReportDifference(line, column, _clipped(word), _clipped(right_word))
        column += len(word)


def _common(first: str, second: str) -> int:
    """The length of the common prefix of two texts."""
    return last(lambda length: first[:length] == second[:length], 0, min(len(first), len(second)) + 1)


def _clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def shown(report: VerifiedReport) -> Sequence[ReportDifference]:
    """The differences that are listed: blank lines only if nothing else differs."""
    return [each for each in report.differences if not each.is_blank] or report.differences


def summary(report: VerifiedReport, file: str, most: int = 20) -> Sequence[str]:
    """One line for each of the first ``most`` differences."""
    if report.because:
        return [f"{file}: not verified: {report.because}"]
    lines = [f"{file}:{each.line}:{each.column}: {each}" for each in shown(report)[:most]]
    omitted = len(shown(report)) - most
    least = "at least " if len(report.differences) == _MOST_DIFFERENCES else ""
    return [*lines, *([f"{file}: and {least}{omitted:,} more differences"] if omitted > 0 else [])]
