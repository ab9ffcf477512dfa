"""Whether a report still says what comes out: it is made again from the inputs it carries, and every character compared.

Nothing that a reader sees is trusted, an embedded digest least of all. What is noted of the day and the machine cannot be made again: it
has a grammar, has to agree with itself, and is listed as not verified; where it is another than here, that is said. A model of a user's
own file is only loaded from a file that the user names.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calc.errors import BadInputError, NapkinError
from calc.platform import files
from reports.page.inputs import FORMATS, Inputs, digest_of, embedded, file_of, folder_digest, plain, without_versions

Progress = Callable[[str], None]
_FILE = files.Kind(50_000_000)
_MOST_DIFFERENCES = 10_000
_AHEAD = 20  # lines in which a line that was put in or taken out is looked for
_LONGEST_PATH = 300
_LONGEST_LINE = 100_000  # of what is compared word by word


@dataclass(frozen=True, slots=True)
class ReportDifference:
    """A place of the report, from 1, with what it says and what is right."""

    line: int
    column: int
    says: str
    right: str


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """``because`` says why a report is not verified at all; ``notes`` what was made elsewhere, ``noted`` what cannot be made again."""

    differences: tuple[ReportDifference, ...] = ()
    because: str = ""
    notes: tuple[str, ...] = ()
    noted: str = ""

    @property
    def ok(self) -> bool:
        return not self.differences and not self.because


def read_text(file: Path) -> str:
    """The text of a file, every character as it is there; what can be neither report nor document is refused by its name."""
    if file.suffix not in FORMATS:
        raise BadInputError(f"{file.name} is none of the files that Napkin writes: give a .md, .html, .tex or .json")
    return _FILE.read_text(file)


def inputs_of(file: Path, text: str) -> Inputs | None:
    """What a report was made from; ``None`` for a file that is no report of ours."""
    try:
        inputs = embedded(plain(text), file.suffix)
        if inputs is not None:
            inputs.require_grammar()
        return inputs
    except BadInputError as error:
        raise BadInputError(f"{file.name}: {error}") from None


def verify(file: Path, text: str, inputs: Inputs, sources: Sequence[Path], templates: Path | None, progress: Progress) -> VerifiedReport:
    """The report beside what its inputs make today. ``sources`` and ``templates`` are a user's own, where they name them."""
    because = _foreign(inputs, templates)
    if because:
        return VerifiedReport(because=because)
    try:
        texts, environment = _remade(inputs, sources, templates if inputs.templates else None, progress, (file.suffix,))
    except _Unnamed as error:
        return VerifiedReport(because=str(error))
    except NapkinError as error:
        return VerifiedReport(because=f"it cannot be made again: {error}")
    right = next((made for name, made in texts.items() if name.endswith(file.suffix)), None)
    if right is None:
        return VerifiedReport(because=f"a {inputs.kind} is not written as {file.suffix}")
    source = _other_source(inputs, environment)
    if source:
        return VerifiedReport(because=source)
    differing = itertools.islice(differences(plain(text), right), _MOST_DIFFERENCES)
    return VerifiedReport(tuple(differing), notes=tuple(_elsewhere(inputs, environment)), noted=_noted(inputs))


def _noted(inputs: Inputs) -> str:
    """What stands in a report and cannot be made again: the day, the machine, and where the user's own files were."""
    models = [words[0] for text in (inputs.model, inputs.other) if (words := shlex.split(text) if inputs.kind == "compare" else [text])]
    places = [f"file {str(file)[:_LONGEST_PATH]}" for file in map(file_of, models) if file is not None]
    return ", ".join([inputs.of_machine.noted, *places])


def _other_source(inputs: Inputs, here: Mapping[str, str]) -> str:
    """Why the noted source is not the model's; nothing where it is. A file of the user's own has another name here, and the same digest."""
    file, right = file_of(inputs.model), here.get("source", "")
    if file is not None and file.suffix == ".py":
        right = f"{file.name}, sha256 {inputs.digest[:16]}"
    noted = inputs.environment.get("source", right)
    return "" if without_versions(noted) == without_versions(right) else f"it notes the model's source as {noted}, which is {right}"


class _Unnamed(BadInputError):
    """A report is of a file that the user did not name."""


def _word(model: str, digest: str, sources: Sequence[Path]) -> str:
    """The word that loads a report's model; a file of the user's own is loaded only where it is named."""
    file = file_of(model)
    if file is None:
        return model
    if not sources:
        raise _Unnamed(f"it is of {file}, a file of your own: name it with --source FILE")
    source = next((source for source in sources if digest_of(source) == digest), None)
    if source is None:
        raise _Unnamed(f"{sources[0]} is not the file that it was made from: its SHA-256 differs")
    head, tail = ("hf:", "") if model.startswith("hf:") else ("", f":{model.rpartition(':')[2]}")
    return f"{head}{source}{tail}"


def _compared(inputs: Inputs, sources: Sequence[Path], progress: Progress) -> Texts:
    from reports.jobs import compared

    both = compared.sides(inputs.model, inputs.other, inputs.options)
    digests = (inputs.digest, inputs.other_digest)
    words = [_word(side[0], digest, sources) for side, digest in zip((both.left, both.right), digests, strict=True)]
    contrast, here = compared.compare(both, progress, words)
    return compared.texts(contrast, here.as_noted(inputs)), here.environment


def _foreign(inputs: Inputs, templates: Path | None) -> str:
    """Why it is not made again by a user's own templates."""
    if not inputs.templates:
        return ""
    if templates is None or not os.path.isdir(templates):
        return "it is laid out by templates of your own: name their folder with --templates DIR"
    if folder_digest(templates) != inputs.templates:
        return f"{templates} does not hold the templates that it was made with: their SHA-256 differs"
    return ""


Texts = tuple[Mapping[str, str], Mapping[str, str]]
"""By file name, and the environment here."""


def _remade(inputs: Inputs, sources: Sequence[Path], templates: Path | None, progress: Progress, formats: Collection[str]) -> Texts:
    """What ``inputs`` make, in ``formats`` at least."""
    inputs = inputs.of_machine
    if inputs.kind == "compare":
        return _compared(inputs, sources, progress)
    word = _word(inputs.model, inputs.digest, sources)
    if inputs.kind == "lecture":
        from reports.lecture import writing

        here = Inputs(kind="lecture", environment=dict(writing.provenance()))
        return writing.make(progress, here.as_noted(inputs))[1], here.environment
    if inputs.kind != "report":
        raise BadInputError(f"{inputs.kind[:40]!r} is no kind of report that is known here")
    from calc.options import made
    from reports.jobs.report import make
    from reports.jobs.request import Request
    from reports.writers.render import look_of

    if inputs.device not in ("cpu", "cuda"):
        raise BadInputError(f"unknown device {inputs.device[:40]!r}")
    request = Request(word, inputs.sizes, made(**inputs.options), written=inputs.model)
    look = look_of(inputs.template, str(templates or ""))
    report = make(request, inputs.device, progress, inputs, look, inputs.gpu, formats)
    return report.texts, report.environment


def _elsewhere(inputs: Inputs, here: Mapping[str, str]) -> Iterator[str]:
    for name, value in inputs.environment.items():
        if here.get(name, value) != value:
            yield f"made with {name} {value}, here it is {here[name]}"


_TOKEN = re.compile(r"\w+(?:[.,]\w+)*|\s+|.", re.DOTALL)


def differences(says: str, right: str) -> Iterator[ReportDifference]:
    """Where two texts differ, word by word, in the order of the first."""
    if says == right:
        return
    ours, theirs = says.split("\n"), right.split("\n")
    for i, one, right_line in _pairs(ours, theirs):
        if one is None:
            yield ReportDifference(max(i, 1), 1, "", _clipped(right_line or ""))
        elif right_line is None:
            yield ReportDifference(i + 1, 1, _clipped(one), "")
        else:
            yield from _in_line(i + 1, one, right_line)


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, str | None, str | None]]:
    """Lines that differ, with the place of the first, from 0; ``None`` where one of the texts lacks the line.

    A line that was put in or taken out is looked for in the next few lines only, so the time is proportional to the lines.
    """
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            i, j = i + 1, j + 1
            continue
        added, missing = _skipped(ours[i : i + _AHEAD], theirs[j : j + _AHEAD]) if len(ours) != len(theirs) else (0, 0)
        for _ in range(added):
            yield i, ours[i], None
            i += 1
        for _ in range(missing):
            yield i, None, theirs[j]
            j += 1
        if not added and not missing:
            yield i, ours[i], theirs[j]
            i, j = i + 1, j + 1
    yield from ((at, ours[at], None) for at in range(i, len(ours)))
    yield from ((i, None, theirs[at]) for at in range(j, len(theirs)))


def _skipped(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """How many lines to leave out on either side until they agree, as few as will do; none where the first ones replace each other."""
    for count in range(1, _AHEAD):
        if count < len(ours) and count < len(theirs) and ours[count] and ours[count] == theirs[count]:
            return 0, 0
        if count < len(ours) and ours[count] == theirs[0]:
            return count, 0
        if count < len(theirs) and ours[0] == theirs[count]:
            return 0, count
    return 0, 0


def _in_line(line: int, says: str, right: str) -> Iterator[ReportDifference]:
    """Differing words of one line; a line of other words altogether, or a very long one, is one difference."""
    short = len(says) + len(right) <= _LONGEST_LINE
    ours, theirs = (_TOKEN.findall(says), _TOKEN.findall(right)) if short else ([], [""])
    if len(ours) != len(theirs):
        start = max(_common(says, right) - 20, 0)
        yield ReportDifference(line, start + 1, _clipped(says[start:]), _clipped(right[start:]))
        return
    column = 1
    for one, right_word in zip(ours, theirs, strict=True):
        if one != right_word:
            yield ReportDifference(line, column, _clipped(one), _clipped(right_word))
        column += len(one)


def _common(one: str, two: str) -> int:
    """How many characters two texts begin with alike, by halving."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == two[low:middle] else (low, middle - 1)
    return low


def _clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def summary(report: VerifiedReport, file: str, most: int = 20) -> Sequence[str]:
    """One line for each difference, the first ``most`` of them."""
    if report.because:
        return [f"{file}: not verified: {report.because}"]
    lines = [_line(file, each) for each in report.differences[:most]]
    more = len(report.differences) - most
    least = "at least " if len(report.differences) == _MOST_DIFFERENCES else ""
    return [*lines, *([f"{file}: and {least}{more:,} more differences"] if more > 0 else [])]


def _line(file: str, difference: ReportDifference) -> str:
    if not difference.right:
        return f"{file}:{difference.line}:{difference.column}: {difference.says!r} does not belong here"
    if not difference.says:
        return f"{file}:{difference.line}:{difference.column}: missing: {difference.right!r}"
    return f"{file}:{difference.line}:{difference.column}: says {difference.says!r}, right is {difference.right!r}"
