"""What a report was made from, as a line that travels in it: enough to make it again, and nothing else.

It stands in HTML as a ``meta`` element, in Markdown and LaTeX as a comment, in JSON under ``inputs``. What a reader sees is never read
from it: a report is verified by making it again from this and comparing every character.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.platform import files

FORMATS = (".md", ".html", ".tex", ".json")
_LONGEST = 200_000
_OWN = files.Kind(2**26)
_HTML = re.compile(r'<meta name="napkin-inputs" content="(?P<inputs>[^"]{1,200000})">')
_LATEX = re.compile(r"^% napkin-inputs (?P<inputs>\{.{1,200000}\})$", re.MULTILINE)
_MARKDOWN = re.compile(r"^<!-- napkin-inputs (?P<inputs>\{.{1,200000}\}) -->$", re.MULTILINE)


# What may be noted of the day and the machine, by name: of a run, with "check: " before it. What is noted by another name is made anew.
_VERSION = r"[0-9]{1,8}(?:\.[0-9]{1,8}){0,4}(?:\.?(?:a|b|rc|dev|post)[0-9]{1,12}){0,3}(?:\+[A-Za-z0-9.]{0,40})?"
_NOTED = {
    "napkin": rf"{_VERSION}|not installed",
    "torch": _VERSION,
    "torch_untried": rf"torch {_VERSION} is newer than {_VERSION}, the newest that Napkin was tried with",
    "transformers": _VERSION,
    "python": _VERSION,
    "numpy": _VERSION,
    "sympy": _VERSION,
    "platform": r"[A-Za-z][A-Za-z0-9._-]{0,19}",
    "device": r"(?:cpu|cuda(?::[0-9]{1,3})?) \([A-Za-z0-9 ._+/()-]{0,64}\)",
    "dtype": r"[a-z][a-z0-9_]{1,19}",
    "seed": r"[0-9]{1,10}",
}
_OF_LIBRARY = rf"[A-Za-z][A-Za-z0-9_]{{0,79}} of transformers {_VERSION}, config sha256 [0-9a-f]{{16}}"
_TRANSFORMERS = re.compile(rf"(?<= of transformers ){_VERSION}(?=, config sha256 )")


@dataclass(frozen=True, slots=True)
class Inputs:
    """``kind`` says which command made it; ``device`` is where its checks ran, ``gpu`` whose memory and rates its figures show; ``digest``
    is the SHA-256 of a user's own file, ``templates`` that of a folder of templates of their own; ``date`` and ``environment`` are what
    was noted of the day and the machine."""

    kind: str
    model: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    gpu: str = ""
    digest: str = ""
    template: str = ""
    templates: str = ""
    date: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    other: str = ""
    other_digest: str = ""

    @property
    def noted(self) -> str:
        """The day and the machine in words. Every layout prints them: what cannot be made again has to agree with what stands here."""
        noted = self.environment
        own = {name: value for name, value in noted.items() if noted.get(name.removeprefix("check: ")) != value or "check: " not in name}
        words = ", ".join(f"{name} {value}" for name, value in own.items() if (name, value) != ("source", "built-in"))
        return f"{self.date} with {words}" if words else self.date

    @property
    def of_machine(self) -> Inputs:
        """These, with nothing noted but what can be: the day, versions, the machine and the model's source."""
        return replace(self, environment={name: value for name, value in self.environment.items() if name == "source" or _grammar(name)})

    def require_grammar(self) -> None:
        """Refuse what no report notes: it cannot be made anew, so anything could stand there."""
        if self.date and not _is_date(self.date) and (self.kind, self.date) != ("lecture", "demand"):
            raise BadInputError(f"its date is noted as {self.date[:60]!r}, which is no date: make the report anew")
        for name, value in self.environment.items():
            grammar = self._sources if name == "source" else _grammar(name)
            if grammar and not re.fullmatch(grammar, value):
                raise BadInputError(f"its {name} is noted as {value[:60]!r}, which Napkin never writes: make the report anew")

    @property
    def _sources(self) -> str:
        """What may be noted as the model's source: the user's own file by its name and digest, or ours."""
        file = file_of(self.model)
        if file is not None and file.suffix == ".py":
            return f"{re.escape(file.name)}, sha256 [0-9a-f]{{16}}"
        return f"built-in|{_OF_LIBRARY}"

    def as_noted(self, earlier: Inputs) -> Inputs:
        """These, with the day and the machine of ``earlier``, as far as it has them."""
        environment = {name: earlier.environment.get(name, value) for name, value in self.environment.items()}
        return replace(self, date=earlier.date, environment=environment)

    def text(self) -> str:
        """One line of JSON in which no character can end a comment or an attribute."""
        line = json.dumps({name: value for name, value in asdict(self).items() if value}, ensure_ascii=True)
        for sign in "<>&'`":
            line = line.replace(sign, f"\\u{ord(sign):04x}")
        return line.replace("--", "-\\u002d")


def _grammar(name: str) -> str:
    """What a value noted by that name looks like; nothing where no value is noted by it."""
    return _NOTED.get(name.removeprefix("check: "), "")


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def without_versions(source: str) -> str:
    """A model's source but for the version of transformers, which cannot be made anew."""
    return _TRANSFORMERS.sub("", source)


def plain(text: str) -> str:
    """A text of ours as it was written: without the byte order mark and the line ends that another program gave it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def digest_of(file: Path) -> str:
    """SHA-256 of a file's bytes; of a folder, those of its ``config.json``."""
    file = file / "config.json" if os.path.isdir(file) else file  # os.path, unlike Path, says no to names that no file can have
    return hashlib.sha256(_OWN.read_bytes(file)).hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 of the templates and style sheets of a folder, names included."""
    own = sorted(file for file in folder.glob("*") if file.suffix in (".j2", ".css"))
    return hashlib.sha256("".join(f"{file.name}:{digest_of(file)};" for file in own).encode()).hexdigest()


def file_of(model: str) -> Path | None:
    """The user's own file in a model's word; ``None`` for a built-in."""
    if model.startswith("hf:"):
        return Path(model.removeprefix("hf:"))
    path, colon, _ = model.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def embedded(text: str, suffix: str) -> Inputs | None:
    """The inputs of a report; ``None`` where there are none. Malformed ones are refused."""
    if suffix == ".json":
        return _of_json(text)
    match = {".html": _HTML, ".tex": _LATEX}.get(suffix, _MARKDOWN).search(text)
    if match is None:
        return None
    written = match["inputs"].replace("&#34;", '"') if suffix == ".html" else match["inputs"]
    return _read(_parsed(written))


def _of_json(text: str) -> Inputs | None:
    body = _parsed(text)
    if not isinstance(body, dict) or "inputs" not in body:
        return None
    return _read(body["inputs"])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"not JSON: {str(error)[:100]}") from None


_TEXTS = ("kind", "model", "device", "gpu", "digest", "template", "templates", "date", "other", "other_digest")


def _read(body: Any) -> Inputs:
    if not isinstance(body, dict) or not body.keys() <= Inputs.__dataclass_fields__.keys() or "kind" not in body:
        raise BadInputError("its inputs are not as Napkin writes them: make the report anew")
    plain = all(isinstance(body.get(name, ""), str) and len(body.get(name, "")) <= _LONGEST for name in _TEXTS)
    sizes, words = body.get("sizes", {}), (body.get("options", {}), body.get("environment", {}))
    sized = isinstance(sizes, dict) and all(type(size) is int for size in sizes.values())
    worded = all(isinstance(each, dict) and all(isinstance(value, str) for value in each.values()) for each in words)
    if not (plain and sized and worded):
        raise BadInputError("its inputs are not as Napkin writes them: make the report anew")
    return Inputs(**body)
