"""The inputs of a report as one line inside it, enough to make the report again.

HTML has them in a ``meta`` element, Markdown and LaTeX in a comment, JSON under ``inputs``. ``napkin verify`` makes the report again from
them and compares every character; it never trusts the visible text.
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
REPORT, INTERACTIVE, SITE = "report", "interactive", "site"  # kinds
_LONGEST = 200_000
_OWN = files.Kind(2**26)
_HTML = re.compile(r'<meta name="napkin-inputs" content="(?P<inputs>[^"]{1,200000})">')
_LATEX = re.compile(r"^% napkin-inputs (?P<inputs>\{.{1,200000}\})$", re.MULTILINE)
_MARKDOWN = re.compile(r"^<!-- napkin-inputs (?P<inputs>\{.{1,200000}\}) -->$", re.MULTILINE)


# Grammar of each note on the date and the machine; those of a real run begin with "check: ". Notes by other names are made again.
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
    """The inputs of a report.

    ``kind``: the command. ``device``: where the checks ran. ``gpu``: whose memory and rates the figures show. ``digest``: SHA-256 of the
    user's model file; ``templates``: SHA-256 of the user's template folder. ``date`` and ``environment``: notes on date and machine.
    ``other``, ``other_digest``: the second model of a comparison; of a table or a report, ``other`` has the quantities that were chosen.
    """

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
        """Date and machine as text. Every layout prints it, so that a changed date or version in the text is noticed."""
        noted = self.environment
        own = {name: value for name, value in noted.items() if noted.get(name.removeprefix("check: ")) != value or "check: " not in name}
        versions = ", ".join(f"{name} {value}" for name, value in own.items() if (name, value) != ("source", "built-in"))
        return f"{self.date} with {versions}" if versions else self.date

    @property
    def of_machine(self) -> Inputs:
        """These inputs, with only the notes that have a grammar: versions, machine, and the model's source."""
        return replace(self, environment={name: value for name, value in self.environment.items() if name == "source" or _grammar(name)})

    def require_grammar(self) -> None:
        """Raise ``BadInputError`` for a note that Napkin never writes: it cannot be made again, so it could say anything."""
        if self.date and not _is_date(self.date) and (self.kind, self.date) != ("lecture", "demand"):
            raise BadInputError(f"the date of the report is {self.date[:60]!r}, not YYYY-MM-DD: make the report again")
        for name, value in self.environment.items():
            grammar = self._sources if name == "source" else _grammar(name)
            if grammar and not re.fullmatch(grammar, value):
                raise BadInputError(f"the {name} of the report is {value[:60]!r}, which Napkin never writes: make the report again")

    @property
    def _sources(self) -> str:
        """Regular expression of the model's source: name and digest of the user's file, or a built-in."""
        file = file_of(self.model)
        if file is not None and file.suffix == ".py":
            return f"{re.escape(file.name)}, sha256 [0-9a-f]{{16}}"
        return f"built-in|{_OF_LIBRARY}"

    def as_noted(self, earlier: Inputs) -> Inputs:
        """These inputs with the date and environment of ``earlier``, where it has them."""
        environment = {name: earlier.environment.get(name, value) for name, value in self.environment.items()}
        return replace(self, date=earlier.date, environment=environment)

    def text(self) -> str:
        """One line of JSON in which no character can end a comment or an attribute."""
        line = json.dumps({name: value for name, value in asdict(self).items() if value}, ensure_ascii=True)
        for sign in "<>&'`":
            line = line.replace(sign, f"\\u{ord(sign):04x}")
        return line.replace("--", "-\\u002d")


def _grammar(name: str) -> str:
    """Regular expression of a note; empty for an unknown name."""
    return _NOTED.get(name.removeprefix("check: "), "")


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def without_versions(source: str) -> str:
    """A model's source without the version of transformers, which differs between machines."""
    return _TRANSFORMERS.sub("", source)


def plain(text: str) -> str:
    """The text as Napkin wrote it: without a byte order mark, with \\n as line end."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def digest_of(file: Path) -> str:
    """SHA-256 of a file's bytes; of a folder, those of its ``config.json``."""
    file = file / "config.json" if os.path.isdir(file) else file  # os.path, unlike Path, returns False for impossible names
    return hashlib.sha256(_OWN.read_bytes(file)).hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of a folder's templates and style sheets."""
    own = sorted(file for file in folder.glob("*") if file.suffix in (".j2", ".css"))
    return hashlib.sha256("".join(f"{file.name}:{digest_of(file)};" for file in own).encode()).hexdigest()


def file_of(model: str) -> Path | None:
    """The user's file in a model argument (``hf:PATH``, ``FILE.py:NAME``); ``None`` for a built-in."""
    if model.startswith("hf:"):
        return Path(model.removeprefix("hf:"))
    path, colon, _ = model.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def embedded(text: str, suffix: str) -> Inputs | None:
    """The inputs in a report of that file suffix; ``None`` if it has none. Raises ``BadInputError`` if they are malformed."""
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
        raise BadInputError("its inputs are not as Napkin writes them: make the report again")
    plain = all(isinstance(body.get(name, ""), str) and len(body.get(name, "")) <= _LONGEST for name in _TEXTS)
    sizes, mappings = body.get("sizes", {}), (body.get("options", {}), body.get("environment", {}))
    sized = isinstance(sizes, dict) and all(type(size) is int for size in sizes.values())
    worded = all(isinstance(each, dict) and all(isinstance(value, str) for value in each.values()) for each in mappings)
    if not (plain and sized and worded):
        raise BadInputError("its inputs are not as Napkin writes them: make the report again")
    return Inputs(**body)
