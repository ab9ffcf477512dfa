"""Whether a report still says what comes out: it is made again from the inputs it carries, and every character compared.

Nothing that a reader sees is trusted, an embedded digest least of all. What is noted of the day and the machine cannot be made again;
it has to agree with itself, and where it is another than here, that is said. A model of a user's own file is only loaded from a file
that the user names.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calc import files
from calc.errors import BadInputError, NapkinError
from reports.inputs import FORMATS, Inputs, digest_of, embedded, file_of, folder_digest

Progress = Callable[[str], None]
_FILE = files.Kind(50_000_000)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place of the report, from 1, with what it says and what is right."""

    line: int
    column: int
    says: str
    right: str


@dataclass(frozen=True, slots=True)
class Verified:
    """``because`` says why a report is not verified at all; ``notes`` what was made elsewhere."""

    differences: tuple[Difference, ...] = ()
    because: str = ""
    notes: tuple[str, ...] = ()

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
        return embedded(text, file.suffix)
    except BadInputError as error:
        raise BadInputError(f"{file.name}: {error}") from None


def verify(file: Path, text: str, inputs: Inputs, sources: Sequence[Path], templates: Path | None, progress: Progress) -> Verified:
    """The report beside what its inputs make today. ``sources`` and ``templates`` are a user's own, where they name them."""
    because = _foreign(inputs, templates)
    if because:
        return Verified(because=because)
    try:
        texts, environment = _remade(inputs, sources, templates if inputs.templates else None, progress, (file.suffix,))
    except _Unnamed as error:
        return Verified(because=str(error))
    except NapkinError as error:
        return Verified(because=f"it cannot be made again: {error}")
    right = next((made for name, made in texts.items() if name.endswith(file.suffix)), None)
    if right is None:
        return Verified(because=f"a {inputs.kind} is not written as {file.suffix}")
    return Verified(tuple(differences(text, right)), notes=tuple(_elsewhere(inputs, environment)))


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
    from reports import compared

    both = compared.sides(inputs.model, inputs.other, inputs.options)
    digests = (inputs.digest, inputs.other_digest)
    words = [_word(side[0], digest, sources) for side, digest in zip((both.left, both.right), digests, strict=True)]
    found, here = compared.compare(both, progress, words)
    return compared.texts(found, here.as_noted(inputs)), here.environment


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
    if inputs.kind == "compare":
        return _compared(inputs, sources, progress)
    word = _word(inputs.model, inputs.digest, sources)
    if inputs.kind == "lecture":
        from reports import lecture

        return lecture.make(progress, inputs)[1], dict(lecture.provenance())
    if inputs.kind != "report":
        raise BadInputError(f"{inputs.kind[:40]!r} is no kind of report that is known here")
    from calc.options import made
    from reports import job
    from reports.render import look_of

    if inputs.device not in ("cpu", "cuda"):
        raise BadInputError(f"unknown device {inputs.device[:40]!r}")
    request = job.Request(word, inputs.sizes, made(**inputs.options), written=inputs.model)
    look = look_of(inputs.template, str(templates or ""))
    found = job.make(request, inputs.device, progress, inputs, look, inputs.gpu, formats)
    return found.texts, found.environment


def _elsewhere(inputs: Inputs, here: Mapping[str, str]) -> Iterator[str]:
    for name, value in inputs.environment.items():
        if here.get(name, value) != value:
            yield f"made with {name} {value}, here it is {here[name]}"


_TOKEN = re.compile(r"\w+(?:[.,]\w+)*|\s+|.", re.DOTALL)


def differences(says: str, right: str) -> Iterator[Difference]:
    """Where two texts differ, word by word, in the order of the first."""
    if says == right:
        return
    ours, theirs = says.split("\n"), right.split("\n")
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False) if len(ours) != len(theirs) else None
    pairs = [("replace", 0, len(ours), 0, len(theirs))] if matcher is None else matcher.get_opcodes()
    for kind, a, b, c, d in pairs:
        if kind == "equal":
            continue
        for i in range(max(b - a, d - c)):
            one = ours[a + i] if a + i < b else None
            other = theirs[c + i] if c + i < d else None
            if one is None:
                yield Difference(b or 1, 1, "", _clipped(other or ""))
            elif other is None:
                yield Difference(a + i + 1, 1, _clipped(one), "")
            elif one != other:
                yield from _in_line(a + i + 1, one, other)


def _in_line(line: int, says: str, right: str) -> Iterator[Difference]:
    """Differing words of one line; a line of other words altogether is one difference."""
    ours, theirs = _TOKEN.findall(says), _TOKEN.findall(right)
    if len(ours) != len(theirs):
        start = next((i for i, (x, y) in enumerate(zip(says, right, strict=False)) if x != y), min(len(says), len(right)))
        start = max(start - 20, 0)
        yield Difference(line, start + 1, _clipped(says[start:]), _clipped(right[start:]))
        return
    column = 1
    for one, other in zip(ours, theirs, strict=True):
        if one != other:
            yield Difference(line, column, _clipped(one), _clipped(other))
        column += len(one)


def _clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def summary(found: Verified, file: str, most: int = 20) -> Sequence[str]:
    """One line for each difference, the first ``most`` of them."""
    if found.because:
        return [f"{file}: not verified: {found.because}"]
    lines = [_line(file, each) for each in found.differences[:most]]
    more = len(found.differences) - most
    return [*lines, *([f"{file}: and {more:,} more differences"] if more > 0 else [])]


def _line(file: str, found: Difference) -> str:
    if not found.right:
        return f"{file}:{found.line}:{found.column}: {found.says!r} does not belong here"
    if not found.says:
        return f"{file}:{found.line}:{found.column}: missing: {found.right!r}"
    return f"{file}:{found.line}:{found.column}: says {found.says!r}, right is {found.right!r}"
